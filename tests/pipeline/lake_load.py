"""Clients of several protocols that keep a server busy, whatever becomes of it meanwhile."""

from __future__ import annotations

import contextlib
import json
import math
import threading
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Final, Self

from support.process import ServerProcess
from support.sockets import SocketPeer
from support.workq import new_id

from taskyard.client.client import Client
from taskyard.client.errors import ClientError

_PAUSE: Final = 0.02  # seconds between two rounds of a client
_PATIENCE: Final = 0.5  # seconds; the port may be another one when the server is back


class ClientLoad:
    """Counts what it was promised: the lake is to have that, at least, and not much more."""

    def __init__(
        self, server: ServerProcess, *, pause: float = _PAUSE, limit: float = math.inf
    ) -> None:
        """`limit`: how many pushes, until there may be `more`."""
        self._server = server
        self._pause = pause
        self._limit = limit
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self.promised = 0  # pushes that were answered
        self.asked = 0
        self._threads = [
            threading.Thread(target=self._keep_on, args=(talk,), daemon=True)
            for talk in (_masenko, _workq, _lists, _client)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def more(self, pushes: int) -> None:
        with self._lock:
            self._limit = self.asked + pushes

    @property
    def is_idle(self) -> bool:
        """Whether it has pushed all that it may for now."""
        return self.asked >= self._limit

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _keep_on(self, talk: Callable[[ServerProcess], Iterator[int]]) -> None:
        """`talk` gives how many it is about to push, and then, when it has done so, 0."""
        while not self._stop.is_set():
            # The server is away, or was when the answer should have come.
            with contextlib.suppress(OSError, AssertionError, ClientError):
                self._talk(talk)
            self._stop.wait(self._pause)

    def _talk(self, talk: Callable[[ServerProcess], Iterator[int]]) -> None:
        pending = 0
        for count in talk(self._server):
            with self._lock:
                self.asked += count
                self.promised += pending
            pending = count
            if not count and self._pauses():
                return

    def _pauses(self) -> bool:
        """Until it may go on; True: it is to stop."""
        while not self._stop.wait(self._pause):
            if self.asked < self._limit:
                return False
        return True


def _masenko(server: ServerProcess) -> Iterator[int]:
    """It finishes most jobs, and the others fail, to be tried again or buried."""
    with contextlib.closing(SocketPeer(server.address("masenko"))) as peer:
        number = 0
        while True:
            number += 1
            yield 1
            job = {"name": "send", "queue": "mail", "payload": {"n": number}, "retry": number % 3}
            peer.send(b"PUSH %b\n" % json.dumps(job).encode())
            assert peer.read_line().startswith(b"OK ")
            yield 0
            peer.send(b'FETCH {"queues": ["mail"], "timeout": "1ms"}\n')
            verb, _, body = peer.read_line().partition(b" ")
            if verb == b"OK":
                job = json.loads(body)
                word = {0: "NACK", 1: "NACK"}.get(number % 7, "ACK")
                peer.send(b'%b {"id": %d}\n' % (word.encode(), job["id"]))
                peer.read_line()


def _workq(server: ServerProcess) -> Iterator[int]:
    with contextlib.closing(SocketPeer(server.address("workq"))) as peer:
        number = 0
        while True:
            number += 1
            yield 1
            peer.send(b"add %b ping 60000 600000 5 -max-fails=1\r\nhello\r\n" % new_id())
            assert peer.read_line() == b"+OK\r\n"
            yield 0
            peer.send(b"lease ping 1\r\n")
            if peer.read_line() != b"+OK 1\r\n":
                continue
            id, _, size = peer.read_line().split()
            peer.read_exactly(int(size) + 2)
            peer.send(b"%b %b 4\r\nE: 1\r\n" % (b"complete" if number % 3 else b"fail", id))
            peer.read_line()


def _lists(server: ServerProcess) -> Iterator[int]:
    """Jobs that are popped are done when they are delivered."""
    with contextlib.closing(SocketPeer(server.address("resp"))) as peer:
        while True:
            yield 2
            peer.send(b"RPUSH list one two\r\n")
            assert peer.read_line().startswith(b":")
            yield 0
            peer.send(b"LPOP list\r\n")
            size = int(peer.read_line()[1:])
            peer.read_exactly(max(size, 0) + 2 if size >= 0 else 0)


def _client(server: ServerProcess) -> Iterator[int]:
    host, port = server.address("resp")
    with Client(f"taskyard://{host}:{port}", patience=_PATIENCE) as client:
        while True:
            yield 5
            client.push_many("bulk", [b"x" * 500] * 5, name="crunch")
            yield 0
            for place, job in enumerate(client.fetch("bulk", count=4)):
                if place == 0:
                    client.fail(job, f"ValueError: job {job.id} is no good")
                elif place == 1:
                    client.give_back(job)
                else:
                    client.ack(job, {"n": place})
