"""Workq schedule: when a job wakes, what its time may be, and how its TTL counts from there."""

import pytest
from support.simulated import SimulatedServer
from support.wire import SimulatedWire, Wire, exchange
from support.workq import (
    INVALID_ARGS,
    INVALID_FLAGS,
    INVALID_ID,
    INVALID_NAME,
    MAX_TTL,
    NEW,
    NOT_FOUND,
    OK,
    PAYLOAD_SIZE,
    TIMEOUT,
    add,
    client_error,
    complete,
    delete,
    expect_in_step,
    is_there,
    job,
    lease,
    leased,
    lengths,
    new_id,
    new_name,
    result,
    rfc3339,
    schedule,
    succeeded,
)

INVALID_TIME = client_error("Invalid Time")
INVALID_TTR = client_error("Invalid TTR")
INVALID_TTL = client_error("Invalid TTL")
INVALID_PRIORITY = client_error("Invalid Priority")
LATER = b"2100-01-01T00:00:00Z"

NO_TIMES = [
    b"x",
    b"1700000000",
    b"2100-01-01",
    b"2100-01-01T00:00:00",
    b"2100-01-01T00:00Z",
    b"2100-01-01T00:00:00+00:00",
    b"2100-01-01T00:00:00-00:00",
    b"2100-01-01T00:00:00+02:00",
    b"2100-01-01T00:00:00.Z",
    b"2100-01-01T00:00:00ZZ",
    b"2100-13-01T00:00:00Z",
    b"2100-00-01T00:00:00Z",
    b"2100-02-29T00:00:00Z",
    b"2100-01-01T24:00:01Z",
    b"2100-01-01T00:60:00Z",
    b"2100-01-01T00:00:61Z",
    b"21000-01-01T00:00:00Z",
    b"20210101T000000Z",
    b"2100-W01-1T00:00:00Z",
    b"2100/01/01T00:00:00Z",
    b"\xd9\xa2100-01-01T00:00:00Z",
]


def test_the_command_of_the_protocol_text_is_taken_while_its_time_is_ahead() -> None:
    yard = SimulatedServer()
    peer = yard.connect("workq")
    line = b"schedule 6ba7b810-9dad-11d1-80b4-00c04fd430c7 ping 1000 2000 %b 4\r\npong\r\n"
    exchange(peer, line % LATER, b"+OK\r\n")
    exchange(
        peer, b"inspect queue ping\r\n", b"+OK 1\r\nping 2\r\nready-len 0\r\nscheduled-len 1\r\n"
    )


def test_the_command_of_the_protocol_text_is_refused_now_that_its_time_is_over(
    shared_wire: Wire,
) -> None:
    peer = shared_wire.connect("workq")
    exchange(
        peer,
        b"schedule 6ba7b810-9dad-11d1-80b4-00c04fd430c7 ping 1000 2000 "
        b"2016-06-14T06:46:46Z 4\r\npong\r\n",
        INVALID_TIME,
    )
    expect_in_step(peer)


def test_a_scheduled_job_wakes_at_its_time_and_not_before(yard: SimulatedWire) -> None:
    peer, id = yard.connect("workq"), new_id()
    exchange(peer, schedule(id, time=rfc3339(yard.now() + 10)), OK)
    assert lengths(peer, b"ping") == (0, 1)
    yard.advance(9.999999)
    exchange(peer, lease(b"ping"), TIMEOUT)
    assert lengths(peer, b"ping") == (0, 1)
    yard.advance(0.000001)
    assert lengths(peer, b"ping") == (1, 0)
    exchange(peer, lease(b"ping"), leased(id))


def test_a_waiting_worker_gets_the_job_when_it_wakes(yard: SimulatedWire) -> None:
    peer, worker, id = yard.connect("workq"), yard.connect("workq"), new_id()
    exchange(peer, schedule(id, time=rfc3339(yard.now() + 10)), OK)
    worker.send(lease(b"ping", wait=20_000))
    yard.advance(9.999999)
    worker.expect_nothing()
    yard.advance(0.000001)
    worker.expect(leased(id))


def test_jobs_wake_in_the_order_of_their_times(yard: SimulatedWire) -> None:
    peer = yard.connect("workq")
    ids = {moment: new_id() for moment in (3, 1, 2)}
    for moment, id in ids.items():
        exchange(peer, schedule(id, time=rfc3339(yard.now() + moment)), OK)
    yard.advance(4)
    for moment in (1, 2, 3):
        exchange(peer, lease(b"ping"), leased(ids[moment]))


def test_of_the_same_time_and_priority_the_first_to_come_is_the_first(yard: SimulatedWire) -> None:
    peer, ids = yard.connect("workq"), [new_id() for _ in range(5)]
    moment = rfc3339(yard.now() + 5)
    for id in ids:
        exchange(peer, schedule(id, time=moment), OK)
    yard.advance(5)
    for id in ids:
        exchange(peer, lease(b"ping"), leased(id))


def test_priority_goes_before_the_scheduled_time(yard: SimulatedWire) -> None:
    peer, early, late = yard.connect("workq"), new_id(), new_id()
    exchange(peer, schedule(early, time=rfc3339(yard.now() + 1)), OK)
    exchange(peer, schedule(late, time=rfc3339(yard.now() + 2), flags=b"-priority=1"), OK)
    yard.advance(2)
    exchange(peer, lease(b"ping"), leased(late))
    exchange(peer, lease(b"ping"), leased(early))


def test_woken_jobs_stand_between_those_added_before_and_after(yard: SimulatedWire) -> None:
    peer, woken, before, after = yard.connect("workq"), new_id(), new_id(), new_id()
    exchange(peer, schedule(woken, time=rfc3339(yard.now() + 2)), OK)
    yard.advance(1)
    exchange(peer, add(before), OK)
    yard.advance(2)
    exchange(peer, add(after), OK)
    for id in (before, woken, after):
        exchange(peer, lease(b"ping"), leased(id))


def test_times_that_are_over_count_as_now(yard: SimulatedWire) -> None:
    """Such a job is ready when it arrives, behind those that are ready already."""
    peer, plain, near, far = yard.connect("workq"), new_id(), new_id(), new_id()
    exchange(peer, add(plain), OK)
    exchange(peer, schedule(near, time=rfc3339(yard.now() - 1)), OK)
    exchange(peer, schedule(far, time=rfc3339(yard.now() - 2)), OK)
    for id in (plain, near, far):
        exchange(peer, lease(b"ping"), leased(id))


# The time


@pytest.mark.parametrize(
    ("fraction", "seconds"),
    [(b"", 0.75), (b".0", 0.75), (b".5", 1.25), (b".250000", 1.0), (b".001", 0.751)],
)
def test_a_time_may_have_a_fraction_of_a_second(
    yard: SimulatedWire, fraction: bytes, seconds: float
) -> None:
    """The clock stands at 22:13:20.25."""
    peer, id = yard.connect("workq"), new_id()
    exchange(peer, schedule(id, time=b"2023-11-14T22:13:21%bZ" % fraction), OK)
    yard.advance(seconds - 0.000001)
    exchange(peer, lease(b"ping"), TIMEOUT)
    yard.advance(0.000001)
    exchange(peer, lease(b"ping"), leased(id))


@pytest.mark.parametrize("fraction", [b".123456789", b".1234567890123456789"])
def test_a_fraction_may_be_finer_than_the_clock(shared_wire: Wire, fraction: bytes) -> None:
    peer, id = shared_wire.connect("workq"), new_id()
    exchange(peer, schedule(id, time=b"2100-01-01T00:00:00%bZ" % fraction), OK)
    assert job(peer, id)["time"] == b"2100-01-01T00:00:00Z"


@pytest.mark.parametrize("time", [b"9999-12-31T23:59:59Z", b"2096-02-29T12:00:00Z"])
def test_a_time_may_be_far_away(shared_wire: Wire, time: bytes) -> None:
    peer, id, name = shared_wire.connect("workq"), new_id(), new_name()
    exchange(peer, schedule(id, name, time=time, ttl=MAX_TTL), OK)
    assert job(peer, id)["time"] == time
    assert lengths(peer, name) == (0, 1)


@pytest.mark.parametrize("time", NO_TIMES)
def test_what_is_no_time_of_rfc_3339_with_a_z_is_refused(shared_wire: Wire, time: bytes) -> None:
    peer, id = shared_wire.connect("workq"), new_id()
    exchange(peer, schedule(id, time=time), INVALID_TIME)
    expect_in_step(peer)
    assert not is_there(peer, id)


def test_a_time_that_is_over_is_ready_at_once_while_its_ttl_lasts(yard: SimulatedWire) -> None:
    peer, id = yard.connect("workq"), new_id()
    exchange(peer, schedule(id, time=rfc3339(yard.now() - 10), ttl=10_001), OK)
    assert lengths(peer, b"ping") == (1, 0)
    exchange(peer, lease(b"ping"), leased(id))
    yard.advance(0.000999)
    assert is_there(peer, id)
    yard.advance(0.000001)
    assert not is_there(peer, id)


@pytest.mark.parametrize("ttl", [1, 9999, 10_000])
def test_a_time_whose_ttl_is_over_is_refused(yard: SimulatedWire, ttl: int) -> None:
    peer, id = yard.connect("workq"), new_id()
    exchange(peer, schedule(id, time=rfc3339(yard.now() - 10), ttl=ttl), INVALID_TIME)
    expect_in_step(peer)
    assert not is_there(peer, id)


def test_a_time_long_ago_is_ready_at_once_with_a_long_ttl(shared_wire: Wire) -> None:
    peer, id, name = shared_wire.connect("workq"), new_id(), new_name()
    exchange(peer, schedule(id, name, time=b"2016-06-14T06:46:46Z", ttl=MAX_TTL), OK)
    assert job(peer, id)["time"] == b"2016-06-14T06:46:46Z"
    exchange(peer, lease(name), leased(id, name))


def test_a_time_that_is_now_is_ready_at_once(yard: SimulatedWire) -> None:
    peer, id = yard.connect("workq"), new_id()
    exchange(peer, schedule(id, time=rfc3339(yard.now())), OK)
    exchange(peer, lease(b"ping"), leased(id))


# The TTL


def test_the_ttl_starts_at_the_scheduled_time(yard: SimulatedWire) -> None:
    peer, id = yard.connect("workq"), new_id()
    exchange(peer, schedule(id, time=rfc3339(yard.now() + 100), ttl=5000), OK)
    assert job(peer, id)["ttl"] == b"5000"
    yard.advance(104.999999)
    assert lengths(peer, b"ping") == (1, 0)
    yard.advance(0.000001)
    assert not is_there(peer, id)
    assert lengths(peer, b"ping") == (0, 0)


@pytest.mark.parametrize("ttl", [1, 2_592_000_001, MAX_TTL])
def test_a_ttl_goes_up_to_the_largest_of_64_bits(shared_wire: Wire, ttl: int) -> None:
    peer, id = shared_wire.connect("workq"), new_id()
    exchange(peer, schedule(id, time=LATER, ttl=ttl), OK)
    assert job(peer, id)["ttl"] == b"%d" % ttl


def test_the_largest_ttl_does_not_end(yard: SimulatedWire) -> None:
    peer, id = yard.connect("workq"), new_id()
    exchange(peer, schedule(id, time=rfc3339(yard.now() + 1), ttl=MAX_TTL), OK)
    yard.advance(100 * 365 * 86_400)
    exchange(peer, lease(b"ping"), leased(id))


# Everything else is as for add


def test_a_scheduled_job_shows_its_time_before_and_after_it_woke(yard: SimulatedWire) -> None:
    peer, id = yard.connect("workq"), new_id()
    flags = b"-priority=-3 -max-attempts=2 -max-fails=1"
    exchange(peer, schedule(id, time=b"2023-11-14T22:14:20Z", ttr=7, flags=flags), OK)
    expected = {
        "name": b"ping",
        "ttr": b"7",
        "ttl": b"60000",
        "payload-size": b"4",
        "payload": b"ping",
        "max-attempts": b"2",
        "attempts": b"0",
        "max-fails": b"1",
        "fails": b"0",
        "priority": b"-3",
        "state": NEW,
        "created": b"2023-11-14T22:13:20Z",
        "time": b"2023-11-14T22:14:20Z",
    }
    assert list(job(peer, id).items()) == list(expected.items())
    yard.advance(60)
    assert list(job(peer, id).items()) == list(expected.items())


def test_a_scheduled_job_can_be_completed_before_its_time(yard: SimulatedWire) -> None:
    peer, id = yard.connect("workq"), new_id()
    exchange(peer, schedule(id, time=rfc3339(yard.now() + 10)), OK)
    exchange(peer, complete(id), OK)
    exchange(peer, result(id), succeeded(id))
    yard.advance(10)
    exchange(peer, lease(b"ping"), TIMEOUT)
    exchange(peer, result(id), succeeded(id))
    yard.advance(59.999)
    exchange(peer, result(id), succeeded(id))
    yard.advance(0.001)
    exchange(peer, result(id), NOT_FOUND)


def test_a_scheduled_job_can_be_deleted_before_its_time(yard: SimulatedWire) -> None:
    peer, id = yard.connect("workq"), new_id()
    exchange(peer, schedule(id, time=rfc3339(yard.now() + 10)), OK)
    exchange(peer, delete(id), OK)
    assert lengths(peer, b"ping") == (0, 0)
    yard.advance(10)
    exchange(peer, lease(b"ping"), TIMEOUT)


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (b"schedule 1 ping 1000 60000 %t 4", INVALID_ID),
        (b"schedule %b a/b 1000 60000 %t 4", INVALID_NAME),
        (b"schedule %b ping 0 60000 %t 4", INVALID_TTR),
        (b"schedule %b ping 86400001 60000 %t 4", INVALID_TTR),
        (b"schedule %b ping 1000 0 %t 4", INVALID_TTL),
        (b"schedule %b ping 1000 18446744073709551616 %t 4", INVALID_TTL),
        (b"schedule %b ping 1000 60000 never 4", INVALID_TIME),
        (b"schedule %b ping 1000 60000 %t 3", PAYLOAD_SIZE),
        (
            b"schedule %b ping 1000 60000 %t 4 -priority=2147483648",
            INVALID_PRIORITY,
        ),
        (
            b"schedule %b ping 1000 60000 %t 4 -priority=-2147483649",
            INVALID_PRIORITY,
        ),
        (b"schedule %b ping 1000 60000 %t 4 -max-fails=256", client_error("Invalid Max Fails")),
        (
            b"schedule %b ping 1000 60000 %t 4 -max-attempts=256",
            client_error("Invalid Max Attempts"),
        ),
        (b"schedule %b ping 1000 60000 %t 4 -priority=", INVALID_FLAGS),
        (b"schedule %b ping 1000 60000 %t 4 -max-fails=1 -max-fails=1", INVALID_FLAGS),
        (
            b"schedule %b ping 1000 60000 %t 4 -priority=1 -max-fails=1 -max-attempts=1 -a=b",
            INVALID_ARGS,
        ),
    ],
)
def test_each_wrong_argument_has_its_error_and_the_payload_is_consumed(
    shared_wire: Wire, line: bytes, error: bytes
) -> None:
    peer, id = shared_wire.connect("workq"), new_id()
    exchange(peer, line.replace(b"%b", id).replace(b"%t", LATER) + b"\r\nping\r\n", error)
    expect_in_step(peer)
    assert not is_there(peer, id)


@pytest.mark.parametrize("value", [-(1 << 31), (1 << 31) - 1])
def test_a_priority_is_a_signed_number_of_32_bits(shared_wire: Wire, value: int) -> None:
    peer, id = shared_wire.connect("workq"), new_id()
    exchange(peer, schedule(id, time=LATER, flags=b"-priority=%d" % value), OK)
    assert job(peer, id)["priority"] == b"%d" % value
