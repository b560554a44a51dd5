"""Records of schedules back from bytes; the counterpart of each one's `encode`."""

from __future__ import annotations

from mypy_extensions import i64

from taskyard.engine.model.job import NewJob, Origin, Policy
from taskyard.engine.records.job_lifecycle import SCHEDULE_GONE, Record
from taskyard.engine.records.schedule_records import (
    HAS_KEY,
    HAS_LIMIT_KEY,
    IS_PAUSED,
    ScheduleGone,
    ScheduleTick,
)
from taskyard.engine.records.wire import FieldReader
from taskyard.engine.schedules.schedule import Schedule


def read_schedule(fields: FieldReader, policy: Policy) -> Schedule:
    """The fields of a schedule after the policy of its job."""
    name = fields.text()
    flags = fields.u8()
    cron = fields.text()
    every = fields.s64()
    zone = fields.text()
    missed_rule = fields.u8()
    overlap = fields.u8()
    user = fields.text()
    times = [fields.s64() for _ in range(4)]
    counts = [fields.s64() for _ in range(3)]
    schedule = Schedule(
        name,
        _job(fields, policy, flags),
        cron,
        every,
        zone,
        missed_rule,
        overlap,
        flags & IS_PAUSED != 0,
    )
    schedule.user = user
    schedule.since = times[0]
    schedule.next_at = times[1]
    schedule.last_at = times[2]
    schedule.last_job = times[3]
    schedule.runs = counts[0]
    schedule.skipped = counts[1]
    schedule.missed = counts[2]
    return schedule


def _job(fields: FieldReader, policy: Policy, flags: i64) -> NewJob:
    queue = fields.text()
    name = fields.text()
    content = fields.u8()
    priority = fields.s64()
    ttl_ms = fields.u64()
    key = fields.short_bytes() if flags & HAS_KEY else None
    limit_key = fields.short_bytes() if flags & HAS_LIMIT_KEY else None
    payload = fields.raw_bytes(fields.u32())
    job = NewJob(queue, name, payload, policy, priority, 0, content, False, ttl_ms, None, key)
    job.limit_key = limit_key
    return job


def read_schedule_event(kind: i64, fields: FieldReader, time: i64, origin: Origin) -> Record:
    """A tick, or the end of a schedule."""
    name = fields.text()
    queue = fields.short_bytes()
    if kind == SCHEDULE_GONE:
        return ScheduleGone(time, origin, name, queue)
    due = fields.s64()
    outcome = fields.u8()
    job = fields.s64()
    missed = fields.s64()
    return ScheduleTick(time, origin, name, queue, due, outcome, job, missed, fields.s64())
