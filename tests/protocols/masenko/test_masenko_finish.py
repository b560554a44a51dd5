"""Masenko ACK and NACK: who may finish a task, how often it is retried, where it ends."""

import math

import pytest
from support.simulated import SimulatedServer
from support.wire import Peer, SimulatedWire, Wire, exchange, queue_counts

NOT_ACQUIRED = b'ERR {"msg":"task not acquired"}\n'
TASK_1 = b'OK {"id":1,"queue":"default","name":"a"}\n'


def hold_task_1(peer: Peer, attributes: bytes = b"") -> None:
    """Push a task as the server's first, and fetch it."""
    exchange(peer, b'PUSH {"name":"a"' + attributes + b"}\n", b'OK {"id":1}\n')
    exchange(peer, b"FETCH\n", TASK_1)


def test_an_acknowledged_task_is_gone(wire: Wire) -> None:
    peer = wire.connect()
    hold_task_1(peer)
    exchange(peer, b'ACK {"id":1}\n', b"OK {}\n")
    assert queue_counts(peer) == {"default": (0, 0, 0)}


@pytest.mark.parametrize("verb", [b"ACK", b"NACK"])
def test_a_task_that_was_never_pushed_is_not_acquired(shared_wire: Wire, verb: bytes) -> None:
    peer = shared_wire.connect()
    exchange(peer, verb + b' {"id":4000000}\n', NOT_ACQUIRED)
    exchange(peer, b"PING\n", b"PONG {}\n")


@pytest.mark.parametrize("verb", [b"ACK", b"NACK"])
def test_a_task_that_still_waits_is_not_acquired(yard: SimulatedWire, verb: bytes) -> None:
    peer = yard.connect()
    exchange(peer, b'PUSH {"name":"a"}\n', b'OK {"id":1}\n')
    exchange(peer, verb + b' {"id":1}\n', NOT_ACQUIRED)
    assert queue_counts(peer) == {"default": (1, 0, 0)}


def test_a_task_held_by_another_connection_cannot_be_finished(wire: Wire) -> None:
    holder, other = wire.connect(), wire.connect()
    hold_task_1(holder)
    exchange(other, b'ACK {"id":1}\n', NOT_ACQUIRED)
    exchange(other, b'NACK {"id":1}\n', NOT_ACQUIRED)
    assert queue_counts(other) == {"default": (0, 0, 1)}
    exchange(holder, b'ACK {"id":1}\n', b"OK {}\n")


def test_a_task_cannot_be_acknowledged_twice(wire: Wire) -> None:
    peer = wire.connect()
    hold_task_1(peer)
    exchange(peer, b'ACK {"id":1}\n', b"OK {}\n")
    exchange(peer, b'ACK {"id":1}\n', NOT_ACQUIRED)
    exchange(peer, b'NACK {"id":1}\n', NOT_ACQUIRED)


def test_a_task_cannot_be_finished_after_a_nack(wire: Wire) -> None:
    peer = wire.connect()
    hold_task_1(peer, b',"retry":0')
    exchange(peer, b'NACK {"id":1}\n', b"OK {}\n")
    exchange(peer, b'NACK {"id":1}\n', NOT_ACQUIRED)
    exchange(peer, b'ACK {"id":1}\n', NOT_ACQUIRED)


def test_a_task_that_waits_for_its_retry_is_not_acquired(yard: SimulatedWire) -> None:
    peer = yard.connect()
    hold_task_1(peer)
    exchange(peer, b'NACK {"id":1}\n', b"OK {}\n")
    exchange(peer, b'ACK {"id":1}\n', NOT_ACQUIRED)
    assert queue_counts(peer) == {"default": (0, 1, 0)}


@pytest.mark.parametrize("verb", [b"ACK", b"NACK"])
@pytest.mark.parametrize("body", [b"{}", b'{"id":0}', b'{"id":null}', b'{"ID_":1}'])
def test_a_missing_or_zero_id_is_refused(shared_wire: Wire, verb: bytes, body: bytes) -> None:
    peer = shared_wire.connect()
    exchange(peer, verb + b" " + body + b"\n", b'ERR {"msg":"missing id"}\n')
    exchange(peer, b"PING\n", b"PONG {}\n")


def test_a_nacked_task_comes_back_with_its_failures_counted(yard: SimulatedWire) -> None:
    peer = yard.connect()
    hold_task_1(peer)
    exchange(peer, b'NACK {"id":1}\n', b"OK {}\n")
    assert queue_counts(peer) == {"default": (0, 1, 0)}
    yard.advance(1.1)
    assert queue_counts(peer) == {"default": (1, 0, 0)}
    exchange(peer, b"FETCH\n", b'OK {"id":1,"queue":"default","name":"a","failures":1}\n')
    exchange(peer, b'ACK {"id":1}\n', b"OK {}\n")
    assert queue_counts(peer) == {"default": (0, 0, 0)}


def test_a_nacked_task_may_be_fetched_by_anyone(yard: SimulatedWire) -> None:
    first, second = yard.connect(), yard.connect()
    hold_task_1(first)
    second.send(b"FETCH\n")
    exchange(first, b'NACK {"id":1}\n', b"OK {}\n")
    second.expect_nothing()
    yard.advance(1.1)
    second.expect(b'OK {"id":1,"queue":"default","name":"a","failures":1}\n')
    exchange(first, b'ACK {"id":1}\n', NOT_ACQUIRED)
    exchange(second, b'ACK {"id":1}\n', b"OK {}\n")


def advance_to_the_next_second(yard: SimulatedWire) -> None:
    """Move the clock just past the start of a second."""
    yard.advance(math.ceil(yard.now()) - yard.now() + 0.001)


def test_the_delay_is_the_fourth_power_of_the_failures() -> None:
    yard = SimulatedServer(heartbeat=10_000.0)
    peer = yard.connect()
    advance_to_the_next_second(yard)
    hold_task_1(peer)
    for failures, delay in enumerate([1, 16, 81, 256, 625], start=1):
        exchange(peer, b'NACK {"id":1}\n', b"OK {}\n")
        peer.send(b'FETCH {"timeout":"1h"}\n')
        yard.advance(delay - 0.01)
        peer.expect_nothing()
        advance_to_the_next_second(yard)
        peer.expect(b'OK {"id":1,"queue":"default","name":"a","failures":%d}\n' % failures)


@pytest.mark.parametrize(("failures", "delay"), [(1, 1), (2, 16), (3, 81)])
def test_the_end_of_the_delay_is_rounded_down_to_a_whole_second_of_the_clock(
    failures: int, delay: int
) -> None:
    yard = SimulatedServer(heartbeat=10_000.0)
    peer = yard.connect()
    hold_task_1(peer)
    for count in range(1, failures):
        exchange(peer, b'NACK {"id":1}\n', b"OK {}\n")
        yard.advance(100)
        exchange(
            peer, b"FETCH\n", b'OK {"id":1,"queue":"default","name":"a","failures":%d}\n' % count
        )
    advance_to_the_next_second(yard)
    yard.advance(0.75)
    exchange(peer, b'NACK {"id":1}\n', b"OK {}\n")
    peer.send(b'FETCH {"timeout":"1h"}\n')
    yard.advance(delay - 0.8)
    peer.expect_nothing()
    yard.advance(0.1)
    peer.expect(b'OK {"id":1,"queue":"default","name":"a","failures":%d}\n' % failures)


def attempts_until_gone(yard: SimulatedWire, peer: Peer) -> int:
    """Fetch and NACK task 1 until no queue has it any more."""
    attempts = 0
    while queue_counts(peer)["default"] != (0, 0, 0):
        peer.send(b"FETCH\n")
        assert peer.read_line().startswith(b'OK {"id":1,')
        exchange(peer, b'NACK {"id":1}\n', b"OK {}\n")
        attempts += 1
        yard.advance(float(attempts**4))
    return attempts


@pytest.mark.parametrize(
    ("attributes", "attempts"),
    [
        (b',"retry":0', 1),
        (b',"retry":1', 2),
        (b',"retry":3', 4),
        (b"", 21),
        (b',"retry":null', 21),
        (b',"retry":30', 31),
    ],
)
def test_retry_n_means_n_plus_one_attempts(attributes: bytes, attempts: int) -> None:
    yard = SimulatedServer(heartbeat=2e6)
    peer = yard.connect()
    exchange(peer, b'PUSH {"name":"a"' + attributes + b"}\n", b'OK {"id":1}\n')
    assert attempts_until_gone(yard, peer) == attempts


def test_a_task_out_of_retries_is_dropped(wire: Wire) -> None:
    peer = wire.connect()
    hold_task_1(peer, b',"retry":0')
    exchange(peer, b'NACK {"id":1}\n', b"OK {}\n")
    assert queue_counts(peer) == {"default": (0, 0, 0)}


def test_a_task_out_of_retries_moves_to_its_deadqueue_and_is_ready_at_once(wire: Wire) -> None:
    peer = wire.connect()
    hold_task_1(peer, b',"retry":0,"deadqueue":"dead"')
    exchange(peer, b'NACK {"id":1}\n', b"OK {}\n")
    assert queue_counts(peer) == {"default": (0, 0, 0), "dead": (1, 0, 0)}
    exchange(peer, b'FETCH {"queues":["dead"]}\n', b'OK {"id":1,"queue":"dead","name":"a"}\n')
    exchange(peer, b'ACK {"id":1}\n', b"OK {}\n")
    assert queue_counts(peer) == {"default": (0, 0, 0), "dead": (0, 0, 0)}


def test_a_dead_task_keeps_id_name_and_payload_and_its_failures_start_anew(
    yard: SimulatedWire,
) -> None:
    peer = yard.connect()
    exchange(
        peer,
        b'PUSH {"name":"mail","payload":{"b":1.0,"a":null},"retry":1,"deadqueue":"dead"}\n',
        b'OK {"id":1}\n',
    )
    peer.send(b"FETCH\n")
    peer.read_line()
    exchange(peer, b'NACK {"id":1}\n', b"OK {}\n")
    yard.advance(1.1)
    exchange(
        peer,
        b"FETCH\n",
        b'OK {"id":1,"queue":"default","name":"mail","payload":{"b":1.0,"a":null},"failures":1}\n',
    )
    exchange(peer, b'NACK {"id":1}\n', b"OK {}\n")
    exchange(
        peer,
        b'FETCH {"queues":["dead"]}\n',
        b'OK {"id":1,"queue":"dead","name":"mail","payload":{"b":1.0,"a":null}}\n',
    )


def test_a_dead_task_wakes_a_client_that_waits_on_the_deadqueue(wire: Wire) -> None:
    worker, undertaker = wire.connect(), wire.connect()
    hold_task_1(worker, b',"retry":0,"deadqueue":"dead"')
    undertaker.send(b'FETCH {"queues":["dead"]}\n')
    undertaker.expect_nothing()
    exchange(worker, b'NACK {"id":1}\n', b"OK {}\n")
    undertaker.expect(b'OK {"id":1,"queue":"dead","name":"a"}\n')


def test_a_dead_task_has_no_deadqueue_of_its_own(yard: SimulatedWire) -> None:
    peer = yard.connect()
    hold_task_1(peer, b',"retry":0,"deadqueue":"dead"')
    exchange(peer, b'NACK {"id":1}\n', b"OK {}\n")
    exchange(peer, b'FETCH {"queues":["dead"]}\n', b'OK {"id":1,"queue":"dead","name":"a"}\n')
    exchange(peer, b'NACK {"id":1}\n', b"OK {}\n")
    ready, _, held = queue_counts(peer)["dead"]
    assert (ready, held) == (0, 0)


@pytest.mark.parametrize("deadqueue", [b'""', b"null"])
def test_an_empty_or_null_deadqueue_is_none(yard: SimulatedWire, deadqueue: bytes) -> None:
    peer = yard.connect()
    hold_task_1(peer, b',"retry":0,"deadqueue":' + deadqueue)
    exchange(peer, b'NACK {"id":1}\n', b"OK {}\n")
    assert queue_counts(peer) == {"default": (0, 0, 0)}


def test_a_deadqueue_may_be_the_queue_itself(yard: SimulatedWire) -> None:
    peer = yard.connect()
    hold_task_1(peer, b',"retry":0,"deadqueue":"default"')
    exchange(peer, b'NACK {"id":1}\n', b"OK {}\n")
    exchange(peer, b"FETCH\n", TASK_1)


def test_an_acknowledged_task_never_reaches_its_deadqueue(wire: Wire) -> None:
    peer = wire.connect()
    hold_task_1(peer, b',"retry":0,"deadqueue":"dead"')
    exchange(peer, b'ACK {"id":1}\n', b"OK {}\n")
    assert queue_counts(peer).get("dead", (0, 0, 0)) == (0, 0, 0)
