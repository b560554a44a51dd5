"""The lake's tables computed again in plain Python, one record after the other.

Written from the rules of the tables alone, to be compared with what Spark makes of the same
journal. Times are UTC datetimes, as Arrow gives them back. Slow and simple on purpose.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from taskyard.engine.model.job import DIALECT_NAMES, JSON, Origin
from taskyard.engine.records import job_changes as j
from taskyard.engine.records import job_lifecycle as r
from taskyard.engine.records.entities import BatchRecord
from taskyard.engine.records.job_changes import (
    MoveRecord,
    RemoveRecord,
    ReplayRecord,
    RescoreRecord,
    UnblockRecord,
    WakeRecord,
)
from taskyard.journal.disk import RealDisk
from taskyard.journal.identity import JOURNAL
from taskyard.journal.reader import JournalReader

Row = dict[str, Any]

WAITING = ("blocked", "delayed", "ready")
REMOVED = {"ttl": "expired"}  # the outcome of a removal, where it is not its cause
ABOUT_A_JOB = (*range(r.PUSH, r.REPLAY + 1), r.PROGRESS)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")
_NOISE = (
    (re.compile(r"\b[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"), "<uuid>"),
    (re.compile(r"\b0x[0-9a-fA-F]+"), "<hex>"),
    (re.compile(r"\b[0-9a-fA-F]{8,}\b"), "<hex>"),
    (re.compile(r"[0-9]+"), "<n>"),
)
_MESSAGE = 200


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
    push: r.PushRecord | None = None
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


@dataclass
class Tables:
    jobs: list[Row]
    open_jobs: list[Row]
    attempts: list[Row]
    queue_minutes: list[Row]
    failures: list[Row]


def read_records(data: Path, from_seq: int = 0) -> Iterator[r.Record]:
    """The records of a data directory that nobody is writing to."""
    directory = RealDisk(str(data)).directory(JOURNAL)
    for entry in JournalReader(directory, blobs=True).read(from_seq):
        yield entry.record


def compute(records: Iterable[r.Record]) -> Tables:
    oracle = Oracle()
    for record in records:
        oracle.see(record)
    return oracle.tables()


class Oracle:
    def __init__(self) -> None:
        self.lives: dict[int, Life] = {}
        self.jobs: list[Row] = []
        self.attempts: list[Row] = []
        self.minutes: dict[tuple[str, int], Minute] = {}
        self.groups: dict[tuple[str, str | None, str, str], Group] = {}
        self.depth: Counter[str] = Counter()
        self.in_flight: Counter[str] = Counter()

    # Reading

    def see(self, record: r.Record) -> None:
        if isinstance(record, BatchRecord):
            queues = [
                queue
                for queue, count in zip(record.queues, record.counts, strict=True)
                for _ in range(count)
            ]
            for id, queue in zip(record.ids, queues, strict=True):
                life = self._life(id, queue, record)
                self._start(life, record, life.attempts + 1)
                self._count(life.queue, record)
        elif record.kind() in ABOUT_A_JOB:
            self._see_job(record)

    def _see_job(self, record: Any) -> None:
        queue = text_of(record.queue)
        if record.kind() in (r.EXTEND, r.PROGRESS):
            self._count(queue, record)
            return
        life = self._life(record.id, record.queue, record)
        steps: dict[int, Callable[[Life, Any], None]] = {
            r.PUSH: self._push,
            r.LEASE: self._lease,
            r.FINISH: self._finish,
            r.RETRY: self._retry,
            r.RELEASE: self._release,
            r.FAIL: self._fail,
            r.WAKE: self._wake,
            r.UNBLOCK: self._unblock,
            r.REMOVE: self._remove,
            r.MOVE: self._move,
            r.RESCORE: self._rescore,
            r.REPLAY: self._replay,
        }
        steps[record.kind()](life, record)
        for name in {queue, life.queue}:
            self._count(name, record)

    def _life(self, id: int, queue: bytes, record: r.Record) -> Life:
        life = self.lives.setdefault(id, Life(id))
        life.queue = text_of(queue)
        life.last_seq = record.seq
        life.last_time = record.time
        return life

    # What happens

    def _push(self, life: Life, record: r.PushRecord) -> None:
        life.push = record
        life.began_at = record.time
        life.priority = record.job.priority
        self._minute(life.queue, record.time).counts["arrivals"] += 1
        if record.blockers:
            self._enter(life, "blocked")
        else:
            self._wait_or_ready(life, record.job.run_at, record.time)

    def _unblock(self, life: Life, record: UnblockRecord) -> None:
        if life.push is None:
            return
        life.unblocked += 1
        if life.unblocked == len(life.push.blockers or ()):
            self._wait_or_ready(life, life.push.job.run_at, record.time)

    def _wake(self, life: Life, record: WakeRecord) -> None:
        self._ready(life, record.time)

    def _rescore(self, life: Life, record: RescoreRecord) -> None:
        life.priority = record.priority

    def _replay(self, life: Life, record: ReplayRecord) -> None:
        self._new_run(life, record.time)
        self._ready(life, record.time)
        self._minute(life.queue, record.time).counts["arrivals"] += 1

    def _lease(self, life: Life, record: r.LeaseRecord) -> None:
        self._start(life, record, record.attempt)

    def _start(self, life: Life, record: r.Record, number: int) -> None:
        start = Start(number, life.queue, record.time, life.ready_since, record.origin)
        life.attempts = number
        life.starts.append(start)
        life.held = start
        minute = self._minute(life.queue, record.time)
        minute.counts["starts"] += 1
        if start.ready_at is not None:
            minute.waits.append(seconds(start.at - start.ready_at))
        if record.origin.holder:
            minute.workers.add(record.origin.holder)
        self._enter(life, "leased")

    def _finish(self, life: Life, record: r.FinishRecord) -> None:
        way = r.FINISH_WAYS[record.way]
        if life.state is None and way in ("pop", "remove"):
            self._start(life, record, record.attempt + 1)
        elif life.state in WAITING:
            self._start(life, record, life.attempts + 1)
        self._end_attempt(life, record, "succeeded", way)
        self._minute(life.queue, record.time).counts["finishes"] += 1
        self._close(life, record, "succeeded", way=way, result_size=record.blob_size)
        self._leave(life)
        del self.lives[life.id]

    def _retry(self, life: Life, record: j.RetryRecord) -> None:
        error = error_of(record)
        life.retries += 1
        self._minute(life.queue, record.time).counts["retries"] += 1
        self._note_failure(life, record, error, "", final=False)
        self._end_attempt(life, record, "retried", None, error, class_of(error))
        if life.state != "blocked":
            self._wait_or_ready(life, record.run_at, record.time)

    def _release(self, life: Life, record: j.ReleaseRecord) -> None:
        life.releases += 1
        self._minute(life.queue, record.time).counts["releases"] += 1
        self._end_attempt(life, record, "released", r.RELEASE_REASONS[record.reason])
        self._ready(life, record.time)

    def _fail(self, life: Life, record: j.FailRecord) -> None:
        error = error_of(record)
        kind = class_of(error)
        self._minute(life.queue, record.time).counts["failures"] += 1
        self._note_failure(life, record, error, record.reason, final=True)
        self._end_attempt(life, record, "failed", record.reason or None, error, kind)
        self._close(
            life, record, "failed", reason=record.reason or None, error=error, error_class=kind
        )
        if record.dead_queue:
            self._leave(life)
            life.queue = record.dead_queue
            self._new_run(life, record.time)
            self._ready(life, record.time)
            self._minute(life.queue, record.time).counts["arrivals"] += 1
        else:
            self._enter(life, "failed")

    def _remove(self, life: Life, record: RemoveRecord) -> None:
        if not record.ended:
            cause = r.REMOVE_CAUSES[record.cause]
            self._minute(life.queue, record.time).counts["removals"] += 1
            self._end_attempt(life, record, "removed", cause)
            self._close(life, record, REMOVED.get(cause, cause), reason=cause)
        self._leave(life)
        del self.lives[life.id]

    def _move(self, life: Life, record: MoveRecord) -> None:
        self._end_attempt(life, record, "moved", None)
        if life.state == "failed":
            self._new_run(life, record.time)
        self._leave(life)
        life.queue = text_of(record.to)
        self._ready(life, record.time)
        self._minute(life.queue, record.time).counts["arrivals"] += 1

    # Where it is

    def _wait_or_ready(self, life: Life, run_at: int, now: int) -> None:
        if run_at > now:
            self._enter(life, "delayed")
        else:
            self._ready(life, now)

    def _ready(self, life: Life, now: int) -> None:
        self._enter(life, "ready")
        life.ready_since = now
        if life.ready_at is None:
            life.ready_at = now

    def _enter(self, life: Life, state: str) -> None:
        self._leave(life)
        life.state = state
        if state in WAITING:
            self.depth[life.queue] += 1
        elif state == "leased":
            self.in_flight[life.queue] += 1

    def _leave(self, life: Life) -> None:
        if life.state in WAITING:
            self.depth[life.queue] -= 1
        elif life.state == "leased":
            self.in_flight[life.queue] -= 1
        life.state = None
        life.ready_since = None

    def _new_run(self, life: Life, now: int) -> None:
        life.run += 1
        life.began_at = now
        life.ready_at = None
        life.starts = []
        life.attempts = life.run_time = life.retries = life.releases = 0

    # What is written down

    def _end_attempt(
        self,
        life: Life,
        record: r.Record,
        outcome: str,
        reason: str | None,
        error: str | None = None,
        error_class: str | None = None,
    ) -> None:
        start = life.held
        life.held = None
        if start is None:
            return
        took = record.time - start.at
        life.run_time += took
        minute = self._minute(life.queue, record.time)
        minute.runs.append(seconds(took))
        if start.origin.holder:
            minute.workers.add(start.origin.holder)
        self.attempts.append(
            {
                "job_id": life.id,
                "run": life.run,
                "attempt": start.number,
                "queue": start.queue,
                "name": life.push.job.name if life.push else None,
                "worker": start.origin.holder or None,
                "user": start.origin.user or None,
                "dialect": DIALECT_NAMES[start.origin.dialect],
                "ready_at": moment(start.ready_at),
                "started_at": moment(start.at),
                "ended_at": moment(record.time),
                "wait_seconds": between(start.ready_at, start.at),
                "run_seconds": seconds(took),
                "outcome": outcome,
                "reason": reason,
                "error": error,
                "error_class": error_class,
                "seq": record.seq,
            }
        )

    def _close(self, life: Life, record: r.Record, outcome: str, **how: object) -> None:
        self.jobs.append(
            {
                **known(life),
                "finished_at": moment(record.time),
                "total_seconds": between(life.began_at, record.time),
                "outcome": outcome,
                **{name: how.get(name) for name in ("way", "reason", "error", "error_class")},
                "result_size": how.get("result_size"),
                "seq": record.seq,
            }
        )

    def _note_failure(
        self, life: Life, record: r.Record, error: str | None, reason: str, final: bool
    ) -> None:
        name = life.push.job.name if life.push else None
        key = (life.queue, name, class_of(error), message_of(error or reason))
        group = self.groups.setdefault(key, Group(record.time, error))
        group.last_seen = record.time
        group.count += 1
        group.final += final
        if life.id not in group.jobs and len(group.jobs) < 5:
            group.jobs.append(life.id)

    def _minute(self, queue: str, time: int) -> Minute:
        return self.minutes.setdefault((queue, time // 60_000_000), Minute())

    def _count(self, queue: str, record: r.Record) -> None:
        """After each event of the queue, so that the last one of a minute says how it ended."""
        minute = self._minute(queue, record.time)
        minute.depth = self.depth[queue]
        minute.in_flight = self.in_flight[queue]

    # The tables

    def tables(self) -> Tables:
        return Tables(
            jobs=self.jobs,
            open_jobs=[open_row(life) for life in self.lives.values()],
            attempts=self.attempts,
            queue_minutes=[
                minute_row(queue, number, minute)
                for (queue, number), minute in self.minutes.items()
            ],
            failures=[
                {
                    "queue": queue,
                    "name": name,
                    "error_class": error_class,
                    "message": message,
                    "count": group.count,
                    "final": group.final,
                    "first_seen": moment(group.first_seen),
                    "last_seen": moment(group.last_seen),
                    "sample_jobs": group.jobs,
                    "sample_error": group.sample_error,
                }
                for (queue, name, error_class, message), group in self.groups.items()
            ],
        )


# Rows


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
            row[f"{name}_p{percent}"] = float(np.percentile(times, percent)) if times else None
    row["workers"] = len(minute.workers)
    return row


# Single values


def error_of(record: r.Record) -> str | None:
    return record.blob.decode(errors="replace") or None


def class_of(error: str | None) -> str:
    line = line_of(error or "")
    head = line.partition(":")[0]
    for word in (head, *line.split()):
        if _IDENTIFIER.fullmatch(word):
            return word
    return "unknown"


def message_of(text: str) -> str:
    line = line_of(text)
    for pattern, instead in _NOISE:
        line = pattern.sub(instead, line)
    return line[:_MESSAGE]


def line_of(text: str) -> str:
    """Of a traceback, whose other lines are indented or begin others, the last one."""
    lines = text.strip().split("\n")
    return (lines[-1] if lines[0].startswith("Traceback (") else lines[0]).strip()


def text_of(name: bytes) -> str:
    return name.decode(errors="backslashreplace")


def moment(time: int | None) -> datetime | None:
    return None if time is None else _EPOCH + timedelta(microseconds=time)


def seconds(duration: int) -> float:
    return duration / 1_000_000


def between(start: int | None, end: int | None) -> float | None:
    return None if start is None or end is None else seconds(end - start)
