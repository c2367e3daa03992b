"""What the recording rules would have recorded before, as blocks: a day of the hours, two weeks of the accounts."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TextIO

from benchmarks.fleet.hosts import COHORTS, RANKS, Place, place_of, run_name, user_of
from benchmarks.fleet.server import address
from benchmarks.programs import ProgramError
from grafana.rules.hours import (
    BADPUT,
    GPU_HOURS_LOST,
    HELD,
    OF_JOB,
    OF_USER,
    PRODUCTIVE,
    RANK_HOURS,
    RANK_HOURS_LOST,
    WASTE,
)
from grafana.rules.recording import LOST_LATELY
from trainprobe.model.goodput import Badput

LIFE_SECONDS = 8 * 3600  # of a run
HOUR, DAY = 3600, 86400
SOURCES = [str(one) for one in (Badput.STARTUP, Badput.TRAINING_PREP, Badput.DATA_LOADING, Badput.CHECKPOINT_SAVE)]
Labels = Mapping[str, str]


def write_history(directory: Path, hosts: int, now: float) -> None:
    """Raises ProgramError."""
    program = shutil.which("promtool")
    if program is None:
        raise ProgramError("promtool is not on PATH (make test unpacks it to .tools)")
    text, end = directory / "history.txt", int(now) // HOUR * HOUR
    with text.open("w") as file:
        for host in range(hosts):
            _write_hours(file, host, end)
        for place in sorted({place_of(host) for host in range(hosts)}, key=repr):
            if place.number == 0:
                _write_job(file, place, end)
        for user in range(20):
            _write_user(file, f"user{user:02d}", end)
        file.write("# EOF\n")
    blocks = [program, "tsdb", "create-blocks-from", "--max-block-duration=800h", "openmetrics"]
    done = subprocess.run([*blocks, text, directory / "tsdb"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise ProgramError(f"promtool: {done.stderr[-500:]}")
    text.unlink()


def _write_hours(file: TextIO, host: int, end: int) -> None:
    """Of a day, each five minutes: by host, run and cause."""
    place = place_of(host)
    lost, hours = COHORTS[place.cohort].lost, RANKS / 12
    for run, begin, until in _launches(place, end, DAY):
        here = {"job": "trainprobe", "instance": address(host), "run": run}
        owned = here | {"user": user_of(place)}
        times = [f"{at}\n" for at in range(begin, until, 300)]
        _write(file, RANK_HOURS, here, hours, times)
        _write(file, LOST_LATELY, here, sum(lost.values()), [f"{at}\n" for at in range(begin, until, 60)])
        for cause, share in lost.items():
            _write(file, RANK_HOURS_LOST, here | {"cause": str(cause)}, share * hours, times)
            _write(file, GPU_HOURS_LOST, owned | {"cause": str(cause)}, share * hours, times)
        for source in SOURCES:
            _write(file, BADPUT, owned | {"badput_source": source}, 0.02 * hours, times)


def _write_job(file: TextIO, place: Place, end: int) -> None:
    """Of two weeks, each hour."""
    lost, hours = COHORTS[place.cohort].lost, COHORTS[place.cohort].hosts * RANKS
    for run, begin, until in _launches(place, end, 14 * DAY):
        job = {"job": "trainprobe", "run": run, "user": user_of(place)}
        _write_account(file, OF_JOB, job, hours, list(lost), [f"{at}\n" for at in range(begin, until, HOUR)])


def _write_user(file: TextIO, user: str, end: int) -> None:
    causes = list({cause: 0 for cohort in COHORTS for cause in cohort.lost})
    times = [f"{at}\n" for at in range(end - 14 * DAY, end, HOUR)]
    _write_account(file, OF_USER, {"job": "trainprobe", "user": user}, 400, causes, times)


def _write_account(
    file: TextIO, names: Mapping[str, str], labels: Labels, hours: int, causes: list[str], times: list[str]
) -> None:
    for name, share in ((PRODUCTIVE, 0.92), (WASTE, 0.08), (HELD, 1.0)):
        _write(file, names[name], labels, hours * share, times)
    for cause in causes:
        _write(file, names[GPU_HOURS_LOST], {**labels, "cause": str(cause)}, hours * 0.02, times)
    for source in SOURCES:
        _write(file, names[BADPUT], {**labels, "badput_source": source}, hours * 0.02, times)


def _launches(place: Place, end: int, seconds: int) -> Iterator[tuple[str, int, int]]:
    """The runs of a place in this time: name, begin, end."""
    for number, begin in enumerate(range(end - seconds, end, LIFE_SECONDS), start=1):
        yield run_name(place, -number), begin, begin + LIFE_SECONDS


def _write(file: TextIO, name: str, labels: Labels, value: float, times: list[str]) -> None:
    series = ",".join(f'{label}="{text}"' for label, text in labels.items())
    sample = f"{name}{{{series}}} {value:.6g} "
    file.writelines([sample + at for at in times])
