"""Masenko connections: heartbeats, and what the end of a connection does to the tasks it holds."""

from pathlib import Path

import pytest
from support.simulated import SimulatedServer
from support.sockets import SocketWire
from support.wire import Peer, SimulatedWire, Wire, exchange, queue_counts

NO_HEARTBEAT = b'ERR {"msg":"no heartbeat"}\n'


def hold_a_task(peer: Peer, number: int, attributes: bytes = b"") -> None:
    """Push a task that is the server's number-th, and fetch it."""
    exchange(peer, b'PUSH {"name":"a"' + attributes + b"}\n", b'OK {"id":%d}\n' % number)
    exchange(peer, b"FETCH\n", b'OK {"id":%d,"queue":"default","name":"a"}\n' % number)


def test_a_silent_connection_is_told_so_and_closed(yard: SimulatedWire) -> None:
    peer = yard.connect()
    yard.advance(44.9)
    peer.expect_nothing()
    yard.advance(0.2)
    peer.expect(NO_HEARTBEAT)
    peer.expect_closed()


def test_a_silent_connection_is_closed_on_a_real_clock(tmp_path: Path) -> None:
    with SocketWire(tmp_path, heartbeat="1s") as wire:
        peer = wire.connect()
        peer.expect(NO_HEARTBEAT)
        peer.expect_closed()


def test_the_heartbeat_is_as_configured() -> None:
    yard = SimulatedServer(heartbeat=10.0)
    peer = yard.connect()
    yard.advance(9.9)
    peer.expect_nothing()
    yard.advance(0.2)
    peer.expect(NO_HEARTBEAT)
    peer.expect_closed()


def test_what_came_while_the_server_stood_still_is_read_before_a_client_is_judged() -> None:
    yard = SimulatedServer(heartbeat=10.0)
    peer = yard.connect()
    yard.clock.time += 11_000_000
    for _ in range(2):  # its alarm rings, and the round of the loop ends in which it did
        assert yard.scheduler.step()
    peer.arrive(b"PING\n")
    yard.run_pending()
    peer.expect(b"PONG {}\n")
    yard.advance(9)
    peer.expect_nothing()
    yard.advance(2)
    peer.expect(NO_HEARTBEAT)
    peer.expect_closed()


def test_who_waits_for_a_slow_disk_owes_no_heartbeat() -> None:
    yard = SimulatedServer(heartbeat=10.0, inline_sync=False)
    peer = yard.connect()
    yard.scheduler.slow = True
    peer.send(b'PUSH {"name":"a"}\n')
    yard.advance(35)
    peer.expect_nothing()
    yard.scheduler.slow = False
    while yard.scheduler.blocking:
        yard.scheduler.finish_blocking()
        yard.run_pending()
    peer.expect(b'OK {"id":1}\n')
    peer.expect_nothing()
    yard.advance(11)
    peer.expect(NO_HEARTBEAT)
    peer.expect_closed()


@pytest.mark.parametrize(
    ("line", "reply"),
    [
        (b"PING\n", b"PONG {}\n"),
        (b"BOGUS\n", b'ERR {"msg":"unknown verb BOGUS"}\n'),
        (b"\n", b'ERR {"msg":"unknown verb "}\n'),
        (b"PUSH {\n", b'ERR {"msg":"cannot unmarshal payload"}\n'),
        (b'FETCH {"queues":[]}\n', b"EMPTY {}\n"),
    ],
)
def test_any_complete_line_counts_as_a_heartbeat(
    yard: SimulatedWire, line: bytes, reply: bytes
) -> None:
    peer = yard.connect()
    for _ in range(5):
        yard.advance(44.9)
        exchange(peer, line, reply)
    yard.advance(45.1)
    peer.expect(NO_HEARTBEAT)
    peer.expect_closed()


def test_half_a_line_is_no_heartbeat(yard: SimulatedWire) -> None:
    peer = yard.connect()
    yard.advance(30)
    peer.send(b"PIN")
    yard.advance(14.9)
    peer.expect_nothing()
    yard.advance(0.2)
    peer.expect(NO_HEARTBEAT)
    peer.expect_closed()


def test_lines_inside_a_transaction_count_as_heartbeats(yard: SimulatedWire) -> None:
    peer = yard.connect()
    peer.send(b"ATOMIC\n")
    for _ in range(3):
        yard.advance(40)
        peer.send(b'PUSH {"name":"a"}\n')
        peer.expect_nothing()
    yard.advance(40)
    exchange(peer, b"DONE\n", b'OK {"ids":[1,2,3]}\n')


def test_a_transaction_left_open_ends_with_the_heartbeat(yard: SimulatedWire) -> None:
    peer = yard.connect()
    peer.send(b'ATOMIC\nPUSH {"name":"a"}\n')
    yard.advance(45.1)
    peer.expect(NO_HEARTBEAT)
    peer.expect_closed()
    assert queue_counts(yard.connect()) == {}


def test_one_silent_connection_does_not_end_another(yard: SimulatedWire) -> None:
    silent, lively = yard.connect(), yard.connect()
    yard.advance(30)
    exchange(lively, b"PING\n", b"PONG {}\n")
    yard.advance(15.1)
    silent.expect(NO_HEARTBEAT)
    silent.expect_closed()
    lively.expect_nothing()
    exchange(lively, b"PING\n", b"PONG {}\n")


def test_a_waiting_fetch_suspends_the_heartbeat(yard: SimulatedWire) -> None:
    peer = yard.connect()
    yard.advance(40)
    peer.send(b'FETCH {"queues":["q"],"timeout":"40s"}\n')
    yard.advance(39.9)
    peer.expect_nothing()
    yard.advance(0.2)
    peer.expect(b"EMPTY {}\n")
    yard.advance(44.5)
    peer.expect_nothing()
    exchange(peer, b"PING\n", b"PONG {}\n")


def test_the_heartbeat_starts_anew_when_a_waiting_fetch_times_out(yard: SimulatedWire) -> None:
    peer = yard.connect()
    peer.send(b'FETCH {"queues":["q"],"timeout":"44s"}\n')
    yard.advance(44.1)
    peer.expect(b"EMPTY {}\n")
    yard.advance(44.7)
    peer.expect_nothing()
    yard.advance(0.5)
    peer.expect(NO_HEARTBEAT)
    peer.expect_closed()


def test_the_heartbeat_starts_anew_when_a_waiting_fetch_gets_a_task(yard: SimulatedWire) -> None:
    worker, producer = yard.connect(), yard.connect()
    worker.send(b'FETCH {"timeout":"44s"}\n')
    yard.advance(40)
    exchange(producer, b'PUSH {"name":"a"}\n', b'OK {"id":1}\n')
    worker.expect(b'OK {"id":1,"queue":"default","name":"a"}\n')
    yard.advance(44.9)
    worker.expect_nothing()
    yard.advance(0.2)
    worker.expect(NO_HEARTBEAT)
    worker.expect_closed()


def test_a_heartbeat_keeps_a_held_task_for_as_long_as_it_takes(yard: SimulatedWire) -> None:
    peer = yard.connect()
    hold_a_task(peer, 1)
    for _ in range(100):
        yard.advance(40)
        exchange(peer, b"PING\n", b"PONG {}\n")
    exchange(peer, b'ACK {"id":1}\n', b"OK {}\n")


def test_tasks_of_a_silent_connection_are_nacked(yard: SimulatedWire) -> None:
    silent, other = yard.connect(), yard.connect()
    hold_a_task(silent, 1)
    yard.advance(40)
    exchange(other, b"PING\n", b"PONG {}\n")
    yard.advance(5.1)
    silent.expect(NO_HEARTBEAT)
    silent.expect_closed()
    assert queue_counts(other) == {"default": (0, 1, 0)}
    yard.advance(1.1)
    exchange(other, b"FETCH\n", b'OK {"id":1,"queue":"default","name":"a","failures":1}\n')


def test_tasks_of_a_lost_connection_are_nacked(yard: SimulatedWire) -> None:
    lost, other = yard.connect(), yard.connect()
    hold_a_task(lost, 1)
    hold_a_task(lost, 2)
    lost.close()
    assert queue_counts(other) == {"default": (0, 2, 0)}
    yard.advance(1.1)
    assert queue_counts(other) == {"default": (2, 0, 0)}
    other.send(b"FETCH\n")
    assert other.read_line().endswith(b'"failures":1}\n')


def test_tasks_held_at_quit_are_nacked(yard: SimulatedWire) -> None:
    quitter, other = yard.connect(), yard.connect()
    hold_a_task(quitter, 1)
    exchange(quitter, b"QUIT\n", b"OK {}\n")
    quitter.expect_closed()
    assert queue_counts(other) == {"default": (0, 1, 0)}
    yard.advance(1.1)
    exchange(other, b"FETCH\n", b'OK {"id":1,"queue":"default","name":"a","failures":1}\n')


def test_finished_tasks_of_a_lost_connection_stay_finished(yard: SimulatedWire) -> None:
    lost, other = yard.connect(), yard.connect()
    hold_a_task(lost, 1)
    exchange(lost, b'ACK {"id":1}\n', b"OK {}\n")
    lost.close()
    assert queue_counts(other) == {"default": (0, 0, 0)}


@pytest.mark.parametrize("farewell", [b"QUIT\n", b"", b"PI"])
def test_the_end_of_a_connection_sends_a_task_out_of_retries_to_its_deadqueue(
    wire: Wire, farewell: bytes
) -> None:
    holder, other = wire.connect(), wire.connect()
    hold_a_task(holder, 1, b',"retry":0,"deadqueue":"dead"')
    holder.send(farewell)
    holder.close()
    exchange(other, b'FETCH {"queues":["dead"]}\n', b'OK {"id":1,"queue":"dead","name":"a"}\n')


def test_a_task_given_to_a_waiting_client_that_then_leaves_is_nacked(wire: Wire) -> None:
    worker, other = wire.connect(), wire.connect()
    worker.send(b'FETCH {"queues":["q"]}\n')
    worker.expect_nothing()
    exchange(
        other,
        b'PUSH {"name":"a","queue":"q","retry":0,"deadqueue":"dead"}\n',
        b'OK {"id":1}\n',
    )
    worker.expect(b'OK {"id":1,"queue":"q","name":"a"}\n')
    worker.close()
    exchange(other, b'FETCH {"queues":["dead"]}\n', b'OK {"id":1,"queue":"dead","name":"a"}\n')


def test_quit_behind_a_waiting_fetch_waits_for_it(yard: SimulatedWire) -> None:
    peer = yard.connect()
    peer.send(b'FETCH {"queues":["q"],"timeout":"5s"}\nQUIT\n')
    peer.expect_nothing()
    yard.advance(5.1)
    peer.expect(b"EMPTY {}\nOK {}\n")
    peer.expect_closed()


@pytest.mark.parametrize(
    "half",
    [
        b"P",
        b"PUSH",
        b'PUSH {"name":"half","queue":"h"',
        b'PUSH {"name":"half","queue":"h"}',
        b'PUSH {"name":"half","queue":"h"}\r',
        b'ATOMIC\nPUSH {"name":"half","queue":"h"}\n',
        b'ATOMIC\nPUSH {"name":"half","queue":"h"}\nDONE',
    ],
)
def test_half_a_command_and_a_closed_connection_apply_nothing(
    shared_wire: Wire, half: bytes
) -> None:
    leaver = shared_wire.connect()
    leaver.send(half)
    leaver.expect_nothing()
    leaver.close()
    other = shared_wire.connect()
    exchange(other, b"PING\n", b"PONG {}\n")
    assert "h" not in queue_counts(other)


def test_half_an_ack_and_a_closed_connection_leave_the_task_to_fail(wire: Wire) -> None:
    leaver, other = wire.connect(), wire.connect()
    hold_a_task(leaver, 1, b',"retry":0,"deadqueue":"dead"')
    leaver.send(b'ACK {"id":1}')
    leaver.close()
    exchange(other, b'FETCH {"queues":["dead"]}\n', b'OK {"id":1,"queue":"dead","name":"a"}\n')


def test_a_hundred_connections_are_served_side_by_side(shared_wire: Wire) -> None:
    peers = [shared_wire.connect() for _ in range(100)]
    for peer in peers:
        peer.send(b"PI")
    for peer in peers:
        peer.send(b"NG\n")
    for peer in peers:
        peer.expect(b"PONG {}\n")
