"""The connections of a client: threads use them at the same time, each its own."""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Iterator, Sequence
from typing import Final

from taskyard.client.address import Address
from taskyard.client.connection import Connection
from taskyard.client.errors import Closed
from taskyard.client.wire import Command


class ConnectionPool:
    """Connections are opened when they are needed, and kept for later calls."""

    def __init__(
        self,
        address: Address,
        timeout: float,
        max_connections: int,
        setup_commands: Sequence[Command] = (),
    ) -> None:
        """`max_connections`: at the same time. Commands that wait for something have further ones,
        so that no other call waits for them. `setup_commands`: what each begins with.
        """
        if max_connections < 1:
            raise ValueError("a client needs at least one connection")
        self._address = address
        self._timeout = timeout
        self._tls = address.create_tls_context()
        self._setup_commands = setup_commands
        self._max_connections = max_connections
        self._changed = threading.Condition()
        self._idle: list[Connection] = []
        self._busy: set[Connection] = set()
        self._busy_count = 0  # of those that are busy and no extra ones
        self._closed = False
        _pools.add(self)

    @contextlib.contextmanager
    def connection(self, extra: bool = False) -> Iterator[Connection]:
        """One for this thread alone; `extra` if it will wait for something."""
        found = self._borrow_connection(extra)
        try:
            yield found
        finally:
            self._return_connection(found, extra)

    def close(self) -> None:
        """Ends what others are doing with Closed."""
        with self._changed:
            self._closed = True
            connections = [*self._idle, *self._busy]
            self._idle.clear()
            self._changed.notify_all()
        for connection in connections:
            connection.close()

    def reset_after_fork(self) -> None:
        """Start anew in the child: the threads that hold the lock and connections do not exist
        here.
        """
        self._changed = threading.Condition()
        self._busy.clear()
        self._busy_count = 0

    def _borrow_connection(self, extra: bool) -> Connection:
        with self._changed:
            while not (extra or self._closed or self._busy_count < self._max_connections):
                self._changed.wait()
            if self._closed:
                raise Closed(f"{self._address}: the client was closed")
            found = self._idle.pop() if self._idle else None
            if found is None:
                found = Connection(
                    self._address,
                    timeout=self._timeout,
                    tls=self._tls,
                    setup_commands=self._setup_commands,
                )
            self._busy.add(found)
            self._busy_count += not extra
            return found

    def _return_connection(self, connection: Connection, extra: bool) -> None:
        with self._changed:
            if connection not in self._busy:  # of before a fork
                return
            self._busy.remove(connection)
            self._busy_count -= not extra
            keep = not self._closed and len(self._idle) < self._max_connections
            if keep:
                self._idle.append(connection)
            self._changed.notify()
        if not keep:
            connection.close()


_pools: Final[weakref.WeakSet[ConnectionPool]] = weakref.WeakSet()


def _reset_pools_after_fork() -> None:
    for pool in list(_pools):
        pool.reset_after_fork()


os.register_at_fork(after_in_child=_reset_pools_after_fork)
