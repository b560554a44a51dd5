"""Lines out of a stream of bytes, however it arrives. No I/O."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

_LINE_FEED: Final = 10


class LineTooLong(Exception):
    """A line has grown beyond the limit without ending."""


class LineBuffer:
    """Feed bytes, take complete lines without their line feed."""

    def __init__(self, limit: i64) -> None:
        self._limit = limit
        self._single_line: bytes | None = None  # the only line, if there is no other
        self._lines: list[bytes] = []
        self._next: i64 = 0  # of these, the first that was not taken
        self._partial: list[bytes] = []  # pieces of a line whose end has not arrived
        self.partial_bytes: i64 = 0
        self.size: i64 = 0  # bytes of complete lines that were not taken yet

    def feed(self, data: bytes) -> None:
        """Raises LineTooLong after having kept the complete lines before the long one."""
        if not self.partial_bytes and not self.size and self._accept_single_line(data):
            return
        lines = data.split(b"\n")
        last = lines.pop()
        if lines:
            if self._partial:
                self._partial.append(lines[0])
                lines[0] = b"".join(self._partial)
                self._partial = []
                self.partial_bytes = 0
            self._check_and_append(lines)
        if last:
            self._partial.append(last)
            self.partial_bytes += len(last)
            if self.partial_bytes > self._limit:
                raise LineTooLong

    def _accept_single_line(self, data: bytes) -> bool:
        """Accept input of one whole line, as from most clients that wait for each reply: there is
        nothing to split.
        """
        end: i64 = len(data) - 1
        if not 0 <= end <= self._limit or data[end] != _LINE_FEED:
            return False
        line = data[:end]
        if _LINE_FEED in line:  # `find` would be called as Python calls a method
            return False
        self._single_line = line
        self.size = end + 1
        return True

    def _check_and_append(self, lines: list[bytes]) -> None:
        size: i64 = 0
        for number, line in enumerate(lines):
            if len(line) > self._limit:
                self._append_lines(lines[:number], size)
                raise LineTooLong
            size += len(line) + 1
        self._append_lines(lines, size)

    def _append_lines(self, lines: list[bytes], size: i64) -> None:
        if self._single_line is not None:
            lines = [self._single_line, *lines]
            self._single_line = None
        if self._next < len(self._lines):
            lines = self._lines[self._next :] + lines
        self._lines = lines
        self._next = 0
        self.size += size

    def next_line(self) -> bytes | None:
        only = self._single_line
        if only is not None:
            self._single_line = None
            self.size = 0
            return only
        if not self.size:
            return None
        number = self._next
        if number >= len(self._lines):
            return None
        line = self._lines[number]
        self._next = number + 1
        self.size -= len(line) + 1
        return line

    def discard(self) -> None:
        """Forget everything that was not taken."""
        self._single_line = None
        self._lines = []
        self._next = 0
        self._partial = []
        self.partial_bytes = 0
        self.size = 0
