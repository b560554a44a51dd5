"""Random but believable lives of a server, written as real journals by the real engine.

`write_history(data, Random(seed), steps)` for one that is always the same; with Hypothesis, draw
the `Random` from `st.randoms(use_true_random=False)` so that what fails is made smaller.
"""

from pathlib import Path
from random import Random

from support.batches import ack_all, drop_all, lease_all

from taskyard.engine.model.events import FetchRequest
from taskyard.engine.model.job import (
    API,
    CLIENT,
    DELAYED,
    FAILED,
    GLOVEBOX,
    JSON,
    LEASED,
    LIMITED,
    MASENKO,
    OPAQUE,
    READY,
    REDIS,
    SECOND,
    SUCCEEDED,
    WORKQ,
    Job,
    NewJob,
    Origin,
    Policy,
)
from taskyard.engine.model.queue import OVERFLOW_DEAD, QueueSettings
from taskyard.engine.model.state import EngineSettings, State
from taskyard.engine.operations.facade import Engine
from taskyard.journal.disk import RealDisk
from taskyard.journal.identity import JournalSettings
from taskyard.journal.opening import open_journal

START = 1_770_000_000 * SECOND  # in the middle of a minute
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE

QUEUES = ("mail", "images", "reports", "mail.dead")
NAMES = ("send", "resize", "report.monthly", "<b>odd&\N{SNOWMAN}</b>")
OPEN = (READY, LIMITED, DELAYED)
ERRORS = (
    b"ValueError: 17 is too much",
    b"ValueError: 4711 is too much",
    b"requests.exceptions.ConnectionError: 0xdeadbeef refused\nTraceback\n  line 2",
    b"no job 6f1c2d3e-0a1b-4c5d-8e9f-001122334455 in shard deadbeef01",
    b"",
    b"\xff\xfe not UTF-8",
    b"??? !!!",
    b'Traceback (most recent call last):\n  File "a.py", line 3\n    f()\nOSError: 17 refused',
    b"  Timeout : " + b"x" * 300,
)
PUSHERS = (
    Origin(MASENKO, "ann", "10.0.0.1:4000"),
    Origin(API, "bob", ""),
    Origin(REDIS, "", "10.0.0.2:5000"),
)
WORKERS = tuple(
    Origin(dialect, user, holder)
    for dialect, user, holder in (
        (MASENKO, "ann", "worker-1"),
        (WORKQ, "", "worker-2"),
        (GLOVEBOX, "eve", "worker-3"),
        (CLIENT, "bob", ""),
    )
)
POLICIES = (
    Policy(max_fails=-1),
    Policy(max_fails=3, backoff=2, backoff_base=20 * SECOND, backoff_cap=HOUR),
    Policy(ttr=30 * SECOND, max_fails=2, max_losses=2, dead_queue="mail.dead"),
    Policy(ttr=90 * SECOND, max_attempts=2, backoff=1),
    Policy(),
)


class History:
    """A server that runs through time as it is told, and goes on in the same journal."""

    def __init__(self, data: Path, random: Random, now: int = START) -> None:
        self.data = data
        self.random = random
        self.now = now
        self.batches: dict[str, int] = {}
        self._open()

    def _open(self) -> None:
        state = State(EngineSettings(payload_limit=1 << 20, default_ttr=5 * MINUTE))
        settings = JournalSettings(segment_size=64 * 1024, payload_memory=0)
        disk = RealDisk(str(self.data))
        entropy = Random(self.now)
        self.journal, _ = open_journal(disk, settings, state, self.now, entropy.randbytes)
        self.now = max(self.now, state.time)
        self.engine = Engine(state, self.journal.records, self.journal.salt, entropy)
        self.engine.boot("history", self.now)
        self.write()

    def write(self) -> None:
        self.engine.drain_effects()
        self.journal.write()

    def close(self) -> None:
        self.journal.write()
        point = self.journal.sync_point()
        point.run()
        self.journal.on_synced(point)
        self.journal.close()

    def restart(self, downtime: int = 0) -> None:
        self.close()
        self.now += downtime
        self._open()

    def pass_time(self, duration: int) -> None:
        """Each timer is met when it is due."""
        target = self.now + duration
        while 0 < self.engine.next_deadline(self.now) <= target:
            self.now = max(self.now, self.engine.next_deadline(self.now))
            while self.engine.tick(self.now):
                self.write()
            self.write()
        self.now = target

    def jobs(self, *states: int) -> list[Job]:
        return [job for job in self.engine.state.jobs if job.state in states]

    def push(
        self, queue: str, name: str, policy: Policy, priority: int = 0, run_at: int = 0
    ) -> Job:
        new = NewJob(queue, name, b"{}", policy, priority, run_at, JSON)
        job = self.engine.push(new, PUSHERS[0], self.now)
        self.write()
        return job

    def lease(self, queue: str, worker: Origin, owner: int, ttr: int = 0) -> Job | None:
        take = FetchRequest([queue.encode()], owner, worker, ttr=ttr)
        job = self.engine.fetch(take, self.now)
        self.write()
        return job

    def ack(self, job: Job, worker: Origin) -> None:
        assert job.lease is not None
        self.engine.ack(job.id, job.lease.owner, worker, self.now)
        self.write()

    def nack(self, job: Job, worker: Origin, error: bytes) -> None:
        assert job.lease is not None
        self.engine.nack(job.id, job.lease.owner, error, worker, self.now)
        self.write()


class Walk:
    """One random step after the other."""

    def __init__(self, history: History, random: Random) -> None:
        self.history = history
        self.random = random
        self.uids = history.now  # no two alike, also where a journal is gone on with
        self.steps = (
            (30, self.push),
            (26, self.lease),
            (18, self.ack),
            (10, self.nack),
            (5, self.pop),
            (4, self.batch),
            (4, self.finish_anything),
            (3, self.give_back),
            (3, self.push_blocked),
            (2, self.hold),
            (3, self.move),
            (3, self.revive),
            (2, self.rescore),
            (1, self.wake_now),
            (1, self.delete),
            (1, self.purge),
            (1, self.configure),
            (1, self.disconnect),
            (1, self.restart),
        )

    def step(self) -> None:
        weights = [weight for weight, _ in self.steps]
        do = self.random.choices([do for _, do in self.steps], weights)[0]
        do()
        self.history.write()
        self.history.pass_time(self.gap())

    def gap(self) -> int:
        kind = self.random.random()
        if kind < 0.5:
            return self.random.randrange(3 * SECOND)
        if kind < 0.95:
            return self.random.randrange(40 * SECOND)
        if kind < 0.99:
            return self.random.randrange(90 * MINUTE)
        return self.random.randrange(30 * HOUR)

    def worker(self) -> tuple[Origin, int]:
        number = self.random.randrange(len(WORKERS))
        return WORKERS[number], number + 1

    def pick(self, *states: int) -> Job | None:
        jobs = self.history.jobs(*states)
        return self.random.choice(jobs) if jobs else None

    def new_job(self, blocked_by: list[int] | None = None) -> NewJob:
        pick = self.random
        self.uids += 1
        delay = pick.choice((0, 0, 0, 0, -SECOND, 20 * SECOND, 3 * HOUR))
        return NewJob(
            pick.choice(QUEUES[:3]),
            pick.choice(NAMES),
            b"x" * pick.choice((0, 1, 40, 4000)),
            pick.choice(POLICIES),
            pick.choice((0, 0, 0, 5, -5)),
            self.history.now + delay if delay else 0,
            pick.choice((JSON, OPAQUE)),
            front=pick.random() < 0.1,
            ttl_ms=pick.choice((0, 0, 0, 0, 30_000, 7_200_000)),
            uid=self.uids.to_bytes(16) if pick.random() < 0.3 else None,
            blocked_by=blocked_by,
        )

    def push(self) -> None:
        for _ in range(self.random.choice((1, 1, 1, 4))):
            self.history.engine.push(self.new_job(), self.random.choice(PUSHERS), self.history.now)

    def push_blocked(self) -> None:
        jobs = self.history.jobs(READY, DELAYED, LEASED, SUCCEEDED)
        if jobs:
            some = self.random.sample(jobs, min(len(jobs), self.random.choice((1, 1, 2, 3))))
            new = self.new_job([job.id for job in some])
            self.history.engine.push(new, PUSHERS[0], self.history.now)

    def lease(self) -> None:
        for _ in range(self.random.choice((1, 1, 3))):
            worker, owner = self.worker()
            take = FetchRequest(
                [name.encode() for name in self.random.sample(QUEUES, 3)],
                owner,
                worker,
                bound_to_connection=self.random.random() < 0.3,
            )
            self.history.engine.fetch(take, self.history.now)

    def held(self) -> tuple[Job, int, Origin] | None:
        """A leased job, its owner, and in what name it speaks."""
        job = self.pick(LEASED)
        if job is None or job.lease is None:
            return None
        owner = int(job.lease.owner)
        return job, owner, WORKERS[owner - 1] if owner <= len(WORKERS) else WORKERS[0]

    def ack(self) -> None:
        if found := self.held():
            job, owner, worker = found
            self.history.engine.ack(job.id, owner, worker, self.history.now)

    def nack(self) -> None:
        if found := self.held():
            job, owner, worker = found
            error = self.random.choice(ERRORS)
            delay = self.random.choice((-1, -1, -1, -2, 0, 15 * SECOND))
            self.history.engine.nack(job.id, owner, error, worker, self.history.now, delay)

    def hold(self) -> None:
        if found := self.held():
            job, owner, worker = found
            self.history.engine.report_progress(
                job.id, owner, 500, "half", worker, self.history.now
            )
            self.history.engine.extend_lease(job.id, owner, MINUTE, worker, self.history.now)

    def give_back(self) -> None:
        if found := self.held():
            job, owner, worker = found
            self.history.engine.release_lease(job.id, owner, worker, self.history.now)

    def disconnect(self) -> None:
        worker, owner = self.worker()
        self.history.engine.disconnect(owner, worker, self.history.now)

    def pop(self) -> None:
        queue = self.random.choice(QUEUES).encode()
        self.history.engine.pop(queue, False, self.worker()[0], self.history.now)

    def finish_anything(self) -> None:
        """Workq lets anybody complete or fail a job in whatever state, others take it out."""
        states = (0, DELAYED, READY, LEASED)
        job = self.pick(*states)
        if job is None:
            return
        engine, now, worker = self.history.engine, self.history.now, self.worker()[0]
        kind = self.random.random()
        if kind < 0.4:
            keep = self.random.choice((0, HOUR))
            engine.complete(job.id, self.random.choice((b"", b"done")), worker, now, keep)
        elif kind < 0.8:
            engine.fail(job.id, self.random.choice(ERRORS), worker, now)
        elif job.state == READY:
            engine.remove_from_list(job.id, worker, now)

    def batch(self) -> None:
        engine, now = self.history.engine, self.history.now
        name = self.random.choice(("spark", "flink"))
        consumer = engine.state.consumers.get(name)
        kind = self.random.random()
        if consumer is not None and (consumer.expired or kind < 0.2):
            drop_all(engine, name, WORKERS[2], now)
        elif consumer is not None and kind < 0.4:
            ack_all(engine, name, consumer.number, WORKERS[2], now)
        else:
            number = consumer.number + 1 if consumer is not None else 1
            queues = [queue.encode() for queue in self.random.sample(QUEUES, 2)]
            limit = self.random.choice((1, 3, 20))
            ttr = self.random.choice((0, 2 * MINUTE))
            lease_all(engine, name, number, queues, limit, ttr, WORKERS[2], now)

    def move(self) -> None:
        job = self.pick(*OPEN, FAILED)
        if job is not None:
            to = self.random.choice(QUEUES)
            self.history.engine.move_job(job.id, to, False, PUSHERS[1], self.history.now)

    def revive(self) -> None:
        job = self.pick(FAILED)
        if job is not None:
            self.history.engine.replay_dead_letter(job.id, PUSHERS[1], self.history.now)

    def rescore(self) -> None:
        job = self.pick(READY, LEASED, DELAYED)
        if job is not None:
            self.history.engine.rescore(job.id, 7, PUSHERS[2], self.history.now)

    def wake_now(self) -> None:
        job = self.pick(DELAYED)
        if job is not None:
            self.history.engine.wake_job(job.id, PUSHERS[1], self.history.now)

    def delete(self) -> None:
        job = self.pick(0, DELAYED, READY, LEASED, SUCCEEDED, FAILED)
        if job is not None:
            self.history.engine.delete_job(job.id, PUSHERS[1], self.history.now)

    def purge(self) -> None:
        name = self.random.choice(QUEUES).encode()
        state = self.random.choice((READY, FAILED, DELAYED, 0))
        if self.history.engine.queue(name) is not None:
            self.history.engine.purge_queue(name, state, 3, PUSHERS[1], self.history.now)

    def configure(self) -> None:
        name = self.random.choice(QUEUES).encode()
        settings = QueueSettings()
        settings.result_retention = self.random.choice((0, HOUR))
        settings.dead_retention = self.random.choice((-1, 2 * HOUR))
        if self.random.random() < 0.3:
            settings.max_jobs = 30
            settings.overflow = OVERFLOW_DEAD
        if self.history.engine.queue(name) is not None:
            self.history.engine.configure_queue(name, settings, PUSHERS[1], self.history.now)

    def restart(self) -> None:
        self.history.restart(self.random.choice((0, 5 * SECOND, HOUR)))


def write_history(
    data: Path, random: Random, steps: int, now: int = START, first_id: int = 0
) -> int:
    """A journal of about this many operations; gives the time at which it ends."""
    history = History(data, random, now)
    history.engine.state.next_id = max(history.engine.state.next_id, first_id)
    walk = Walk(history, random)
    for _ in range(steps):
        walk.step()
    history.close()
    return history.now
