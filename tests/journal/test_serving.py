"""What readers elsewhere are given of the journal: durable bytes of the segment they ask for."""

import itertools

import pytest
from support.replies_resp import command
from support.simulated import SimulatedServer

from taskyard.journal.format import SEGMENT_HEADER_BYTES, segment_name
from taskyard.journal.reader import (
    DurableSegment,
    SegmentRead,
    durable_segment,
    durable_segments_from,
)
from taskyard.journal.writer import RemoveSegments


@pytest.fixture
def yard() -> SimulatedServer:
    return SimulatedServer(segment_size=1 << 14, compaction=0)


def fill(yard: SimulatedServer, count: int = 40) -> None:
    peer = yard.connect("resp")
    for _ in range(count):
        peer.send(command("JOB.PUSH", "q", b"x" * 1000))


def read(yard: SimulatedServer, span: DurableSegment, start: int = 0, end: int = -1) -> SegmentRead:
    work = SegmentRead(yard.journal.directory, span, start, span.size if end < 0 else end)
    work.run()
    return work


def test_segments_follow_one_another_without_a_gap(yard: SimulatedServer) -> None:
    fill(yard)
    spans = durable_segments_from(yard.journal, 0)
    assert len(spans) > 2
    for before, after in itertools.pairwise(spans):
        assert before.last_seq + 1 == after.first_seq
        assert before.base + before.size == after.base
    assert spans[-1].last_seq == yard.journal.durable_seq


def test_those_before_a_record_are_left_out(yard: SimulatedServer) -> None:
    fill(yard)
    second = durable_segments_from(yard.journal, 0)[1]
    for seq in (second.first_seq, second.last_seq):
        assert durable_segments_from(yard.journal, seq)[0].base == second.base
    assert durable_segments_from(yard.journal, yard.journal.durable_seq + 1) == []


def test_the_bytes_are_those_of_the_file(yard: SimulatedServer) -> None:
    fill(yard)
    for span in durable_segments_from(yard.journal, 0):
        content = yard.journal.directory.view(segment_name(span.base)).read_at(0, span.size)
        assert read(yard, span).data == content
        assert read(yard, span, 200, 300).data == content[200:300]


@pytest.mark.parametrize("durability", ["write", "memory"])
def test_what_is_not_durable_is_not_told_of(durability: str) -> None:
    yard = SimulatedServer(durability=durability)
    fill(yard, 1)
    yard.advance(2)
    [before] = durable_segments_from(yard.journal, 0)
    fill(yard, 5)
    yard.advance(0.1)
    assert yard.journal.written > yard.journal.durable
    [after] = durable_segments_from(yard.journal, 0)
    assert (after.size, after.last_seq) == (before.size, before.last_seq)
    yard.advance(2)
    [after] = durable_segments_from(yard.journal, 0)
    assert after.last_seq == before.last_seq + 5


def test_a_segment_of_which_nothing_is_durable_is_not_there_yet(yard: SimulatedServer) -> None:
    fill(yard)
    journal = yard.journal
    last = durable_segments_from(journal, 0)[-1].base
    journal.durable_seq = journal.first_seq_of(last) - 1
    assert durable_segment(journal, last) is None
    assert durable_segments_from(journal, 0)[-1].base < last


def test_a_segment_that_was_dropped_is_gone(yard: SimulatedServer) -> None:
    fill(yard)
    span = durable_segments_from(yard.journal, 0)[0]
    yard.journal.directory.remove(segment_name(span.base))
    work = read(yard, span)
    assert work.segment_removed
    assert work.data is None


def test_a_file_that_is_used_again_is_not_read_for_the_old_segment(yard: SimulatedServer) -> None:
    """It was opened by its old name, which it has no more; then it gets another header."""
    fill(yard)
    span = durable_segments_from(yard.journal, 0)[0]
    directory = yard.journal.directory
    work = SegmentRead(directory, span, SEGMENT_HEADER_BYTES, span.size)

    class Slow:
        """The segment is dropped between the two looks at its header."""

        def __init__(self) -> None:
            self._file = directory.view(segment_name(span.base))
            self._reads = 0

        def read_at(self, offset: int, size: int) -> bytes:
            self._reads += 1
            if self._reads == 2:
                RemoveSegments(directory, [span.base], True, 1).run()
            return self._file.read_at(offset, size)

        def close(self) -> None:
            self._file.close()

    class Shown:
        def view(self, name: str) -> Slow:
            assert name == segment_name(span.base)
            return Slow()

    work = SegmentRead(Shown(), span, SEGMENT_HEADER_BYTES, span.size)  # type: ignore[arg-type]
    work.run()
    assert work.segment_removed
    assert work.data is None


def test_a_segment_that_lacks_what_was_durable_is_an_error(yard: SimulatedServer) -> None:
    fill(yard)
    span = durable_segments_from(yard.journal, 0)[0]
    yard.journal.directory.open(segment_name(span.base)).truncate(span.size - 1)
    with pytest.raises(OSError, match="shorter"):
        read(yard, span)
