"""The power fails at random points: what was durable is there, and nothing that never was.

Each seed is one life of a server: it works, syncs now and then, crashes, starts again, and after
each crash its state must be one that it had been in, no older than its last sync.
"""

from random import Random

import pytest
from journal.building import START, Running, fresh_state, picture, recover
from support.effort import effort

from taskyard.engine.model.job import Job
from taskyard.journal.memory import MemoryDisk


class Life:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.disk = MemoryDisk()
        self.pictures: dict[int, object] = {0: picture(fresh_state())}
        self.durable = 0
        self.payloads: dict[int, bytes] = {}
        self.run = self._start()

    def _start(self) -> Running:
        size = self.random.choice((400, 1500, 10_000))
        return Running(self.disk, size, now=START, seed=self.random.randrange(1 << 30))

    def work(self) -> None:
        run, random = self.run, self.random
        for _ in range(random.randrange(1, 6)):
            if random.random() < 0.6:
                payload = random.randbytes(random.choice((0, 5, 60, 900)))
                self.payloads[run.push(payload).id] = payload
            else:
                job: Job | None = run.take()
                if job is not None:
                    run.ack(job)
        run.journal.write()
        self.pictures[run.journal.records.next_seq - 1] = picture(run.state)

    def sync(self) -> None:
        """One time in three the sync is taken before more is written and done after it."""
        point = self.run.journal.sync_point()
        if self.random.random() < 0.33:
            self.work()
        point.run()
        self.run.journal.on_synced(point)
        self.durable = max(self.durable, int(self.run.journal.durable_seq))

    def crash(self) -> None:
        self.durable = max(self.durable, int(self.run.journal.durable_seq))
        self.disk.crash(self.random if self.random.random() < 0.9 else None)
        self.run = self._start()
        last = self.run.journal.durable_seq
        assert last >= self.durable
        # Read once more, since the engine has booted on what was recovered.
        recovery = recover(self.disk)
        assert recovery.next_seq - 1 == last
        assert picture(recovery.state) == self.pictures[last]
        self.pictures = {seq: self.pictures[seq] for seq in self.pictures if seq <= last}
        self.durable = int(last)
        for job in self.run.state.jobs:
            assert self.run.payload(job) == self.payloads[job.id]


@pytest.mark.parametrize("seed", range(effort(60, 20)))
def test_what_was_durable_survives_every_crash(seed: int) -> None:
    life = Life(seed)
    for _ in range(6):
        for _ in range(life.random.randrange(1, 12)):
            life.work()
            if life.random.random() < 0.4:
                life.sync()
        life.crash()


@pytest.mark.parametrize("seed", range(effort(20, 8)))
def test_a_crash_during_recovery_is_recovered_from(seed: int) -> None:
    life = Life(1000 + seed)
    for _ in range(4):
        for _ in range(8):
            life.work()
            if life.random.random() < 0.3:
                life.sync()
        durable = int(life.run.journal.durable_seq)
        life.disk.crash(life.random)
        operation = life.random.choice(("sync", "sync_directory", "truncate", "remove", "create"))
        life.disk.fail_call(operation)
        try:
            life.run = life._start()
        except OSError:
            life.disk.crash(life.random)
            life.run = life._start()
        life.disk.heal()
        assert life.run.journal.durable_seq >= durable
        life.pictures = {}


@pytest.mark.parametrize("seed", range(10))
def test_the_same_seed_gives_the_same_bytes(seed: int) -> None:
    contents = []
    for _ in range(2):
        life = Life(seed)
        for _ in range(5):
            life.work()
            life.sync()
        life.disk.crash(Random(seed))
        journal = life.disk.directory("journal")
        contents.append([(name, journal.content(name)) for name in journal.names()])
    assert contents[0] == contents[1]
