"""The queries of the dashboards that several panels ask, or that take more than one line.

Ranks of one run stall together: where a figure is about a run, the worst rank stands for it, never the sum. Where
hours are added up over runs, ranks are summed, for each of them held its devices all that time.
"""

from __future__ import annotations

from grafana.lines import RATE, REPORT, Lines
from grafana.rules.expressions import TRAINPROBE
from grafana.rules.hours import BADPUT, GPU_HOURS_LOST, RANK_HOURS, RANK_HOURS_LOST
from grafana.rules.recording import LATE, LOST_LATELY, STALLED
from grafana.rules.thresholds import HOURS_WINDOW, STALLED_SHARE, STRAGGLER_SHARE

STEP = "$__interval"
RANGE = "$__range"
_RANK = "job, instance, run, rank"
_TRAINING, NOT_TRAINING = 'phase="train"', 'phase!="train"'
_NAMED_RUNS = 'run!="other"'  # those with series of their own: ``other`` is the sum of all beyond the exporter's bound


class Queries(Lines):
    """The queries for one scope."""

    # Regions and lanes.

    def stall_regions(self, causes: str) -> str:
        of_these = f'cause=~"{causes}"'
        stalled = f"trainprobe_stall_seconds_total{self.scope.rank(of_these)}"
        return f"max by (run, cause) ({stalled} - ({stalled} offset {STEP})) > 0"

    @property
    def phase_regions(self) -> str:
        return f"max by (run, phase) (trainprobe_phase_active{self.scope.rank(NOT_TRAINING)}) == 1"

    @property
    def stall_starts(self) -> str:
        return f"trainprobe_stall_last_start_timestamp_seconds{self.scope.rank()} * 1000"

    @property
    def stall_lanes(self) -> str:
        stalled = f"trainprobe_stall_seconds_total{self.scope.rank()}"
        lanes = f"max by (cause) ({stalled} - ({stalled} offset {STEP})) > bool 0"
        return self._of_those_seen(lanes, "trainprobe_stall_seconds_total", "cause")

    # The verdict of one run.

    @property
    def worst_cause(self) -> str:
        worst = f"topk(1, max by (cause) (increase(trainprobe_lost_seconds_total{self.scope.rank()}[{RANGE}])) > 0)"
        watched = f"increase(trainprobe_run_wall_seconds_total{self.scope.rank()}[{RANGE}])"
        return _or_say(worst, "cause", "nothing lost", watched)

    @property
    def stalled_now(self) -> str:
        stalled = f"max by (cause) (trainprobe_stall_active{self.scope.rank()}) == 1"
        return _or_say(stalled, "cause", "no", f"trainprobe_phase_active{self.scope.rank()}")

    @property
    def phase_now(self) -> str:
        flags = f"trainprobe_phase_active{self.scope.rank()}"
        return _or_say(f"max by (phase) ({flags}) == 1", "phase", "ended", flags)

    @property
    def seconds_without_step(self) -> str:
        training = f"trainprobe_phase_active{self.scope.rank(_TRAINING)} == 1"
        return f"time() - min(trainprobe_last_step_timestamp_seconds{self.scope.rank()} and on ({_RANK}) ({training}))"

    @property
    def step_baseline(self) -> str:
        return f"max(trainprobe_step_baseline_seconds{self.scope.rank()})"

    def step_quantile(self, quantile: float) -> str:
        buckets = f"rate(trainprobe_step_duration_seconds_bucket{self.scope.rank()}[{RATE}])"
        return f"histogram_quantile({quantile}, sum by (le) ({buckets})) >= 0"  # no step, no number

    # Where time goes.

    @property
    def lost_per_second(self) -> str:
        lost = f"max by (cause) (rate(trainprobe_lost_seconds_total{self.scope.rank()}[{RATE}]))"
        return self._of_those_seen(lost, "trainprobe_lost_seconds_total", "cause")

    @property
    def phase_seconds_in_range(self) -> str:
        return f"max by (phase) ({self.grown('trainprobe_phase_seconds_total', self.scope.rank(), RANGE)})"

    def state_share(self, *states: str) -> str:
        selector = self.scope.rank(f'state=~"{"|".join(states)}"')
        return f"max by (rank, state) (rate(trainprobe_state_seconds_total{selector}[{RATE}]))"

    @property
    def stalls_in_range(self) -> str:
        return f"{self._in_range('trainprobe_stalls_total')} and on (rank, cause) ({self.stall_seconds_in_range})"

    @property
    def stall_seconds_in_range(self) -> str:
        return f"{self._in_range('trainprobe_stall_seconds_total')} > 0"

    @property
    def latest_stall(self) -> str:
        starts = f"max by (rank, cause) (trainprobe_stall_last_start_timestamp_seconds{self.scope.rank()}) * 1000"
        return f"{starts} and on (rank, cause) ({self.stall_seconds_in_range})"

    @property
    def stall_p90(self) -> str:
        buckets = f"increase(trainprobe_stall_duration_seconds_bucket{self.scope.rank()}[{RANGE}])"
        return f"histogram_quantile(0.9, sum by (le) ({buckets})) >= 0"

    # A rank's sizes and saves.

    def least(self, metric: str) -> str:
        """The least of a gauge that is absent while nothing is in sight."""
        return f"min({metric}{self.scope.rank()})"

    @property
    def checkpoint_seconds(self) -> str:
        metric, by = "trainprobe_checkpoint_seconds_total", "operation, blocking"
        return self._of_those_seen(f"max by ({by}) (rate({metric}{self.scope.rank()}[{RATE}]))", metric, by)

    # Memory.

    @property
    def memory_share(self) -> str:
        used, limit = (f"trainprobe_memory_{what}_bytes{self.scope.run()}" for what in ("used", "limit"))
        return f"max by (instance, run, scope) ({used} / {limit})"

    def memory(self, what: str) -> str:
        """``used`` or ``limit``."""
        return f"max by (instance, run, scope) (trainprobe_memory_{what}_bytes{self.scope.run()})"

    @property
    def swap_share(self) -> str:
        size = f"trainprobe_swap_size_bytes{self.scope.host()}"
        return f"max by (instance) (trainprobe_swap_used_bytes{self.scope.host()} / ({size} > 0))"

    @property
    def shm_share(self) -> str:
        used, size = (f"trainprobe_shm_{what}_bytes{self.scope.host()}" for what in ("used", "size"))
        return f"max by (instance, container, device) ({used} / ({size} > 0))"

    @property
    def block_io_p99(self) -> str:
        buckets = f"rate(trainprobe_block_io_duration_seconds_bucket{self.scope.host()}[{RATE}])"
        return f"histogram_quantile(0.99, sum by (le, instance, device, operation) ({buckets}))"

    @property
    def gpu_memory_share(self) -> str:
        used, size = (f"trainprobe_gpu_memory_{what}_bytes{self.scope.host()}" for what in ("used", "total"))
        return f"max by (instance, gpu) ({used} / {size} {self.of_these_ranks})"

    # Many runs.

    @property
    def _ranks_now(self) -> str:
        """The ranks that live: the series of one that has ended stay for a while."""
        lives = f"trainprobe_phase_active{self.scope.rank()} == 1"
        return f"trainprobe_run_info{self.scope.rank()} and on ({_RANK}) {lives}"

    @property
    def ranks_now(self) -> str:
        return f"count({self._ranks_now})"

    @property
    def runs_now(self) -> str:
        return f"count(count by (job, run) ({self._ranks_now}))"

    @property
    def stalled_runs_now(self) -> str:
        alive = f"{STALLED}{self.scope.run()} and on (job, instance, run) ({self._ranks_now})"
        return f"count(max by (job, run) ({alive}) > {STALLED_SHARE}) or 0 * {self.ranks_now}"

    @property
    def badput_gpu_hours(self) -> str:
        """Of jobs, their restarts included: what the time of their GPUs went to that was not productive."""
        return f"sort_desc(sum by (badput_source) ({self.summed(BADPUT)}))"

    @property
    def gpus_lost(self) -> str:
        """GPU-hours lost in an hour are GPUs that stand still: the same number at each moment."""
        return f"12 * sum by (cause) (sum_over_time({GPU_HOURS_LOST}{self.scope.run()}[{HOURS_WINDOW}]))"

    @property
    def worst_runs_hours(self) -> str:
        return f"topk(20, sum by (run) ({self.summed(RANK_HOURS_LOST, _NAMED_RUNS)}))"

    @property
    def worst_runs_share(self) -> str:
        share = f"max by (run) (avg_over_time({LOST_LATELY}{self.scope.run()}[{RANGE}]))"
        return f"{share} and on (run) {self.worst_runs_hours}"

    @property
    def worst_runs_cause(self) -> str:
        lost = f"sum by (run, cause) ({self.summed(RANK_HOURS_LOST, _NAMED_RUNS)})"
        return f"topk by (run) (1, {lost}) and on (run) {self.worst_runs_hours}"

    @property
    def worst_runs_hosts(self) -> str:
        hosts = f"count by (run, instance) (last_over_time({RANK_HOURS}{self.scope.run(_NAMED_RUNS)}[{RANGE}]))"
        return f"count by (run) ({hosts}) and on (run) {self.worst_runs_hours}"

    @property
    def stragglers(self) -> str:
        """How much more the other ranks of its run wait than this one."""
        return f"topk(10, max by (job, run, rank) ({LATE}{self.scope.rank()}) > {STRAGGLER_SHARE})"

    # trainprobe itself.

    @property
    def silent_hosts(self) -> str:
        up = f"up{self.scope.host(TRAINPROBE)}"
        daemon = f"trainprobe_source_up{self.scope.host(REPORT)}"
        return f"count({up} == 0 or on (job, instance) {daemon} == 0) or 0 * count({up})"

    @property
    def source_up(self) -> str:
        ready = f"min by (instance) (trainprobe_ready{self.scope.host()})"
        sources = f"min by (instance, source) (trainprobe_source_up{self.scope.host()})"
        return f'{sources} or label_replace({ready}, "source", "ready", "", "")'

    @property
    def report_age(self) -> str:
        told = f"trainprobe_report_timestamp_seconds{self.scope.host()}"
        return f"max by (instance) (timestamp({told}) - {told})"  # as old as it was when it was scraped

    # Parts.

    def summed(self, record: str, *matchers: str) -> str:
        """Hours in the range."""
        return f"sum_over_time({record}{self.scope.run(*matchers)}[{RANGE}])"

    def _in_range(self, metric: str) -> str:
        return f"max by (rank, cause) ({self.grown(metric, self.scope.rank(), RANGE)})"

    def share_of_wall(self, metric: str) -> str:
        part = f"sum by ({_RANK}) (increase({metric}{self.scope.rank()}[{RANGE}]))"
        return f"{part} / sum by ({_RANK}) (increase(trainprobe_run_wall_seconds_total{self.scope.rank()}[{RANGE}]))"

    def _of_those_seen(self, expr: str, metric: str, by: str) -> str:
        """``expr`` for what had any time in the whole range, so that the others draw no empty line."""
        seen = f"max by ({by}) (increase({metric}{self.scope.rank()}[{RANGE}] @ end()))"
        return f"({expr}) and on ({by}) ({seen} > 0)"


def _or_say(expr: str, label: str, word: str, known: str) -> str:
    """``expr``; where it has no answer, 0 with this word for a label, if ``known`` shows that somebody would know."""
    return f'{expr} or (label_replace(0 * max({known}), "{label}", "{word}", "", "") unless on () ({expr}))'
