"""Errors of the engine, in the engine's own words.

Each protocol maps these to its texts in one table; there are no protocol words in here.
"""


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
