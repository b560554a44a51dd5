"""What several protocols spell alike: lines, numbers, JSON kept as text, times, ids of jobs. No
I/O.
"""

from __future__ import annotations

import base64
import re
from binascii import hexlify, unhexlify
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec
from librt.strings import BytesWriter
from mypy_extensions import i64

_LINE_FEED: Final = 10

_THOUSAND: Final = 1000
_MILLION: Final = 1_000_000
_BILLION: Final = 1_000_000_000
_ZERO: Final = 48
_NINE: Final = 57
_MAX_DIGITS: Final = 18  # digits of any number that fits 64 bits whatever they are

_HEADS: Final[list[bytes]] = [b"%d" % number for number in range(_THOUSAND)]
_TAILS: Final[list[bytes]] = [b"%03d" % number for number in range(_THOUSAND)]

_STRING_OR_SPACE: Final = re.compile(rb'("(?:[^"\\]|\\.)*")|[ \t\r\n]+', re.DOTALL)
_TAB: Final = 9
_CR: Final = 13
_SPACE: Final = 32
_QUOTE: Final = 34
_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(msgspec.Raw).decode

_RFC_3339: Final = re.compile(
    r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]([01]\d|2[0-3]):[0-5]\d)", re.ASCII
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_YEAR_10000: Final = 253_402_300_800_000_000
_MICROSECOND: Final = timedelta(microseconds=1)

_DASH: Final = 45


# Lines


class LineTooLong(Exception):
    """A line has grown beyond the limit without ending."""


class LineBuffer:
    """Feed bytes, however they arrive; take complete lines without their line feed."""

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


# Numbers in decimal: to bytes and back, without a text in between


def decimal(number: i64) -> bytes:
    """The digits of a number; three at a time, since `str` makes a text and formats it first."""
    if number < 0 or number >= _BILLION:
        return str(number).encode()
    if number < _THOUSAND:
        return _HEADS[number]
    if number < _MILLION:
        return _HEADS[number // _THOUSAND] + _TAILS[number % _THOUSAND]
    thousands = number // _THOUSAND
    head = _HEADS[thousands // _THOUSAND]
    return b"".join([head, _TAILS[thousands % _THOUSAND], _TAILS[number % _THOUSAND]])


def put_decimal(out: BytesWriter, number: i64) -> None:
    """Write the digits of a number."""
    if number < 0 or number >= _BILLION:
        out.write(decimal(number))
        return
    if number < _THOUSAND:
        out.write(_HEADS[number])
        return
    thousands = number // _THOUSAND
    if thousands < _THOUSAND:
        out.write(_HEADS[thousands])
    else:
        out.write(_HEADS[thousands // _THOUSAND])
        out.write(_TAILS[thousands % _THOUSAND])
    out.write(_TAILS[number % _THOUSAND])


def digit_count(number: i64) -> i64:
    """How many digits a number has that is not negative."""
    count: i64 = 1
    while number >= _THOUSAND:
        number //= _THOUSAND
        count += 3
    if number >= 100:
        return count + 2
    return count + 1 if number >= 10 else count


def number_at(text: bytes, start: i64) -> tuple[i64, i64]:
    """Return the number whose digits begin there, and where they end; -1 if there are none, many,
    or a 0 too much.
    """
    at = start
    end: i64 = len(text)
    number: i64 = 0
    while at < end:
        digit: i64 = text[at]
        if digit < _ZERO or digit > _NINE:
            break
        if at - start == _MAX_DIGITS:
            return -1, at
        number = number * 10 + (digit - _ZERO)
        at += 1
    if at == start or (at - start > 1 and text[start] == _ZERO):
        return -1, at
    return number, at


# JSON kept as text: white space removed, and payloads of other protocols made JSON


def compact(text: bytes) -> bytes:
    """Valid JSON without the white space between its tokens; spelling and order stay."""
    if text and text[0] == _QUOTE and text[-1] == _QUOTE:
        return text  # one string, whose spaces are its own
    # By their numbers: bytes would be tried as numbers first, which costs an exception each.
    if _SPACE in text or _LINE_FEED in text or _TAB in text or _CR in text:
        return _STRING_OR_SPACE.sub(rb"\1", text)
    return text


def as_json(payload: bytes) -> bytes:
    """Any payload as one JSON value: JSON as it is, text as a string, else base64 in an object."""
    if not payload:
        return b'""'
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return _encode({"base64": base64.b64encode(payload).decode()})
    try:
        return compact(bytes(_decode(payload)))
    except (msgspec.MsgspecError, RecursionError):
        return _encode(text)


# Times as clients write them: RFC 3339, from and to microseconds since the epoch


def parse_time(moment: str) -> int:
    """Parse a time with a zone; a time before the epoch is the epoch."""
    if not _RFC_3339.fullmatch(moment):
        raise ValueError(f"not a time with a zone: {moment}")
    return max(0, (datetime.fromisoformat(moment.upper()) - _EPOCH) // _MICROSECOND)


def format_moment(us: int) -> str | None:
    """In UTC, down to the microsecond; None: none, or beyond what a year of four digits can say."""
    if not 0 < us < _YEAR_10000:
        return None
    moment = _EPOCH + timedelta(microseconds=us)
    return moment.isoformat(timespec="microseconds")[:-6] + "Z"  # without its +00:00


def format_time(us: int) -> str:
    """In UTC, down to the whole second."""
    return (_EPOCH + timedelta(seconds=us // 1_000_000)).strftime("%Y-%m-%dT%H:%M:%SZ")


# The public id of a job as text: a UUID in its canonical form


def parse_uid(text: bytes) -> bytes | None:
    """The 16 bytes of a UUID, in either case; None if it is none."""
    if (
        len(text) != 36
        or text[8] != _DASH
        or text[13] != _DASH
        or text[18] != _DASH
        or text[23] != _DASH
    ):
        return None
    digits = text.replace(b"-", b"")
    if len(digits) != 32:
        return None
    try:
        return unhexlify(digits)
    except ValueError:
        return None


def show_uid(uid: bytes) -> bytes:
    text = hexlify(uid)
    return b"-".join([text[:8], text[8:12], text[12:16], text[16:20], text[20:]])
