"""GPUs through the real binding and a library made here, which can lose a GPU, hang, and know nothing."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
WHOLE = {
    "memory_total": 80_000, "memory_used": 60_000, "utilization": 40, "samples": 90, "power": 301_500,
    "temperature": 71, "clock": 1400, "clock_max": 1980, "pcie": 2000, "reasons": 0x44, "ecc": 0, "mig": 0, "rows": 0,
    "tensor": 35, "pid": 4711, "pid_memory": 50_000,
}  # fmt: skip


class Machine:
    """GPUs on paper."""

    def __init__(self, path: Path, library: Path) -> None:
        self.path, self.library = path, library
        self.gpus: dict[int, dict[str, object]] = {}

    def write(self) -> str:
        lines = [f"99 count {len([gpu for gpu in self.gpus if gpu != 99])}"]
        lines += [f"{gpu} {name} {value}" for gpu, values in self.gpus.items() for name, value in values.items()]
        return "\n".join(lines) + "\n"

    def watch(self, body: str) -> str:
        """Run a script with ``gpus`` (the collector), ``until`` (poll until it holds) and ``now(**figures)``."""
        self.path.write_text(self.write())
        program = textwrap.dedent(
            """
            import sys, time, pathlib
            from trainprobe.collect.nvml import Gpus
            from trainprobe.collect.source import Failed, Unavailable
            path = pathlib.Path(sys.argv[1])
            gpus = Gpus(every_ns=20_000_000)
            def until(holds, seconds=8):
                end = time.monotonic() + seconds
                while time.monotonic() < end:
                    seen = gpus.poll(time.monotonic_ns())
                    if not isinstance(seen, tuple) or seen:
                        by = {g.index: g for g in seen} if isinstance(seen, tuple) else seen
                        if holds(by): return by
                    time.sleep(0.01)
                raise SystemExit("it did not come to be")
            def now(gpu, name, value):
                lines = [l for l in path.read_text().splitlines() if not l.startswith(f"{gpu} {name} ")]
                new = path.with_suffix(".new"); new.write_text("\\n".join([*lines, f"{gpu} {name} {value}"]) + "\\n")
                new.rename(path)
            """
        )
        ended = subprocess.run(
            [sys.executable, "-c", program + textwrap.dedent(body), str(self.path)],
            capture_output=True, text=True, timeout=60, check=False,
            env={
                "PATH": "/usr/bin:/bin", "LD_LIBRARY_PATH": str(self.library), "FAKE_NVML": str(self.path),
                "PYTHONPATH": str(ROOT / "daemon"),
            },
        )  # fmt: skip
        assert ended.returncode == 0, ended.stderr
        return ended.stdout


@pytest.fixture
def machine(tmp_path: Path, nvml_library: Path) -> Machine:
    return Machine(tmp_path / "gpus", nvml_library)


def test_two_gpus_with_all_their_figures(machine: Machine) -> None:
    machine.gpus = {0: dict(WHOLE), 1: WHOLE | {"samples": 0, "pid": 0}}
    said = machine.watch(
        """
        seen = until(lambda by: len(by) == 2)
        a, b = seen[0], seen[1]
        print(a.uuid, a.bus_id, a.utilization, a.memory_used_bytes, a.memory_total_bytes, a.power_watts)
        print(a.temperature_celsius, a.sm_clock_hertz, a.sm_clock_max_hertz, a.reasons, a.ecc_errors, a.mig)
        print(a.pcie_receive_bytes_per_second, [(h.pid, h.bytes) for h in a.holders], a.missing)
        print(b.utilization, b.holders)
        """
    )
    assert said.splitlines() == [
        "GPU-0000 00000000:01:00.0 0.9 60000 80000 301.5",
        "71 1400000000 1980000000 ('sw_power_cap', 'hw_thermal') 0 False",
        "2048000 [(4711, 50000)] ()",
        "0.0 ()",
    ]


def test_a_process_that_only_holds_memory_is_told_from_one_that_computes(machine: Machine) -> None:
    machine.gpus = {
        0: WHOLE | {"other_pid": 4712, "other_busy": 37},
        1: WHOLE | {"other_pid": 4712},
        2: dict(WHOLE),
        3: WHOLE | {"other_pid": 4712, "other_busy": 0},
    }
    said = machine.watch(
        """
        seen = until(lambda by: len(by) == 4)
        for at in range(4):
            print([(h.pid, h.utilization) for h in seen[at].holders], seen[at].missing)
        """
    )
    assert said.splitlines() == [
        "[(4711, 0.0), (4712, 0.37)] ()",
        "[(4711, None), (4712, None)] ('process_utilization',)",
        "[(4711, None)] ()",
        "[(4711, 0.0), (4712, 0.0)] ()",
    ]


def test_memory_in_use_is_told_without_the_drivers_own_where_it_tells_that_apart(machine: Machine) -> None:
    reserved = random.randrange(1, 9_000)
    machine.gpus = {0: WHOLE | {"memory_reserved": reserved}, 1: dict(WHOLE)}
    said = machine.watch(
        """
        seen = until(lambda by: len(by) == 2)
        print(seen[0].memory_used_bytes, seen[0].memory_total_bytes, seen[1].memory_used_bytes, seen[0].missing)
        """
    )
    assert said.split() == [str(WHOLE["memory_used"] - reserved), "80000", "60000", "()"]


def test_what_is_not_supported_is_none_and_never_zero(machine: Machine) -> None:
    machine.gpus = {0: {}}
    said = machine.watch(
        """
        import dataclasses
        gpu = until(lambda by: 0 in by)[0]
        told = dataclasses.asdict(gpu)
        print(sorted(name for name, value in told.items() if value is None))
        print(gpu.missing, gpu.lost, gpu.hung)
        """
    )
    first, second = said.splitlines()
    assert "utilization" in first
    assert "memory_used_bytes" in first
    assert "holders" in first
    assert "reasons" in first
    assert "'ecc'" in second
    assert second.endswith("False False")


FIELDS = {
    "memory_total": ("memory_used_bytes", "memory_total_bytes"), "power": ("power_watts",),
    "temperature": ("temperature_celsius",), "clock": ("sm_clock_hertz",), "clock_max": ("sm_clock_max_hertz",),
    "pcie": ("pcie_receive_bytes_per_second", "pcie_transmit_bytes_per_second"), "reasons": ("reasons",),
    "ecc": ("ecc_errors",), "rows": ("remapped_rows",), "tensor": ("tensor_active",), "pid": ("holders",),
    "utilization": ("utilization",),
}  # fmt: skip
"""What is None where a function of the library knows no answer."""


def test_each_figure_may_be_missing_by_itself(machine: Machine) -> None:
    """Not supported, not permitted, not found: that figure is None and named, no other one is, and none is 0."""
    told = dict(WHOLE)
    lacking = random.sample(sorted(FIELDS), random.randrange(1, 6))
    for name in lacking:
        told[name] = f"!{random.choice([3, 4, 6])}"
    if "utilization" in lacking:
        told["samples"] = "!3"
    machine.gpus = {0: told, 1: dict(WHOLE)}
    said = machine.watch(
        """
        import dataclasses, json
        seen = until(lambda by: len(by) == 2 and by[1].tensor_active is not None)  # the second reading
        print(json.dumps([dataclasses.asdict(seen[0]), dataclasses.asdict(seen[1])]))
        """
    )
    poor, whole = json.loads(said)
    absent = {field for name in lacking for field in FIELDS[name]}
    assert {field for field, value in poor.items() if value is None} == absent
    assert len(poor["missing"]) >= len(lacking)
    assert [value for value in whole.values() if value is None] == []
    for field in poor.keys() - absent - {"index", "uuid", "bus_id", "at_ns", "since_ns", "missing"}:
        assert poor[field] == whole[field], field


def test_what_hardly_changes_is_asked_again_seldom(machine: Machine) -> None:
    """Partitions that are made while the daemon watches are known at the thirtieth reading; what was not supported is
    asked for each time, for a driver that has just come up may not know much yet."""
    machine.gpus = {0: WHOLE | {"clock_max": "!3"}}
    said = machine.watch(
        """
        gpus = Gpus(every_ns=50_000_000)
        first = until(lambda by: 0 in by)[0]
        now(0, "mig", 1); now(0, "clock_max", 2000); now(0, "power", 5000)
        soon = until(lambda by: by[0].power_watts == 5)[0]
        print(first.missing, soon.mig, soon.sm_clock_max_hertz, soon.missing)
        later = until(lambda by: by[0].mig)[0]
        print(round((later.at_ns - first.at_ns) / 1e6))
        """
    )
    soon, later = said.splitlines()
    assert soon == "('sm_clock_max',) False 2000000000 ()"
    assert int(later) > 28 * 50


def test_tensor_cores_between_two_readings(machine: Machine) -> None:
    """The first reading has nothing to compare with; an old GPU has no such counters."""
    machine.gpus = {0: dict(WHOLE), 1: {name: value for name, value in WHOLE.items() if name != "tensor"}}
    said = machine.watch(
        """
        print(until(lambda by: len(by) == 2 and by[0].tensor_active is not None)[0].tensor_active)
        now(0, "tensor", 80)
        seen = until(lambda by: by[0].tensor_active not in (None, 0.35))
        print(seen[0].tensor_active, seen[0].missing, seen[1].tensor_active, seen[1].missing)
        """
    )
    assert said.splitlines() == ["0.35", "0.8 () None ('tensor_active',)"]


def test_what_the_counters_tell_is_not_asked_for_once_more(machine: Machine) -> None:
    """They speak for the time between two readings; one that they do not tell is asked for."""
    busy, receive = random.randrange(100), random.randrange(9_000)
    machine.gpus = {0: WHOLE | {"busy": busy, "receive": receive}}
    said = machine.watch(
        """
        gpu = until(lambda by: by[0].tensor_active is not None)[0]
        print(gpu.utilization, gpu.pcie_receive_bytes_per_second, gpu.pcie_transmit_bytes_per_second, gpu.missing)
        """
    )
    assert said.split() == [str(busy / 100), str(receive << 20), "2048000", "()"]


def test_handles_that_die_give_the_counters_samples_back(machine: Machine) -> None:
    """Two samples a GPU: where they leaked, the third time there would be none left."""
    machine.gpus = {0: dict(WHOLE), 99: {"gpm_samples": 2}}
    said = machine.watch(
        """
        for turn in range(4):
            print(until(lambda by: isinstance(by, dict) and by[0].tensor_active is not None)[0].tensor_active)
            now(0, "power", "!2")
            time.sleep(0.1)
            now(0, "power", 1000)
        """
    )
    assert said.split() == ["0.35"] * 4


def test_a_loop_that_is_late_loses_no_reading(machine: Machine) -> None:
    machine.gpus = {0: dict(WHOLE), 1: dict(WHOLE)}
    said = machine.watch(
        """
        until(lambda by: len(by) == 2)
        time.sleep(0.5)
        seen = gpus.poll(time.monotonic_ns())
        for index in (0, 1):
            mine = [one for one in seen if one.index == index]
            print(len(mine) >= 5, all(a.at_ns == b.since_ns for a, b in zip(mine, mine[1:])))
        """
    )
    assert said.splitlines() == ["True True"] * 2


def test_the_drivers_last_figure_where_it_keeps_no_samples(machine: Machine) -> None:
    machine.gpus = {0: {name: value for name, value in WHOLE.items() if name != "samples"}}
    assert machine.watch("print(until(lambda by: 0 in by)[0].utilization)").strip() == "0.4"


def test_a_lost_gpu_leaves_the_other_and_comes_back(machine: Machine) -> None:
    machine.gpus = {0: dict(WHOLE), 1: dict(WHOLE)}
    said = machine.watch(
        """
        until(lambda by: len(by) == 2)
        now(1, "power", "!15"); now(1, "handle", "!15")
        seen = until(lambda by: by[1].lost)
        print(seen[0].utilization, seen[1].uuid, seen[1].utilization)
        now(1, "power", 1000); now(1, "handle", 1)
        print(until(lambda by: not by[1].lost)[1].power_watts)
        """
    )
    assert said.splitlines() == ["0.9 GPU-0001 None", "1.0"]


def test_a_call_that_hangs_is_left_behind_until_it_returns(machine: Machine) -> None:
    machine.gpus = {0: dict(WHOLE), 1: dict(WHOLE)}
    said = machine.watch(
        """
        until(lambda by: len(by) == 2)
        now(1, "temperature", "hang")
        print(until(lambda by: 1 in by and by[1].hung)[1].uuid)
        began = time.monotonic()
        seen = until(lambda by: 0 in by and by[1].hung)
        print(seen[0].utilization)
        now(1, "temperature", 50)
        print(until(lambda by: 1 in by and not by[1].hung)[1].temperature_celsius)
        """
    )
    assert said.splitlines() == ["GPU-0001", "0.9", "50"]


def test_handles_that_die_are_opened_again(machine: Machine) -> None:
    """As after systemctl daemon-reload in a container: "Unknown Error"."""
    machine.gpus = {0: dict(WHOLE)}
    said = machine.watch(
        """
        until(lambda by: 0 in by)
        now(0, "power", "!999"); now(99, "init", "!999")
        time.sleep(0.3)
        now(0, "power", 7000); now(99, "init", 0)
        print(until(lambda by: isinstance(by, dict) and by[0].power_watts == 7.0)[0].power_watts)
        """
    )
    assert said.strip() == "7.0"


def test_a_driver_that_is_taken_away_with_its_library_and_comes_back(machine: Machine, tmp_path: Path) -> None:
    """As where the driver is upgraded below us: that is told, nothing ends, and the figures return with it."""
    machine.gpus = {0: dict(WHOLE)}
    machine.library = Path(shutil.copytree(machine.library, tmp_path / "driver"))
    said = machine.watch(
        """
        import os
        library = pathlib.Path(os.environ["LD_LIBRARY_PATH"])
        until(lambda by: isinstance(by, dict) and 0 in by)
        library.rename(library.with_name("gone"))
        now(0, "power", "!9"); now(99, "init", "!9")
        told = until(lambda by: not isinstance(by, dict))
        print(type(told).__name__, told.reason)
        library.with_name("gone").rename(library)
        now(0, "power", 8000); now(99, "init", 0)
        print(until(lambda by: isinstance(by, dict) and by[0].power_watts == 8.0)[0].power_watts)
        """
    )
    told, power = said.splitlines()
    assert told.split(" ", 1)[1].strip(), "a reason"
    assert power == "8.0"


def test_a_partitioned_gpu(machine: Machine) -> None:
    machine.gpus = {0: WHOLE | {"mig": 1, "samples": "!3", "utilization": "!3"}}
    said = machine.watch("gpu = until(lambda by: 0 in by)[0]; print(gpu.mig, gpu.utilization, gpu.memory_used_bytes)")
    assert said.split() == ["True", "None", "60000"]


def test_a_machine_without_gpus(tmp_path: Path) -> None:
    said = Machine(tmp_path / "gpus", tmp_path).watch("print(gpus.present(1), type(gpus.poll(1)).__name__)")
    assert said.split() == ["False", "Unavailable"]
