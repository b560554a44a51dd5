"""Replies of Workq, taken apart as a client does it: bytes in, replies out. No I/O."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto


class Shape(Enum):
    """What follows the first line of a reply that is no error."""

    NOTHING = auto()
    BLOCK = auto()  # a line that ends with a size, and so many bytes
    KEYS = auto()  # a line that ends with a count, and so many keys with their values


@dataclass(slots=True)
class Reply:
    error: str = ""  # without its dash; "" if there is none
    words: list[str] = field(default_factory=list)  # of the second line
    data: bytes = b""
    keys: dict[str, bytes] = field(default_factory=dict)


class Incomplete(Exception):
    """The rest of the reply is still to come."""


class ReplyReader:
    def __init__(self) -> None:
        self._unread = b""
        self._at = 0

    def feed(self, data: bytes) -> None:
        self._unread += data

    def is_empty(self) -> bool:
        return not self._unread

    def next(self, shape: Shape) -> Reply | None:
        """The next reply, to a request that is answered in this shape; None if it is not whole."""
        self._at = 0
        try:
            reply = self._reply(shape)
        except Incomplete:
            return None
        self._unread = self._unread[self._at :]
        return reply

    def _reply(self, shape: Shape) -> Reply:
        status = self._line()
        if status.startswith("-"):
            return Reply(error=status[1:])
        if shape is Shape.NOTHING:
            assert status == "+OK", status
            return Reply()
        assert status == "+OK 1", status
        words = self._line().split(" ")
        size = int(words[-1])
        if shape is Shape.BLOCK:
            assert len(words) in (3, 4), words  # with the ttr of a lease, if the server shows it
            return Reply(words=words, data=self._block(size))
        keys: dict[str, bytes] = {}
        for _ in range(size):
            key = self._word()
            is_payload = key == "payload"
            keys[key] = self._block(int(keys["payload-size"])) if is_payload else self._value()
        return Reply(words=words, keys=keys)

    def _line(self) -> str:
        return self._value().decode()

    def _value(self) -> bytes:
        return self._until(b"\r\n")

    def _word(self) -> str:
        return self._until(b" ").decode()

    def _until(self, mark: bytes) -> bytes:
        end = self._unread.find(mark, self._at)
        if end < 0:
            raise Incomplete
        found = self._unread[self._at : end]
        self._at = end + len(mark)
        return found

    def _block(self, size: int) -> bytes:
        end = self._at + size
        if len(self._unread) < end + 2:
            raise Incomplete
        assert self._unread[end : end + 2] == b"\r\n", self._unread[self._at : end + 2]
        block = self._unread[self._at : end]
        self._at = end + 2
        return block
