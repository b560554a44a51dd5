"""Masenko INFO: the queues with their counts, in order of creation, and the metrics."""

import json

from support.wire import Peer, SimulatedWire, Wire, exchange, queue_counts


def info(peer: Peer) -> bytes:
    peer.send(b"INFO\n")
    return peer.read_line()


def test_a_new_server_has_no_queues_and_an_object_of_metrics(wire: Wire) -> None:
    reply = info(wire.connect())
    assert reply.startswith(b'OK {"queues":[],"metrics":{')
    assert reply.endswith(b"}}\n")


def test_the_reply_is_compact_and_has_its_keys_in_a_fixed_order(wire: Wire) -> None:
    peer = wire.connect()
    exchange(peer, b'PUSH {"name":"a","queue":"q"}\n', b'OK {"id":1}\n')
    reply = info(peer)
    assert reply.startswith(
        b'OK {"queues":[{"name":"q","ready":1,"delayed":0,"to_ack":0}],"metrics":{'
    )
    body = json.loads(reply.removeprefix(b"OK "))
    assert list(body) == ["queues", "metrics"]
    assert isinstance(body["metrics"], dict)
    assert reply == b"OK " + json.dumps(body, separators=(",", ":")).encode() + b"\n"


def test_queues_are_listed_in_the_order_of_their_creation(wire: Wire) -> None:
    peer = wire.connect()
    for number, queue in enumerate([b"zebra", b"ant", b"zebra", b"mole", b"ant"], start=1):
        exchange(peer, b'PUSH {"name":"a","queue":"%b"}\n' % queue, b'OK {"id":%d}\n' % number)
    assert list(queue_counts(peer).items()) == [
        ("zebra", (2, 0, 0)),
        ("ant", (2, 0, 0)),
        ("mole", (1, 0, 0)),
    ]


def test_a_queue_stays_listed_at_zeros(wire: Wire) -> None:
    peer = wire.connect()
    exchange(peer, b'PUSH {"name":"a","queue":"q"}\n', b'OK {"id":1}\n')
    exchange(peer, b'FETCH {"queues":["q"]}\n', b'OK {"id":1,"queue":"q","name":"a"}\n')
    exchange(peer, b'ACK {"id":1}\n', b"OK {}\n")
    assert info(peer).startswith(
        b'OK {"queues":[{"name":"q","ready":0,"delayed":0,"to_ack":0}],"metrics":{'
    )


def test_ready_delayed_and_held_tasks_are_counted_apart(wire: Wire) -> None:
    first, second = wire.connect(), wire.connect()
    exchange(first, b'PUSH {"name":"held-by-one"}\n', b'OK {"id":1}\n')
    exchange(first, b'PUSH {"name":"held-by-two"}\n', b'OK {"id":2}\n')
    exchange(first, b'PUSH {"name":"ready"}\n', b'OK {"id":3}\n')
    exchange(
        first, b'PUSH {"name":"later","execute_at":"9999-01-01T00:00:00Z"}\n', b'OK {"id":4}\n'
    )
    exchange(first, b'PUSH {"name":"blocked","blocked_by":[1]}\n', b'OK {"id":5}\n')
    exchange(first, b"FETCH\n", b'OK {"id":1,"queue":"default","name":"held-by-one"}\n')
    exchange(second, b"FETCH\n", b'OK {"id":2,"queue":"default","name":"held-by-two"}\n')
    assert queue_counts(first) == {"default": (1, 2, 2)}
    assert queue_counts(second) == {"default": (1, 2, 2)}


def test_a_task_is_counted_through_all_its_states(yard: SimulatedWire) -> None:
    peer = yard.connect()
    exchange(peer, b'PUSH {"name":"a","retry":1,"deadqueue":"dead"}\n', b'OK {"id":1}\n')
    assert queue_counts(peer)["default"] == (1, 0, 0)
    exchange(peer, b"FETCH\n", b'OK {"id":1,"queue":"default","name":"a"}\n')
    assert queue_counts(peer)["default"] == (0, 0, 1)
    exchange(peer, b'NACK {"id":1}\n', b"OK {}\n")
    assert queue_counts(peer)["default"] == (0, 1, 0)
    yard.advance(1.1)
    assert queue_counts(peer)["default"] == (1, 0, 0)
    exchange(peer, b"FETCH\n", b'OK {"id":1,"queue":"default","name":"a","failures":1}\n')
    exchange(peer, b'NACK {"id":1}\n', b"OK {}\n")
    assert queue_counts(peer) == {"default": (0, 0, 0), "dead": (1, 0, 0)}


def test_a_delayed_task_is_counted_as_ready_once_its_time_has_come(yard: SimulatedWire) -> None:
    peer = yard.connect()
    exchange(peer, b'PUSH {"name":"a"}\n', b'OK {"id":1}\n')
    exchange(peer, b"FETCH\n", b'OK {"id":1,"queue":"default","name":"a"}\n')
    exchange(peer, b'NACK {"id":1}\n', b"OK {}\n")
    yard.advance(1.1)
    assert queue_counts(yard.connect()) == {"default": (1, 0, 0)}


def test_names_are_escaped_in_the_reply(yard: SimulatedWire) -> None:
    peer = yard.connect()
    exchange(peer, b'PUSH {"name":"a","queue":"a\\"\\\\b"}\n', b'OK {"id":1}\n')
    assert info(peer).startswith(b'OK {"queues":[{"name":"a\\"\\\\b","ready":1,')
