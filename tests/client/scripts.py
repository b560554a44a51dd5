"""Servers that do what no real one does, or seldom: each answers commands as a test says."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator, Sequence

import hiredis
from support.sockets import HANG_GUARD
from support.waiting import wait_for


class Script:
    """Keeps what it is asked; `answers` are given to one command after the other."""

    def __init__(self, answers: Sequence[bytes] | None, hang_up_at: bytes | None = None) -> None:
        """No answers at all: it reads, and hangs up when a command begins with `hang_up_at`."""
        self._answers = None if answers is None else list(answers)
        self._hang_up_at = hang_up_at
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"taskyard://127.0.0.1:{self._listener.getsockname()[1]}"
        self._callers: list[object] = []
        self._asked: list[bytes] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    @property
    def connections(self) -> int:
        """That there were until now: also those that it has not come to accept yet."""
        with socket.create_connection(self._listener.getsockname()) as last:
            name = last.getsockname()
            wait_for(lambda: name in self._callers)
        self._callers.remove(name)
        return len(self._callers)

    def asked(self) -> list[bytes]:
        """The commands of clients, all of which are gone by now."""
        assert self.connections
        for thread in self._threads[1:]:
            thread.join(HANG_GUARD)
        return self._asked

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(HANG_GUARD)

    def _accept(self) -> None:
        while True:
            try:
                peer, caller = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(peer,), daemon=True)
            thread.start()
            self._threads.append(thread)
            self._callers.append(caller)

    def _serve(self, peer: socket.socket) -> None:
        reader = hiredis.Reader()
        with peer, contextlib.suppress(OSError):
            while data := peer.recv(1 << 16):
                reader.feed(data)
                while (command := reader.gets()) is not False:
                    self._asked.append(command[0])
                    if self._answers:
                        peer.sendall(self._answers.pop(0))
                    elif command[0] == self._hang_up_at:
                        return


@contextlib.contextmanager
def answering(answers: Sequence[bytes]) -> Iterator[Script]:
    script = Script(answers)
    try:
        yield script
    finally:
        script.close()


@contextlib.contextmanager
def hanging_up(at: bytes | None) -> Iterator[Script]:
    script = Script(None, at)
    try:
        yield script
    finally:
        script.close()
