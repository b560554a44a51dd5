"""The JSON of live figures and of plots."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from taskyard.shared.api_types import (
    Bytes,
    Count,
    Counters,
    Elapsed,
    LakeView,
    Message,
    Name,
    StateCounts,
    Time,
)

Rate = Annotated[float, Meta(ge=0, description="A second.")]


class Spread(Message):
    """Half, 95 and 99 of a hundred took no longer than this, in seconds."""

    p50: Elapsed
    p95: Elapsed
    p99: Elapsed


class LiveServer(Message):
    version: str
    form: Literal["compiled", "interpreted"]
    started_at: Time
    uptime: Elapsed
    durability: Literal["sync", "write", "memory"]
    accepting: bool
    refusing: str | None
    draining: bool
    epoch: Count
    timeline: str


class LiveTotals(Message):
    """Jobs by state, and counters since the queues exist."""

    ready: Count
    delayed: Count
    leased: Count
    blocked: Count
    succeeded: Count
    dead: Count
    limited: Count
    jobs: Count
    queues: Count
    pushed: Count
    leased_total: Count
    finished: Count
    failed: Count
    retried: Count
    released: Count
    expired: Count
    removed: Count


class LiveRates(Message):
    pushed: Rate
    started: Rate
    finished: Rate
    failed: Annotated[Rate, Meta(description="Attempts, also those that are tried again.")]


class LiveProtocol(Message):
    dialect: str
    clients: Count
    requests_rate: Rate | None


class LiveJournal(Message):
    bytes: Bytes
    live_bytes: Bytes
    used_bytes: Bytes
    segments: Count
    durable_seq: Count
    commits_rate: Rate | None
    bytes_rate: Rate | None
    flush: Spread | None
    readers: Count


class LiveDisk(Message):
    free: Bytes
    total: Bytes


class LiveHead(Message):
    """Figures of the whole server; null for clients that may not see them, and where unknown."""

    at: Time
    server: LiveServer | None
    totals: LiveTotals | None
    rates: LiveRates | None
    wait: Annotated[Spread, Meta(description="From ready to leased.")] | None
    run: Annotated[Spread, Meta(description="From leased to finished.")] | None
    dialects: list[LiveProtocol] | None
    journal: LiveJournal | None
    disk: LiveDisk | None
    loop_lag_p99: Elapsed | None
    memory: Bytes | None
    lake: LakeView | None


class LiveRow(Message):
    name: Name
    paused: bool
    draining: bool
    ready: Count
    delayed: Count
    leased: Count
    blocked: Count
    dead: Count
    limited: Count
    waiting: Annotated[Count, Meta(description="Fetches that wait for a job.")]
    pushed_rate: Rate | None
    done_rate: Rate | None
    failed_rate: Rate | None
    wait_p95: Elapsed | None
    run_p95: Elapsed | None
    oldest_age: (
        Annotated[Elapsed, Meta(description="How long the next job is ready by now.")] | None
    )


class LiveQueue(LiveRow):
    """The one queue that was requested."""

    counts: StateCounts
    counters: Counters
    waiting_bytes: Bytes
    dead_bytes: Bytes
    opens_at: Time | None
    wait: Spread | None
    run: Spread | None


class LiveQueues(Message):
    total: Annotated[Count, Meta(description="Those that fit, as far as the caller may see.")]
    shown: list[LiveRow]
    gone: Annotated[list[Name], Meta(description="Shown the last time, and not there any more.")]


class LiveSample(LiveHead):
    """All of it, as it is sent."""

    queues: LiveQueues
    queue: LiveQueue | None


Values = list[float | None]


class HistoryView(Message):
    """Figures by time; null where nothing is known."""

    step: Annotated[int, Meta(ge=1, description="Seconds between two of them.")]
    times: Annotated[list[int], Meta(description="Seconds since 1970: each ends a step.")]
    series: Annotated[
        dict[str, Values],
        Meta(description="Jobs by state, rates a second, and times in seconds, by name."),
    ]
    requests: Annotated[
        dict[str, Values],
        Meta(description="Requests a second by dialect, of the server as a whole."),
    ]
