"""Workq commands out of a stream of bytes, however it arrives. No I/O.

A command is a line that ends with CR LF; behind some of them follow as many bytes as the line says,
and CR LF again. If a line is wrong but says how much follows, that is read along with it, so that
the next command is read from its beginning. That something is too large is known as soon as the
line is there: the command is returned then, and what follows is dropped later.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

MAX_BLOCK: Final = 1_048_576  # bytes of a payload or result
LINE_LIMIT: Final = 65_536
UNAUTHENTICATED_LIMIT: Final = 16_384  # of a line or a block of a client that has to log in first
SKIP_LIMIT: Final = 64 * 1_048_576  # of a block that is too large, and is left out

# What `next` has found.
INCOMPLETE: Final = 0  # more must arrive first
COMMAND: Final = 1  # in `fields` and `block`
BAD_ENDING: Final = 2  # a line without its CR
TOO_LONG: Final = 3  # a line that does not end; nothing can be read after it
TOO_LARGE: Final = 4  # the same for what follows a line; it is in `fields`

# Commands that something follows, and which of their fields says how many bytes.
_SIZED: Final = {b"add": 5, b"schedule": 6, b"run": 5, b"complete": 2, b"fail": 2}

_EQUALS: Final = 61
_CR: Final = 13
_LF: Final = 10


class WorkqFrameParser:
    def __init__(self, limit: i64 = MAX_BLOCK) -> None:
        self.fields: list[bytes] = []
        self.block: bytes | None = None  # what follows the line; None: nothing, or it was not right
        self.block_skipped = False  # that is too large, and will be dropped as it arrives
        self._limit: i64 = min(limit, i64(MAX_BLOCK))
        self._max_line: i64 = LINE_LIMIT
        self._max_block: i64 = self._limit
        self._buffer = b""
        self._at: i64 = 0  # in the buffer
        self._pieces: list[bytes] = []  # follow the buffer
        self._size: i64 = 0  # bytes of both that were not taken
        self._needed_bytes: i64 = 1  # so many must be there before anything can be found
        self._block_size: i64 = -1  # bytes of the block to `fields` that are to be kept
        self._skip: i64 = 0  # bytes that are to be dropped
        self._skipping = False  # them, or the CR LF behind them
        self._resyncing = False  # input is dropped up to the next CR LF

    def limit_unauthenticated_input(self, unauthenticated: bool) -> None:
        """Apply, or lift, the limits of clients that have to log in first."""
        self._max_line = UNAUTHENTICATED_LIMIT if unauthenticated else LINE_LIMIT
        self._max_block = (
            min(i64(UNAUTHENTICATED_LIMIT), self._limit) if unauthenticated else self._limit
        )

    def feed(self, data: bytes) -> None:
        self._size += len(data)
        if self._at == len(self._buffer) and not self._pieces:
            self._buffer = data
            self._at = 0
        else:
            self._pieces.append(data)

    def pending_bytes(self) -> i64:
        """Bytes that may hold a command; an incomplete command does not count."""
        return self._size if self._size >= self._needed_bytes else 0

    def buffered_bytes(self) -> i64:
        return self._size

    def partial_command_bytes(self) -> i64:
        """Bytes of an incomplete command; 0: there is none."""
        if self._size >= self._needed_bytes:
            return 0  # it is not parsed yet
        return self._size + (1 if self._block_size >= 0 or self._skipping or self._resyncing else 0)

    def needs_block(self) -> bool:
        """Whether a command, in `fields`, waits for the rest of the block behind its line."""
        return self._block_size >= 0

    def discard(self) -> None:
        """Forget everything that was not taken."""
        self._buffer = b""
        self._at = 0
        self._pieces = []
        self._size = 0
        self._block_size = -1

    def parse_next(self) -> i64:
        if self._skipping and not self._skip_block_end():
            return INCOMPLETE
        if self._resyncing and not self._skip_to_line_end():
            return INCOMPLETE
        if self._block_size >= 0:
            return self._parse_block()
        if self._size < self._needed_bytes:
            return INCOMPLETE
        end = self._buffer.find(b"\n", self._at)
        if end < 0:
            self._merge_pieces()
            end = self._buffer.find(b"\n", self._at)
            if end < 0:
                self._needed_bytes = self._size + 1
                return TOO_LONG if self._size > self._max_line else INCOMPLETE
        return self._parse_line(end)

    def _parse_line(self, end: i64) -> i64:
        start = self._at
        self._advance(end + 1 - start)
        self._needed_bytes = 1
        if end - start > self._max_line:
            return TOO_LONG
        if end == start or self._buffer[end - 1] != _CR:
            return BAD_ENDING
        line = self._buffer[start : end - 1]
        fields = line.split(b" ")
        if line.find(b"  ") >= 0 or not fields[0] or not fields[-1]:
            fields = [field for field in fields if field]
        self.fields = fields
        self.block = None
        self.block_skipped = False
        where: i64 = _SIZED.get(fields[0], 0) if fields else 0
        if where and _EQUALS in line:
            fields = _move_flags_last(fields)
            self.fields = fields
        if where and len(fields) > where and fields[where].isdigit():
            # An int of any size, until it is known to be small.
            announced: int = int(fields[where]) if is_number(fields[where]) else SKIP_LIMIT + 1
            if announced > SKIP_LIMIT:
                return TOO_LARGE
            size: i64 = announced
            if size > self._max_block:
                self.block_skipped = True
                self._skip = size
                self._skipping = True
                return COMMAND
            self._block_size = size
            return self._parse_block()
        return COMMAND

    def _parse_block(self) -> i64:
        """Take what follows the line, when all of it is there."""
        kept = self._block_size
        if self._size < kept + 2:
            self._needed_bytes = kept + 2
            return INCOMPLETE
        if len(self._buffer) - self._at < kept + 2:
            self._merge_pieces()
        at = self._at
        buffer = self._buffer
        if buffer[at + kept] == _CR and buffer[at + kept + 1] == _LF:
            self.block = buffer[at : at + kept]
            self._advance(kept + 2)
        else:
            self._advance(kept)
            self._resyncing = True
        self._block_size = -1
        self._needed_bytes = 1
        return COMMAND

    def _skip_block_end(self) -> bool:
        """Drop what is too large, and the CR LF behind it; True when that is done."""
        if self._skip and not self._drop_skipped():
            return False
        if self._size < 2:
            self._needed_bytes = 2
            return False
        if len(self._buffer) - self._at < 2:
            self._merge_pieces()
        if self._buffer[self._at] == _CR and self._buffer[self._at + 1] == _LF:
            self._advance(2)
        else:
            self._resyncing = True
        self._skipping = False
        self._needed_bytes = 1
        return True

    def _drop_skipped(self) -> bool:
        """Drop what is too large as it arrives; True when all of it is dropped."""
        while self._skip and self._size:
            self._load_next_piece()
            count = min(self._skip, len(self._buffer) - self._at)
            self._advance(count)
            self._skip -= count
        self._needed_bytes = 1
        return not self._skip

    def _skip_to_line_end(self) -> bool:
        """Drop input up to the next CR LF; True when that was found."""
        self._merge_pieces()
        end = self._buffer.find(b"\r\n", self._at)
        if end >= 0:
            self._advance(end + 2 - self._at)
            self._resyncing = False
            return True
        kept: i64 = 1 if self._buffer.endswith(b"\r") else 0
        self._advance(self._size - kept)
        self._needed_bytes = kept + 1
        return False

    def _advance(self, count: i64) -> None:
        self._at += count
        self._size -= count

    def _load_next_piece(self) -> None:
        if self._at == len(self._buffer) and self._pieces:
            self._buffer = self._pieces.pop(0)
            self._at = 0

    def _merge_pieces(self) -> None:
        """Have everything in the buffer."""
        if self._pieces:
            self._pieces.insert(0, self._buffer[self._at :])
            self._buffer = b"".join(self._pieces)
            self._at = 0
            self._pieces = []


def _move_flags_last(fields: list[bytes]) -> list[bytes]:
    """The fields with the flags behind the others, wherever they stand on the line."""
    flags = [field for field in fields if field.startswith(b"-") and b"=" in field]
    if not flags:
        return fields
    return [field for field in fields if not (field.startswith(b"-") and b"=" in field)] + flags


def is_number(text: bytes) -> bool:
    """Digits, and not more of them than the largest number of the protocol has."""
    return text.isdigit() and len(text) <= 20
