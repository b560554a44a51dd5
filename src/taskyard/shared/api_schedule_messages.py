"""The JSON of the API's schedules; the rest of it is in api_messages.py."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import UNSET, Meta, Raw, UnsetType

from taskyard.shared.api_messages import (
    BASE64,
    MOST_SECONDS,
    Backoff,
    BackoffBase,
    BackoffCap,
    Bytes,
    Content,
    Count,
    Cursor,
    Elapsed,
    FinalFail,
    Id,
    LimitKey,
    Message,
    Name,
    OwnBackoff,
    Priority,
    Time,
    Tries,
)

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
