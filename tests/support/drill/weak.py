"""Answers that did not wait for the disk, to clients that asked for just that.

They are true while the server runs. When that crashes, they may be undone, unless something that
was requested later is on disk.
"""

from __future__ import annotations

from math import inf

from support.drill.facts import Facts
from support.drill.slip import NEVER, JobHistory


class UnsyncedReplies:
    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._pushed: list[tuple[int, JobHistory]] = []
        self._over: list[tuple[int, JobHistory]] = []

    def pushed(self, slip: JobHistory) -> None:
        self._pushed.append((self._facts.tick, slip))

    def over(self, slip: JobHistory) -> None:
        self._over.append((self._facts.tick, slip))

    def on_crash(self) -> None:
        for tick, slip in self._pushed:
            heard_of = slip.heard_at != inf or slip.seen or slip.over != NEVER
            if not heard_of and not self._facts.must_last(tick):
                slip.there, slip.there_time = NEVER, inf
        for tick, slip in self._over:
            if not self._facts.must_last(tick):
                slip.over, slip.over_time = NEVER, inf
                slip.success = False
                slip.doubtful = True
        self._pushed.clear()
        self._over.clear()
