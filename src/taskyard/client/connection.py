"""A blocking connection that speaks RESP: commands out, replies in, one thread at a time.

It connects when it is first used and again after it was lost. A command whose reply was lost may
have been carried out; it is sent again only if the caller says that this does no harm.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
import time
import weakref
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self, TypeAlias

import hiredis

from taskyard.client.address import Address
from taskyard.client.backoff import Backoff
from taskyard.client.errors import Refused, Unavailable

Word: TypeAlias = str | bytes | int
Command: TypeAlias = Sequence[Word]
Reply: TypeAlias = "int | bytes | list[Reply] | Refused | None"

# So many commands are on their way at once: a server that waits for its replies to be read would
# wait for ever for a client that only writes.
_AT_ONCE: Final = 256
_RECEIVE: Final = 1 << 16
_GOODBYE: Final = 0.5  # seconds
_INCOMPLETE: Final = object()


class Connection:
    """To one server. Threads may share it; they wait for each other."""

    def __init__(
        self,
        address: Address,
        *,
        timeout: float = 10.0,
        patience: float = 0.0,
        backoff: Backoff | None = None,
    ) -> None:
        """`timeout`: how long connecting, or one answer, may take. `patience`: for how long a call
        tries to reach a server that is away. Both in seconds.
        """
        self.address = address
        self._timeout = timeout
        self._patience = patience
        self._backoff = backoff or Backoff()
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._socket: socket.socket | None = None
        self._reader = _reader()
        self._process = os.getpid()
        _connections.add(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def call(self, *words: Word, wait: float = 0.0, repeat: bool = False) -> Reply:
        """The reply to one command; raises Refused if it is an error, and Unavailable.

        `wait`: for how long the server may hold back the reply, as the command says. `repeat`: the
        command may be sent again when its reply was lost.
        """
        reply = self.pipeline([words], wait=wait, repeat=repeat)[0]
        if isinstance(reply, Refused):
            raise reply
        return reply

    def pipeline(
        self, commands: Sequence[Command], *, wait: float = 0.0, repeat: bool = False
    ) -> list[Reply]:
        """The replies to all of them, sent in one go; errors are given back as Refused."""
        replies: list[Reply] = []
        with self._lock:
            for start in range(0, len(commands), _AT_ONCE):
                some = commands[start : start + _AT_ONCE]
                replies += self._persist(some, wait, repeat)
        return replies

    def close(self) -> None:
        """Also ends a call in another thread, which then raises Unavailable."""
        self._closed.set()
        connected = self._socket
        if connected is not None and self._process == os.getpid():
            with contextlib.suppress(OSError):  # it was lost already
                connected.shutdown(socket.SHUT_RDWR)
        # Whoever holds the lock is about to find out, at the latest when its connecting times out.
        if self._lock.acquire(timeout=_GOODBYE):
            self._drop()
            self._lock.release()

    def _persist(self, commands: Sequence[Command], wait: float, repeat: bool) -> list[Reply]:
        until = time.monotonic() + self._patience
        for delay in self._backoff.delays():
            sent = False
            try:
                self._connect()
                sent = True
                return self._exchange(commands, wait)
            except Refused:  # of the greeting
                self._drop()
                raise
            except (OSError, hiredis.ProtocolError) as error:
                self._drop()
                patient = time.monotonic() + delay < until
                if self._closed.is_set() or not patient or (sent and not repeat):
                    raise self._unavailable(error, sent) from error
            except BaseException:  # a signal's, perhaps: the reply would be taken for the next one
                self._drop()
                raise
            self._closed.wait(delay)
        raise AssertionError("the pauses never end")

    def _unavailable(self, error: Exception, sent: bool) -> Unavailable:
        reason = "the connection was closed" if self._closed.is_set() else str(error)
        lost = "went away before it answered" if sent else "cannot be reached"
        return Unavailable(f"{self.address} {lost}: {reason or type(error).__name__}")

    def _connect(self) -> None:
        if self._process != os.getpid():
            # The parent of a fork goes on using the socket: this process must not shut it down.
            self._socket, self._process = None, os.getpid()
        if self._socket is not None and _ended(self._socket):
            self._drop()
        if self._closed.is_set():
            raise ConnectionError("the connection was closed")
        if self._socket is not None:
            return
        address = self.address
        connected = socket.create_connection((address.host, address.port), self._timeout)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = _reader()
        self._socket = connected
        if self._closed.is_set():  # meanwhile
            raise ConnectionError("the connection was closed")
        self._greet()

    def _greet(self) -> None:
        address = self.address
        commands: list[Command] = []
        if address.user:
            commands.append(("AUTH", address.user, address.password))
        elif address.password:
            commands.append(("AUTH", address.password))
        if address.database:
            commands.append(("SELECT", address.database))
        for reply in self._exchange(commands, 0.0) if commands else []:
            if isinstance(reply, Refused):
                raise reply

    def _exchange(self, commands: Sequence[Command], wait: float) -> list[Reply]:
        connected = self._socket
        assert connected is not None
        connected.settimeout(self._timeout + wait)
        connected.sendall(b"".join(hiredis.pack_command(tuple(words)) for words in commands))  # type: ignore[arg-type]
        return [self._receive(connected) for _ in commands]

    def _receive(self, connected: socket.socket) -> Reply:
        reader = self._reader
        while (reply := reader.gets()) is _INCOMPLETE:
            data = connected.recv(_RECEIVE)
            if not data:
                raise ConnectionError("it closed the connection")
            reader.feed(data)
        found: Reply = reply
        return found

    def forked(self) -> None:
        """In the child of a fork: whoever held the lock is not here to release it."""
        self._lock = threading.Lock()

    def _drop(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


_connections: Final[weakref.WeakSet[Connection]] = weakref.WeakSet()


def _forked() -> None:
    for connection in list(_connections):
        connection.forked()


os.register_at_fork(after_in_child=_forked)


def _reader() -> hiredis.Reader:
    return hiredis.Reader(replyError=Refused, notEnoughData=_INCOMPLETE)


def _ended(connected: socket.socket) -> bool:
    """Whether an idle connection is of no more use: nothing can be there to read but its end."""
    poll = select.poll()
    poll.register(connected, select.POLLIN)
    return bool(poll.poll(0))
