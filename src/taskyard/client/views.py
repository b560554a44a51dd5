"""What a server tells about itself and what it has. Times are in UTC, durations in seconds.

A field that this client does not know is passed over, and one that an older server does not tell
has its default, so that client and server need not be of one version.
"""

from __future__ import annotations

import base64
from datetime import datetime
from typing import Any, Literal, TypedDict, TypeVar, overload

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

T = TypeVar("T")


class Pushed(Struct, frozen=True, gc=False):
    """What became of a push."""

    id: int
    uid: str  # empty if it is that of another job, which has the key, and not known
    new: bool = True
    """False: a job with this uid, or with this key in the queue, was there. Nothing was pushed,
    and the id is that job's."""


class Outcome(Struct, frozen=True):
    """How a job has ended."""

    id: int
    state: str
    success: bool
    result: bytes | None = None
    error: bytes | None = None

    def json(self) -> Any:
        """The result, which is JSON, as what it stands for; None if there is none."""
        return None if self.result is None else msgspec.json.decode(self.result)

    @overload
    def decode(self, into: type[T]) -> T: ...

    @overload
    def decode(self, into: Any) -> Any: ...

    def decode(self, into: Any) -> Any:
        """The same as an object of this type; msgspec.ValidationError if it does not fit."""
        return msgspec.json.decode(b"null" if self.result is None else self.result, type=into)

    @property
    def error_text(self) -> str:
        return (self.error or b"").decode(errors="replace")


class Content(Struct, frozen=True, rename={"raw": "json"}):
    """Bytes of a job."""

    size: int
    raw: Raw | UnsetType = UNSET
    text: str | UnsetType = UNSET
    base64: str | UnsetType = UNSET
    cut: bool = False  # this is only their beginning

    @property
    def data(self) -> bytes | None:
        """None if they are no longer on disk. JSON may be spaced in another way than it was."""
        if not isinstance(self.raw, UnsetType):
            return bytes(self.raw)
        if not isinstance(self.text, UnsetType):
            return self.text.encode()
        if not isinstance(self.base64, UnsetType):
            return base64.b64decode(self.base64)
        return None if self.size else b""

    def json(self) -> Any:
        """What they stand for, if they are JSON; None if they are not there."""
        data = self.data
        return None if data is None else msgspec.json.decode(data)

    def __str__(self) -> str:
        return (self.data or b"").decode(errors="replace")


class Progress(Struct, frozen=True):
    """How far a job has come, in the words of its worker."""

    fraction: float
    message: str = ""
    at: datetime | None = None


class LeaseInfo(Struct, frozen=True):
    holder: str
    attempt: int
    since: datetime
    age: float
    deadline: datetime | None = None
    bound: bool = False  # it ends with its holder's connection


class JobInfo(Struct, frozen=True, kw_only=True):
    """A job. Those of lists have no payload, result and error here."""

    id: int
    uid: str
    queue: str
    name: str
    state: str
    priority: int = 0
    dialect: str = ""
    payload_size: int = 0
    pushed_at: datetime | None = None
    run_at: datetime | None = None
    due_at: datetime | None = None
    finished_at: datetime | None = None
    expires_at: datetime | None = None
    attempts: int = 0
    fails: int = 0
    losses: int = 0
    max_attempts: int | None = None
    max_fails: int | None = None
    max_losses: int | None = None
    ttr: float | None = None
    ttl: float | None = None
    dead_queue: str | None = None
    key: Content | None = None
    limit_key: str | None = None
    blocked_by: list[int] = []
    dependents: int = 0
    lease: LeaseInfo | None = None
    progress: Progress | None = None
    reason: str | None = None
    payload: Content | None = None
    result: Content | None = None
    error: Content | None = None


class DeadLetter(JobInfo, frozen=True, kw_only=True):
    """A job that has failed for good; `reason` says why, `error` is the beginning of the last, and
    `error_line` what that says: of a Python traceback the line of its exception.
    """

    error_line: str | None = None


class DeadGroup(Struct, frozen=True):
    """Dead letters of one reason."""

    reason: str
    count: int
    last_at: datetime | None = None
    last_error: Content | None = None
    last_error_line: str | None = None
    sample: list[int] = []


class DeadGroups(Struct, frozen=True):
    queue: str
    total: int
    bytes: int
    complete: bool
    scanned: int
    groups: list[DeadGroup]


class Replayed(Struct, frozen=True):
    replayed: int
    skipped: list[int] = []


class PurgedDead(Struct, frozen=True):
    removed: int
    skipped: list[int] = []


class HeldJob(Struct, frozen=True, kw_only=True):
    """A lease, and the job that it is for."""

    id: int
    uid: str
    queue: str
    name: str
    priority: int
    attempts: int
    fails: int
    lease: LeaseInfo
    progress: Progress | None = None


class Rate(Struct, frozen=True):
    """At most `count` jobs in any `per` seconds."""

    count: int
    per: float = 1.0


class QueueSettings(Struct, frozen=True, kw_only=True):
    """None: the server's default."""

    retries: int | None = None
    result_retention: float | None = None
    dead_retention: float | None = None
    backoff: str | None = None
    backoff_base: float | None = None
    backoff_cap: float | None = None
    max_jobs: int | None = None
    max_bytes: int | None = None
    overflow: str | None = None
    ttr: float | None = None
    concurrency: int | None = None
    rate: Rate | None = None
    key_concurrency: int | None = None
    key_rate: Rate | None = None
    draining: bool = False
    idle_expiry: float | None = None


class SettingsOptions(TypedDict, total=False):
    """Settings of a queue that are to be changed; None stands for the server's default."""

    retries: int | None
    result_retention: float
    dead_retention: float | None
    backoff: Literal["none", "quartic", "exponential"] | None
    backoff_base: float
    backoff_cap: float
    max_jobs: int | None
    max_bytes: int | None
    overflow: Literal["refuse", "dead"]
    ttr: float | None
    concurrency: int | None
    rate: Rate | None
    key_concurrency: int | None
    key_rate: Rate | None
    draining: bool
    idle_expiry: float | None


class Counts(Struct, frozen=True):
    """Jobs by state."""

    blocked: int = 0
    delayed: int = 0
    ready: int = 0
    leased: int = 0
    succeeded: int = 0
    failed: int = 0
    limited: int = 0  # ready, but the limits of their keys hold them


class Counters(Struct, frozen=True):
    """Since the queue exists."""

    pushed: int = 0
    leases: int = 0
    finished: int = 0
    failed: int = 0
    retried: int = 0
    released: int = 0
    expired: int = 0
    removed: int = 0


class QueueInfo(Struct, frozen=True, kw_only=True):
    name: str
    paused: bool = False
    created: bool = False
    counts: Counts = Counts()
    waiting: int = 0  # fetches that wait for a job
    waiting_bytes: int = 0
    dead_bytes: int = 0
    settings: QueueSettings = QueueSettings()
    effective: QueueSettings = QueueSettings()  # with those of the server's configuration
    opens_at: datetime | None = None  # when its rate lets the next job go
    counters: Counters = Counters()


class ScheduleInfo(Struct, frozen=True, kw_only=True):
    """A job that is pushed again and again. Those of lists have no payload here."""

    name: str
    queue: str
    job_name: str = ""
    priority: int = 0
    ttr: float | None = None
    ttl: float | None = None
    max_attempts: int | None = None
    max_fails: int | None = None
    backoff: str | None = None
    backoff_base: float = 0.0
    backoff_cap: float = 0.0
    dead_queue: str | None = None
    key: str | None = None
    limit_key: str | None = None
    payload_size: int = 0
    cron: str | None = None
    every: float | None = None
    timezone: str = "UTC"
    missed: str = "once"
    overlap: str = "allow"
    paused: bool = False
    set_by: str | None = None
    next_at: datetime | None = None
    last_at: datetime | None = None
    last_job: int | None = None
    runs: int = 0
    skipped: int = 0
    missed_ticks: int = 0
    refused: str | None = None
    payload: Content | None = None


class ConsumerInfo(Struct, frozen=True, kw_only=True):
    """One who takes jobs in numbered batches."""

    name: str
    batch: int
    """The number of the last one."""
    open: bool = False
    """Whether it is out."""
    jobs: int = 0
    """How many were leased with it, while it is out."""
    queues: list[str] = []
    deadline: datetime | None = None
    expired: bool = False
    """It was out for too long: nothing is leased to the consumer until it is dropped."""
    user: str | None = None
    """Whose it is, on a server with users; nobody else may use it."""


class ReaderInfo(Struct, frozen=True, kw_only=True):
    """One who reads the journal, and for whom it is kept."""

    name: str
    next_seq: int
    lease_until: datetime | None = None
    behind: int = 0
    """Durable records that it has not committed."""
    missed: int = 0
    """Records that it wanted and that are gone."""


class JournalInfo(Struct, frozen=True):
    timeline: str
    bytes: int
    live_bytes: int
    segments: int
    records: int
    commits: int


class ServerInfo(Struct, frozen=True, kw_only=True):
    version: str
    form: str = ""
    started_at: datetime | None = None
    uptime: float = 0.0
    durability: str = ""
    accepting: bool = True
    refusing: str | None = None
    draining: bool = False
    unfinished: int | None = None  # jobs, while it drains
    leased: int = 0
    jobs: int = 0
    queues: int = 0
    recently_finished: int = 0
    epoch: int = 0
    connections: dict[str, int] = {}
    users: int = 0
    journal: JournalInfo | None = None
    memory: dict[str, int] = {}
    listeners: Any = None
