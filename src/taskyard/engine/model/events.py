"""What operations return beside records: effects, and errors.

Effects say what the broker has to send to which connection. Waiters and watchers are not
persistent; they belong to open connections.
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

# Requests that wait


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


# Effects


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


# Errors: in the engine's own words. Each protocol maps them to its texts in one table.


class TaskyardError(Exception):
    """Base of everything the engine refuses."""


class JobNotFound(TaskyardError):
    """No live job has that id."""


class DuplicateJob(TaskyardError):
    """A job with that uid is there, or was until a short while ago."""

    def __init__(self, job_id: int) -> None:
        super().__init__(f"a job with this uid already exists (id {job_id})")
        self.job_id = job_id


class UidTaken(TaskyardError):
    """Another push has that uid: to another queue, by another user, or it was derived.

    It says nothing about the job, which may be none of the producer's business.
    """

    def __init__(self) -> None:
        super().__init__("another push has this uid, and this one does not repeat it")


class DuplicateKey(DuplicateJob):
    """A job of the queue that waits has that key."""


class DuplicateResult(TaskyardError):
    """The job already has its result; the first one wins."""


class NotLeaseholder(TaskyardError):
    """The job is not leased by the owner that wants to finish it."""

    def __init__(self, job_id: int) -> None:
        super().__init__(f"job {job_id} is not leased by this holder")
        self.job_id = job_id


class InvalidOption(TaskyardError):
    """An option is out of its range. Options are refused, never clamped."""

    def __init__(self, option: str, reason: str) -> None:
        super().__init__(f"{option}: {reason}")
        self.option = option
        self.reason = reason


class TransactionStepRefused(TaskyardError):
    """A step of a transaction was refused, so none of it was done."""

    def __init__(self, index: int, cause: TaskyardError) -> None:
        super().__init__(f"step {index}: {cause}")
        self.index = index
        self.cause = cause


class QueueNotFound(TaskyardError):
    """No queue has that name."""


class QueueExists(TaskyardError):
    """A queue with that name is already there."""


class WrongState(TaskyardError):
    """The job is not in a state in which this can be done to it."""


class StaleBatch(TaskyardError):
    """A consumer requested a batch that is neither its current one nor the next."""


class SessionNotFound(TaskyardError):
    """No durable session has that id."""


class ReaderNotFound(TaskyardError):
    """No reader of the journal has that name."""


class ScheduleNotFound(TaskyardError):
    """No schedule has that name."""


class SchedulesFull(TaskyardError):
    """The limit of the number of schedules, or of their bytes, is reached."""


class ReadOnly(TaskyardError):
    """The journal cannot take records any more; the reason is in the text."""


class QueueFull(TaskyardError):
    """The queue has as many jobs, or as many bytes of them, as it may have."""


class Draining(TaskyardError):
    """The queue, or the whole server, takes no pushes so that it can become empty."""


class NoSpace(TaskyardError):
    """The journal has no space for it at the moment; the reason is in the text."""


class TooManyWaiting(TaskyardError):
    """There is no memory for another command that waits at many queues."""

    def __init__(self) -> None:
        super().__init__(
            "commands that wait take up the memory there is for them: name fewer queues, "
            "or try again later"
        )


class CorruptRecord(TaskyardError):
    """Bytes that should be a record are not one."""


class UnknownRecord(CorruptRecord):
    """A kind of record, or a version of it, that only a newer Taskyard can have written."""
