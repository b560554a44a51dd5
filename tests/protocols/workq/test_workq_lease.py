"""Workq lease: which job comes, how long a worker waits, and what happens at the end of the TTR."""

from collections import Counter
from pathlib import Path

import pytest
from support.process import WarmServer
from support.simulated import SimulatedServer
from support.wire import Peer, SimulatedWire, Wire, exchange
from support.workq import (
    COMPLETED,
    DUPLICATE_RESULT,
    FAILED,
    INVALID_NAME,
    LEASED,
    MAX_TTR,
    MAX_WAIT,
    NEW,
    NOT_FOUND,
    OK,
    PENDING,
    TIMEOUT,
    add,
    client_error,
    complete,
    expect_in_step,
    failed,
    inspect,
    is_there,
    job,
    lease,
    leased,
    lengths,
    new_id,
    new_name,
    read_bytes,
    read_text,
    result,
    run,
    state,
    succeeded,
)

INVALID_WAIT = client_error("Invalid wait timeout")


def leased_name(peer: Peer, *names: bytes) -> bytes:
    """Lease a job of these names, which must have one; gives the name of its queue."""
    peer.send(lease(*names))
    assert read_text(peer) == b"+OK 1"
    _, name, size = read_text(peer).split(b" ")
    read_bytes(peer, int(size))
    return name


def test_a_leased_job_is_marked_and_counted(shared_wire: Wire) -> None:
    peer, id, name = shared_wire.connect("workq"), new_id(), new_name()
    exchange(peer, add(id, name, ttr=MAX_TTR), OK)
    exchange(peer, lease(name), leased(id, name))
    keys = job(peer, id)
    assert (keys["state"], keys["attempts"], keys["fails"]) == (LEASED, b"1", b"0")
    assert lengths(peer, name) == (0, 0)


def test_a_job_is_given_to_one_worker_only(shared_wire: Wire) -> None:
    first, second = shared_wire.connect("workq"), shared_wire.connect("workq")
    one, two, name = new_id(), new_id(), new_name()
    exchange(first, add(one, name, ttr=MAX_TTR) + add(two, name, ttr=MAX_TTR), OK + OK)
    exchange(first, lease(name), leased(one, name))
    exchange(second, lease(name), leased(two, name))
    exchange(first, lease(name), TIMEOUT)


def test_one_worker_may_hold_several_jobs(shared_wire: Wire) -> None:
    peer, name = shared_wire.connect("workq"), new_name()
    ids = [new_id() for _ in range(5)]
    for id in ids:
        exchange(peer, add(id, name, ttr=MAX_TTR), OK)
    for id in ids:
        exchange(peer, lease(name), leased(id, name))
    for id in ids:
        assert state(peer, id) == LEASED


# Options of the server


def test_with_the_option_the_ttr_stands_before_the_size() -> None:
    yard = SimulatedServer(lease_ttr=True)
    peer, worker, id = yard.connect("workq"), yard.connect("workq"), new_id()
    exchange(peer, add(id, ttr=4321), OK)
    exchange(peer, b"lease ping 0\r\n", b"+OK 1\r\n%b ping 4321 4\r\nping\r\n" % id)
    exchange(peer, complete(id), OK)
    exchange(peer, result(id), succeeded(id))
    worker.send(lease(b"ping", wait=1000))
    exchange(peer, add(new_id(), ttr=1), OK)
    assert worker.take().endswith(b" ping 1 4\r\nping\r\n")


def test_the_option_of_the_server_puts_the_ttr_before_the_size(tmp_path: Path) -> None:
    with WarmServer(tmp_path, "--workq-lease-ttr", "on") as process:
        peer, id = process.connect("workq"), new_id()
        exchange(peer, add(id, ttr=4321), OK)
        exchange(peer, lease(b"ping"), b"+OK 1\r\n%b ping 4321 4\r\nping\r\n" % id)


def test_an_option_of_the_server_limits_how_often_a_ttr_may_be_outlasted(tmp_path: Path) -> None:
    with WarmServer(tmp_path, "--workq-max-losses", "2") as process:
        peer, id = process.connect("workq"), new_id()
        exchange(peer, add(id, ttr=1), OK)
        exchange(peer, lease(b"ping"), leased(id))
        exchange(peer, lease(b"ping", wait=60_000), leased(id))
        exchange(peer, result(id, wait=60_000), failed(id, b""))


def test_a_real_clock_ends_waits_leases_and_lives(socket_server: Wire) -> None:
    peer, id, brief = socket_server.connect("workq"), new_id(), new_id()
    exchange(peer, lease(b"ping", wait=1), TIMEOUT)
    exchange(peer, run(id, wait=1), TIMEOUT)
    exchange(peer, add(id, ttr=1), OK)
    exchange(peer, result(id, wait=1), TIMEOUT)
    exchange(peer, lease(b"ping"), leased(id))
    exchange(peer, lease(b"ping", wait=60_000), leased(id))
    exchange(peer, add(brief, ttl=200), OK)
    exchange(peer, result(brief, wait=60_000), NOT_FOUND)


# Order


def test_of_one_priority_the_first_to_come_is_the_first(shared_wire: Wire) -> None:
    peer, name = shared_wire.connect("workq"), new_name()
    ids = [new_id() for _ in range(10)]
    for id in reversed(ids):
        exchange(peer, add(id, name), OK)
    for id in reversed(ids):
        exchange(peer, lease(name), leased(id, name))


def test_higher_priorities_come_first(shared_wire: Wire) -> None:
    peer, name = shared_wire.connect("workq"), new_name()
    priorities = [0, -1, 5, -(1 << 31), (1 << 31) - 1, 1, 5, 0]
    ids = [new_id() for _ in priorities]
    for id, priority in zip(ids, priorities, strict=True):
        exchange(peer, add(id, name, flags=b"-priority=%d" % priority), OK)
    for at in sorted(range(len(ids)), key=lambda at: (-priorities[at], at)):
        exchange(peer, lease(name), leased(ids[at], name))


def test_priority_counts_within_one_name(yard: SimulatedWire) -> None:
    peer, low, high = yard.connect("workq"), new_id(), new_id()
    exchange(peer, add(low, b"a", flags=b"-priority=-5"), OK)
    exchange(peer, add(high, b"b", flags=b"-priority=5"), OK)
    exchange(peer, lease(b"a"), leased(low, b"a"))
    exchange(peer, lease(b"b"), leased(high, b"b"))


def test_of_several_names_each_with_work_is_chosen_equally_often(yard: SimulatedWire) -> None:
    peer, names = yard.connect("workq"), (b"a", b"b", b"c")
    for name, depth in zip(names, (300, 400, 500), strict=True):
        peer.send(b"".join(add(new_id(), name, ttr=MAX_TTR) for _ in range(depth)))
        peer.expect(OK * depth)
    chosen = Counter(leased_name(peer, *names) for _ in range(600))
    assert set(chosen) == set(names)
    assert all(140 < times < 260 for times in chosen.values()), chosen  # over five sigma


def test_names_without_work_take_no_share(yard: SimulatedWire) -> None:
    peer = yard.connect("workq")
    for name in (b"a", b"b"):
        peer.send(b"".join(add(new_id(), name, ttr=MAX_TTR) for _ in range(200)))
        peer.expect(OK * 200)
    chosen = Counter(leased_name(peer, b"x", b"a", b"y", b"z", b"b") for _ in range(200))
    assert set(chosen) == {b"a", b"b"}
    assert 60 < chosen[b"a"] < 140, chosen


def test_the_only_name_with_work_is_chosen_wherever_it_stands(shared_wire: Wire) -> None:
    peer, names = shared_wire.connect("workq"), [new_name() for _ in range(5)]
    for name in names:
        id = new_id()
        exchange(peer, add(id, name), OK)
        exchange(peer, lease(*names), leased(id, name))


def test_a_name_may_stand_twice(shared_wire: Wire) -> None:
    peer, id, name = shared_wire.connect("workq"), new_id(), new_name()
    worker = shared_wire.connect("workq")
    worker.send(lease(name, name, wait=60_000))
    worker.expect_nothing()
    exchange(peer, add(id, name), OK)
    worker.expect(leased(id, name))
    exchange(peer, lease(name, name), TIMEOUT)


# Waiting


def test_without_a_wait_a_ready_job_is_taken_and_an_empty_queue_answered_at_once(
    shared_wire: Wire,
) -> None:
    peer, id, name = shared_wire.connect("workq"), new_id(), new_name()
    exchange(peer, b"lease %b 0\r\n" % name, b"-TIMEOUT\r\n")
    exchange(peer, add(id, name), OK)
    exchange(peer, b"lease %b 0\r\n" % name, leased(id, name))
    exchange(peer, b"lease %b 0\r\n" % name, b"-TIMEOUT\r\n")


def test_a_lease_makes_no_queue(shared_wire: Wire) -> None:
    peer, name = shared_wire.connect("workq"), new_name()
    exchange(peer, lease(name), TIMEOUT)
    exchange(peer, b"inspect queue %b\r\n" % name, NOT_FOUND)


def test_a_wait_ends_at_its_timeout_and_not_before(yard: SimulatedWire) -> None:
    peer = yard.connect("workq")
    peer.send(lease(b"ping", b"other", wait=1500))
    yard.advance(1.499999)
    peer.expect_nothing()
    yard.advance(0.000001)
    peer.expect(TIMEOUT)
    peer.expect_nothing()


def test_a_worker_whose_wait_is_over_is_given_nothing(yard: SimulatedWire) -> None:
    worker, peer, id = yard.connect("workq"), yard.connect("workq"), new_id()
    worker.send(lease(b"ping", wait=1000))
    yard.advance(1)
    worker.expect(TIMEOUT)
    exchange(peer, add(id), OK)
    worker.expect_nothing()
    assert state(peer, id) == NEW


def test_a_job_that_comes_in_the_last_moment_is_given(yard: SimulatedWire) -> None:
    worker, peer, id = yard.connect("workq"), yard.connect("workq"), new_id()
    worker.send(lease(b"ping", wait=1000))
    yard.advance(0.999999)
    exchange(peer, add(id), OK)
    worker.expect(leased(id))
    yard.advance(0.5)
    worker.expect_nothing()


def test_the_shortest_wait_is_a_millisecond_and_the_longest_a_day(yard: SimulatedWire) -> None:
    short, long = yard.connect("workq"), yard.connect("workq")
    short.send(lease(b"ping", wait=1))
    long.send(lease(b"ping", wait=MAX_WAIT))
    yard.advance(0.000999)
    short.expect_nothing()
    yard.advance(0.000001)
    short.expect(TIMEOUT)
    yard.advance(86_399.998999)
    long.expect_nothing()
    yard.advance(0.000001)
    long.expect(TIMEOUT)


@pytest.mark.parametrize("wait", [b"86400001", b"ping", b"1.5", b"18446744073709551616", b"1s"])
def test_any_other_wait_is_refused(shared_wire: Wire, wait: bytes) -> None:
    peer = shared_wire.connect("workq")
    exchange(peer, b"lease ping %b\r\n" % wait, INVALID_WAIT)
    expect_in_step(peer)


@pytest.mark.parametrize(
    "names", [b"a/b", b"a b/c d", b"a" * 256, b"ok " + b"a" * 256, b"\xc3\xa9", b"a\x00b"]
)
def test_names_that_are_none_are_refused(shared_wire: Wire, names: bytes) -> None:
    peer = shared_wire.connect("workq")
    exchange(peer, b"lease %b 0\r\n" % names, INVALID_NAME)
    expect_in_step(peer)


def test_waiting_workers_are_served_in_the_order_they_came(shared_wire: Wire) -> None:
    peer, name = shared_wire.connect("workq"), new_name()
    workers = [shared_wire.connect("workq") for _ in range(5)]
    for worker in workers:
        worker.send(lease(name, wait=60_000))
        worker.expect_nothing()
    for worker in workers:
        id = new_id()
        exchange(peer, add(id, name), OK)
        worker.expect(leased(id, name))
    for worker in workers:
        worker.expect_nothing()


def test_the_order_of_waiting_holds_over_different_names(yard: SimulatedWire) -> None:
    peer, one, two = yard.connect("workq"), new_id(), new_id()
    first, second, third = (yard.connect("workq") for _ in range(3))
    first.send(lease(b"a", b"b", wait=1000))
    second.send(lease(b"b", wait=1000))
    third.send(lease(b"a", b"b", wait=1000))
    exchange(peer, add(one, b"b"), OK)
    first.expect(leased(one, b"b"))
    exchange(peer, add(two, b"a"), OK)
    third.expect(leased(two, b"a"))
    second.expect_nothing()


def test_a_waiting_worker_is_given_one_job_whichever_name_comes_first(yard: SimulatedWire) -> None:
    peer, worker = yard.connect("workq"), yard.connect("workq")
    one, two = new_id(), new_id()
    worker.send(lease(b"a", b"b", wait=1000))
    exchange(peer, add(one, b"b") + add(two, b"a"), OK + OK)
    worker.expect(leased(one, b"b"))
    worker.expect_nothing()
    assert state(peer, two) == NEW


def test_a_waiting_worker_that_went_away_is_given_nothing(shared_wire: Wire) -> None:
    peer, gone, worker = (shared_wire.connect("workq") for _ in range(3))
    id, name = new_id(), new_name()
    gone.send(lease(name, wait=60_000))
    gone.expect_nothing()
    worker.send(lease(name, wait=60_000))
    worker.expect_nothing()
    gone.close()
    peer.expect_nothing()  # gives a real server the turns in which it learns of the loss
    exchange(peer, add(id, name), OK)
    worker.expect(leased(id, name))
    assert job(peer, id)["attempts"] == b"1"


def test_a_lease_does_not_end_with_the_connection_of_its_worker(yard: SimulatedWire) -> None:
    worker, peer, id = yard.connect("workq"), yard.connect("workq"), new_id()
    exchange(worker, add(id, ttr=5000), OK)
    exchange(worker, lease(b"ping"), leased(id))
    worker.close()
    yard.advance(4.999999)
    assert state(peer, id) == LEASED
    exchange(peer, lease(b"ping"), TIMEOUT)
    yard.advance(0.000001)
    exchange(peer, lease(b"ping"), leased(id))


# The end of the TTR


def test_a_job_goes_back_into_its_queue_when_its_ttr_is_over(yard: SimulatedWire) -> None:
    peer, id = yard.connect("workq"), new_id()
    exchange(peer, add(id, ttr=1500), OK)
    exchange(peer, lease(b"ping"), leased(id))
    yard.advance(1.499999)
    assert state(peer, id) == LEASED
    exchange(peer, lease(b"ping"), TIMEOUT)
    yard.advance(0.000001)
    keys = job(peer, id)
    assert (keys["state"], keys["attempts"], keys["fails"]) == (PENDING, b"1", b"0")
    assert lengths(peer, b"ping") == (1, 0)
    exchange(peer, lease(b"ping"), leased(id))
    keys = job(peer, id)
    assert (keys["state"], keys["attempts"]) == (LEASED, b"2")


def test_a_job_goes_back_before_those_that_came_later(yard: SimulatedWire) -> None:
    peer, ids = yard.connect("workq"), [new_id() for _ in range(4)]
    for id in ids:
        exchange(peer, add(id), OK)
    exchange(peer, lease(b"ping") + lease(b"ping"), leased(ids[0]) + leased(ids[1]))
    yard.advance(1)
    assert [label for label, _ in inspect(peer, b"jobs ping 0 10")] == ids
    for id in ids:
        exchange(peer, lease(b"ping"), leased(id))


def test_the_ttr_starts_again_with_each_lease(yard: SimulatedWire) -> None:
    peer, id = yard.connect("workq"), new_id()
    exchange(peer, add(id, ttr=1000), OK)
    exchange(peer, lease(b"ping"), leased(id))
    yard.advance(10)
    exchange(peer, lease(b"ping"), leased(id))
    yard.advance(0.999999)
    assert state(peer, id) == LEASED
    yard.advance(0.000001)
    assert state(peer, id) == PENDING


def test_a_waiting_worker_gets_the_job_at_the_end_of_its_ttr(yard: SimulatedWire) -> None:
    peer, worker, id = yard.connect("workq"), yard.connect("workq"), new_id()
    exchange(peer, add(id, ttr=1000), OK)
    exchange(peer, lease(b"ping"), leased(id))
    worker.send(lease(b"ping", wait=5000))
    yard.advance(0.999999)
    worker.expect_nothing()
    yard.advance(0.000001)
    worker.expect(leased(id))


@pytest.mark.parametrize("flags", [b"", b"-max-attempts=0", b"-max-fails=1"])
def test_attempts_are_unlimited_up_to_the_ttl(yard: SimulatedWire, flags: bytes) -> None:
    peer, id = yard.connect("workq"), new_id()
    exchange(peer, add(id, ttr=100, ttl=60_000, flags=flags), OK)
    for _ in range(599):
        exchange(peer, lease(b"ping"), leased(id))
        yard.advance(0.1)
    keys = job(peer, id)
    assert (keys["state"], keys["attempts"], keys["fails"]) == (PENDING, b"599", b"0")
    yard.advance(0.1)
    assert not is_there(peer, id)


@pytest.mark.parametrize("limit", [1, 2, 3, 255])
def test_a_job_whose_attempts_are_used_up_has_failed(yard: SimulatedWire, limit: int) -> None:
    peer, id = yard.connect("workq"), new_id()
    exchange(peer, add(id, ttr=1, flags=b"-max-attempts=%d" % limit), OK)
    for _ in range(limit):
        assert job(peer, id)["state"] in (NEW, PENDING)
        exchange(peer, lease(b"ping"), leased(id))
        yard.advance(0.001)
    keys = job(peer, id)
    assert (keys["state"], keys["attempts"], keys["fails"]) == (FAILED, b"%d" % limit, b"0")
    exchange(peer, lease(b"ping"), TIMEOUT)
    exchange(peer, result(id), failed(id, b""))
    exchange(peer, complete(id), DUPLICATE_RESULT)


def test_the_last_attempt_may_still_succeed(yard: SimulatedWire) -> None:
    peer, id = yard.connect("workq"), new_id()
    exchange(peer, add(id, flags=b"-max-attempts=1"), OK)
    exchange(peer, lease(b"ping"), leased(id))
    yard.advance(0.999999)
    exchange(peer, complete(id), OK)
    yard.advance(1)
    assert state(peer, id) == COMPLETED


def test_the_ttl_ends_a_lease(yard: SimulatedWire) -> None:
    peer, id = yard.connect("workq"), new_id()
    exchange(peer, add(id, ttr=10_000, ttl=3000), OK)
    exchange(peer, lease(b"ping"), leased(id))
    yard.advance(2.999999)
    assert state(peer, id) == LEASED
    yard.advance(0.000001)
    assert not is_there(peer, id)
    exchange(peer, complete(id), NOT_FOUND)
    yard.advance(10)
    exchange(peer, lease(b"ping"), TIMEOUT)
