"""A client of Pqueue that sends many commands at once and knows every reply before it comes."""

import socket
from collections.abc import Iterable
from typing import Final, Self

from benchmarks import rig

PATIENCE: Final = 60.0


class Client:
    def __init__(self, server: rig.RunningServer) -> None:
        self._socket = socket.create_connection((rig.HOST, server.port), timeout=PATIENCE)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *unused: object) -> None:
        self._socket.close()

    def exchange(self, commands: bytes, expected: bytes) -> None:
        self._socket.sendall(commands)
        at = 0
        while at < len(expected):
            data = self._socket.recv(1 << 16)
            if not data or not expected.startswith(data, at):
                wanted = expected[at : at + 60]
                raise rig.BenchmarkError(f"the server answered {data[:60]!r}, not {wanted!r}")
            at += len(data)

    def info(self) -> dict[str, int]:
        """Pqueue's own INFO: names and numbers by turns."""
        self._socket.sendall(command(b"INFO"))
        reply = self._socket.makefile("rb")
        numbers: dict[str, int] = {}
        head = reply.readline()
        if not head.startswith(b"*"):
            raise rig.BenchmarkError(f"INFO was answered with {head!r}")
        for _ in range(int(head[1:]) // 2):
            reply.readline()
            name = reply.readline().strip().decode()
            numbers[name] = int(reply.readline()[1:])
        return numbers


def command(*words: bytes) -> bytes:
    parts = [b"*%d\r\n" % len(words)]
    parts += [b"$%d\r\n%s\r\n" % (len(word), word) for word in words]
    return b"".join(parts)


def updates(items: Iterable[tuple[bytes, int]]) -> bytes:
    return b"".join(command(b"UPDATE", key, b"%d" % delta) for key, delta in items)


def integers(numbers: Iterable[int]) -> bytes:
    return b"".join(b":%d\r\n" % number for number in numbers)


def strings(keys: Iterable[bytes]) -> bytes:
    return b"".join(b"+%s\r\n" % key for key in keys)
