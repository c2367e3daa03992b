"""Log files over a whole run: so many have names, and what was written to the others is summed up by kind."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field, replace

from trainprobe.derive.files.save import Save
from trainprobe.model.dataclass import dataclass

KEEP = 512
"""Log files with names, those that were closed last, and lengths of log files."""
LONGEST = 8


@dataclass(slots=True)
class LogUse:
    """A log file over the whole run."""

    path: str
    kind: str
    bytes: int = 0
    writes: int = 0
    ns: int = 0
    inode: tuple[int, int] = (0, 0)  # (dev, ino) of the last file of this name
    size: int | None = None  # bytes of that file when it was looked at; None: not looked at, or it has no size

    def add(self, save: Save) -> None:
        """What was written while the file was open once."""
        self.bytes += save.bytes
        self.writes += save.calls
        self.ns += save.write_ns + save.sync_ns + save.meta_ns
        self.inode = save.key[1:]


@dataclass(slots=True)
class Logs:
    named: dict[str, LogUse] = field(default_factory=dict)  # by path
    gone: dict[str, LogUse] = field(default_factory=dict)  # by kind: the sums of those that have no name any more
    sizes: dict[tuple[int, int], int] = field(default_factory=dict)  # by (dev, ino): bytes

    def add(self, save: Save, kind: str) -> None:
        """The log was closed."""
        use = self.named.pop(save.path, None) or LogUse(save.path, kind)
        use.add(save)
        self.named[save.path] = use
        if len(self.named) > KEEP:
            oldest = self.named.pop(next(iter(self.named)))
            rest = self.gone.get(oldest.kind, LogUse("", oldest.kind))
            self.gone[oldest.kind] = replace(
                rest, bytes=rest.bytes + oldest.bytes, writes=rest.writes + oldest.writes, ns=rest.ns + oldest.ns
            )

    def forget(self, path: str) -> None:
        """It is no log."""
        self.named.pop(path, None)

    @property
    def bytes(self) -> int:
        """Written to all that were closed."""
        return sum(use.bytes for use in (*self.named.values(), *self.gone.values()))

    def all(self, being_written: Iterable[tuple[Save, str]]) -> list[LogUse]:
        """With names, those that took most time first. ``being_written``: open ones with their kinds."""
        out = {path: replace(use) for path, use in self.named.items()}
        for save, kind in being_written:
            if save.calls:
                out.setdefault(save.path, LogUse(save.path, kind)).add(save)
        for use in out.values():
            use.size = self.sizes.get(use.inode)
        return sorted(out.values(), key=lambda use: -use.ns)

    def feed_sizes(self, sizes: dict[tuple[int, int], int]) -> None:
        """Bytes by (dev, ino)."""
        self.sizes.update(sizes)
        while len(self.sizes) > KEEP:
            self.sizes.pop(next(iter(self.sizes)))


def longest(logs: Iterable[LogUse]) -> list[LogUse]:
    """Those that grew most, a few of them; what has no name in a file system has no length."""
    files = [use for use in logs if use.path.startswith("/") and use.inode[1]]
    return sorted(files, key=lambda use: -use.bytes)[:LONGEST]
