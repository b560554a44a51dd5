"""Limits hold through kill -9 of workers and of the server: the journal is read record by record,
and a model that goes through lists looks at each start."""

import json
import select
import subprocess
import sys
import urllib.request
from pathlib import Path
from random import Random
from typing import Any

from support.limit_model import LimitModel
from support.process import WarmServer
from support.replies_resp import ask, command
from support.resp_jobs import Taken, push, take_many

from taskyard.engine.records.job_lifecycle import LeaseRecord
from taskyard.journal.disk import RealDisk
from taskyard.journal.identity import JOURNAL
from taskyard.journal.reader import JournalReader

KEEP_ALL = ("--compaction", "off")

# Says which job it has, and acknowledges it when it is told to.
WORKER = """
import json, socket, sys
stream = socket.create_connection((sys.argv[1], int(sys.argv[2]))).makefile("rwb")
def ask(line):
    stream.write(line)
    stream.flush()
    return stream.readline()
while True:
    id = json.loads(ask(b'FETCH {"queues":["work"]}\\n')[3:])["id"]
    print(id, flush=True)
    sys.stdin.readline()
    ask(b'ACK {"id":%d}\\n' % id)
"""


class Worker:
    def __init__(self, server: WarmServer) -> None:
        host, port = server.address()
        self._process = subprocess.Popen(
            [sys.executable, "-c", WORKER, host, str(port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def next_id(self) -> int:
        """The job that it gets, now or later."""
        assert self._process.stdout is not None
        return int(self._process.stdout.readline())

    def fileno(self) -> int:
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    def finish(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


def first_with_a_job(workers: list[Worker]) -> Worker:
    ready, _, _ = select.select(workers, [], [])
    found: Worker = ready[0]
    return found


def call(server: WarmServer, method: str, path: str, body: Any = None) -> Any:
    host, port = server.address("http")
    request = urllib.request.Request(f"http://{host}:{port}/api/v1{path}", method=method)
    if body is not None:
        request.data = json.dumps(body).encode()
        request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def check_journal(server: WarmServer) -> int:
    """Each start was that of the first who may go; gives how many leases there were."""
    reader = JournalReader(RealDisk(str(server.data)).directory(JOURNAL))
    model = LimitModel()
    leases = 0
    for entry in reader.read():
        entry.record.seq = entry.seq
        model.see([entry.record])
        leases += isinstance(entry.record, LeaseRecord)
    return leases


def test_workers_that_are_killed_free_their_places_and_no_others(tmp_path: Path) -> None:
    workers: list[Worker] = []
    with WarmServer(tmp_path, *KEEP_ALL) as server:
        call(server, "PUT", "/queues/work", {"concurrency": 2})
        peer = server.connect("resp")
        jobs = [push(peer, "work", f"job{number}") for number in range(6)]
        try:
            workers += [Worker(server), Worker(server)]
            held = [worker.next_id() for worker in workers]
            assert sorted(held) == jobs[:2]
            workers.append(Worker(server))

            def third_waits() -> bool:
                view = call(server, "GET", "/queues/work")
                assert view["counts"]["leased"] == 2
                return bool(view["waiting"] == 1)

            server.wait_for(third_waits)
            workers[0].kill()
            assert workers[2].next_id() == held[0]

            server.kill()
            for worker in workers[1:]:
                worker.kill()
            server.restart()
            workers = [Worker(server), Worker(server)]
            seen = set()
            for _ in range(6):
                worker = first_with_a_job(workers)  # the last one may go to either
                seen.add(worker.next_id())
                worker.finish()
            assert seen == set(jobs)
            server.wait_for(
                lambda: call(server, "GET", "/queues/work")["counters"]["finished"] == 6
            )
        finally:
            for worker in workers:
                worker.kill()
        assert server.stop() == 0
    assert check_journal(server) >= 2 + 6  # the third lease may not have been on disk


def test_rates_and_keys_hold_while_the_server_is_killed(tmp_path: Path) -> None:
    chance = Random("limits")
    limits = {
        "concurrency": 6,
        "rate": {"count": 30, "per": 0.3},
        "key_concurrency": 2,
        "key_rate": {"count": 8, "per": 0.4},
    }
    with WarmServer(tmp_path, *KEEP_ALL) as server:
        call(server, "PUT", "/queues/work", limits)
        for _ in range(3):
            _rage(server, chance)
            server.kill()
            server.restart()
        peer = server.connect("resp")
        while _has_work(call(server, "GET", "/queues/work")["counts"]):
            for job in take_many(peer, "work", "COUNT", 10, "WAIT", 500, "TTR", 10_000):
                ask(peer, "JOB.DONE", job.ref)
        assert server.stop() == 0
    assert check_journal(server) > 60


def _has_work(counts: dict[str, int]) -> bool:
    """But for jobs whose leases were lost too often: those are given up."""
    return any(counts[state] for state in ("delayed", "ready", "leased", "limited"))


def _rage(server: WarmServer, chance: Random) -> None:
    """Push, take and finish, and leave in the middle of it."""
    peers = [server.connect("resp") for _ in range(3)]
    held: list[Taken] = []
    for _ in range(60):
        peer = chance.choice(peers)
        push(peer, "work", "job", "LIMIT", chance.choice("abc"), "FAILS", 0, "BACKOFF", 0, 0)
        held += take_many(peer, "work", "COUNT", chance.randint(1, 4), "TTR", 400)
        if held and chance.random() < 0.7:
            job = held.pop(chance.randrange(len(held)))
            end = ("JOB.DONE", job.ref) if chance.random() < 0.8 else ("JOB.FAIL", job.ref, "no")
            ask(peer, *end)
    for peer in peers:  # their replies are not waited for
        peer.send(command("JOB.PUSH", "work", "job", "LIMIT", "a"))
        peer.send(command("JOB.TAKE", 1, "work", "COUNT", 4, "TTR", 400))
