"""When the disk fails: nobody is told what is not true, and nobody is told anything new."""

import errno
import random

import pytest
from support.crash_state import on_disk
from support.effort import effort
from support.simulated import SimulatedPeer, SimulatedServer
from support.wire import error_of, exchange, queue_counts

PUSH = b'PUSH {"name":"a"}\n'
EMPTY = b"EMPTY {}\n"
TASK_1 = b'OK {"id":1,"queue":"default","name":"a"}\n'


@pytest.fixture(params=["inline", "thread"])
def yard(request: pytest.FixtureRequest) -> SimulatedServer:
    return SimulatedServer(inline_sync=request.param == "inline")


@pytest.fixture(params=["write", "sync"])
def operation(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def fail_on_push(yard: SimulatedServer, operation: str) -> SimulatedPeer:
    """The disk fails under a push; gives the client that made it."""
    peer = yard.connect()
    yard.disk.fail_call(operation)
    peer.send(b'PUSH {"name":"unlucky"}\n')
    return peer


def refusal(peer: SimulatedPeer, command: bytes) -> str:
    peer.send(command)
    return error_of(peer.read_line())


def test_those_who_wait_are_closed_unanswered(yard: SimulatedServer, operation: str) -> None:
    waiting = [yard.connect() for _ in range(3)]
    idle = yard.connect()
    yard.disk.fail_call(operation)
    for peer in waiting:
        peer.arrive(PUSH + b"PING\n")
    yard.run_pending()
    for peer in waiting:
        peer.expect_closed()
    assert not idle.closed


def test_everything_that_would_change_something_is_refused_with_the_reason(
    yard: SimulatedServer, operation: str
) -> None:
    worker = yard.connect()
    exchange(worker, PUSH * 2, b'OK {"id":1}\nOK {"id":2}\n')
    exchange(worker, b"FETCH\n", TASK_1)
    fail_on_push(yard, operation)
    for command in (
        PUSH,
        b"FETCH\n",
        b'FETCH {"queues":["none"],"timeout":"1s"}\n',
        b'ACK {"id":1}\n',
        b'NACK {"id":1}\n',
        b'ATOMIC\nPUSH {"name":"a"}\nDONE\n',
    ):
        text = refusal(worker, command)
        assert text.startswith("read only: the journal cannot be written: "), command
        assert f"injected into {operation}" in text


def test_counts_that_may_not_be_on_disk_are_not_shown(
    yard: SimulatedServer, operation: str
) -> None:
    fail_on_push(yard, operation)
    assert refusal(yard.connect(), b"INFO\n").startswith("read only: ")


def test_what_promises_nothing_is_answered_as_ever(yard: SimulatedServer, operation: str) -> None:
    fail_on_push(yard, operation)
    peer = yard.connect()
    exchange(peer, b"PING\n", b"PONG {}\n")
    assert refusal(peer, b"NOSUCH\n") == "unknown verb NOSUCH"
    assert refusal(peer, b"PUSH {\n") == "cannot unmarshal payload"
    exchange(peer, b"QUIT\n", b"OK {}\n")
    peer.expect_closed()


def test_waiting_fetches_end_empty_when_their_time_is_over(
    yard: SimulatedServer, operation: str
) -> None:
    waiter = yard.connect()
    waiter.send(b'FETCH {"timeout":"20s"}\n')
    yard.disk.fail_call(operation)
    yard.connect().send(b'PUSH {"name":"a","queue":"other"}\n')
    yard.advance(19)
    waiter.expect_nothing()
    yard.advance(2)
    waiter.expect(EMPTY)


def test_a_task_whose_push_was_not_durable_is_never_handed_out(
    yard: SimulatedServer, operation: str
) -> None:
    waiter = yard.connect()
    waiter.send(b'FETCH {"timeout":"20s"}\n')
    fail_on_push(yard, operation)
    waiter.expect_closed()


def test_delayed_tasks_stay_where_they_are_and_do_not_keep_the_clock_busy(
    yard: SimulatedServer, operation: str
) -> None:
    peer = yard.connect()
    exchange(peer, PUSH, b'OK {"id":1}\n')
    exchange(peer, b"FETCH\n", TASK_1)
    exchange(peer, b'NACK {"id":1}\n', b"OK {}\n")
    fail_on_push(yard, operation)
    yard.advance(100)
    job = yard.engine.state.live_job(1)
    assert job is not None
    assert job.queue.delayed.size == 1


def test_a_lost_connection_changes_nothing(yard: SimulatedServer, operation: str) -> None:
    worker = yard.connect()
    exchange(worker, PUSH, b'OK {"id":1}\n')
    exchange(worker, b"FETCH\n", TASK_1)
    fail_on_push(yard, operation)
    worker.close()
    job = yard.engine.state.live_job(1)
    assert job is not None
    assert job.lease is not None


def test_the_failure_is_told_once(yard: SimulatedServer, operation: str) -> None:
    told: list[str] = []
    yard.broker.on_failure(told.append)
    fail_on_push(yard, operation)
    peer = yard.connect()
    refusal(peer, PUSH)
    yard.broker.flush_journal()
    yard.advance(10)
    assert len(told) == 1
    assert "injected" in told[0]


def test_all_that_was_acknowledged_is_there_after_a_restart(
    yard: SimulatedServer, operation: str
) -> None:
    peer = yard.connect()
    exchange(peer, PUSH * 3, b'OK {"id":1}\nOK {"id":2}\nOK {"id":3}\n')
    exchange(peer, b"FETCH\n", TASK_1)
    exchange(peer, b'ACK {"id":1}\n', b"OK {}\n")
    fail_on_push(yard, operation)
    yard.crash()
    peer = yard.connect()
    assert queue_counts(peer) == {"default": (2, 0, 0)}
    exchange(peer, b"FETCH\n", TASK_1.replace(b"1", b"2"))
    exchange(peer, b"FETCH\n", TASK_1.replace(b"1", b"3"))
    exchange(peer, PUSH, b'OK {"id":4}\n')


@pytest.mark.parametrize("seed", range(effort(20, 8)))
def test_a_frame_that_was_written_in_part_is_no_frame(seed: int) -> None:
    yard = SimulatedServer()
    peer = yard.connect()
    exchange(peer, PUSH, b'OK {"id":1}\n')
    yard.disk.fail_call("write", error=errno.ENOSPC, keep=7 * seed)
    peer.send(PUSH * 2)
    peer.expect_closed()
    yard.crash(random.Random(seed))
    peer = yard.connect()
    assert queue_counts(peer) == {"default": (1, 0, 0)}


def test_a_sync_that_fails_takes_those_with_it_who_came_later() -> None:
    """What came while it was on its way can not be promised any more either."""
    yard = SimulatedServer(inline_sync=False)
    yard.scheduler.slow = True
    first, second = yard.connect(), yard.connect()
    first.send(PUSH)
    second.send(PUSH)
    yard.disk.fail_call("sync")
    yard.scheduler.finish_blocking()
    yard.run_pending()
    first.expect_closed()
    second.expect_closed()


@pytest.mark.parametrize("durability", ["write", "memory"])
def test_a_failing_sync_in_the_background_makes_the_server_read_only(durability: str) -> None:
    yard = SimulatedServer(durability=durability)
    peer = yard.connect()
    exchange(peer, PUSH, b'OK {"id":1}\n')
    yard.disk.fail_call("sync")
    yard.advance(1.1)
    assert refusal(peer, PUSH).startswith("read only: ")


def test_a_failing_write_beside_a_sync_in_the_background_is_one_failure() -> None:
    yard = SimulatedServer(durability="write")
    yard.scheduler.slow = True
    told: list[str] = []
    yard.broker.on_failure(told.append)
    peer, other = yard.connect(), yard.connect()
    exchange(peer, PUSH, b'OK {"id":1}\n')
    yard.advance(1.1)
    yard.disk.fail_call("write")
    peer.send(PUSH)
    peer.expect_closed()
    yard.scheduler.finish_blocking()
    yard.run_pending()
    assert len(told) == 1
    assert refusal(other, PUSH).startswith("read only: ")


def test_a_payload_that_cannot_be_read_closes_the_connection_that_wants_it() -> None:
    yard = SimulatedServer(payload_memory=0)
    peer, other = yard.connect(), yard.connect()
    push = b'PUSH {"name":"a","payload":"%b"}\n' % (b"x" * 500_000)
    for number in range(1, 7):
        exchange(other, push, b'OK {"id":%d}\n' % number)
    yard.disk.fail_call("read")
    peer.send(b"FETCH\n")
    peer.expect_closed()
    assert queue_counts(other) == {"default": (5, 1, 0)}
    yard.advance(1.1)
    for _ in range(6):
        other.send(b"FETCH\n")
        assert len(other.read_line()) > 500_000


def with_cold_payloads() -> SimulatedServer:
    """One that has to read the first payload back, which takes its time."""
    yard = SimulatedServer(payload_memory=0)
    peer = yard.connect("resp")
    for _ in range(300):
        peer.send(b"*3\r\n$5\r\nRPUSH\r\n$4\r\nlist\r\n$4000\r\n%b\r\n" % (b"x" * 4000))
    yard.restart()
    yard.scheduler.slow = True
    return yard


def fail_during_the_read(yard: SimulatedServer) -> None:
    fail_on_push(yard, "write")
    while yard.scheduler.blocking:
        yard.scheduler.finish_blocking()
        yard.run_pending()


@pytest.mark.parametrize(
    ("dialect", "command"),
    [("masenko", b'FETCH {"queues":["list"]}\n'), ("workq", b"lease list 0\r\n")],
)
def test_a_job_that_is_read_back_when_the_disk_has_failed_is_not_handed_out(
    dialect: str, command: bytes
) -> None:
    """That it was leased may not be on disk, and its one attempt would be forgotten."""
    yard = with_cold_payloads()
    peer = yard.connect(dialect)
    peer.send(command)
    peer.expect_nothing()
    fail_during_the_read(yard)
    peer.expect_closed()


def test_a_message_that_is_read_back_when_the_disk_has_failed_is_not_popped() -> None:
    """It would be there again after the restart."""
    yard = with_cold_payloads()
    peer = yard.connect_glovebox()
    greeting = peer.next()
    assert greeting
    peer.send_json(type="pop", label=1, queue="list", timeout=0)
    peer.expect_nothing()
    fail_during_the_read(yard)
    peer.expect_closed()


def test_nothing_unacknowledged_is_taken_for_durable(yard: SimulatedServer, operation: str) -> None:
    fail_on_push(yard, operation)
    assert on_disk(yard.disk).live_job(1) is None
