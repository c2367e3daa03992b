"""A report against the truth: which of what was planted is in it, with how many seconds, and what is in it besides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.stalls.plan import Plan
from benchmarks.stalls.truth import (
    BASELINE_STEPS,
    COMPUTED,
    OUTSIDE,
    TrueStall,
    Truth,
    blocked_seconds,
    by_fetch,
    lost_seconds,
    median_step,
    planted_stalls,
    queued_seconds,
    slow_iterations,
    stolen_seconds,
)
from trainprobe.pipeline.culprit import CULPRIT

STALL_SHARE, STALL_SECONDS = 0.10, 0.05
TOTAL_SHARE = 0.02
LEDGER_SHARE = 0.01
UNTOLD_SHARE = 0.02
SAVE_SHARE, SAVE_SECONDS = 0.05, 0.02
TOUCH = 0.01
CROWDED = 0.35
"""Part of such a stall in the queue, from which on it may be called contention."""
CLAIMED = 0.3
"""Seconds from which on a planted stall has to be found."""

Json = dict[str, Any]


@dataclass
class Check:
    """One thing that should hold, with the numbers that say whether it does."""

    name: str
    ok: bool
    said: str


@dataclass
class Match:
    """Planted and reported stalls that overlap one another, as one."""

    cause: str  # planted; "" when nothing was planted there
    planted: float
    reported: float  # seconds that the report gives to the planted cause there
    said: tuple[str, ...]  # causes of the reported stalls
    count: int  # planted stalls in it of at least CLAIMED seconds
    start: float
    confirmed: bool = True  # the training's clock saw a slow step there
    queued: float = 0.0  # seconds that the driver waited for processors there, by the kernel's own count

    @property
    def named(self) -> bool:
        if not self.cause or not self.said:
            return False
        crowded = self.queued >= CROWDED * self.planted > 0
        return set(self.said) <= ({self.cause, "cpu_contention"} if crowded else {self.cause})

    @property
    def error(self) -> float:
        """Of the seconds, computing that waited for a processor meanwhile may be told as contention."""
        least = self.planted - self.queued
        return min(self.reported - least, 0.0) + max(self.reported - self.planted, 0.0)

    @property
    def close(self) -> bool:
        return abs(self.error) <= max(STALL_SHARE * self.planted, STALL_SECONDS)


@dataclass
class Score:
    """The judgement of one run. ``checks`` hold for the run to count as right in all respects."""

    said_kind: str
    said_cause: str | None
    top_right: bool
    matches: list[Match] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)

    @property
    def right(self) -> bool:
        return all(check.ok for check in self.checks)

    def expect_code(self, code: int | None, expected: int) -> None:
        """The program's exit code is the training's."""
        self.checks.append(Check("exit code", code == expected, f"{code}, the training's was {expected}"))

    def wrong(self) -> list[str]:
        return [f"{check.name}: {check.said}" for check in self.checks if not check.ok]


def score(plan: Plan, truth: Truth, report: Json, killer: int | None = None) -> Score:
    """``killer``: pid of who killed the worker from outside. Raises ValueError when the training is not in it."""
    rank = find_rank(report, truth.pid)
    verdict = rank["verdict"]
    if plan.both:
        return _score_both(plan, truth, rank)
    expected = None if plan.kind == "none" else plan.cause
    top = (verdict["cause"] or None) == expected or _crowded_out(plan, truth, verdict)
    matches = match(planted_stalls(truth, plan.cause), rank["stalls"], truth)
    result = Score(verdict["kind"], verdict["cause"], top, matches)
    add = result.checks.append
    add(Check("verdict", top, f"{verdict['kind']} {verdict['cause']}, planted {plan.kind} {expected}"))
    add(steps_exact(truth, rank))
    result.checks.extend(_stalls(plan, matches))
    result.checks.extend(_totals(plan, truth, rank))
    result.checks.extend(accounts(rank))
    if plan.cause == "checkpoint":
        add(_unsafe("unsafe" in plan.tags, rank))
    if plan.cause == "checkpoint" and "unsafe" not in plan.tags:
        result.checks.extend(_saves(truth, rank))
    if plan.cause in ("evaluation", "startup"):
        add(_phase(plan.cause, truth, rank))
    if plan.cause == "collective_wait":
        add(_culprit(rank))
    if truth.stopper is not None:
        add(_stopper(truth.stopper, rank))
    if plan.cause == "worker_death":
        add(_death(plan.how, truth, rank, killer))
    return result


def _score_both(plan: Plan, truth: Truth, rank: Json) -> Score:
    """A run with two causes: each named with its seconds, whichever of them the verdict names."""
    verdict, room = rank["verdict"], TOTAL_SHARE * rank["wall_seconds"]
    true = {cause: lost_seconds(truth, cause, plan.kind) for cause in plan.both}
    largest = max(least for least, _ in true.values())
    top = verdict["cause"] in {cause for cause, (_, most) in true.items() if most >= largest - room}
    matches = [match for cause in plan.both for match in each_planted(cause, truth, rank)]
    result = Score(verdict["kind"], verdict["cause"], top, matches)
    add = result.checks.append
    add(Check("verdict", top, f"{verdict['kind']} {verdict['cause']}, planted {true}"))
    add(steps_exact(truth, rank))
    for cause, (least, most) in true.items():
        lost = [m for m in matches if m.cause == cause and not m.named]
        given = rank["lost"].get(cause, 0.0)
        near = least - room <= given <= most + room
        add(Check(f"{cause} named", not lost, _told(lost)))
        add(Check(f"{cause} total", near, f"reported {given:.2f} s, true {least:.2f} to {most:.2f} s"))
    allowed = {"cpu_contention": _room(queued_seconds(truth))}
    others = {
        cause: round(seconds, 3)
        for cause, seconds in rank["lost"].items()
        if cause not in plan.both and seconds > room + allowed.get(cause, 0.0)
    }
    add(Check("no other cause over 2 %", not others, str(others)))
    result.checks.extend(accounts(rank))
    return result


def each_planted(cause: str, truth: Truth, rank: Json) -> list[Match]:
    """Each planted stall of a cause that is long enough, beside what is told for it of the stalls that overlap it."""
    found = []
    planted = [stall for stall in planted_stalls(truth, cause) if stall.cause == cause]

    def part(stall: TrueStall, told: Json) -> float:
        """Of a reported stall that holds several planted ones, each has its part."""
        return stall.seconds / sum(one.seconds for one in planted if _overlap(one, told))

    for stall in planted:
        if stall.seconds < CLAIMED:
            continue
        told = [one for one in rank["stalls"] if _overlap(stall, one)]
        given = sum(one["shares"].get(cause, 0.0) * part(stall, one) for one in told)
        felt = by_fetch(cause) or cause in OUTSIDE
        queued = 0.0 if felt else queued_seconds(truth, stall.start, stall.end)  # a wake-up waits for a processor, too
        enough = given >= 0.5 * (stall.seconds - queued)
        said = (cause,) if enough else tuple(one["cause"] for one in told if one["cause"] != cause)
        found.append(Match(cause, stall.seconds, given, said, 1, stall.start, queued=queued))
    return found


def _crowded_out(plan: Plan, truth: Truth, verdict: Json) -> bool:
    """Whether other programs really took more from the run than what was planted: then that is what it lost most to."""
    planted, _ = lost_seconds(truth, plan.cause, plan.kind) if plan.kind in ("stall", "bottleneck") else (0.0, 0.0)
    queued = queued_seconds(truth)
    return verdict["cause"] == "cpu_contention" and queued > planted and verdict["seconds"] <= _room(queued)


def _room(queued: float) -> float:
    """What may be told of a wait that the kernel counted as so long: a wake-up has a little of it, too."""
    return 1.1 * queued + TOUCH


def find_rank(report: Json, pid: int) -> Json:
    """The entry of a process. Raises ValueError, saying what is there instead."""
    ranks = [rank for run in report["runs"] for rank in run["ranks"]]
    for rank in ranks:
        if rank["pid"] == pid:
            return rank  # type: ignore[no-any-return]
    raise ValueError(f"no rank with pid {pid} in the report, only {[rank['pid'] for rank in ranks]}")


def match(planted: Sequence[TrueStall], reported: Sequence[Json], truth: Truth) -> list[Match]:
    """Joins what overlaps, in both directions: a report may hold two neighbours as one stall, or one as two."""
    slow = slow_iterations(truth)
    groups: list[tuple[list[TrueStall], list[Json]]] = [([], [told]) for told in reported]
    for stall in planted:
        touched = [group for group in groups if any(_overlap(stall, told) for told in group[1])]
        groups = [group for group in groups if group not in touched]
        joined = ([stall, *(p for ps, _ in touched for p in ps)], [told for _, tolds in touched for told in tolds])
        groups.append(joined)
    return sorted((_matched(*group, slow, truth) for group in groups), key=lambda found: found.start)


def _overlap(stall: TrueStall, told: Json) -> bool:
    """A reported stall ends with its step, after the planted one: what merely touches is a neighbour."""
    end = told["end"] if told["end"] is not None else told["start"] + told["seconds"]
    return bool(told["start"] < stall.end + TOUCH and end > stall.start + TOUCH)


def _matched(
    planted: Sequence[TrueStall], told: Sequence[Json], slow: Sequence[tuple[float, float, float]], truth: Truth
) -> Match:
    said = tuple(item["cause"] for item in told)
    if not planted:
        start = told[0]["start"]
        end = max(item["end"] or start for item in told)
        seconds = sum(item["seconds"] for item in told)
        confirmed = any(begin < end and start < stop and excess >= 0.5 * seconds for begin, stop, excess in slow)
        # It is the end of a step that began an ordinary one's length before: there the driver may have waited, too.
        begun = start - median_step(truth)
        queued = queued_seconds(truth, begun, end) + stolen_seconds(truth, begun, end)
        return Match("", 0.0, seconds, said, 0, start, confirmed, queued)
    cause = planted[0].cause
    given = sum(item["shares"].get(cause, 0.0) for item in told)
    count = sum(stall.seconds >= CLAIMED for stall in planted)
    start, end = min(stall.start for stall in planted), max(stall.end for stall in planted)
    queued = queued_seconds(truth, start, end) if cause in COMPUTED else 0.0
    return Match(cause, sum(stall.seconds for stall in planted), given, said, count, start, queued=queued)


def _stalls(plan: Plan, matches: Sequence[Match]) -> list[Check]:
    checks = []
    wanted = [m for m in matches if m.count]
    lost = [m for m in wanted if not m.named]
    far = [m for m in wanted if m.named and not m.close]
    # Where every batch is slow some are slower: such a stall has the planted cause, whoever sees it pass the limit.
    own = (plan.cause,) if plan.kind == "bottleneck" else None
    unplanted = [m for m in matches if not m.cause and m.said != own and not _crowded(m)]
    false = [m for m in unplanted if not m.confirmed]
    real = [m for m in unplanted if m.confirmed]
    checks.append(Check("stalls named", not lost, f"{len(wanted) - len(lost)} of {len(wanted)}; {_told(lost)}"))
    checks.append(Check("stall seconds", not far, _told(far)))
    checks.append(Check("no false stall", not false, _told(false)))
    checks.append(Check("no stall that nobody planted", not real, _told(real)))
    return checks


def _crowded(match: Match) -> bool:
    """A stall by other programs that nobody planted, and that was there all the same."""
    return set(match.said) == {"cpu_contention"} and match.reported <= _room(match.queued)


def _told(matches: Sequence[Match]) -> str:
    return "; ".join(
        f"at {m.start:.2f} planted {m.planted:.3f} s {m.cause or '-'}, "
        f"reported {m.reported:.3f} s {'+'.join(m.said) or '-'}"
        for m in matches
    )


def steps_exact(truth: Truth, rank: Json) -> Check:
    count = rank["steps"]["count"]
    return Check("steps", count == truth.steps, f"reported {count}, true {truth.steps}")


def _totals(plan: Plan, truth: Truth, rank: Json) -> list[Check]:
    """Seconds by cause, for the planted one and for every one that the report names besides."""
    wall = rank["wall_seconds"]
    room = TOTAL_SHARE * wall
    least, most = lost_seconds(truth, plan.cause, plan.kind)
    given = rank["lost"].get(plan.cause, 0.0)
    checks = []
    if plan.kind in ("stall", "bottleneck"):
        ok = least - room <= given <= most + room
        checks.append(Check("total", ok, f"reported {given:.2f} s, true {least:.2f} to {most:.2f} s, run {wall:.1f} s"))
    inline = plan.training.get("workers") == 0
    base = sum(i.fetch for i in truth.iterations) / 1e9 if inline else 0.0  # loading inline does cost every step
    allowed = {"data_inline": base, "cpu_contention": _room(queued_seconds(truth))}
    if plan.style == "ddp_launch":  # ranks that are equally fast wait for each other all the same
        allowed["collective_wait"] = _room(blocked_seconds(truth))
    others = {
        cause: round(seconds, 3)
        for cause, seconds in rank["lost"].items()
        if cause != plan.cause and seconds > room + allowed.get(cause, 0.0)
    }
    checks.append(Check("no other cause over 2 %", not others, str(others)))
    return checks


def accounts(rank: Json) -> list[Check]:
    wall, total = rank["wall_seconds"], sum(rank["ledger"].values())
    untold = rank["ledger"].get("other", 0.0) + rank["lost"].get("unknown", 0.0)
    parts = rank["productive_seconds"] + sum(rank["lost"].values()) + sum(p["seconds"] for p in phase_seconds(rank))
    return [
        Check("ledger", abs(total - wall) <= LEDGER_SHARE * wall, f"states {total:.3f} s, wall {wall:.3f} s"),
        Check("verdict adds up", abs(parts - wall) <= LEDGER_SHARE * wall, f"parts {parts:.3f} s, wall {wall:.3f} s"),
        Check("other and unknown", untold <= UNTOLD_SHARE * wall, f"{untold:.3f} s of {wall:.1f} s"),
    ]


def phase_seconds(rank: Json) -> list[Json]:
    """The phases that are no training, with their seconds."""
    return [p | {"seconds": (p["end"] or p["start"]) - p["start"]} for p in rank["phases"] if p["phase"] != "train"]


def _saves(truth: Truth, rank: Json) -> list[Check]:
    """Every checkpoint of the training by its path: bytes to the byte, seconds of the save itself."""
    told = {save["path"]: save for save in rank["checkpoints"]}
    missing, size, time = [], [], []
    for planted in (p for p in truth.planted if p.cause == "checkpoint"):
        path, seconds = planted.facts["path"], (planted.facts["saved"] - planted.begin) / 1e9
        save = told.get(path)
        if save is None:
            missing.append(path)
            continue
        if save["bytes"] != planted.facts["bytes"]:
            size.append(f"{path}: reported {save['bytes']}, true {planted.facts['bytes']}")
        if abs(save["seconds"] - seconds) > max(SAVE_SHARE * seconds, SAVE_SECONDS):
            time.append(f"{path}: reported {save['seconds']:.3f} s, true {seconds:.3f} s")
    return [
        Check("checkpoints found", not missing, f"missing {missing}, there {list(told)}" if missing else ""),
        Check("checkpoint bytes", not size, "; ".join(size)),
        Check("checkpoint seconds", not time, "; ".join(time)),
    ]


def _phase(name: str, truth: Truth, rank: Json) -> Check:
    given = sum(p["seconds"] for p in phase_seconds(rank) if p["phase"] == name)
    if name == "startup":
        first = truth.iterations[min(2 * BASELINE_STEPS, len(truth.iterations) - 1)]
        least = (truth.iterations[0].begin - truth.process) / 1e9
        most = (first.end - truth.process) / 1e9
    else:
        least = most = sum(end - begin for phase, begin, end in truth.phases if phase == name) / 1e9
    room = max(STALL_SHARE * least, STALL_SECONDS)
    return Check(
        f"phase {name}",
        least - room <= given <= most + room,
        f"reported {given:.2f} s, true {least:.2f} to {most:.2f} s",
    )


def _unsafe(planted: bool, rank: Json) -> Check:
    told = [w["summary"] for w in rank.get("warnings", []) if w["cause"] == "checkpoint_unsafe"]
    return Check("unsafe checkpoints", bool(told) == planted, f"told {told}, planted {planted}")


def _culprit(rank: Json) -> Check:
    told = [stall for stall in rank["stalls"] if stall["cause"] == "collective_wait"]
    chains = [stall["chain_messages"] for stall in told if stall["seconds"] >= CLAIMED]
    named = [[link["params"] for link in chain if link["id"] == CULPRIT.id] for chain in chains]
    ok = bool(named) and all(any(one["rank"] == 1 and one["cause"] == "cpu_bound" for one in of) for of in named)
    return Check("culprit", ok, f"rank 1 computes, told {named}")


def _stopper(pid: int, rank: Json) -> Check:
    stalls = [stall for stall in rank["stalls"] if stall["cause"] == "suspended"]
    ok = all(any(e["pid"] == pid for e in stall["evidence"]) for stall in stalls)
    return Check("stopper", ok, f"stopped by {pid}, told {[stall['summary'] for stall in stalls]}")


def _death(how: str, truth: Truth, rank: Json, killer: int | None) -> Check:
    deaths = [e for e in rank["workers"]["exits"] if e["reason"] != "finished"]
    said = str([(e["pid"], e["code"], e["signal"], e["reason"], e["sender_pid"]) for e in deaths])
    if how == "sigkill":
        ok = any(e["signal"] == 9 and e["reason"] == "killed" and e["sender_pid"] == killer for e in deaths)
        return Check("death", ok, f"{said}, killed by {killer}")
    pids = {w["pid"] for w in truth.workers}
    if how == "exit":
        ok = any(e["pid"] in pids and e["code"] == 3 and e["reason"] == "exited" for e in deaths)
    else:
        ok = any(e["pid"] in pids and e["signal"] == 11 and e["reason"] == "crashed" for e in deaths)
    return Check("death", ok, f"{said}, planted in {sorted(pids)}")


def seconds_errors(matches: Sequence[Match]) -> list[float]:
    """Absolute error of each planted stall that was found, in seconds."""
    return [abs(m.error) for m in matches if m.count and m.named]
