"""Where a flush is done: on the loop while nobody could be served meanwhile, else in the thread."""

import pytest
from support.simulated import SimulatedServer
from support.wire import exchange

from taskyard.broker.commit import SyncPlacement

PUSH = b'PUSH {"name":"a"}\n'
CROWD = 200
SLOW = 2_000  # microseconds
WARY = 20
MUCH = 262_144  # bytes


@pytest.fixture
def yard() -> SimulatedServer:
    return SimulatedServer(flushes_aside=True)


@pytest.fixture
def place(yard: SimulatedServer) -> SyncPlacement:
    return SyncPlacement(yard.broker.turn_queue, True, True)


def test_a_flush_that_few_wait_for_is_done_at_once(yard: SimulatedServer) -> None:
    yard.scheduler.slow = True  # what is given to a thread takes its time
    exchange(yard.connect(), PUSH, b'OK {"id":1}\n')
    assert not yard.scheduler.blocking


def test_many_are_served_while_the_thread_flushes(yard: SimulatedServer) -> None:
    yard.scheduler.slow = True
    crowd = [yard.connect() for _ in range(CROWD + 1)]
    for peer in crowd:
        peer.arrive(PUSH)
    yard.run_pending()
    assert len(yard.scheduler.blocking) == 1
    crowd[0].expect_nothing()
    exchange(yard.connect(), b"PING\n", b"PONG {}\n")
    yard.scheduler.finish_blocking()
    yard.run_pending()
    crowd[0].expect(b'OK {"id":1}\n')


@pytest.mark.parametrize("is_quick", [True, False])
def test_without_a_thread_of_its_own_the_disk_decides(
    yard: SimulatedServer, is_quick: bool
) -> None:
    place = SyncPlacement(yard.broker.turn_queue, is_quick, False)
    place.record_duration(SLOW + 1)
    assert [place.should_sync_inline(waiting, 1) for waiting in (1, CROWD + 1)] == [
        is_quick,
        is_quick,
    ]


def test_on_a_slow_disk_it_is_always_the_thread(yard: SimulatedServer) -> None:
    place = SyncPlacement(yard.broker.turn_queue, False, True)
    assert not place.should_sync_inline(1, 1)


def test_it_is_the_thread_while_somebody_is_in_line(
    yard: SimulatedServer, place: SyncPlacement
) -> None:
    receiver = yard.connect().receiver
    assert receiver is not None
    yard.broker.turn_queue.requeue(receiver)
    assert not place.should_sync_inline(1, 1)
    yard.run_pending()
    assert place.should_sync_inline(1, 1)


def test_a_crowd_is_remembered_for_a_few_commits(place: SyncPlacement) -> None:
    assert place.should_sync_inline(CROWD, 1)
    assert not place.should_sync_inline(CROWD + 3, 1)
    assert [place.should_sync_inline(1, 1) for _ in range(4)] == [False, False, True, True]


def test_who_waits_when_a_flush_is_over_counts_too(place: SyncPlacement) -> None:
    place.record_waiters(CROWD + 2)
    assert [place.should_sync_inline(1, 1) for _ in range(3)] == [False, True, True]


def test_after_a_slow_flush_the_disk_is_not_trusted_for_a_while(place: SyncPlacement) -> None:
    place.record_duration(SLOW)
    assert place.should_sync_inline(1, 1)
    place.record_duration(SLOW + 1)
    assert [place.should_sync_inline(1, 1) for _ in range(WARY + 1)] == [False] * WARY + [True]


def test_much_is_left_to_the_thread(place: SyncPlacement) -> None:
    assert [place.should_sync_inline(1, size) for size in (MUCH, MUCH + 1)] == [True, False]


@pytest.mark.parametrize("took", [SLOW, SLOW + 1])
def test_a_slow_disk_is_noticed_where_it_holds_up_the_loop(
    yard: SimulatedServer, took: int
) -> None:
    """Each look at the clock takes that long here, as a flush does in life."""
    peer = yard.connect()
    real_now = yard.clock.now

    def slow_now() -> int:
        yard.clock.time += took
        return real_now()

    yard.clock.now = slow_now  # type: ignore[method-assign]
    exchange(peer, PUSH, b'OK {"id":1}\n')
    yard.scheduler.slow = True
    peer.send(PUSH)
    assert len(yard.scheduler.blocking) == (took > SLOW)


def test_the_disk_is_not_judged_by_when_the_loop_hears_of_the_thread(yard: SimulatedServer) -> None:
    crowd = [yard.connect() for _ in range(CROWD + 1)]
    yard.scheduler.slow = True
    for peer in crowd:
        peer.arrive(PUSH)
    yard.run_pending()
    yard.advance(1)
    yard.scheduler.finish_blocking()
    yard.run_pending()
    for _ in range(3):  # until the crowd is forgotten
        crowd[0].send(PUSH)
        if yard.scheduler.blocking:
            yard.scheduler.finish_blocking()
            yard.run_pending()
    crowd[0].take()
    exchange(crowd[0], PUSH, b'OK {"id":%d}\n' % (CROWD + 5))


def test_who_comes_after_a_crowds_flush_shares_the_next_one(yard: SimulatedServer) -> None:
    yard.scheduler.slow = True
    crowd = [yard.connect() for _ in range(CROWD + 2)]
    late = yard.connect()
    for peer in crowd[:-1]:
        peer.arrive(PUSH)
    yard.run_pending()
    crowd[-1].send(PUSH)  # while the thread flushes
    yard.scheduler.finish_blocking()
    writes = yard.disk.calls("write")
    while not crowd[0].take():
        assert yard.scheduler.step()
    assert yard.disk.calls("write") == writes
    late.arrive(PUSH)
    yard.run_pending()
    assert yard.disk.calls("write") == writes + 1
    yard.scheduler.finish_blocking()
    yard.run_pending()
    late.expect(b'OK {"id":%d}\n' % (CROWD + 3))
