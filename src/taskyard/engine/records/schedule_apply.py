"""The apply half for schedules: as in apply.py, it does what the record says, no more."""

from __future__ import annotations

from mypy_extensions import i64

from taskyard.engine.model.state import State, schedule_record_bytes
from taskyard.engine.records.schedule_records import ScheduleGone, ScheduleSet, ScheduleTick
from taskyard.engine.schedules.schedule import BY_HAND, RAN, SKIPPED, Schedule


def apply_schedule(state: State, record: ScheduleSet) -> None:
    state.time = record.time
    old = state.schedules.get(record.schedule.name)
    if old is not None:
        _remove_schedule(state, old)
    place_schedule(state, record.schedule, record.seq)


def place_schedule(state: State, schedule: Schedule, seq: i64) -> None:
    """Record `seq` says all of this schedule, which is not there yet."""
    state.schedules[schedule.name] = schedule
    weight = schedule_record_bytes(schedule)
    state.live_bytes.unplaced += weight
    state.schedule_bytes += weight
    schedule.record_seq = seq
    if schedule.next_at:
        state.timers.set(schedule.timer, schedule.next_at)


def _remove_schedule(state: State, schedule: Schedule) -> None:
    state.timers.cancel(schedule.timer)
    weight = schedule_record_bytes(schedule)
    state.live_bytes.unplaced -= weight
    state.schedule_bytes -= weight
    del state.schedules[schedule.name]


def apply_schedule_gone(state: State, record: ScheduleGone) -> None:
    state.time = record.time
    _remove_schedule(state, state.schedules[record.name])


def apply_schedule_tick(state: State, record: ScheduleTick) -> None:
    state.time = record.time
    schedule = state.schedules[record.name]
    schedule.missed += record.missed
    if record.outcome == SKIPPED:
        schedule.skipped += 1
    elif record.outcome == RAN or record.outcome == BY_HAND:
        schedule.runs += 1
        schedule.last_at = record.time
        schedule.last_job = record.job
    schedule.next_at = record.next_at
    if record.next_at:
        state.timers.set(schedule.timer, record.next_at)
    else:
        state.timers.cancel(schedule.timer)
