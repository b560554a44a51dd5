"""Workq over a restart, a kill and a power cut: what was answered is there, and times go on."""

from collections.abc import Callable
from random import Random

import pytest
from support.effort import effort
from support.simulated import SimulatedServer
from support.wire import Wire, exchange
from support.workq import (
    COMPLETED,
    DUPLICATE_JOB,
    DUPLICATE_RESULT,
    FAILED,
    ID_TAKEN,
    LEASED,
    MAX_TTL,
    NEW,
    NOT_FOUND,
    OK,
    PENDING,
    TIMEOUT,
    add,
    complete,
    delete,
    fail,
    failed,
    inspect,
    is_there,
    job,
    lease,
    leased,
    lengths,
    new_id,
    result,
    rfc3339,
    run,
    schedule,
    server,
    state,
    succeeded,
)

Ending = Callable[[SimulatedServer], None]

every_ending = pytest.mark.parametrize(
    "end", [SimulatedServer.restart, SimulatedServer.kill, SimulatedServer.crash]
)


def test_jobs_survive_with_all_they_are(wire: Wire) -> None:
    peer, one, two = wire.connect("workq"), new_id(), new_id()
    flags = b"-priority=-7 -max-attempts=3 -max-fails=2"
    exchange(peer, add(one, b"a", b"a\r\n\x00b", ttr=77, ttl=MAX_TTL, flags=flags), OK)
    exchange(peer, schedule(two, b"b", b"", time=b"2100-01-01T00:00:00Z"), OK)
    before = job(peer, one), job(peer, two)
    wire.restart()
    peer = wire.connect("workq")
    assert (job(peer, one), job(peer, two)) == before
    assert [label for label, _ in inspect(peer, b"queues 0 10")] == [b"a", b"b"]
    assert lengths(peer, b"b") == (0, 1)
    exchange(peer, lease(b"a"), leased(one, b"a", b"a\r\n\x00b"))
    exchange(peer, add(two, b"b"), DUPLICATE_JOB)
    exchange(peer, add(two, b"a"), ID_TAKEN)


def test_results_survive(wire: Wire) -> None:
    peer, good, bad, empty = wire.connect("workq"), new_id(), new_id(), new_id()
    for id in (good, bad, empty):
        exchange(peer, add(id), OK)
    exchange(peer, complete(good, b"the\r\nresult"), OK)
    exchange(peer, fail(bad, b"the\r\nerror"), OK)
    exchange(peer, complete(empty, b""), OK)
    wire.restart()
    peer = wire.connect("workq")
    exchange(peer, result(good), succeeded(good, b"the\r\nresult"))
    exchange(peer, result(bad), failed(bad, b"the\r\nerror"))
    exchange(peer, result(empty), succeeded(empty, b""))
    exchange(peer, fail(good), DUPLICATE_RESULT)
    exchange(peer, complete(bad), DUPLICATE_RESULT)
    exchange(peer, lease(b"ping"), TIMEOUT)


def test_the_order_of_jobs_survives(wire: Wire) -> None:
    peer = wire.connect("workq")
    ids = [new_id() for _ in range(9)]
    for at, id in enumerate(ids):
        exchange(peer, add(id, flags=b"-priority=%d" % (at % 3)), OK)
    wire.restart()
    peer = wire.connect("workq")
    for at in (2, 5, 8, 1, 4, 7, 0, 3, 6):
        exchange(peer, lease(b"ping"), leased(ids[at]))


def test_deleted_jobs_stay_deleted(wire: Wire) -> None:
    peer, id = wire.connect("workq"), new_id()
    exchange(peer, add(id), OK)
    exchange(peer, delete(id), OK)
    wire.restart()
    peer = wire.connect("workq")
    exchange(peer, lease(b"ping"), TIMEOUT)
    exchange(peer, delete(id), NOT_FOUND)
    exchange(peer, add(id), OK)


@every_ending
def test_everything_that_was_acknowledged_is_there(end: Ending) -> None:
    yard = SimulatedServer()
    peer = yard.connect("workq")
    new, later, done, broken, tried, deleted = (new_id() for _ in range(6))
    exchange(peer, add(tried, b"t", flags=b"-max-fails=2"), OK)
    exchange(peer, lease(b"t"), leased(tried, b"t"))
    exchange(peer, fail(tried, b"once"), OK)
    exchange(peer, schedule(later, time=rfc3339(yard.now() + 100)), OK)
    exchange(peer, add(done) + complete(done, b"d"), OK + OK)
    exchange(peer, add(broken) + fail(broken, b"b"), OK + OK)
    exchange(peer, add(deleted) + delete(deleted), OK + OK)
    exchange(peer, add(new), OK)
    end(yard)
    peer = yard.connect("workq")
    assert [label for label, _ in inspect(peer, b"jobs ping 0 10")] == [new]
    assert [label for label, _ in inspect(peer, b"scheduled-jobs ping 0 10")] == [later]
    exchange(peer, result(done), succeeded(done, b"d"))
    exchange(peer, result(broken), failed(broken, b"b"))
    keys = job(peer, tried)
    assert (keys["state"], keys["attempts"], keys["fails"]) == (PENDING, b"1", b"1")
    assert not is_there(peer, deleted)
    exchange(peer, lease(b"t"), leased(tried, b"t"))
    exchange(peer, fail(tried, b"twice"), OK)
    exchange(peer, result(tried), failed(tried, b"twice"))


@every_ending
def test_a_ttl_goes_on_where_it_was(end: Ending) -> None:
    yard = SimulatedServer()
    peer, new, done = yard.connect("workq"), new_id(), new_id()
    exchange(peer, add(new, ttl=10_000), OK)
    exchange(peer, add(done, ttl=10_000) + complete(done), OK + OK)
    yard.advance(6)
    end(yard)
    yard.advance(3.999999)
    peer = yard.connect("workq")
    assert job(peer, new)["ttl"] == b"10000"
    exchange(peer, result(done), succeeded(done))
    yard.advance(0.000001)
    assert not is_there(peer, new)
    exchange(peer, result(done), NOT_FOUND)
    exchange(peer, lease(b"ping"), TIMEOUT)


@every_ending
def test_a_ttr_goes_on_where_it_was(end: Ending) -> None:
    yard = SimulatedServer()
    peer, id = yard.connect("workq"), new_id()
    exchange(peer, add(id, ttr=10_000), OK)
    exchange(peer, lease(b"ping"), leased(id))
    yard.advance(6)
    end(yard)
    peer = yard.connect("workq")
    keys = job(peer, id)
    assert (keys["state"], keys["attempts"]) == (LEASED, b"1")
    yard.advance(3.999999)
    exchange(peer, lease(b"ping"), TIMEOUT)
    yard.advance(0.000001)
    assert state(peer, id) == PENDING
    exchange(peer, lease(b"ping"), leased(id))
    assert job(peer, id)["attempts"] == b"2"


@every_ending
def test_a_worker_may_finish_after_it(end: Ending) -> None:
    yard = SimulatedServer()
    peer, id = yard.connect("workq"), new_id()
    exchange(peer, add(id, ttr=10_000), OK)
    exchange(peer, lease(b"ping"), leased(id))
    end(yard)
    peer = yard.connect("workq")
    exchange(peer, complete(id), OK)
    exchange(peer, result(id), succeeded(id))
    yard.advance(10)
    assert state(peer, id) == COMPLETED


@every_ending
def test_attempts_used_up_before_and_after_count_together(end: Ending) -> None:
    yard = SimulatedServer()
    peer, id = yard.connect("workq"), new_id()
    exchange(peer, add(id, ttr=1000, flags=b"-max-attempts=2"), OK)
    exchange(peer, lease(b"ping"), leased(id))
    yard.advance(1)
    end(yard)
    peer = yard.connect("workq")
    exchange(peer, lease(b"ping"), leased(id))
    yard.advance(1)
    keys = job(peer, id)
    assert (keys["state"], keys["attempts"]) == (FAILED, b"2")
    exchange(peer, result(id), failed(id, b""))


@every_ending
def test_a_scheduled_job_wakes_at_its_time_and_lives_from_there(end: Ending) -> None:
    yard = SimulatedServer()
    peer, id = yard.connect("workq"), new_id()
    exchange(peer, schedule(id, time=rfc3339(yard.now() + 10), ttl=5000), OK)
    yard.advance(4)
    end(yard)
    peer = yard.connect("workq")
    yard.advance(5.999999)
    assert lengths(peer, b"ping") == (0, 1)
    yard.advance(0.000001)
    assert lengths(peer, b"ping") == (1, 0)
    end(yard)
    yard.advance(4.999999)
    peer = yard.connect("workq")
    assert state(peer, id) == NEW
    yard.advance(0.000001)
    assert not is_there(peer, id)


@pytest.mark.parametrize("end", [SimulatedServer.kill, SimulatedServer.crash])
def test_time_goes_on_while_the_server_is_down(end: Ending) -> None:
    yard = SimulatedServer()
    peer = yard.connect("workq")
    held, expired, woken, last = (new_id() for _ in range(4))
    exchange(peer, add(held, b"a", ttr=10_000), OK)
    exchange(peer, lease(b"a"), leased(held, b"a"))
    exchange(peer, add(last, b"b", ttr=10_000, flags=b"-max-attempts=1"), OK)
    exchange(peer, lease(b"b"), leased(last, b"b"))
    exchange(peer, add(expired, ttl=10_000), OK)
    exchange(peer, schedule(woken, b"c", time=rfc3339(yard.now() + 10)), OK)
    yard.clock.time += 10_000_000
    end(yard)
    peer = yard.connect("workq")
    assert state(peer, held) == PENDING
    assert state(peer, last) == FAILED
    assert not is_there(peer, expired)
    exchange(peer, lease(b"c"), leased(woken, b"c"))
    exchange(peer, lease(b"a"), leased(held, b"a"))


@every_ending
def test_an_id_whose_job_is_gone_is_free(end: Ending) -> None:
    yard = SimulatedServer()
    peer, deleted, expired = yard.connect("workq"), new_id(), new_id()
    exchange(peer, add(deleted) + delete(deleted), OK + OK)
    exchange(peer, add(expired, ttl=1000), OK)
    yard.advance(1)
    end(yard)
    peer = yard.connect("workq")
    for id in (deleted, expired):
        exchange(peer, add(id), OK)
        exchange(peer, lease(b"ping"), leased(id))


@every_ending
def test_a_run_whose_caller_was_cut_off_is_not_carried_out_later(end: Ending) -> None:
    yard = SimulatedServer()
    caller, peer, id = yard.connect("workq"), yard.connect("workq"), new_id()
    caller.send(run(id, ttr=30_000, wait=2000))
    exchange(peer, add(new_id(), b"other"), OK)  # so that both are on disk
    end(yard)
    yard.advance(2)
    peer = yard.connect("workq")
    exchange(peer, lease(b"ping"), TIMEOUT)
    assert not is_there(peer, id)
    assert server(peer)["evicted-jobs"] == b"0"


@every_ending
def test_a_run_that_was_leased_is_given_to_nobody_else(end: Ending) -> None:
    yard = SimulatedServer()
    caller, worker, id = yard.connect("workq"), yard.connect("workq"), new_id()
    caller.send(run(id, ttr=5000, wait=1000))
    exchange(worker, lease(b"ping"), leased(id))
    exchange(worker, add(new_id(), b"other", ttl=MAX_TTL), OK)  # so that all is on disk
    end(yard)
    peer = yard.connect("workq")
    exchange(peer, lease(b"ping"), TIMEOUT)
    yard.advance(5)
    exchange(peer, lease(b"ping"), TIMEOUT)
    yard.advance(60)
    assert not is_there(peer, id)
    assert server(peer)["evicted-jobs"] == b"0"


def test_waiting_clients_take_nothing_with_them(wire: Wire) -> None:
    worker, reader, peer = (wire.connect("workq") for _ in range(3))
    id = new_id()
    exchange(peer, add(id, b"other"), OK)
    worker.send(lease(b"ping", wait=60_000))
    reader.send(result(id, wait=60_000))
    reader.expect_nothing()
    wire.restart()
    peer = wire.connect("workq")
    exchange(peer, complete(id), OK)
    exchange(peer, result(id), succeeded(id))
    fresh = new_id()
    exchange(peer, add(fresh), OK)
    exchange(peer, lease(b"ping"), leased(fresh))


def test_a_stop_answers_those_who_wait_and_closes() -> None:
    yard = SimulatedServer()
    peer, id, called = yard.connect("workq"), new_id(), new_id()
    exchange(peer, add(id, b"other"), OK)
    waiting = [yard.connect("workq") for _ in range(4)]
    waiting[0].send(lease(b"none", wait=60_000))
    waiting[1].send(result(id, wait=60_000))
    waiting[2].send(run(new_id(), wait=60_000))
    waiting[3].send(run(called, b"called", wait=60_000))
    exchange(peer, lease(b"called"), leased(called, b"called"))
    yard.stop()
    for waiter in waiting[:3]:
        waiter.expect(TIMEOUT)
        waiter.expect_closed()
    assert waiting[3].read_line().startswith((b"-TIMEOUT\r\n", b"-SERVER-ERROR "))
    waiting[3].expect_closed()
    peer.expect_closed()


def test_a_half_sent_command_is_gone(wire: Wire) -> None:
    peer, id = wire.connect("workq"), new_id()
    peer.send(add(id)[:-1])
    peer.expect_nothing()
    wire.restart()
    assert not is_there(wire.connect("workq"), id)


# Nothing is told before it is on disk


def slow_yard() -> SimulatedServer:
    """One whose syncs end when the test says so."""
    yard = SimulatedServer(inline_sync=False)
    yard.scheduler.slow = True
    return yard


def sync_all(yard: SimulatedServer) -> None:
    while yard.scheduler.blocking:
        yard.scheduler.finish_blocking()
        yard.run_pending()


def test_a_change_is_answered_when_it_is_on_disk_and_not_before() -> None:
    yard = slow_yard()
    sync_all(yard)
    peer, one, two = yard.connect("workq"), new_id(), new_id()
    for command in (
        add(one),
        schedule(two, time=b"2100-01-01T00:00:00Z"),
        complete(one),
        fail(two),
        delete(one),
    ):
        peer.send(command)
        peer.expect_nothing()
        sync_all(yard)
        peer.expect(OK)


def test_those_who_wait_hear_of_a_result_when_it_is_on_disk_and_not_before() -> None:
    yard = slow_yard()
    sync_all(yard)
    peer, reader, caller = (yard.connect("workq") for _ in range(3))
    id, called = new_id(), new_id()
    peer.send(add(id))
    caller.send(run(called, wait=60_000))
    sync_all(yard)
    peer.expect(OK)
    reader.send(result(id, wait=60_000))
    peer.send(complete(id) + complete(called))
    reader.expect_nothing()
    caller.expect_nothing()
    sync_all(yard)
    peer.expect(OK + OK)
    reader.expect(succeeded(id))
    caller.expect(succeeded(called))


def test_a_waiting_worker_gets_a_job_when_it_is_on_disk_and_not_before() -> None:
    yard = slow_yard()
    sync_all(yard)
    peer, worker, id = yard.connect("workq"), yard.connect("workq"), new_id()
    worker.send(lease(b"ping", wait=60_000))
    peer.send(add(id))
    peer.expect_nothing()
    worker.expect_nothing()
    sync_all(yard)
    peer.expect(OK)
    worker.expect(leased(id))


@pytest.mark.parametrize("seed", range(effort(20, 8)))
def test_what_was_acknowledged_outlives_power_cuts_that_tear(seed: int) -> None:
    chance = Random(seed)
    yard = SimulatedServer(seed=seed, segment_size=1 << 14)
    expected: dict[bytes, bytes] = {}
    for _ in range(4):
        peer = yard.connect("workq")
        for _ in range(25):
            id = chance.choice([*expected, new_id(), new_id()])
            command, outcome = chance.choice(
                [
                    (add(id, payload=chance.randbytes(chance.randrange(300))), NEW),
                    (complete(id, chance.randbytes(9)), COMPLETED),
                    (fail(id, chance.randbytes(9)), FAILED),
                    (delete(id), b""),
                ]
            )
            peer.send(command)
            if peer.read_line() == OK:
                expected[id] = outcome
        yard.connect("workq").arrive(add(new_id()))  # torn
        yard.crash(chance)
        peer = yard.connect("workq")
        for id, outcome in expected.items():
            assert (state(peer, id) if is_there(peer, id) else b"") == outcome, id
