"""Group commit: all that comes in one round of the loop is one frame and one sync."""

import pytest
from support.crash_state import on_disk
from support.simulated import SimulatedPeer, SimulatedServer
from support.wire import exchange

from taskyard.engine.model.job import MASENKO, READY, NewJob, Origin, Policy

PUSH = b'PUSH {"name":"a"}\n'
MEBIBYTE = 1 << 20


class Counter:
    """What has been written and synced since it was made."""

    def __init__(self, yard: SimulatedServer) -> None:
        self._yard = yard
        self._writes = yard.disk.calls("write")
        self._syncs = yard.disk.calls("sync")

    def writes(self) -> int:
        return self._yard.disk.calls("write") - self._writes

    def syncs(self) -> int:
        return self._yard.disk.calls("sync") - self._syncs


def peers_of(yard: SimulatedServer, number: int) -> list[SimulatedPeer]:
    return [yard.connect() for _ in range(number)]


@pytest.fixture(params=["inline", "thread"])
def yard(request: pytest.FixtureRequest) -> SimulatedServer:
    return SimulatedServer(inline_sync=request.param == "inline")


@pytest.fixture(params=["inline", "thread"])
def roomy(request: pytest.FixtureRequest) -> SimulatedServer:
    """With segments that the largest frame does not fill."""
    return SimulatedServer(inline_sync=request.param == "inline", segment_size=16 * MEBIBYTE)


def test_the_commands_of_many_connections_in_one_round_share_one_frame_and_one_sync(
    yard: SimulatedServer,
) -> None:
    peers = peers_of(yard, 50)
    counter = Counter(yard)
    for peer in peers:
        peer.arrive(PUSH * 3)
    assert counter.writes() == 0
    yard.run_pending()
    assert (counter.writes(), counter.syncs()) == (1, 1)
    for number, peer in enumerate(peers):
        ids = range(3 * number + 1, 3 * number + 4)
        peer.expect(b"".join(b'OK {"id":%d}\n' % id for id in ids))


def test_the_replies_of_a_connection_go_out_in_one_write(yard: SimulatedServer) -> None:
    peer = yard.connect()
    written: list[bytes] = []
    peer.witness = written.append
    peer.send(PUSH * 100 + b"PING\n")
    assert len(written) == 1
    assert written[0].count(b"\n") == 101


def test_two_rounds_are_two_frames(yard: SimulatedServer) -> None:
    peer = yard.connect()
    counter = Counter(yard)
    peer.send(PUSH)
    peer.send(PUSH)
    assert (counter.writes(), counter.syncs()) == (2, 2)


def test_commands_that_change_nothing_write_nothing(yard: SimulatedServer) -> None:
    peer = yard.connect()
    counter = Counter(yard)
    peer.send(b'PING\nINFO\nNOSUCH\nACK {"id":9}\nFETCH {"queues":[]}\nPUSH {}\n')
    assert len(peer.take().splitlines()) == 6
    yard.advance(10)
    assert (counter.writes(), counter.syncs()) == (0, 0)


def test_what_comes_while_a_sync_is_on_its_way_shares_the_next_one() -> None:
    yard = SimulatedServer(inline_sync=False)
    yard.scheduler.slow = True
    first, *others = peers_of(yard, 21)
    counter = Counter(yard)
    first.send(PUSH)
    for peer in others:
        peer.send(PUSH)
    assert (counter.writes(), len(yard.scheduler.blocking)) == (1, 1)
    yard.scheduler.finish_blocking()
    yard.run_pending()
    first.expect(b'OK {"id":1}\n')
    assert (counter.writes(), len(yard.scheduler.blocking)) == (2, 1)
    yard.scheduler.finish_blocking()
    yard.run_pending()
    for number, peer in enumerate(others):
        peer.expect(b'OK {"id":%d}\n' % (number + 2))
    assert counter.syncs() == 2


def test_a_turn_with_much_in_it_is_committed_at_once(roomy: SimulatedServer) -> None:
    """Even though others may still have something to say in this round."""
    peer = roomy.connect()
    counter = Counter(roomy)
    peer.arrive(PUSH + b'PUSH {"name":"a","payload":"%b"}\n' % (b"x" * (MEBIBYTE - 2)) * 4)
    assert counter.writes() == 1
    roomy.run_pending()
    assert (counter.writes(), counter.syncs()) == (1, 1)
    peer.expect(b"".join(b'OK {"id":%d}\n' % id for id in range(1, 6)))


def test_a_turn_with_much_in_it_that_nobody_waits_for_is_committed_at_once() -> None:
    yard = SimulatedServer(durability="memory", segment_size=16 * MEBIBYTE)
    peer = yard.connect()
    counter = Counter(yard)
    peer.arrive(b'PUSH {"name":"a","payload":"%b"}\n' % (b"x" * (MEBIBYTE - 2)) * 5)
    assert counter.writes() == 1


def test_a_frame_goes_into_a_new_segment_when_the_last_one_is_full(yard: SimulatedServer) -> None:
    peer = yard.connect()
    push = b'PUSH {"name":"a","payload":"%b"}\n' % (b"x" * 100_000)
    for number in range(1, 31):
        exchange(peer, push, b'OK {"id":%d}\n' % number)
    assert len(yard.disk.directory("journal").names()) == 3
    yard.crash()
    peer = yard.connect()
    for number in range(1, 31):
        peer.send(b"FETCH\n")
        assert peer.read_line().startswith(b'OK {"id":%d,' % number)


def test_a_transaction_is_one_frame_however_large(roomy: SimulatedServer) -> None:
    peer = roomy.connect()
    counter = Counter(roomy)
    push = b'PUSH {"name":"a","payload":"%b"}\n' % (b"x" * 500_000)
    peer.arrive(b"ATOMIC\n" + push * 20)
    roomy.run_pending()
    assert counter.writes() == 0
    peer.arrive(b"DONE\n")
    assert counter.writes() == 1
    roomy.run_pending()
    assert peer.read_line().startswith(b'OK {"ids":[1,2,3')


def test_records_of_a_turn_by_the_clock_are_written_soon(yard: SimulatedServer) -> None:
    """A delayed task wakes though nobody asks for it."""
    origin = Origin(MASENKO, "", "test")
    now = yard.clock.now()
    yard.broker.begin_turn()
    yard.engine.push(NewJob("q", "a", b"", Policy(), run_at=now + 2_000_000), origin, now)
    yard.broker.end_turn()
    yard.advance(1)
    counter = Counter(yard)
    yard.advance(1.1)
    assert (counter.writes(), counter.syncs()) == (1, 1)
    job = on_disk(yard.disk).live_job(1)
    assert job is not None
    assert job.state == READY


def test_it_is_told_when_many_jobs_have_come(roomy: SimulatedServer) -> None:
    heard: list[int] = []
    state = roomy.engine.state
    roomy.broker.on_growth(lambda: heard.append(int(state.jobs.pages_created)))
    peer = roomy.connect("resp")
    for _ in range(6):
        peer.send(b"*5002\r\n$5\r\nRPUSH\r\n$1\r\nl\r\n" + b"$1\r\na\r\n" * 5000)
    assert [made >= 256 * number for number, made in enumerate(heard, 1)] == [True]
    assert state.jobs.pages_created < 512
