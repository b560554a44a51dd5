"""Requests of Workq that cross each other: what one connection does while another waits."""

import pytest
from support.simulated import SimulatedServer
from support.wire import exchange

ID = b"6ba7b810-9dad-41d1-80b4-00c04fd430c4"
OTHER = b"6ba7b810-9dad-41d1-80b4-00c04fd430c5"
OK = b"+OK\r\n"
TIMEOUT = b"-TIMEOUT\r\n"
NOT_FOUND = b"-NOT-FOUND\r\n"
LARGE = b"x" * 3000


@pytest.fixture(params=["inline", "thread"])
def yard(request: pytest.FixtureRequest) -> SimulatedServer:
    return SimulatedServer(inline_sync=request.param == "inline", payload_memory=0)


def test_what_arrives_while_commands_wait_comes_after_all_of_them(yard: SimulatedServer) -> None:
    peer = yard.connect("workq")
    peer.send(b"lease q 1000\r\nlease q 1000\r\n")
    peer.send(b"result %b 0\r\n" % ID)
    yard.advance(1)
    peer.send(b"inspect server with too much\r\n")
    yard.advance(1)
    peer.expect(TIMEOUT + TIMEOUT + NOT_FOUND + b"-CLIENT-ERROR Invalid command args\r\n")


def test_inspect_tells_nothing_wrong_of_a_job_that_is_deleted_meanwhile(
    yard: SimulatedServer,
) -> None:
    peer = yard.connect("workq")
    exchange(peer, b"add %b q 60000 3600000 3000\r\n%b\r\n" % (ID, LARGE), OK)
    exchange(peer, b"fail %b 2\r\nno\r\n" % ID, OK)
    yard.crash()
    peer, other = yard.connect("workq"), yard.connect("workq")
    yard.scheduler.slow = True
    peer.send(b"inspect job %b\r\n" % ID)
    other.send(b"delete %b\r\n" % ID)
    peer.expect_nothing()  # its payload is being read
    while yard.scheduler.blocking:
        yard.scheduler.finish_blocking()
        yard.run_pending()
    other.expect(OK)
    shown = peer.take()
    assert shown == NOT_FOUND or b"\r\nstate 2\r\n" in shown


def test_a_run_that_is_over_is_not_leased_any_more(yard: SimulatedServer) -> None:
    caller, worker = yard.connect("workq"), yard.connect("workq")
    caller.send(b"run %b q 200 5 4\r\nping\r\n" % ID)
    yard.advance(0.0045)
    exchange(worker, b"result %b 0\r\n" % OTHER, NOT_FOUND)  # the server is at work just now
    yard.clock.time += 600  # the wait is over, and this lease is the first to notice
    exchange(worker, b"lease q 0\r\n", TIMEOUT)
    caller.expect(TIMEOUT)
    exchange(worker, b"complete %b 2\r\nok\r\n" % ID, NOT_FOUND)


@pytest.mark.parametrize("finish", [b"", b"complete %b 2\r\nok\r\n" % ID])
def test_a_run_that_is_over_in_the_moment_in_which_it_is_leased_goes_on(
    yard: SimulatedServer, finish: bytes
) -> None:
    """The worker's wait for another job ends in the same tick, and its next command takes this."""
    caller, worker, other = (yard.connect("workq") for _ in range(3))
    caller.send(b"run %b q 200 5 4\r\nping\r\n" % ID)
    worker.send(b"lease nothing 4\r\nlease q 0\r\n" + finish)
    yard.clock.time += 6000
    exchange(other, b"result %b 0\r\n" % OTHER, NOT_FOUND)
    worker.expect(TIMEOUT)
    worker.expect(b"+OK 1\r\n%b q 4\r\nping\r\n" % ID)
    if not finish:
        caller.expect_nothing()
        worker.send(b"complete %b 2\r\nok\r\n" % ID)
    worker.expect(OK)
    caller.expect(b"+OK 1\r\n%b 1 2\r\nok\r\n" % ID)
    exchange(other, b"result %b 0\r\n" % ID, NOT_FOUND)


def test_the_only_attempt_of_a_task_worker_is_not_forgotten_in_a_crash(
    yard: SimulatedServer,
) -> None:
    peer, tasks = yard.connect("workq"), yard.connect("masenko")
    exchange(peer, b"add %b q 60000 3600000 4 -max-attempts=1\r\nping\r\n" % ID, OK)
    tasks.send(b'FETCH {"queues":["q"]}\n')
    assert tasks.read_line().startswith(b"OK ")
    yard.crash()
    peer = yard.connect("workq")
    exchange(peer, b"lease q 0\r\n", TIMEOUT)
    exchange(peer, b"result %b 0\r\n" % ID, b"+OK 1\r\n%b 0 0\r\n\r\n" % ID)
