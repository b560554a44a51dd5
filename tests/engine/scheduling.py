"""Shorthands for tests of schedules."""

from datetime import UTC, datetime

from engine.harness import NO_LIMIT, ORIGIN, Bench

from taskyard.engine.model.job import SECOND, NewJob, Policy
from taskyard.engine.records.entities import ScheduleTick
from taskyard.engine.schedules.schedule import MISSED_ONCE, OUTCOMES, OVERLAP_ALLOW, Schedule

MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR


def wish(
    name: str = "s",
    *,
    cron: str = "",
    every: int = 0,
    zone: str = "UTC",
    missed: int = MISSED_ONCE,
    overlap: int = OVERLAP_ALLOW,
    paused: bool = False,
    queue: str = "q",
    payload: bytes = b"",
    policy: Policy = NO_LIMIT,
    ttl_ms: int = 0,
    key: bytes | None = None,
    limit_key: bytes | None = None,
) -> Schedule:
    job = NewJob(queue, "task", payload, policy, ttl_ms=ttl_ms, key=key, limit_key=limit_key)
    return Schedule(name, job, cron, every, zone, missed, overlap, paused)


def put(bench: Bench, wished: Schedule) -> Schedule:
    return bench.engine.set_schedule(wished, ORIGIN, bench.now)


def known(bench: Bench, name: str = "s") -> Schedule:
    schedule = bench.engine.schedule(name)
    assert schedule is not None
    return schedule


def at(text: str) -> int:
    """A time in UTC."""
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * SECOND


def tick(bench: Bench) -> None:
    """What is due happens, all of it."""
    while bench.engine.tick(bench.now):
        pass


def told(bench: Bench) -> list[tuple[str, int, int]]:
    """What came of ticks since the last look: outcome, the tick in seconds, and those missed."""
    return [
        (OUTCOMES[record.outcome], record.due // SECOND, record.missed)
        for record in bench.collect()
        if isinstance(record, ScheduleTick)
    ]
