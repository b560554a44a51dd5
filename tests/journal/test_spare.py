"""The next segment made in advance: used when it is there, harmless when it is not."""

from random import Random

from support.simulated import SimulatedServer

from taskyard.engine.model.state import EngineSettings, State
from taskyard.journal.identity import JournalSettings
from taskyard.journal.memory import MemoryDisk
from taskyard.journal.opening import open_journal
from taskyard.journal.segments import SPARE, PrepareSegment

SIZE = 1 << 16
PUSH = b'PUSH {"name":"a","payload":"%b"}\n' % (b"x" * 10_000)


def test_a_spare_is_a_file_of_zeros() -> None:
    disk = MemoryDisk()
    work = PrepareSegment(disk, 3_000_000)
    work.run()
    assert work.done
    assert disk.names() == [SPARE]
    assert disk.content(SPARE) == bytes(3_000_000)


def test_a_draft_that_a_crash_has_left_is_replaced() -> None:
    disk = MemoryDisk()
    disk.put("spare.new", b"half")
    PrepareSegment(disk, SIZE).run()
    assert disk.names() == [SPARE]


def test_a_spare_that_cannot_be_made_leaves_nothing() -> None:
    disk = MemoryDisk()
    disk.fail_call("write")
    work = PrepareSegment(disk, SIZE)
    work.run()
    assert not work.done
    assert disk.names() == []


def test_none_is_made_while_the_segment_is_almost_empty() -> None:
    journal, _ = open_journal(
        MemoryDisk(),
        JournalSettings(segment_size=SIZE, prepare_ahead=True),
        State(EngineSettings()),
        1,
    )
    assert journal.prepare_next_segment() is None


def test_the_next_segment_is_written_into_the_spare() -> None:
    yard = SimulatedServer(spare=True)
    journal = yard.disk.directory("journal")
    peer = yard.connect()
    while SPARE not in journal.names():
        peer.send(PUSH)
    segments = len(journal.names())
    while SPARE in journal.names():
        peer.send(PUSH)
    assert len(journal.names()) == segments
    pushed = peer.take().count(b"\n")
    yard.crash()
    peer = yard.connect()
    for number in range(1, pushed + 1):
        peer.send(b"FETCH\n")
        assert peer.read_line().startswith(b'OK {"id":%d,' % number)


def test_a_spare_of_an_earlier_run_is_used_if_it_fits() -> None:
    disk = MemoryDisk()
    PrepareSegment(disk.directory("journal"), SIZE).run()
    disk.directory("journal").sync()
    settings = JournalSettings(segment_size=SIZE, prepare_ahead=True)
    open_journal(disk, settings, State(EngineSettings()), 1)
    assert SPARE not in disk.directory("journal").names()


def test_a_spare_of_another_size_is_removed() -> None:
    disk = MemoryDisk()
    PrepareSegment(disk.directory("journal"), SIZE * 2).run()
    settings = JournalSettings(segment_size=SIZE, prepare_ahead=True)
    journal, _ = open_journal(disk, settings, State(EngineSettings()), 1)
    assert SPARE not in disk.directory("journal").names()
    journal.close()


def test_crashes_around_the_change_of_segments_lose_nothing() -> None:
    for seed in range(30):
        random = Random(seed)
        disk = MemoryDisk()
        yard = SimulatedServer(spare=True, disk=disk)
        peer = yard.connect()
        for _ in range(random.randrange(60, 160)):
            peer.send(PUSH)
        pushed = peer.take().count(b"\n")
        yard.crash(random)
        peer = yard.connect()
        for number in range(1, pushed + 1):
            peer.send(b"FETCH\n")
            assert peer.read_line().startswith(b'OK {"id":%d,' % number), seed
