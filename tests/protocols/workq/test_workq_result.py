"""Workq result: every waiter is answered, at once or at its time; results can be read again."""

import pytest
from support.wire import SimulatedWire, Wire, exchange
from support.workq import (
    INVALID_ID,
    MAX_TTL,
    MAX_WAIT,
    NOT_FOUND,
    OK,
    TIMEOUT,
    UNKNOWN,
    add,
    client_error,
    complete,
    delete,
    expect_in_step,
    fail,
    failed,
    lease,
    leased,
    new_id,
    new_name,
    result,
    rfc3339,
    schedule,
    succeeded,
)

INVALID_WAIT = client_error("Invalid wait timeout")


def test_the_example_of_the_protocol_text_is_answered_as_it_shows(shared_wire: Wire) -> None:
    peer, id = shared_wire.connect("workq"), new_id()
    exchange(peer, add(id), OK)
    exchange(peer, b"complete %b 4\r\npong\r\n" % id, b"+OK\r\n")
    exchange(peer, b"result %b 60000\r\n" % id, b"+OK 1\r\n%b 1 4\r\npong\r\n" % id)


def test_a_failed_job_is_answered_with_a_zero_and_its_result(shared_wire: Wire) -> None:
    peer, id = shared_wire.connect("workq"), new_id()
    exchange(peer, add(id), OK)
    exchange(peer, b"fail %b 3\r\nwhy\r\n" % id, b"+OK\r\n")
    exchange(peer, b"result %b 60000\r\n" % id, b"+OK 1\r\n%b 0 3\r\nwhy\r\n" % id)


def test_an_empty_result_is_a_result(shared_wire: Wire) -> None:
    peer, id = shared_wire.connect("workq"), new_id()
    exchange(peer, add(id), OK)
    exchange(peer, complete(id, b""), OK)
    exchange(peer, result(id), b"+OK 1\r\n%b 1 0\r\n\r\n" % id)


def test_an_id_that_is_not_there_is_not_found_at_once(shared_wire: Wire) -> None:
    peer = shared_wire.connect("workq")
    exchange(peer, result(new_id(), wait=MAX_WAIT), NOT_FOUND)
    expect_in_step(peer)


def test_a_result_can_be_read_again_until_the_ttl_is_over(yard: SimulatedWire) -> None:
    peer, other, id = yard.connect("workq"), yard.connect("workq"), new_id()
    exchange(peer, add(id, ttl=10_000), OK)
    yard.advance(4)
    exchange(peer, complete(id), OK)
    for _ in range(3):
        exchange(peer, result(id), succeeded(id))
        exchange(other, result(id, wait=1000), succeeded(id))
    yard.advance(5.999999)
    exchange(peer, result(id), succeeded(id))
    yard.advance(0.000001)
    exchange(peer, result(id), NOT_FOUND)


def test_the_result_of_a_failure_can_be_read_again_until_the_ttl_is_over(
    yard: SimulatedWire,
) -> None:
    peer, id = yard.connect("workq"), new_id()
    exchange(peer, add(id, ttl=10_000), OK)
    exchange(peer, fail(id), OK)
    exchange(peer, result(id), failed(id))
    yard.advance(9.999999)
    exchange(peer, result(id), failed(id))
    yard.advance(0.000001)
    exchange(peer, result(id), NOT_FOUND)


# Waiting


def test_without_a_wait_an_unfinished_job_is_answered_at_once(shared_wire: Wire) -> None:
    peer, id, name = shared_wire.connect("workq"), new_id(), new_name()
    exchange(peer, add(id, name), OK)
    exchange(peer, result(id, wait=0), TIMEOUT)
    exchange(peer, lease(name), leased(id, name))
    exchange(peer, result(id, wait=0), TIMEOUT)


def test_a_wait_ends_at_its_timeout_and_not_before(yard: SimulatedWire) -> None:
    peer, id = yard.connect("workq"), new_id()
    exchange(peer, add(id), OK)
    peer.send(result(id, wait=1500))
    yard.advance(1.499999)
    peer.expect_nothing()
    yard.advance(0.000001)
    peer.expect(TIMEOUT)
    exchange(peer, complete(id), OK)
    exchange(peer, result(id), succeeded(id))
    peer.expect_nothing()


def test_the_longest_wait_is_a_day(yard: SimulatedWire) -> None:
    peer, id = yard.connect("workq"), new_id()
    exchange(peer, add(id, ttl=MAX_TTL), OK)
    peer.send(result(id, wait=MAX_WAIT))
    yard.advance(86_399.999999)
    peer.expect_nothing()
    yard.advance(0.000001)
    peer.expect(TIMEOUT)


@pytest.mark.parametrize("wait", [b"86400001", b"x", b"1.5", b"18446744073709551616", b"1s"])
def test_any_other_wait_is_refused(shared_wire: Wire, wait: bytes) -> None:
    peer, id = shared_wire.connect("workq"), new_id()
    exchange(peer, add(id), OK)
    exchange(peer, b"result %b %b\r\n" % (id, wait), INVALID_WAIT)
    expect_in_step(peer)


def test_an_id_that_is_none_is_refused(shared_wire: Wire) -> None:
    peer = shared_wire.connect("workq")
    exchange(peer, b"result 6ba7b8109dad11d180b400c04fd430c4 0\r\n", INVALID_ID)
    expect_in_step(peer)


def test_every_waiter_is_answered(shared_wire: Wire) -> None:
    peer, id = shared_wire.connect("workq"), new_id()
    waiters = [shared_wire.connect("workq") for _ in range(20)]
    exchange(peer, add(id), OK)
    for waiter in waiters:
        waiter.send(result(id, wait=60_000))
        waiter.expect_nothing()
    exchange(peer, complete(id), OK)
    for waiter in waiters:
        waiter.expect(succeeded(id))
    exchange(peer, result(id), succeeded(id))


def test_every_waiter_hears_of_a_failure(yard: SimulatedWire) -> None:
    peer, id = yard.connect("workq"), new_id()
    waiters = [yard.connect("workq") for _ in range(3)]
    exchange(peer, add(id), OK)
    for waiter in waiters:
        waiter.send(result(id, wait=60_000))
    exchange(peer, fail(id), OK)
    for waiter in waiters:
        waiter.expect(failed(id))


def test_waiters_have_each_their_own_time(yard: SimulatedWire) -> None:
    peer, id = yard.connect("workq"), new_id()
    short, middle, long = (yard.connect("workq") for _ in range(3))
    exchange(peer, add(id), OK)
    middle.send(result(id, wait=2000))
    long.send(result(id, wait=3000))
    short.send(result(id, wait=1000))
    yard.advance(1)
    short.expect(TIMEOUT)
    middle.expect_nothing()
    yard.advance(1)
    middle.expect(TIMEOUT)
    long.expect_nothing()
    exchange(peer, complete(id), OK)
    long.expect(succeeded(id))
    yard.advance(10)
    for waiter in (short, middle, long):
        waiter.expect_nothing()


def test_waiters_are_told_at_once_of_a_delete(shared_wire: Wire) -> None:
    peer, id = shared_wire.connect("workq"), new_id()
    waiters = [shared_wire.connect("workq") for _ in range(3)]
    exchange(peer, add(id), OK)
    for waiter in waiters:
        waiter.send(result(id, wait=60_000))
        waiter.expect_nothing()
    exchange(peer, delete(id), OK)
    for waiter in waiters:
        waiter.expect(NOT_FOUND)
        expect_in_step(waiter)


def test_waiters_are_told_at_once_when_the_ttl_is_over(yard: SimulatedWire) -> None:
    peer, id = yard.connect("workq"), new_id()
    waiters = [yard.connect("workq") for _ in range(3)]
    exchange(peer, add(id, ttl=2000), OK)
    for waiter in waiters:
        waiter.send(result(id, wait=60_000))
    yard.advance(1.999999)
    for waiter in waiters:
        waiter.expect_nothing()
    yard.advance(0.000001)
    for waiter in waiters:
        waiter.expect(NOT_FOUND)


def test_a_job_that_comes_back_under_the_same_id_is_not_the_one_waited_for(
    yard: SimulatedWire,
) -> None:
    peer, waiter, id = yard.connect("workq"), yard.connect("workq"), new_id()
    exchange(peer, add(id), OK)
    waiter.send(result(id, wait=60_000))
    exchange(peer, delete(id), OK)
    waiter.expect(NOT_FOUND)
    exchange(peer, add(id), OK)
    exchange(peer, complete(id), OK)
    waiter.expect_nothing()


def test_a_result_of_a_scheduled_job_can_be_waited_for(yard: SimulatedWire) -> None:
    peer, waiter, id = yard.connect("workq"), yard.connect("workq"), new_id()
    exchange(peer, schedule(id, time=rfc3339(yard.now() + 10)), OK)
    waiter.send(result(id, wait=60_000))
    yard.advance(10)
    exchange(peer, lease(b"ping"), leased(id))
    waiter.expect_nothing()
    exchange(peer, complete(id), OK)
    waiter.expect(succeeded(id))


def test_a_job_that_is_tried_again_has_no_result_yet(yard: SimulatedWire) -> None:
    peer, waiter, id = yard.connect("workq"), yard.connect("workq"), new_id()
    exchange(peer, add(id, flags=b"-max-fails=3"), OK)
    waiter.send(result(id, wait=60_000))
    exchange(peer, lease(b"ping"), leased(id))
    yard.advance(1)
    exchange(peer, lease(b"ping"), leased(id))
    exchange(peer, fail(id, b"one"), OK)
    waiter.expect_nothing()
    exchange(peer, result(id), TIMEOUT)
    exchange(peer, lease(b"ping"), leased(id))
    exchange(peer, complete(id, b"two"), OK)
    waiter.expect(succeeded(id, b"two"))


def test_attempts_used_up_are_a_failure_without_bytes(yard: SimulatedWire) -> None:
    peer, waiter, id = yard.connect("workq"), yard.connect("workq"), new_id()
    exchange(peer, add(id, ttr=1000, flags=b"-max-attempts=1"), OK)
    waiter.send(result(id, wait=60_000))
    exchange(peer, lease(b"ping"), leased(id))
    yard.advance(0.999999)
    waiter.expect_nothing()
    yard.advance(0.000001)
    waiter.expect(b"+OK 1\r\n%b 0 0\r\n\r\n" % id)
    exchange(peer, result(id), b"+OK 1\r\n%b 0 0\r\n\r\n" % id)


def test_a_waiter_that_went_away_disturbs_nobody(shared_wire: Wire) -> None:
    gone, waiter, peer = (shared_wire.connect("workq") for _ in range(3))
    id = new_id()
    exchange(peer, add(id), OK)
    gone.send(result(id, wait=60_000))
    gone.expect_nothing()
    waiter.send(result(id, wait=60_000))
    waiter.expect_nothing()
    gone.close()
    exchange(peer, complete(id), OK)
    waiter.expect(succeeded(id))
    exchange(peer, result(id), succeeded(id))


def test_what_is_behind_a_result_waits_for_it(yard: SimulatedWire) -> None:
    peer, waiter, one, two = yard.connect("workq"), yard.connect("workq"), new_id(), new_id()
    exchange(peer, add(one) + add(two), OK + OK)
    waiter.send(result(one, wait=60_000) + result(two, wait=60_000) + b"bogus\r\n")
    exchange(peer, complete(two, b"2"), OK)
    waiter.expect_nothing()
    exchange(peer, complete(one, b"1"), OK)
    waiter.expect(succeeded(one, b"1") + succeeded(two, b"2") + UNKNOWN)


def test_a_late_waiter_is_answered_like_the_early_ones(yard: SimulatedWire) -> None:
    peer, id = yard.connect("workq"), new_id()
    early, late = yard.connect("workq"), yard.connect("workq")
    exchange(peer, add(id), OK)
    early.send(result(id, wait=1000))
    exchange(peer, complete(id), OK)
    late.send(result(id, wait=1000))
    early.expect(succeeded(id))
    late.expect(succeeded(id))
