"""A real server process on its own data directory, and clients that talk to it over TCP.

Whatever is waited for is a condition; the time limits only turn a hang into a failure.
"""

import contextlib
import resource
import signal
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from support.listeners import address_of, any_ports
from support.warm import WarmProcess
from support.websocket_peer import WebSocketPeer
from support.wire import Peer

HANG_GUARD = 120.0
POLL_INTERVAL = 0.005


def allow_many_files() -> None:
    """As many as may be; a thousand connections need as many on either side."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class SocketPeer:
    """One TCP connection to the server."""

    def __init__(
        self,
        address: tuple[str, int],
        masenko: tuple[str, int] | None = None,
        opened: socket.socket | None = None,
    ) -> None:
        """`masenko` is where that protocol listens, if this is another one; `opened` a connection
        that is there already.
        """
        self._masenko = masenko or address
        self._socket = opened or socket.create_connection(address, timeout=HANG_GUARD)
        self._socket.settimeout(HANG_GUARD)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._unread = bytearray()

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def expect(self, data: bytes) -> None:
        while len(self._unread) < len(data) and data.startswith(self._unread) and self._receive():
            pass
        received = bytes(self._unread[: len(data)])
        assert received == data, f"received {bytes(self._unread)!r} instead of {data!r}"
        del self._unread[: len(data)]

    def expect_nothing(self) -> None:
        """Two round trips on a second connection give the server the turns in which it would have
        answered this one, which itself may be waiting in a FETCH or be in a transaction.
        """
        with contextlib.closing(SocketPeer(self._masenko)) as probe:
            for _ in range(2):
                probe.send(b"PING\n")
                probe.expect(b"PONG {}\n")
        self._socket.setblocking(False)
        try:
            self._receive()
        except BlockingIOError:
            pass
        else:
            assert self._unread, "the server closed the connection"
        finally:
            self._socket.settimeout(HANG_GUARD)
        assert not self._unread, f"received {bytes(self._unread)!r} instead of nothing"

    def expect_closed(self) -> None:
        assert not self._unread, f"received {bytes(self._unread)!r} instead of the end"
        assert not self._receive(), f"received {bytes(self._unread)!r} instead of the end"

    def read_line(self) -> bytes:
        while b"\n" not in self._unread:
            assert self._receive(), f"closed after {bytes(self._unread)!r}"
        end = self._unread.index(b"\n") + 1
        line = bytes(self._unread[:end])
        del self._unread[:end]
        return line

    def read_exactly(self, size: int) -> bytes:
        while len(self._unread) < size:
            assert self._receive(), f"closed after {bytes(self._unread)!r}"
        data = bytes(self._unread[:size])
        del self._unread[:size]
        return data

    def close(self) -> None:
        self._socket.close()

    def _receive(self) -> bool:
        """Take what has arrived, or wait for it; false at the end of the stream."""
        data = self._socket.recv(1 << 16)
        self._unread += data
        return bool(data)


class SocketWire:
    """`taskyard serve` in a process of its own, from entering the context to leaving it."""

    def __init__(self, directory: Path, heartbeat: str = "45s") -> None:
        self._data = directory / "data"
        self._ports_file = directory / "ports.json"
        self._log = directory / "server.log"
        self._heartbeat = heartbeat
        self._peers: list[SocketPeer | WebSocketPeer] = []

    def __enter__(self) -> Self:
        self._start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop()

    def connect(self, dialect: str = "masenko") -> Peer:
        masenko = address_of(self._ports_file, "masenko")
        if dialect == "glovebox":
            client = WebSocketPeer(address_of(self._ports_file, "http"), masenko)
            self._peers.append(client)
            return client
        listener = "http" if dialect == "api" else dialect
        peer = SocketPeer(address_of(self._ports_file, listener), masenko)
        self._peers.append(peer)
        return peer

    def address(self, dialect: str) -> tuple[str, int]:
        return address_of(self._ports_file, dialect)

    def restart(self) -> None:
        self._stop()
        self._start()

    def hang_up(self) -> None:
        """Close every connection that is still open."""
        while self._peers:
            self._peers.pop().close()

    def _start(self) -> None:
        self._ports_file.unlink(missing_ok=True)
        options = ["--data", str(self._data), "--ports-file", str(self._ports_file)]
        options += [*any_ports([]), "--heartbeat", self._heartbeat]
        self._process = WarmProcess(["serve", *options], self._log, "a")
        self._wait_for_ports()

    def _wait_for_ports(self) -> None:
        deadline = time.monotonic() + HANG_GUARD
        while not self._ports_file.exists():
            assert self._process.poll() is None, f"the server did not start:\n{self._log_text()}"
            if time.monotonic() > deadline:
                self._process.kill()
                self._process.wait()
                raise AssertionError(f"no ports file in {HANG_GUARD} s:\n{self._log_text()}")
            time.sleep(POLL_INTERVAL)

    def _stop(self) -> None:
        """End the server while its clients are still connected, as an operator would."""
        self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(HANG_GUARD)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        self.hang_up()
        assert code == 0, f"the server ended with {code}:\n{self._log_text()}"
        assert "Traceback" not in self._log_text(), self._log_text()

    def _log_text(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")
