"""The JSON of the API: every body that is read and every answer that is written.

The OpenAPI document takes its schemas from these classes. Not compiled: see msgspec. Durations
are in seconds, times in RFC 3339.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

MOST_SECONDS: Final = 1_000_000_000
MOST_IDS: Final = 10_000
_NAME: Final = r"^[^\s\u0000-\u001f\u007f-\u009f]+$"
BASE64: Final = {
    "contentEncoding": "base64",
    "pattern": "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$",
}

Id = Annotated[int, Meta(ge=1, le=2**63 - 2)]
Count = Annotated[int, Meta(ge=0)]
Bytes = Annotated[int, Meta(ge=0)]
Name = Annotated[str, Meta(min_length=1, max_length=255, pattern=_NAME)]
Uid = Annotated[
    str,
    Meta(
        pattern=r"^[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$",
        extra_json_schema={"format": "uuid"},
    ),
]
Time = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
Seconds = Annotated[float, Meta(ge=0, le=MOST_SECONDS)]
Elapsed = Annotated[float, Meta(ge=0)]
Priority = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Tries = Annotated[int, Meta(ge=1, le=2**32 - 1)]
Retries = Annotated[int, Meta(ge=0, le=2**32 - 1)]
Backoff = Literal["none", "quartic", "exponential"]
FinalFail = Annotated[
    Tries, Meta(description="Which failure is final. Default: by the queue's retries, else 4.")
]
OwnBackoff = Annotated[
    Backoff,
    Meta(description="How long it waits then. Default: the queue's, else exponential."),
]
BackoffBase = Annotated[
    Seconds, Meta(description="Of exponential: the first pause, which doubles. Default: 1.")
]
BackoffCap = Annotated[Seconds, Meta(description="And the longest one; 0: no bound. Default: 300.")]
Bound = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Overflow = Literal["refuse", "dead"]
OVERFLOWS: Final[tuple[Overflow, ...]] = ("refuse", "dead")  # by their numbers in the engine
StateName = Literal["blocked", "delayed", "ready", "leased", "succeeded", "failed", "limited"]
AnyState = Literal[
    "blocked", "delayed", "ready", "leased", "succeeded", "failed", "limited", "gone"
]
IdleExpiry = Annotated[
    float,
    Meta(
        ge=0,
        le=MOST_SECONDS,
        description="0: never.",
        extra_json_schema={"anyOf": [{"const": 0}, {"minimum": 1}]},
    ),
]
Slots = Annotated[int, Meta(ge=0, le=1_000_000_000)]
LimitKey = Annotated[str, Meta(min_length=1, max_length=255)]
Dialect = Literal["system", "masenko", "workq", "glovebox", "pqueue", "redis", "api", "client"]
Cursor = Annotated[
    str, Meta(description="Give this as `cursor` to get what follows; null: that was all.")
]


class Message(Struct, kw_only=True, forbid_unknown_fields=True):
    """Base of all: unknown fields are refused, and the schema says so."""


# Bodies


class Rate(Message):
    """So many jobs may be started in so many seconds; a count of 0 is no limit."""

    count: Slots
    per: Annotated[float, Meta(ge=0.001, le=366 * 86_400)] = 1.0


class Settings(Message):
    """Settings of a queue; null stands for what the server does by default."""

    retries: Retries | UnsetType | None = UNSET
    result_retention: Seconds | UnsetType = UNSET
    dead_retention: Seconds | UnsetType | None = UNSET
    backoff: Backoff | UnsetType | None = UNSET
    backoff_base: Seconds | UnsetType = UNSET
    backoff_cap: Seconds | UnsetType = UNSET
    max_jobs: Bound | UnsetType | None = UNSET
    max_bytes: Bound | UnsetType | None = UNSET
    overflow: Overflow | UnsetType = UNSET
    ttr: Annotated[float, Meta(ge=0, le=86_400)] | UnsetType | None = UNSET
    concurrency: Slots | UnsetType | None = UNSET
    rate: Rate | UnsetType | None = UNSET
    key_concurrency: Slots | UnsetType | None = UNSET
    key_rate: Rate | UnsetType | None = UNSET
    draining: bool | UnsetType = UNSET
    idle_expiry: IdleExpiry | UnsetType | None = UNSET


class Push(Message):
    """A job to be pushed. Its payload is one of `payload`, `text` and `base64`, or empty."""

    payload: Annotated[Raw, Meta(description="Any JSON value.")] | UnsetType = UNSET
    text: str | UnsetType = UNSET
    base64: Annotated[str, Meta(extra_json_schema=BASE64)] | UnsetType = UNSET
    name: Annotated[Name, Meta(description="Default: the queue's.")] | UnsetType = UNSET
    priority: Priority = 0
    run_at: Annotated[Time, Meta(description="Not before this time.")] | UnsetType = UNSET
    delay: Annotated[Seconds, Meta(description="Not before so many seconds.")] | UnsetType = UNSET
    ttr: Annotated[float, Meta(ge=0.001, le=86_400)] | UnsetType = UNSET
    ttl: Annotated[float, Meta(ge=0.001, le=MOST_SECONDS)] | UnsetType = UNSET
    max_attempts: Tries | UnsetType = UNSET
    max_fails: FinalFail | UnsetType = UNSET
    backoff: OwnBackoff | UnsetType = UNSET
    backoff_base: BackoffBase | UnsetType = UNSET
    backoff_cap: BackoffCap | UnsetType = UNSET
    dead_queue: Name | UnsetType = UNSET
    blocked_by: Annotated[list[Id], Meta(max_length=255)] = []
    uid: Uid | UnsetType = UNSET
    limit_key: (
        Annotated[LimitKey, Meta(description="What the queue's limits for each key go by.")]
        | UnsetType
    ) = UNSET


class BatchPush(Push):
    """A line of a batch; in `blocked_by` -k stands for the job k lines before."""

    blocked_by: Annotated[
        list[Annotated[int, Meta(ge=-MOST_IDS, le=2**63 - 2)]], Meta(max_length=255)
    ] = []


class Purge(Message):
    states: Annotated[
        list[StateName], Meta(min_length=1, max_length=7, extra_json_schema={"uniqueItems": True})
    ]


class Change(Message):
    priority: Priority


class Move(Message):
    queue: Name
    front: bool = False


Ids = Annotated[list[Id], Meta(min_length=1, max_length=MOST_IDS)]


class Replay(Message):
    """Either the ids, or all dead letters of the queue, of one reason or of any."""

    ids: Ids | UnsetType = UNSET
    all: bool = False
    reason: str | UnsetType = UNSET


class PurgeDead(Message):
    """The ids, or else all dead letters of the queue, of one reason or of any."""

    ids: Ids | UnsetType = UNSET
    reason: str | UnsetType = UNSET


# Answers


class SettingsView(Message):
    retries: Retries | None
    result_retention: Elapsed
    dead_retention: Elapsed | None
    backoff: Backoff | None
    backoff_base: Elapsed
    backoff_cap: Elapsed
    max_jobs: Bound | None
    max_bytes: Bound | None
    overflow: Overflow
    ttr: Elapsed | None
    concurrency: Slots | None
    rate: Rate | None
    key_concurrency: Slots | None
    key_rate: Rate | None
    draining: bool
    idle_expiry: Elapsed | None


class StateCounts(Message):
    blocked: Count
    delayed: Count
    ready: Count
    leased: Count
    succeeded: Count
    failed: Count
    limited: Annotated[Count, Meta(description="Ready, but the limits of their keys hold them.")]


class Counters(Message):
    """Since the queue exists."""

    pushed: Count
    leases: Count
    finished: Count
    failed: Count
    retried: Count
    released: Count
    expired: Count
    removed: Count


class QueueView(Message):
    name: Name
    paused: bool
    created: Annotated[bool, Meta(description="Made by name, not by a first push.")]
    counts: StateCounts
    waiting: Annotated[Count, Meta(description="Fetches that wait for a job.")]
    waiting_bytes: Bytes
    dead_bytes: Bytes
    opens_at: (
        Annotated[Time, Meta(description="When its rate lets the next job go; null: now.")] | None
    )
    settings: Annotated[SettingsView, Meta(description="Its own; null: none.")]
    effective: Annotated[
        SettingsView,
        Meta(description="Its own and, where it has none, those of the server's configuration."),
    ]
    counters: Counters


class QueuePage(Message):
    queues: list[QueueView]
    next: Cursor | None


class Content(Message):
    """Bytes, in one of three forms; none of them if they are no longer on disk."""

    size: Bytes
    json: Annotated[Any, Meta(description="They are JSON.")] | UnsetType = UNSET
    text: Annotated[str, Meta(description="They are UTF-8.")] | UnsetType = UNSET
    base64: Annotated[str, Meta(description="They are neither.")] | UnsetType = UNSET
    cut: Annotated[bool, Meta(description="This is only their beginning.")] = False


class LeaseView(Message):
    holder: str
    attempt: Count
    since: Time
    age: Annotated[Elapsed, Meta(description="Seconds.")]
    deadline: Annotated[Time, Meta(description="null: no end by time.")] | None
    bound: Annotated[bool, Meta(description="It ends with its holder's connection.")]


class ProgressView(Message):
    fraction: Annotated[float, Meta(ge=0, le=1)]
    message: str
    at: Time


class JobSummary(Message):
    id: Id
    uid: Uid
    queue: Name
    name: Name
    state: AnyState
    priority: Priority
    dialect: Annotated[Dialect, Meta(description="By which it was pushed.")]
    payload_size: Bytes
    pushed_at: Time
    run_at: Annotated[Time, Meta(description="As its producer wanted it.")] | None
    due_at: Annotated[Time, Meta(description="When a delayed job becomes ready.")] | None
    finished_at: Time | None
    expires_at: Time | None
    attempts: Count
    fails: Count
    losses: Count
    max_attempts: Count | None
    max_fails: Count | None
    max_losses: Count | None
    ttr: Elapsed | None
    ttl: Elapsed | None
    dead_queue: Name | None
    key: Content | None
    limit_key: str | None
    blocked_by: list[Id]
    dependents: Count
    lease: LeaseView | None
    progress: Annotated[ProgressView, Meta(description="As its holder has told.")] | None
    reason: Annotated[str, Meta(description="Why it failed for good.")] | None


class JobView(JobSummary):
    payload: Content
    result: Content | None
    error: Annotated[Content, Meta(description="Of its last failure.")] | None


class JobPage(Message):
    jobs: list[JobSummary]
    next: Cursor | None


class Pushed(Message):
    id: Id
    uid: Uid
    state: AnyState
    duplicate: Annotated[
        bool, Meta(description="The uid was there already, and nothing was pushed.")
    ]


class PushedBatch(Message):
    pushed: Count
    duplicates: Count
    jobs: Annotated[list[Pushed], Meta(description="In the order of the lines.")]


class Removed(Message):
    removed: Count


Skipped = Annotated[
    list[Id], Meta(description="Ids that are not among the dead letters of this queue.")
]


class Replayed(Message):
    replayed: Count
    skipped: Skipped


class PurgedDead(Message):
    removed: Count
    skipped: Skipped


ErrorLine = (
    Annotated[
        str,
        Meta(
            description="What the error says: of a Python traceback the line of its exception, "
            "else the first line. null: it is no text."
        ),
    ]
    | None
)


class DeadLetter(JobSummary):
    error: Content | None
    error_line: ErrorLine


class DeadPage(Message):
    jobs: list[DeadLetter]
    next: Cursor | None


class DeadGroup(Message):
    reason: str
    count: Count
    last_at: Time | None
    last_error: Content | None
    last_error_line: ErrorLine
    sample: Annotated[list[Id], Meta(max_length=10, description="The newest ones.")]


class DeadGroups(Message):
    queue: Name
    total: Count
    bytes: Bytes
    complete: Annotated[
        bool, Meta(description="false: only the newest were looked at for the groups.")
    ]
    scanned: Count
    groups: list[DeadGroup]


class Held(Message):
    """One lease, and the job it is for."""

    id: Id
    uid: Uid
    queue: Name
    name: Name
    priority: Priority
    attempts: Count
    fails: Count
    lease: LeaseView
    progress: Annotated[ProgressView, Meta(description="As its holder has told.")] | None


class LeasePage(Message):
    leases: list[Held]
    next: Cursor | None


class JournalView(Message):
    timeline: str
    bytes: Bytes
    live_bytes: Annotated[Bytes, Meta(description="About what it would take written anew.")]
    segments: Count
    records: Annotated[Count, Meta(description="The number of the last durable record.")]
    commits: Count


class MemoryView(Message):
    resident: Annotated[Bytes, Meta(description="Of the whole process; 0: not known.")]


class ListenerView(Message):
    host: Annotated[str, Meta(description="The address it is bound to.")]
    port: Annotated[int, Meta(ge=1, le=65535)]
    tls: bool


class ListenersView(Message):
    listeners: Annotated[dict[str, ListenerView], Meta(description="By dialect.")]


class LakeReportView(Message):
    made_at: Time
    bytes: Bytes


class LakeView(Message):
    """The process that fills the lake, and its progress."""

    running: bool
    pid: Annotated[int, Meta(ge=1)] | None
    restarts: Annotated[Count, Meta(description="How often it had died.")]
    state: Annotated[
        str,
        Meta(description="`starting`, `waiting` to be started again, `stopped`, or as it says."),
    ]
    next_seq: Annotated[int, Meta(ge=1, description="The first record it does not have yet.")]
    lag_records: Annotated[Count, Meta(description="Durable records it does not have yet.")]
    lag_seconds: Annotated[Elapsed, Meta(description="For how long the first of them is there.")]
    last_time: Annotated[Time, Meta(description="Of the last record it has.")] | None
    events_per_second: Elapsed | None
    error: Annotated[str, Meta(description="Why it does not run, or not get on.")] | None
    ui: Annotated[str, Meta(description="The address of Spark's own pages.")] | None
    report: (
        Annotated[LakeReportView, Meta(description="The last one: GET /lake/report.")] | None
    ) = None
    making: Annotated[bool, Meta(description="Another one is being written.")] = False
    report_error: Annotated[str, Meta(description="Why the last try came to nothing.")] | None = (
        None
    )


class ServerView(Message):
    version: str
    form: Literal["compiled", "interpreted"]
    started_at: Time
    uptime: Elapsed
    durability: Literal["sync", "write", "memory"]
    accepting: Annotated[bool, Meta(description="Pushes are taken.")]
    refusing: Annotated[str, Meta(description="Why they are not.")] | None
    draining: Annotated[bool, Meta(description="Pushes are refused so that it becomes empty.")]
    unfinished: (
        Annotated[Count, Meta(description="While it drains: jobs that have not ended.")] | None
    )
    leased: Annotated[Count, Meta(description="Jobs that are with workers.")]
    jobs: Count
    queues: Count
    recently_finished: Count
    epoch: Annotated[Count, Meta(description="Starts on this data directory.")]
    connections: Annotated[dict[str, int], Meta(description="By dialect.")]
    listeners: Annotated[dict[str, ListenerView], Meta(description="By dialect.")]
    users: Annotated[Count, Meta(description="Those who can log in.")]
    journal: JournalView
    memory: MemoryView
    lake: LakeView | None
