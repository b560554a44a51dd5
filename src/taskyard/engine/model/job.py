"""The job in memory: the one file to read first.

What is persistent about a job is in records (see records/job_lifecycle.py); this is what the engine
keeps of it while the job lives. Common attributes sit in `Job` itself, rare ones in `JobExtras`,
and those that many jobs share in `Policy`, so that a plain waiting job stays small.

Times are microseconds since the Unix epoch, durations microseconds. 0 means "none".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i32, i64, mypyc_attr

if TYPE_CHECKING:
    from taskyard.engine.model.queue import Queue
    from taskyard.engine.structures.timers import LeaseTimer, Timer


# States. A job is in exactly one list of its queue, the one of its state, except when GONE.
BLOCKED: Final = 0  # waits for other jobs to succeed
DELAYED: Final = 1  # waits for run_at
READY: Final = 2
LEASED: Final = 3
SUCCEEDED: Final = 4  # kept until its ttl, for its result
FAILED: Final = 5  # kept among the dead letters of its queue
GONE: Final = 6  # only in the ring of recently finished jobs
# Ready, but parked because the limits of its key let no client have it now. Never in a record: for
# the journal such a job is READY, and after a restart it is so until a fetch finds it.
LIMITED: Final = 7

STATE_NAMES: Final = (
    "blocked",
    "delayed",
    "ready",
    "leased",
    "succeeded",
    "failed",
    "gone",
    "limited",
)

# The protocols, as records name them.
SYSTEM: Final = 0
MASENKO: Final = 1
WORKQ: Final = 2
GLOVEBOX: Final = 3
PQUEUE: Final = 4
REDIS: Final = 5
API: Final = 6
CLIENT: Final = 7  # the words of our own that the RESP listener understands

DIALECT_NAMES: Final = (
    "system",
    "masenko",
    "workq",
    "glovebox",
    "pqueue",
    "redis",
    "api",
    "client",
)

# What the payload bytes are known to be.
OPAQUE: Final = 0
JSON: Final = 1

# Back-off after a failure.
BACKOFF_NONE: Final = 0
BACKOFF_QUARTIC: Final = 1  # failures^4 seconds, down to a whole second of the clock
BACKOFF_EXPONENTIAL: Final = 2  # base * 2^(failures - 1), at most cap, with jitter
BACKOFF_DEFAULT: Final = 3  # of a policy: as the queue says, else the default of finish.py

FAILS_DEFAULT: Final = -2  # likewise, for max_fails

SECOND: Final = 1_000_000
FOREVER: Final = 0x7FFF_FFFF_FFFF_FFFF  # a deadline that never comes

MAX_TTR: Final = 86_400 * SECOND
MAX_TTL_MS: Final = 0xFFFF_FFFF_FFFF_FFFF
MAX_PRIORITY: Final = 0x7FFF_FFFF_FFFF_FFFF
MIN_PRIORITY: Final = -0x8000_0000_0000_0000
MAX_BLOCKERS: Final = 255
MAX_PROGRESS_MESSAGE_BYTES: Final = 1024  # bytes of a holder's progress report
MAX_TRIES: Final = 0xFFFF_FFFF
MAX_LIMIT_KEY_BYTES: Final = 255

# The stages of a job's life that a client can be notified of, as bits.
STAGE_READY: Final = 1
STAGE_WRITE: Final = 2
STAGE_SYNC: Final = 4
STAGE_ASSIGN: Final = 8
STAGE_FINISH: Final = 16
STAGE_RETRY: Final = 32
STAGE_DROP: Final = 64
ALL_STAGES: Final = 127

# Beside them: the notified client waits for the job's end, and without it the job is not wanted.
SYNCHRONOUS_CALL: Final = 128


@mypyc_attr(acyclic=True)
class Job:
    """One job.

    `order_key` is its place among the jobs of its queue in the same state: see OrderedJobs. Of a
    job that is gone it is 1 if that was because it succeeded, and 0 if it was removed.
    """

    __slots__ = (
        "attempts",
        "content",
        "dialect",
        "extras",
        "fails",
        "finished_at",
        "id",
        "lease",
        "leases",
        "losses",
        "name",
        "order_key",
        "payload_at",
        "payload_size",
        "policy",
        "priority",
        "pushed_at",
        "queue",
        "ready_at",
        "record_bytes",
        "run_at",
        "state",
    )

    def __init__(
        self,
        id: i64,
        queue: Queue,
        name: str,
        policy: Policy,
        priority: i64,
        dialect: i64,
        content: i64,
        payload_at: i64,
        payload_size: i64,
        pushed_at: i64,
        run_at: i64,
    ) -> None:
        self.id = id
        self.queue = queue
        self.name = name
        self.policy = policy
        self.priority = priority
        self.order_key: i64 = 0
        self.dialect: i32 = i32(dialect)
        self.content: i32 = i32(content)
        self.state: i32 = READY
        self.attempts: i32 = 0
        self.fails: i32 = 0
        self.losses: i32 = 0
        self.leases: i32 = 0  # all it ever had: never set back, so that a number names one of them
        self.record_bytes: i32 = 0  # bytes of the record at payload_at, without result and error
        self.payload_at = payload_at  # where the journal keeps the payload
        self.payload_size = payload_size
        self.pushed_at = pushed_at
        self.run_at = run_at  # also after it woke
        self.finished_at: i64 = 0
        self.ready_at: i64 = (
            0  # since when it has been ready; 0: not known, see records/snapshots.py
        )
        self.lease: Lease | None = None
        self.extras: JobExtras | None = None

    def ensure_extras(self) -> JobExtras:
        """The job's Extra, made on first use."""
        extra = self.extras
        if extra is None:
            extra = JobExtras()
            self.extras = extra
        return extra


@mypyc_attr(acyclic=True)
class JobExtras:
    """The attributes most jobs do not have."""

    __slots__ = (
        "blockers",
        "error_at",
        "error_size",
        "expires_at",
        "has_result",
        "key",
        "limit_key",
        "notify",
        "producer",
        "reason",
        "result_at",
        "result_size",
        "timer",
        "ttl_ms",
        "uid",
    )

    def __init__(self) -> None:
        self.uid: bytes | None = None
        self.producer = b""  # the producer of that uid: see ProducerHashes
        self.key: bytes | None = None
        self.limit_key: bytes | None = None
        self.ttl_ms: int = 0  # as the client gave it, up to 2^64-1
        self.expires_at: i64 = 0
        self.blockers: set[int] | None = None
        self.notify: Notify | None = None
        self.has_result: bool = False
        self.result_at: i64 = 0
        self.result_size: i64 = 0
        self.error_at: i64 = 0
        self.error_size: i64 = 0
        self.reason: str = ""  # why it failed for good
        self.timer: Timer | None = None  # for expires_at


@mypyc_attr(acyclic=True)
class Lease:
    """One delivery. `epoch` and `attempt` make the fencing token together with the job's id."""

    __slots__ = (
        "attempt",
        "bound",
        "deadline",
        "epoch",
        "holder",
        "owner",
        "progress",
        "since",
        "timer",
    )

    def __init__(
        self,
        owner: i64,
        bound: bool,
        holder: str,
        epoch: i64,
        attempt: i64,
        since: i64,
        deadline: i64,
    ) -> None:
        self.owner = owner  # the connection, session or consumer that took it; unique over boots
        self.bound = bound  # ends with that owner's connection
        self.holder = holder
        self.epoch = epoch
        self.attempt = attempt
        self.since = since
        self.deadline = deadline  # 0: no end by time
        self.timer: LeaseTimer | None = None
        self.progress: JobProgress | None = None


@mypyc_attr(acyclic=True)
class JobProgress:
    """How far a job is, as its holder has reported. Compaction may forget it."""

    __slots__ = ("at", "message", "permille")

    def __init__(self, permille: i64, message: str, at: i64) -> None:
        self.permille = permille
        self.message = message
        self.at = at


@mypyc_attr(acyclic=True)
class Policy:
    """How often and how long a job may be tried, and where it goes after that.

    Immutable, because jobs of a queue share it.
    """

    __slots__ = (
        "backoff",
        "backoff_base",
        "backoff_cap",
        "dead_queue",
        "encoded",
        "lost_is_failed",
        "max_attempts",
        "max_fails",
        "max_losses",
        "ttr",
    )

    def __init__(
        self,
        ttr: i64 = 0,  # how long one lease lasts; 0: as the fetching client says
        max_attempts: i64 = 0,  # 0: no limit
        # n: the n-th fail is final; -1: no limit; 0: as the queue says, else the first is final
        max_fails: i64 = 0,
        max_losses: i64 = 0,  # leases lost (time over, holder died) until it is poison; 0: off
        backoff: i64 = BACKOFF_NONE,
        backoff_base: i64 = 0,
        backoff_cap: i64 = 0,
        dead_queue: str = "",  # "": the dead letters of its own queue
        lost_is_failed: bool = False,  # if its holder disconnects, the job has failed
    ) -> None:
        self.ttr = ttr
        self.max_attempts = max_attempts
        self.max_fails = max_fails
        self.max_losses = max_losses
        self.backoff = backoff
        self.backoff_base = backoff_base
        self.backoff_cap = backoff_cap
        self.dead_queue = dead_queue
        self.lost_is_failed = lost_is_failed
        self.encoded: bytes | None = None  # its form in records, once it was needed

    def same(self, other: Policy) -> bool:
        return self is other or (
            self.ttr == other.ttr
            and self.max_attempts == other.max_attempts
            and self.max_fails == other.max_fails
            and self.max_losses == other.max_losses
            and self.backoff == other.backoff
            and self.backoff_base == other.backoff_base
            and self.backoff_cap == other.backoff_cap
            and self.dead_queue == other.dead_queue
            and self.lost_is_failed == other.lost_is_failed
        )


def default_policy(max_losses: i64) -> Policy:
    """Of a push of our own that said nothing: its queue's settings count when it fails."""
    return Policy(max_fails=FAILS_DEFAULT, max_losses=max_losses, backoff=BACKOFF_DEFAULT)


@mypyc_attr(acyclic=True)
class Notify:
    """The session that is notified of a job's stages, its label, and a bit per stage."""

    __slots__ = ("label", "session", "stages")

    def __init__(self, session: i64, label: int, stages: i64) -> None:
        self.session = session
        self.label = label
        self.stages = stages


@mypyc_attr(acyclic=True, free_list_len=1)
class NewJob:
    """What a client requests when it pushes. Plain input; the engine checks it."""

    __slots__ = (
        "blocked_by",
        "content",
        "front",
        "key",
        "limit_key",
        "name",
        "notify",
        "payload",
        "policy",
        "priority",
        "queue",
        "run_at",
        "ttl_ms",
        "uid",
    )

    def __init__(
        self,
        queue: str,
        name: str,
        payload: bytes,
        policy: Policy,
        priority: i64 = 0,
        run_at: i64 = 0,
        content: i64 = OPAQUE,
        front: bool = False,
        ttl_ms: int = 0,
        uid: bytes | None = None,
        key: bytes | None = None,
        blocked_by: list[int] | None = None,
        notify: Notify | None = None,
        limit_key: bytes | None = None,
    ) -> None:
        self.queue = queue
        self.name = name
        self.payload = payload
        self.policy = policy
        self.priority = priority
        self.run_at = run_at
        self.content = content
        self.front = front
        self.ttl_ms = ttl_ms
        self.uid = uid
        self.key = key
        self.blocked_by = blocked_by
        self.notify = notify
        self.limit_key = limit_key  # what the limits of its queue for each key go by

    def with_payload(self, payload: bytes) -> NewJob:
        """The same with another payload, of a job that has none of what is for one alone."""
        return NewJob(
            self.queue,
            self.name,
            payload,
            self.policy,
            self.priority,
            self.run_at,
            self.content,
            self.front,
            self.ttl_ms,
            limit_key=self.limit_key,
        )


@mypyc_attr(acyclic=True)
class Origin:
    """The cause of a record: protocol, user, and the holder's name (connection or worker).

    One per connection; its encoded form is copied into each record as it is.
    """

    __slots__ = ("dialect", "encoded", "holder", "user")

    def __init__(self, dialect: i64, user: str, holder: str) -> None:
        name = _truncate_name(user)
        label = _truncate_name(holder)
        self.dialect = dialect
        self.user = name.decode()  # as it will be read back
        self.holder = label.decode()
        self.encoded = bytes([dialect, len(name)]) + name + bytes([len(label)]) + label


def _truncate_name(text: str) -> bytes:
    """At most 255 bytes of a name that is only there to be read by people."""
    return text.encode(errors="replace")[:255].decode(errors="ignore").encode()


SYSTEM_ORIGIN: Final = Origin(SYSTEM, "", "")
