"""A reader of the journal that the server itself looks after, for the lake's process.

It needs no credentials and no requests: what the process reports is committed here, and so what it
has not read yet is kept for it within the operator's limits.
"""

from __future__ import annotations

from typing import Final

from taskyard.broker.broker import Broker
from taskyard.broker.seams import Cancellable, Scheduler
from taskyard.engine.model.errors import TaskyardError
from taskyard.engine.model.job import SECOND, SYSTEM_ORIGIN
from taskyard.engine.model.state import NamedReader
from taskyard.server.lag import Marks
from taskyard.server.logs import fields, log

# Each commit is a record, which the reader then reads like any other: so not after every batch.
_COMMITS: Final = 2 * SECOND
_SHORTEST_LEASE: Final = 3_600 * SECOND
_LONGEST_LEASE: Final = 366 * 86_400 * SECOND


class Follower:
    """Start, stop: in this order, once."""

    def __init__(self, name: str, broker: Broker, scheduler: Scheduler) -> None:
        self._name = name
        self._broker = broker
        self._scheduler = scheduler
        self._told = 0  # the record it wants next, as it says; 0: it has said nothing yet
        self._lease = min(max(int(broker.retention.limits.age), _SHORTEST_LEASE), _LONGEST_LEASE)
        self._commit_again = 0  # not before
        self._refused = ""
        self._marks = Marks()
        self._seen = 0  # the last durable record at the last look
        self._alarm: Cancellable | None = None

    def start(self) -> None:
        journal = self._broker.journal
        spans = journal.retained()
        for first_seq, created in zip(spans.first_seqs[1:], spans.created[1:], strict=True):
            self._marks.add(created, first_seq - 1)  # each segment ends when the next was made
        known = self._reader()
        self._commit(int(1 + journal.missed(1)) if known is None else int(known.next_seq))
        self._look()

    def stop(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        if self._has_news():
            self._commit(self.next_seq())

    def reached(self, next_seq: int) -> None:
        """It has all before that, for good. If that is less than before, it has begun anew."""
        reader = self._reader()
        self._told = next_seq
        if reader is not None and next_seq < int(reader.next_seq):
            self._commit(next_seq)
        self._marks.reached(next_seq)

    def next_seq(self) -> int:
        """What it wants next: as it says, or as it was committed before."""
        reader = self._reader()
        return self._told or (1 if reader is None else int(reader.next_seq))

    def lag(self) -> tuple[int, float]:
        """How many durable records it has not read, and for how many seconds the first is there."""
        wanted, durable = self.next_seq(), int(self._broker.journal.durable_seq)
        if durable == self._anchor():  # the record of its own commit, which nobody waits for
            durable -= 1
        age = self._marks.age(wanted, durable, int(self._broker.clock.now()))
        return max(0, durable + 1 - wanted), age / SECOND

    def _reader(self) -> NamedReader | None:
        return self._broker.engine.state.readers.get(self._name)

    def _anchor(self) -> int:
        """The record of its last commit."""
        reader = self._reader()
        return 0 if reader is None else int(reader.anchor)

    def _look(self) -> None:
        now, durable = int(self._broker.clock.now()), int(self._broker.journal.durable_seq)
        is_quiet = durable == self._seen
        self._seen = durable
        self._marks.add(now, durable)
        if now >= self._commit_again and (
            self._lease_is_half_over(now) or self._has_news() or (is_quiet and self._is_stuck())
        ):
            self._commit(self.next_seq())
        self._alarm = self._scheduler.call_at(now + SECOND, self._look)

    def _lease_is_half_over(self, now: int) -> bool:
        reader = self._reader()
        return reader is None or int(reader.lease_until) - now < self._lease // 2

    def _has_news(self) -> bool:
        """Whether it has read more than the record of its last commit: else that had no end."""
        return self._told > self._anchor() + 1

    def _is_stuck(self) -> bool:
        """Whether it waits for the files to say that the last records are durable.

        They say so with the next record, whichever that is: here, that of a commit.
        """
        return self.next_seq() <= self._seen and self._anchor() < self._seen

    def _commit(self, next_seq: int) -> None:
        """Registering does it: a known reader never goes back by that, but a new one can."""
        broker = self._broker
        now = broker.begin()
        refused = ""
        known = self._reader()
        try:
            if known is not None and next_seq < int(known.next_seq):
                broker.engine.drop_reader(self._name, SYSTEM_ORIGIN, now)
            broker.engine.register_reader(self._name, next_seq, self._lease, SYSTEM_ORIGIN, now)
        except TaskyardError as error:  # a full disk, say; a later look tries again
            refused = str(error)
        broker.end()
        self._commit_again = int(now) + _COMMITS
        if refused and refused != self._refused:
            told = fields(reader=self._name)
            log.error("what was read of the journal is not committed: %s", refused, extra=told)
        self._refused = refused
