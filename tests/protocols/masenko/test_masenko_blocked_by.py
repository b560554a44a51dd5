"""Masenko blocked_by: tasks that wait for others, and fail with them, through all levels."""

import pytest
from support.wire import Peer, SimulatedWire, Wire, exchange, queue_counts

FETCH_DEAD = b'FETCH {"queues":["dead"]}\n'


def push(peer: Peer, number: int, name: bytes, attributes: bytes = b"") -> None:
    """Push a task that is the server's number-th."""
    exchange(peer, b'PUSH {"name":"%b"%b}\n' % (name, attributes), b'OK {"id":%d}\n' % number)


def fetch(peer: Peer, number: int, name: bytes) -> None:
    """Fetch from the default queue, where this task must be the next."""
    exchange(peer, b"FETCH\n", b'OK {"id":%d,"queue":"default","name":"%b"}\n' % (number, name))


def ack(peer: Peer, number: int) -> None:
    exchange(peer, b'ACK {"id":%d}\n' % number, b"OK {}\n")


def nack(peer: Peer, number: int) -> None:
    exchange(peer, b'NACK {"id":%d}\n' % number, b"OK {}\n")


def test_a_blocked_task_is_fetchable_once_its_blocker_is_acknowledged(wire: Wire) -> None:
    peer = wire.connect()
    push(peer, 1, b"first")
    push(peer, 2, b"second", b',"blocked_by":[1]')
    assert queue_counts(peer) == {"default": (1, 1, 0)}
    fetch(peer, 1, b"first")
    assert queue_counts(peer) == {"default": (0, 1, 1)}
    ack(peer, 1)
    fetch(peer, 2, b"second")
    ack(peer, 2)
    assert queue_counts(peer) == {"default": (0, 0, 0)}


def test_a_client_that_waits_gets_the_task_when_it_is_released(wire: Wire) -> None:
    peer, waiting = wire.connect(), wire.connect()
    push(peer, 1, b"first")
    push(peer, 2, b"second", b',"queue":"q","blocked_by":[1]')
    waiting.send(b'FETCH {"queues":["q"]}\n')
    fetch(peer, 1, b"first")
    waiting.expect_nothing()
    ack(peer, 1)
    waiting.expect(b'OK {"id":2,"queue":"q","name":"second"}\n')


def test_a_task_waits_for_all_its_blockers(yard: SimulatedWire) -> None:
    peer = yard.connect()
    push(peer, 1, b"a")
    push(peer, 2, b"b", b',"queue":"other"')
    push(peer, 3, b"c", b',"blocked_by":[2,1]')
    fetch(peer, 1, b"a")
    ack(peer, 1)
    assert queue_counts(peer) == {"default": (0, 1, 0), "other": (1, 0, 0)}
    exchange(peer, b'FETCH {"queues":["other"]}\n', b'OK {"id":2,"queue":"other","name":"b"}\n')
    ack(peer, 2)
    fetch(peer, 3, b"c")


def test_a_blocker_named_twice_blocks_once(yard: SimulatedWire) -> None:
    peer = yard.connect()
    push(peer, 1, b"a")
    push(peer, 2, b"b", b',"blocked_by":[1,1,1]')
    fetch(peer, 1, b"a")
    ack(peer, 1)
    fetch(peer, 2, b"b")


def test_one_blocker_may_release_many_tasks_in_the_order_of_their_arrival(
    yard: SimulatedWire,
) -> None:
    peer = yard.connect()
    push(peer, 1, b"a")
    for number in range(2, 6):
        push(peer, number, b"b", b',"blocked_by":[1]')
    assert queue_counts(peer) == {"default": (1, 4, 0)}
    fetch(peer, 1, b"a")
    ack(peer, 1)
    for number in range(2, 6):
        fetch(peer, number, b"b")


def test_a_task_may_be_blocked_by_one_that_is_held(yard: SimulatedWire) -> None:
    holder, other = yard.connect(), yard.connect()
    push(holder, 1, b"a")
    fetch(holder, 1, b"a")
    push(other, 2, b"b", b',"blocked_by":[1]')
    assert queue_counts(other) == {"default": (0, 1, 1)}
    ack(holder, 1)
    fetch(other, 2, b"b")


def test_a_task_may_be_blocked_by_one_that_is_delayed(yard: SimulatedWire) -> None:
    peer = yard.connect()
    push(peer, 1, b"a", b',"execute_at":"9999-01-01T00:00:00Z"')
    push(peer, 2, b"b", b',"blocked_by":[1]')
    assert queue_counts(peer) == {"default": (0, 2, 0)}


def test_unknown_ids_do_not_block(yard: SimulatedWire) -> None:
    peer = yard.connect()
    push(peer, 1, b"a", b',"blocked_by":[77,4000000000]')
    fetch(peer, 1, b"a")


def test_a_task_does_not_block_itself_by_the_id_that_it_will_get(yard: SimulatedWire) -> None:
    peer = yard.connect()
    push(peer, 1, b"a", b',"blocked_by":[1]')
    fetch(peer, 1, b"a")


def test_a_task_is_not_blocked_by_one_that_comes_later(yard: SimulatedWire) -> None:
    peer = yard.connect()
    push(peer, 1, b"a", b',"blocked_by":[2]')
    push(peer, 2, b"b")
    fetch(peer, 1, b"a")


def test_finished_tasks_do_not_block(yard: SimulatedWire) -> None:
    peer = yard.connect()
    push(peer, 1, b"done")
    push(peer, 2, b"dropped", b',"retry":0')
    fetch(peer, 1, b"done")
    ack(peer, 1)
    fetch(peer, 2, b"dropped")
    nack(peer, 2)
    push(peer, 3, b"c", b',"blocked_by":[1,2]')
    fetch(peer, 3, b"c")


def test_an_empty_list_blocks_nothing(yard: SimulatedWire) -> None:
    peer = yard.connect()
    push(peer, 1, b"a", b',"blocked_by":[]')
    fetch(peer, 1, b"a")


def test_a_released_task_joins_the_back_of_its_queue(yard: SimulatedWire) -> None:
    peer = yard.connect()
    push(peer, 1, b"a")
    push(peer, 2, b"b", b',"blocked_by":[1]')
    push(peer, 3, b"c")
    fetch(peer, 1, b"a")
    ack(peer, 1)
    fetch(peer, 3, b"c")
    fetch(peer, 2, b"b")


def test_a_released_task_still_waits_for_its_execute_at(yard: SimulatedWire) -> None:
    peer = yard.connect()
    push(peer, 1, b"a")
    push(peer, 2, b"b", b',"blocked_by":[1],"execute_at":"9999-01-01T00:00:00Z"')
    fetch(peer, 1, b"a")
    ack(peer, 1)
    assert queue_counts(peer) == {"default": (0, 1, 0)}


def test_a_blocked_task_stays_blocked_when_its_execute_at_comes(yard: SimulatedWire) -> None:
    peer = yard.connect()
    push(peer, 1, b"a")
    push(peer, 2, b"b", b',"blocked_by":[1],"execute_at":"2001-01-01T00:00:00Z"')
    assert queue_counts(peer) == {"default": (1, 1, 0)}
    fetch(peer, 1, b"a")
    ack(peer, 1)
    fetch(peer, 2, b"b")


def test_chains_are_released_one_level_at_a_time(wire: Wire) -> None:
    peer = wire.connect()
    push(peer, 1, b"t")
    for number in range(2, 6):
        push(peer, number, b"t", b',"blocked_by":[%d]' % (number - 1))
    for number in range(1, 6):
        assert queue_counts(peer) == {"default": (1, 5 - number, 0)}
        fetch(peer, number, b"t")
        ack(peer, number)
    assert queue_counts(peer) == {"default": (0, 0, 0)}


def test_a_diamond_is_released_when_both_its_sides_are_done(yard: SimulatedWire) -> None:
    peer = yard.connect()
    push(peer, 1, b"top")
    push(peer, 2, b"left", b',"blocked_by":[1]')
    push(peer, 3, b"right", b',"blocked_by":[1]')
    push(peer, 4, b"bottom", b',"blocked_by":[2,3]')
    fetch(peer, 1, b"top")
    ack(peer, 1)
    fetch(peer, 2, b"left")
    fetch(peer, 3, b"right")
    ack(peer, 3)
    assert queue_counts(peer) == {"default": (0, 1, 1)}
    ack(peer, 2)
    fetch(peer, 4, b"bottom")


def test_a_blocker_that_is_retried_keeps_its_dependents_blocked(yard: SimulatedWire) -> None:
    peer = yard.connect()
    push(peer, 1, b"a")
    push(peer, 2, b"b", b',"blocked_by":[1],"deadqueue":"dead"')
    fetch(peer, 1, b"a")
    nack(peer, 1)
    assert queue_counts(peer)["default"] == (0, 2, 0)
    yard.advance(1.1)
    exchange(peer, b"FETCH\n", b'OK {"id":1,"queue":"default","name":"a","failures":1}\n')
    ack(peer, 1)
    fetch(peer, 2, b"b")


def test_a_dependent_of_a_task_that_finally_fails_is_dropped(yard: SimulatedWire) -> None:
    peer = yard.connect()
    push(peer, 1, b"a", b',"retry":0')
    push(peer, 2, b"b", b',"blocked_by":[1]')
    fetch(peer, 1, b"a")
    nack(peer, 1)
    assert queue_counts(peer) == {"default": (0, 0, 0)}


def test_a_dependent_of_a_task_that_finally_fails_goes_to_its_own_deadqueue(
    yard: SimulatedWire,
) -> None:
    peer = yard.connect()
    push(peer, 1, b"a", b',"retry":0')
    push(peer, 2, b"b", b',"blocked_by":[1],"deadqueue":"dead","payload":{"k":[1.0]}')
    fetch(peer, 1, b"a")
    nack(peer, 1)
    exchange(peer, FETCH_DEAD, b'OK {"id":2,"queue":"dead","name":"b","payload":{"k":[1.0]}}\n')
    ack(peer, 2)
    assert queue_counts(peer) == {"default": (0, 0, 0), "dead": (0, 0, 0)}


def test_blocker_and_dependents_each_go_to_their_own_deadqueue(wire: Wire) -> None:
    peer = wire.connect()
    push(peer, 1, b"a", b',"retry":0,"deadqueue":"x"')
    push(peer, 2, b"b", b',"blocked_by":[1],"deadqueue":"y"')
    push(peer, 3, b"c", b',"blocked_by":[2]')
    push(peer, 4, b"d", b',"blocked_by":[3],"deadqueue":"z"')
    fetch(peer, 1, b"a")
    nack(peer, 1)
    exchange(peer, b'FETCH {"queues":["x"]}\n', b'OK {"id":1,"queue":"x","name":"a"}\n')
    exchange(peer, b'FETCH {"queues":["y"]}\n', b'OK {"id":2,"queue":"y","name":"b"}\n')
    exchange(peer, b'FETCH {"queues":["z"]}\n', b'OK {"id":4,"queue":"z","name":"d"}\n')
    assert queue_counts(peer)["default"] == (0, 0, 0)


def test_failure_runs_through_fifty_levels(yard: SimulatedWire) -> None:
    peer = yard.connect()
    push(peer, 1, b"t", b',"retry":0')
    for number in range(2, 51):
        push(peer, number, b"t", b',"blocked_by":[%d],"deadqueue":"dead"' % (number - 1))
    fetch(peer, 1, b"t")
    nack(peer, 1)
    assert queue_counts(peer) == {"default": (0, 0, 0), "dead": (49, 0, 0)}


def test_failure_runs_through_five_thousand_levels(yard: SimulatedWire) -> None:
    peer = yard.connect()
    push(peer, 1, b"t", b',"retry":0')
    for number in range(2, 5001):
        push(peer, number, b"t", b',"blocked_by":[%d]' % (number - 1))
    fetch(peer, 1, b"t")
    nack(peer, 1)
    assert queue_counts(peer) == {"default": (0, 0, 0)}


def test_one_failed_blocker_of_several_fails_the_task(yard: SimulatedWire) -> None:
    peer = yard.connect()
    push(peer, 1, b"good")
    push(peer, 2, b"bad", b',"retry":0')
    push(peer, 3, b"c", b',"blocked_by":[1,2],"deadqueue":"dead"')
    fetch(peer, 1, b"good")
    fetch(peer, 2, b"bad")
    nack(peer, 2)
    assert queue_counts(peer) == {"default": (0, 0, 1), "dead": (1, 0, 0)}
    ack(peer, 1)
    assert queue_counts(peer) == {"default": (0, 0, 0), "dead": (1, 0, 0)}


def test_a_diamond_below_a_failed_task_fails_once(yard: SimulatedWire) -> None:
    peer = yard.connect()
    push(peer, 1, b"top", b',"retry":0')
    push(peer, 2, b"left", b',"blocked_by":[1],"deadqueue":"dead"')
    push(peer, 3, b"right", b',"blocked_by":[1],"deadqueue":"dead"')
    push(peer, 4, b"bottom", b',"blocked_by":[2,3],"deadqueue":"dead"')
    fetch(peer, 1, b"top")
    nack(peer, 1)
    assert queue_counts(peer) == {"default": (0, 0, 0), "dead": (3, 0, 0)}


def test_retries_left_do_not_save_a_dependent(yard: SimulatedWire) -> None:
    peer = yard.connect()
    push(peer, 1, b"a", b',"retry":0')
    push(peer, 2, b"b", b',"blocked_by":[1],"retry":255,"execute_at":"9999-01-01T00:00:00Z"')
    fetch(peer, 1, b"a")
    nack(peer, 1)
    assert queue_counts(peer) == {"default": (0, 0, 0)}


def test_a_dead_dependent_is_ready_at_once_whatever_its_execute_at(yard: SimulatedWire) -> None:
    peer = yard.connect()
    push(peer, 1, b"a", b',"retry":0')
    push(
        peer,
        2,
        b"b",
        b',"blocked_by":[1],"execute_at":"9999-01-01T00:00:00Z","deadqueue":"dead"',
    )
    fetch(peer, 1, b"a")
    nack(peer, 1)
    exchange(peer, FETCH_DEAD, b'OK {"id":2,"queue":"dead","name":"b"}\n')


def test_what_happens_in_the_deadqueue_does_not_bring_dependents_back(yard: SimulatedWire) -> None:
    peer = yard.connect()
    push(peer, 1, b"a", b',"retry":0,"deadqueue":"dead"')
    push(peer, 2, b"b", b',"blocked_by":[1]')
    fetch(peer, 1, b"a")
    nack(peer, 1)
    exchange(peer, FETCH_DEAD, b'OK {"id":1,"queue":"dead","name":"a"}\n')
    ack(peer, 1)
    assert queue_counts(peer) == {"default": (0, 0, 0), "dead": (0, 0, 0)}


def test_the_loss_of_a_holder_with_no_retries_left_fails_the_dependents(wire: Wire) -> None:
    holder, other = wire.connect(), wire.connect()
    push(holder, 1, b"a", b',"retry":0')
    push(holder, 2, b"b", b',"blocked_by":[1],"deadqueue":"dead"')
    fetch(holder, 1, b"a")
    holder.close()
    exchange(other, FETCH_DEAD, b'OK {"id":2,"queue":"dead","name":"b"}\n')


def test_255_blockers_are_accepted(yard: SimulatedWire) -> None:
    peer = yard.connect()
    for number in range(1, 256):
        push(peer, number, b"t")
    ids = b",".join(b"%d" % number for number in range(1, 256))
    push(peer, 256, b"last", b',"blocked_by":[' + ids + b"]")
    for number in range(1, 256):
        fetch(peer, number, b"t")
        assert queue_counts(peer)["default"][1] == 1
        ack(peer, number)
    fetch(peer, 256, b"last")


def test_256_blockers_are_refused(shared_wire: Wire) -> None:
    peer = shared_wire.connect()
    ids = b",".join(b"%d" % number for number in range(1, 257))
    exchange(
        peer,
        b'PUSH {"name":"a","blocked_by":[' + ids + b"]}\n",
        b'ERR {"msg":"at most 255 blocked by task IDs can be provided"}\n',
    )
    exchange(peer, b"PING\n", b"PONG {}\n")


@pytest.mark.parametrize("ids", [b"0", b"-1", b"1,-1", b"-300"])
def test_relative_ids_are_refused_outside_of_a_transaction(shared_wire: Wire, ids: bytes) -> None:
    peer = shared_wire.connect()
    exchange(
        peer,
        b'PUSH {"name":"a","blocked_by":[' + ids + b"]}\n",
        b'ERR {"msg":"cannot use relative blocked by outside of a transaction"}\n',
    )
    exchange(peer, b"PING\n", b"PONG {}\n")


def test_the_example_of_the_manual_with_relative_ids(wire: Wire) -> None:
    peer = wire.connect()
    exchange(
        peer,
        b"ATOMIC \n"
        b'PUSH {"name": "register-user"} \n'
        b'PUSH {"name": "notify-accounting"} \n'
        b'PUSH {"name": "initialize-account", "blocked_by": [-2]} \n'
        b'PUSH {"name": "send-password-reset-email", "blocked_by": [-1, -3]} \n'
        b"DONE \n",
        b'OK {"ids":[1,2,3,4]}\n',
    )
    assert queue_counts(peer) == {"default": (2, 2, 0)}
    fetch(peer, 1, b"register-user")
    fetch(peer, 2, b"notify-accounting")
    ack(peer, 2)
    assert queue_counts(peer) == {"default": (0, 2, 1)}
    ack(peer, 1)
    fetch(peer, 3, b"initialize-account")
    assert queue_counts(peer) == {"default": (0, 1, 1)}
    ack(peer, 3)
    fetch(peer, 4, b"send-password-reset-email")


def test_relative_ids_count_pushes_only(yard: SimulatedWire) -> None:
    peer = yard.connect()
    push(peer, 1, b"held")
    fetch(peer, 1, b"held")
    exchange(
        peer,
        b'ATOMIC\nPUSH {"name":"a"}\nACK {"id":1}\nPUSH {"name":"b","blocked_by":[-1]}\nDONE\n',
        b'OK {"ids":[2,3]}\n',
    )
    assert queue_counts(peer) == {"default": (1, 1, 0)}
    fetch(peer, 2, b"a")
    ack(peer, 2)
    fetch(peer, 3, b"b")


def test_relative_ids_do_not_reach_beyond_the_first_push_of_the_transaction(
    yard: SimulatedWire,
) -> None:
    peer = yard.connect()
    push(peer, 1, b"held")
    fetch(peer, 1, b"held")
    exchange(
        peer,
        b'ATOMIC\nACK {"id":1}\nPUSH {"name":"a","blocked_by":[-1]}\nDONE\n',
        b'ERR {"msg":"message 1: PUSH: invalid relative task position in blocked by"}\n',
    )
    assert queue_counts(peer) == {"default": (0, 0, 1)}


def test_a_transaction_may_mix_relative_and_absolute_ids(yard: SimulatedWire) -> None:
    peer = yard.connect()
    push(peer, 1, b"a")
    exchange(
        peer,
        b'ATOMIC\nPUSH {"name":"b"}\nPUSH {"name":"c","blocked_by":[1,-1]}\nDONE\n',
        b'OK {"ids":[2,3]}\n',
    )
    fetch(peer, 1, b"a")
    fetch(peer, 2, b"b")
    ack(peer, 2)
    assert queue_counts(peer) == {"default": (0, 1, 1)}
    ack(peer, 1)
    fetch(peer, 3, b"c")


def test_an_ack_in_a_transaction_releases_what_it_blocked(yard: SimulatedWire) -> None:
    peer = yard.connect()
    push(peer, 1, b"a")
    push(peer, 2, b"b", b',"blocked_by":[1]')
    fetch(peer, 1, b"a")
    exchange(peer, b'ATOMIC\nPUSH {"name":"c"}\nACK {"id":1}\nDONE\n', b'OK {"ids":[3]}\n')
    assert queue_counts(peer) == {"default": (2, 0, 0)}


@pytest.mark.parametrize(
    "lines",
    [
        b'ACK {"id":1}\nPUSH {"name":"b","blocked_by":[1]}\n',
        b'PUSH {"name":"b","blocked_by":[1]}\nACK {"id":1}\n',
    ],
)
def test_a_blocker_acknowledged_in_the_same_transaction_does_not_block(
    yard: SimulatedWire, lines: bytes
) -> None:
    peer = yard.connect()
    push(peer, 1, b"a")
    fetch(peer, 1, b"a")
    exchange(peer, b"ATOMIC\n" + lines + b"DONE\n", b'OK {"ids":[2]}\n')
    fetch(peer, 2, b"b")


def test_a_failed_transaction_blocks_nothing_and_releases_nothing(yard: SimulatedWire) -> None:
    peer = yard.connect()
    push(peer, 1, b"a")
    push(peer, 2, b"b", b',"blocked_by":[1]')
    fetch(peer, 1, b"a")
    exchange(
        peer,
        b'ATOMIC\nPUSH {"name":"c","blocked_by":[1]}\nACK {"id":1}\nPUSH {}\nDONE\n',
        b'ERR {"msg":"message 2: PUSH: invalid task name \\"\\""}\n',
    )
    assert queue_counts(peer) == {"default": (0, 1, 1)}
    ack(peer, 1)
    fetch(peer, 2, b"b")
    assert queue_counts(peer) == {"default": (0, 0, 1)}
