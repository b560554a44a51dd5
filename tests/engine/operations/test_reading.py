"""Readers of the journal: named, with a position that only moves forwards, and a lease."""

import pytest
from engine.harness import ORIGIN, Bench, decode
from support.snapshot import snapshot

from taskyard.engine import compaction
from taskyard.engine.model.events import InvalidOption, NoSpace, ReaderNotFound, ReadOnly
from taskyard.engine.model.job import SECOND, SYSTEM_ORIGIN
from taskyard.engine.operations.room import JournalSpace
from taskyard.engine.records.describe import describe
from taskyard.engine.records.entities import ReaderGone, ReaderSet
from taskyard.engine.records.job_lifecycle import EVENT_NAMES, Record
from taskyard.engine.records.log import RecordBuffer
from taskyard.engine.records.snapshots import ReaderSnapshot
from taskyard.engine.structures.index import READER_RECORD_BYTES

DAY = 86_400 * SECOND


RECORDS = [
    ReaderSet(1, ORIGIN, "läke", 2**62, 2**63 - 1),
    ReaderGone(1, ORIGIN, "lake"),
    ReaderSnapshot(1, SYSTEM_ORIGIN, "lake", 7, 99),
]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_its_records_come_back_from_their_bytes(record: Record) -> None:
    log = RecordBuffer(5, 1000)
    log.append(record)
    read = decode(log.drain(0), 1000, 5)[0]
    assert type(read) is type(record)
    assert describe(read, True) == describe(record, True)
    assert describe(read, True)["event"] == EVENT_NAMES[record.kind()]


def register(bench: Bench, name: str = "lake", next_seq: int = 1, lease: int = DAY) -> None:
    bench.engine.register_reader(name, next_seq, lease, ORIGIN, bench.now)


def commit(bench: Bench, name: str = "lake", next_seq: int = 1, lease: int = DAY) -> None:
    bench.engine.commit_reader(name, next_seq, lease, ORIGIN, bench.now)


def position(bench: Bench, name: str = "lake") -> tuple[int, int]:
    reader = bench.engine.reader(name)
    assert reader is not None
    return reader.next_seq, reader.lease_until


def test_a_reader_is_where_it_says_and_stays_there(bench: Bench) -> None:
    register(bench, next_seq=2)
    assert position(bench) == (2, bench.now + DAY)
    until = bench.now + DAY
    bench.restart()
    assert position(bench) == (2, until)


def test_a_commit_moves_it_and_renews_the_lease(bench: Bench) -> None:
    register(bench)
    bench.advance_clock(5 * SECOND)
    commit(bench, next_seq=2, lease=SECOND)
    assert position(bench) == (2, bench.now + SECOND)
    commit(bench, next_seq=2)
    assert position(bench) == (2, bench.now + DAY)


def test_a_commit_does_not_go_back(bench: Bench) -> None:
    register(bench, next_seq=2)
    with pytest.raises(InvalidOption, match="next_seq: lake is at 2 already"):
        commit(bench, next_seq=1)
    assert position(bench)[0] == 2


def test_one_that_comes_back_is_where_it_was(bench: Bench) -> None:
    register(bench, next_seq=2, lease=SECOND)
    bench.advance_clock(DAY)
    register(bench, next_seq=1)
    assert position(bench) == (2, bench.now + DAY)
    register(bench, next_seq=3)
    assert position(bench)[0] == 3
    assert list(bench.engine.state.readers) == ["lake"]


def test_a_lapsed_lease_takes_nothing_away(bench: Bench) -> None:
    register(bench, next_seq=2, lease=SECOND)
    before = bench.engine.records.next_seq
    bench.advance_clock(DAY)
    assert bench.engine.records.next_seq == before
    commit(bench, next_seq=2)
    assert position(bench) == (2, bench.now + DAY)


def test_a_dropped_reader_is_gone(bench: Bench) -> None:
    register(bench)
    bench.engine.drop_reader("lake", ORIGIN, bench.now)
    assert bench.engine.reader("lake") is None
    assert bench.engine.state.live_bytes.unplaced == 0
    bench.restart()
    assert bench.engine.reader("lake") is None


def test_an_unknown_reader_can_do_nothing(bench: Bench) -> None:
    with pytest.raises(ReaderNotFound):
        commit(bench)
    with pytest.raises(ReaderNotFound):
        bench.engine.drop_reader("lake", ORIGIN, bench.now)


@pytest.mark.parametrize("name", ["", "a b", "x" * 256, "a\n"])
def test_names_are_those_of_queues(bench: Bench, name: str) -> None:
    with pytest.raises(InvalidOption, match="reader"):
        register(bench, name)


@pytest.mark.parametrize("lease", [0, SECOND - 1, 366 * DAY + 1, -1])
def test_a_lease_has_bounds(bench: Bench, lease: int) -> None:
    with pytest.raises(InvalidOption, match="lease"):
        register(bench, lease=lease)
    register(bench)
    with pytest.raises(InvalidOption, match="lease"):
        commit(bench, lease=lease)


def test_a_position_is_not_behind_the_end(bench: Bench) -> None:
    end = bench.engine.records.next_seq
    for wrong in (0, -1, end + 1):
        with pytest.raises(InvalidOption, match="next_seq"):
            register(bench, next_seq=wrong)
    register(bench, next_seq=end)
    assert position(bench)[0] == end


def test_readers_weigh_what_they_take(bench: Bench) -> None:
    register(bench)
    register(bench)
    commit(bench, next_seq=2)
    assert bench.engine.state.live_bytes.unplaced == READER_RECORD_BYTES + len("lake")
    assert bench.engine.state.entity_counts()[5] == 1


def test_nothing_is_taken_when_nothing_can_be_promised(bench: Bench) -> None:
    register(bench)
    bench.engine.read_only_reason = "broken"
    for call in (register, commit):
        with pytest.raises(ReadOnly):
            call(bench)
    with pytest.raises(ReadOnly):
        bench.engine.drop_reader("lake", ORIGIN, bench.now)


def test_without_room_no_reader_is_added_and_those_there_go_on(bench: Bench) -> None:
    register(bench)
    room = JournalSpace()
    room.push_refusal = "full"
    bench.engine.journal_space = room
    with pytest.raises(NoSpace, match="full"):
        register(bench, "other")
    commit(bench, next_seq=2)
    register(bench, next_seq=3)
    assert position(bench)[0] == 3


def test_a_carried_reader_is_known_to_a_replay_from_there(bench: Bench) -> None:
    register(bench, next_seq=2)
    register(bench, "gone")
    bench.collect()
    base = bench.engine.records.start_position
    bench.engine.drop_reader("gone", ORIGIN, bench.now)
    for reader in bench.engine.state.readers.values():
        compaction.snapshot_reader(bench.engine, reader, bench.now)
    compaction.write_checkpoint(bench.engine, base, bench.now)
    state = bench.replay(base)
    assert not state.is_partial_replay
    assert state.replay_start == base
    assert snapshot(state) == snapshot(bench.engine.state)
    assert state.readers["lake"].record_seq == bench.engine.state.readers["lake"].record_seq
