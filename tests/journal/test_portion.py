"""Old records in chunks: bounded, in order, and clear about what is not there."""

from support.retaining import ORIGIN, POLICY, SEGMENT, RetainingYard

from taskyard.engine.model.job import NewJob
from taskyard.journal.format import segment_names
from taskyard.journal.identity import JOURNAL
from taskyard.journal.reader import ChunkPosition, JournalChunk


def portion(
    yard: RetainingYard, from_seq: int, limit: int = 100, place: ChunkPosition | None = None
) -> JournalChunk:
    found = JournalChunk(
        yard.disk.directory(JOURNAL), from_seq, yard.journal.durable_seq, limit, place
    )
    found.run()
    return found


def seqs(found: JournalChunk) -> list[int]:
    return [record.seq for record in found.records]


def kept_yard() -> RetainingYard:
    """One whose records are all kept, in a dozen segments."""
    yard = RetainingYard()
    yard.register("lake", 1)
    yard.work(12 * SEGMENT)
    assert yard.journal.segments > 10
    return yard


def test_portions_give_what_the_reader_gives() -> None:
    yard = kept_yard()
    found: list[int] = []
    next_seq, place = 1, None
    while next_seq <= yard.journal.durable_seq:
        work = portion(yard, next_seq, 37, place)
        assert len(work.records) <= 37
        assert work.next_seq > next_seq
        found += seqs(work)
        next_seq, place = work.next_seq, work.position
    assert found == yard.read(1)[: len(found)]
    assert next_seq == yard.journal.durable_seq + 1


def test_a_place_is_only_a_hint() -> None:
    yard = kept_yard()
    place = portion(yard, 1, 50).position
    assert place is not None
    with_hint, without = portion(yard, 51, 50, place), portion(yard, 51, 50)
    assert seqs(with_hint) == seqs(without)
    place.salt += 1  # of a file that was used again
    assert seqs(portion(yard, 51, 50, place)) == seqs(without)


def test_a_portion_ends_within_a_frame_and_goes_on_there() -> None:
    yard = RetainingYard()
    now = yard.turn()
    for _ in range(100):  # one commit
        yard.engine.push(NewJob("q", "task", b"x" * 5000, POLICY), ORIGIN, now)
    yard.end()
    first = portion(yard, 1, 40)
    assert seqs(first) == list(range(1, 41))
    assert seqs(portion(yard, first.next_seq, 100, first.position)) == list(range(41, 102))


def test_what_is_not_durable_is_not_given() -> None:
    yard = RetainingYard()
    yard.push()
    last = int(yard.journal.durable_seq)
    yard.engine.push(NewJob("q", "task", b"", POLICY), ORIGIN, yard.turn())
    yard.journal.write()
    assert seqs(portion(yard, 1))[-1] == last
    assert seqs(portion(yard, last + 1)) == []


def test_a_portion_says_that_its_beginning_was_dropped() -> None:
    yard = RetainingYard()
    yard.work(12 * SEGMENT)
    assert yard.first_seq() > 1
    work = portion(yard, 1)
    assert work.segment_removed
    assert work.records == []
    assert not portion(yard, yard.first_seq()).segment_removed


def test_damage_is_told_with_its_place() -> None:
    yard = kept_yard()
    directory = yard.disk.directory(JOURNAL)
    name = segment_names(directory)[1]
    content = bytearray(directory.content(name))
    content[5000] ^= 1
    directory.put(name, bytes(content))
    before = portion(yard, 1, 1000)
    assert name in before.damage
    assert "no intact frame stands there" in before.damage
