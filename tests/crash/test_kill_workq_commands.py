"""Each command of Workq, then kill -9: what its reply has said is so after the restart."""

import time
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from support.process import WarmServer
from support.sockets import POLL_INTERVAL, SocketPeer
from support.wire import exchange

OK = b"+OK\r\n"
TIMEOUT = b"-TIMEOUT\r\n"
NOT_FOUND = b"-NOT-FOUND\r\n"
DUPLICATE_JOB = b"-CLIENT-ERROR Duplicate job\r\n"
DUPLICATE_RESULT = b"-CLIENT-ERROR Duplicate result\r\n"
HOUR = b"3600000"


class Job:
    """The requests about one job, in a queue of its own, and their replies."""

    def __init__(self) -> None:
        self.id = str(uuid4()).encode()
        self.name = b"q-" + self.id
        self.inspect = b"inspect job %b\r\n" % self.id
        self.delete = b"delete %b\r\n" % self.id
        self.lease = b"lease %b 0\r\n" % self.name
        self.leased = b"+OK 1\r\n%b %b 4\r\nping\r\n" % (self.id, self.name)
        self.result = b"result %b 0\r\n" % self.id

    def add(self, flags: bytes = b"", *, ttr: bytes = b"60000", ttl: bytes = HOUR) -> bytes:
        space = b" " if flags else b""
        return b"add %b %b %b %b 4%b%b\r\nping\r\n" % (self.id, self.name, ttr, ttl, space, flags)

    def schedule(self, moment: bytes) -> bytes:
        return b"schedule %b %b 60000 %b %b 4\r\nping\r\n" % (self.id, self.name, HOUR, moment)

    def run(self) -> bytes:
        return b"run %b %b 60000 60000 4\r\nping\r\n" % (self.id, self.name)

    def complete(self, data: bytes) -> bytes:
        return b"complete %b %d\r\n%b\r\n" % (self.id, len(data), data)

    def fail(self, data: bytes) -> bytes:
        return b"fail %b %d\r\n%b\r\n" % (self.id, len(data), data)

    def has_result(self, success: int, data: bytes) -> bytes:
        return b"+OK 1\r\n%b %d %d\r\n%b\r\n" % (self.id, success, len(data), data)

    def shown(self, peer: SocketPeer) -> dict[str, bytes]:
        """What inspect tells of it."""
        peer.send(self.inspect)
        assert peer.read_line() == b"+OK 1\r\n"
        id, count = peer.read_line().split()
        assert id == self.id
        pairs = (peer.read_line().rstrip(b"\r\n").split(b" ", 1) for _ in range(int(count)))
        return {key.decode(): value for key, value in pairs}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WarmServer]:
    """One server for all, which goes on with what the tests before have left in it."""
    directory: Path = tmp_path_factory.mktemp("server")
    with WarmServer(directory, "--segment-size", "256KiB", "--payload-limit", "64KiB") as server:
        yield server


@pytest.fixture
def server(running: WarmServer) -> WarmServer:
    if not running.is_running():
        running.restart()
    return running


@pytest.fixture
def peer(server: WarmServer) -> SocketPeer:
    return server.connect("workq")


@pytest.fixture
def job() -> Job:
    return Job()


def revive(server: WarmServer) -> SocketPeer:
    server.kill()
    server.restart()
    return server.connect("workq")


def test_what_was_added_is_there(server: WarmServer, peer: SocketPeer, job: Job) -> None:
    exchange(peer, job.add(b"-priority=3 -max-attempts=4 -max-fails=2"), OK)
    before = job.shown(peer)

    peer = revive(server)

    assert job.shown(peer) == before
    exchange(peer, job.add(), DUPLICATE_JOB)
    exchange(peer, job.lease, job.leased)
    exchange(peer, job.lease, TIMEOUT)


def test_what_was_scheduled_waits_for_its_time(
    server: WarmServer, peer: SocketPeer, job: Job
) -> None:
    exchange(peer, job.schedule(b"2199-01-01T00:00:00Z"), OK)
    before = job.shown(peer)
    assert before["time"] == b"2199-01-01T00:00:00Z"

    peer = revive(server)

    assert job.shown(peer) == before
    exchange(peer, job.lease, TIMEOUT)
    exchange(peer, job.complete(b"early"), OK)


def test_what_was_scheduled_comes_when_its_time_is_come(
    server: WarmServer, peer: SocketPeer, job: Job
) -> None:
    due = round(time.time()) + 2
    moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(due)).encode()
    exchange(peer, job.schedule(moment), OK)

    peer = revive(server)

    exchange(peer, b"lease %b 60000\r\n" % job.name, job.leased)
    assert time.time() >= due


def test_a_job_of_one_attempt_is_leased_once(
    server: WarmServer, peer: SocketPeer, job: Job
) -> None:
    exchange(peer, job.add(b"-max-attempts=1"), OK)
    exchange(peer, job.lease, job.leased)

    peer = revive(server)

    exchange(peer, job.lease, TIMEOUT)
    shown = job.shown(peer)
    assert (shown["state"], shown["attempts"]) == (b"4", b"1")
    exchange(peer, job.complete(b"pong"), OK)


def test_a_lease_that_others_were_answered_after_goes_on(
    server: WarmServer, peer: SocketPeer, job: Job
) -> None:
    exchange(peer, job.add(), OK)
    exchange(peer, job.lease, job.leased)
    exchange(peer, Job().add(), OK)  # so the record of the lease before it is on disk

    peer = revive(server)

    exchange(peer, job.lease, TIMEOUT)
    shown = job.shown(peer)
    assert (shown["state"], shown["attempts"]) == (b"4", b"1")


def test_a_lease_that_ends_while_the_server_is_down_is_over(
    server: WarmServer, peer: SocketPeer, job: Job
) -> None:
    exchange(peer, job.add(ttr=b"300"), OK)
    exchange(peer, job.lease, job.leased)
    ends = time.time() + 0.3
    exchange(peer, Job().add(), OK)

    server.kill()
    wait_until(ends)
    server.restart()

    peer = server.connect("workq")
    exchange(peer, job.lease, job.leased)
    assert job.shown(peer)["attempts"] == b"2"


@pytest.mark.parametrize("data", [b"", b"pong", b"+OK\r\n\x00\xff" * 5000], ids=len)
def test_what_was_completed_has_its_result(
    server: WarmServer, peer: SocketPeer, job: Job, data: bytes
) -> None:
    exchange(peer, job.add(), OK)
    exchange(peer, job.lease, job.leased)
    exchange(peer, job.complete(data), OK)

    peer = revive(server)

    exchange(peer, job.result, job.has_result(1, data))
    exchange(peer, job.result, job.has_result(1, data))
    exchange(peer, job.lease, TIMEOUT)
    exchange(peer, job.complete(b"again"), DUPLICATE_RESULT)
    exchange(peer, job.add(), DUPLICATE_JOB)


def test_what_has_failed_for_good_stays_failed(
    server: WarmServer, peer: SocketPeer, job: Job
) -> None:
    exchange(peer, job.add(), OK)
    exchange(peer, job.lease, job.leased)
    exchange(peer, job.fail(b"oh\r\nno"), OK)

    peer = revive(server)

    exchange(peer, job.result, job.has_result(0, b"oh\r\nno"))
    exchange(peer, job.lease, TIMEOUT)
    exchange(peer, job.complete(b"late"), DUPLICATE_RESULT)
    shown = job.shown(peer)
    assert (shown["state"], shown["fails"]) == (b"2", b"1")


def test_fails_are_counted_up_to_the_last(server: WarmServer, peer: SocketPeer, job: Job) -> None:
    exchange(peer, job.add(b"-max-fails=2"), OK)
    exchange(peer, job.lease, job.leased)
    exchange(peer, job.fail(b"first"), OK)

    peer = revive(server)

    shown = job.shown(peer)
    assert (shown["state"], shown["fails"], shown["attempts"]) == (b"3", b"1", b"1")
    exchange(peer, job.result, TIMEOUT)
    exchange(peer, job.lease, job.leased)
    exchange(peer, job.fail(b"second"), OK)

    peer = revive(server)

    exchange(peer, job.lease, TIMEOUT)
    exchange(peer, job.result, job.has_result(0, b"second"))


def test_a_fail_of_the_last_attempt_is_final(
    server: WarmServer, peer: SocketPeer, job: Job
) -> None:
    exchange(peer, job.add(b"-max-attempts=1 -max-fails=5"), OK)
    exchange(peer, job.lease, job.leased)
    exchange(peer, job.fail(b"that was it"), OK)

    peer = revive(server)

    exchange(peer, job.lease, TIMEOUT)
    exchange(peer, job.result, job.has_result(0, b"that was it"))


def test_what_was_deleted_does_not_come_back(
    server: WarmServer, peer: SocketPeer, job: Job
) -> None:
    others = [Job(), Job(), Job()]
    ready, leased, completed = others
    for each in (job, *others):
        exchange(peer, each.add(), OK)
    exchange(peer, leased.lease, leased.leased)
    exchange(peer, completed.complete(b"pong"), OK)
    for each in others:
        exchange(peer, each.delete, OK)

    peer = revive(server)

    for each in others:
        exchange(peer, each.lease, TIMEOUT)
        exchange(peer, each.result, NOT_FOUND)
        exchange(peer, each.inspect, NOT_FOUND)
    exchange(peer, ready.add(), OK)
    exchange(peer, job.lease, job.leased)


def test_a_result_that_was_read_is_there_again(
    server: WarmServer, peer: SocketPeer, job: Job
) -> None:
    worker = server.connect("workq")
    exchange(worker, job.add(), OK)
    peer.send(b"result %b 60000\r\n" % job.id)
    exchange(worker, job.complete(b"pong"), OK)
    peer.expect(job.has_result(1, b"pong"))

    peer = revive(server)

    exchange(peer, job.result, job.has_result(1, b"pong"))


def test_what_was_run_is_gone(server: WarmServer, peer: SocketPeer, job: Job) -> None:
    worker = server.connect("workq")
    peer.send(job.run())
    exchange(worker, b"lease %b 60000\r\n" % job.name, job.leased)
    exchange(worker, job.complete(b"pong"), OK)
    peer.expect(job.has_result(1, b"pong"))

    peer = revive(server)

    exchange(peer, job.inspect, NOT_FOUND)
    exchange(peer, job.lease, TIMEOUT)


def test_a_time_to_live_goes_on_while_the_server_is_down(
    server: WarmServer, peer: SocketPeer, job: Job
) -> None:
    exchange(peer, job.add(), OK)
    seconds = 2
    while (short := short_lived(server, seconds)) is None:
        seconds *= 2
    ready = short[0]
    ends = time.time() + seconds

    server.kill()
    wait_until(ends)
    server.restart()

    peer = server.connect("workq")
    exchange(peer, ready.lease, TIMEOUT)
    for each in short:
        exchange(peer, each.result, NOT_FOUND)
        exchange(peer, each.inspect, NOT_FOUND)
    exchange(peer, job.lease, job.leased)


def short_lived(server: WarmServer, seconds: int) -> list[Job] | None:
    """One that is ready, one that is leased, and one with a result; None if a slow disk has taken
    longer over them than they live."""
    peer = server.connect("workq")
    made = _, leased, completed = [Job(), Job(), Job()]
    began = time.time()
    try:
        for each in made:
            exchange(peer, each.add(ttl=b"%d" % (1000 * seconds)), OK)
        exchange(peer, leased.lease, leased.leased)
        exchange(peer, completed.complete(b"pong"), OK)
        exchange(peer, completed.result, completed.has_result(1, b"pong"))
    except AssertionError:
        if time.time() < began + seconds:
            raise
        return None
    return made


def wait_until(moment: float) -> None:
    """Until the clock, which the server reads too, has come there."""
    while time.time() < moment:
        time.sleep(POLL_INTERVAL)
