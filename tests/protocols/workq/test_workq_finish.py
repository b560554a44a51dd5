"""Workq complete, fail and delete: whoever comes first wins, with a lease or without."""

from collections.abc import Callable

import pytest
from support.wire import SimulatedWire, Wire, exchange
from support.workq import (
    COMPLETED,
    DUPLICATE_RESULT,
    FAILED,
    INVALID_ID,
    NOT_FOUND,
    OK,
    PENDING,
    TIMEOUT,
    add,
    complete,
    delete,
    expect_in_step,
    fail,
    failed,
    is_there,
    job,
    lease,
    leased,
    lengths,
    new_id,
    new_name,
    result,
    state,
    succeeded,
)

Finish = Callable[[bytes, bytes], bytes]

both = pytest.mark.parametrize("finish", [complete, fail])


# Complete


def test_a_completed_job_is_done_for_good(yard: SimulatedWire) -> None:
    peer, id = yard.connect("workq"), new_id()
    exchange(peer, add(id), OK)
    exchange(peer, lease(b"ping"), leased(id))
    exchange(peer, b"complete %b 4\r\npong\r\n" % id, b"+OK\r\n")
    keys = job(peer, id)
    assert (keys["state"], keys["attempts"], keys["fails"]) == (COMPLETED, b"1", b"0")
    assert lengths(peer, b"ping") == (0, 0)
    yard.advance(5)
    assert state(peer, id) == COMPLETED
    exchange(peer, lease(b"ping"), TIMEOUT)


@both
def test_the_ttl_goes_on_after_the_end(yard: SimulatedWire, finish: Finish) -> None:
    peer, id = yard.connect("workq"), new_id()
    exchange(peer, add(id, ttl=10_000), OK)
    yard.advance(9)
    exchange(peer, finish(id, b"pong"), OK)
    yard.advance(0.999999)
    assert is_there(peer, id)
    yard.advance(0.000001)
    assert not is_there(peer, id)
    exchange(peer, finish(id, b"pong"), NOT_FOUND)


@both
def test_no_lease_is_needed(shared_wire: Wire, finish: Finish) -> None:
    peer, id, name = shared_wire.connect("workq"), new_id(), new_name()
    exchange(peer, add(id, name), OK)
    exchange(peer, finish(id, b"pong"), OK)
    assert lengths(peer, name) == (0, 0)
    exchange(peer, lease(name), TIMEOUT)
    assert job(peer, id)["attempts"] == b"0"


@both
def test_another_connection_than_the_one_that_leased_may_finish(
    shared_wire: Wire, finish: Finish
) -> None:
    worker, other = shared_wire.connect("workq"), shared_wire.connect("workq")
    id, name = new_id(), new_name()
    exchange(worker, add(id, name), OK)
    exchange(worker, lease(name), leased(id, name))
    worker.close()
    exchange(other, finish(id, b"pong"), OK)
    expected = COMPLETED if finish is complete else FAILED
    assert state(other, id) == expected


@both
def test_a_worker_may_finish_after_its_ttr(yard: SimulatedWire, finish: Finish) -> None:
    peer, id = yard.connect("workq"), new_id()
    exchange(peer, add(id), OK)
    exchange(peer, lease(b"ping"), leased(id))
    yard.advance(1)
    assert state(peer, id) == PENDING
    exchange(peer, finish(id, b"pong"), OK)
    exchange(peer, lease(b"ping"), TIMEOUT)


@both
@pytest.mark.parametrize("second", [complete, fail])
def test_a_worker_may_finish_what_another_has_leased_by_now(
    yard: SimulatedWire, finish: Finish, second: Finish
) -> None:
    slow, fast, id = yard.connect("workq"), yard.connect("workq"), new_id()
    exchange(slow, add(id), OK)
    exchange(slow, lease(b"ping"), leased(id))
    yard.advance(1)
    exchange(fast, lease(b"ping"), leased(id))
    exchange(slow, finish(id, b"slow"), OK)
    exchange(fast, second(id, b"fast"), DUPLICATE_RESULT)
    reply = succeeded if finish is complete else failed
    exchange(fast, result(id), reply(id, b"slow"))
    yard.advance(5)
    exchange(fast, lease(b"ping"), TIMEOUT)


@both
@pytest.mark.parametrize("second", [complete, fail])
def test_the_first_result_wins(shared_wire: Wire, finish: Finish, second: Finish) -> None:
    peer, id, name = shared_wire.connect("workq"), new_id(), new_name()
    exchange(peer, add(id, name), OK)
    exchange(peer, finish(id, b"first"), OK)
    exchange(peer, second(id, b"second"), DUPLICATE_RESULT)
    expect_in_step(peer)
    reply = succeeded if finish is complete else failed
    exchange(peer, result(id), reply(id, b"first"))


@both
def test_an_id_that_is_not_there_is_not_found(shared_wire: Wire, finish: Finish) -> None:
    peer = shared_wire.connect("workq")
    exchange(peer, finish(new_id(), b"a\r\nb"), NOT_FOUND)
    expect_in_step(peer)


@both
@pytest.mark.parametrize("id", [b"1", b"6ba7b8109dad11d180b400c04fd430c4", b"x" * 36])
def test_an_id_that_is_none_is_refused_and_the_result_consumed(
    shared_wire: Wire, finish: Finish, id: bytes
) -> None:
    peer = shared_wire.connect("workq")
    exchange(peer, finish(id, b"a\r\nb"), INVALID_ID)
    expect_in_step(peer)


def test_a_completed_job_keeps_its_payload(shared_wire: Wire) -> None:
    peer, id = shared_wire.connect("workq"), new_id()
    exchange(peer, add(id, payload=b"the payload"), OK)
    exchange(peer, complete(id, b"the result"), OK)
    keys = job(peer, id)
    assert (keys["payload"], keys["payload-size"]) == (b"the payload", b"11")


def test_an_id_in_upper_case_can_be_completed(shared_wire: Wire) -> None:
    peer = shared_wire.connect("workq")
    id = b"abcdefab-cdef-4abc-8def-%b" % new_id()[-12:]
    exchange(peer, add(id), OK)
    exchange(peer, complete(id.upper()), OK)
    exchange(peer, result(id.upper()), succeeded(id))


# Fail


@pytest.mark.parametrize("flags", [b"", b"-max-fails=0", b"-max-fails=1", b"-max-attempts=5"])
def test_without_more_fails_allowed_the_first_is_final(yard: SimulatedWire, flags: bytes) -> None:
    peer, id = yard.connect("workq"), new_id()
    exchange(peer, add(id, flags=flags), OK)
    exchange(peer, lease(b"ping"), leased(id))
    exchange(peer, b"fail %b 3\r\nwhy\r\n" % id, b"+OK\r\n")
    keys = job(peer, id)
    assert (keys["state"], keys["attempts"], keys["fails"]) == (FAILED, b"1", b"1")
    exchange(peer, result(id), failed(id, b"why"))
    yard.advance(5)
    exchange(peer, lease(b"ping"), TIMEOUT)


@pytest.mark.parametrize("limit", [2, 3, 255])
def test_a_job_is_tried_again_until_its_last_fail(yard: SimulatedWire, limit: int) -> None:
    peer, id = yard.connect("workq"), new_id()
    exchange(peer, add(id, flags=b"-max-fails=%d" % limit), OK)
    for number in range(1, limit):
        exchange(peer, lease(b"ping"), leased(id))
        exchange(peer, fail(id, b"error %d" % number), OK)
        keys = job(peer, id)
        assert (keys["state"], keys["fails"]) == (PENDING, b"%d" % number)
        assert lengths(peer, b"ping") == (1, 0)
    exchange(peer, lease(b"ping"), leased(id))
    exchange(peer, fail(id, b"the last"), OK)
    keys = job(peer, id)
    assert (keys["state"], keys["fails"]) == (FAILED, b"%d" % limit)
    assert keys["attempts"] == b"%d" % limit
    exchange(peer, result(id), failed(id, b"the last"))
    exchange(peer, fail(id), DUPLICATE_RESULT)
    exchange(peer, lease(b"ping"), TIMEOUT)


def test_a_job_that_failed_may_be_completed_when_it_is_tried_again(yard: SimulatedWire) -> None:
    peer, id = yard.connect("workq"), new_id()
    exchange(peer, add(id, flags=b"-max-fails=2"), OK)
    exchange(peer, lease(b"ping"), leased(id))
    exchange(peer, fail(id), OK)
    exchange(peer, lease(b"ping"), leased(id))
    exchange(peer, complete(id, b"at last"), OK)
    keys = job(peer, id)
    assert (keys["state"], keys["attempts"], keys["fails"]) == (COMPLETED, b"2", b"1")
    exchange(peer, result(id), succeeded(id, b"at last"))


def test_a_waiting_worker_gets_a_job_that_failed_at_once(yard: SimulatedWire) -> None:
    peer, worker, id = yard.connect("workq"), yard.connect("workq"), new_id()
    exchange(peer, add(id, flags=b"-max-fails=2"), OK)
    exchange(peer, lease(b"ping"), leased(id))
    worker.send(lease(b"ping", wait=1000))
    worker.expect_nothing()
    exchange(peer, fail(id), OK)
    worker.expect(leased(id))


def test_a_job_that_failed_goes_back_before_those_that_came_later(yard: SimulatedWire) -> None:
    peer, ids = yard.connect("workq"), [new_id() for _ in range(3)]
    for id in ids:
        exchange(peer, add(id, flags=b"-max-fails=2"), OK)
    exchange(peer, lease(b"ping"), leased(ids[0]))
    exchange(peer, fail(ids[0]), OK)
    for id in ids:
        exchange(peer, lease(b"ping"), leased(id))


def test_the_end_of_a_ttr_is_no_fail(yard: SimulatedWire) -> None:
    peer, id = yard.connect("workq"), new_id()
    exchange(peer, add(id, ttr=1, flags=b"-max-fails=2"), OK)
    for _ in range(5):
        exchange(peer, lease(b"ping"), leased(id))
        yard.advance(0.001)
    keys = job(peer, id)
    assert (keys["state"], keys["attempts"], keys["fails"]) == (PENDING, b"5", b"0")
    exchange(peer, fail(id), OK)
    assert state(peer, id) == PENDING
    exchange(peer, fail(id), OK)
    assert state(peer, id) == FAILED


def test_a_fail_with_the_attempts_used_up_is_final(yard: SimulatedWire) -> None:
    peer, id = yard.connect("workq"), new_id()
    exchange(peer, add(id, flags=b"-max-attempts=2 -max-fails=5"), OK)
    exchange(peer, lease(b"ping"), leased(id))
    exchange(peer, fail(id, b"one"), OK)
    assert state(peer, id) == PENDING
    exchange(peer, lease(b"ping"), leased(id))
    exchange(peer, fail(id, b"two"), OK)
    keys = job(peer, id)
    assert (keys["state"], keys["attempts"], keys["fails"]) == (FAILED, b"2", b"2")
    exchange(peer, result(id), failed(id, b"two"))


def test_a_job_that_failed_and_then_outlasts_its_last_ttr_has_no_result_bytes(
    yard: SimulatedWire,
) -> None:
    peer, waiter, id = yard.connect("workq"), yard.connect("workq"), new_id()
    exchange(peer, add(id, flags=b"-max-attempts=2 -max-fails=5"), OK)
    waiter.send(result(id, wait=60_000))
    exchange(peer, lease(b"ping"), leased(id))
    exchange(peer, fail(id, b"one"), OK)
    exchange(peer, lease(b"ping"), leased(id))
    yard.advance(1)
    assert state(peer, id) == FAILED
    waiter.expect(failed(id, b""))


def test_a_job_can_be_failed_in_its_queue_and_stays_there_while_it_may(
    yard: SimulatedWire,
) -> None:
    peer, id = yard.connect("workq"), new_id()
    exchange(peer, add(id, flags=b"-max-fails=2"), OK)
    exchange(peer, fail(id), OK)
    keys = job(peer, id)
    assert (keys["state"], keys["attempts"], keys["fails"]) == (PENDING, b"0", b"1")
    exchange(peer, lease(b"ping"), leased(id))


# Delete


def test_a_deleted_job_is_gone(shared_wire: Wire) -> None:
    peer, id, name = shared_wire.connect("workq"), new_id(), new_name()
    exchange(peer, add(id, name), OK)
    exchange(peer, b"delete %b\r\n" % id, b"+OK\r\n")
    exchange(peer, b"inspect job %b\r\n" % id, NOT_FOUND)
    exchange(peer, b"delete %b\r\n" % id, b"-NOT-FOUND\r\n")
    exchange(peer, lease(name), TIMEOUT)
    exchange(peer, complete(id), NOT_FOUND)
    exchange(peer, fail(id), NOT_FOUND)
    exchange(peer, result(id), NOT_FOUND)
    assert lengths(peer, name) == (0, 0)


def test_a_leased_job_can_be_deleted(yard: SimulatedWire) -> None:
    peer, id = yard.connect("workq"), new_id()
    exchange(peer, add(id), OK)
    exchange(peer, lease(b"ping"), leased(id))
    exchange(peer, delete(id), OK)
    exchange(peer, complete(id), NOT_FOUND)
    yard.advance(5)
    exchange(peer, lease(b"ping"), TIMEOUT)


def test_a_pending_job_can_be_deleted(yard: SimulatedWire) -> None:
    peer, id = yard.connect("workq"), new_id()
    exchange(peer, add(id), OK)
    exchange(peer, lease(b"ping"), leased(id))
    yard.advance(1)
    exchange(peer, delete(id), OK)
    exchange(peer, lease(b"ping"), TIMEOUT)


@both
def test_a_finished_job_can_be_deleted_with_its_result(shared_wire: Wire, finish: Finish) -> None:
    peer, id = shared_wire.connect("workq"), new_id()
    exchange(peer, add(id), OK)
    exchange(peer, finish(id, b"pong"), OK)
    exchange(peer, delete(id), OK)
    exchange(peer, result(id), NOT_FOUND)
    exchange(peer, delete(id), NOT_FOUND)


def test_the_job_of_another_connection_can_be_deleted(shared_wire: Wire) -> None:
    owner, other, id = shared_wire.connect("workq"), shared_wire.connect("workq"), new_id()
    exchange(owner, add(id), OK)
    exchange(other, delete(id), OK)
    assert not is_there(owner, id)


def test_an_unknown_id_is_not_found_and_a_wrong_one_refused(shared_wire: Wire) -> None:
    peer = shared_wire.connect("workq")
    exchange(peer, delete(new_id()), NOT_FOUND)
    exchange(peer, b"delete 6ba7b810\r\n", INVALID_ID)
    expect_in_step(peer)
