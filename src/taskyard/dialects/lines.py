"""Lines out of a stream of bytes, however it arrives. No I/O."""

from __future__ import annotations

from mypy_extensions import i64


class LineTooLong(Exception):
    """A line has grown beyond the limit without ending."""


class LineBuffer:
    """Feed bytes, take complete lines without their line feed."""

    def __init__(self, limit: i64) -> None:
        self._limit = limit
        self._lines: list[bytes] = []
        self._next: i64 = 0  # of these, the first that was not taken
        self._rest: list[bytes] = []  # pieces of a line whose end has not come
        self.rest_size: i64 = 0
        self.size: i64 = 0  # bytes of complete lines that were not taken yet

    def feed(self, data: bytes) -> None:
        """Raises LineTooLong after having kept the complete lines before the long one."""
        lines = data.split(b"\n")
        last = lines.pop()
        if lines:
            if self._rest:
                self._rest.append(lines[0])
                lines[0] = b"".join(self._rest)
                self._rest = []
                self.rest_size = 0
            self._add(lines)
        if last:
            self._rest.append(last)
            self.rest_size += len(last)
            if self.rest_size > self._limit:
                raise LineTooLong

    def _add(self, lines: list[bytes]) -> None:
        size: i64 = 0
        for number, line in enumerate(lines):
            if len(line) > self._limit:
                self._keep(lines[:number], size)
                raise LineTooLong
            size += len(line) + 1
        self._keep(lines, size)

    def _keep(self, lines: list[bytes], size: i64) -> None:
        if self._next < len(self._lines):
            lines = self._lines[self._next :] + lines
        self._lines = lines
        self._next = 0
        self.size += size

    def take(self) -> bytes | None:
        number = self._next
        if number >= len(self._lines):
            return None
        line = self._lines[number]
        self._next = number + 1
        self.size -= len(line) + 1
        return line

    def drop(self) -> None:
        """Forget everything that was not taken."""
        self._lines = []
        self._next = 0
        self._rest = []
        self.rest_size = 0
        self.size = 0
