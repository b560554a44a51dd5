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

Seq = Annotated[int, Meta(ge=1, le=2**63 - 2)]
Timeline = Annotated[str, Meta(pattern="^[0-9a-f]{32}$")]
Lease = Annotated[
    float, Meta(ge=1, le=366 * 86_400, description="Seconds that records are kept for the reader.")
]

Missed = Literal["once", "skip", "all"]
Overlap = Literal["allow", "skip"]
MISSED: Final[tuple[Missed, ...]] = ("once", "skip", "all")  # by their numbers in the engine
OVERLAPS: Final[tuple[Overlap, ...]] = ("allow", "skip")

Cron = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=255,
        description="Minute, hour, day of month, month and day of week; or @daily and the like.",
    ),
]
Every = Annotated[float, Meta(ge=1, le=366 * 86_400, description="Seconds between two ticks.")]
Zone = Annotated[
    str, Meta(min_length=1, max_length=255, description="Of the IANA database: Europe/Berlin.")
]
Key = Annotated[str, Meta(min_length=1, max_length=255)]


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


# The journal, its readers, and consumers


class EarlierTimelineView(Message):
    """A timeline that ended when the journal was repaired or restored."""

    timeline: Timeline
    last_seq: Count


class SegmentView(Message):
    base: Annotated[int, Meta(ge=0, description="Its name, and where it begins in the journal.")]
    first_seq: Seq
    last_seq: Annotated[Seq, Meta(description="The last record that is durable.")]
    bytes: Annotated[Bytes, Meta(description="Those that are durable, with the header.")]
    timeline: Timeline
    created_at: Time


class JournalPage(Message):
    timeline: Timeline
    earlier: list[EarlierTimelineView]
    first_seq: Annotated[Seq, Meta(description="The first record that there still is.")]
    durable_seq: Annotated[Count, Meta(description="The last one that is durable.")]
    segments: list[SegmentView]


class EndedTimeline(Message):
    timeline: Timeline
    end: Annotated[int, Meta(ge=0, description="The position where it ended.")]
    last_seq: Count
    ended: Annotated[int, Meta(ge=0, description="Microseconds since 1970.")]


class JournalReach(Message):
    """What the journal had come to at the last start."""

    end: Annotated[int, Meta(ge=0)]
    last_seq: Count
    epoch: Count
    next_id: Count


class JournalIdentity(Message):
    """identity.json of the data directory, for a backup."""

    format: Annotated[int, Meta(ge=1)]
    timeline: Timeline
    salt: Annotated[str, Meta(description="What the uids of jobs pushed without one come from.")]
    created: Annotated[int, Meta(ge=0, description="Microseconds since 1970.")]
    earlier: list[EndedTimeline]
    reach: JournalReach


class Registration(Message):
    """Where a reader begins, and for how long records are kept for it."""

    next_seq: Annotated[
        Seq | None, Meta(description="The first record it wants; null: the first there is.")
    ] = None
    lease: Lease = 3600.0


class Commit(Message):
    """The reader has all records before `next_seq`; its lease begins anew."""

    next_seq: Seq
    lease: Lease = 3600.0


class ReaderView(Message):
    name: Name
    next_seq: Seq
    lease_until: Time
    behind: Annotated[Count, Meta(description="Durable records that it has not committed.")]
    missed: Annotated[Count, Meta(description="Records that it wanted and that are gone.")]


class ReaderPage(Message):
    readers: list[ReaderView]
    next: Cursor | None


class ConsumerView(Message):
    name: Name
    batch: Annotated[int, Meta(ge=1, description="The number of its last batch.")]
    open: Annotated[bool, Meta(description="Whether that is out.")]
    jobs: Annotated[Count, Meta(description="How many jobs were leased with it, while it is out.")]
    queues: Annotated[list[Name], Meta(description="That those were taken from.")]
    deadline: Time | None
    expired: Annotated[bool, Meta(description="It was out for too long: drop the consumer.")]
    user: Annotated[str, Meta(description="Whose it is: nobody else may use it.")] | None


class ConsumerPage(Message):
    consumers: list[ConsumerView]
    next: Cursor | None


# Schedules


class Schedule(Message):
    """What is pushed, and when: `cron` or `every`. The payload is given as in a push."""

    queue: Name
    cron: Cron | UnsetType = UNSET
    every: Every | UnsetType = UNSET
    timezone: Zone = "UTC"
    missed: Annotated[Missed, Meta(description="The rule for ticks that come late.")] = "once"
    overlap: Annotated[
        Overlap, Meta(description="Whether a tick pushes while the last job has not ended.")
    ] = "allow"
    paused: Annotated[bool, Meta(description="Default: as it was.")] | UnsetType = UNSET
    payload: Annotated[Raw, Meta(description="Any JSON value.")] | UnsetType = UNSET
    text: str | UnsetType = UNSET
    base64: Annotated[str, Meta(extra_json_schema=BASE64)] | UnsetType = UNSET
    name: Annotated[Name, Meta(description="Of the job. Default: the queue's.")] | UnsetType = UNSET
    priority: Priority = 0
    ttr: Annotated[float, Meta(ge=0.001, le=86_400)] | UnsetType = UNSET
    ttl: Annotated[float, Meta(ge=0.001, le=MOST_SECONDS)] | UnsetType = UNSET
    max_attempts: Tries | UnsetType = UNSET
    max_fails: FinalFail | UnsetType = UNSET
    backoff: OwnBackoff | UnsetType = UNSET
    backoff_base: BackoffBase | UnsetType = UNSET
    backoff_cap: BackoffCap | UnsetType = UNSET
    dead_queue: Name | UnsetType = UNSET
    key: (
        Annotated[Key, Meta(description="No tick pushes while a job of this key waits.")]
        | UnsetType
    ) = UNSET
    limit_key: (
        Annotated[LimitKey, Meta(description="What the queue's limits for each key go by.")]
        | UnsetType
    ) = UNSET


class ScheduleSummary(Message):
    name: Name
    cron: Cron | None
    every: Elapsed | None
    timezone: Zone
    missed: Missed
    overlap: Overlap
    paused: bool
    set_by: (
        Annotated[str, Meta(description="The user who has set it; null: nobody by name.")] | None
    )
    queue: Name
    job_name: Annotated[Name, Meta(description="What `name` is in the body.")]
    priority: Priority
    ttr: Elapsed | None
    ttl: Elapsed | None
    max_attempts: Count | None
    max_fails: Annotated[Count, Meta(description="null: as its queue says.")] | None
    backoff: Annotated[Backoff, Meta(description="null: as its queue says.")] | None
    backoff_base: Elapsed
    backoff_cap: Elapsed
    dead_queue: Name | None
    key: Key | None
    limit_key: LimitKey | None
    payload_size: Bytes
    next_at: Annotated[Time, Meta(description="null: paused, or it never comes again.")] | None
    last_at: Annotated[Time, Meta(description="When it pushed last.")] | None
    last_job: Annotated[Id, Meta(description="And which job.")] | None
    runs: Annotated[Count, Meta(description="Jobs that it has pushed.")]
    skipped: Annotated[Count, Meta(description="Ticks while the last job had not ended.")]
    missed_ticks: Annotated[Count, Meta(description="Ticks that no run was for.")]
    refused: Annotated[str, Meta(description="Why the tick that is due cannot push.")] | None


class ScheduleView(ScheduleSummary):
    payload: Content


class SchedulePage(Message):
    schedules: list[ScheduleSummary]
    next: Cursor | None


# What is found: jobs, what happened to one, and how jobs hang together


class FoundJobs(Message):
    jobs: list[JobSummary]
    looked_at: Annotated[Count, Meta(description="Jobs that were compared for this page.")]
    next: Cursor | None


class Found(Message):
    """What a text may stand for."""

    jobs: Annotated[list[JobSummary], Meta(description="The job whose id or uid it is.")]
    queues: Annotated[list[Name], Meta(description="Whose names have it in them.")]
    names: Annotated[list[Name], Meta(description="Of tasks that there have been in queues.")]
    schedules: list[Name]
    complete: Annotated[bool, Meta(description="false: there may be more than what is shown.")]


class JobEvents(Message):
    """Records of one job, the oldest first."""

    events: Annotated[
        list[dict[str, Any]],
        Meta(description="In the words of live events; a failed attempt with its error."),
    ]
    complete: Annotated[
        bool, Meta(description="The job's push is the first of all: none of them is gone.")
    ]
    from_seq: Annotated[Count, Meta(description="The first record that was looked at.")]
    next: Cursor | None


class GraphNode(Message):
    id: Id
    queue: Name
    name: Name
    state: AnyState
    level: Annotated[
        int, Meta(description="0: the job itself; -1: it waits for this one; 1: the other way.")
    ]


class JobGraph(Message):
    """The jobs that one waits for, and those that wait for it, on several levels."""

    nodes: list[GraphNode]
    edges: Annotated[
        list[Annotated[list[Id], Meta(min_length=2, max_length=2)]],
        Meta(description="The job that must succeed, and the one that waits."),
    ]
    cut: Annotated[bool, Meta(description="There are more than these.")]
