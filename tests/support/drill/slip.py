"""What is known of one job from outside: the requests of clients, and what the replies have shown.

Facts hold from a tick on: a request made at that tick or later must not contradict them, while one
made before may have been executed before. Ticks count requests as they are made.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from math import inf
from typing import Final, NamedTuple

NEVER: Final = 1 << 62


class HistoryViolation(AssertionError):
    """The server has said or done what it must not."""


def require(truth: bool, otherwise: str) -> None:
    if not truth:
        raise HistoryViolation(otherwise)


class RequestTime(NamedTuple):
    """When a request was made."""

    tick: int
    time: float  # on the server's clock
    life: int  # how often the server had crashed before


NOT_ASKED: Final = RequestTime(0, 0.0, 0)


class EndKind(Enum):
    """What can be asked to become of a job."""

    SUCCESS = "finished"
    FAIL = "failed once"
    FINAL = "failed for good"
    RETURN = "given back"
    DELETE = "deleted"


@dataclass(kw_only=True, eq=False, slots=True)
class FetchAttempt:
    """A request for jobs."""

    consumer: str  # a connection
    queues: tuple[str, ...]
    count: int
    pops: bool  # what comes is finished with that
    asked: RequestTime
    ttr: float = inf  # that the taker asks for
    default_ttr: float = inf  # where neither it nor the job says any
    bound: bool = False  # a lease ends with the connection
    last_first: bool = False  # from the back of the queue
    weak: bool = False  # what comes may not be on disk yet, as the taker wants it
    came: int = 0
    resolved: bool = False  # all that it has got is known

    def ttr_of(self, slip: JobHistory) -> float:
        """How long it holds a job."""
        ttr = min(slip.ttr, self.ttr)
        return self.default_ttr if ttr == inf else ttr


@dataclass(kw_only=True, eq=False, slots=True)
class LeaseTerm:
    """How long a lease lasts by one request: the take, or one to extend it.

    The last that reached the server counts, also if it is the shortest.
    """

    asked: RequestTime
    until: float  # at least
    heard: int = NEVER  # before this tick it has reached the server
    heard_time: float = inf

    def is_before(self, other: LeaseTerm) -> bool:
        """Whether it has reached the server before the other for sure."""
        if other.heard == NEVER:
            return False
        return self.heard <= other.asked.tick or self.asked.life < other.asked.life


@dataclass(kw_only=True, eq=False, slots=True)
class Lease:
    """A job leased by a consumer, as far as clients know."""

    slip: JobHistory
    consumer: str
    queue: str
    heard: int  # tick
    heard_time: float
    terms: list[LeaseTerm]  # the take, and all that may have changed how long it lasts
    ttr: float
    bound: bool
    asked: RequestTime
    alive: bool = True  # nothing was done that may have ended it
    hangs: bool = False  # if its connection is lost, that counts as a fail, and it may be lost
    doubted: int = NEVER  # since then somebody else has it, so its connection must have ended

    @property
    def sure_until(self) -> float:
        """Before that nobody else can have the job."""
        last = [term for term in self.terms if not any(map(term.is_before, self.terms))]
        return min(term.until for term in last)


@dataclass(kw_only=True, eq=False, slots=True)
class EndAttempt:
    """A request to end a job or a lease of it, until it is answered."""

    slip: JobHistory
    kind: EndKind
    asked: RequestTime
    lease: Lease | None  # of the one who asks, if the server looks at that
    held: bool  # it was alive as far as anybody knew
    data: bytes = b""  # a result
    bundle: Bundle | None = None
    dead: bool = False  # it is about the job in its dead queue
    fenced: bool = False  # it can only be about this lease, not about a later one
    weak: bool = False  # its answer does not wait for the disk, as was asked for

    def may_finish(self) -> bool:
        return self.kind is EndKind.SUCCESS


@dataclass(kw_only=True, eq=False, slots=True)
class Bundle:
    """Pushes and endings that happen together or not at all."""

    pushes: list[JobHistory]
    endings: list[EndAttempt]
    asked: RequestTime
    strict: bool = True  # one that cannot be done keeps the others from being done
    applied: bool | None = None  # as far as anything has shown it
    known_time: float = inf  # when that was


@dataclass(eq=False, slots=True)
class OpenFetches:
    """Takes from one queue of which nobody knows yet, or ever will, what they have got."""

    open: int = 0
    lost: int = 0
    base: int = 0  # those lost before the server crashed the last time
    open_pops: int = 0
    lost_pops: int = 0
    base_pops: int = 0
    first_lost: int = NEVER  # tick of the first of this life


class FailCounts:
    """How often a job has failed in one place."""

    __slots__ = ("_acknowledged", "_known", "possible")

    def __init__(self) -> None:
        self.possible = 0  # at most
        self._acknowledged = 0
        self._known: list[tuple[int, int]] = []  # from which tick on it was how many at least

    def sure(self, tick: int = NEVER) -> int:
        """At least, for a request of this tick."""
        return max((count for since, count in self._known if since <= tick), default=0)

    def acknowledge(self, asked: int, tick: int) -> None:
        self._acknowledged += 1
        self.learn(max(self._acknowledged, self.sure(asked) + 1), tick)

    def learn(self, count: int, tick: int) -> None:
        if count > self.sure():
            self._known.append((tick, count))

    def forget(self) -> None:
        self._acknowledged = 0
        self._known.clear()


@dataclass(eq=False, slots=True)
class QueueVisit:
    """A queue that a job may come from, and its counts there, which begin anew in a dead queue."""

    queue: str = ""
    tally: OpenFetches = field(default_factory=OpenFetches)
    base: int = 0  # of the tally, before which nobody can have taken it
    base_pops: int = 0
    fails: FailCounts = field(default_factory=FailCounts)
    seen: int = 0  # how often it was delivered there

    def hidden(self) -> int:
        """Leases of which nobody was told, at most."""
        return self.tally.open + self.tally.lost - self.base

    def pops(self) -> int:
        return self.tally.open_pops + self.tally.lost_pops - self.base_pops


def _no_time() -> float:
    return time.time()


@dataclass(kw_only=True, eq=False, slots=True)
class JobHistory:
    """One job that a client requested, under a token that is in its payload."""

    token: str
    maker: str  # the connection
    queue: str
    priority: int = 0
    ttr: float = inf  # of each lease
    ttl: float = inf  # from its push or its time on
    run_at: float = 0.0  # on the server's clock
    max_attempts: int = 0  # 0: any number
    max_fails: int = 1  # the fail that ends it; 0: any number
    max_losses: int = -1  # leases lost that end it; 0: any number, -1: what the server says
    dead_queue: str = ""
    loss_fails: bool = False  # a connection lost with it counts as a fail
    blockers: tuple[JobHistory, ...] = ()
    limit_key: str = ""
    at_front: bool = False  # it was put before those that waited
    unique: str = ""  # a uid or key that nobody else may have at the same time
    momentary: bool = False  # it goes with whoever waits for its result
    keeps_result: bool = False  # until its ttl is over

    clock: Callable[[], float] = _no_time
    number: int = 0  # in the order in which they were asked for
    id: str = ""  # its number
    uid: str = ""
    asked: RequestTime = NOT_ASKED
    first_time: float = inf  # the earliest time at which it may have been pushed
    heard_at: float = inf  # the latest time at which its push was acknowledged
    open_pushes: int = 0  # without an answer
    there: int = NEVER  # from this tick on it is or was there
    there_time: float = inf
    over: int = NEVER  # from this tick on nobody gets it
    over_time: float = inf
    success: bool = False  # and it was a success
    deleted: int = NEVER  # from this tick on nobody is told of it
    dead_since: int = NEVER  # from this tick on it has failed for good in its own queue
    died_asked: int = -1  # and that was not before this tick
    refused: bool = False
    repeated: bool = False  # its push was sent more than once
    doubtful: bool = False  # a crash may have undone that it was over
    may_have_died: bool = False  # the same of that it has failed for good in its own queue
    forgotten: bool = False  # a crash may have undone its push, and another may have its id
    returned: bool = False  # a holder has given it back, or may have
    hung: bool = False  # before a crash the connection of a holder may have been lost

    leases: list[Lease] = field(default_factory=list)  # that the server is sure to know of
    stirred: int = -1  # the last tick at which somebody without a lease was about to end it, or did
    endings: list[EndAttempt] = field(default_factory=list)  # without an answer
    home: QueueVisit = field(default_factory=QueueVisit)
    grave: QueueVisit = field(default_factory=QueueVisit)
    bundle: Bundle | None = None  # that it was pushed with
    results: dict[bytes, bool] = field(default_factory=dict)  # that it may have, and which it was
    result: tuple[bool, bytes] | None = None  # as it was shown

    @property
    def seen(self) -> int:
        """How often it was delivered."""
        return self.home.seen + self.grave.seen

    def place(self, queue: str) -> QueueVisit:
        return self.grave if queue == self.dead_queue != "" else self.home

    def keeps_place(self) -> bool:
        """Whether its place in its queue is that of its push, whoever has had it meanwhile."""
        return not (
            self.run_at
            or self.blockers
            or self.at_front
            or self.limit_key
            or self.repeated
            or self.endings
            or self.stirred >= 0
            or self.home.fails.possible
            or (self.loss_fails and self.home.hidden())
        )

    def may_succeed(self) -> bool:
        """Whether it may have been finished with success."""
        return (
            self.success
            or self.doubtful
            or any(ending.kind is EndKind.SUCCESS for ending in self.endings)
            or self.home.pops() > 0
            or (self.dead_queue != "" and self.grave.pops() > 0)
        )

    def may_be_dropped(self) -> bool:
        """Whether a connection may have been lost with it, and that was a fail."""
        return self.loss_fails and (
            self.hung
            or any(lease.hangs for lease in self.leases)
            or self.home.hidden() > 0
            or (self.dead_queue != "" and self.grave.hidden() > 0)
        )

    def may_be_deleted(self) -> bool:
        return self.deleted != NEVER or any(
            ending.kind is EndKind.DELETE for ending in self.endings
        )

    def may_be_expired(self) -> bool:
        return self.momentary or self.clock() >= self.may_die_from()

    def may_be_dead(self, *, hidden: bool = True) -> bool:
        """Whether it may have failed for good in its own queue; `hidden`: also by takes that nobody
        will tell of."""
        return (
            self.dead_since != NEVER
            or self.may_have_died
            or self._may_die(self.home, hidden)
            or any(ending.kind is EndKind.FINAL and not ending.dead for ending in self.endings)
            or any(blocker.may_have_failed() for blocker in self.blockers)
        )

    def may_have_failed(self) -> bool:
        """Whether those that it blocks may have been failed by it."""
        if self.forgotten or self.doubtful:
            return True
        if self.over != NEVER and self.success and not self.dead_queue:
            return False
        if self.over != NEVER and not self.success:
            return True
        return self.may_be_dead() or self.may_be_deleted() or self.may_be_expired()

    def may_be_gone(self, *, hidden: bool = True) -> bool:
        """Whether it may have failed with no queue left to come from."""
        if not self.may_be_dead(hidden=hidden):
            return False
        if not self.dead_queue:
            return True
        if any(ending.kind is EndKind.FINAL and ending.dead for ending in self.endings):
            return True
        return self._may_die(self.grave, hidden)

    def may_die_from(self) -> float:
        """From when on it may be forgotten, on the server's clock."""
        return max(min(self.first_time, self.asked.time), self.run_at) + self.ttl

    def dies_at(self) -> float:
        """From when on it must be forgotten."""
        if self.open_pushes:
            return inf
        return max(self.heard_at, self.run_at) + self.ttl

    def sure_attempts(self, queue: str) -> int:
        """Leases from there that the server is sure to have counted."""
        return sum(lease.queue == queue for lease in self.leases)

    def _may_die(self, place: QueueVisit, hidden: bool) -> bool:
        unknown = place.hidden() if hidden else 0
        fails = place.fails.possible + (unknown if self.loss_fails else 0)
        leases = place.seen + unknown
        return (
            0 < self.max_fails <= fails
            or 0 < self.max_attempts <= leases
            or 0 < self.max_losses <= leases
        )
