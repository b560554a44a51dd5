"""Tombstones: uids of jobs that are gone, remembered for a while, because a producer may repeat its
push.

They are kept in buckets by the time at which they were added. So a time is enough to forget the
oldest, in whatever order the records came back from the journal.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64, mypyc_attr
from sortedcontainers import SortedDict

_MIN_BUCKET_US: Final = 100_000  # microseconds of one bucket
_MAX_BUCKETS: Final = 4096  # about so many for the whole window, if that is longer


@mypyc_attr(acyclic=True)
class Tombstone:
    """What is remembered with a uid: its job, and the producer, see uid.py."""

    __slots__ = ("id", "producer")

    def __init__(self, id: i64, producer: bytes) -> None:
        self.id = id
        self.producer = producer


@mypyc_attr(acyclic=True)
class TombstoneBucket:
    """The tombstones of one stretch of time."""

    __slots__ = ("record_seq", "since", "tombstones", "uids")

    def __init__(self, since: i64) -> None:
        self.since = since
        self.uids: list[bytes] = []
        self.tombstones: list[Tombstone] = []
        self.record_seq: i64 = 0  # the record of the first, or the snapshot of all of them


class Tombstones:
    def __init__(self, window: i64) -> None:
        self.window = window  # how long each is remembered; 0: none is
        self.by_uid: dict[bytes, Tombstone] = {}
        self.bucket_width_us: i64 = max(i64(_MIN_BUCKET_US), window // _MAX_BUCKETS)
        self.buckets: SortedDict[int, TombstoneBucket] = SortedDict()
        self._current_bucket: TombstoneBucket | None = None  # the one that was used last

    def id_of(self, uid: bytes) -> i64:
        """The job that had this uid; 0: it is not remembered."""
        stone = self.by_uid.get(uid)
        if stone is None:
            return 0
        return stone.id

    def add(self, uid: bytes, id: i64, producer: bytes, time: i64, seq: i64) -> None:
        if not self.window or self.id_of(uid) >= id:
            return  # in another snapshot, or a later job has had it since
        since = time - time % self.bucket_width_us
        grave = self._current_bucket
        if grave is None or grave.since != since:
            grave = self.buckets.get(since)
            if grave is None:
                grave = TombstoneBucket(since)
                grave.record_seq = seq
                self.buckets[since] = grave
            self._current_bucket = grave
        stone = Tombstone(id, producer)
        self.by_uid[uid] = stone
        grave.uids.append(uid)
        grave.tombstones.append(stone)

    def first_expiry(self) -> i64:
        """Return when the oldest bucket may be dropped; 0: there is none."""
        if not self.buckets:
            return 0
        first: i64 = self.buckets.peekitem(0)[0]
        return first + self.bucket_width_us + self.window

    def forget_before(self, before: i64) -> None:
        """Drop the buckets that were closed before that time."""
        graves = self.buckets
        while graves:
            since, grave = graves.peekitem(0)
            if since + self.bucket_width_us > before:
                return
            del graves[since]
            if grave is self._current_bucket:
                self._current_bucket = None
            for index, uid in enumerate(grave.uids):
                # Another job may have had it since, in a run that remembered none.
                if self.by_uid.get(uid) is grave.tombstones[index]:
                    del self.by_uid[uid]
