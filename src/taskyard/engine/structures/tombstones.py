"""Uids of jobs that are gone, remembered for a while: a producer may repeat its push.

They are kept in graves by the time of their burial, so that all that is needed to forget the
oldest is a time, whichever of them came back from the journal in whatever order.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64, mypyc_attr
from sortedcontainers import SortedDict

_FINEST: Final = 100_000  # microseconds of one grave
_GRAVES: Final = 4096  # about so many for the whole window, if that is longer


@mypyc_attr(acyclic=True)
class Stone:
    """What is remembered with a uid: its job, and who pushed that, see uid.py."""

    __slots__ = ("id", "producer")

    def __init__(self, id: i64, producer: bytes) -> None:
        self.id = id
        self.producer = producer


@mypyc_attr(acyclic=True)
class Grave:
    """The uids that were buried in one stretch of time, with what is known of their jobs."""

    __slots__ = ("anchor", "since", "stones", "uids")

    def __init__(self, since: i64) -> None:
        self.since = since
        self.uids: list[bytes] = []
        self.stones: list[Stone] = []
        self.anchor: i64 = 0  # the record that buried the first, or carried all of them


class Tombstones:
    def __init__(self, window: i64) -> None:
        self.window = window  # how long each is remembered; 0: none is
        self.stones: dict[bytes, Stone] = {}
        self.width: i64 = max(i64(_FINEST), window // _GRAVES)
        self.graves: SortedDict[int, Grave] = SortedDict()
        self._open: Grave | None = None  # the one that was used last

    def id_of(self, uid: bytes) -> i64:
        """The job that had this uid; 0: it is not remembered."""
        stone = self.stones.get(uid)
        if stone is None:
            return 0
        return stone.id

    def bury(self, uid: bytes, id: i64, producer: bytes, time: i64, seq: i64) -> None:
        if not self.window or self.id_of(uid) >= id:
            return  # carried once more, or a later job has had it since
        since = time - time % self.width
        grave = self._open
        if grave is None or grave.since != since:
            grave = self.graves.get(since)
            if grave is None:
                grave = Grave(since)
                grave.anchor = seq
                self.graves[since] = grave
            self._open = grave
        stone = Stone(id, producer)
        self.stones[uid] = stone
        grave.uids.append(uid)
        grave.stones.append(stone)

    def first_end(self) -> i64:
        """When the oldest grave may be given up; 0: there is none."""
        if not self.graves:
            return 0
        first: i64 = self.graves.peekitem(0)[0]
        return first + self.width + self.window

    def forget(self, before: i64) -> None:
        """Give up the graves that were closed before that time."""
        graves = self.graves
        while graves:
            since, grave = graves.peekitem(0)
            if since + self.width > before:
                return
            del graves[since]
            if grave is self._open:
                self._open = None
            for index, uid in enumerate(grave.uids):
                # Another job may have had it since, in a run that remembered none.
                if self.stones.get(uid) is grave.stones[index]:
                    del self.stones[uid]
