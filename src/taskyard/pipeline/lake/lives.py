"""What became of each job: the rules of its states, over many records at once.

The rows are those of some jobs, each job's own in order, behind the row that was kept of it, if
there is one. What comes out are numbers of rows and of states: which tables are made of them, and
where the other columns are, is not known here. NumPy only: a rule is a few passes over all rows.
"""

from dataclasses import dataclass
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
Codes = NDArray[np.int8]

NOTHING: Final = -(1 << 62)  # a time that is not known

# What a row is.
KEPT, PUSH, LEASE, FINISH, RETRY, RELEASE, FAIL, WAKE, UNBLOCK = range(9)
REMOVE, MOVE, RESCORE, REPLAY, ENTER = range(9, 14)
OTHER: Final = 14  # extend, progress: of the queue, but nothing changes
NOT_A_JOB: Final = 15  # not about a job
CODES: Final = {
    "push": PUSH,
    "lease": LEASE,
    "finish": FINISH,
    "retry": RETRY,
    "release": RELEASE,
    "fail": FAIL,
    "wake": WAKE,
    "unblock": UNBLOCK,
    "remove": REMOVE,
    "move": MOVE,
    "rescore": RESCORE,
    "replay": REPLAY,
    "extend": OTHER,
    "progress": OTHER,
}

STATES: Final = (None, "blocked", "delayed", "ready", "leased", "failed", None)
UNKNOWN, BLOCKED, DELAYED, READY, LEASED, FAILED, GONE = range(7)
_UNSET: Final = -1
_Kind = TypeVar("_Kind", bound=np.signedinteger[Any])


@dataclass
class Rows:
    """Sorted by job, then by order of the records. Of kept rows, what they were kept with."""

    code: Codes
    job: Ints
    time: Ints
    run_at: Ints  # NOTHING: none
    ended: Flags
    taken: Flags  # a finish that needs no lease: popped, or taken out
    attempt: Ints  # -1: not said
    blockers: Ints  # how many there were at the push
    priced: Flags  # it says a priority
    state: Codes  # from here on of kept rows only, else neutral
    run: Ints
    ready_at: Ints
    ready_since: Ints
    started_at: Ints
    last_started_at: Ints
    waited_from: Ints
    began_at: Ints
    run_time: Ints
    retries: Ints
    releases: Ints
    unblocked: Ints


class JobTimelines:
    """Of each row: the state before and after it, its run, and where that run's milestones are.

    An index of -1 is none. A life ends with a finish or a removal; what comes of the same job
    after that is told of one that nobody saw coming.
    """

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.count = len(rows.code)
        self._places = np.arange(self.count)
        code = rows.code
        self.begins = self._find_life_begins()
        self.begin = self._begin_of(self.begins)
        self.kept = code == KEPT
        self.unblocked = self._since(self.begin, np.where(code == UNBLOCK, 1, rows.unblocked))
        own = self._own_states()
        self.after = self._filled(own)
        self.before = np.where(self.begins, np.int8(UNKNOWN), _shifted(self.after, UNKNOWN))
        self._find_runs()
        self._find_ready(own)
        self._find_starts()
        self._find_ends()

    # Lives and runs

    def _find_life_begins(self) -> Flags:
        job, code = self.rows.job, self.rows.code
        begins = np.ones(self.count, np.bool_)
        gone = (code == FINISH) | (code == REMOVE)
        begins[1:] = (job[1:] != job[:-1]) | gone[:-1]
        return begins

    def _begin_of(self, begins: Flags) -> Ints:
        return np.maximum.accumulate(np.where(begins, self._places, 0))

    def _last(self, flags: Flags, floor: Ints) -> Ints:
        """The last row with the flag, not after each row and not before its floor."""
        found = np.maximum.accumulate(np.where(flags, self._places, -1))
        return np.where(found < floor, -1, found)

    def _last_before(self, flags: Flags, floor: Ints) -> Ints:
        found = _shifted(np.maximum.accumulate(np.where(flags, self._places, -1)), -1)
        return np.where(found < floor, -1, found)

    def _first(self, flags: Flags, floor: Ints) -> Ints:
        """The first row with the flag from the floor of each row on, not after that row."""
        ahead = np.where(flags, self._places, self.count)
        ahead = np.minimum.accumulate(ahead[::-1])[::-1]
        found = ahead[floor]
        return np.where(found > self._places, -1, found)

    def _since(self, floor: Ints, amounts: Ints) -> Ints:
        """The sum of the amounts from the floor of each row on, that row's own included."""
        total = np.cumsum(amounts)
        return total - (total - amounts)[floor]

    # States

    def _own_states(self) -> Codes:
        """The state after each row, as far as the row itself decides on it."""
        rows, code = self.rows, self.rows.code
        own = np.full(self.count, _UNSET, np.int8)
        waits = np.where(rows.run_at > rows.time, np.int8(DELAYED), np.int8(READY))
        own[self.kept] = rows.state[self.kept]
        push = code == PUSH
        own[push] = np.where(rows.blockers[push] > 0, np.int8(BLOCKED), waits[push])
        for each in (WAKE, RELEASE, MOVE, REPLAY, ENTER):
            own[code == each] = READY
        own[code == LEASE] = LEASED
        own[code == FAIL] = FAILED
        own[(code == FINISH) | (code == REMOVE)] = GONE
        self._unblock(own)
        retry = np.flatnonzero(code == RETRY)
        if len(retry):  # a blocked one goes on waiting, however often it is tried again
            last = self._last_before(own != _UNSET, self.begin)[retry]
            blocked = (last >= 0) & (own[last] == BLOCKED)
            own[retry] = np.where(blocked, np.int8(BLOCKED), waits[retry])
        return own

    def _unblock(self, own: Codes) -> None:
        rows = self.rows
        at = np.flatnonzero(rows.code == UNBLOCK)
        if not len(at):
            return
        birth = self.begin[at]
        total = rows.blockers[birth]
        last = (total > 0) & (self.unblocked[at] == total)
        at, birth = at[last], birth[last]
        delayed = rows.run_at[birth] > rows.time[at]
        own[at] = np.where(delayed, np.int8(DELAYED), np.int8(READY))

    def _filled(self, own: Codes) -> Codes:
        last = self._last(own != _UNSET, self.begin)
        return np.where(last < 0, np.int8(UNKNOWN), own[last])

    def _find_runs(self) -> None:
        rows, code = self.rows, self.rows.code
        revived = (code == MOVE) & (self.before == FAILED)
        opens = (code == REPLAY) | (code == ENTER) | revived
        base = np.where(self.kept, rows.run, 1)[self.begin]
        self.run = base + self._since(self.begin, opens.astype(np.int64))
        self.run_begin = self._begin_of(opens | self.begins)
        known = opens | (code == PUSH)
        self.began_at = np.where(known, rows.time, np.where(self.kept, rows.began_at, NOTHING))[
            self.run_begin
        ]

    def _find_ready(self, own: Codes) -> None:
        rows = self.rows
        ready = (own == READY) & ~self.kept
        first = self._first(ready | (rows.ready_at != NOTHING), self.run_begin)
        times = np.where(self.kept, rows.ready_at, rows.time)
        self.ready_at = np.where(first < 0, NOTHING, times[first])
        last = self._last(ready | (rows.ready_since != NOTHING), self.begin)
        times = np.where(self.kept, rows.ready_since, rows.time)
        since = np.where((last < 0) | (self.after != READY), NOTHING, times[last])
        self.ready_since = since  # after the row
        self._ready_before = np.where(self.begins, NOTHING, _shifted(since, NOTHING))

    # Attempts

    def _find_starts(self) -> None:
        rows, code = self.rows, self.rows.code
        waiting = (self.before >= BLOCKED) & (self.before <= READY)
        unseen = (self.before == UNKNOWN) & rows.taken
        self.pops = (code == FINISH) & (waiting | unseen)
        self.starts = (code == LEASE) | self.pops
        started = self.starts | (rows.started_at != NOTHING)
        first = self._first(started, self.run_begin)
        times = np.where(self.kept, rows.started_at, rows.time)
        self.started_at = np.where(first < 0, NOTHING, times[first])
        self.last_start = self._last(started, self.run_begin)
        self.start_times = np.where(self.kept, rows.last_started_at, rows.time)
        self.start_ready = np.where(self.kept, rows.waited_from, self._ready_before)
        self._number_attempts(unseen)

    def _number_attempts(self, unseen: Flags) -> None:
        """A start that does not say which attempt it is, is the next one."""
        rows = self.rows
        numbers = rows.attempt + (self.pops & unseen)
        told = ((rows.code == LEASE) & (rows.attempt >= 0)) | (self.pops & unseen) | self.kept
        untold = (self.starts & ~told).astype(np.int64)
        base = self._last(told, self.run_begin)
        counted = np.cumsum(untold)
        from_base = np.where(base < 0, 0, numbers[base]) + counted - counted[base]
        self.attempts = np.where(base < 0, self._since(self.run_begin, untold), from_base)

    def _find_ends(self) -> None:
        rows, code = self.rows, self.rows.code
        self.closes = (code == FINISH) | (code == FAIL) | ((code == REMOVE) & ~rows.ended)
        ending = self.closes | (code == RETRY) | (code == RELEASE) | (code == MOVE)
        held_from = (code == LEASE) | (self.kept & (rows.state == LEASED))
        lease = self._last_before(held_from, self.begin)
        held = lease > self._last_before(ending, self.begin)
        self.ends = ending & (held | self.pops)
        self.start_of = np.where(self.pops, self._places, lease)  # of an attempt that ends here
        took = np.where(self.ends, rows.time - self.start_times[self.start_of], 0)
        self.duration = took
        self.run_time = self._since(self.run_begin, np.where(self.kept, rows.run_time, took))
        retried = np.where(code == RETRY, 1, rows.retries)
        self.retries = self._since(self.run_begin, retried)
        released = np.where(code == RELEASE, 1, rows.releases)
        self.releases = self._since(self.run_begin, released)
        closed = self.closes | (self.kept & (rows.state == FAILED))
        self.closing = self._last(closed, self.run_begin)

    def priced_at(self) -> Ints:
        return self._last(self.rows.priced, self.begin)

    def is_open(self) -> Flags:
        """The last row of each job that is still there."""
        ends = np.ones(self.count, np.bool_)
        ends[:-1] = self.rows.job[1:] != self.rows.job[:-1]
        ends &= self.after != GONE
        return ends


def _shifted(values: NDArray[_Kind], first: int) -> NDArray[_Kind]:
    """Each value one row further down."""
    moved = np.empty_like(values)
    moved[:1] = first
    moved[1:] = values[:-1]
    return moved
