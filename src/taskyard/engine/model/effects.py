"""What operations return beside records: what the broker has to send to which connection.

Waiters and watchers are not persistent; they belong to open connections.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from taskyard.engine.model.job import Job, Origin
from taskyard.engine.model.queue import Queue
from taskyard.engine.structures.timers import WAITER_TIMER, WATCHER_TIMER, Timer

MAX_QUEUES_PER_COMMAND: Final = 1000  # that one command may name
ALWAYS_ALLOWED_QUEUES: Final = 16  # that a command may wait at, however little memory is left
# Bytes of memory that a waiting command takes, as measured: it stands in a line for each name.
_WAITER_BYTES: Final = 384
_WAITER_QUEUE_BYTES: Final = 448

# What a watcher is notified of.
WATCH_LEASED: Final = 0
WATCH_SUCCEEDED: Final = 1
WATCH_FAILED: Final = 2
WATCH_GONE: Final = 3
WATCH_TIMEOUT: Final = 4


class FetchRequest:
    """A request for one job: from which queues, for which owner, and how."""

    __slots__ = (
        "_waiter_bytes",
        "bound_to_connection",
        "front",
        "last",
        "move_to",
        "origin",
        "owner",
        "pop",
        "queues",
        "random_queue",
        "ttr",
    )

    def __init__(
        self,
        queues: list[bytes],
        owner: i64,
        origin: Origin,
        bound_to_connection: bool = False,
        random_queue: bool = False,
        pop: bool = False,
        ttr: i64 = 0,
        last: bool = False,
        move_to: str = "",
        front: bool = False,
    ) -> None:
        self.queues = queues
        self.owner = owner
        self.origin = origin
        self.bound_to_connection = bound_to_connection  # the lease ends with the owner's connection
        # at random over the queues that have work, not in their order
        self.random_queue = random_queue
        self.pop = pop  # finished with success when it is handed over
        self.ttr = ttr  # time limit of the fetching client; the job's may be shorter
        self.last = last  # the one at the end of the delivery order, not the first
        self.move_to = move_to  # not taken, but put into this queue
        self.front = front  # at its front
        self._waiter_bytes: i64 = 0  # not known yet

    def waiter_bytes(self) -> i64:
        """Bytes of memory that it takes to wait for it."""
        size = self._waiter_bytes
        if not size:
            size = _WAITER_BYTES
            for name in self.queues:
                size += _WAITER_QUEUE_BYTES + len(name)
            self._waiter_bytes = size
        return size


class Waiter:
    """A blocked fetch, which waits at each of its queues."""

    __slots__ = ("job_being_read", "number", "payload", "request", "timer", "waiting")

    def __init__(self, number: i64, request: FetchRequest) -> None:
        self.number = number
        self.request = request
        self.waiting = True
        self.job_being_read: Job | None = None  # that it will get once the payload has been read
        self.payload: bytes | None = None  # of the job that it got, if that was needed to get it
        self.timer = Timer(WAITER_TIMER, self)


class JobWatcher:
    """A client that waits for a job's end."""

    __slots__ = ("job_id", "number", "owner", "timer")

    def __init__(self, number: i64, owner: i64, job_id: i64) -> None:
        self.number = number
        self.owner = owner
        self.job_id = job_id
        self.timer = Timer(WATCHER_TIMER, self)


class Effect:
    __slots__ = ()


class JobAssigned(Effect):
    """A waiter has its job."""

    __slots__ = ("job", "waiter")

    def __init__(self, waiter: Waiter, job: Job) -> None:
        self.waiter = waiter
        self.job = job


class PayloadNeeded(Effect):
    """The next job is for this waiter, which would finish it: if its payload could not be read
    then, no client would have it. The broker reads the payload and calls `Engine.on_payload_read`,
    also if it cannot be read.
    """

    __slots__ = ("job", "queue", "waiter")

    def __init__(self, waiter: Waiter, queue: bytes, job: Job) -> None:
        self.waiter = waiter
        self.queue = queue
        self.job = job


class WaitTimedOut(Effect):
    """A waiter's time is over and there was nothing."""

    __slots__ = ("waiter",)

    def __init__(self, waiter: Waiter) -> None:
        self.waiter = waiter


class JobEvent(Effect):
    """Something happened to a watched job."""

    __slots__ = ("event", "job", "queue", "watcher")

    def __init__(
        self, watcher: JobWatcher, event: i64, job: Job | None, queue: Queue | None = None
    ) -> None:
        self.watcher = watcher
        self.event = event
        self.job = job
        self.queue = queue  # where that was; a job that fails may be in its dead queue by now


class LifecycleNotice(Effect):
    """A lifecycle notice for a session, not sent before `durable_position` is durable."""

    __slots__ = ("durable_position", "job_id", "label", "session", "stage")

    def __init__(
        self, session: i64, label: int, stage: i64, job_id: i64, durable_position: i64
    ) -> None:
        self.session = session
        self.label = label
        self.stage = stage
        self.job_id = job_id
        self.durable_position = durable_position
