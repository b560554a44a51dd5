"""Stands between a client and a server: keeps its address while the server changes its own, and
cuts connections where it is told to.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from support.sockets import HANG_GUARD

Cut = Callable[[], int | None]


def never() -> None:
    return None


class Proxy:
    """`to_server` and `to_client` are asked for each connection: after how many bytes in this
    direction it is to be cut, if at all. The bytes before are passed on.
    """

    def __init__(
        self,
        target: Callable[[], tuple[str, int]],
        *,
        to_server: Cut = never,
        to_client: Cut = never,
    ) -> None:
        self._target = target
        self.to_server = to_server
        self.to_client = to_client
        self.connections = 0
        self.cuts = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.url = f"taskyard://127.0.0.1:{self.port}"
        self._sockets: set[socket.socket] = set()
        self._accepting = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> Self:
        self._accepting.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # A close alone does not wake the thread that accepts.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._accepting.join(HANG_GUARD)
        self.hang_up()

    def hang_up(self) -> None:
        """End all connections that there are."""
        for one in list(self._sockets):
            _end(one)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            try:
                server = socket.create_connection(self._target())
            except (OSError, AssertionError):  # it is away
                client.close()
                continue
            self._sockets |= {client, server}
            self._join(client, server)

    def _join(self, client: socket.socket, server: socket.socket) -> None:
        """Pass on what comes, in either direction."""
        for one, other, cut in (
            (client, server, self.to_server()),
            (server, client, self.to_client()),
        ):
            threading.Thread(target=self._pump, args=(one, other, cut), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket, left: int | None) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if left is not None:
                    data = data[:left]
                    left -= len(data)
                target.sendall(data)
                if left == 0:
                    self.cuts += 1
                    break
        self._end_both(source, target)

    def _end_both(self, one: socket.socket, other: socket.socket) -> None:
        """The other direction shares both sockets, and ends with this one."""
        for each in (one, other):
            self._sockets.discard(each)
            _end(each)


def _end(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()
