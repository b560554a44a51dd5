"""Jobs whose payload, result and error stand far apart in what compaction reads."""

import pytest
from support.replaying import check_replay
from support.simulated import SimulatedServer

from taskyard.engine.model.events import FetchRequest
from taskyard.engine.model.job import API, NewJob, Origin, Policy
from taskyard.engine.structures.index import REGION_BYTES
from taskyard.journal.compaction import AWAIT_CHECKPOINT, IDLE, BlobRead, Compactor, SegmentScanRead
from taskyard.journal.format import SEGMENT_HEADER_BYTES, segment_names
from taskyard.journal.identity import JOURNAL

SEGMENT = 4 * REGION_BYTES
ORIGIN = Origin(API, "", "tester")
PAYLOAD = bytes(range(256))
RESULT = b"the result"
ERROR = b"an error"
DAY_MS = 86_400_000


class Worker:
    def __init__(self, yard: SimulatedServer) -> None:
        self._yard = yard

    def push(self, queue: str, payload: bytes, ttl_ms: int = 0) -> int:
        new = NewJob(queue, "name", payload, Policy(max_fails=9), ttl_ms=ttl_ms)
        id = self._yard.engine.push(new, ORIGIN, self._yard.broker.begin_turn()).id
        self._end()
        return id

    def take(self, queue: str) -> int:
        wish = FetchRequest([queue.encode()], 7, ORIGIN)
        job = self._yard.engine.fetch(wish, self._yard.broker.begin_turn())
        assert job is not None
        self._end()
        return job.id

    def nack(self, id: int, error: bytes) -> None:
        self._yard.engine.nack(id, 7, error, ORIGIN, self._yard.broker.begin_turn())
        self._end()

    def complete(self, id: int, result: bytes) -> None:
        self._yard.engine.complete(id, result, ORIGIN, self._yard.broker.begin_turn())
        self._end()

    def fill(self, size: int) -> None:
        """Jobs that come and go, until the journal has grown by so much."""
        end = self._yard.journal.end + size
        while self._yard.journal.end < end:
            self.push("churn", bytes(100_000))
            self.complete(self.take("churn"), b"")

    def _end(self) -> None:
        self._yard.broker.end_turn()
        self._yard.broker.flush_journal()
        self._yard.run_pending()


def read(yard: SimulatedServer, at: int, size: int) -> bytes:
    found: list[bytes | None] = [yard.journal.read_blob(at, size)]
    if found[0] is None:
        yard.broker.read_from_disk(at, size, found.append)
        yard.run_pending()
    assert found[-1] is not None
    return found[-1]


@pytest.mark.parametrize("payload_memory", [0, 16 * SEGMENT])
def test_what_stands_in_other_parts_is_carried_with_the_job(payload_memory: int) -> None:
    """From memory, if it is there, or else it is read before the pass ends."""
    yard = SimulatedServer(segment_size=SEGMENT, payload_memory=payload_memory)
    worker = Worker(yard)
    id = worker.push("work", PAYLOAD, DAY_MS)
    worker.take("work")
    worker.fill(REGION_BYTES)
    worker.nack(id, ERROR)
    worker.fill(REGION_BYTES)
    yard.advance(60)
    worker.take("work")
    worker.complete(id, RESULT)
    assert yard.broker.compaction_scheduler.compactor.passes == 0
    job = yard.engine.job(id)
    extra = job.ensure_extras()
    places = job.payload_at, extra.error_at, extra.result_at

    worker.fill(2 * SEGMENT)
    yard.advance(5)

    assert yard.journal.replay_start > max(places)
    assert read(yard, job.payload_at, job.payload_size) == PAYLOAD
    assert read(yard, extra.result_at, extra.result_size) == RESULT
    assert read(yard, extra.error_at, extra.error_size) == ERROR
    check_replay(yard)


class Pass:
    """One pass that goes on when the test says so."""

    def __init__(self, yard: SimulatedServer) -> None:
        self._yard = yard
        self.compactor = Compactor(yard.engine, yard.journal, 200)
        self.compactor.begin_pass()

    def until_late(self) -> BlobRead:
        """Go on until blobs are to be read that stand elsewhere, and read them."""
        for _ in range(100):
            late = self.compactor.next_blob_read()
            if late is not None:
                late.run()
                return late
            self._step()
        raise AssertionError("nothing is read late")

    def to_the_end(self) -> None:
        for _ in range(100):
            late = self.compactor.next_blob_read()
            if late is not None:
                late.run()
                self.compactor.on_blobs_read(late, "")
            if self.compactor.is_checkpoint_durable():
                self.compactor.finish_pass()
                return
            self._step()
        raise AssertionError("the pass does not end")

    def _step(self) -> None:
        broker = self._yard.broker
        self.compactor.run_step(broker.begin_turn(), 1 << 30)
        broker.end_turn()
        broker.flush_journal()
        self._yard.run_pending()
        read = self.compactor.next_segment_read()
        if read is not None:
            read.run()
            self.compactor.on_segment_read(read, "")


def done_far_apart(yard: SimulatedServer) -> int:
    """A job whose result stands in another part than its payload, and enough behind it."""
    worker = Worker(yard)
    id = worker.push("work", PAYLOAD, DAY_MS)
    worker.take("work")
    worker.fill(2 * REGION_BYTES)
    worker.complete(id, RESULT)
    worker.fill(2 * SEGMENT)
    return id


@pytest.fixture
def yard() -> SimulatedServer:
    return SimulatedServer(segment_size=SEGMENT, payload_memory=0, compaction=0)


def test_a_job_that_is_deleted_while_its_blobs_are_read_holds_up_nothing(
    yard: SimulatedServer,
) -> None:
    id = done_far_apart(yard)
    run = Pass(yard)
    late = run.until_late()
    yard.engine.delete_job(id, ORIGIN, yard.broker.begin_turn())
    yard.broker.end_turn()

    run.compactor.on_blobs_read(late, "")
    run.to_the_end()

    assert yard.journal.replay_start > 0
    assert yard.engine.state.live_job(id) is None
    check_replay(yard)


def test_blobs_that_cannot_be_read_stop_compaction(yard: SimulatedServer) -> None:
    id = done_far_apart(yard)
    run = Pass(yard)
    late = run.until_late()
    places = yard.engine.job(id).payload_at, yard.engine.job(id).ensure_extras().result_at

    run.compactor.on_blobs_read(late, "the disk is broken")

    assert (run.compactor.phase, run.compactor.damage) == (IDLE, "the disk is broken")
    assert run.compactor.next_blob_read() is None
    assert not run.compactor.can_step()
    assert places == (yard.engine.job(id).payload_at, yard.engine.job(id).ensure_extras().result_at)
    assert not run.compactor.is_due()


def test_a_large_job_is_carried_when_there_is_room_for_it(yard: SimulatedServer) -> None:
    payload = bytes(range(256)) * 2000
    worker = Worker(yard)
    large, small = worker.push("work", payload), worker.push("work", PAYLOAD)
    worker.fill(2 * SEGMENT)
    run = Pass(yard)
    compactor, engine, room = run.compactor, yard.engine, yard.journal.space
    head = compactor.next_segment_read()
    assert head is not None
    head.run()
    compactor.on_segment_read(head, "")
    now = yard.broker.begin_turn()
    room.push_refusal = "the disk is full"
    room.free_bytes = engine.records.size() + SEGMENT // 4 + len(payload)

    compactor.run_step(now, 1 << 30)
    late = compactor.next_blob_read()
    assert late is not None
    late.run()
    compactor.on_blobs_read(late, "")
    compactor.run_step(now, 1 << 30)
    assert engine.job(small).payload_at > compactor.next_replay_start
    assert engine.job(large).payload_at < compactor.next_replay_start
    room.push_refusal = ""
    yard.broker.end_turn()
    run.to_the_end()

    job = engine.job(large)
    assert job.payload_at > yard.journal.replay_start
    assert read(yard, job.payload_at, job.payload_size) == payload
    check_replay(yard)


def test_nothing_is_dropped_before_what_was_carried_is_on_disk(yard: SimulatedServer) -> None:
    Worker(yard).push("work", PAYLOAD)
    Worker(yard).fill(2 * SEGMENT)
    compactor = Pass(yard).compactor
    now = yard.broker.begin_turn()
    while compactor.phase != AWAIT_CHECKPOINT:
        read = compactor.next_segment_read()
        if read is not None:
            read.run()
            compactor.on_segment_read(read, "")
        compactor.run_step(now, 1 << 30)
    assert not compactor.is_checkpoint_durable()
    yard.broker.end_turn()
    yard.broker.flush_journal()
    yard.run_pending()
    assert compactor.is_checkpoint_durable()


# What is read for it


def test_a_blob_must_be_there_as_a_whole(yard: SimulatedServer) -> None:
    id = done_far_apart(yard)
    at = yard.engine.job(id).payload_at
    directory = yard.disk.directory(JOURNAL)
    whole = BlobRead(directory, [(0, at, 10)])
    whole.run()
    assert whole.blobs == {at: PAYLOAD[:10]}
    with pytest.raises(OSError, match="shorter than it was"):
        BlobRead(directory, [(0, at, 64 * SEGMENT)]).run()


def test_a_head_whose_header_is_damaged_is_not_read(yard: SimulatedServer) -> None:
    done_far_apart(yard)
    directory = yard.disk.directory(JOURNAL)
    name = segment_names(directory)[0]
    content = bytearray(directory.content(name))
    content[9] ^= 1
    directory.put(name, bytes(content))
    with pytest.raises(OSError, match=name):
        SegmentScanRead(directory, 0, SEGMENT_HEADER_BYTES, REGION_BYTES, SEGMENT).run()
