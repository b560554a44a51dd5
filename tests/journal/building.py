"""Journals to test with: an engine that writes one, and what its state looks like."""

import contextlib
from random import Random

from taskyard.engine.model.events import FetchRequest
from taskyard.engine.model.job import MASENKO, Job, NewJob, Origin, Policy
from taskyard.engine.model.state import EngineSettings, State
from taskyard.engine.operations.facade import Engine
from taskyard.journal.cache import ReadRequest
from taskyard.journal.disk import Disk
from taskyard.journal.format import segment_names
from taskyard.journal.identity import JOURNAL, JournalSettings, load_identity
from taskyard.journal.memory import MemoryDisk
from taskyard.journal.opening import open_journal
from taskyard.journal.recovery import Recovery

START = 1_700_000_000_000_000
POLICY = Policy(max_fails=3)
ORIGIN = Origin(MASENKO, "ann", "127.0.0.1:4000")


def fresh_state() -> State:
    return State(EngineSettings(payload_limit=1 << 23))


def _nobody(_: bytes | None) -> None:
    """Waits for a load without wanting to be told."""


class Running:
    """A server's heart: state, engine and journal on one disk."""

    def __init__(
        self,
        disk: Disk,
        segment_size: int = 64 * 1024,
        payload_memory: int = 0,
        now: int = START,
        seed: int = 7,
    ) -> None:
        self.disk = disk
        self.now = now
        self.state = fresh_state()
        settings = JournalSettings(segment_size, payload_memory)
        self.journal, self.report = open_journal(
            disk, settings, self.state, now, Random(seed + now).randbytes
        )
        self.now = max(now, self.state.time)
        self.engine = Engine(self.state, self.journal.records, self.journal.salt, Random(seed))
        self.engine.boot("test", self.now)
        self.owner = self.engine.new_owner()

    def push(self, payload: bytes = b"payload", queue: str = "work") -> Job:
        self.now += 1
        return self.engine.push(NewJob(queue, "task", payload, POLICY), ORIGIN, self.now)

    def take(self, queue: bytes = b"work") -> Job | None:
        self.now += 1
        return self.engine.fetch(
            FetchRequest([queue], self.owner, ORIGIN, bound_to_connection=True), self.now
        )

    def ack(self, job: Job) -> None:
        self.now += 1
        self.engine.ack(job.id, self.owner, ORIGIN, self.now)

    def sync(self) -> None:
        point = self.journal.sync_point()
        point.run()
        self.journal.on_synced(point)

    def commit(self) -> None:
        self.journal.write()
        self.sync()

    def blob(self, at: int, size: int) -> bytes:
        found = self.journal.read_blob(at, size)
        if found is not None:
            return found
        load = self.load(at, size)
        self.finish_reads()
        assert load.data is not None
        return load.data

    def load(self, at: int, size: int) -> ReadRequest:
        return self.journal.disk_reads.request_read(at, size, _nobody)

    def finish_reads(self) -> list[ReadRequest]:
        """Run all cold reads there are, one after the other; gives those who waited for them."""
        over: list[ReadRequest] = []
        while (read := self.journal.disk_reads.next_read()) is not None:
            with contextlib.suppress(OSError):
                read.run()
            over += self.journal.disk_reads.on_read_done(read)
        return over

    def payload(self, job: Job) -> bytes:
        return self.blob(job.payload_at, job.payload_size)


def picture(state: State) -> object:
    """All that the engine remembers of jobs and queues, to compare."""
    jobs = sorted(
        (
            job.id,
            job.queue.name,
            job.name,
            job.state,
            job.priority,
            job.order_key,
            job.attempts,
            job.fails,
            job.losses,
            job.payload_at,
            job.payload_size,
            job.pushed_at,
            job.finished_at,
            None if job.lease is None else (job.lease.owner, job.lease.deadline),
        )
        for job in state.jobs
    )
    queues = sorted(
        (queue.name, queue.pushed, queue.leases, queue.finished, queue.created_seq)
        for queue in state.queues.values()
    )
    return (jobs, queues, state.time, state.epoch, state.next_id)


def recover(disk: Disk) -> Recovery:
    """Read the journal as a start would, without changing it."""
    identity = load_identity(disk)
    assert identity is not None
    recovery = Recovery(disk.directory(JOURNAL), identity, fresh_state())
    recovery.run()
    return recovery


def segments(disk: Disk) -> list[str]:
    return segment_names(disk.directory(JOURNAL))


def copy(disk: MemoryDisk, changed: str = "", data: bytes = b"") -> MemoryDisk:
    """The same files on another disk, but for one of the segments."""
    other = MemoryDisk()
    other.put("identity.json", disk.content("identity.json"))
    journal, target = disk.directory(JOURNAL), other.directory(JOURNAL)
    for name in segments(disk):
        target.put(name, data if name == changed else journal.content(name))
    return other


def flipped(data: bytes, bit: int) -> bytes:
    """The bytes with one bit the other way."""
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)
