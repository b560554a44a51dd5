"""What the conformance suite does with a server, in words that every protocol can be put into.

An adapter is one client of one protocol. What its protocol cannot say is absent from `can`, and no
case is made that would need it; a verb that was not overridden is never called.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import ClassVar

from support.wire import Peer

Connect = Callable[[str], Peer]


class Can(Enum):
    """One thing that a protocol may be able to say."""

    PUSH = auto()
    TAKE = auto()  # and finish
    POP = auto()  # both at once: what was handed over is finished
    WAIT_TO_POP = auto()
    # When pushing
    PRIORITY = auto()
    DELAY = auto()  # not before a time
    TTL = auto()
    TTR = auto()
    MAX_FAILS = auto()
    MAX_ATTEMPTS = auto()
    DEAD_QUEUE = auto()
    BLOCKED_BY = auto()
    UID = auto()  # an id of the client's own
    NAME = auto()  # a task name beside the queue
    ANY_BYTES = auto()  # payloads that are not JSON
    ANY_NAME = auto()  # queue names of any letters
    # When taking
    WAIT = auto()
    FAIL = auto()
    FAIL_WITH_ERROR = auto()  # with bytes that say why
    FINISH_WITH_RESULT = auto()
    # A lease ends with the connection of its holder, or after a time
    BOUND_LEASE = auto()
    TIMED_LEASE = auto()
    SHOW_FAILS = auto()  # a delivery tells how often the job has failed
    SHOW_ID = auto()  # ... and the job's number
    # By the job's uid, whoever holds it
    FINISH_ANY = auto()
    DELETE = auto()
    # When looking
    LOOK = auto()  # one job
    RESULT = auto()  # how it ended
    AWAIT_RESULT = auto()  # ... or wait for that
    COUNT_READY = auto()
    COUNT_DELAYED = auto()
    COUNT_LEASED = auto()
    LIST_QUEUES = auto()


class NotHeld(Exception):
    """Somebody wanted to finish a job that was not, or no longer, theirs."""


class AlreadyEnded(Exception):
    """Somebody wanted to finish a job that has its result."""


class NotFound(Exception):
    """There is no such job, or no such queue."""


class Duplicate(Exception):
    """This push was there before: a job of the same queue has its uid."""


class UidTaken(Exception):
    """Another push has this uid."""


class BadName(Exception):
    """The protocol has no such name."""


@dataclass
class Handle:
    """A job that was pushed, as far as its pusher and others have got to know it."""

    queue: str
    payload: bytes
    number: int  # the job's id: pushes are counted over all protocols, from 1
    uid: str = ""  # "" until somebody has learnt it
    kept: bool = False  # its result outlives it


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a push may ask for beside queue and payload. Times are seconds; None: not said."""

    name: str | None = None
    priority: int | None = None
    run_at: float | None = None  # of the server's clock
    ttl: float | None = None
    ttr: float | None = None
    fails: int | None = None  # the n-th failure is final
    attempts: int | None = None
    dead_queue: str | None = None
    blocked_by: tuple[int, ...] = ()
    uid: str | None = None

    def needs(self) -> frozenset[Can]:
        asked = {
            Can.NAME: self.name is not None,
            Can.PRIORITY: self.priority is not None,
            Can.DELAY: self.run_at is not None,
            Can.TTL: self.ttl is not None,
            Can.TTR: self.ttr is not None,
            Can.MAX_FAILS: self.fails is not None,
            Can.MAX_ATTEMPTS: self.attempts is not None,
            Can.DEAD_QUEUE: self.dead_queue is not None,
            Can.BLOCKED_BY: bool(self.blocked_by),
            Can.UID: self.uid is not None,
        }
        return frozenset(can for can, is_asked in asked.items() if is_asked)


@dataclass(frozen=True)
class Taken:
    """A delivery, as its protocol shows it."""

    queue: str
    payload: bytes
    name: str | None = None  # None, as below: the protocol does not show it
    number: int | None = None
    uid: str | None = None
    fails: int | None = None


@dataclass(frozen=True)
class View:
    """One job, looked at. `state` is "waiting", "leased", "succeeded" or "failed"."""

    state: str
    attempts: int
    fails: int
    queue: str


@dataclass(frozen=True)
class Result:
    success: bool
    data: bytes


Counts = dict[str, int]  # of "ready", "delayed" and "leased", those that the protocol shows


class Adapter(ABC):
    """One connection of a client. Refusals are the exceptions above; anything else unexpected is
    an AssertionError."""

    dialect: ClassVar[str]
    can: ClassVar[frozenset[Can]]

    # How jobs that were pushed by this protocol behave, whoever takes them
    result_outlives_job: ClassVar[bool]  # also if the push did not speak of a ttl
    loss_is_failure: ClassVar[bool]  # when a lease ends with a connection
    default_fails: ClassVar[int]  # the failure that is final when nothing was said
    max_losses: ClassVar[int]  # lost leases that make it a dead letter by default; 0: none do

    shows_json: ClassVar[bool]  # a payload of whatever kind is shown as JSON

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self.waiting = False  # for a job, or for a result: no other command is answered
        self.reconnect()

    @classmethod
    @abstractmethod
    def pause_after_fail(cls, fails: int) -> int:
        """Seconds until a job of this protocol comes back after failure number `fails`."""

    def reconnect(self) -> None:
        self.peer = self._connect(self.dialect)
        self.waiting = False

    def disconnect(self) -> None:
        """Go away without a word."""
        self.peer.close()

    @abstractmethod
    def keep_alive(self) -> None:
        """Do what a client of this protocol does to stay connected for another while."""

    @abstractmethod
    def push(self, queue: str, payload: bytes, options: Options) -> str:
        """Push a job; gives its uid, or "" if the protocol does not tell."""

    @abstractmethod
    def ask(self, queue: str, wait: float) -> None:
        """Begin to take a job, which `arrived` or `came_to_nothing` will complete."""

    @abstractmethod
    def arrived(self) -> Taken:
        """The job that was asked for has come."""

    @abstractmethod
    def came_to_nothing(self) -> None:
        """What was asked for has not come in time."""

    @abstractmethod
    def finish(self, taken: Taken, result: bytes = b"") -> None: ...

    @abstractmethod
    def fail(self, taken: Taken, error: bytes = b"") -> None: ...

    @abstractmethod
    def counts(self, queue: str) -> Counts: ...

    def queues(self) -> list[str]:
        raise NotImplementedError(self.dialect)

    def learn(self, handle: Handle) -> None:
        """Find out the uid of a job that waits in its queue."""
        raise NotImplementedError(self.dialect)

    def look(self, handle: Handle) -> View:
        raise NotImplementedError(self.dialect)

    def finish_any(self, handle: Handle, result: bytes = b"") -> None:
        raise NotImplementedError(self.dialect)

    def fail_any(self, handle: Handle, error: bytes = b"") -> None:
        raise NotImplementedError(self.dialect)

    def delete(self, handle: Handle) -> None:
        raise NotImplementedError(self.dialect)

    def ask_result(self, handle: Handle, wait: float) -> None:
        raise NotImplementedError(self.dialect)

    def result(self) -> Result:
        """What was asked for by `ask_result`."""
        raise NotImplementedError(self.dialect)

    def still_waits(self) -> None:
        """What was asked for has not been answered yet."""
        self.peer.expect_nothing()
