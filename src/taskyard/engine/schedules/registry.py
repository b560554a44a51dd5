"""Schedules: jobs that the server pushes by itself, by the clock.

A tick and the push of its job are decided together and are in one frame of the journal, so that no
crash loses a run or doubles one. docs/schedules.md says what happens at a late tick, and after a
push that is refused.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from mypy_extensions import i64

from taskyard.engine.model.events import (
    DuplicateJob,
    InvalidOption,
    ScheduleNotFound,
    SchedulesFull,
    TaskyardError,
)
from taskyard.engine.model.job import FAILED, SECOND, SUCCEEDED, SYSTEM, Job, NewJob, Origin
from taskyard.engine.model.state import schedule_record_bytes
from taskyard.engine.operations.checks import (
    check_adding,
    check_new_job,
    check_policy,
    check_writable,
    push_record_bytes,
)
from taskyard.engine.operations.core import Core
from taskyard.engine.operations.push import push
from taskyard.engine.operations.room import MAX_STEP_BYTES
from taskyard.engine.records.entities import (
    ScheduleGone,
    ScheduleSet,
    ScheduleTick,
    apply_schedule,
    apply_schedule_gone,
    apply_schedule_tick,
)
from taskyard.engine.schedules.cron import load_zone, read_cron
from taskyard.engine.schedules.schedule import (
    BY_HAND,
    DROPPED,
    MISSED_ALL,
    MISSED_ONCE,
    MISSED_SKIP,
    OVERLAP_ALLOW,
    OVERLAP_SKIP,
    RAN,
    SKIPPED,
    Schedule,
    copy_history,
    copy_schedule,
    same_definition,
    same_timing,
)
from taskyard.shared.text import NAME_RULE, valid_name

MIN_EVERY: Final = SECOND
MAX_EVERY: Final = 366 * 86_400 * SECOND
MISSED_GRACE: Final = 60 * SECOND  # a tick that is later than this was missed
MISSED_BACKLOG: Final = 86_400 * SECOND  # how far back missed ticks get a run each, where they do
REFUSED_RETRY_DELAY: Final = 5 * SECOND  # between two attempts of a push that is refused
MAX_COUNTED_MISSED: Final = 100  # missed ticks of an expression that are counted one by one
STEPS_PER_PUSH: Final = 3  # what the push of a tick takes, in steps of other things that are due
PAYLOAD_BYTES_PER_STEP: Final = 16_384  # of its payload that are written in the time of one more


class _DueTick:
    """The tick to run, how many were due before it, and when the next one is due."""

    __slots__ = ("earlier", "next_at", "steps", "tick")

    def __init__(self, tick: i64, earlier: i64, next_at: i64, steps: i64) -> None:
        self.tick = tick
        self.earlier = earlier
        self.next_at = next_at
        self.steps = steps  # what it took to find out, in those of a tick


# Setting


def set_schedule(core: Core, wanted: Schedule, origin: Origin, now: i64) -> Schedule:
    """Create a schedule, or replace the one of that name.

    While its timing stays the same its next tick does too, and if all of it does, nothing happens:
    so a program that sets it at each start neither postpones nor doubles it.
    """
    first = _check_schedule(core, wanted, now)
    old = core.state.schedules.get(wanted.name)
    if old is not None and same_definition(wanted, old):
        return old
    _check_bounds(core, wanted, old)
    wanted.user = origin.user
    wanted.since = now
    wanted.next_at = first
    if old is not None:
        copy_history(wanted, old)
        if same_timing(wanted, old):
            wanted.since = old.since
            wanted.next_at = next_tick(wanted, now) if old.paused else old.next_at
    if wanted.paused:
        wanted.next_at = 0
    return _emit_schedule(core, wanted, origin, now)


def pause_schedule(core: Core, name: str, paused: bool, origin: Origin, now: i64) -> Schedule:
    """Stop its ticks, or start them again: those in between are not made up for."""
    old = _existing_schedule(core, name)
    if old.paused == paused:
        return old
    check_adding(core, schedule_record_bytes(old))
    changed = copy_schedule(old)
    changed.paused = paused
    changed.next_at = 0 if paused else next_tick(old, now)
    return _emit_schedule(core, changed, origin, now)


def delete_schedule(core: Core, name: str, origin: Origin, now: i64) -> None:
    check_writable(core)
    schedule = _existing_schedule(core, name)
    record = ScheduleGone(now, origin, name, schedule.job.queue.encode())
    core.records.append(record)
    apply_schedule_gone(core.state, record)


def run_schedule(core: Core, name: str, origin: Origin, now: i64) -> Job:
    """Push one job now, whatever the time, the last run, or a pause say."""
    schedule = _existing_schedule(core, name)
    new = _new_job(schedule, None)
    check_adding(core, push_record_bytes(new) + MAX_STEP_BYTES)
    job = push(core, new, origin, now)
    core.statistics.schedules.runs += 1
    _emit_tick(core, schedule, BY_HAND, now, job.id, 0, schedule.next_at, origin, now)
    return job


def _emit_schedule(core: Core, schedule: Schedule, origin: Origin, now: i64) -> Schedule:
    record = ScheduleSet(now, origin, schedule)
    core.records.append(record)
    apply_schedule(core.state, record)
    return schedule


def _existing_schedule(core: Core, name: str) -> Schedule:
    schedule = core.state.schedules.get(name)
    if schedule is None:
        raise ScheduleNotFound(name)
    return schedule


def _check_schedule(core: Core, wanted: Schedule, now: i64) -> i64:
    """Refuse what cannot be a schedule; gives its first tick."""
    if not valid_name(wanted.name):
        raise InvalidOption("schedule", NAME_RULE)
    check_new_job(core, wanted.job)
    check_policy(wanted.job.policy)
    if not MISSED_ONCE <= wanted.missed_rule <= MISSED_ALL:
        raise InvalidOption("missed", "unknown rule")
    if not OVERLAP_ALLOW <= wanted.overlap <= OVERLAP_SKIP:
        raise InvalidOption("overlap", "unknown rule")
    if bool(wanted.cron) == bool(wanted.every):
        raise InvalidOption("cron", "give either cron or every")
    if wanted.every and not MIN_EVERY <= wanted.every <= MAX_EVERY:
        raise InvalidOption("every", "must be 1 second to 366 days")
    load_zone(wanted.zone)
    wanted.since = now
    first = next_tick(wanted, now)
    if not first:
        raise InvalidOption("cron", "never comes")
    return first


def _check_bounds(core: Core, wanted: Schedule, old: Schedule | None) -> None:
    state = core.state
    weight = schedule_record_bytes(wanted)
    check_adding(core, weight)
    if old is None and len(state.schedules) >= state.settings.max_schedules:
        raise SchedulesFull(f"there are {len(state.schedules)} already")
    before = schedule_record_bytes(old) if old is not None else i64(0)
    most = state.settings.schedule_bytes
    if state.schedule_bytes - before + weight > most:
        raise SchedulesFull(f"all of them together may have {most} bytes")


# Ticks


def next_tick(schedule: Schedule, after: i64) -> i64:
    """Return the first tick later than that time; 0: there is none."""
    every = schedule.every
    if every:
        since = schedule.since
        return since + every if after < since else since + ((after - since) // every + 1) * every
    return read_cron(schedule.cron, schedule.zone).next_after(after)


def load_zones(core: Core) -> None:
    """Read the time zones that schedules name before a tick needs one."""
    for zone in {schedule.zone for schedule in core.state.schedules.values()}:
        try:
            load_zone(zone)
        except InvalidOption:
            continue  # the tick that needs it says so


def fire_schedule(core: Core, name: str, now: i64) -> i64:
    """A schedule is due; gives the number of steps that took."""
    schedule = core.state.schedules[name]
    try:
        return _run_tick(core, schedule, now)
    except TaskyardError as error:
        # It is merely late then, and its rule for that holds once the reason is gone.
        if not schedule.refusal:
            core.statistics.schedules.refused += 1
        schedule.refusal = str(error)
        core.state.timers.set(schedule.timer, now + REFUSED_RETRY_DELAY)
        return 1


def _run_tick(core: Core, schedule: Schedule, now: i64) -> i64:
    new = _new_job(schedule, None)
    check_adding(core, push_record_bytes(new) + 2 * MAX_STEP_BYTES)
    outlook = _tick_to_run(schedule, now)
    tick = outlook.tick
    new.uid = tick_uid(core, schedule.name, tick)
    new.run_at = tick  # so that the job shows which tick it is for
    origin = Origin(SYSTEM, schedule.user, f"schedule {schedule.name}")
    measures = core.statistics.schedules
    missed = outlook.earlier
    job: i64 = 0
    if schedule.missed_rule == MISSED_SKIP and now - tick > MISSED_GRACE:
        outcome: i64 = DROPPED
        missed += 1
    elif _is_run_blocked(core, schedule):
        outcome = SKIPPED
        measures.skipped += 1
    else:
        outcome = RAN
        try:
            job = push(core, new, origin, now).id
        except DuplicateJob as error:
            job = error.job_id
        measures.runs += 1
        measures.lateness.add(now - tick)
    measures.missed += missed
    schedule.refusal = ""
    _emit_tick(core, schedule, outcome, tick, job, missed, outlook.next_at, origin, now)
    if outcome != RAN:
        return outlook.steps
    return outlook.steps + STEPS_PER_PUSH + len(new.payload) // PAYLOAD_BYTES_PER_STEP


def _emit_tick(
    core: Core,
    schedule: Schedule,
    outcome: i64,
    due: i64,
    job: i64,
    missed: i64,
    next_at: i64,
    origin: Origin,
    now: i64,
) -> None:
    queue = schedule.job.queue.encode()
    record = ScheduleTick(now, origin, schedule.name, queue, due, outcome, job, missed, next_at)
    core.records.append(record)
    apply_schedule_tick(core.state, record)


def _is_run_blocked(core: Core, schedule: Schedule) -> bool:
    """Whether an earlier run prevents another one."""
    key = schedule.job.key
    if key is not None:
        queue = core.state.queues.get(schedule.job.queue.encode())
        keys = queue.keys if queue is not None else None
        if keys is not None and key in keys:
            return True
    if schedule.overlap != OVERLAP_SKIP or not schedule.last_job:
        return False
    job = core.state.live_job(schedule.last_job)
    if job is None or job.state == SUCCEEDED or job.state == FAILED:
        return False
    dead_queue = schedule.job.policy.dead_queue
    return not dead_queue or job.queue.name != dead_queue  # there it has failed


def _tick_to_run(schedule: Schedule, now: i64) -> _DueTick:
    if schedule.missed_rule != MISSED_ALL:
        return _last_due_tick(schedule, now)
    # Those that follow this one are due already, and each is dealt with in its turn.
    return _last_due_tick(schedule, max(schedule.next_at, now - MISSED_BACKLOG))


def _last_due_tick(schedule: Schedule, now: i64) -> _DueTick:
    """Return the last tick that was due by then; the schedule's next one was."""
    tick = schedule.next_at
    every = schedule.every
    if every:
        count = (now - tick) // every
        tick += count * every
        return _DueTick(tick, count, tick + every, 1)
    cron = read_cron(schedule.cron, schedule.zone)
    count = 0
    following = cron.next_after(tick)
    while following and following <= now and count < MAX_COUNTED_MISSED:
        count += 1
        tick = following
        following = cron.next_after(tick)
    steps = count + 1
    end = now
    while following and following <= now:  # too many to go through: halve what is left
        tick = following
        middle = tick + (end - tick) // 2
        found = cron.next_after(middle)
        if found and found <= now:
            tick = found
        else:
            end = middle
        following = cron.next_after(tick)
        steps += 1
    return _DueTick(tick, count, following, steps)


def tick_uid(core: Core, name: str, tick: i64) -> bytes:
    """The uid of the job of one tick: the same however often that is pushed.

    By its version it is no uid that uid.py derives, nor one that a client makes at random.
    """
    said = int(tick).to_bytes(8, "big", signed=True) + name.encode()
    uid = blake2b(said, key=core.salt, person=b"tick", digest_size=16).digest()
    marks = bytes([0x80 | uid[6] & 0x0F, uid[7], 0x80 | uid[8] & 0x3F])
    return uid[:6] + marks + uid[9:]


def _new_job(schedule: Schedule, uid: bytes | None) -> NewJob:
    job = schedule.job
    return NewJob(
        job.queue,
        job.name,
        job.payload,
        job.policy,
        job.priority,
        0,
        job.content,
        False,
        job.ttl_ms,
        uid,
        job.key,
        None,
        None,
        job.limit_key,
    )
