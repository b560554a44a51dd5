"""RESP as storms and tests of jobs speak it: commands as bytes, replies taken apart. No I/O."""

from __future__ import annotations

from typing import Any

from support.wire import Peer

Word = bytes | str | int


class Failure(str):
    """The text of an error reply."""

    __slots__ = ()


class Incomplete(Exception):
    """The rest of the reply is still to come."""


def command(*words: Word) -> bytes:
    """As client libraries send it."""
    parts = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%b\r\n" % (len(p), p) for p in parts)


class ReplyReader:
    """Bytes in, replies out."""

    def __init__(self) -> None:
        self._unread = b""
        self._at = 0

    def feed(self, data: bytes) -> None:
        self._unread += data

    def is_empty(self) -> bool:
        return not self._unread

    def next(self) -> Any:
        """The next reply; raises Incomplete if it is not whole."""
        self._at = 0
        reply = self._reply()
        self._unread = self._unread[self._at :]
        return reply

    def _reply(self) -> Any:
        line = self._line()
        kind, rest = line[:1], line[1:]
        if kind == b"+":
            return rest.decode()
        if kind == b"-":
            return Failure(rest.decode())
        if kind == b":":
            return int(rest)
        if kind == b"$":
            return self._block(int(rest))
        assert kind == b"*", line
        return None if rest == b"-1" else [self._reply() for _ in range(int(rest))]

    def _line(self) -> bytes:
        end = self._unread.find(b"\r\n", self._at)
        if end < 0:
            raise Incomplete
        line = self._unread[self._at : end]
        self._at = end + 2
        return line

    def _block(self, size: int) -> bytes | None:
        if size < 0:
            return None
        end = self._at + size
        if len(self._unread) < end + 2:
            raise Incomplete
        assert self._unread[end : end + 2] == b"\r\n"
        block = self._unread[self._at : end]
        self._at = end + 2
        return block


# One client of a test


def read(peer: Peer) -> Any:
    """The next reply of a peer, which must be there or come."""
    line = peer.read_line()
    assert line.endswith(b"\r\n"), line
    kind, rest = line[:1], line[1:-2]
    if kind == b"$" and rest != b"-1":
        size, data = int(rest) + 2, b""
        while len(data) < size:
            data += peer.read_line()
        assert len(data) == size, data
        return data[:-2]
    if kind == b"*" and rest != b"-1":
        return [read(peer) for _ in range(int(rest))]
    return replies(line)[0]


def replies(data: bytes) -> list[Any]:
    """All of these replies, of which each must be whole."""
    reader = ReplyReader()
    reader.feed(data)
    found = []
    while not reader.is_empty():
        found.append(reader.next())
    return found


def ask(peer: Peer, *words: Word) -> Any:
    peer.send(command(*words))
    return read(peer)


def refused(peer: Peer, *words: Word) -> str:
    """The text of the error that the command is answered with."""
    reply = ask(peer, *words)
    assert isinstance(reply, Failure), reply
    return str(reply)
