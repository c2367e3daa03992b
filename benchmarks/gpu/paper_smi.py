"""nvidia-smi on paper: what the stand-in of NVML tells of GPU 0, as ``nvidia-smi -q -x`` writes it, in its units."""

from __future__ import annotations

import os
import sys
from pathlib import Path

REASONS = {"sw_power_cap": 0x4, "hw_slowdown": 0x8, "hw_thermal_slowdown": 0x40, "sw_thermal_slowdown": 0x20}


def main() -> None:
    if "-x" not in sys.argv:
        print("GPU on paper, 0, 0 MiB")
        return
    lines = (line.split() for line in Path(os.environ["FAKE_NVML"]).read_text().splitlines())
    told = {line[1]: int(line[2], 0) for line in lines if line[0] == "0"}
    reasons = "".join(
        f"<clocks_event_reason_{name}>{'Active' if told.get('reasons', 0) & bit else 'Not Active'}"
        f"</clocks_event_reason_{name}>"
        for name, bit in REASONS.items()
    )
    mib = 1 << 20
    print(f"""<?xml version="1.0" ?><!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log><driver_version>0</driver_version><gpu id="00000000:01:00.0"><uuid>GPU-0000</uuid>
<pci><rx_util>{told["pcie"]} KB/s</rx_util><tx_util>{told["pcie"]} KB/s</tx_util></pci>
<fb_memory_usage><total>{told["memory_total"] // mib} MiB</total>
<used>{told["memory_used"] // mib} MiB</used></fb_memory_usage>
<utilization><gpu_util>{told["utilization"]} %</gpu_util></utilization>
<ecc_errors><volatile><sram_uncorrectable>0</sram_uncorrectable>
<dram_uncorrectable>{told["ecc"]}</dram_uncorrectable></volatile></ecc_errors>
<mig_mode><current_mig>{"Enabled" if told["mig"] else "Disabled"}</current_mig></mig_mode>
<remapped_rows><remapped_row_unc>{told["rows"]}</remapped_row_unc></remapped_rows>
<temperature><gpu_temp>{told["temperature"]} C</gpu_temp></temperature>
<gpu_power_readings><instant_power_draw>{told["power"] / 1000:.2f} W</instant_power_draw></gpu_power_readings>
<clocks><sm_clock>{told["clock"]} MHz</sm_clock></clocks>
<max_clocks><sm_clock>{told["clock_max"]} MHz</sm_clock></max_clocks>
<clocks_event_reasons>{reasons}</clocks_event_reasons>
<processes><process_info><pid>{told["pid"]}</pid>
<used_memory>{told["pid_memory"] // mib} MiB</used_memory></process_info></processes>
</gpu></nvidia_smi_log>""")


if __name__ == "__main__":
    main()
