"""Limits as one would write them down who has time: lists that are gone through, and fractions.

The model is fed records, checks each start against the limits and the order of delivery, and says
which job is the next that may be started.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction

from taskyard.engine.model.queue import QueueSettings
from taskyard.engine.records import entities as s
from taskyard.engine.records import job_changes as j
from taskyard.engine.records import job_lifecycle as r
from taskyard.engine.records.snapshots import JobSnapshot

Rate = tuple[int, int]  # count and period in microseconds


@dataclass
class LimitedJob:
    id: int
    queue: bytes
    key: bytes | None
    priority: int
    position: int
    ready: bool
    leased: bool = False

    def place(self) -> tuple[int, int, int]:
        return -self.priority, self.position, self.id


@dataclass
class Bucket:
    """Tokens: `count` of them when it is full, and as many more in each period."""

    count: int
    period: int
    tokens: Fraction = Fraction(0)
    at: int = 0

    def left(self, now: int) -> Fraction:
        grown = self.tokens + Fraction((now - self.at) * self.count, self.period)
        return min(Fraction(self.count), grown)

    def start(self, now: int) -> None:
        self.tokens = self.left(now) - 1
        self.at = now


@dataclass
class LimitModel:
    jobs: dict[int, LimitedJob] = field(default_factory=dict)
    settings: dict[bytes, QueueSettings] = field(default_factory=dict)
    buckets: dict[tuple[bytes, bytes | None], Bucket] = field(default_factory=dict)

    # What may be started

    def next(self, queue: bytes, pop: bool, now: int) -> LimitedJob | None:
        return next((job for job in self.line(queue) if self.may_start(job, pop, now)), None)

    def line(self, queue: bytes) -> list[LimitedJob]:
        """All that is ready, whether or not limits hold it back, in the order of delivery."""
        ready = [job for job in self.jobs.values() if job.ready and job.queue == queue]
        return sorted(ready, key=LimitedJob.place)

    def may_start(self, job: LimitedJob, pop: bool, now: int) -> bool:
        rules = self.settings.get(job.queue, QueueSettings())
        if rules.paused:
            return False
        if rules.concurrency > 0 and not pop and self._leased(job.queue) >= rules.concurrency:
            return False
        if not self._has_token(job.queue, None, _rate(rules), now):
            return False
        if job.key is None:
            return True
        if 0 < rules.key_concurrency <= self._leased(job.queue, job.key):
            return False
        return self._has_token(job.queue, job.key, _key_rate(rules), now)

    def _leased(self, queue: bytes, key: bytes | None = None) -> int:
        return sum(
            job.leased and job.queue == queue and key in (None, job.key)
            for job in self.jobs.values()
        )

    def _has_token(self, queue: bytes, key: bytes | None, rate: Rate | None, now: int) -> bool:
        bucket = self.buckets.get((queue, key))
        return rate is None or bucket is None or bucket.left(now) >= 1

    # What has happened

    def see(self, records: Iterable[r.Record]) -> None:
        for record in records:
            self._see(record)

    def _see(self, record: r.Record) -> None:
        if isinstance(record, r.PushRecord):
            new = record.job
            job = LimitedJob(record.id, record.queue, new.limit_key, new.priority, record.seq, True)
            if new.run_at > record.time:
                job.ready = False
            self.jobs[job.id] = job
        elif isinstance(record, r.LeaseRecord):
            self._start(record.id, False, record.time)
        elif isinstance(record, s.BatchRecord):
            for id in record.ids:
                self._start(id, False, record.time)
        elif isinstance(record, r.FinishRecord):
            if record.way == r.POPPED:
                self._start(record.id, True, record.time)
            del self.jobs[record.id]
        elif isinstance(record, j.FailRecord | j.RemoveRecord):
            del self.jobs[record.id]
        elif isinstance(record, s.QueueSet):
            self._configure(record.queue, record.settings)
        elif isinstance(record, s.QueueGone):
            self._configure(record.queue, QueueSettings())
        elif isinstance(
            record, j.ReleaseRecord | j.RetryRecord | j.WakeRecord | j.MoveRecord | j.RescoreRecord
        ):
            self._change(record)
        else:
            assert (
                isinstance(record, r.BootRecord | s.BatchDone) or record.kind() >= r.FIRST_SNAPSHOT
            )
            assert not isinstance(record, JobSnapshot) or record.state < 6

    def _start(self, id: int, pop: bool, now: int) -> None:
        job = self.jobs[id]
        assert job.ready
        assert self.may_start(job, pop, now), "a limit forbids it"
        assert self.next(job.queue, pop, now) is job, "another comes first"
        job.ready, job.leased = False, not pop
        rules = self.settings.get(job.queue, QueueSettings())
        self._draw((job.queue, None), _rate(rules), now)
        if job.key is not None:
            self._draw((job.queue, job.key), _key_rate(rules), now)

    def _draw(self, whose: tuple[bytes, bytes | None], rate: Rate | None, now: int) -> None:
        if rate is not None:
            full = Bucket(*rate, tokens=Fraction(rate[0]))
            self.buckets.setdefault(whose, full).start(now)

    def _configure(self, queue: bytes, new: QueueSettings) -> None:
        old = self.settings.get(queue, QueueSettings())
        for whose, key in list(self.buckets):
            same = _rate(old) == _rate(new) if key is None else _key_rate(old) == _key_rate(new)
            if whose == queue and not same:
                del self.buckets[whose, key]
        self.settings[queue] = new

    def _change(self, record: r.Record) -> None:
        assert isinstance(
            record, j.ReleaseRecord | j.RetryRecord | j.WakeRecord | j.MoveRecord | j.RescoreRecord
        )
        job = self.jobs[record.id]
        if isinstance(record, j.RescoreRecord):
            job.priority = record.priority
            if job.ready:
                job.position = record.seq
            return
        if isinstance(record, j.WakeRecord):
            job.position = record.seq
        elif isinstance(record, j.MoveRecord):
            job.queue, job.position = record.to, -record.seq if record.front else record.seq
        job.leased = False
        job.ready = not (isinstance(record, j.RetryRecord) and record.run_at > record.time)


def _rate(rules: QueueSettings) -> Rate | None:
    return (rules.rate_count, rules.rate_period) if rules.rate_count > 0 else None


def _key_rate(rules: QueueSettings) -> Rate | None:
    return (rules.key_rate_count, rules.key_rate_period) if rules.key_rate_count > 0 else None
