"""The journal reader of the lake's process, which the server itself keeps leased.

It needs no credentials and no requests: the server commits what the process reports, and so keeps
what it has not read yet within the operator's limits.
"""

from __future__ import annotations

from typing import Final

from taskyard.broker.broker import Broker
from taskyard.broker.seams import Cancellable, Scheduler
from taskyard.engine.model.errors import TaskyardError
from taskyard.engine.model.job import SECOND, SYSTEM_ORIGIN
from taskyard.engine.model.state import NamedReader
from taskyard.server.lag import LagTracker
from taskyard.server.logs import fields, log

# Each commit is a record, which the reader then reads like any other: so not after every batch.
_COMMIT_INTERVAL_US: Final = 2 * SECOND
_MIN_LEASE_US: Final = 3_600 * SECOND
_MAX_LEASE_US: Final = 366 * 86_400 * SECOND


class JournalReaderLease:
    """Start, stop: in this order, once."""

    def __init__(self, name: str, broker: Broker, scheduler: Scheduler) -> None:
        self._name = name
        self._broker = broker
        self._scheduler = scheduler
        self._reported_seq = 0  # the next record, as the process reports; 0: no report yet
        self._lease_us = min(max(int(broker.retention.limits.age), _MIN_LEASE_US), _MAX_LEASE_US)
        self._next_commit_at = 0  # not before
        self._last_error = ""
        self._lag_tracker = LagTracker()
        self._checked_seq = 0  # the last durable record at the last check
        self._timer_handle: Cancellable | None = None

    def start(self) -> None:
        journal = self._broker.journal
        spans = journal.retained_segments()
        for first_seq, created in zip(spans.first_seqs[1:], spans.created[1:], strict=True):
            self._lag_tracker.add_sample(
                created, first_seq - 1
            )  # each segment ends when the next was made
        known = self._reader()
        self._commit_position(
            int(1 + journal.missed_records(1)) if known is None else int(known.next_seq)
        )
        self._check()

    def stop(self) -> None:
        if self._timer_handle is not None:
            self._timer_handle.cancel()
        if self._has_progress():
            self._commit_position(self.next_seq())

    def on_progress(self, next_seq: int) -> None:
        """Record that the process has read everything before `next_seq`. A smaller number than
        before means that it has started again.
        """
        reader = self._reader()
        self._reported_seq = next_seq
        if reader is not None and next_seq < int(reader.next_seq):
            self._commit_position(next_seq)
        self._lag_tracker.drop_samples_before(next_seq)

    def next_seq(self) -> int:
        """The record that the process reads next: as reported, or as last committed."""
        reader = self._reader()
        return self._reported_seq or (1 if reader is None else int(reader.next_seq))

    def lag(self) -> tuple[int, float]:
        """How many durable records it has not read, and for how many seconds the first is there."""
        wanted, durable = self.next_seq(), int(self._broker.journal.durable_seq)
        if (
            durable == self._last_commit_seq()
        ):  # the record of its own commit, which no reply waits for
            durable -= 1
        age = self._lag_tracker.age_us(wanted, durable, int(self._broker.clock.now()))
        return max(0, durable + 1 - wanted), age / SECOND

    def _reader(self) -> NamedReader | None:
        return self._broker.engine.state.readers.get(self._name)

    def _last_commit_seq(self) -> int:
        """The record of its last commit."""
        reader = self._reader()
        return 0 if reader is None else int(reader.record_seq)

    def _check(self) -> None:
        now, durable = int(self._broker.clock.now()), int(self._broker.journal.durable_seq)
        is_quiet = durable == self._checked_seq
        self._checked_seq = durable
        self._lag_tracker.add_sample(now, durable)
        if now >= self._next_commit_at and (
            self._lease_is_half_over(now)
            or self._has_progress()
            or (is_quiet and self._needs_later_record())
        ):
            self._commit_position(self.next_seq())
        self._timer_handle = self._scheduler.call_at(now + SECOND, self._check)

    def _lease_is_half_over(self, now: int) -> bool:
        reader = self._reader()
        return reader is None or int(reader.lease_until) - now < self._lease_us // 2

    def _has_progress(self) -> bool:
        """Whether it has read more than the record of its last commit: else that had no end."""
        return self._reported_seq > self._last_commit_seq() + 1

    def _needs_later_record(self) -> bool:
        """Whether it waits for the files to say that the last records are durable.

        They say so with the next record, whichever that is: here, that of a commit.
        """
        return self.next_seq() <= self._checked_seq and self._last_commit_seq() < self._checked_seq

    def _commit_position(self, next_seq: int) -> None:
        """Commit by registering: a known reader never goes back by that, but a new one can."""
        broker = self._broker
        now = broker.begin_turn()
        refused = ""
        known = self._reader()
        try:
            if known is not None and next_seq < int(known.next_seq):
                broker.engine.drop_reader(self._name, SYSTEM_ORIGIN, now)
            broker.engine.register_reader(self._name, next_seq, self._lease_us, SYSTEM_ORIGIN, now)
        except TaskyardError as error:  # a full disk, say; a later check tries again
            refused = str(error)
        broker.end_turn()
        self._next_commit_at = int(now) + _COMMIT_INTERVAL_US
        if refused and refused != self._last_error:
            told = fields(reader=self._name)
            log.error("journal reader position not committed: %s", refused, extra=told)
        self._last_error = refused
