"""Workq with payloads and results that are on disk only: they are read back, whoever asks."""

import pytest
from support.simulated import SimulatedPeer, SimulatedServer
from support.wire import exchange
from support.workq import (
    OK,
    UNKNOWN,
    add,
    complete,
    delete,
    fail,
    failed,
    inspect,
    job,
    lease,
    leased,
    new_id,
    read_reply,
    result,
    run,
    schedule,
    succeeded,
)

SIZE = 100_000


@pytest.fixture
def small() -> SimulatedServer:
    """One that keeps next to nothing in memory."""
    return SimulatedServer(payload_memory=1, inline_sync=False)


def payload_of(number: int) -> bytes:
    return b"%d\r\n" % number * (SIZE // 10)


def forget(yard: SimulatedServer) -> SimulatedPeer:
    """Have the server start again, with nothing in memory."""
    yard.restart()
    return yard.connect("workq")


def finish_all(yard: SimulatedServer) -> None:
    while yard.scheduler.blocking:
        yard.scheduler.finish_blocking()
        yard.run_pending()


def test_payloads_are_leased_and_listed(small: SimulatedServer) -> None:
    peer, ids = small.connect("workq"), [new_id() for _ in range(5)]
    for number, id in enumerate(ids):
        exchange(peer, add(id, payload=payload_of(number)), OK)
    peer = forget(small)
    listed = inspect(peer, b"jobs ping 0 10")
    assert [label for label, _ in listed] == ids
    assert [keys["payload"] for _, keys in listed] == [payload_of(number) for number in range(5)]
    for number, id in enumerate(ids):
        assert job(peer, id)["payload"] == payload_of(number)
        exchange(peer, lease(b"ping"), leased(id, payload=payload_of(number)))


def test_scheduled_payloads_are_listed(small: SimulatedServer) -> None:
    peer, id = small.connect("workq"), new_id()
    exchange(peer, schedule(id, payload=payload_of(1), time=b"2100-01-01T00:00:00Z"), OK)
    peer = forget(small)
    [(label, keys)] = inspect(peer, b"scheduled-jobs ping 0 10")
    assert (label, keys["payload"]) == (id, payload_of(1))


def test_results_are_read_again_and_again(small: SimulatedServer) -> None:
    peer, good, bad = small.connect("workq"), new_id(), new_id()
    exchange(peer, add(good) + complete(good, payload_of(1)), OK + OK)
    exchange(peer, add(bad) + fail(bad, payload_of(2)), OK + OK)
    exchange(peer, result(good), succeeded(good, payload_of(1)))
    peer, other = forget(small), small.connect("workq")
    for _ in range(2):
        exchange(peer, result(good), succeeded(good, payload_of(1)))
        exchange(other, result(bad), failed(bad, payload_of(2)))


def test_waiting_workers_and_readers_get_what_was_never_in_memory(small: SimulatedServer) -> None:
    peer, worker, caller, reader = (small.connect("workq") for _ in range(4))
    id = new_id()
    worker.send(lease(b"ping", wait=1000))
    caller.send(run(id, payload=payload_of(3)))
    worker.expect(leased(id, payload=payload_of(3)))
    reader.send(result(id, wait=1000))
    exchange(peer, complete(id, payload_of(4)), OK)
    caller.expect(succeeded(id, payload_of(4)))
    reader.expect(succeeded(id, payload_of(4)))


def test_replies_keep_their_order_while_one_is_read_back(small: SimulatedServer) -> None:
    peer, id = small.connect("workq"), new_id()
    exchange(peer, add(id, payload=payload_of(1)), OK)
    peer = forget(small)
    small.scheduler.slow = True
    peer.send(lease(b"ping") + b"bogus\r\n")
    peer.expect_nothing()
    finish_all(small)
    peer.expect(leased(id, payload=payload_of(1)) + UNKNOWN)
    peer.expect_nothing()


@pytest.mark.parametrize("what", [b"inspect job %b\r\n", b"result %b 0\r\n"])
def test_a_job_that_is_deleted_while_it_is_read_back_is_shown_or_not_found(
    small: SimulatedServer, what: bytes
) -> None:
    peer, id = small.connect("workq"), new_id()
    exchange(peer, add(id, payload=payload_of(1)) + complete(id, payload_of(2)), OK + OK)
    peer, other = forget(small), small.connect("workq")
    small.scheduler.slow = True
    peer.send(what % id)
    peer.expect_nothing()
    other.send(delete(id))
    finish_all(small)
    other.expect(OK)
    assert read_reply(peer) in (b"+OK 1", b"-NOT-FOUND")
    peer.send(b"bogus\r\n")
    finish_all(small)
    peer.expect(UNKNOWN)
