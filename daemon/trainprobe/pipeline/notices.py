"""The notices about limits that a rank has: each once, with its latest numbers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field, replace

from trainprobe.causes.situation import Notice
from trainprobe.model.dataclass import dataclass
from trainprobe.model.message import Message, template
from trainprobe.model.moment import NS

PASSED = template("limit.passed", "{what} (it did not go on)")
KEPT = 200
FIRST_NS = 6 * NS  # who grows is known a little later than that something does


@dataclass(slots=True)
class RankNotices:
    told: dict[str, Notice] = field(default_factory=dict)
    since: dict[str, int] = field(default_factory=dict)  # ns of the first time
    first: dict[str, Message] = field(default_factory=dict)  # what was said then
    total: int = 0

    def update(self, found: Iterable[Notice], now_ns: int) -> bool:
        """Bring what is told up to date; whether something new has happened."""
        news = False
        seen = set()
        for notice in found:
            seen.add(notice.key)
            if self.told.pop(notice.replaces, None) is not None:
                self.total -= 1
                self.since.pop(notice.replaces, None)
            before = self.told.get(notice.key)
            if notice.key not in self.since:
                self.total += 1
                self.since[notice.key] = notice.at_ns
                news = True
            elif notice.happened if before is None else before.happened and now_ns - before.at_ns > before.settles_ns:
                continue
            if now_ns - self.since[notice.key] <= FIRST_NS:
                self.first[notice.key] = notice.summary
            self.told[notice.key] = replace(notice, at_ns=self.since[notice.key])
        reached = {notice.cause for notice in self.told.values() if notice.happened}
        for key, notice in self.told.items():
            if key not in seen and not notice.happened and notice.eta_seconds is not None:
                first = self.first.get(key, notice.summary)
                summary = first if notice.cause in reached else PASSED(what=first)
                self.told[key] = replace(notice, eta_seconds=None, summary=summary)
        while len(self.told) > KEPT:
            self.told.pop(next(iter(self.told)))
        for known in (self.since, self.first):
            for key in [key for key in known if key not in self.told and key not in seen]:
                del known[key]
        return news
