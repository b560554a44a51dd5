"""A schedule in memory: when it is due, what it pushes then, and how that went so far.

Times are microseconds since the Unix epoch, durations microseconds. 0 means "none".
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from taskyard.engine.model.job import NewJob
from taskyard.engine.structures.timers import SCHEDULE_TIMER, Timer

# What becomes of ticks that the server was not there for, or had no place for.
MISSED_ONCE: Final = 0  # one run makes up for all of them
MISSED_SKIP: Final = 1  # none is, unless it is a little late only
MISSED_ALL: Final = 2  # each of the last day has one of its own
MISSED_RULES: Final = ("once", "skip", "all")

# Whether a tick pushes while the job of the last run has not ended.
OVERLAP_ALLOW: Final = 0
OVERLAP_SKIP: Final = 1
OVERLAP_RULES: Final = ("allow", "skip")

# Results of a tick.
RAN: Final = 0
SKIPPED: Final = 1  # the job of an earlier run has not ended
DROPPED: Final = 2  # it was missed, and the rule is to let it go
BY_HAND: Final = 3  # it was no tick: a client requested a run
OUTCOMES: Final = ("ran", "skipped", "dropped", "by_hand")


class Schedule:
    """One schedule. A change of what it is makes another object; ticks only change its counts."""

    __slots__ = (
        "cron",
        "every",
        "job",
        "last_at",
        "last_job",
        "missed",
        "missed_rule",
        "name",
        "next_at",
        "overlap",
        "paused",
        "record_seq",
        "refusal",
        "runs",
        "since",
        "skipped",
        "timer",
        "user",
        "zone",
    )

    def __init__(
        self,
        name: str,
        job: NewJob,
        cron: str = "",
        every: i64 = 0,
        zone: str = "UTC",
        missed_rule: i64 = MISSED_ONCE,
        overlap: i64 = OVERLAP_ALLOW,
        paused: bool = False,
    ) -> None:
        self.name = name
        self.job = job  # what each run is a copy of
        self.cron = cron  # "": it has an interval instead
        self.every = every
        self.zone = zone  # of the expression
        self.missed_rule = missed_rule
        self.overlap = overlap
        self.paused = paused
        self.user = ""  # the user that has set it
        self.since: i64 = 0  # intervals are counted from here
        self.next_at: i64 = 0  # 0: paused, or never due again
        self.last_at: i64 = 0  # when it pushed last
        self.last_job: i64 = 0  # and which job
        self.runs: i64 = 0
        self.skipped: i64 = 0  # ticks while the last job had not ended
        self.missed: i64 = 0  # ticks that no run was for
        self.record_seq: i64 = 0  # the record that says all of it
        self.timer = Timer(SCHEDULE_TIMER, name)
        self.refusal = ""  # why its push is refused since it was due; not persistent


def same_timing(one: Schedule, other: Schedule) -> bool:
    return one.cron == other.cron and one.every == other.every and one.zone == other.zone


def same_definition(one: Schedule, other: Schedule) -> bool:
    """Whether both are due at the same times, and push the same by the same rules."""
    job = one.job
    twin = other.job
    return (
        same_timing(one, other)
        and one.missed_rule == other.missed_rule
        and one.overlap == other.overlap
        and one.paused == other.paused
        and job.queue == twin.queue
        and job.name == twin.name
        and job.payload == twin.payload
        and job.content == twin.content
        and job.priority == twin.priority
        and job.ttl_ms == twin.ttl_ms
        and job.key == twin.key
        and job.limit_key == twin.limit_key
        and job.policy.same(twin.policy)
    )


def copy_schedule(schedule: Schedule) -> Schedule:
    """Another object that is the same in all that is persistent."""
    copy = Schedule(
        schedule.name,
        schedule.job,
        schedule.cron,
        schedule.every,
        schedule.zone,
        schedule.missed_rule,
        schedule.overlap,
        schedule.paused,
    )
    copy.user = schedule.user
    copy.since = schedule.since
    copy.next_at = schedule.next_at
    copy_history(copy, schedule)
    return copy


def copy_history(schedule: Schedule, old: Schedule) -> None:
    """Keep the results of its ticks so far when a schedule is changed."""
    schedule.last_at = old.last_at
    schedule.last_job = old.last_job
    schedule.runs = old.runs
    schedule.skipped = old.skipped
    schedule.missed = old.missed
