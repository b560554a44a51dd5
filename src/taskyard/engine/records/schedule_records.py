"""Records of schedules. Layout and version rules are those of records.py.

The payload stands among the fields, not as a blob: the engine keeps it, since it has to push it
again at each tick.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64, mypyc_attr

from taskyard.engine.model.job import Origin
from taskyard.engine.records.job_lifecycle import (
    SCHEDULE,
    SCHEDULE_GONE,
    SCHEDULE_TICK,
    SNAPSHOT_SCHEDULE,
    Record,
    encode_policy,
)
from taskyard.engine.records.wire import (
    put_i64,
    put_short_bytes,
    put_text,
    put_u8,
    put_u32,
    put_u64,
)
from taskyard.engine.schedules.schedule import Schedule

# Which optional fields the job of a schedule has, and a setting that takes one bit.
HAS_KEY: Final = 1
IS_PAUSED: Final = 2
HAS_LIMIT_KEY: Final = 4


def _put_schedule(out: BytesWriter, schedule: Schedule) -> None:
    job = schedule.job
    key = job.key
    limit_key = job.limit_key
    put_short_bytes(out, encode_policy(job.policy))
    put_text(out, schedule.name)
    put_u8(out, _flags(schedule))
    put_text(out, schedule.cron)
    put_i64(out, schedule.every)
    put_text(out, schedule.zone)
    put_u8(out, schedule.missed_rule)
    put_u8(out, schedule.overlap)
    put_text(out, schedule.user)
    put_i64(out, schedule.since)
    put_i64(out, schedule.next_at)
    put_i64(out, schedule.last_at)
    put_i64(out, schedule.last_job)
    put_i64(out, schedule.runs)
    put_i64(out, schedule.skipped)
    put_i64(out, schedule.missed)
    put_text(out, job.queue)
    put_text(out, job.name)
    put_u8(out, job.content)
    put_i64(out, job.priority)
    put_u64(out, job.ttl_ms)
    if key is not None:
        put_short_bytes(out, key)
    if limit_key is not None:
        put_short_bytes(out, limit_key)
    put_u32(out, len(job.payload))
    out.write(job.payload)


def _flags(schedule: Schedule) -> i64:
    flags: i64 = IS_PAUSED if schedule.paused else 0
    if schedule.job.key is not None:
        flags |= HAS_KEY
    if schedule.job.limit_key is not None:
        flags |= HAS_LIMIT_KEY
    return flags


class ScheduleSet(Record):
    """A schedule was created or changed. It has everything about it."""

    __slots__ = ("queue", "schedule")

    def __init__(self, time: i64, origin: Origin, schedule: Schedule) -> None:
        super().__init__(time, origin)
        self.schedule = schedule
        self.queue = schedule.job.queue.encode()

    def kind(self) -> i64:
        return SCHEDULE

    def encode(self, out: BytesWriter) -> None:
        _put_schedule(out, self.schedule)


@mypyc_attr(acyclic=True)
class ScheduleGone(Record):
    """A schedule was deleted."""

    __slots__ = ("name", "queue")

    def __init__(self, time: i64, origin: Origin, name: str, queue: bytes) -> None:
        super().__init__(time, origin)
        self.name = name
        self.queue = queue

    def kind(self) -> i64:
        return SCHEDULE_GONE

    def encode(self, out: BytesWriter) -> None:
        put_text(out, self.name)
        put_short_bytes(out, self.queue)


@mypyc_attr(acyclic=True)
class ScheduleTick(Record):
    """A tick was due, and its result. If it ran, the push of its job is in the same frame."""

    __slots__ = ("due", "job", "missed", "name", "next_at", "outcome", "queue")

    def __init__(
        self,
        time: i64,
        origin: Origin,
        name: str,
        queue: bytes,
        due: i64,
        outcome: i64,
        job: i64,
        missed: i64,
        next_at: i64,
    ) -> None:
        super().__init__(time, origin)
        self.name = name
        self.queue = queue
        self.due = due  # the tick that it is about
        self.outcome = outcome
        self.job = job  # the one that was pushed; 0: none was
        self.missed = missed  # ticks up to this one that no run was for
        self.next_at = next_at

    def kind(self) -> i64:
        return SCHEDULE_TICK

    def encode(self, out: BytesWriter) -> None:
        put_text(out, self.name)
        put_short_bytes(out, self.queue)
        put_i64(out, self.due)
        put_u8(out, self.outcome)
        put_i64(out, self.job)
        put_i64(out, self.missed)
        put_i64(out, self.next_at)


class ScheduleSnapshot(Record):
    """A schedule as it is now."""

    __slots__ = ("schedule",)

    def __init__(self, time: i64, origin: Origin, schedule: Schedule) -> None:
        super().__init__(time, origin)
        self.schedule = schedule

    def kind(self) -> i64:
        return SNAPSHOT_SCHEDULE

    def encode(self, out: BytesWriter) -> None:
        _put_schedule(out, self.schedule)
