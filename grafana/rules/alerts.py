"""Every alert: when it fires, how grave it is, what it says. Names are public; the limits stand in thresholds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from grafana.rules import recording
from grafana.rules import thresholds as limit
from grafana.rules.expressions import (
    HOST,
    NAMED,
    RANK,
    RANK_LIVES,
    RUN,
    TRAINPROBE,
    TRAINS,
    lately,
    lately_of_host,
    while_a_run_lives,
    while_it_trains_on,
    while_training,
)

STALLS, FLEET, LIMITS, HOSTS = "trainprobe-stalls", "trainprobe-fleet", "trainprobe-memory", "trainprobe-hosts"
GOODPUT = "trainprobe-goodput"
"""The uids of the dashboards."""

CRITICAL, WARNING, INFO = "critical", "warning", "info"

_INFO = 'printf "trainprobe_run_info{job=%q,instance=%q,run=%q}" $labels.job $labels.instance $labels.run | query'
_SCHEDULED_AS = (
    f"{{{{ with {_INFO} }}}}{{{{ with . | first }}}}"
    "{{ if .Labels.pod }} (pod {{ .Labels.namespace }}/{{ .Labels.pod }})"
    "{{ else if .Labels.slurm_job }} (Slurm job {{ .Labels.slurm_job }}){{ end }}{{ end }}{{ end }}"
)
_RUN_HERE = "{{ $labels.run }}" + _SCHEDULED_AS + " on {{ $labels.instance }}"
_LATE_BY = (
    f'{{{{ with printf "{recording.LATE_CAUSE}{{job=%q,instance=%q,run=%q,rank=%q}}"'
    " $labels.job $labels.instance $labels.run $labels.rank | query }}"
    ', cause {{ . | first | label "cause" }}{{ end }}'
)
_COUNT = '{{ $value | printf "%.0f" }}'
_OF_RUN = "{job=%q,instance=%q,run=%q}"


@dataclass(frozen=True)
class Alert:
    """One rule; two of a name are two ways in which the same thing shows. ``lasting``: Prometheus's ``for``."""

    name: str
    severity: str
    dashboard: str
    expr: str
    summary: str
    description: str
    lasting: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)  # beside the severity: what tells two of a name apart


def _top_cause(query: str) -> str:
    """The cause that leads in ``query``, which has room for job, instance and run."""
    asked = f'printf "topk(1, {query})" $labels.job $labels.instance $labels.run | query'
    return f'{{{{ with {asked} }}}}, most of it to {{{{ . | first | label "cause" }}}}{{{{ end }}}}'


def _percent(share: float) -> str:
    return f"{share:.0%}"


LOST_WITH_AN_ATTEMPT = '{badput_source=~"recovery|wasted_progress"}'


def _badput(which: str = "") -> str:
    return f"sum by ({RUN}) (trainprobe_badput_seconds_total{which})"


def _gpu_errors(which: str) -> str:
    return lately_of_host(f"trainprobe_gpu_errors_total{{{which}}}", "job, instance, gpu, uuid, kind, code") + " > 0"


_GPU_ERRORS = (
    "Errors of GPU {{ $labels.gpu }} on {{ $labels.instance }} ({{ $labels.kind }}"
    "{{ with $labels.code }} {{ . }}{{ end }}): " + _COUNT
)

STALL_ALERTS = (
    Alert(
        "TrainingStalled",
        WARNING,
        STALLS,
        while_training(f"{recording.STALLED} > {limit.STALLED_SHARE}"),
        f"{_RUN_HERE} lost {{{{ $value | humanizePercentage }}}} of the last {limit.STALL_WINDOW} to stalls"
        + _top_cause(f"max by (cause) (rate(trainprobe_stall_seconds_total{_OF_RUN}[{limit.STALL_WINDOW}]))"),
        "Open the dashboard: the latest stall names file, worker or function and what to change. On the host,"
        " `trainprobe report` tells the same.",
    ),
    Alert(
        "TrainingStallBudgetBurn",
        WARNING,
        STALLS,
        while_it_trains_on(
            f"{recording.LOST_LONG} > {limit.LOST_BUDGET_SHARE}\n"
            f"and {recording.LOST_LATELY} > {limit.LOST_BUDGET_SHARE}\n"
            f"and on ({RUN}) max by ({RUN}) (trainprobe_run_wall_seconds_total) > {limit.BUDGET_WALL_SECONDS}"
        ),
        f"{_RUN_HERE} lost {{{{ $value | humanizePercentage }}}} of the last {limit.BUDGET_WINDOW}"
        + _top_cause(f"{recording.LOST_BY_CAUSE}{_OF_RUN}"),
        f"More than {_percent(limit.LOST_BUDGET_SHARE)} of the time is lost, and still is. `trainprobe advise` on the"
        " host computes the settings that would win it back.",
        limit.BUDGET_FOR,
    ),
    Alert(
        "TrainingGoodputBudgetBurn",
        WARNING,
        GOODPUT,
        f"{recording.BADPUT_LONG} > {limit.BADPUT_BUDGET_SHARE}\n"
        f"and {recording.BADPUT_LATELY} > {limit.BADPUT_BUDGET_SHARE}\n"
        f"and on ({RUN}) max by ({RUN}) (trainprobe_run_wall_seconds_total) > {limit.BUDGET_WALL_SECONDS}",
        f"{_RUN_HERE} was not productive for {{{{ $value | humanizePercentage }}}} of the last {limit.GOODPUT_WINDOW}",
        f"More than {_percent(limit.BADPUT_BUDGET_SHARE)} of the job's time goes to starts, restarts, lost progress,"
        " saves and waits, and still does. `trainprobe report` shows how much to each.",
        limit.BUDGET_FOR,
        labels={"over": "hours"},
    ),
    Alert(
        "TrainingGoodputBudgetBurn",
        WARNING,
        GOODPUT,
        f"(1 - min by ({RUN}) (trainprobe_goodput_ratio{{{NAMED}}})) > {limit.BADPUT_BUDGET_SHARE}\n"
        f"and on ({RUN}) max by ({RUN}) (trainprobe_run_attempts) >= {limit.RESTARTS}\n"
        f"and on ({RUN}) max by ({RUN}) (trainprobe_phase_active) == 1\n"
        f"and on ({RUN}) {_badput(LOST_WITH_AN_ATTEMPT)} > 0\n"
        f"and on ({RUN}) (\n"
        f"  {_badput()} / on ({RUN}) (1 - min by ({RUN}) (trainprobe_goodput_ratio))\n"
        f"  < on ({RUN}) {limit.BUDGET_WALL_SECONDS} * max by ({RUN}) (trainprobe_run_attempts)\n"
        f")",
        f'{_RUN_HERE} is attempt {{{{ with printf "max(trainprobe_run_attempts{_OF_RUN})" $labels.job'
        " $labels.instance $labels.run | query }}{{ . | first | value }}{{ end }} of its job, which was not productive"
        " for {{ $value | humanizePercentage }} of its time",
        f"Its attempts end early, so that more than {_percent(limit.BADPUT_BUDGET_SHARE)} of the job's time goes to"
        " starts, restarts and lost progress. `trainprobe report` shows how the latest attempt ended.",
        labels={"over": "attempts"},
    ),
    Alert(
        "TrainingNoProgress",
        CRITICAL,
        STALLS,
        f"max by ({RUN}) (\n"
        f"  (\n"
        f"    time() - trainprobe_last_step_timestamp_seconds{{{NAMED}}}\n"
        f"    > on ({RANK})\n"
        f"    clamp_min({limit.NO_PROGRESS_BASELINES} * trainprobe_step_baseline_seconds,"
        f" {limit.NO_PROGRESS_SECONDS})\n"
        f"  )\n"
        f"  and on ({RANK})\n"
        f'  (trainprobe_phase_active{{phase="train"}} == 1)\n'
        f")",
        f"{_RUN_HERE} has made no step for {{{{ $value | humanizeDuration }}}}",
        "The run is in its train phase and does nothing. Take the stall's chain and Python stack from the dashboard or"
        " `trainprobe report` before anybody kills it: they are what tells a deadlock from a hung file system.",
        labels={"since": "baseline"},
    ),
    Alert(
        "TrainingNoProgress",
        WARNING,
        STALLS,
        f"max by ({RUN}) (\n"
        f"  trainprobe_steps_total{{{NAMED}}} > 0\n"
        f"  and trainprobe_steps_total == trainprobe_steps_total offset {limit.NO_PROGRESS_AT_FIRST}\n"
        f"  and on ({RANK})\n"
        f'  (trainprobe_phase_active{{phase=~"startup|attaching"}} == 1)\n'
        f")",
        f"{_RUN_HERE} has made {_COUNT} steps, and none for {limit.NO_PROGRESS_AT_FIRST}",
        "It hangs in its first steps, before anybody knows how long one should take: a collective that not all ranks"
        " call, a lock, a file system. `py-spy dump --pid PID` shows where, `trainprobe report` what it waits for.",
        labels={"since": "start"},
    ),
    Alert(
        "TrainingSlowingDown",
        WARNING,
        STALLS,
        while_it_trains_on(
            f"max by ({RUN}) (\n"
            f"  avg_over_time(trainprobe_step_baseline_seconds{{{NAMED}}}[{limit.LOST_WINDOW}])\n"
            f"  / avg_over_time(trainprobe_step_baseline_seconds{{{NAMED}}}[{limit.LOST_WINDOW}]"
            f" offset {limit.SLOWER_AGO})\n"
            f"  - 1\n"
            f") > {limit.SLOWER_SHARE}"
        ),
        f"Steps of {_RUN_HERE} take {{{{ $value | humanizePercentage }}}} longer than {limit.SLOWER_AGO} ago",
        "No single step is slow, all of them are: something grows. Compare memory, descriptors, log files and the"
        " states of the training thread on the dashboard with those of an hour ago.",
        limit.SLOWER_FOR,
    ),
    Alert(
        "TrainingStragglerRank",
        WARNING,
        HOSTS,
        f"{recording.LATE} > {limit.STRAGGLER_SHARE}\nand on ({RUN})\n({TRAINS})",
        "Rank {{ $labels.rank }} of "
        + _RUN_HERE
        + " holds up the others {{ $value | humanizePercentage }} of the time"
        + _LATE_BY,
        "The others wait for this rank. What it loses its own time to is the cause of the whole run: the dashboard"
        " shows it on top, `trainprobe report` on its host has the evidence.",
        limit.STRAGGLER_FOR,
    ),
)

EVENT_ALERTS = (
    Alert(
        "TrainingCheckpointFailed",
        CRITICAL,
        STALLS,
        lately('trainprobe_checkpoints_total{outcome="error"}', RUN) + " > 0",
        f"Checkpoints of {_RUN_HERE} that failed in the last {limit.EVENT_WINDOW}: " + _COUNT,
        "What would be resumed from is older than it should be, or cut short. `trainprobe report` names the file and"
        " the error; make room or mend the mount, and do not resume from the file it names.",
    ),
    Alert(
        "TrainingWorkerDied",
        WARNING,
        STALLS,
        lately('trainprobe_worker_exits_total{reason!="finished"}', f"{RUN}, reason") + " > 0",
        f"DataLoader workers of {_RUN_HERE} that died ({{{{ $labels.reason }}}}): {_COUNT}",
        "`trainprobe report` names the worker, its signal or exit code, who sent the signal and the file it read last.",
    ),
    Alert(
        "TrainingOOMKill",
        CRITICAL,
        LIMITS,
        lately("trainprobe_oom_kills_total", f"{RUN}, scope")
        + " > 0\nor on (job, instance, run)\n"
        + lately('trainprobe_worker_exits_total{reason="oom_kill"}', RUN)
        + " > 0",
        f"Processes of {_RUN_HERE} that the kernel killed for want of memory"
        "{{ with $labels.scope }} (limit of the {{ . }}){{ end }}: " + _COUNT,
        "`trainprobe report` tells which limit was hit and who held what. Lower workers, prefetch_factor or the batch"
        " as `trainprobe advise` computes it, or raise the limit.",
    ),
    Alert(
        "TrainingGpuError",
        CRITICAL,
        LIMITS,
        _gpu_errors(f'code!~"{limit.PROGRAM_XIDS}"'),
        _GPU_ERRORS,
        "Drain the host if it is xid 79 (lost), 48, 64, 74 or 95 (memory, NVLink); after 63 or 94 resume, and reset the"
        " GPU at the next chance.",
    ),
    Alert(
        "TrainingGpuError",
        WARNING,
        LIMITS,
        _gpu_errors(f'kind="xid",code=~"{limit.PROGRAM_XIDS}"'),
        _GPU_ERRORS,
        "Usually the program's own fault, or what remains of a program that was killed: look at its last lines. The GPU"
        " is at fault where each program on it has this error.",
    ),
    Alert(
        "TrainingGpuThrottled",
        WARNING,
        LIMITS,
        "(\n  max by (job, instance, gpu, uuid, reason) (\n"
        f'    rate(trainprobe_gpu_throttled_seconds_total{{reason!~"{limit.THROTTLE_IS_NORMAL}"}}'
        f"[{limit.LOST_WINDOW}])\n"
        f"  ) > {limit.THROTTLED_SHARE}\n)\n"
        f"and on (job, instance, uuid)\n(trainprobe_run_gpu_info and on ({RANK}) {RANK_LIVES})",
        "GPU {{ $labels.gpu }} on {{ $labels.instance }} had its clock lowered {{ $value | humanizePercentage }}"
        f" of the last {limit.LOST_WINDOW}: {{{{ $labels.reason }}}}",
        "Thermal: airflow, fans, a neighbour. Power brake: the supply. All ranks of a run go as slow as this GPU.",
        limit.THROTTLED_FOR,
    ),
)

LIMIT_ALERTS = (
    Alert(
        "TrainingOOMRisk",
        CRITICAL,
        LIMITS,
        f"min by ({RUN}) (trainprobe_memory_exhaustion_seconds) < {limit.MEMORY_EXHAUSTION_SECONDS}",
        f"{_RUN_HERE} runs out of memory in {{{{ $value | humanizeDuration }}}} at the present rate",
        "There is time to save a checkpoint and stop. `trainprobe report` tells whose memory grows (the driver, the"
        " workers, shared) and against which limit.",
    ),
    Alert(
        "TrainingCgroupNearLimit",
        WARNING,
        LIMITS,
        f"max by ({RUN}) (\n"
        '  trainprobe_memory_used_bytes{scope="cgroup"}\n'
        '  / (trainprobe_memory_limit_bytes{scope="cgroup"} > 0)\n'
        f") > {limit.CGROUP_FILL_SHARE}",
        f"{_RUN_HERE} uses {{{{ $value | humanizePercentage }}}} of its control group's memory",
        "Page cache that the kernel drops first is not counted: this is memory in use. One batch more may be the end."
        " `trainprobe advise` tells what workers and prefetch_factor cost.",
        limit.FILL_FOR,
    ),
    Alert(
        "TrainingSwapIn",
        WARNING,
        LIMITS,
        f"max by ({RUN}) (\n"
        f"  rate(trainprobe_major_faults_total{{{NAMED}}}[{limit.PRESSURE_WINDOW}])\n"
        f") > {limit.MAJOR_FAULTS_PER_SECOND}\n"
        f"and on ({HOST})\n"
        f"(\n"
        f"  max by ({HOST}) (rate(trainprobe_swap_in_pages_total[{limit.PRESSURE_WINDOW}]))"
        f" > {limit.SWAP_IN_PAGES_PER_SECOND}\n"
        f")",
        f'{_RUN_HERE} waits for swapped memory: {{{{ $value | printf "%.0f" }}}} major faults a second',
        "A step that waits for swap is fifty times slower. Take memory from the host: fewer workers, a smaller"
        " prefetch_factor or batch, another job elsewhere.",
        limit.SWAP_IN_FOR,
    ),
    Alert(
        "TrainingSwapNearlyFull",
        WARNING,
        LIMITS,
        while_a_run_lives(
            f"max by ({HOST}) (\n"
            "  trainprobe_swap_used_bytes\n"
            "  / (trainprobe_swap_size_bytes > 0)\n"
            f") > {limit.SWAP_FILL_SHARE}"
        ),
        "{{ $labels.instance }} uses {{ $value | humanizePercentage }} of its swap while a training runs",
        "Swap that is merely full slows nothing down, but what comes next is the OOM killer.",
        limit.FILL_FOR,
    ),
    Alert(
        "TrainingMemoryPressure",
        WARNING,
        LIMITS,
        while_a_run_lives(
            f"max by ({HOST}) (\n"
            f'  rate(trainprobe_pressure_seconds_total{{resource="memory",kind="full"}}[{limit.PRESSURE_WINDOW}])\n'
            f") > {limit.PRESSURE_SHARE}\n"
            f"or\n"
            f"max by ({HOST}) (\n"
            f"  rate(trainprobe_direct_reclaim_seconds_total{{{NAMED}}}[{limit.PRESSURE_WINDOW}])\n"
            f") > {limit.PRESSURE_SHARE}"
        ),
        "On {{ $labels.instance }} work stood still for memory {{ $value | humanizePercentage }}"
        f" of the last {limit.PRESSURE_WINDOW}",
        "The kernel searches for memory instead of running the training. Free memory on the host, or raise the control"
        " group's limit: a group at its limit reclaims its own pages again and again.",
        limit.PRESSURE_FOR,
    ),
    Alert(
        "TrainingShmNearlyFull",
        WARNING,
        LIMITS,
        while_a_run_lives(
            "max by (job, instance, device, container) (\n"
            "  trainprobe_shm_used_bytes\n"
            "  / (trainprobe_shm_size_bytes > 0)\n"
            f") > {limit.SHM_FILL_SHARE}"
        ),
        "/dev/shm of {{ $labels.container }} on {{ $labels.instance }} is {{ $value | humanizePercentage }} full",
        "Workers hand batches over in /dev/shm; when it is full they die with a bus error. Docker: --shm-size"
        " or --ipc=host; Kubernetes: an emptyDir with medium Memory. Fewer workers and smaller batches need less.",
        limit.FILL_FOR,
    ),
    Alert(
        "TrainingFdExhaustionPredicted",
        WARNING,
        LIMITS,
        f"min by ({RUN}) (trainprobe_fd_exhaustion_seconds) < {limit.FD_EXHAUSTION_SECONDS}",
        f"{_RUN_HERE} runs out of file descriptors in {{{{ $value | humanizeDuration }}}} at the present rate",
        "`trainprobe report` tells of which kind they are. Batches that are kept hold their descriptors: delete them,"
        " or use the file_system sharing strategy; `ulimit -n` buys time.",
    ),
    Alert(
        "TrainingFdNearLimit",
        WARNING,
        LIMITS,
        f"max by ({RUN}) (\n"
        f"  trainprobe_open_fds{{{NAMED}}}\n"
        f"  / (trainprobe_max_fds{{{NAMED}}} > 0)\n"
        f") > {limit.FD_FILL_SHARE}",
        f"A process of {_RUN_HERE} has {{{{ $value | humanizePercentage }}}} of the file descriptors it may have",
        'At the limit the run ends with "Too many open files" or "received 0 items of ancdata". Raise `ulimit -n`'
        " before the next start; `trainprobe report` tells what the descriptors are.",
        limit.FILL_FOR,
    ),
    Alert(
        "TrainingDiskFull",
        CRITICAL,
        LIMITS,
        f"min by ({RUN}) (trainprobe_checkpoint_filesystem_available_bytes)\n"
        f"< on ({RUN})\n"
        f"({limit.CHECKPOINT_ROOM_FACTOR} * sum by ({RUN}) (trainprobe_checkpoint_last_bytes))",
        f"The next checkpoint of {_RUN_HERE} will not fit: {{{{ $value | humanize1024 }}}}B are left",
        "Make room before the next save: the latest checkpoint, of all ranks here, was larger than what is left. A save"
        " that runs out of space leaves a file that must not be resumed from.",
        limit.FILL_FOR,
        labels={"resource": "space"},
    ),
    Alert(
        "TrainingDiskFull",
        CRITICAL,
        LIMITS,
        f"min by ({RUN}) (trainprobe_checkpoint_filesystem_files_free) < {limit.FREE_INODES}",
        f"The next checkpoint of {_RUN_HERE} has no inode: {{{{ $value }}}} are left on its file system",
        "The disk has room for bytes but not for files: delete many small files (old event files, caches).",
        limit.FILL_FOR,
        labels={"resource": "inodes"},
    ),
)

PROBE_ALERTS = (
    Alert(
        "TrainprobeDown",
        WARNING,
        FLEET,
        f"up{{{TRAINPROBE}}} == 0",
        "Prometheus cannot scrape trainprobe on {{ $labels.instance }} (up is {{ $value }})",
        "The exporter does not answer: `systemctl status trainprobe-exporter` on the host, then the network, then TLS"
        " and password of the scrape. Trainings there go on unwatched by Prometheus.",
        limit.DOWN_FOR,
        labels={"part": "exporter"},
    ),
    Alert(
        "TrainprobeDown",
        WARNING,
        FLEET,
        'trainprobe_source_up{source="daemon"} == 0',
        "The trainprobe daemon on {{ $labels.instance }} is silent (source_up is {{ $value }})",
        "The exporter answers, but the daemon's report is absent or old: `systemctl status trainprobe` and"
        " `journalctl -u trainprobe` on the host. /-/ready of the exporter names the reason.",
        limit.DOWN_FOR,
        labels={"part": "daemon"},
    ),
    Alert(
        "TrainprobeDegraded",
        WARNING,
        FLEET,
        'trainprobe_ready == 0\nunless on (job, instance) (trainprobe_source_up{source="daemon"} == 0)',
        "trainprobe on {{ $labels.instance }} is degraded{{ with printf"
        ' "trainprobe_source_up{job=%q,instance=%q} == 0" $labels.job $labels.instance | query }}; silent sources:'
        "{{ range . }} {{ .Labels.source }}{{ end }}{{ end }} (ready is {{ $value }})",
        "Something it needs has failed, so causes may be told as unknown. `trainprobe check` on the host, or /-/ready"
        " of the exporter, names it and the command that mends it.",
        limit.DEGRADED_FOR,
    ),
    Alert(
        "TrainprobeEventsLost",
        INFO,
        FLEET,
        lately_of_host("trainprobe_events_lost_total", "job, instance, probe") + " > 0",
        "Events of {{ $labels.probe }} that trainprobe on {{ $labels.instance }} lost"
        f" in the last {limit.EVENT_WINDOW}: {_COUNT}",
        "Totals of that time may be too small. It happens in bursts of processes or errors; if it goes on, see the"
        " runbook.",
    ),
)

ALERTS = {"stalls": STALL_ALERTS, "events": EVENT_ALERTS, "limits": LIMIT_ALERTS, "trainprobe": PROBE_ALERTS}
"""By the group that evaluates them."""
