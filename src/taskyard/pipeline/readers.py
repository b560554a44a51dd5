"""Readers of the journal that are registered with the server, so that it keeps what they need.

A commit is itself a record of the journal. Who followed the journal and committed after every
record would never come to rest, so commits are spread out; only what is kept depends on them.
"""

from __future__ import annotations

import json
import logging
import time
from typing import Any, Final

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from taskyard.journal.errors import JournalError, LeftBehind
from taskyard.pipeline.web import RegisteredReader, Web

_log: Final = logging.getLogger("taskyard.spark")
LEASE: Final = 86_400.0  # seconds that records are kept for a reader that says nothing
_PAUSE: Final = 5.0  # seconds between commits of a few records
_MANY: Final = 100_000  # records that are committed at once
_OWN: Final = 1  # the record of the commit itself is no progress


def commit_reader(
    url: str, reader: str, next_seq: int, lease: float = LEASE, token: str | None = None
) -> dict[str, Any]:
    """Say that a reader has all records before `next_seq`; gives what the server knows of it."""
    return RegisteredReader(Web(url, token), reader, lease).register(next_seq)


class Commits:
    """The commits of one reader: now and then while it gets on, and often enough for its lease."""

    def __init__(self, reader: RegisteredReader) -> None:
        self._reader = reader
        self._committed = 0
        self._at = 0.0
        self._renewal = reader.lease / 3

    def begin(self, next_seq: int | None) -> int:
        """Where a reader that is new to the server begins, or one that comes back."""
        view = self._reader.register(next_seq)
        self._noted(max(view["next_seq"], next_seq or 0))
        if next_seq is None:
            return int(view["next_seq"])
        if view["missed"] and view["next_seq"] <= next_seq:
            raise LeftBehind(next_seq, next_seq + view["missed"])
        return next_seq

    def note(self, next_seq: int, last: bool = False) -> None:
        """All before `next_seq` is done. `last`: nothing will be said after it for now."""
        waited = time.monotonic() - self._at
        done = next_seq - self._committed
        due = done >= _MANY or (done > _OWN and (last or waited >= _PAUSE))
        if due or waited >= self._renewal:
            self._reader.register(next_seq)
            self._noted(next_seq)

    def _noted(self, next_seq: int) -> None:
        self._committed = next_seq
        self._at = time.monotonic()


class CommitListener(StreamingQueryListener):
    """Commits what a query has finished, its last batch too.

    Spark tells a source of a batch only when the next one begins. For queries that end
    (`availableNow`) add this to `spark.streams`, so that the server need not keep the last batch.
    """

    def __init__(
        self,
        url: str,
        reader: str,
        lease: float = LEASE,
        token: str | None = None,
        query: str | None = None,
    ) -> None:
        """`query`: the name of the query; without it, every query on events is meant."""
        self._commits = Commits(RegisteredReader(Web(url, token), reader, lease))
        self._query = query
        self._ids: dict[str, int] = {}  # how far each query is

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        if self._query is None or event.name == self._query:
            self._ids[str(event.id)] = 0

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        which = str(event.progress.id)
        if which not in self._ids:
            return
        for source in event.progress.sources:
            next_seq = _next_seq(source.endOffset)
            if next_seq is not None:
                self._ids[which] = next_seq
                self._note(next_seq)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        self._finish(str(event.id))

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        self._finish(str(event.id))
        self._ids.pop(str(event.id), None)

    def _finish(self, which: str) -> None:
        if self._ids.get(which):
            self._note(self._ids[which], last=True)

    def _note(self, next_seq: int, last: bool = False) -> None:
        """What cannot be committed now is with the next commit: no reason to disturb the query."""
        try:
            self._commits.note(next_seq, last)
        except JournalError as error:
            _log.warning("record %s could not be committed: %s", next_seq - 1, error)


def _next_seq(offset: str | None) -> int | None:
    """The position in an offset of ours; None if it is of another source."""
    try:
        found = json.loads(offset or "null")
    except ValueError:
        return None
    if not isinstance(found, dict) or found.keys() != {"timeline", "seq"}:
        return None
    return int(found["seq"])
