"""Masenko over a restart of the server: what was answered is there, and nothing else."""

from support.wire import Peer, SimulatedWire, Wire, exchange, queue_counts


def fetch_and_ack(peer: Peer, number: int, name: bytes) -> None:
    """Take this task, which must be the next of the default queue, and finish it."""
    exchange(peer, b"FETCH\n", b'OK {"id":%d,"queue":"default","name":"%b"}\n' % (number, name))
    exchange(peer, b'ACK {"id":%d}\n' % number, b"OK {}\n")


def test_waiting_tasks_survive_in_their_order(wire: Wire) -> None:
    peer = wire.connect()
    exchange(peer, b'PUSH {"name":"a"}\n', b'OK {"id":1}\n')
    exchange(peer, b'PUSH {"name":"b","payload":{"z":1.0,"a":[]}}\n', b'OK {"id":2}\n')
    exchange(peer, b'PUSH {"name":"c"}\n', b'OK {"id":3}\n')
    wire.restart()
    peer = wire.connect()
    fetch_and_ack(peer, 1, b"a")
    exchange(
        peer,
        b"FETCH\n",
        b'OK {"id":2,"queue":"default","name":"b","payload":{"z":1.0,"a":[]}}\n',
    )
    fetch_and_ack(peer, 3, b"c")


def test_ids_go_on_after_a_restart(wire: Wire) -> None:
    exchange(wire.connect(), b'PUSH {"name":"a"}\n', b'OK {"id":1}\n')
    wire.restart()
    exchange(wire.connect(), b'PUSH {"name":"b"}\n', b'OK {"id":2}\n')
    wire.restart()
    exchange(wire.connect(), b'PUSH {"name":"c"}\n', b'OK {"id":3}\n')


def test_ids_of_finished_tasks_are_not_used_again_after_a_restart(wire: Wire) -> None:
    peer = wire.connect()
    exchange(peer, b'PUSH {"name":"a"}\n', b'OK {"id":1}\n')
    fetch_and_ack(peer, 1, b"a")
    wire.restart()
    peer = wire.connect()
    assert queue_counts(peer) == {"default": (0, 0, 0)}
    exchange(peer, b'PUSH {"name":"b"}\n', b'OK {"id":2}\n')


def test_held_tasks_go_back_to_the_front_with_no_failure_counted(wire: Wire) -> None:
    peer = wire.connect()
    exchange(peer, b'PUSH {"name":"held","retry":0}\n', b'OK {"id":1}\n')
    exchange(peer, b'PUSH {"name":"waiting"}\n', b'OK {"id":2}\n')
    exchange(peer, b"FETCH\n", b'OK {"id":1,"queue":"default","name":"held"}\n')
    wire.restart()
    peer = wire.connect()
    assert queue_counts(peer) == {"default": (2, 0, 0)}
    fetch_and_ack(peer, 1, b"held")
    fetch_and_ack(peer, 2, b"waiting")


def test_several_held_tasks_go_before_those_that_waited(wire: Wire) -> None:
    first, second = wire.connect(), wire.connect()
    for number in range(1, 5):
        exchange(first, b'PUSH {"name":"a"}\n', b'OK {"id":%d}\n' % number)
    exchange(first, b"FETCH\n", b'OK {"id":1,"queue":"default","name":"a"}\n')
    exchange(second, b"FETCH\n", b'OK {"id":2,"queue":"default","name":"a"}\n')
    wire.restart()
    peer = wire.connect()
    peer.send(b"FETCH\nFETCH\n")
    assert {peer.read_line(), peer.read_line()} == {
        b'OK {"id":1,"queue":"default","name":"a"}\n',
        b'OK {"id":2,"queue":"default","name":"a"}\n',
    }
    fetch_and_ack(peer, 3, b"a")
    fetch_and_ack(peer, 4, b"a")


def test_a_task_held_before_the_restart_must_be_fetched_again(wire: Wire) -> None:
    peer = wire.connect()
    exchange(peer, b'PUSH {"name":"a"}\n', b'OK {"id":1}\n')
    exchange(peer, b"FETCH\n", b'OK {"id":1,"queue":"default","name":"a"}\n')
    wire.restart()
    peer = wire.connect()
    exchange(peer, b'ACK {"id":1}\n', b'ERR {"msg":"task not acquired"}\n')
    fetch_and_ack(peer, 1, b"a")


def test_a_task_held_over_two_restarts_counts_no_failure(wire: Wire) -> None:
    exchange(wire.connect(), b'PUSH {"name":"a","retry":0}\n', b'OK {"id":1}\n')
    for _ in range(2):
        exchange(wire.connect(), b"FETCH\n", b'OK {"id":1,"queue":"default","name":"a"}\n')
        wire.restart()
    fetch_and_ack(wire.connect(), 1, b"a")


def test_failures_and_the_delay_of_a_retry_survive(yard: SimulatedWire) -> None:
    peer = yard.connect()
    exchange(peer, b'PUSH {"name":"a","retry":2,"deadqueue":"dead"}\n', b'OK {"id":1}\n')
    exchange(peer, b"FETCH\n", b'OK {"id":1,"queue":"default","name":"a"}\n')
    exchange(peer, b'NACK {"id":1}\n', b"OK {}\n")
    yard.advance(1.1)
    exchange(peer, b"FETCH\n", b'OK {"id":1,"queue":"default","name":"a","failures":1}\n')
    exchange(peer, b'NACK {"id":1}\n', b"OK {}\n")
    yard.restart()
    peer = yard.connect()
    assert queue_counts(peer)["default"] == (0, 1, 0)
    yard.advance(14.5)
    assert queue_counts(peer)["default"] == (0, 1, 0)
    yard.advance(1.6)
    exchange(peer, b"FETCH\n", b'OK {"id":1,"queue":"default","name":"a","failures":2}\n')
    exchange(peer, b'NACK {"id":1}\n', b"OK {}\n")
    exchange(peer, b'FETCH {"queues":["dead"]}\n', b'OK {"id":1,"queue":"dead","name":"a"}\n')


def test_a_retry_that_fell_due_before_the_restart_is_ready(yard: SimulatedWire) -> None:
    peer = yard.connect()
    exchange(peer, b'PUSH {"name":"a"}\n', b'OK {"id":1}\n')
    exchange(peer, b"FETCH\n", b'OK {"id":1,"queue":"default","name":"a"}\n')
    exchange(peer, b'NACK {"id":1}\n', b"OK {}\n")
    yard.advance(2)
    yard.restart()
    exchange(yard.connect(), b"FETCH\n", b'OK {"id":1,"queue":"default","name":"a","failures":1}\n')


def test_delayed_tasks_survive(wire: Wire) -> None:
    peer = wire.connect()
    exchange(peer, b'PUSH {"name":"a","execute_at":"9999-01-01T00:00:00Z"}\n', b'OK {"id":1}\n')
    wire.restart()
    assert queue_counts(wire.connect()) == {"default": (0, 1, 0)}


def test_blocked_tasks_survive_and_are_released_afterwards(wire: Wire) -> None:
    peer = wire.connect()
    exchange(
        peer,
        b'ATOMIC\nPUSH {"name":"a"}\nPUSH {"name":"b","blocked_by":[-1]}\n'
        b'PUSH {"name":"c","blocked_by":[-1]}\nDONE\n',
        b'OK {"ids":[1,2,3]}\n',
    )
    wire.restart()
    peer = wire.connect()
    assert queue_counts(peer) == {"default": (1, 2, 0)}
    fetch_and_ack(peer, 1, b"a")
    wire.restart()
    peer = wire.connect()
    assert queue_counts(peer) == {"default": (1, 1, 0)}
    fetch_and_ack(peer, 2, b"b")
    fetch_and_ack(peer, 3, b"c")


def test_blocked_tasks_that_survive_fail_with_their_blocker(wire: Wire) -> None:
    peer = wire.connect()
    exchange(peer, b'PUSH {"name":"a","retry":0}\n', b'OK {"id":1}\n')
    exchange(peer, b'PUSH {"name":"b","blocked_by":[1],"deadqueue":"dead"}\n', b'OK {"id":2}\n')
    wire.restart()
    peer = wire.connect()
    exchange(peer, b"FETCH\n", b'OK {"id":1,"queue":"default","name":"a"}\n')
    exchange(peer, b'NACK {"id":1}\n', b"OK {}\n")
    exchange(peer, b'FETCH {"queues":["dead"]}\n', b'OK {"id":2,"queue":"dead","name":"b"}\n')


def test_retry_and_deadqueue_survive(wire: Wire) -> None:
    peer = wire.connect()
    exchange(peer, b'PUSH {"name":"a","retry":0,"deadqueue":"dead"}\n', b'OK {"id":1}\n')
    wire.restart()
    peer = wire.connect()
    exchange(peer, b"FETCH\n", b'OK {"id":1,"queue":"default","name":"a"}\n')
    exchange(peer, b'NACK {"id":1}\n', b"OK {}\n")
    wire.restart()
    peer = wire.connect()
    exchange(peer, b'FETCH {"queues":["dead"]}\n', b'OK {"id":1,"queue":"dead","name":"a"}\n')


def test_queues_stay_listed_in_the_order_of_their_creation(wire: Wire) -> None:
    peer = wire.connect()
    exchange(peer, b'PUSH {"name":"a","queue":"z"}\n', b'OK {"id":1}\n')
    exchange(peer, b'PUSH {"name":"a","queue":"b"}\n', b'OK {"id":2}\n')
    exchange(peer, b'PUSH {"name":"a","queue":"a"}\n', b'OK {"id":3}\n')
    exchange(peer, b'FETCH {"queues":["z"]}\n', b'OK {"id":1,"queue":"z","name":"a"}\n')
    exchange(peer, b'ACK {"id":1}\n', b"OK {}\n")
    wire.restart()
    assert list(queue_counts(wire.connect()).items()) == [
        ("z", (0, 0, 0)),
        ("b", (1, 0, 0)),
        ("a", (1, 0, 0)),
    ]


def test_a_transaction_that_was_not_done_is_gone_and_one_that_was_is_there(wire: Wire) -> None:
    done, undone = wire.connect(), wire.connect()
    undone.send(b'ATOMIC\nPUSH {"name":"undone"}\nPUSH {"name":"undone"}\n')
    undone.expect_nothing()
    exchange(done, b'ATOMIC\nPUSH {"name":"a"}\nPUSH {"name":"b"}\nDONE\n', b'OK {"ids":[1,2]}\n')
    wire.restart()
    peer = wire.connect()
    assert queue_counts(peer) == {"default": (2, 0, 0)}
    fetch_and_ack(peer, 1, b"a")
    fetch_and_ack(peer, 2, b"b")
    exchange(peer, b'PUSH {"name":"c"}\n', b'OK {"id":3}\n')


def test_a_half_sent_command_is_gone(wire: Wire) -> None:
    peer = wire.connect()
    peer.send(b'PUSH {"name":"half"}')
    peer.expect_nothing()
    wire.restart()
    assert queue_counts(wire.connect()) == {}


def test_clients_that_waited_take_nothing_with_them(wire: Wire) -> None:
    wire.connect().send(b"FETCH\n")
    wire.restart()
    peer = wire.connect()
    exchange(peer, b'PUSH {"name":"a"}\n', b'OK {"id":1}\n')
    fetch_and_ack(peer, 1, b"a")


def test_a_restart_of_an_unused_server_changes_nothing(wire: Wire) -> None:
    wire.restart()
    wire.restart()
    peer = wire.connect()
    assert queue_counts(peer) == {}
    exchange(peer, b'PUSH {"name":"a"}\n', b'OK {"id":1}\n')
