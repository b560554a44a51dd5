"""Opens connections in another network namespace, for a process that is not there.

Run as a program, it reads addresses from its standard input, a socket, and answers each with the
descriptor of a connection, or with why there is none. Nothing but the kernel is between the test
and the server: the connection is the test's own, and its packets go through that namespace.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Self

CONNECT_TIMEOUT = 2.0  # seconds, while a cable may be cut


class RemoteNamespace:
    """A context. `wrapper` is a command that becomes the one behind it, in that namespace."""

    def __init__(self, wrapper: Sequence[str]) -> None:
        self._wrapper = wrapper
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [*self._wrapper, sys.executable, "-I", __file__], stdin=theirs.fileno()
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._line.close()
        self._process.wait()

    def connect(self, address: tuple[str, int]) -> socket.socket:
        """May be called from any thread."""
        with self._lock:
            self._line.send(json.dumps(address).encode())
            data, descriptors, _, _ = socket.recv_fds(self._line, 4096, 1)
        if not descriptors:
            raise ConnectionError(data.decode())
        return socket.socket(fileno=descriptors[0])


def _serve(line: socket.socket) -> None:
    while request := line.recv(4096):
        try:
            with socket.create_connection(json.loads(request), CONNECT_TIMEOUT) as connection:
                connection.setblocking(True)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                socket.send_fds(line, [b"here"], [connection.fileno()])
        except OSError as error:
            line.send(str(error).encode())


if __name__ == "__main__":
    _serve(socket.socket(fileno=0))
