"""Recording rules that add hours up: of ranks and of GPUs, by run, cause and user, for questions over days and weeks.

Each sample is the growth in a window as long as the interval of its group, so the sum of the samples in a time range is
the growth in that range, whatever scraped series have ended since. What is 0 has no sample.
"""

from __future__ import annotations

from grafana.rules.expressions import NAMED, RANK, RUN, grown
from grafana.rules.recording import Recording
from grafana.rules.thresholds import ACCOUNT_WINDOW, BUDGET_WINDOW, HOURS_WINDOW

GPUS = "rank:trainprobe_gpus:count"
RANK_HOURS = f"run:trainprobe_rank_hours:increase{HOURS_WINDOW}"
RANK_HOURS_LOST = f"run_cause:trainprobe_rank_hours_lost:increase{HOURS_WINDOW}"
GPU_HOURS_LOST = f"run_cause:trainprobe_gpu_hours_lost:increase{HOURS_WINDOW}"
GPU_HOURS_LOST_LONG = f"run_cause:trainprobe_gpu_hours_lost:increase{BUDGET_WINDOW}"
BADPUT = f"run_source:trainprobe_badput_gpu_hours:increase{HOURS_WINDOW}"
PRODUCTIVE = f"run:trainprobe_productive_gpu_hours:increase{HOURS_WINDOW}"
WASTE, HELD = "all that was not productive", "all that was held"
OF_JOB = {
    BADPUT: f"run_source:trainprobe_badput_gpu_hours:sum{ACCOUNT_WINDOW}",
    PRODUCTIVE: f"run:trainprobe_productive_gpu_hours:sum{ACCOUNT_WINDOW}",
    GPU_HOURS_LOST: f"run_cause:trainprobe_gpu_hours_lost:sum{ACCOUNT_WINDOW}",
    WASTE: f"run:trainprobe_badput_gpu_hours:sum{ACCOUNT_WINDOW}",
    HELD: f"run:trainprobe_gpu_hours:sum{ACCOUNT_WINDOW}",
}
"""By job on all its hosts, over ACCOUNT_WINDOW."""
OF_USER = {name: of_job.replace("run", "user", 1) for name, of_job in OF_JOB.items()}

_LOST = f"(increase(trainprobe_lost_seconds_total[{HOURS_WINDOW}]) > 0) / 3600"  # nine of ten causes cost nothing
_OF_USERS = f"max by ({RUN}, user) (last_over_time(trainprobe_run_info{{{NAMED}}}[{HOURS_WINDOW}]))"
_USERS = f"topk by ({RUN}) (1, {_OF_USERS})"  # one, also while the label comes or goes
_RANKS_GPUS = f"last_over_time(trainprobe_run_gpu_info{{{NAMED}}}[{HOURS_WINDOW}])"
_TIMES_GPUS_OF_RUN = f"* on ({RUN}) group_left (user)\nsum by ({RUN}, user) ({GPUS})"
_PRODUCTIVE = f"""\
avg by ({RUN}) (increase(trainprobe_productive_seconds_total{{{NAMED}}}[{HOURS_WINDOW}])) / 3600
{_TIMES_GPUS_OF_RUN}"""
_ATTEMPTS = f"max by ({RUN}) (trainprobe_run_attempts"
# The account of a job: a run that is its third attempt begins with what the first two had come to.
_NEW = f"\n  and on ({RUN})\n  ({_ATTEMPTS}) == 1 or {_ATTEMPTS} offset {HOURS_WINDOW}))"
_WASTED = f'sum by ({RUN}, user) ({BADPUT}{{badput_source="wasted_progress"}})'

HOURS = (
    Recording(
        GPUS,
        f"count by ({RANK}, user) (\n{_RANKS_GPUS}\n* on ({RUN}) group_left (user)\n{_USERS}\n)",
        "GPUs of a rank, with the user where `privacy.labels` names him.",
    ),
    Recording(
        RANK_HOURS,
        f"sum by ({RUN}) (increase(trainprobe_run_wall_seconds_total[{HOURS_WINDOW}])) / 3600 > 0",
        "Hours of all ranks.",
    ),
    Recording(RANK_HOURS_LOST, f"sum by ({RUN}, cause) (\n{_LOST}\n)", "Hours that the ranks lost, by cause."),
    Recording(
        GPU_HOURS_LOST,
        f"sum by ({RUN}, user, cause) (\n{_LOST}\n* on ({RANK}) group_left (user)\n{GPUS}\n)",
        "GPU-hours lost, by cause.",
    ),
    Recording(
        GPU_HOURS_LOST_LONG,
        f"sum by ({RUN}, cause) (sum_over_time({GPU_HOURS_LOST}[{BUDGET_WINDOW}]))",
        "GPU-hours lost in the last hour, by cause.",
    ),
    Recording(
        BADPUT,
        f"sum by ({RUN}, user, badput_source) (\n(\n"
        f"{grown('trainprobe_badput_seconds_total', HOURS_WINDOW, _NEW)}\n) / 3600\n{_TIMES_GPUS_OF_RUN}\n) > 0",
        "GPU-hours of a job that were not productive, its restarts and the gaps between them included.",
    ),
    Recording(
        PRODUCTIVE,
        f"{_PRODUCTIVE}\n- on ({RUN}, user) {_WASTED}\nor\n{_PRODUCTIVE}",
        "GPU-hours that were productive; what a failure took back is subtracted when the next attempt begins.",
    ),
)

_BY = {BADPUT: ", badput_source", GPU_HOURS_LOST: ", cause"}

ACCOUNTS = (
    *(
        Recording(
            OF_JOB[name],
            f"sum by (job, run, user{_BY.get(name, '')}) (sum_over_time({name}[{ACCOUNT_WINDOW}]))",
            f"`{name}` of the job on all its hosts, over {ACCOUNT_WINDOW}.",
        )
        for name in (BADPUT, PRODUCTIVE, GPU_HOURS_LOST)
    ),
    Recording(OF_JOB[WASTE], f"sum by (job, run, user) ({OF_JOB[BADPUT]})", "The first of these for all sources."),
    Recording(
        OF_JOB[HELD],
        f"{OF_JOB[WASTE]} + {OF_JOB[PRODUCTIVE]}\nor {OF_JOB[WASTE]}\nor {OF_JOB[PRODUCTIVE]}",
        "All GPU-hours of the job, those of the gaps between its attempts too.",
    ),
    *(
        Recording(OF_USER[name], f"sum by (job, user{_BY.get(name, '')}) ({of_job})", "The same of a user's jobs.")
        for name, of_job in OF_JOB.items()
    ),
)
