"""What the oracle remembers of a job, a minute and a group of errors, and the rows of them."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from spark.oracle_values import between, moment, percentile, seconds, text_of

from taskyard.engine import records as r
from taskyard.engine.job import DIALECT_NAMES, JSON, Origin

Row = dict[str, Any]


@dataclass
class Start:
    """An attempt that has begun."""

    number: int
    queue: str
    at: int
    ready_at: int | None
    origin: Origin


@dataclass
class Life:
    """A job, as far as its records have told; None is what they have not."""

    id: int
    run: int = 1
    state: str | None = None
    queue: str = ""
    push: r.Push | None = None
    began_at: int | None = None  # this run
    ready_since: int | None = None  # while it is ready
    ready_at: int | None = None  # for the first time in this run
    starts: list[Start] = field(default_factory=list)  # of this run
    attempts: int = 0
    held: Start | None = None
    run_time: int = 0  # over the ended attempts of this run
    retries: int = 0
    releases: int = 0
    unblocked: int = 0
    priority: int | None = None
    last_seq: int = 0
    last_time: int = 0

    def blockers_left(self) -> int:
        if self.state != "blocked" or self.push is None:
            return 0
        return len(self.push.blockers or ()) - self.unblocked


@dataclass
class Minute:
    counts: Counter[str] = field(default_factory=Counter)
    depth: int = 0
    in_flight: int = 0
    waits: list[float] = field(default_factory=list)
    runs: list[float] = field(default_factory=list)
    workers: set[str] = field(default_factory=set)


@dataclass
class Group:
    """Failures that look alike."""

    first_seen: int
    sample_error: str | None
    last_seen: int = 0
    count: int = 0
    final: int = 0
    jobs: list[int] = field(default_factory=list)


def known(life: Life) -> Row:
    """What a closed and an open job have in common."""
    push = life.push
    new = push.job if push else None
    first = life.starts[0].at if life.starts else None
    last = life.starts[-1] if life.starts else None
    return {
        "job_id": life.id,
        "run": life.run,
        "uid": new.uid.hex() if new and new.uid else None,
        "queue": life.queue,
        "first_queue": text_of(push.queue) if push else None,
        "name": new.name if new else None,
        "dialect_in": DIALECT_NAMES[push.origin.dialect] if push else None,
        "dialect_out": DIALECT_NAMES[last.origin.dialect] if last else None,
        "user": (push.origin.user or None) if push else None,
        "priority": life.priority,
        "content": None if new is None else "json" if new.content == JSON else "opaque",
        "payload_size": push.blob_size if push else None,
        "pushed_at": moment(push.time) if push else None,
        "run_at": moment(new.run_at or None) if new else None,
        "ready_at": moment(life.ready_at),
        "started_at": moment(first),
        "last_started_at": moment(last.at) if last else None,
        "wait_seconds": between(life.ready_at, first),
        "run_seconds": seconds(life.run_time),
        "attempts": life.attempts,
        "retries": life.retries,
        "releases": life.releases,
        "blocked_by": list(push.blockers) if push and push.blockers else None,
    }


def open_row(life: Life) -> Row:
    return {
        **known(life),
        "state": life.state,
        "began_at": moment(life.began_at),
        "ready_since": moment(life.ready_since),
        "blockers_left": life.blockers_left(),
        "worker": (life.held.origin.holder or None) if life.held else None,
        "worker_user": (life.held.origin.user or None) if life.held else None,
        "attempt": life.held.number if life.held else None,
        "last_seq": life.last_seq,
        "last_time": moment(life.last_time),
    }


def minute_row(queue: str, number: int, minute: Minute) -> Row:
    row: Row = {"queue": queue, "minute": moment(number * 60_000_000)}
    for name in ("arrivals", "starts", "finishes", "failures", "retries", "releases", "removals"):
        row[name] = minute.counts[name]
    row["depth"] = minute.depth
    row["in_flight"] = minute.in_flight
    for name, times in (("wait", minute.waits), ("run", minute.runs)):
        for percent in (50, 95, 99):
            row[f"{name}_p{percent}"] = percentile(times, percent)
    row["workers"] = len(minute.workers)
    return row
