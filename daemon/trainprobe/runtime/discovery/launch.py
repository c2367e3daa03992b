"""Who launched a training, and what the launch is called: reads /proc for ``runtime.discovery.identity``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trainprobe.collect.cgroup import Cgroups
from trainprobe.collect.command import ProgramKind, mentioned_script, redact, torchrun_id, torchrun_meeting, understand
from trainprobe.collect.pod_names import PodNames, pod_names
from trainprobe.collect.procfs import SMALL, Proc, read_file
from trainprobe.model.dataclass import dataclass
from trainprobe.runtime.discovery import identity
from trainprobe.runtime.discovery.process_table import WatchedProcess

CLIMB = 32  # generations
PATH_LIMIT = 4096


@dataclass(frozen=True, slots=True)
class Launch:
    """A launch as far as /proc told. ``facts`` names it."""

    pid: int  # of the launcher
    ticks: int
    command: tuple[str, ...]  # redacted
    user: str
    cwd: str
    facts: identity.IdentityInput


class Launches:
    """Looks launches up. What is in ``outside``, we ourselves first of all, is never taken for a launcher."""

    def __init__(self, proc: Proc, own_pid: int) -> None:
        self._proc = proc
        self._cgroups = Cgroups(proc)
        self.outside = {0, 1, own_pid}
        boot = read_file(f"{proc.root}/sys/kernel/random/boot_id", SMALL) or b""
        self._boot_id = boot.decode("ascii", "replace").strip()
        self._users: dict[int, str] = {}

    def of(self, process: WatchedProcess, environ: Mapping[str, str], command: Sequence[str]) -> Launch:
        """The launch that a process belongs to. ``command``: what to say where the process is gone already.

        The run is the process's owner's, also where another user's launcher started it.
        """
        pid = process.pid
        launcher, script = self.launcher(pid)
        seen = self._proc.command(launcher) or tuple(command)
        understood = understand(seen)
        stat, status = self._proc.stat(launcher), self._proc.status(pid)
        ticks = stat.ticks if stat else 0
        uid = process.uid if status is None or status.uid is None else status.uid  # it may have changed since its fork
        place = self._cgroups.place(pid)
        torchrun = seen if understood.kind is ProgramKind.LAUNCHER else ()
        facts = identity.IdentityInput(
            script=script or mentioned_script(seen) or understood.script,
            boot_id=self._boot_id,
            launcher_pid=launcher,
            launcher_ticks=ticks,
            uid=uid,
            environ=environ,
            place=place,
            pod=pod_names(place.pod_uid, place.container) if place.pod_uid else PodNames(),
            torchrun=torchrun_id(torchrun),
            meeting=torchrun_meeting(torchrun),
        )
        user = self.user(uid) if uid >= 0 else ""
        return Launch(launcher, ticks, redact(seen), user, self._proc.link(launcher, "cwd")[:PATH_LIMIT], facts)

    def launcher(self, pid: int) -> tuple[int, str]:
        """(topmost ancestor that still runs the same script, or torchrun for it; the script)."""
        top, at, script = pid, pid, ""
        for _ in range(CLIMB):
            command, stat = self._proc.command(at), self._proc.stat(at)
            if (at in self.outside and at != pid) or not command or stat is None:
                break
            seen = understand(command)
            if seen.kind not in (ProgramKind.SPAWNED, ProgramKind.FORKSERVER):
                if not _same(seen.kind, seen.script, script) and at != pid:
                    break
                top, script = at, script or (seen.script if seen.kind is not ProgramKind.OTHER else "")
            at = stat.ppid
        return top, script

    def user(self, uid: int) -> str:
        """A user's name, the number where there is none (or where the directory service does not answer). A name of
        digits would be taken for another one's number."""
        if uid not in self._users:
            name = self._proc.user(uid)
            self._users[uid] = (
                str(uid) if not name or name.isdigit() else identity.shown(name.decode("utf-8", "replace"))
            )
        return self._users[uid]


def _same(kind: ProgramKind, ancestor: str, script: str) -> bool:
    """Whether an ancestor belongs to the launch of a script ("": below are multiprocessing's children only)."""
    if kind is ProgramKind.LAUNCHER:
        return ancestor in ("", script) or not script
    return kind is ProgramKind.SCRIPT and (ancestor == script or not script)
