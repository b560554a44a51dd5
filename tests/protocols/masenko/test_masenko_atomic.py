"""Masenko ATOMIC ... DONE: all of a transaction or nothing, and one answer for it."""

import pytest
from support.wire import Peer, SimulatedWire, Wire, error_of, exchange, queue_counts

MIB = 1 << 20


def hold_task_1(peer: Peer) -> None:
    """Push a task as the server's first, and fetch it."""
    exchange(peer, b'PUSH {"name":"held","queue":"h"}\n', b'OK {"id":1}\n')
    exchange(peer, b'FETCH {"queues":["h"]}\n', b'OK {"id":1,"queue":"h","name":"held"}\n')


def test_nothing_is_answered_before_done(wire: Wire) -> None:
    peer = wire.connect()
    peer.send(b"ATOMIC\n")
    peer.expect_nothing()
    peer.send(b'PUSH {"name":"a"}\n')
    peer.expect_nothing()
    peer.send(b'PUSH {"name":"b"}\n')
    peer.expect_nothing()
    exchange(peer, b"DONE\n", b'OK {"ids":[1,2]}\n')
    peer.expect_nothing()


def test_nothing_is_applied_before_done(wire: Wire) -> None:
    peer, other = wire.connect(), wire.connect()
    hold_task_1(peer)
    peer.send(b'ATOMIC\nPUSH {"name":"a","queue":"q"}\nACK {"id":1}\n')
    peer.expect_nothing()
    assert queue_counts(other) == {"h": (0, 0, 1)}
    exchange(peer, b"DONE\n", b'OK {"ids":[2]}\n')
    assert queue_counts(other) == {"h": (0, 0, 0), "q": (1, 0, 0)}


def test_pushes_and_acks_are_applied_together(wire: Wire) -> None:
    peer = wire.connect()
    hold_task_1(peer)
    exchange(
        peer,
        b'ATOMIC\nPUSH {"name":"a"}\nACK {"id":1}\nPUSH {"name":"b","payload":{"k":1.0}}\nDONE\n',
        b'OK {"ids":[2,3]}\n',
    )
    exchange(peer, b"FETCH\n", b'OK {"id":2,"queue":"default","name":"a"}\n')
    exchange(peer, b"FETCH\n", b'OK {"id":3,"queue":"default","name":"b","payload":{"k":1.0}}\n')
    exchange(peer, b'ACK {"id":1}\n', b'ERR {"msg":"task not acquired"}\n')


def test_the_example_of_the_manual_with_an_ack_of_a_task_not_held(wire: Wire) -> None:
    peer = wire.connect()
    exchange(
        peer,
        b"ATOMIC \n"
        b'PUSH {"name": "register-user", "payload": {"name": "John", "admin": false}} \n'
        b'PUSH {"name": "send-email", "payload": '
        b'{"to": "john@example.com", "subject": "Hello"}} \n'
        b'ACK {"id": 123456} \n'
        b"DONE \n",
        b'ERR {"msg":"task 123456 not acquired"}\n',
    )
    assert queue_counts(peer) == {}
    exchange(peer, b'PUSH {"name":"a"}\n', b'OK {"id":1}\n')


def test_an_empty_transaction_is_answered_with_an_empty_object(yard: SimulatedWire) -> None:
    peer = yard.connect()
    exchange(peer, b"ATOMIC\nDONE\n", b"OK {}\n")


def test_a_transaction_without_a_push_is_answered_with_an_empty_object(yard: SimulatedWire) -> None:
    peer = yard.connect()
    hold_task_1(peer)
    exchange(peer, b'ATOMIC\nACK {"id":1}\nDONE\n', b"OK {}\n")
    assert queue_counts(peer) == {"h": (0, 0, 0)}


def test_several_transactions_may_be_pipelined(yard: SimulatedWire) -> None:
    peer = yard.connect()
    peer.send(
        b'ATOMIC\nPUSH {"name":"a"}\nDONE\n'
        b"PING\n"
        b"ATOMIC\nNACK\nDONE\n"
        b'ATOMIC\nPUSH {"name":"b"}\nPUSH {"name":"c"}\nDONE\n'
        b"PING\n"
    )
    peer.expect(
        b'OK {"ids":[1]}\n'
        b"PONG {}\n"
        b'ERR {"msg":"NACK is not allowed in transaction."}\n'
        b'OK {"ids":[2,3]}\n'
        b"PONG {}\n"
    )


def test_transactions_of_two_connections_do_not_mix(wire: Wire) -> None:
    first, second = wire.connect(), wire.connect()
    first.send(b'ATOMIC\nPUSH {"name":"a","queue":"x"}\n')
    first.expect_nothing()
    exchange(
        second,
        b'ATOMIC\nPUSH {"name":"b","queue":"y"}\nPUSH {"name":"b","queue":"y"}\nDONE\n',
        b'OK {"ids":[1,2]}\n',
    )
    exchange(first, b'PUSH {"name":"a","queue":"x"}\nDONE\n', b'OK {"ids":[3,4]}\n')
    assert queue_counts(first) == {"y": (2, 0, 0), "x": (2, 0, 0)}


def test_commands_after_a_transaction_are_ordinary_again(yard: SimulatedWire) -> None:
    peer = yard.connect()
    exchange(
        peer, b"ATOMIC\nBOGUS\nDONE\n", b'ERR {"msg":"BOGUS is not allowed in transaction."}\n'
    )
    exchange(peer, b"PING\n", b"PONG {}\n")
    exchange(peer, b"DONE\n", b'ERR {"msg":"DONE is not allowed outside of a transaction."}\n')


@pytest.mark.parametrize(
    "line", [b'NACK {"id":1}', b"FETCH", b"INFO", b"PING", b"QUIT", b"ATOMIC", b"BOGUS {}"]
)
def test_only_push_and_ack_are_allowed_in_a_transaction(shared_wire: Wire, line: bytes) -> None:
    peer = shared_wire.connect()
    before = queue_counts(peer)
    verb = line.partition(b" ")[0]
    peer.send(b'ATOMIC\nPUSH {"name":"a","queue":"q"}\n' + line + b"\n")
    peer.expect_nothing()
    exchange(peer, b"DONE\n", b'ERR {"msg":"' + verb + b' is not allowed in transaction."}\n')
    assert queue_counts(peer) == before


def test_done_ends_a_transaction_that_has_an_atomic_inside(yard: SimulatedWire) -> None:
    peer = yard.connect()
    exchange(
        peer,
        b'ATOMIC\nATOMIC\nPUSH {"name":"a"}\nDONE\n',
        b'ERR {"msg":"ATOMIC is not allowed in transaction."}\n',
    )
    exchange(peer, b'PUSH {"name":"b"}\n', b'OK {"id":1}\n')
    assert queue_counts(peer) == {"default": (1, 0, 0)}


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (b"PUSH {}", 'message 0: PUSH: invalid task name ""'),
        (b'PUSH {"name":"a b"}', 'message 0: PUSH: invalid task name "a b"'),
        (b'PUSH {"name":"a","queue":"x y"}', 'message 0: PUSH: invalid queue name "x y"'),
        (b'PUSH {"name":"a","deadqueue":"x y"}', 'message 0: PUSH: invalid queue name "x y"'),
        (b"PUSH", "message 0: PUSH: cannot unmarshal payload"),
        (b"PUSH {", "message 0: PUSH: cannot unmarshal payload"),
        (b'PUSH {"name":1}', "message 0: PUSH: cannot unmarshal payload"),
        (b'PUSH {"name":"a","retry":256}', "message 0: PUSH: cannot unmarshal payload"),
        (b'PUSH {"name":"ok"}\nPUSH {}', 'message 1: PUSH: invalid task name ""'),
        (b'PUSH {"name":"ok"}\nPUSH {"name":"ok"}\nACK {}', "message 2: ACK: missing id"),
        (b"ACK {}", "message 0: ACK: missing id"),
        (b'ACK {"id":0}', "message 0: ACK: missing id"),
        (b'PUSH {"name":"ok"}\nACK {"id":4000000}', "task 4000000 not acquired"),
        (
            b'PUSH {"name":"a","blocked_by":[0]}',
            "message 0: PUSH: cannot self reference in blocked by",
        ),
        (
            b'PUSH {"name":"a","blocked_by":[-1]}',
            "message 0: PUSH: invalid relative task position in blocked by",
        ),
        (
            b'PUSH {"name":"ok"}\nPUSH {"name":"a","blocked_by":[-2]}',
            "message 1: PUSH: invalid relative task position in blocked by",
        ),
        (
            b'PUSH {"name":"a","blocked_by":[' + b",".join([b"1"] * 256) + b"]}",
            "message 0: PUSH: at most 255 blocked by task IDs can be provided",
        ),
    ],
)
def test_a_bad_line_fails_the_transaction_and_nothing_is_applied(
    shared_wire: Wire, lines: bytes, message: str
) -> None:
    peer = shared_wire.connect()
    before = queue_counts(peer)
    peer.send(b"ATOMIC\n" + lines + b"\n")
    peer.expect_nothing()
    peer.send(b"DONE\n")
    assert error_of(peer.read_line()) == message
    assert queue_counts(peer) == before


@pytest.mark.parametrize("line", [b"ACK", b"ACK {", b'ACK {"id":"1"}', b'ACK {"id":-1}', b"ACK x"])
def test_a_malformed_ack_in_a_transaction_is_named(shared_wire: Wire, line: bytes) -> None:
    peer = shared_wire.connect()
    peer.send(b"ATOMIC\n" + line + b"\nDONE\n")
    assert error_of(peer.read_line()).startswith("message 0: ACK: unmarshal payload: ")


def test_an_error_text_with_quotes_is_escaped(yard: SimulatedWire) -> None:
    peer = yard.connect()
    exchange(
        peer,
        b"ATOMIC\nPUSH {}\nDONE\n",
        b'ERR {"msg":"message 0: PUSH: invalid task name \\"\\""}\n',
    )


def test_the_first_bad_line_decides_the_error(shared_wire: Wire) -> None:
    peer = shared_wire.connect()
    exchange(
        peer,
        b"ATOMIC\nPUSH {}\nNACK\nACK {}\nDONE\n",
        b'ERR {"msg":"message 0: PUSH: invalid task name \\"\\""}\n',
    )
    exchange(
        peer,
        b"ATOMIC\nNACK\nPUSH {}\nACK {}\nDONE\n",
        b'ERR {"msg":"NACK is not allowed in transaction."}\n',
    )
    exchange(
        peer,
        b'ATOMIC\nPUSH {"name":"a"}\nACK {}\nPUSH {}\nPING\nDONE\n',
        b'ERR {"msg":"message 1: ACK: missing id"}\n',
    )


def test_a_failed_transaction_uses_no_id_and_creates_no_queue(wire: Wire) -> None:
    peer = wire.connect()
    exchange(
        peer,
        b'ATOMIC\nPUSH {"name":"a","queue":"x"}\nPUSH {"name":"a","queue":"y"}\nPUSH {}\nDONE\n',
        b'ERR {"msg":"message 2: PUSH: invalid task name \\"\\""}\n',
    )
    exchange(
        peer,
        b'ATOMIC\nPUSH {"name":"a","queue":"x"}\nACK {"id":9}\nDONE\n',
        b'ERR {"msg":"task 9 not acquired"}\n',
    )
    assert queue_counts(peer) == {}
    exchange(peer, b'PUSH {"name":"b"}\n', b'OK {"id":1}\n')


def test_a_failed_transaction_leaves_its_acked_tasks_held(yard: SimulatedWire) -> None:
    peer = yard.connect()
    hold_task_1(peer)
    exchange(
        peer,
        b'ATOMIC\nACK {"id":1}\nPUSH {}\nDONE\n',
        b'ERR {"msg":"message 1: PUSH: invalid task name \\"\\""}\n',
    )
    exchange(
        peer,
        b'ATOMIC\nACK {"id":1}\nACK {"id":9}\nDONE\n',
        b'ERR {"msg":"task 9 not acquired"}\n',
    )
    assert queue_counts(peer) == {"h": (0, 0, 1)}
    exchange(peer, b'ACK {"id":1}\n', b"OK {}\n")


def test_a_task_acked_twice_in_one_transaction_fails_it(yard: SimulatedWire) -> None:
    peer = yard.connect()
    hold_task_1(peer)
    exchange(
        peer,
        b'ATOMIC\nACK {"id":1}\nACK {"id":1}\nDONE\n',
        b'ERR {"msg":"task 1 not acquired"}\n',
    )
    exchange(peer, b'ACK {"id":1}\n', b"OK {}\n")


def test_a_task_held_by_another_connection_fails_the_transaction(yard: SimulatedWire) -> None:
    holder, other = yard.connect(), yard.connect()
    hold_task_1(holder)
    exchange(
        other,
        b'ATOMIC\nPUSH {"name":"a"}\nACK {"id":1}\nDONE\n',
        b'ERR {"msg":"task 1 not acquired"}\n',
    )
    assert queue_counts(other) == {"h": (0, 0, 1)}


def test_a_task_pushed_in_the_transaction_cannot_be_acked_in_it(yard: SimulatedWire) -> None:
    peer = yard.connect()
    exchange(
        peer,
        b'ATOMIC\nPUSH {"name":"a"}\nACK {"id":1}\nDONE\n',
        b'ERR {"msg":"task 1 not acquired"}\n',
    )
    assert queue_counts(peer) == {}


def test_waiting_clients_get_the_tasks_of_a_transaction_when_it_is_done(wire: Wire) -> None:
    producer, worker = wire.connect(), wire.connect()
    worker.send(b'FETCH {"queues":["q"]}\n')
    producer.send(b'ATOMIC\nPUSH {"name":"a","queue":"q"}\n')
    worker.expect_nothing()
    exchange(producer, b"DONE\n", b'OK {"ids":[1]}\n')
    worker.expect(b'OK {"id":1,"queue":"q","name":"a"}\n')


def test_waiting_clients_get_nothing_of_a_transaction_that_failed(wire: Wire) -> None:
    producer, worker = wire.connect(), wire.connect()
    worker.send(b'FETCH {"queues":["q"]}\n')
    exchange(
        producer,
        b'ATOMIC\nPUSH {"name":"a","queue":"q"}\nPUSH {}\nDONE\n',
        b'ERR {"msg":"message 1: PUSH: invalid task name \\"\\""}\n',
    )
    worker.expect_nothing()


def test_waiting_clients_are_served_in_order_by_a_transaction(yard: SimulatedWire) -> None:
    producer, first, second = yard.connect(), yard.connect(), yard.connect()
    first.send(b"FETCH\n")
    second.send(b"FETCH\n")
    exchange(
        producer,
        b'ATOMIC\nPUSH {"name":"a"}\nPUSH {"name":"b"}\nPUSH {"name":"c"}\nDONE\n',
        b'OK {"ids":[1,2,3]}\n',
    )
    first.expect(b'OK {"id":1,"queue":"default","name":"a"}\n')
    second.expect(b'OK {"id":2,"queue":"default","name":"b"}\n')
    assert queue_counts(producer) == {"default": (1, 0, 2)}


def test_a_transaction_that_is_cut_off_leaves_nothing(wire: Wire) -> None:
    peer, other = wire.connect(), wire.connect()
    peer.send(b'ATOMIC\nPUSH {"name":"a"}\nPUSH {"name":"b"}\nDON')
    peer.expect_nothing()
    peer.close()
    assert queue_counts(other) == {}
    exchange(other, b'PUSH {"name":"c"}\n', b'OK {"id":1}\n')


def test_a_task_acked_in_a_transaction_that_is_cut_off_is_nacked(wire: Wire) -> None:
    peer, other = wire.connect(), wire.connect()
    exchange(peer, b'PUSH {"name":"a","retry":0,"deadqueue":"dead"}\n', b'OK {"id":1}\n')
    exchange(peer, b"FETCH\n", b'OK {"id":1,"queue":"default","name":"a"}\n')
    peer.send(b'ATOMIC\nACK {"id":1}\n')
    peer.close()
    exchange(other, b'FETCH {"queues":["dead"]}\n', b'OK {"id":1,"queue":"dead","name":"a"}\n')


def test_ten_thousand_commands_fit_in_a_transaction(wire: Wire) -> None:
    peer = wire.connect()
    ids = b",".join(b"%d" % number for number in range(1, 10_001))
    peer.send(b"ATOMIC\n" + b'PUSH {"name":"a"}\n' * 10_000 + b"DONE\n")
    peer.expect(b'OK {"ids":[' + ids + b"]}\n")


def test_one_command_more_makes_a_transaction_too_large(wire: Wire) -> None:
    peer = wire.connect()
    peer.send(b"ATOMIC\n" + b'PUSH {"name":"a"}\n' * 10_001)
    peer.expect_nothing()
    exchange(peer, b"DONE\n", b'ERR {"msg":"transaction too large"}\n')
    assert queue_counts(peer) == {}
    exchange(peer, b'PUSH {"name":"a"}\n', b'OK {"id":1}\n')


def test_a_payload_too_large_fails_the_transaction(yard: SimulatedWire) -> None:
    peer = yard.connect()
    peer.send(b'ATOMIC\nPUSH {"name":"a","payload":"' + b"x" * MIB + b'"}\n')
    peer.send(b'PUSH {"name":"b"}\nDONE\n')
    peer.expect(b'ERR {"msg":"message 0: PUSH: payload too large"}\n')
    assert queue_counts(peer) == {}


def test_tasks_of_a_transaction_keep_their_attributes(yard: SimulatedWire) -> None:
    peer = yard.connect()
    exchange(
        peer,
        b'ATOMIC\nPUSH {"name":"a","queue":"q","payload":[1],"retry":0,"deadqueue":"dead"}\n'
        b'PUSH {"name":"b","queue":"q","execute_at":"9999-01-01T00:00:00Z"}\nDONE\n',
        b'OK {"ids":[1,2]}\n',
    )
    assert queue_counts(peer) == {"q": (1, 1, 0)}
    exchange(
        peer, b'FETCH {"queues":["q"]}\n', b'OK {"id":1,"queue":"q","name":"a","payload":[1]}\n'
    )
    exchange(peer, b'NACK {"id":1}\n', b"OK {}\n")
    exchange(
        peer,
        b'FETCH {"queues":["dead"]}\n',
        b'OK {"id":1,"queue":"dead","name":"a","payload":[1]}\n',
    )
