"""Masenko FETCH: which task comes, in which order, and how long a client waits for one."""

import pytest
from support.simulated import SimulatedServer
from support.wire import SimulatedWire, Wire, exchange, queue_counts


def test_a_bare_fetch_looks_at_the_default_queue(wire: Wire) -> None:
    peer = wire.connect()
    exchange(peer, b'PUSH {"name":"other","queue":"q"}\n', b'OK {"id":1}\n')
    exchange(peer, b'PUSH {"name":"a"}\n', b'OK {"id":2}\n')
    exchange(peer, b"FETCH\n", b'OK {"id":2,"queue":"default","name":"a"}\n')


@pytest.mark.parametrize("body", [b"{}", b'{"queues":null}', b'{"timeout":null}', b'{"x":1}'])
def test_absent_or_null_queues_mean_the_default_queue(yard: SimulatedWire, body: bytes) -> None:
    peer = yard.connect()
    exchange(peer, b'PUSH {"name":"a"}\n', b'OK {"id":1}\n')
    exchange(peer, b"FETCH " + body + b"\n", b'OK {"id":1,"queue":"default","name":"a"}\n')


def test_no_queues_at_all_is_answered_with_empty_at_once(wire: Wire) -> None:
    peer = wire.connect()
    exchange(peer, b'PUSH {"name":"a"}\n', b'OK {"id":1}\n')
    exchange(peer, b'FETCH {"queues":[]}\n', b"EMPTY {}\n")


def test_tasks_of_a_queue_come_in_the_order_of_arrival(wire: Wire) -> None:
    first, second = wire.connect(), wire.connect()
    exchange(first, b'PUSH {"name":"a"}\n', b'OK {"id":1}\n')
    exchange(second, b'PUSH {"name":"b"}\n', b'OK {"id":2}\n')
    exchange(first, b'PUSH {"name":"c"}\n', b'OK {"id":3}\n')
    exchange(second, b"FETCH\n", b'OK {"id":1,"queue":"default","name":"a"}\n')
    exchange(second, b"FETCH\n", b'OK {"id":2,"queue":"default","name":"b"}\n')
    exchange(first, b"FETCH\n", b'OK {"id":3,"queue":"default","name":"c"}\n')


def test_queues_are_looked_at_in_the_order_given(wire: Wire) -> None:
    peer = wire.connect()
    exchange(peer, b'PUSH {"name":"a","queue":"x"}\n', b'OK {"id":1}\n')
    exchange(peer, b'PUSH {"name":"b","queue":"y"}\n', b'OK {"id":2}\n')
    exchange(peer, b'PUSH {"name":"c","queue":"x"}\n', b'OK {"id":3}\n')
    exchange(peer, b'FETCH {"queues":["y","x"]}\n', b'OK {"id":2,"queue":"y","name":"b"}\n')
    exchange(peer, b'FETCH {"queues":["y","x"]}\n', b'OK {"id":1,"queue":"x","name":"a"}\n')
    exchange(peer, b'FETCH {"queues":["none","x","y"]}\n', b'OK {"id":3,"queue":"x","name":"c"}\n')


def test_a_task_is_given_to_one_client_only(wire: Wire) -> None:
    first, second = wire.connect(), wire.connect()
    exchange(first, b'PUSH {"name":"a"}\n', b'OK {"id":1}\n')
    exchange(first, b'PUSH {"name":"b"}\n', b'OK {"id":2}\n')
    exchange(first, b"FETCH\n", b'OK {"id":1,"queue":"default","name":"a"}\n')
    exchange(second, b"FETCH\n", b'OK {"id":2,"queue":"default","name":"b"}\n')


def test_one_client_may_hold_several_tasks(wire: Wire) -> None:
    peer = wire.connect()
    for number in range(1, 4):
        exchange(peer, b'PUSH {"name":"a"}\n', b'OK {"id":%d}\n' % number)
    for number in range(1, 4):
        exchange(peer, b"FETCH\n", b'OK {"id":%d,"queue":"default","name":"a"}\n' % number)
    assert queue_counts(peer) == {"default": (0, 0, 3)}
    for number in (2, 3, 1):
        exchange(peer, b'ACK {"id":%d}\n' % number, b"OK {}\n")


def test_the_keys_of_a_task_come_in_a_fixed_order(yard: SimulatedWire) -> None:
    peer = yard.connect()
    exchange(peer, b'PUSH {"payload":{"k":1},"queue":"q","name":"a"}\n', b'OK {"id":1}\n')
    exchange(
        peer,
        b'FETCH {"queues":["q"]}\n',
        b'OK {"id":1,"queue":"q","name":"a","payload":{"k":1}}\n',
    )
    exchange(peer, b'NACK {"id":1}\n', b"OK {}\n")
    yard.advance(2)
    exchange(
        peer,
        b'FETCH {"queues":["q"]}\n',
        b'OK {"id":1,"queue":"q","name":"a","payload":{"k":1},"failures":1}\n',
    )


def test_failures_follow_the_name_where_there_is_no_payload(yard: SimulatedWire) -> None:
    peer = yard.connect()
    exchange(peer, b'PUSH {"name":"a"}\n', b'OK {"id":1}\n')
    exchange(peer, b"FETCH\n", b'OK {"id":1,"queue":"default","name":"a"}\n')
    exchange(peer, b'NACK {"id":1}\n', b"OK {}\n")
    yard.advance(2)
    exchange(peer, b"FETCH\n", b'OK {"id":1,"queue":"default","name":"a","failures":1}\n')


def test_a_null_payload_is_a_payload(wire: Wire) -> None:
    peer = wire.connect()
    exchange(peer, b'PUSH {"name":"a","payload":null}\n', b'OK {"id":1}\n')
    exchange(peer, b"FETCH\n", b'OK {"id":1,"queue":"default","name":"a","payload":null}\n')


def test_a_fetch_waits_for_a_task_to_be_pushed(wire: Wire) -> None:
    worker, producer = wire.connect(), wire.connect()
    worker.send(b'FETCH {"queues":["q"]}\n')
    worker.expect_nothing()
    exchange(producer, b'PUSH {"name":"a","queue":"q"}\n', b'OK {"id":1}\n')
    worker.expect(b'OK {"id":1,"queue":"q","name":"a"}\n')
    assert queue_counts(producer) == {"q": (0, 0, 1)}
    exchange(worker, b'ACK {"id":1}\n', b"OK {}\n")


def test_a_fetch_waits_on_all_its_queues(wire: Wire) -> None:
    worker, producer = wire.connect(), wire.connect()
    worker.send(b'FETCH {"queues":["x","y","z"]}\n')
    exchange(producer, b'PUSH {"name":"a","queue":"other"}\n', b'OK {"id":1}\n')
    worker.expect_nothing()
    exchange(producer, b'PUSH {"name":"a","queue":"z"}\n', b'OK {"id":2}\n')
    worker.expect(b'OK {"id":2,"queue":"z","name":"a"}\n')


def test_a_fetch_that_was_answered_waits_on_none_of_its_queues_any_more(wire: Wire) -> None:
    worker, producer = wire.connect(), wire.connect()
    worker.send(b'FETCH {"queues":["x","y"]}\n')
    exchange(producer, b'PUSH {"name":"a","queue":"y"}\n', b'OK {"id":1}\n')
    worker.expect(b'OK {"id":1,"queue":"y","name":"a"}\n')
    exchange(producer, b'PUSH {"name":"b","queue":"x"}\n', b'OK {"id":2}\n')
    exchange(producer, b'PUSH {"name":"c","queue":"y"}\n', b'OK {"id":3}\n')
    worker.expect_nothing()
    assert queue_counts(producer) == {"y": (1, 0, 1), "x": (1, 0, 0)}


def test_a_queue_named_twice_in_a_fetch_gives_one_task(wire: Wire) -> None:
    worker, producer = wire.connect(), wire.connect()
    worker.send(b'FETCH {"queues":["q","q"]}\n')
    exchange(producer, b'PUSH {"name":"a","queue":"q"}\n', b'OK {"id":1}\n')
    exchange(producer, b'PUSH {"name":"b","queue":"q"}\n', b'OK {"id":2}\n')
    worker.expect(b'OK {"id":1,"queue":"q","name":"a"}\n')
    worker.expect_nothing()
    assert queue_counts(producer) == {"q": (1, 0, 1)}


def test_a_fetch_may_name_a_thousand_queues(yard: SimulatedWire) -> None:
    worker, producer = yard.connect(), yard.connect()
    names = b",".join(b'"q%d"' % number for number in range(1000))
    worker.send(b'FETCH {"queues":[' + names + b"]}\n")
    exchange(producer, b'PUSH {"name":"a","queue":"q999"}\n', b'OK {"id":1}\n')
    worker.expect(b'OK {"id":1,"queue":"q999","name":"a"}\n')


def test_commands_behind_a_waiting_fetch_are_answered_after_it_in_order(wire: Wire) -> None:
    worker, producer = wire.connect(), wire.connect()
    worker.send(b'FETCH {"queues":["q"]}\nPING\nACK {"id":1}\nACK {"id":1}\nPING\n')
    worker.expect_nothing()
    exchange(producer, b'PUSH {"name":"a","queue":"q"}\n', b'OK {"id":1}\n')
    worker.expect(
        b'OK {"id":1,"queue":"q","name":"a"}\n'
        b"PONG {}\n"
        b"OK {}\n"
        b'ERR {"msg":"task not acquired"}\n'
        b"PONG {}\n"
    )


def test_commands_sent_while_a_fetch_waits_are_answered_after_it(yard: SimulatedWire) -> None:
    worker, producer = yard.connect(), yard.connect()
    worker.send(b'FETCH {"queues":["q"]}\n')
    worker.send(b"PI")
    worker.send(b"NG\nBOGUS\n")
    worker.expect_nothing()
    exchange(producer, b'PUSH {"name":"a","queue":"q"}\n', b'OK {"id":1}\n')
    worker.expect(
        b'OK {"id":1,"queue":"q","name":"a"}\nPONG {}\nERR {"msg":"unknown verb BOGUS"}\n'
    )


def test_a_push_behind_a_waiting_fetch_is_not_run_before_it_ends(yard: SimulatedWire) -> None:
    peer, other = yard.connect(), yard.connect()
    peer.send(b'FETCH {"queues":["q"],"timeout":"5s"}\nPUSH {"name":"a","queue":"q"}\n')
    assert queue_counts(other) == {}
    yard.advance(4.9)
    peer.expect_nothing()
    yard.advance(0.2)
    peer.expect(b'EMPTY {}\nOK {"id":1}\n')
    assert queue_counts(other) == {"q": (1, 0, 0)}


def test_waiting_fetches_of_one_connection_wait_one_after_the_other(yard: SimulatedWire) -> None:
    worker, producer = yard.connect(), yard.connect()
    worker.send(b'FETCH {"queues":["x"]}\nFETCH {"queues":["y"]}\nPING\n')
    exchange(producer, b'PUSH {"name":"b","queue":"y"}\n', b'OK {"id":1}\n')
    worker.expect_nothing()
    exchange(producer, b'PUSH {"name":"a","queue":"x"}\n', b'OK {"id":2}\n')
    worker.expect(
        b'OK {"id":2,"queue":"x","name":"a"}\nOK {"id":1,"queue":"y","name":"b"}\nPONG {}\n'
    )


def test_waiting_clients_are_served_in_the_order_of_their_arrival(yard: SimulatedWire) -> None:
    producer = yard.connect()
    workers = [yard.connect() for _ in range(4)]
    arrival = [workers[2], workers[0], workers[3], workers[1]]
    for worker in arrival:
        worker.send(b"FETCH\n")
    for number, worker in enumerate(arrival, start=1):
        exchange(producer, b'PUSH {"name":"a"}\n', b'OK {"id":%d}\n' % number)
        worker.expect(b'OK {"id":%d,"queue":"default","name":"a"}\n' % number)
        for other in arrival:
            other.expect_nothing()


def test_waiting_clients_are_served_in_order_by_one_write_of_pushes(yard: SimulatedWire) -> None:
    producer, first, second = yard.connect(), yard.connect(), yard.connect()
    first.send(b"FETCH\n")
    second.send(b"FETCH\n")
    exchange(
        producer,
        b'PUSH {"name":"a"}\nPUSH {"name":"b"}\nPUSH {"name":"c"}\n',
        b'OK {"id":1}\nOK {"id":2}\nOK {"id":3}\n',
    )
    first.expect(b'OK {"id":1,"queue":"default","name":"a"}\n')
    second.expect(b'OK {"id":2,"queue":"default","name":"b"}\n')
    assert queue_counts(producer) == {"default": (1, 0, 2)}


def test_the_order_of_waiting_holds_across_different_sets_of_queues(yard: SimulatedWire) -> None:
    producer, first, second, third = (yard.connect() for _ in range(4))
    first.send(b'FETCH {"queues":["x"]}\n')
    second.send(b'FETCH {"queues":["x","y"]}\n')
    third.send(b'FETCH {"queues":["y"]}\n')
    exchange(producer, b'PUSH {"name":"a","queue":"y"}\n', b'OK {"id":1}\n')
    second.expect(b'OK {"id":1,"queue":"y","name":"a"}\n')
    exchange(producer, b'PUSH {"name":"b","queue":"y"}\n', b'OK {"id":2}\n')
    third.expect(b'OK {"id":2,"queue":"y","name":"b"}\n')
    exchange(producer, b'PUSH {"name":"c","queue":"x"}\n', b'OK {"id":3}\n')
    first.expect(b'OK {"id":3,"queue":"x","name":"c"}\n')


def test_a_client_that_asks_again_queues_behind_those_who_wait(yard: SimulatedWire) -> None:
    producer, first, second = yard.connect(), yard.connect(), yard.connect()
    first.send(b'FETCH {"timeout":"1s"}\n')
    second.send(b"FETCH\n")
    yard.advance(1.1)
    first.expect(b"EMPTY {}\n")
    first.send(b"FETCH\n")
    exchange(producer, b'PUSH {"name":"a"}\n', b'OK {"id":1}\n')
    first.expect_nothing()
    second.expect(b'OK {"id":1,"queue":"default","name":"a"}\n')


def test_a_client_that_went_away_while_waiting_is_given_nothing(yard: SimulatedWire) -> None:
    gone, staying, producer = yard.connect(), yard.connect(), yard.connect()
    gone.send(b"FETCH\n")
    staying.send(b"FETCH\n")
    gone.close()
    exchange(producer, b'PUSH {"name":"a"}\n', b'OK {"id":1}\n')
    staying.expect(b'OK {"id":1,"queue":"default","name":"a"}\n')


def test_a_fetch_that_times_out_is_answered_with_empty(yard: SimulatedWire) -> None:
    peer = yard.connect()
    peer.send(b'FETCH {"queues":["q"],"timeout":"3s"}\n')
    yard.advance(2.9)
    peer.expect_nothing()
    yard.advance(0.2)
    peer.expect(b"EMPTY {}\n")
    exchange(peer, b"PING\n", b"PONG {}\n")


def test_a_short_timeout_passes_on_a_real_clock(module_socket_server: Wire) -> None:
    peer = module_socket_server.connect()
    exchange(peer, b'FETCH {"queues":["nothing"],"timeout":"1ms"}\n', b"EMPTY {}\n")
    exchange(peer, b'FETCH {"queues":["nothing"],"timeout":1}\n', b"EMPTY {}\n")


@pytest.mark.parametrize(
    ("timeout", "seconds"),
    [
        (b"1", 0),
        (b"300000000", 0.3),
        (b"2500000000", 2.5),
        (b'"300ms"', 0.3),
        (b'"2.5s"', 2.5),
        (b'".5s"', 0.5),
        (b'"+2s"', 2),
        (b'"1m30s"', 90),
        (b'"1h1m1.5s"', 3661.5),
        (b'"1m0.25s500ms"', 60.75),
        (b'"100ns"', 0),
        (b'"5us"', 0),
        ('"5\u00b5s"'.encode(), 0),
        ('"5\u03bcs"'.encode(), 0),
    ],
)
def test_a_timeout_is_nanoseconds_or_a_go_duration(timeout: bytes, seconds: float) -> None:
    yard = SimulatedServer(heartbeat=5000.0)
    peer = yard.connect()
    peer.send(b'FETCH {"queues":["q"],"timeout":' + timeout + b"}\n")
    if seconds:
        yard.advance(seconds - 0.01)
        peer.expect_nothing()
    yard.advance(0.02)
    peer.expect(b"EMPTY {}\n")


def test_the_default_timeout_is_half_the_heartbeat(yard: SimulatedWire) -> None:
    peer = yard.connect()
    peer.send(b"FETCH\n")
    yard.advance(22.4)
    peer.expect_nothing()
    yard.advance(0.2)
    peer.expect(b"EMPTY {}\n")


@pytest.mark.parametrize("body", [b'{"timeout":null}', b'{"queues":["q"]}', b"{}"])
def test_the_default_timeout_follows_the_configured_heartbeat(body: bytes) -> None:
    yard = SimulatedServer(heartbeat=10.0)
    peer = yard.connect()
    peer.send(b"FETCH " + body + b"\n")
    yard.advance(4.9)
    peer.expect_nothing()
    yard.advance(0.2)
    peer.expect(b"EMPTY {}\n")


@pytest.mark.parametrize("timeout", [b"0", b"-1", b"-5000000000", b'"0s"', b'"-1ms"', b'"0"'])
def test_a_timeout_of_zero_or_below_is_refused(shared_wire: Wire, timeout: bytes) -> None:
    peer = shared_wire.connect()
    exchange(
        peer,
        b'FETCH {"queues":["q"],"timeout":' + timeout + b"}\n",
        b'ERR {"msg":"timeout must be greater than zero"}\n',
    )
    exchange(peer, b"PING\n", b"PONG {}\n")


@pytest.mark.parametrize("timeout", [b'"45s"', b'"45.1s"', b'"1h"', b"45000000000"])
def test_a_timeout_of_the_heartbeat_or_above_is_refused(shared_wire: Wire, timeout: bytes) -> None:
    peer = shared_wire.connect()
    exchange(
        peer,
        b'FETCH {"queues":["q"],"timeout":' + timeout + b"}\n",
        b'ERR {"msg":"timeout must be smaller than the heartbeat frequency 45s"}\n',
    )
    exchange(peer, b"PING\n", b"PONG {}\n")


def test_the_refusal_names_the_configured_heartbeat() -> None:
    peer = SimulatedServer(heartbeat=30.0).connect()
    exchange(
        peer,
        b'FETCH {"timeout":"30s"}\n',
        b'ERR {"msg":"timeout must be smaller than the heartbeat frequency 30s"}\n',
    )


def test_a_timeout_just_below_the_heartbeat_is_accepted(yard: SimulatedWire) -> None:
    peer = yard.connect()
    peer.send(b'FETCH {"queues":["q"],"timeout":44999999999}\n')
    yard.advance(44.9)
    peer.expect_nothing()
    yard.advance(0.2)
    peer.expect(b"EMPTY {}\n")


@pytest.mark.parametrize("timeout", [b"0", b'"45s"'])
def test_a_refused_timeout_takes_no_task(yard: SimulatedWire, timeout: bytes) -> None:
    peer = yard.connect()
    exchange(peer, b'PUSH {"name":"a"}\n', b'OK {"id":1}\n')
    peer.send(b'FETCH {"timeout":' + timeout + b"}\n")
    assert peer.read_line().startswith(b'ERR {"msg":"timeout must be ')
    assert queue_counts(peer) == {"default": (1, 0, 0)}


def test_fetching_creates_no_queue(yard: SimulatedWire) -> None:
    peer = yard.connect()
    peer.send(b'FETCH {"queues":["a","b"],"timeout":"1s"}\n')
    yard.advance(1.1)
    peer.expect(b"EMPTY {}\n")
    assert queue_counts(peer) == {}
