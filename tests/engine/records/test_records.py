"""Records: each kind comes back from its bytes, and damage is always noticed as such."""

import pytest
from engine.harness import ORIGIN, SALT, Bench, decode, property_settings
from hypothesis import given
from hypothesis import strategies as st
from support.carries import SNAPSHOT_EXAMPLES, a_schedule, flat

from taskyard.engine.model.events import CorruptRecord
from taskyard.engine.model.job import API, SYSTEM_ORIGIN, NewJob, Notify, Origin, Policy
from taskyard.engine.model.queue import QueueSettings
from taskyard.engine.model.state import BatchConsumer, EngineSettings, State
from taskyard.engine.records import entities as s
from taskyard.engine.records import entities as t
from taskyard.engine.records import job_changes as j
from taskyard.engine.records import job_lifecycle as r
from taskyard.engine.records import snapshots as c
from taskyard.engine.records.decode import Decoder
from taskyard.engine.records.log import RecordBuffer
from taskyard.engine.records.replay import apply_record
from taskyard.engine.records.snapshots import TombstonesSnapshot

POLICY = Policy(1, 2, -1, 4, 2, 6, 7, "dead", True)
FULL = NewJob(
    "q",
    "name",
    b"payload",
    POLICY,
    -5,
    123,
    1,
    True,
    2**64 - 1,
    b"u" * 16,
    b"key",
    [1, 2],
    Notify(3, 2**64 - 1, 127),
    b"limit",
)
SETTINGS = QueueSettings(True, True, 1, 2, 3, 2, 5, 6, 7, 8, 1, True, *range(9, 17))
LIMITS_SIZE = 8 * 8  # what version 2 of a queue's settings has more

EXAMPLES: list[r.Record] = [
    *SNAPSHOT_EXAMPLES,
    r.BootRecord(1, ORIGIN, 2, "1.0"),
    r.BootRecord(1, ORIGIN, 1002, "1.0, restored", 1 << 40),
    r.PushRecord(1, ORIGIN, 7, b"q", FULL, [1, 2]),
    r.PushRecord(1, ORIGIN, 7, b"q", NewJob("q", "name", b"", Policy())),
    r.LeaseRecord(1, ORIGIN, 7, b"q", 9, True, 2**32 - 2, 2**32 - 1, 99),
    r.FinishRecord(1, ORIGIN, 7, b"q", 3, r.COMPLETED, 55, b"u" * 16, b"result"),
    r.FinishRecord(1, ORIGIN, 7, b"q", 3, r.POPPED),
    r.FinishRecord(1, ORIGIN, 7, b"q", 3, r.ACKED, 0, b"u" * 16, b"result", b"p" * 16),
    j.RetryRecord(1, ORIGIN, 7, b"q", 3, 55, True, b"error"),
    j.ReleaseRecord(1, ORIGIN, 7, b"q", 3, r.RESTARTED, True),
    j.FailRecord(1, ORIGIN, 7, b"q", 3, True, "reason", "dead", b"error"),
    r.LeaseRecord(1, ORIGIN, 7, b"q", 9, False, 3, 4, 0),
    j.RetryRecord(1, ORIGIN, 7, b"q", 3, 0, False),
    j.ReleaseRecord(1, ORIGIN, 7, b"q", 3, r.LOST, False),
    j.FailRecord(1, ORIGIN, 7, b"q", 3, False, "", ""),
    j.MoveRecord(1, ORIGIN, 7, b"q", b"other", False),
    j.ReplayRecord(1, ORIGIN, 7, b"q", False),
    j.WakeRecord(1, ORIGIN, 7, b"q"),
    j.UnblockRecord(1, ORIGIN, 7, b"q", 6),
    j.RemoveRecord(1, ORIGIN, 7, b"q", r.RETENTION_OVER, True, b"u" * 16),
    j.RemoveRecord(1, ORIGIN, 7, b"q", r.DELETED, False, None),
    j.RemoveRecord(1, ORIGIN, 7, b"q", r.RETENTION_OVER, True, b"u" * 16, b"p" * 16),
    j.MoveRecord(1, ORIGIN, 7, b"q", b"other", True),
    j.RescoreRecord(1, ORIGIN, 7, b"q", -(2**63)),
    j.ExtendRecord(1, ORIGIN, 7, b"q", 3, 2**63 - 1),
    j.ReplayRecord(1, ORIGIN, 7, b"q", True),
    j.ProgressRecord(1, ORIGIN, 7, b"q", 3, 1000, "näher" * 100),
    s.QueueSet(1, ORIGIN, b"q", SETTINGS),
    s.QueueGone(1, ORIGIN, b"q"),
    s.ValueSet(1, ORIGIN, b"key", 99, False, b"value"),
    s.ValueSet(1, ORIGIN, b"key", 0, True),
    s.ValueGone(1, ORIGIN, b"key"),
    s.SessionChange(1, ORIGIN, 5, r.DELIVERED, 8),
    s.BatchRecord(
        1, ORIGIN, "consumer", 9, 2, 2**32 - 1, 99, [7, 8, 9], [b"q", b"p"], [2, 1], [1, 2, 3]
    ),
    s.BatchRecord(1, ORIGIN, "consumer", 9, 2, 3, 99, [7], [b"q"], [1], [1], "ada"),
    s.BatchDone(1, ORIGIN, "consumer", 2, dropped=True),
    s.BatchDone(1, ORIGIN, "consumer", 2, expired=True),
    s.ForgetUids(1, ORIGIN, 3),
    s.ReaderSet(1, ORIGIN, "reader", 7, 99),
    s.ReaderGone(1, ORIGIN, "reader"),
    t.ScheduleSet(1, ORIGIN, a_schedule()),
    t.ScheduleGone(1, ORIGIN, "nightly", b"q"),
    t.ScheduleTick(1, ORIGIN, "nightly", b"q", 99, 1, 7, 3, 2**63 - 1),
]


def encode(*records: r.Record, base: int = 0) -> bytes:
    log = RecordBuffer(1, base)
    for record in records:
        log.append(record)
    return log.drain(0)


def name_of(record: r.Record) -> str:
    return type(record).__name__


@pytest.mark.parametrize("record", EXAMPLES, ids=name_of)
def test_a_record_comes_back_from_its_bytes(record: r.Record) -> None:
    (found,) = decode(encode(record, base=1000), 1000)
    if isinstance(record, r.PushRecord) and isinstance(found, r.PushRecord):
        assert flat(found.job.policy) == flat(record.job.policy)
        names = ("name", "priority", "run_at", "content", "front", "ttl_ms", "uid", "key")
        for name in (*names, "limit_key"):
            assert getattr(found.job, name) == getattr(record.job, name)
        assert flat(found.job.notify) == flat(record.job.notify)
        assert found.blockers == record.blockers
        found.job = record.job
    found.seq = record.seq
    assert flat(found) == flat(record)


def test_every_kind_of_record_is_tried() -> None:
    assert {record.kind() for record in EXAMPLES} == set(r.EVENT_NAMES)


def older(data: bytes, version: int) -> bytes:
    """The same record, said to be of another version."""
    return data[:5] + bytes([version]) + data[6:]


def test_settings_of_an_older_server_have_no_limits() -> None:
    data = encode(s.QueueSet(1, ORIGIN, b"q", SETTINGS))
    end = len(data) - 4  # the size of a blob that is not there
    fields = data[4 : end - LIMITS_SIZE] + data[end:]
    (found,) = decode(older(len(fields).to_bytes(4, "little") + fields, 1), 0)
    assert isinstance(found, s.QueueSet)
    old = QueueSettings(True, True, 1, 2, 3, 2, 5, 6, 7, 8, 1, True)
    assert flat(found.settings) == flat(old)


def cut(data: bytes, size: int) -> bytes:
    """A record of version 1 that lacks the last `size` bytes of this one's fields."""
    end = len(data) - 4  # the size of a blob that is not there
    fields = data[4 : end - size] + data[end:]
    return older(len(fields).to_bytes(4, "little") + fields, 1)


def test_a_queue_that_an_older_server_carried_has_no_limits() -> None:
    record = c.QueueSnapshot(1, ORIGIN, b"q", 3, SETTINGS, [5, 6], 99)
    (found,) = decode(cut(encode(record), LIMITS_SIZE + 8), 0)
    assert isinstance(found, c.QueueSnapshot)
    assert (found.number, found.counters, found.tat) == (3, [5, 6], 0)
    old = QueueSettings(True, True, 1, 2, 3, 2, 5, 6, 7, 8, 1, True)
    assert flat(found.settings) == flat(old)


def test_a_batch_of_an_older_server_does_not_say_which_attempts_these_are() -> None:
    record = s.BatchRecord(1, ORIGIN, "c", 9, 2, 3, 99, [7, 8], [b"q"], [2], [1, 5])
    (found,) = decode(cut(encode(record), 2 * 4), 0)
    assert isinstance(found, s.BatchRecord)
    assert (found.ids, found.queues, found.counts) == ([7, 8], [b"q"], [2])
    assert found.attempts == [0, 0]


def test_a_consumer_that_an_older_server_carried_has_its_jobs() -> None:
    consumer = BatchConsumer("c", 9)
    consumer.ids.extend([7, 8])
    consumer.attempts.extend([1, 5])
    consumer.queues = {b"q": None}
    data = encode(c.ConsumerSnapshot(1, ORIGIN, consumer))
    (found,) = decode(cut(data, 2 * 4 + 4 + 3), 0)
    assert isinstance(found, c.ConsumerSnapshot)
    assert [*found.consumer.ids] == [7, 8]
    assert [*found.consumer.attempts] == [0, 0]
    assert found.consumer.queues == {}


def test_a_consumer_of_an_older_server_is_nobodys() -> None:
    record = s.BatchRecord(1, ORIGIN, "c", 9, 2, 3, 99, [7], [b"q"], [1], [1], "ada")
    (found,) = decode(older(cut(encode(record), 2 + 3), 2), 0)
    assert isinstance(found, s.BatchRecord)
    assert (found.attempts, found.consumer_user) == ([1], "")
    consumer = BatchConsumer("c", 9)
    consumer.queues = {b"q": None}
    consumer.user = "ada"
    (carried,) = decode(older(cut(encode(c.ConsumerSnapshot(1, ORIGIN, consumer)), 2 + 3), 2), 0)
    assert isinstance(carried, c.ConsumerSnapshot)
    assert (carried.consumer.queues, carried.consumer.user) == ({b"q": None}, "")


def test_a_push_without_a_limit_key_can_be_read_by_older_servers() -> None:
    plain = NewJob("q", "name", b"", Policy())
    assert encode(r.PushRecord(1, ORIGIN, 7, b"q", plain))[5] == 1
    assert encode(r.PushRecord(1, ORIGIN, 7, b"q", FULL))[5] == 2


@pytest.mark.parametrize("record", EXAMPLES, ids=name_of)
def test_a_version_that_is_not_known_is_refused(record: r.Record) -> None:
    for version in (0, 9):
        with pytest.raises(CorruptRecord, match="version"):
            decode(older(encode(record), version), 0)


def test_records_have_a_sequence_number_each() -> None:
    log = RecordBuffer(41)
    records = EXAMPLES[:3]
    for record in records:
        log.append(record)
    assert [record.seq for record in records] == [41, 42, 43]
    assert log.next_seq == 44


@pytest.mark.parametrize("record", EXAMPLES, ids=name_of)
def test_a_record_cut_off_at_any_byte_is_noticed(record: r.Record) -> None:
    data = encode(record)
    for size in range(len(data)):
        with pytest.raises(CorruptRecord):
            Decoder(True).read(data[:size], 0, 0)


@pytest.mark.parametrize("record", EXAMPLES, ids=name_of)
def test_a_record_whose_size_was_shortened_is_noticed(record: r.Record) -> None:
    """The bytes are there, but they are said to belong to the next record."""
    data = encode(record)
    for size in range(len(data) - 4):
        with pytest.raises(CorruptRecord):
            Decoder(True).read(size.to_bytes(4, "little") + data[4:], 0, 0)


@given(st.sampled_from(EXAMPLES), st.data())
@property_settings
def test_damaged_bytes_are_read_or_refused_but_nothing_else(
    record: r.Record, data: st.DataObject
) -> None:
    damaged = bytearray(encode(record))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(damaged) - 1))
        damaged[at] = data.draw(st.integers(0, 255))
    state = State(EngineSettings())
    try:
        for found in decode(bytes(damaged), 0):
            apply_record(state, found)
    except CorruptRecord:
        pass


@given(st.binary(max_size=200))
@property_settings
def test_garbage_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptRecord):
        Decoder(True).read(len(data).to_bytes(4, "little") + data, 0, 0)


@pytest.mark.parametrize("kind", [0, 50, 63, 100, 255])
def test_an_unknown_kind_is_refused(kind: int) -> None:
    data = bytearray(encode(r.BootRecord(1, ORIGIN, 2, "1.0")))
    data[4] = kind
    with pytest.raises(CorruptRecord, match="unknown kind"):
        Decoder(True).read(bytes(data), 0, 0)


@pytest.mark.parametrize("version", [0, 3, 255])
def test_an_unknown_version_is_refused(version: int) -> None:
    data = bytearray(encode(r.BootRecord(1, ORIGIN, 2, "1.0")))
    data[5] = version
    with pytest.raises(CorruptRecord, match="unknown version"):
        Decoder(True).read(bytes(data), 0, 0)


NEEDS_NOTHING = (
    r.BootRecord,
    r.PushRecord,
    s.QueueSet,
    s.ValueSet,
    s.ForgetUids,
    s.ReaderSet,
    t.ScheduleSet,
    TombstonesSnapshot,
)
NEEDS_SOMETHING = [record for record in EXAMPLES if not isinstance(record, NEEDS_NOTHING)]


@pytest.mark.parametrize("record", NEEDS_SOMETHING, ids=name_of)
def test_a_record_that_does_not_fit_what_came_before_is_refused(record: r.Record) -> None:
    with pytest.raises(CorruptRecord):
        apply_record(State(EngineSettings()), record)


def test_a_reader_may_leave_the_blobs_where_they_are() -> None:
    data = encode(r.FinishRecord(1, ORIGIN, 7, b"q", 3, r.COMPLETED, result=b"result"), base=500)
    record = Decoder(False).read(data, 0, 500)
    assert record.blob == b""
    assert record.blob_size == 6
    assert data[record.blob_at - 500 :][:6] == b"result"


def test_blobs_can_be_found_in_the_log_before_they_are_written() -> None:
    log = RecordBuffer(1, 4096)
    record = s.ValueSet(1, ORIGIN, b"key", 0, False, b"value")
    log.append(record)
    assert log.unwritten_blob(record.blob_at) == b"value"
    assert log.unwritten_blob(record.blob_at + 1) is None
    assert log.unwritten_blob(record.blob_at - 1) is None
    data = log.drain(8192)
    assert data[record.blob_at - 4096 :] == b"value"
    assert log.unwritten_blob(record.blob_at) is None


def test_the_mark_is_what_must_be_durable_for_all_so_far() -> None:
    log = RecordBuffer(1, 100)
    assert log.end_position() == 100
    log.append(EXAMPLES[0])
    end = 100 + log.size()
    assert log.end_position() == end
    log.drain(500)
    assert log.end_position() == end  # nothing new: the bytes between are the next frame's head
    log.append(EXAMPLES[0])
    assert log.end_position() == 500 + log.size()


@pytest.mark.parametrize("text", ["", "worker", "x" * 300, "é" * 200, "\ud800"])
def test_who_caused_a_record_is_remembered_in_255_bytes(text: str) -> None:
    origin = Origin(API, text, text)
    (found,) = decode(encode(r.BootRecord(1, origin, 1, "")), 0)
    assert found.origin.user == origin.user
    assert found.origin.holder == origin.holder
    assert len(origin.user.encode()) <= 255
    assert len(text) > 127 or "\ud800" in text or origin.user == text


def test_replaying_the_journal_needs_no_blobs(bench: Bench) -> None:
    job = bench.push(payload=b"payload")
    bench.take()
    bench.engine.complete(job.id, b"result", ORIGIN, bench.now)
    state = bench.rebuild()
    found = state.jobs.get(job.id)
    assert found is not None
    assert bench.read(found.payload_at, found.payload_size) == b"payload"


def test_the_system_itself_is_an_origin() -> None:
    assert SYSTEM_ORIGIN.encoded == b"\x00\x00\x00"
    assert len(SALT) == 16
