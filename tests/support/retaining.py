"""A simulated server with small segments, work that comes and goes, and readers of its journal."""

from support.simulated import SimulatedServer
from support.snapshot import job_snapshot, snapshot

from taskyard.engine.model.job import API, GONE, SECOND, NewJob, Origin, Policy
from taskyard.engine.model.state import State
from taskyard.journal.format import segment_names
from taskyard.journal.identity import JOURNAL
from taskyard.journal.memory import MemoryDisk
from taskyard.journal.reader import JournalReader
from taskyard.journal.retention import RetentionLimits

ORIGIN = Origin(API, "tester", "reader")
POLICY = Policy()
HOUR = 3600 * SECOND
SEGMENT = 1 << 16


class RetainingYard(SimulatedServer):
    """Small segments, pushes that are done at once, and readers."""

    def __init__(
        self,
        limits: RetentionLimits | None = None,
        seed: int = 1,
        disk: MemoryDisk | None = None,
        spare: bool = False,
    ) -> None:
        super().__init__(segment_size=SEGMENT, limits=limits, seed=seed, disk=disk, spare=spare)

    def turn(self) -> int:
        return self.broker.begin_turn()

    def end(self) -> None:
        self.broker.end_turn()
        self.advance(0.01)

    def work(self, size: int) -> None:
        """Push and pop jobs of that many bytes in all."""
        for _ in range(size // 4000):
            now = self.turn()
            self.engine.push(NewJob("q", "task", b"x" * 4000, POLICY), ORIGIN, now)
            self.engine.pop(b"q", False, ORIGIN, now)
            self.end()

    def push(self, queue: str = "kept", size: int = 3000) -> int:
        job = self.engine.push(NewJob(queue, "task", b"y" * size, POLICY), ORIGIN, self.turn())
        self.end()
        return int(job.id)

    def register(self, name: str, next_seq: int, lease: int = HOUR) -> None:
        self.engine.register_reader(name, next_seq, lease, ORIGIN, self.turn())
        self.end()

    def commit(self, name: str, next_seq: int, lease: int = HOUR) -> None:
        self.engine.commit_reader(name, next_seq, lease, ORIGIN, self.turn())
        self.end()

    def first_seq(self) -> int:
        return int(self.journal.first_seq_of(self.journal.first_base))

    def read(self, from_seq: int, carries: bool = False) -> list[int]:
        reader = JournalReader(self.disk.directory(JOURNAL), live=True)
        return [entry.seq for entry in reader.read(from_seq, carries)]

    def files(self) -> int:
        return len(segment_names(self.disk.directory(JOURNAL)))

    def retained(self) -> int:
        """Bytes that are only kept for readers."""
        return int(self.journal.replay_start - self.journal.first_base)


def without_ring(state: State) -> dict[str, object]:
    """All but the recently finished jobs, which compaction does not carry."""
    found = snapshot(state)
    found["jobs"] = {job.id: job_snapshot(job) for job in state.jobs if job.state != GONE}
    del found["ring"], found["ring_bytes"]
    return found
