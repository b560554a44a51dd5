"""Payloads that are on disk only: read back off the loop, while all else goes on."""

import pytest
from support.simulated import SimulatedPeer, SimulatedYard
from support.wire import exchange, queue_counts

SIZE = 300_000


@pytest.fixture
def yard() -> SimulatedYard:
    """One with as little memory for payloads as there can be."""
    return SimulatedYard(payload_memory=0)


def payload_of(number: int) -> bytes:
    return b'"%b"' % (b"%d" % (number % 10) * SIZE)


def push(yard: SimulatedYard, count: int) -> SimulatedPeer:
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


def reads_done(yard: SimulatedYard) -> None:
    while yard.scheduler.blocking:
        yard.scheduler.finish_blocking()
        yard.settle()


def test_payloads_come_back_as_they_were_and_in_order(yard: SimulatedYard) -> None:
    peer = push(yard, 12)
    reads = yard.disk.calls("read")
    for number in range(1, 13):
        exchange(peer, b"FETCH\n", task(number))
    assert yard.disk.calls("read") > reads


def test_payloads_come_back_after_a_restart(yard: SimulatedYard) -> None:
    push(yard, 3)
    yard.crash()
    peer = yard.connect()
    for number in range(1, 4):
        exchange(peer, b"FETCH\n", task(number))


def test_replies_keep_their_order_behind_a_read(yard: SimulatedYard) -> None:
    push(yard, 12)
    yard.scheduler.slow = True
    peer = yard.connect()
    peer.send(b'PING\nFETCH\nPING\nPUSH {"name":"b"}\nFETCH\n')
    peer.expect(b"PONG {}\n")
    peer.expect_nothing()
    reads_done(yard)
    peer.expect(task(1) + b'PONG {}\nOK {"id":13}\n' + task(2))


def test_nobody_else_is_held_up_by_a_read(yard: SimulatedYard) -> None:
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


def test_many_reads_at_once_each_give_the_right_payload(yard: SimulatedYard) -> None:
    push(yard, 12)
    yard.scheduler.slow = True
    peers = [yard.connect() for _ in range(8)]
    for peer in peers:
        peer.send(b"FETCH\n")
    while yard.scheduler.blocking:
        yard.scheduler.blocking.rotate(3)  # they may come back in any order
        yard.scheduler.finish_blocking()
        yard.settle()
    for number, peer in enumerate(peers, 1):
        peer.expect(task(number))


def test_a_waiting_fetch_gets_a_task_whose_payload_must_be_read(yard: SimulatedYard) -> None:
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


def test_a_read_suspends_the_heartbeat(yard: SimulatedYard) -> None:
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


def test_a_task_whose_client_leaves_during_the_read_goes_to_the_next(yard: SimulatedYard) -> None:
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
