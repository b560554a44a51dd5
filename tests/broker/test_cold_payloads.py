"""Payloads that are on disk only: read back off the loop, while all else goes on."""

import pytest
from support.simulated import SimulatedPeer, SimulatedServer
from support.wire import exchange, queue_counts

SIZE = 300_000


@pytest.fixture
def yard() -> SimulatedServer:
    """One with as little memory for payloads as there can be."""
    return SimulatedServer(payload_memory=0)


def payload_of(number: int) -> bytes:
    return b'"%b"' % (b"%d" % (number % 10) * SIZE)


def push(yard: SimulatedServer, count: int) -> SimulatedPeer:
    """Push that many tasks, of which the first ones do not stay in memory."""
    peer = yard.connect()
    for number in range(1, count + 1):
        peer.send(b'PUSH {"name":"a","payload":%b}\n' % payload_of(number))
        peer.expect(b'OK {"id":%d}\n' % number)
    return peer


def task(number: int) -> bytes:
    return b'OK {"id":%d,"queue":"default","name":"a","payload":%b}\n' % (
        number,
        payload_of(number),
    )


def reads_done(yard: SimulatedServer) -> None:
    while yard.scheduler.blocking:
        yard.scheduler.finish_blocking()
        yard.run_pending()


def test_payloads_come_back_as_they_were_and_in_order(yard: SimulatedServer) -> None:
    peer = push(yard, 12)
    reads = yard.disk.calls("read")
    for number in range(1, 13):
        exchange(peer, b"FETCH\n", task(number))
    assert yard.disk.calls("read") > reads


def test_payloads_come_back_after_a_restart(yard: SimulatedServer) -> None:
    push(yard, 3)
    yard.crash()
    peer = yard.connect()
    for number in range(1, 4):
        exchange(peer, b"FETCH\n", task(number))


def test_replies_keep_their_order_behind_a_read(yard: SimulatedServer) -> None:
    push(yard, 12)
    yard.scheduler.slow = True
    peer = yard.connect()
    peer.send(b'PING\nFETCH\nPING\nPUSH {"name":"b"}\nFETCH\n')
    peer.expect(b"PONG {}\n")
    peer.expect_nothing()
    reads_done(yard)
    peer.expect(task(1) + b'PONG {}\nOK {"id":13}\n' + task(2))


def test_nobody_else_is_held_up_by_a_read(yard: SimulatedServer) -> None:
    other = push(yard, 12)
    yard.scheduler.slow = True
    peer = yard.connect()
    peer.send(b"FETCH\n")
    exchange(other, b'PUSH {"name":"b","queue":"q"}\n', b'OK {"id":13}\n')
    exchange(other, b'FETCH {"queues":["q"]}\n', b'OK {"id":13,"queue":"q","name":"b"}\n')
    exchange(other, b'ACK {"id":13}\n', b"OK {}\n")
    peer.expect_nothing()
    reads_done(yard)
    peer.expect(task(1))


def test_many_reads_at_once_each_give_the_right_payload(yard: SimulatedServer) -> None:
    push(yard, 12)
    yard.scheduler.slow = True
    peers = [yard.connect() for _ in range(8)]
    for peer in peers:
        peer.send(b"FETCH\n")
    while yard.scheduler.blocking:
        yard.scheduler.blocking.rotate(3)  # they may come back in any order
        yard.scheduler.finish_blocking()
        yard.run_pending()
    for number, peer in enumerate(peers, 1):
        peer.expect(task(number))


def test_a_waiting_fetch_gets_a_task_whose_payload_must_be_read(yard: SimulatedServer) -> None:
    peer, other = yard.connect(), yard.connect()
    text = b"x" * SIZE
    exchange(
        other,
        b'PUSH {"name":"a","payload":"%b","queue":"q","execute_at":"2023-11-14T22:14:00Z"}\n'
        % text,
        b'OK {"id":1}\n',
    )
    for number in range(2, 9):
        other.send(b'PUSH {"name":"b","payload":"%b"}\n' % text)
        other.expect(b'OK {"id":%d}\n' % number)
    peer.send(b'FETCH {"queues":["q"],"timeout":"44s"}\nPING\n')
    reads = yard.disk.calls("read")
    yard.advance(41)
    peer.expect(b'OK {"id":1,"queue":"q","name":"a","payload":"%b"}\nPONG {}\n' % text)
    assert yard.disk.calls("read") > reads


def test_a_read_suspends_the_heartbeat(yard: SimulatedServer) -> None:
    push(yard, 12)
    yard.scheduler.slow = True
    peer = yard.connect()
    peer.send(b"FETCH\n")
    yard.advance(60)
    peer.expect_nothing()
    assert not peer.closed
    reads_done(yard)
    peer.expect(task(1))
    yard.advance(44)
    exchange(peer, b"PING\n", b"PONG {}\n")


def test_a_task_whose_client_leaves_during_the_read_goes_to_the_next(yard: SimulatedServer) -> None:
    other = push(yard, 12)
    yard.scheduler.slow = True
    peer = yard.connect()
    peer.send(b"FETCH\n")
    peer.close()
    reads_done(yard)
    assert queue_counts(other) == {"default": (11, 1, 0)}
    yard.advance(1.1)
    yard.scheduler.slow = False
    worker = yard.connect()
    for number in range(2, 13):
        exchange(worker, b"FETCH\n", task(number))
    exchange(worker, b"FETCH\n", task(1)[:-2] + b',"failures":1}\n')


SMALL = 4_000


def push_small(yard: SimulatedServer, count: int) -> SimulatedPeer:
    """Push that many small tasks, a hundred at a time; a restart takes them out of memory."""
    peer = yard.connect()
    for first in range(1, count + 1, 100):
        lines = [b'PUSH {"name":"a","payload":%b}\n' % small(n) for n in range(first, first + 100)]
        peer.send(b"".join(lines))
        peer.take()
    peer.close()
    yard.restart()
    return yard.connect()


def small(number: int) -> bytes:
    return b'"%b"' % (b"%08d" % number * (SMALL // 8))


def small_task(number: int) -> bytes:
    return b'OK {"id":%d,"queue":"default","name":"a","payload":%b}\n' % (number, small(number))


def fetch(yard: SimulatedServer, peer: SimulatedPeer, number: int) -> bool:
    """Fetch the task with this number; true if it had to wait for the disk.

    Reads that are out come back before the next one, as they do where clients have work to do.
    """
    peer.send(b"FETCH\n")
    reply = peer.take()
    reads_done(yard)
    assert reply + peer.take() == small_task(number)
    return not reply


@pytest.mark.parametrize("payload_memory", [0, 1 << 21, 1 << 24])
def test_a_drain_of_a_queue_deeper_than_memory_hardly_waits(payload_memory: int) -> None:
    yard = SimulatedServer(payload_memory=payload_memory)
    peer = push_small(yard, 8000)
    yard.scheduler.slow = True
    waits = sum(fetch(yard, peer, number) for number in range(1, 8001))
    assert waits <= 5


def test_clients_that_share_a_drain_share_the_reads(yard: SimulatedServer) -> None:
    push_small(yard, 4000)
    yard.scheduler.slow = True
    peers = [yard.connect() for _ in range(40)]
    reads = yard.disk.calls("read")
    for _ in range(100):
        for peer in peers:
            peer.send(b"FETCH\n")
        assert len(yard.scheduler.blocking) <= 4
        reads_done(yard)
    received = sorted(b"".join(peer.take() for peer in peers).splitlines(keepends=True))
    assert received == sorted(small_task(number) for number in range(1, 4001))
    blocks = 4000 * SMALL // (256 * 1024)
    assert yard.disk.calls("read") - reads <= 2 * blocks


def test_reads_ahead_that_are_slow_hold_up_nobody() -> None:
    yard = SimulatedServer(payload_memory=1 << 24)
    peer = push_small(yard, 2000)
    yard.scheduler.slow = True
    for number in range(1, 301):
        fetch(yard, peer, number)
    number = 301
    while not yard.scheduler.blocking:  # until the next ones are read ahead
        exchange(peer, b"FETCH\n", small_task(number))
        number += 1
    exchange(peer, b"FETCH\n", small_task(number))
    exchange(peer, b'PUSH {"name":"b","queue":"q"}\n', b'OK {"id":2001}\n')
    exchange(peer, b'ACK {"id":%d}\n' % number, b"OK {}\n")
    assert yard.scheduler.blocking


def test_a_read_ahead_that_fails_closes_no_connection() -> None:
    yard = SimulatedServer(payload_memory=1 << 24)
    peer = push_small(yard, 3000)
    yard.scheduler.slow = True
    failed = 0
    for number in range(1, 2001):
        peer.send(b"FETCH\n")
        reply = peer.take()
        if reply and yard.scheduler.blocking:  # nobody waits for it
            failed += 1
            yard.disk.fail_call("read")
            yard.scheduler.finish_blocking()
            yard.disk.heal()
        reads_done(yard)
        assert reply + peer.take() == small_task(number)
    assert failed > 3
