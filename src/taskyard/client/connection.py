"""A blocking connection that speaks RESP: commands out, replies in, one thread at a time.

It connects when it is first used and again after it was lost. A command whose reply was lost may
have been executed; it is sent again only if the caller says that this does no harm.
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
from typing import TYPE_CHECKING, Final, Self

import hiredis

from taskyard.client.commands import (
    INCOMPLETE,
    RECEIVE_BYTES,
    Command,
    Reply,
    Word,
    create_reader,
    enable_keepalive,
    encode_commands,
    login_commands,
    unavailable_error,
)
from taskyard.client.errors import Refused, Unavailable
from taskyard.client.retry import Backoff
from taskyard.client.streaming import CommandStream, run_stream
from taskyard.client.url import Address, is_secure, wants_read

if TYPE_CHECKING:
    import ssl

__all__ = ["Command", "Connection", "Reply", "Word"]

# So many commands are sent before their replies: a server that waits for its replies to be read
# would wait for ever for a client that only writes.
_PIPELINE_COMMANDS: Final = 256
_CLOSE_TIMEOUT_S: Final = 0.5  # seconds


class Connection:
    """To one server. Threads may share it; they wait for each other."""

    def __init__(
        self,
        address: Address,
        *,
        timeout: float = 10.0,
        patience: float = 0.0,
        backoff: Backoff | None = None,
        tls: ssl.SSLContext | None = None,
        setup_commands: Sequence[Command] = (),
    ) -> None:
        """`timeout`: how long connecting, or one answer, may take. `patience`: for how long a call
        tries to reach a server that is away. Both in seconds. `tls`: how to encrypt, if the address
        says so and this was made already: it takes its time. `setup_commands`: commands that are
        sent first, each time that it connects.
        """
        self.address = address
        self._timeout = timeout
        self._patience = patience
        self._backoff = backoff or Backoff()
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._socket: socket.socket | None = None
        self._tls = tls or address.create_tls_context()
        self._setup_commands = [*login_commands(address), *setup_commands]
        self._reader = create_reader()
        self._process_id = os.getpid()
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
        """Return the replies to all of them, sent together; errors are returned as Refused."""
        replies: list[Reply] = []
        with self._lock:
            for start in range(0, len(commands), _PIPELINE_COMMANDS):
                some = commands[start : start + _PIPELINE_COMMANDS]
                replies += self._exchange_with_retries(some, wait, repeat)
        return replies

    def stream(self, feed: CommandStream) -> None:
        """Send the commands of the stream, and pass it the replies, until it is done.

        The stream has to know what was lost with a connection: nothing is sent again.
        """
        with self._lock:
            self._stream_commands(feed)

    def close(self) -> None:
        """Also ends a call in another thread, which then raises Unavailable."""
        self._closed.set()
        connected = self._socket
        if connected is not None and self._process_id == os.getpid():
            with contextlib.suppress(OSError):  # it was lost already
                # Not that of TLS, which would let another thread continue to send without it.
                socket.socket.shutdown(connected, socket.SHUT_RDWR)
        # The thread with the lock is about to notice, at the latest when its connecting times out.
        if self._lock.acquire(timeout=_CLOSE_TIMEOUT_S):
            self._disconnect()
            self._lock.release()

    def _exchange_with_retries(
        self, commands: Sequence[Command], wait: float, repeat: bool
    ) -> list[Reply]:
        until = time.monotonic() + self._patience
        for delay in self._backoff.delays():
            try:
                return self._try_exchange(commands, wait)
            except Unavailable as error:
                patient = time.monotonic() + delay < until
                if error.final or not patient or (error.sent and not repeat):
                    raise
            self._closed.wait(delay)
        raise AssertionError("the pauses never end")

    def _try_exchange(self, commands: Sequence[Command], wait: float) -> list[Reply]:
        sent = False
        try:
            self._connect()
            sent = True
            return self._exchange(commands, wait)
        except (OSError, hiredis.ProtocolError) as error:
            self._disconnect()
            raise self._unavailable(error, sent) from error
        except BaseException:  # of the login, or a signal's: a reply may be left unread
            self._disconnect()
            raise

    def _stream_commands(self, feed: CommandStream) -> None:
        sent = False
        try:
            self._connect()
            sent = True
            assert self._socket is not None
            run_stream(self._socket, self._reader, feed, self._timeout)
        except (OSError, hiredis.ProtocolError) as error:
            self._disconnect()
            raise self._unavailable(error, sent) from error
        except BaseException:
            self._disconnect()
            raise

    def _unavailable(self, error: Exception, sent: bool) -> Unavailable:
        return unavailable_error(self.address, error, sent=sent, closed=self._closed.is_set())

    def _connect(self) -> None:
        if self._process_id != os.getpid():
            # The parent of a fork continues to use the socket: this process must not shut it down.
            self._socket, self._process_id = None, os.getpid()
        if self._socket is not None and _is_closed_by_peer(self._socket):
            self._disconnect()
        if self._closed.is_set():
            raise ConnectionError("the connection was closed")
        if self._socket is not None:
            return
        address = self.address
        connected = socket.create_connection((address.host, address.port), self._timeout)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        enable_keepalive(connected)
        self._reader = create_reader()
        self._socket = connected
        if self._closed.is_set():  # meanwhile
            raise ConnectionError("the connection was closed")
        if self._tls is not None:
            self._socket = self._tls.wrap_socket(connected, server_hostname=address.host)
        self._set_up()

    def _set_up(self) -> None:
        for reply in self._exchange(self._setup_commands, 0.0) if self._setup_commands else []:
            if isinstance(reply, Refused):
                raise reply

    def _exchange(self, commands: Sequence[Command], wait: float) -> list[Reply]:
        connected = self._socket
        assert connected is not None
        connected.settimeout(self._timeout + wait)
        connected.sendall(encode_commands(commands))
        return [self._receive(connected) for _ in commands]

    def _receive(self, connected: socket.socket) -> Reply:
        reader = self._reader
        while (reply := reader.gets()) is INCOMPLETE:
            data = connected.recv(RECEIVE_BYTES)
            if not data:
                raise ConnectionError("it closed the connection")
            reader.feed(data)
        found: Reply = reply
        return found

    def reset_after_fork(self) -> None:
        """Replace the locks in the child of a fork: the threads that held them do not exist."""
        self._lock = threading.Lock()
        self._closed = copy_event(self._closed)

    def _disconnect(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def copy_event(event: threading.Event) -> threading.Event:
    """Return an event of which no thread holds the lock."""
    fresh = threading.Event()
    if event.is_set():
        fresh.set()
    return fresh


_connections: Final[weakref.WeakSet[Connection]] = weakref.WeakSet()


def _reset_connections_after_fork() -> None:
    for connection in list(_connections):
        connection.reset_after_fork()


os.register_at_fork(after_in_child=_reset_connections_after_fork)


def _is_closed_by_peer(connected: socket.socket) -> bool:
    """Whether an idle connection is of no more use: nothing can be there to read but its end."""
    if is_secure(connected):
        return _is_tls_closed_by_peer(connected)
    poll = select.poll()
    poll.register(connected, select.POLLIN)
    return bool(poll.poll(0))


def _is_tls_closed_by_peer(connected: socket.socket) -> bool:
    """The same of one that is encrypted, where TLS itself may have had something to say."""
    connected.settimeout(0.0)
    try:
        connected.recv(1)
    except OSError as error:
        return not wants_read(error)
    return True
