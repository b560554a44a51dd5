"""A server whose journal and queues Spark reads: its addresses, and work for it."""

from __future__ import annotations

import json
from collections.abc import Generator
from itertools import count
from typing import Self

from support.process import WarmServer
from support.workq import new_id

from taskyard import Client


class Server(WarmServer):
    """When it is back after its end, it has the same addresses."""

    def __enter__(self) -> Self:
        super().__enter__()
        for dialect in ("resp", "http"):
            self.flags += [f"--{dialect}-port", str(self.address(dialect)[1])]
        return self

    @property
    def url(self) -> str:
        """For clients."""
        host, port = self.address("resp")
        return f"taskyard://{host}:{port}"

    def http_url(self, credentials: str = "") -> str:
        host, port = self.address("http")
        return f"http://{credentials}{host}:{port}"

    def client(self) -> Client:
        return Client(self.url, heartbeats=False)  # no leases are extended

    def work(self, jobs: int, size: int = 1000, left: int = 0) -> None:
        """Push jobs, and do all but those that are to be left."""
        with self.client() as client:
            client.push_many("work", [b"x" * size] * (jobs + left), name="task")
            done = 0
            while done < jobs:
                taken = client.fetch("work", count=min(20, jobs - done))
                client.ack_many(taken)
                done += len(taken)

    def speak_all_dialects(self, rounds: int) -> int:
        """Push jobs, and do them, fail them and give them back; give how many were pushed."""
        clients = [talk(self) for talk in (_masenko, _workq, _lists, _client)]
        pushed = sum(next(each) for _ in range(rounds) for each in clients)
        for each in clients:
            each.close()
        return pushed


# Each gives, after every round, how many jobs it has pushed in it.


def _masenko(server: Server) -> Generator[int]:
    """It finishes most jobs, and the others fail, to be tried again or buried."""
    peer = server.connect("masenko")
    for number in count(1):
        job = {"name": "send", "queue": "mail", "payload": {"n": number}, "retry": number % 3}
        peer.send(b"PUSH %b\n" % json.dumps(job).encode())
        assert peer.read_line().startswith(b"OK ")
        peer.send(b'FETCH {"queues": ["mail"], "timeout": "1ms"}\n')
        verb, _, body = peer.read_line().partition(b" ")
        if verb == b"OK":
            word = b"NACK" if number % 7 < 2 else b"ACK"
            peer.send(b'%b {"id": %d}\n' % (word, json.loads(body)["id"]))
            peer.read_line()
        yield 1


def _workq(server: Server) -> Generator[int]:
    peer = server.connect("workq")
    for number in count(1):
        peer.send(b"add %b ping 60000 600000 5 -max-fails=1\r\nhello\r\n" % new_id())
        assert peer.read_line() == b"+OK\r\n"
        peer.send(b"lease ping 1\r\n")
        if peer.read_line() == b"+OK 1\r\n":
            id, _, size = peer.read_line().split()
            peer.read_exactly(int(size) + 2)
            word = b"complete" if number % 3 else b"fail"
            peer.send(b"%b %b 4\r\nE: 1\r\n" % (word, id))
            peer.read_line()
        yield 1


def _lists(server: Server) -> Generator[int]:
    """Jobs that are popped are done when they are handed out."""
    peer = server.connect("resp")
    while True:
        peer.send(b"RPUSH list one two\r\n")
        assert peer.read_line().startswith(b":")
        peer.send(b"LPOP list\r\n")
        size = int(peer.read_line()[1:])
        peer.read_exactly(size + 2)
        yield 2


def _client(server: Server) -> Generator[int]:
    with server.client() as client:
        while True:
            client.push_many("bulk", [b"x" * 500] * 5, name="crunch")
            for place, job in enumerate(client.fetch("bulk", count=4)):
                if place == 0:
                    client.fail(job, f"ValueError: job {job.id} is no good")
                elif place == 1:
                    client.give_back(job)
                else:
                    client.ack(job, {"n": place})
            yield 5
