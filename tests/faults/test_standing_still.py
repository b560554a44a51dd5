"""A server, or a client, that stands still for longer than anybody's patience, and goes on."""

import json
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

from support.effort import effort
from support.faults import crowds
from support.faults.holder import Holder
from support.faults.run import under_load
from support.process import WarmServer
from support.replies_resp import ask
from support.sockets import SocketPeer
from support.waiting import wait_for
from support.wire import error_of, exchange

CLIENTS = 30
STOPS = effort(20, 3)
HEARTBEAT = 2  # seconds
TTR_MS = 200
FLAGS = ("--heartbeat", f"{HEARTBEAT}s")


@contextmanager
def standing_still(server: WarmServer, seconds: float) -> Iterator[None]:
    """What is done meanwhile reaches no more than the buffers of the kernel."""
    server.tell(signal.SIGSTOP)
    wait_for(lambda: state_of(server.pid) == "T")
    until = time.monotonic() + seconds
    yield
    wait_for(lambda: time.monotonic() > until)
    server.tell(signal.SIGCONT)


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_who_has_sent_its_heartbeat_to_a_server_that_stood_still_is_heard(
    tmp_path: Path, chance: Random, tally: Counter[str]
) -> None:
    with WarmServer(tmp_path, *FLAGS) as server:
        wait_for(lambda: heartbeats_were_heard(server, chance))
        assert server.stop() == 0
    tally["stops of the server"] += 1


def heartbeats_were_heard(server: WarmServer, chance: Random) -> bool:
    """False if the test itself was silent for a heartbeat: then nobody knows what that shows."""
    queue = b"q%d" % time.monotonic_ns()  # what others have held comes back to another one
    workers = [server.connect() for _ in range(CLIENTS)]
    silent = server.connect()
    begun = time.monotonic()
    try:
        ids = [hold_a_job(worker, queue) for worker in workers]
        exchange(silent, b"PING\n", b"PONG {}\n")
        for worker in workers:  # some have said nothing for long when the server stops
            if chance.random() < 0.5:
                exchange(worker, b"PING\n", b"PONG {}\n")
    except (AssertionError, ConnectionError):
        if time.monotonic() - begun < HEARTBEAT:
            raise
        return False
    stopped, in_time = time.monotonic(), True
    try:
        with standing_still(server, 1.2 * HEARTBEAT):
            in_time = time.monotonic() - begun < HEARTBEAT
            for worker in workers:
                worker.send(b"PING\n")
        for id, worker in zip(ids, workers, strict=True):
            worker.send(b'ACK {"id":%d}\n' % id)
        # It has not gone on, and heard of them, before the time of its standing still was over.
        in_time = in_time and time.monotonic() - stopped < (1.2 + 1) * HEARTBEAT
        for worker in workers:
            worker.expect(b"PONG {}\nOK {}\n")
    except (AssertionError, ConnectionError):
        if in_time:
            raise
        return False
    assert error_of(silent.read_line()) == "no heartbeat"
    silent.expect_closed()
    return in_time


def hold_a_job(worker: SocketPeer, queue: bytes) -> int:
    """Its id."""
    worker.send(b'PUSH {"name":"a","queue":"%b"}\n' % queue)
    line = worker.read_line()
    assert line.startswith(b"OK "), line
    id: int = json.loads(line.removeprefix(b"OK "))["id"]
    fetched = b'OK {"id":%d,"queue":"%b","name":"a"}\n' % (id, queue)
    exchange(worker, b'FETCH {"queues":["%b"]}\n' % queue, fetched)
    return id


def test_a_lease_that_ends_while_the_server_stands_still_is_over(
    tmp_path: Path, chance: Random, tally: Counter[str]
) -> None:
    """Also if its end was asked for: the job may be with somebody else by then."""
    with WarmServer(tmp_path) as server:
        worker, other = server.connect("resp"), server.connect("resp")
        for number in range(5):
            assert ask(worker, "JOB.PUSH", "q", f"job {number}", "TTR", 60_000)
            [job] = ask(worker, "JOB.TAKE", 1, "q", "TTR", TTR_MS)
            with standing_still(server, 2 * TTR_MS / 1000):
                late = bool(number % 2)
                if late:
                    worker.send(b"JOB.DONE %b\r\n" % job[0])
            if late:
                assert worker.read_line().startswith(b"-STALE ")
            # With the job's own time, which is long: what comes now is not about that.
            [again] = ask(other, "JOB.TAKE", 1, "q", "WAIT", 60_000)
            assert (again[8], again[0] != job[0]) == (job[8], True)
            assert str(ask(worker, "JOB.DONE", job[0])).startswith("STALE ")
            assert ask(other, "JOB.DONE", again[0]) == "OK"
            assert ask(other, "LLEN", "q") == 0
            tally["stops of the server"] += 1
        assert server.stop() == 0


def test_jobs_of_a_client_that_stands_still_come_back_once(
    tmp_path: Path, chance: Random, tally: Counter[str]
) -> None:
    """And what it says when it goes on is too late."""
    with WarmServer(tmp_path, *FLAGS) as server:
        resp, masenko = server.connect("resp"), server.connect()
        assert ask(resp, "JOB.PUSH", "q", "leased")
        exchange(masenko, b'PUSH {"name":"held"}\n', b'OK {"id":2}\n')
        with Holder(server) as holder:
            holder.take()
            holder.tell(signal.SIGSTOP)
            [job] = ask(resp, "JOB.TAKE", 1, "q", "WAIT", 60_000, "TTR", 60_000)
            assert job[8] == b"leased"
            # By somebody who need not say anything meanwhile.
            [held] = ask(resp, "JOB.TAKE", 1, "default", "WAIT", 60_000, "TTR", 60_000)
            assert (held[1], held[4], held[6]) == (2, b"held", 1)  # id, name, failures
            holder.tell(signal.SIGCONT)
            assert holder.finish() == ["no heartbeat", "STALE"]
        assert ask(resp, "JOB.TAKE", 2, "q", "default") == []
        assert ask(resp, "JOB.DONE", job[0]) == "OK"
        assert ask(resp, "JOB.DONE", held[0]) == "OK"
        assert server.stop() == 0
    tally["stops of clients"] += 1


def test_a_server_that_stands_still_again_and_again_loses_nothing(
    tmp_path: Path, chance: Random, tally: Counter[str]
) -> None:
    """Leases end meanwhile, and clients of all protocols go on as if nothing had been."""
    with WarmServer(tmp_path, *crowds.FLAGS) as server, under_load(server, chance, tally) as run:
        for _ in range(STOPS):
            run.wait(chance.randint(1, 200))
            with standing_still(server, chance.choice([0.05, 0.3, 1.2])):
                pass
            tally["stops of the server"] += 1
        run.wait(50)
        assert not run.storm.cut_off
