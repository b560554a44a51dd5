"""What the limits of a server process can be seen by from outside."""

from __future__ import annotations

import os
import re
import resource
import socket
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path

from support.process import ServerProcess
from support.sockets import HANG_GUARD


def metric(server: ServerProcess, name: str) -> float:
    """A sample of /metrics, by its name with its labels."""
    with closing(HTTPConnection(*server.address("http"), timeout=HANG_GUARD)) as connection:
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
    found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
    assert found is not None, f"{name} is not among the metrics"
    return float(found[1])


def memory(server: ServerProcess) -> int:
    """Bytes of memory that the process has now."""
    status = Path(f"/proc/{server.pid}/status").read_text()
    found = re.search(r"^VmRSS:\s+(\d+) kB$", status, re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024


def open_files(server: ServerProcess) -> int:
    return len(os.listdir(f"/proc/{server.pid}/fd"))


def allow_files(soft: int, hard: int) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


_opened: list[socket.socket] = []


def hang_up() -> None:
    """Close what `connect` has opened."""
    while _opened:
        _opened.pop().close()


def connect(server: ServerProcess, dialect: str, receive: int = 0) -> socket.socket:
    """A plain socket; `receive`: with a buffer for so many bytes only."""
    peer = socket.socket()
    _opened.append(peer)
    if receive:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive)
    peer.settimeout(HANG_GUARD)
    peer.connect(server.address(dialect))
    return peer


def read_to_end(peer: socket.socket) -> bytes:
    """Until the server closes, or cuts it off."""
    parts = []
    try:
        while data := peer.recv(1 << 16):
            parts.append(data)
    except ConnectionError:
        pass
    return b"".join(parts)
