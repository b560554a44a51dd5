"""On a slow disk a flush waits a moment for those whom the one before it has answered."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.simulated import SimulatedPeer, SimulatedServer

PUSH = b'PUSH {"name":"a"}\n'
FLUSH = 2_000  # microseconds
PATIENCE = FLUSH * 3 // 4
LONG = 12_000  # a flush that lets others wait longer than records that nobody waits for
LONG_PATIENCE = LONG * 3 // 4
MOST = 10_000  # that anybody is waited for
REST = 32
MEBIBYTE = 1 << 20


@pytest.fixture
def yard() -> SimulatedServer:
    yard = SimulatedServer(inline_sync=False, segment_size=16 * MEBIBYTE)
    yard.scheduler.slow = True
    return yard


def push(yard: SimulatedServer, *peers: SimulatedPeer) -> None:
    """In one round of the loop."""
    for peer in peers:
        peer.arrive(PUSH)
    yard.run_pending()


def end_flush(yard: SimulatedServer, took: int = FLUSH) -> None:
    yard.scheduler.advance(took)
    yard.scheduler.finish_blocking()
    yard.run_pending()


def is_flushing(yard: SimulatedServer) -> bool:
    return bool(yard.scheduler.blocking)


def are_answered(*peers: SimulatedPeer) -> bool:
    return all(peer.take().startswith(b"OK ") for peer in peers)


def prompt_pair(yard: SimulatedServer, took: int = FLUSH) -> tuple[SimulatedPeer, SimulatedPeer]:
    """Two that wait for the flush that goes on, and came back at once after the one before."""
    one, other = yard.connect(), yard.connect()
    push(yard, one, other)
    end_flush(yard, took)
    push(yard, one, other)
    end_flush(yard, took)
    push(yard, one, other)
    assert are_answered(one, other)
    assert is_flushing(yard)
    return one, other


def test_who_comes_meanwhile_shares_the_next_flush_with_who_was_answered(
    yard: SimulatedServer,
) -> None:
    one, other = prompt_pair(yard)
    newcomer = yard.connect()
    push(yard, newcomer)
    end_flush(yard)
    assert are_answered(one, other)
    assert not is_flushing(yard)
    push(yard, one)
    assert not is_flushing(yard)
    push(yard, other)
    assert is_flushing(yard)
    end_flush(yard)
    assert are_answered(one, other, newcomer)


def test_who_comes_just_as_a_flush_is_over_does_not_begin_the_next_one(
    yard: SimulatedServer,
) -> None:
    prompt_pair(yard)
    newcomer = yard.connect()
    yard.scheduler.advance(FLUSH)
    yard.scheduler.finish_blocking()
    push(yard, newcomer)  # in the round in which the loop hears of the flush
    assert not is_flushing(yard)


def test_nobody_is_waited_for_while_there_is_enough_to_do(yard: SimulatedServer) -> None:
    prompt_pair(yard)
    busy = yard.connect()
    yard.scheduler.advance(FLUSH)
    yard.scheduler.finish_blocking()
    busy.arrive(PUSH * 100)  # more than one turn, before the loop hears of the flush
    yard.run_pending()
    assert is_flushing(yard)


def test_nobody_is_waited_for_longer_than_three_quarters_of_a_flush(yard: SimulatedServer) -> None:
    one, _ = prompt_pair(yard)
    end_flush(yard)
    push(yard, one)
    yard.scheduler.advance(PATIENCE - 1)
    assert not is_flushing(yard)
    yard.scheduler.advance(1)
    assert is_flushing(yard)


@pytest.mark.parametrize("took", [1_000, 1_001])
def test_a_quick_flush_is_followed_by_the_next_one_at_once(
    yard: SimulatedServer, took: int
) -> None:
    prompt_pair(yard, took)
    push(yard, yard.connect())
    end_flush(yard, took)
    assert is_flushing(yard) == (took == 1_000)


def test_a_disk_that_stood_still_for_once_is_not_slow(yard: SimulatedServer) -> None:
    one, other = prompt_pair(yard)
    end_flush(yard, 300)
    push(yard, one, other, yard.connect())
    push(yard, yard.connect())  # for the next one
    end_flush(yard, 60_000)
    assert is_flushing(yard)


def test_who_came_late_is_not_waited_for_until_it_is_prompt_again(yard: SimulatedServer) -> None:
    quick, slow = prompt_pair(yard)
    end_flush(yard)
    push(yard, quick)
    yard.scheduler.advance(PATIENCE + 1)
    push(yard, slow)
    end_flush(yard)
    push(yard, quick)
    assert is_flushing(yard)  # with the slow one's, which came meanwhile
    end_flush(yard)
    push(yard, quick)
    assert is_flushing(yard)  # though the slow one was answered, too, and is not back
    push(yard, slow)  # at once, this time
    end_flush(yard)
    push(yard, quick)
    end_flush(yard)
    push(yard, slow)
    assert not is_flushing(yard)
    push(yard, quick)
    assert is_flushing(yard)


@pytest.mark.parametrize("count", [1, 2])
def test_if_most_do_not_come_in_time_nobody_is_waited_for_for_a_while(
    yard: SimulatedServer, count: int
) -> None:
    """Of three; two crowds are better then, since it takes long to serve all of them."""
    crowd = [yard.connect() for _ in range(3)]
    for _ in range(2):
        push(yard, *crowd)
        end_flush(yard)
    push(yard, *crowd)
    end_flush(yard)
    back = crowd[:count]
    assert are_answered(*back)
    push(yard, *back)
    yard.scheduler.advance(PATIENCE)
    waited: list[bool] = []
    for _ in range(REST + 2):
        push(yard, yard.connect())  # during the flush
        end_flush(yard)
        waited.append(not is_flushing(yard))
        push(yard, *[peer for peer in back if peer.take()])
    assert waited[:REST] == [count > 1] * REST
    assert any(waited[REST:])


def test_who_is_not_waited_for_does_not_stand_in_for_others(yard: SimulatedServer) -> None:
    one, other = prompt_pair(yard)
    late = yard.connect()
    push(yard, late)
    end_flush(yard)
    push(yard, one, other)
    end_flush(yard)
    push(yard, late)  # for the first time soon after an answer
    push(yard, one)
    assert not is_flushing(yard)
    push(yard, other)
    assert is_flushing(yard)


def test_who_comes_after_its_convoy_does_not_stand_in_for_others_of_the_next(
    yard: SimulatedServer,
) -> None:
    one, other, slow = yard.connect(), yard.connect(), yard.connect()
    for _ in range(2):
        push(yard, one, other, slow)
        end_flush(yard)
    push(yard, one, other, slow)
    end_flush(yard)
    push(yard, one, other)
    yard.scheduler.advance(PATIENCE)
    end_flush(yard)
    push(yard, slow)
    push(yard, one)
    assert not is_flushing(yard)


def test_who_connects_and_pushes_once_is_not_waited_for(yard: SimulatedServer) -> None:
    push(yard, yard.connect())
    for _ in range(5):
        push(yard, yard.connect())  # during the flush for the one before
        end_flush(yard)
        assert is_flushing(yard)


def test_who_left_during_the_flush_is_not_waited_for(yard: SimulatedServer) -> None:
    stays, leaves = prompt_pair(yard)
    leaves.close()
    end_flush(yard)
    push(yard, stays)
    assert is_flushing(yard)


def test_who_said_good_bye_is_not_waited_for(yard: SimulatedServer) -> None:
    stays, leaves = prompt_pair(yard)
    leaves.send(b"QUIT\n")
    end_flush(yard)
    push(yard, stays)
    assert is_flushing(yard)


def test_the_wait_is_over_when_the_last_one_leaves(yard: SimulatedServer) -> None:
    stays, leaves = prompt_pair(yard)
    end_flush(yard)
    push(yard, stays)
    assert not is_flushing(yard)
    leaves.close()
    assert is_flushing(yard)


def test_who_leaves_after_it_came_back_does_not_stand_in_for_others(yard: SimulatedServer) -> None:
    leaves, other = prompt_pair(yard)
    end_flush(yard)
    push(yard, leaves)
    leaves.close()
    assert not is_flushing(yard)
    push(yard, other)
    assert is_flushing(yard)


def test_nobody_is_waited_for_longer_than_clients_take(yard: SimulatedServer) -> None:
    one, _ = prompt_pair(yard, 10 * MOST)
    end_flush(yard, 10 * MOST)
    push(yard, one)
    yard.scheduler.advance(MOST - 1)
    assert not is_flushing(yard)
    yard.scheduler.advance(1)
    assert is_flushing(yard)


def test_where_the_disk_was_quick_at_the_start_nobody_is_waited_for() -> None:
    """Flushes are on the loop there, but for a few."""
    yard = SimulatedServer(inline_sync=True, flushes_aside=True, segment_size=16 * MEBIBYTE)
    yard.scheduler.slow = True
    crowd = [yard.connect() for _ in range(201)]
    for _ in range(4):
        push(yard, *crowd)
        assert is_flushing(yard)
        end_flush(yard)
        assert are_answered(*crowd)
    push(yard, crowd[0])
    assert are_answered(crowd[0])


def test_to_wait_for_others_counts_as_the_disks_time(yard: SimulatedServer) -> None:
    one, _ = prompt_pair(yard, LONG)
    end_flush(yard, LONG)
    yard.broker.slow_commands.threshold_us = LONG
    push(yard, one)
    yard.scheduler.advance(LONG_PATIENCE)
    end_flush(yard, LONG)
    slow = yard.broker.slow_commands.newest_first()[0]
    assert (slow.duration_us, slow.processing_us, slow.disk_us) == (
        LONG + LONG_PATIENCE,
        0,
        LONG + LONG_PATIENCE,
    )


def test_what_follows_when_nobody_was_waited_for_counts_as_before(yard: SimulatedServer) -> None:
    one, other = prompt_pair(yard)
    end_flush(yard)
    push(yard, one, other)
    end_flush(yard, 300)
    yard.broker.slow_commands.threshold_us = LONG
    one.arrive(PUSH)
    yard.clock.time += LONG  # the round of the loop takes that long
    yard.run_pending()
    end_flush(yard, 300)
    slow = yard.broker.slow_commands.newest_first()[0]
    assert (slow.duration_us, slow.processing_us, slow.disk_us) == (LONG + 300, LONG, 300)


@settings(max_examples=60, deadline=None)
@given(st.randoms(use_true_random=False))
def test_nobody_waits_without_an_end_in_sight(random: Random) -> None:
    """Whoever waits, waits for a flush, for a round of the loop, or for others until a certain
    time; and gets all answers in the end."""
    yard = SimulatedServer(
        inline_sync=False,
        segment_size=16 * MEBIBYTE,
        output_limit=random.choice([150, MEBIBYTE]),
    )
    yard.scheduler.slow = True
    peers = [yard.connect() for _ in range(4)]
    sent = dict.fromkeys(peers, 0)
    for _ in range(150):
        step = random.randrange(10)
        if step < 5:
            peer = random.choice(list(sent))
            count = random.choice([1, 1, 3, 40])
            peer.arrive(PUSH * count)
            sent[peer] += count
        elif step < 8 and is_flushing(yard):
            yard.scheduler.advance(random.choice([500, 2_500, 5_000]))
            yard.scheduler.finish_blocking()
        elif step < 9:
            yard.scheduler.advance(random.choice([10, 600, 1_300]))
        elif len(sent) > 2:
            leaver = random.choice(list(sent))
            del sent[leaver]
            leaver.close()
        if random.random() < 0.6:
            yard.run_pending()
        broker = yard.broker
        if broker._awaiting_commit and not broker._syncing and not broker._commit_scheduled:
            assert broker._commit_delay.is_active
    yard.run_pending()
    for _ in range(100):  # more flushes than there can be
        if is_flushing(yard):
            yard.scheduler.finish_blocking()
        yard.scheduler.advance(MOST)
    assert {peer: peer.take().count(b"\n") for peer in sent} == sent


def test_what_nobody_waits_for_does_not_end_the_wait(yard: SimulatedServer) -> None:
    one, other = prompt_pair(yard, LONG)
    end_flush(yard, LONG)
    assert are_answered(one, other)
    one.send(b"FETCH\n")
    assert one.take().startswith(b'OK {"id":1,')
    yard.scheduler.advance(LONG_PATIENCE - 1)
    assert not is_flushing(yard)
    one.send(b'ACK {"id":1}\n')
    assert not is_flushing(yard)
    push(yard, other)
    assert is_flushing(yard)


def test_records_alone_are_written_when_the_wait_is_over(yard: SimulatedServer) -> None:
    one, _ = prompt_pair(yard, LONG)
    end_flush(yard, LONG)
    one.send(b"FETCH\n")
    writes = yard.disk.calls("write")
    yard.scheduler.advance(LONG_PATIENCE - 1)
    assert yard.disk.calls("write") == writes
    yard.scheduler.advance(1)
    assert yard.disk.calls("write") == writes + 1


def test_nothing_is_written_for_nothing(yard: SimulatedServer) -> None:
    prompt_pair(yard)
    end_flush(yard)
    commits = yard.broker.commits
    yard.scheduler.advance(FLUSH)
    assert yard.broker.commits == commits


def test_much_is_flushed_at_once_whoever_is_not_back(yard: SimulatedServer) -> None:
    prompt_pair(yard)
    end_flush(yard)
    yard.connect().arrive(b'PUSH {"name":"a","payload":"%b"}\n' % (b"x" * (MEBIBYTE - 2)) * 5)
    assert is_flushing(yard)
    assert not yard.broker._commit_delay.is_active


def test_who_waits_is_closed_when_the_disk_fails_meanwhile(yard: SimulatedServer) -> None:
    one, _ = prompt_pair(yard)
    end_flush(yard)
    one.take()
    push(yard, one)
    yard.broker.fail(OSError("broken"))
    yard.run_pending()
    one.expect_closed()
    yard.scheduler.advance(FLUSH)
    assert not is_flushing(yard)


@pytest.mark.parametrize("durability", ["write", "memory"])
def test_replies_that_do_not_wait_for_the_disk_wait_for_nobody(durability: str) -> None:
    yard = SimulatedServer(inline_sync=False, durability=durability)
    one, other = yard.connect(), yard.connect()
    yard.scheduler.slow = True
    for _ in range(3):
        push(yard, one, other)
        yard.advance(1.1)  # a sync in the background, once a second
        end_flush(yard)
        assert are_answered(one, other)
    push(yard, one)
    assert are_answered(one)
