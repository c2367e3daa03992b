"""A report against the training's own clock: the bars that a watched framework has to meet."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from benchmarks.stalls.plan import Plan
from benchmarks.stalls.score import Check, accounts, each_planted, find_rank, phase_seconds, steps_exact
from benchmarks.stalls.truth import (
    Truth,
    blocked_seconds,
    by_fetch,
    fetched_seconds,
    lost_seconds,
    queued_seconds,
    stolen_seconds,
)

SHARE, SECONDS = 0.10, 0.2
FOREIGN = 0.02
Json = dict[str, Any]


@dataclass
class Judged:
    """``faults``: (planted faults of at least 0.3 s, how many have their cause and their seconds)."""

    said: str
    checks: list[Check] = field(default_factory=list)
    faults: tuple[int, int] = (0, 0)
    causes: tuple[int, int] = (0, 0)  # planted causes, how many have their seconds in all

    @property
    def right(self) -> bool:
        return all(check.ok for check in self.checks)

    def ok(self, name: str) -> bool:
        return all(check.ok for check in self.checks if check.name == name)


def judge(plan: Plan, truth: Truth, report: Json, advice: str) -> Judged:
    """``advice``: what ``trainprobe advise`` prints. Raises ValueError when the training is not in the report."""
    rank = find_rank(report, truth.pid)
    verdict, wall = rank["verdict"], rank["wall_seconds"]
    true = {cause: _lost(truth, cause, plan.kind) for cause in plan.both if cause != "evaluation"}
    evaluated = sum(end - begin for phase, begin, end in truth.phases if phase == "evaluation") / 1e9
    result = Judged(str(verdict["cause"]))
    add = result.checks.append
    add(_renamed("steps", steps_exact(truth, rank)))
    end = plan.training.get("end", {}).get("how", "finished")
    add(_top(rank, true, end, queued_seconds(truth)))
    near = 0
    for cause, (least, most) in true.items():
        given = rank["lost"].get(cause, 0.0)
        ok = _near(given, least, most)
        near += ok
        add(Check("seconds", ok, f"{cause} {given:.2f} s, true {_range(least, most)}"))
    if evaluated:
        given = sum(phase["seconds"] for phase in phase_seconds(rank) if phase["phase"] == "evaluation")
        ok = _near(given, evaluated, evaluated)
        near += ok and "evaluation" in plan.both
        add(Check("seconds", ok, f"evaluation {given:.2f} s, true {evaluated:.2f} s"))
    result.causes = len(plan.both), near
    matches = [match for cause in true for match in each_planted(cause, truth, rank)] if plan.kind == "stall" else []
    missed = [m for m in matches if not m.named or abs(m.error) > max(SHARE * m.planted, SECONDS)]
    result.faults = len(matches), len(matches) - len(missed)
    told = "; ".join(f"{m.cause} {m.planted:.2f} s is {'+'.join(m.said) or '-'} {m.reported:.2f} s" for m in missed)
    add(Check("faults", not missed, told))
    room = FOREIGN * wall
    loaded = sum(i.fetch for i in truth.iterations) / 1e9 if plan.training.get("inline") else 0.0
    queued = 1.1 * (queued_seconds(truth) + stolen_seconds(truth))
    allowed = {"cpu_contention": queued, "data_inline": 1.1 * loaded}
    if plan.style == "torchrun_ddp":  # what others take of its processors, its peer takes of it in waits
        allowed["collective_wait"] = 1.1 * blocked_seconds(truth)
    if not any(map(by_fetch, true)):  # nobody planted late batches: its fetches waited for what batches cost anyway
        allowed["data_cpu"] = 1.1 * fetched_seconds(truth)
    own = {p.cause for p in truth.planted}  # a framework's own save at the end, though no cause of this plan
    foreign = {
        cause: round(seconds, 2)
        for cause, seconds in rank["lost"].items()
        if cause not in own and cause not in true and seconds > room + allowed.get(cause, 0.0)
    }
    add(Check("foreign", not foreign, str(foreign)))
    add(_ending(rank, end))
    missing = [setting for setting in plan.tags if setting not in advice]
    add(Check("setting", not missing, f"not named: {', '.join(missing)}"))
    result.checks.extend(_renamed("account", check) for check in accounts(rank)[:2])
    return result


def _lost(truth: Truth, cause: str, kind: str) -> tuple[float, float]:
    """(least, most) seconds: what was planted; and with what ordinary fetches took by the training's own clock."""
    least, most = lost_seconds(truth, cause, kind)
    return least, max(most, fetched_seconds(truth) if by_fetch(cause) else 0.0)


def _top(rank: Json, true: dict[str, tuple[float, float]], end: str, queued: float) -> Check:
    """A failure outranks seconds; a person's Ctrl-C does not. ``queued``: what other programs took, by the kernel."""
    verdict = rank["verdict"]
    said = f"{verdict['kind']} {verdict['cause']}"
    if end == "kill_worker":
        return Check("top", verdict["cause"] == "worker_death", f"{said}, a worker was killed")
    if end == "exception":
        return Check("top", verdict["kind"] == "end", f"{said}, ended by an exception")
    if not any(most for _, most in true.values()):  # the workers were ahead of slow batches
        return Check("top", verdict["kind"] == "none", f"{said}, nothing was lost")
    largest = max(least for least, _ in true.values())
    fitting = {cause for cause, (_, most) in true.items() if most >= largest - FOREIGN * rank["wall_seconds"]}
    if queued > largest:
        fitting.add("cpu_contention")
    return Check("top", verdict["cause"] in fitting, f"{said}, planted {', '.join(sorted(fitting))}")


ENDINGS = {"kill_worker": "exception", "interrupt": "interrupted"}


def _ending(rank: Json, end: str) -> Check:
    told, wanted = rank["exit"].get("ending"), ENDINGS.get(end, end)
    return Check("ending", told == wanted, f"{told} ({rank['exit']['reason']}), true {wanted}")


def _near(given: float, least: float, most: float) -> bool:
    return least - max(SHARE * least, SECONDS) <= given <= most + max(SHARE * most, SECONDS)


def _range(least: float, most: float) -> str:
    return f"{most:.2f} s" if most - least < 0.01 else f"{least:.2f} to {most:.2f} s"


def _renamed(name: str, check: Check) -> Check:
    return Check(name, check.ok, check.said)
