"""Workq run: a caller waits for its job, and the job does not outlive the wait."""

from collections.abc import Callable

import pytest
from support.wire import SimulatedWire, Wire, exchange
from support.workq import (
    INVALID_ARGS,
    INVALID_FLAGS,
    INVALID_ID,
    INVALID_NAME,
    JOB_KEYS,
    LEASED,
    MAX_TTR,
    MAX_WAIT,
    NEW,
    NOT_FOUND,
    OK,
    PAYLOAD_SIZE,
    TIMEOUT,
    UNKNOWN,
    add,
    client_error,
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
    read_reply,
    result,
    run,
    server,
    state,
    succeeded,
)

INVALID_TTR = client_error("Invalid TTR")
INVALID_WAIT = client_error("Invalid wait timeout")


def test_the_example_of_the_protocol_text_is_answered_as_it_shows(wire: Wire) -> None:
    caller, worker = wire.connect("workq"), wire.connect("workq")
    caller.send(b"run 6ba7b810-9dad-11d1-80b4-00c04fd430c4 ping 1000 60000 4\r\nping\r\n")
    exchange(
        worker,
        b"lease ping 60000\r\n",
        b"+OK 1\r\n6ba7b810-9dad-11d1-80b4-00c04fd430c4 ping 4\r\nping\r\n",
    )
    caller.expect_nothing()
    exchange(worker, b"complete 6ba7b810-9dad-11d1-80b4-00c04fd430c4 4\r\npong\r\n", b"+OK\r\n")
    caller.expect(b"+OK 1\r\n6ba7b810-9dad-11d1-80b4-00c04fd430c4 1 4\r\npong\r\n")


def test_a_failure_is_answered_with_a_zero_and_its_result(shared_wire: Wire) -> None:
    caller, worker = shared_wire.connect("workq"), shared_wire.connect("workq")
    id, name = new_id(), new_name()
    caller.send(run(id, name))
    exchange(worker, lease(name, wait=60_000), leased(id, name))
    exchange(worker, fail(id, b"no\r\n"), OK)
    caller.expect(failed(id, b"no\r\n"))


def test_a_worker_that_waits_already_gets_the_job(shared_wire: Wire) -> None:
    caller, worker = shared_wire.connect("workq"), shared_wire.connect("workq")
    id, name = new_id(), new_name()
    worker.send(lease(name, wait=60_000))
    worker.expect_nothing()
    caller.send(run(id, name, wait=0, ttr=60_000))
    worker.expect(leased(id, name))
    caller.expect_nothing()
    exchange(worker, complete(id), OK)
    caller.expect(succeeded(id))


@pytest.mark.parametrize("finish", [complete, fail])
def test_the_job_is_deleted_when_run_returns(
    yard: SimulatedWire, finish: Callable[[bytes], bytes]
) -> None:
    caller, worker, id = yard.connect("workq"), yard.connect("workq"), new_id()
    caller.send(run(id))
    exchange(worker, lease(b"ping"), leased(id))
    exchange(worker, finish(id), OK)
    assert read_reply(caller) == b"+OK 1"
    exchange(worker, result(id), NOT_FOUND)
    exchange(worker, complete(id), NOT_FOUND)
    assert not is_there(worker, id)
    exchange(worker, add(id), OK)


def test_a_job_that_nobody_leased_is_removed_at_the_wait_timeout(yard: SimulatedWire) -> None:
    caller, peer, id = yard.connect("workq"), yard.connect("workq"), new_id()
    caller.send(run(id, wait=2500))
    yard.advance(2.499999)
    caller.expect_nothing()
    assert lengths(peer, b"ping") == (1, 0)
    yard.advance(0.000001)
    caller.expect(TIMEOUT)
    assert not is_there(peer, id)
    assert lengths(peer, b"ping") == (0, 0)
    exchange(peer, lease(b"ping"), TIMEOUT)


def test_without_a_wait_a_job_that_nobody_waits_for_is_answered_at_once(shared_wire: Wire) -> None:
    caller, id, name = shared_wire.connect("workq"), new_id(), new_name()
    exchange(caller, run(id, name, wait=0), TIMEOUT)
    assert not is_there(caller, id)
    exchange(caller, lease(name), TIMEOUT)


def test_a_leased_job_is_waited_for_until_its_ttr_is_over(yard: SimulatedWire) -> None:
    caller, worker, id = yard.connect("workq"), yard.connect("workq"), new_id()
    caller.send(run(id, wait=1000, ttr=5000))
    yard.advance(0.999)
    exchange(worker, lease(b"ping"), leased(id))
    yard.advance(4.999999)
    caller.expect_nothing()
    assert state(worker, id) == LEASED
    yard.advance(0.000001)
    caller.expect(TIMEOUT)
    assert not is_there(worker, id)
    exchange(worker, lease(b"ping"), TIMEOUT)
    exchange(worker, complete(id), NOT_FOUND)


def test_the_ttr_may_be_over_before_the_wait_timeout(yard: SimulatedWire) -> None:
    caller, worker, id = yard.connect("workq"), yard.connect("workq"), new_id()
    caller.send(run(id, wait=60_000, ttr=1000))
    exchange(worker, lease(b"ping"), leased(id))
    yard.advance(0.999999)
    caller.expect_nothing()
    yard.advance(0.000001)
    caller.expect(TIMEOUT)
    assert not is_there(worker, id)


def test_a_job_may_be_finished_just_before_its_ttr_is_over(yard: SimulatedWire) -> None:
    caller, worker, id = yard.connect("workq"), yard.connect("workq"), new_id()
    caller.send(run(id, wait=1000, ttr=1000))
    exchange(worker, lease(b"ping"), leased(id))
    yard.advance(0.999999)
    exchange(worker, complete(id), OK)
    caller.expect(succeeded(id))
    yard.advance(100)
    caller.expect_nothing()


def test_a_job_may_be_finished_without_a_lease(yard: SimulatedWire) -> None:
    caller, peer, id = yard.connect("workq"), yard.connect("workq"), new_id()
    caller.send(run(id))
    exchange(peer, complete(id), OK)
    caller.expect(succeeded(id))
    exchange(peer, lease(b"ping"), TIMEOUT)


def test_the_caller_may_go_on_after_a_timeout(yard: SimulatedWire) -> None:
    caller, worker, id = yard.connect("workq"), yard.connect("workq"), new_id()
    exchange(caller, run(id, wait=0), TIMEOUT)
    caller.send(run(id, wait=1000))
    exchange(worker, lease(b"ping"), leased(id))
    exchange(worker, complete(id), OK)
    caller.expect(succeeded(id))


def test_what_is_behind_a_run_waits_for_it(yard: SimulatedWire) -> None:
    caller, worker, id = yard.connect("workq"), yard.connect("workq"), new_id()
    caller.send(run(id) + b"bogus\r\n")
    exchange(worker, lease(b"ping"), leased(id))
    caller.expect_nothing()
    exchange(worker, complete(id), OK)
    caller.expect(succeeded(id) + UNKNOWN)


def test_several_callers_are_answered_each_with_its_own_result(yard: SimulatedWire) -> None:
    worker = yard.connect("workq")
    callers = {new_id(): yard.connect("workq") for _ in range(5)}
    for id, caller in callers.items():
        caller.send(run(id))
    for id in callers:
        exchange(worker, lease(b"ping"), leased(id))
    for id in reversed(callers):
        exchange(worker, complete(id, b"for " + id), OK)
    for id, caller in callers.items():
        caller.expect(succeeded(id, b"for " + id))


# A caller that goes away


def test_a_job_that_nobody_leased_is_withdrawn_when_its_caller_goes_away(
    shared_wire: Wire,
) -> None:
    caller, worker = shared_wire.connect("workq"), shared_wire.connect("workq")
    id, name = new_id(), new_name()
    caller.send(run(id, name))
    caller.expect_nothing()
    assert lengths(worker, name) == (1, 0)
    caller.close()
    worker.expect_nothing()  # gives a real server the turns in which it learns of the loss
    exchange(worker, lease(name), TIMEOUT)
    assert not is_there(worker, id)
    assert lengths(worker, name) == (0, 0)


def test_others_who_wait_for_its_result_hear_at_once_that_it_was_withdrawn(
    yard: SimulatedWire,
) -> None:
    caller, reader, id = yard.connect("workq"), yard.connect("workq"), new_id()
    caller.send(run(id))
    reader.send(result(id, wait=60_000))
    reader.expect_nothing()
    caller.close()
    reader.expect(NOT_FOUND)


def test_a_leased_job_stays_with_its_worker_when_its_caller_goes_away(yard: SimulatedWire) -> None:
    caller, worker, id = yard.connect("workq"), yard.connect("workq"), new_id()
    caller.send(run(id))
    exchange(worker, lease(b"ping"), leased(id))
    caller.close()
    assert state(worker, id) == LEASED
    exchange(worker, complete(id), OK)


def test_a_leased_job_without_a_caller_is_not_given_out_again(yard: SimulatedWire) -> None:
    caller, worker, id = yard.connect("workq"), yard.connect("workq"), new_id()
    caller.send(run(id, ttr=1000, wait=5000))
    exchange(worker, lease(b"ping"), leased(id))
    caller.close()
    yard.advance(1)
    exchange(worker, lease(b"ping"), TIMEOUT)
    yard.advance(60)
    exchange(worker, lease(b"ping"), TIMEOUT)
    assert not is_there(worker, id)
    assert server(worker)["evicted-jobs"] == b"0"


# What others see of it


def test_its_ttl_shows_as_zero(yard: SimulatedWire) -> None:
    caller, peer, id = yard.connect("workq"), yard.connect("workq"), new_id()
    caller.send(run(id, ttr=7, flags=b"-priority=3"))
    keys = job(peer, id)
    assert list(keys) == JOB_KEYS
    assert keys["ttl"] == b"0"
    assert (keys["ttr"], keys["priority"], keys["state"]) == (b"7", b"3", NEW)
    exchange(peer, lease(b"ping"), leased(id))
    assert job(peer, id)["ttl"] == b"0"


def test_it_stands_in_the_queue_by_its_priority(yard: SimulatedWire) -> None:
    caller, peer = yard.connect("workq"), yard.connect("workq")
    low, high, between = new_id(), new_id(), new_id()
    exchange(peer, add(low), OK)
    exchange(peer, add(high, flags=b"-priority=2"), OK)
    caller.send(run(between, flags=b"-priority=1"))
    for id in (high, between, low):
        exchange(peer, lease(b"ping"), leased(id))


def test_others_may_wait_for_its_result(yard: SimulatedWire) -> None:
    caller, reader, worker = (yard.connect("workq") for _ in range(3))
    id = new_id()
    caller.send(run(id))
    reader.send(result(id, wait=1000))
    exchange(worker, complete(id), OK)
    caller.expect(succeeded(id))
    reader.expect(succeeded(id))


def test_others_who_wait_hear_of_its_end(yard: SimulatedWire) -> None:
    caller, reader = yard.connect("workq"), yard.connect("workq")
    id = new_id()
    caller.send(run(id, wait=1000))
    reader.send(result(id, wait=5000))
    yard.advance(1)
    caller.expect(TIMEOUT)
    reader.expect(NOT_FOUND)


@pytest.mark.parametrize("is_leased", [False, True])
def test_the_caller_hears_when_its_job_is_deleted(yard: SimulatedWire, is_leased: bool) -> None:
    caller, peer, id = yard.connect("workq"), yard.connect("workq"), new_id()
    caller.send(run(id))
    if is_leased:
        exchange(peer, lease(b"ping"), leased(id))
    exchange(peer, delete(id), OK)
    caller.expect(NOT_FOUND)
    exchange(caller, b"bogus\r\n", UNKNOWN)


# Arguments


@pytest.mark.parametrize("value", [-(1 << 31), -1, 0, (1 << 31) - 1])
def test_a_priority_is_a_signed_number_of_32_bits(yard: SimulatedWire, value: int) -> None:
    caller, peer, id = yard.connect("workq"), yard.connect("workq"), new_id()
    caller.send(run(id, flags=b"-priority=%d" % value))
    assert job(peer, id)["priority"] == b"%d" % value


@pytest.mark.parametrize("ttr", [1, MAX_TTR])
@pytest.mark.parametrize("wait", [1, MAX_WAIT])
def test_times_at_their_limits_are_taken(yard: SimulatedWire, ttr: int, wait: int) -> None:
    caller, worker, id = yard.connect("workq"), yard.connect("workq"), new_id()
    caller.send(run(id, ttr=ttr, wait=wait))
    yard.advance(wait / 1000 - 0.000001)
    caller.expect_nothing()
    exchange(worker, lease(b"ping"), leased(id))
    yard.advance(ttr / 1000 - 0.000001)
    caller.expect_nothing()
    yard.advance(0.000001)
    caller.expect(TIMEOUT)


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (b"run 1 ping 1000 0 4", INVALID_ID),
        (b"run %b a/b 1000 0 4", INVALID_NAME),
        (b"run %b ping 1000 0 3", PAYLOAD_SIZE),
        (b"run %b ping 0 0 4", INVALID_TTR),
        (b"run %b ping 86400001 0 4", INVALID_TTR),
        (b"run %b ping x 0 4", INVALID_TTR),
        (b"run %b ping 1000 86400001 4", INVALID_WAIT),
        (b"run %b ping 1000 x 4", INVALID_WAIT),
        (b"run %b ping 1000 1.5 4", INVALID_WAIT),
        (b"run %b ping 1000 0 4 -priority=2147483648", client_error("Invalid Priority")),
        (b"run %b ping 1000 0 4 -priority=4294967295", client_error("Invalid Priority")),
        (b"run %b ping 1000 0 4 -priority=", INVALID_FLAGS),
        (b"run %b ping 1000 0 4 -=1", INVALID_FLAGS),
        (b"run %b ping 1000 0 4 -priority=1 -max-attempts=1", INVALID_ARGS),
    ],
)
def test_each_wrong_argument_has_its_error_and_the_payload_is_consumed(
    shared_wire: Wire, line: bytes, error: bytes
) -> None:
    peer, id = shared_wire.connect("workq"), new_id()
    exchange(peer, line.replace(b"%b", id) + b"\r\nping\r\n", error)
    expect_in_step(peer)
    assert not is_there(peer, id)


@pytest.mark.parametrize("flag", [b"-max-attempts=1", b"-max-fails=1", b"-unknown=1"])
def test_only_the_priority_may_be_given(shared_wire: Wire, flag: bytes) -> None:
    peer, id = shared_wire.connect("workq"), new_id()
    peer.send(run(id, wait=0, flags=flag))
    assert peer.read_line() in (INVALID_FLAGS, INVALID_ARGS)
    expect_in_step(peer)
