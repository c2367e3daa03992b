"""Recomputes every figure that a report's text and its advice show from the report's JSON: pure.

A figure agrees where it is the value to within the last digit that it shows. The texts are made without line breaks
(a style of ``WIDE`` columns), so that a line is a statement; the Chinese texts say the same figures line by line.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from typing import Any

from trainprobe.advise.intervals import WATCHED
from trainprobe.model import amounts

Json = Mapping[str, Any]
WIDE = 100_000
SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
DURATION = r"(\d+ h \d+ min|\d+ min \d+ s|[\d.]+ (?:us|ms|s))"
NUMBER = re.compile(r"\d+(?:\.\d+)?")
ROW = re.compile(rf"  (\S+) +{DURATION} +([\d.]+) %")
STALL = re.compile(rf"  \d\d:\d\d:\d\d +{DURATION}  (\w+) +(\d+)  (.*)")
BAR = "█"
BADPUT = {
    "preparation": "training_prep", "data loading": "data_loading", "checkpoint saves": "checkpoint_save",
    "checkpoint restore": "checkpoint_restore", "wasted progress": "wasted_progress",
}  # fmt: skip
"""Sources by what they are called; those that are not here are called as they are."""
COSTS = 0.01  # of the run: a cause from which on has a line in the advice


def shown(text: str) -> tuple[float, float]:
    """Seconds that a duration says, and by what they may be off: half of its last digit, a little more for floats."""
    parts = re.findall(r"([\d.]+) (us|ms|s|min|h)", text)
    value = sum(float(number) * {"min": 60.0, "h": 3600.0, **SECONDS}[unit] for number, unit in parts)
    number, unit = parts[-1]
    last = 10.0 ** -len(number.partition(".")[2]) * {"min": 60.0, "h": 3600.0, **SECONDS}[unit]
    return value, 0.5001 * last + (0.5 if unit in ("min", "h") else 0.0)


def lasts(text: str, value: float) -> bool:
    said, off = shown(text)
    return abs(said - value) <= off


def is_(text: str, value: float) -> bool:
    """Whether a plain number, as text, is this value to its last digit."""
    return abs(float(text) - value) <= 0.5001 * 10.0 ** -len(text.partition(".")[2])


def is_share(text: str, value: float) -> bool:
    return is_(text, 100 * value)


def of_text(report: Json, text: str) -> Iterator[str]:
    """What the text of a report of one rank says and the report does not."""
    run = report["runs"][0]
    rank = run["ranks"][0]
    blocks = [block.splitlines() for block in text.split("\n\n")]
    titled = {block[0]: block[1:] for block in blocks[1:] if block}
    yield from _headline(rank, blocks[0])
    yield from _speed(rank, blocks[0])
    yield from _time(rank, titled.get("Where the time went", []))
    yield from _goodput(run["goodput"], titled.get("Goodput", []))
    yield from _stalls(rank, titled.get("Stalls", []))
    yield from _steps(rank, titled.get("In every step", []))
    yield from _saves(rank, titled.get("Checkpoints", []))
    yield from _cost(report, blocks[-1])


def _headline(rank: Json, lines: list[str]) -> Iterator[str]:
    lost, wall = rank["lost"], rank["wall_seconds"]
    own = (
        rf"(most|the largest part) to (\w+) \({DURATION}\)|all to (\w+)|{DURATION} of it to (\w+), {DURATION} to (\w+)"
    )
    found = re.match(rf"([\d.]+) % lost: {DURATION} of {DURATION}, (?:{own})$", lines[0])
    if not found:
        if rank["verdict"]["kind"] in ("stall", "bottleneck"):
            yield f"no headline: {lines[0]}"
        return
    share, all_, of, how, largest, mine, only, others_own, others, behind, second = found.groups()
    most, cause, own = largest or others, largest or only or second, mine or behind or all_
    if how and (how == "most") != (lost.get(largest, 0.0) > sum(lost.values()) / 2):
        yield f"headline: {lines[0]!r}, lost are {lost}"
    if others and not lasts(others_own, lost.get(others, 0.0)):
        yield f"headline: {lines[0]!r}, lost are {lost}"
    right = is_share(share, sum(lost.values()) / wall) and lasts(all_, sum(lost.values())) and lasts(of, wall)
    if not right or not (lasts(own, lost.get(cause, 0.0)) or lasts(own, rank["verdict"]["seconds"])):
        yield f"headline: {lines[0]!r}, lost are {lost} of {wall}"
    if most and lost.get(most, 0.0) < max(lost.values()) - 0.01:
        yield f"headline: most to {most}, and {lost}"
    said = re.search(rf"costs? {DURATION} \(([\d.]+) % of the run\)", lines[1])
    if said and not (
        lasts(said[1], rank["verdict"]["seconds"]) and is_share(said[2], rank["verdict"]["seconds"] / wall)
    ):
        yield f"headline: {lines[1]!r}, {rank['verdict']['seconds']} of {wall}"
    times = re.search(r"in (\d+) stalls?", lines[1])
    booked = rank["counters"]["stalls"].get(rank["verdict"]["cause"], 0)
    going = sum(1 for one in rank["stalls"] if one["end"] is None and one["cause"] == rank["verdict"]["cause"])
    if said and times and not booked <= int(times[1]) <= max(1, booked + going):
        yield f"headline: {times[0]}, and {booked} are counted"
    yield from _rhythm(rank, rank["verdict"]["cause"], lines[1].partition("; change first")[0])
    yield from _sampled(rank, lines[1])


def _rhythm(rank: Json, cause: str, line: str) -> Iterator[str]:
    """A cause recurs every so many steps: the same wherever it is said."""
    said = {int(steps) for steps in re.findall(r"every (\d+) steps", line)}
    known = {one["period"]["steps"] for one in rank["stalls"] if one["cause"] == cause and one["period"]}
    if known - {None} and said - known:
        yield f"{line!r}, and its stalls recur every {known} steps"


def _sampled(rank: Json, line: str) -> Iterator[str]:
    """In how many of the stalls with a stack a line stands."""
    found = re.search(r" (\S+) \(\S+:\d+\), in (\d+) of (\d+) sampled stalls", line)
    if not found or rank["totals"]["stalls"] > len(rank["stalls"]):
        return
    stacks = [one["python_stack"] for one in rank["stalls"] if one["cause"] == rank["verdict"]["cause"]]
    sampled = [stack for stack in stacks if stack]
    there = sum(1 for stack in sampled if any(found[1] in frame for frame in stack))
    if len(sampled) > int(found[3]) or there > int(found[2]):
        yield f"headline: {found[0]!r}, and {there} of {len(sampled)} stacks have it"


def _speed(rank: Json, lines: list[str]) -> Iterator[str]:
    steps, wall = rank["steps"], rank["wall_seconds"]
    line = next((one for one in lines if re.match(r"\d+ steps? · ", one)), "")
    checks = (
        (r"^(\d+) steps?", lambda said: int(said) == steps["count"]),
        (r"([\d.]+) it/s", lambda said: is_(said, steps["per_second"])),
        (rf" step {DURATION}", lambda said: lasts(said, steps["median_seconds"])),
        (rf"p99 {DURATION}", lambda said: lasts(said, steps["p99_seconds"])),
        (r"variation ([\d.]+) %", lambda said: is_share(said, steps["variation_ratio"])),
        (r"productive ([\d.]+) %", lambda said: is_share(said, rank["productive_seconds"] / wall)),
        (r"(\w+)-bound", lambda said: said == rank["bound"]["by"]),
    )  # fmt: skip
    for pattern, agrees in checks:
        found = re.search(pattern, line)
        if found and not agrees(found[1]):
            yield f"{found[0]!r}: {steps} {rank['bound']['by']}"


def _time(rank: Json, lines: list[str]) -> Iterator[str]:
    """The account: each row, their sum, and the states of the driver."""
    wall, total = rank["wall_seconds"], 0.0
    known = {"productive": rank["productive_seconds"], **rank["counters"]["phase_seconds"], **rank["lost"]}
    for line in lines:
        row = ROW.match(line)
        if row:
            total += float(row[3])
            if not (lasts(row[2], known.get(row[1], -1.0)) and is_share(row[3], known.get(row[1], -1.0) / wall)):
                yield f"{line!r}, {known.get(row[1])} of {wall}"
        known_in = next((span["states"] for span in reversed(rank["phases"]) if span["states"]), {})
        for state, spent in re.findall(rf"(\w+) {DURATION}", line if line.startswith("  the shutdown: ") else ""):
            if not lasts(spent, known_in.get(state, -1.0)):
                yield f"the shutdown: {state} {spent}, and the report has {known_in}"
        for state, share in re.findall(r"(\w+) ([\d.]+) %", "" if row else line):
            if not is_share(share, rank["ledger"].get(state, -1.0) / wall):
                yield f"the training thread: {state} {share} %, {rank['ledger'].get(state)} of {wall}"
    rows = sum(1 for line in lines if ROW.match(line))
    if rows and abs(total - 100) > 0.06 * rows:
        yield f"where the time went adds up to {total:.1f} %"


def _goodput(goodput: Json, lines: list[str]) -> Iterator[str]:
    """The job's share and what the rest went to."""
    wall = goodput["productive_seconds"] + sum(goodput["badput"].values())
    for line in lines[:1]:
        head = re.match(rf"  ([\d.]+) % of {DURATION}(?: in (\d+) attempts)?", line)
        if head is None or not (is_share(head[1], goodput["productive_seconds"] / wall) and lasts(head[2], wall)):
            yield f"{line!r}, {goodput['productive_seconds']} of {wall}"
        for name, spent in re.findall(rf"([a-z ]+) {DURATION}(?:,|$)", line.partition(":")[2]):
            if not lasts(spent, goodput["badput"].get(BADPUT.get(name.strip(), name.strip()), -1.0)):
                yield f"goodput: {name.strip()} {spent}, and the report has {goodput['badput']}"


def _stalls(rank: Json, lines: list[str]) -> Iterator[str]:
    at = {(one["first_step"], one["cause"]): one for one in rank["stalls"]}
    wall = rank["wall_seconds"]
    for line in lines:
        row = STALL.match(line)
        if not row:
            continue
        stall = at.get((int(row[3]), row[2]))
        if stall is None or not lasts(row[1], stall["seconds"]):
            yield f"{line!r}, and the report has {stall and stall['seconds']}"
        yield from _rhythm(rank, row[2], row[4])
        rhythm = re.search(rf"; every ([^,]+), median {DURATION}, ([\d.]+) % of the run", row[4])
        if rhythm and not is_share(rhythm[3], rank["lost"].get(row[2], 0.0) / wall):
            yield f"{line!r}, lost to {row[2]} are {rank['lost'].get(row[2])} of {wall}"
        number = sum(1 for one in rank["stalls"] if one["cause"] == row[2])
        listed = rank["totals"]["stalls"] <= len(rank["stalls"])
        longest = max((one["seconds"] for one in rank["stalls"] if one["cause"] == row[2]), default=0.0)
        # In a late step it is what is beyond the ordinary; where it is in those, too, that is no occurrence's length.
        in_ordinary = any(one["cause"] == row[2] for one in rank["bottlenecks"])
        if rhythm and listed and number and not in_ordinary and shown(rhythm[2])[0] > longest + shown(rhythm[2])[1]:
            yield f"{line!r}: {rhythm[2]} each, and the longest is {longest:.3f} s"


def _steps(rank: Json, lines: list[str]) -> Iterator[str]:
    found = {one["cause"]: one for one in rank["bottlenecks"]}
    for line in lines:
        row = re.match(rf" +([\d.]+) % +{DURATION}  (\w+): ", line)
        one = found.get(row[3]) if row else None
        if row and (one is None or not (is_share(row[1], one["share"]) and lasts(row[2], one["seconds"]))):
            yield f"{line!r}, and the report has {one and (one['share'], one['seconds'])}"


def _saves(rank: Json, lines: list[str]) -> Iterator[str]:
    head = lines[0] if lines else ""
    found = re.search(rf"the training waited {DURATION} for them", head)
    waited = max(sum(one["blocked_seconds"] for one in rank["checkpoints"]), rank["lost"].get("checkpoint", 0.0))
    if found and rank["totals"]["checkpoints"] <= len(rank["checkpoints"]) and not lasts(found[1], waited):
        yield f"{head!r}, and they blocked for {waited}"


def _cost(report: Json, lines: list[str]) -> Iterator[str]:
    cost, line = report["cost"], lines[-1]
    checks = (
        (rf"cost of watching: {DURATION} of CPU", cost["cpu_seconds"]),
        (rf"\({DURATION} of it to start", cost["start_seconds"]),
        (rf", {DURATION} to read stacks\)", cost["stacks_seconds"]),
        (rf", {DURATION} in the kernel", cost["bpf_seconds"]),
    )
    for pattern, value in checks:
        found = re.search(pattern, line)
        if found and not lasts(found[1], value):
            yield f"{found[0]!r}, and the report has {value}"
    found = re.search(r"([\d.]+) % of one CPU", line)
    if found:
        watched = report["generated"] - report["runs"][0]["started"]
        spent = cost["cpu_seconds"] - (cost["start_seconds"] or 0.0) + (cost["bpf_seconds"] or 0.0)
        if not is_share(found[1], cost["share_of_run"]) or abs(spent / watched - cost["share_of_run"]) > 0.01:
            yield f"{found[0]!r}: {spent:.3f} s in {watched:.1f} s, and the report has {cost['share_of_run']}"


def of_advice(rank: Json, advice: Json, text: str) -> Iterator[str]:
    """What the advice of a rank says and its report does not, and what does not follow from what it says."""
    wall, steps = rank["wall_seconds"], rank["steps"]
    lines = text.splitlines()
    head = re.search(r": (\d+) steps in (.*)", lines[0])
    if not head or int(head[1]) != steps["count"] or not lasts(head[2], wall):
        yield f"{lines[0]!r}: {steps['count']} in {wall}"
    proposed = [one for one in advice["settings"] if one["proposed"] is not None]
    gain = sum(one["gain"] for one in proposed)
    together = re.search(rf"All proposals together: {DURATION} of {DURATION} \(([\d.]+) %\)", text)
    if bool(together) != bool(proposed):
        yield f"{len(proposed)} proposals, and {lines[1]!r}"
    if together and not (lasts(together[1], gain) and lasts(together[2], wall) and is_share(together[3], gain / wall)):
        yield f"{together[0]!r}: {gain} of {wall}"
    speed = re.search(r"([\d.]+) it/s become ([\d.]+)", text)
    if speed:
        then = steps["count"] / max(steps["count"] / steps["per_second"] - gain, 1e-9)
        if not is_(speed[1], steps["per_second"]) or not is_(speed[2], then):
            yield f"{speed[0]!r}: {steps['per_second']:.2f} now, {gain:.2f} s less make {then:.2f}"
    yield from _elsewhere(rank, advice, lines)
    if [one["gain"] for one in proposed] != sorted((one["gain"] for one in proposed), reverse=True):
        yield f"proposals not by what they gain: {[(one['name'], one['gain']) for one in proposed]}"
    for one in proposed:
        yield from _setting(rank, one)


def _elsewhere(rank: Json, advice: Json, lines: list[str]) -> Iterator[str]:
    """Each cause that costs 1 % of the run is a proposal's, or has a line with what to do."""
    lost, wall = rank["lost"], rank["wall_seconds"]
    named = {
        row[1]: row for row in (re.match(rf"  - (\w+) {DURATION} \(([\d.]+) %\): \S", line) for line in lines) if row
    }
    for cause, row in named.items():
        if cause in lost and not (lasts(row[2], lost[cause]) and is_share(row[3], lost[cause] / wall)):
            yield f"{row[0]!r}: {lost[cause]} of {wall}"
    mended = {one["cause"] for one in advice["causes"] if one["by_settings"]}
    costly = {cause for cause, seconds in lost.items() if seconds >= COSTS * wall}
    if costly - mended != named.keys() & lost.keys():
        yield f"{costly} cost 1 % and more, {mended} are of settings, and there are lines for {set(named)}"


def _setting(rank: Json, one: Json) -> Iterator[str]:
    """An interval's gain follows from the interval, and what a single one takes from their number."""
    wall, lost = rank["wall_seconds"], rank["lost"]
    sums = {
        "checkpoint interval": lost.get("checkpoint", 0.0),
        "evaluation interval": rank["counters"]["phase_seconds"].get("evaluation", 0.0),
        "log interval": max(0.0, lost.get("logging", 0.0) - WATCHED * sum(log["writes"] for log in rank["logs"])),
    }
    every = re.search(r"every (\d+) steps", one["now"])
    if one["name"] in sums:
        spent, now = sums[one["name"]], int(every[1]) if every else 1
        then = spent * (1 - now / int(one["proposed"]))
        if abs(then - one["gain"]) > 1e-6 * wall:
            yield f"{one['name']}: {one['gain']} s gained, {spent} s every {now} steps make {then} s"
        each = re.search(rf"(?:takes|of) {DURATION}", one["reason"])
        share = re.search(r"([\d.]+) % of the run", one["reason"])
        if share and not is_share(share[1], spent / wall):
            yield f"{one['name']}: {one['reason']!r}, {spent} of {wall}"
        saves = rank["counters"].get("saves") if one["name"] == "checkpoint interval" else None
        number = re.match(r"(\d+) of ", one["reason"])  # a training may save or evaluate in a part of its steps only
        times = saves or (int(number[1]) if number else rank["steps"]["count"] / now)
        if each and not (times - 1.6) * shown(each[1])[0] <= spent * 1.1 <= (times + 1.6) * 1.25 * shown(each[1])[0]:
            yield f"{one['name']}: {one['reason']!r} every {now} steps, {spent:.2f} s in all"


def of_rounding(text: str) -> Iterator[str]:
    """Durations and shares that are not written as ``model/amounts.py`` writes them: one figure looks the same in each
    place, of any text."""
    for found in re.finditer(r"(?<![\w.:/-])(\d+(?:\.\d+)?) ?(us|ms|s|秒|毫秒)(?![\w/])", text):
        said = f"{found[1]} {found[2]}"
        value = float(found[1]) * SECONDS.get(found[2], 1.0)
        if said not in (amounts.seconds(value), amounts.span(value)):
            yield f"{said!r} in {text[max(0, found.start() - 30) : found.end()]!r}"
    for found in re.finditer(r"(?<![\w.:/-])(\d+(?:\.\d+)?)( ?)%", text):
        if found[0] not in (amounts.percent(float(found[1]) / 100), f"{int(float(found[1]))} %", "0.0 %"):
            yield f"{found[0]!r} in {text[max(0, found.start() - 30) : found.end()]!r}"


def of_translation(text: str, other: str) -> Iterator[str]:
    """The lines of a translation whose figures are others."""
    for one, two in zip_longest(text.splitlines(), other.splitlines(), fillvalue=""):
        if Counter(NUMBER.findall(one)) != Counter(NUMBER.findall(two)):
            yield f"{one!r} is translated as {two!r}"
