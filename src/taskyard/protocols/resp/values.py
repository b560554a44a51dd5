"""What the arguments of RESP commands mean, and how replies are spelled."""

from __future__ import annotations

import re
from typing import Final

from mypy_extensions import i64

from taskyard.engine.model.effects import MAX_QUEUES_PER_COMMAND
from taskyard.protocols.digits import decimal

_DECIMAL_LIMIT: Final = 1_000_000_000
MILLISECOND: Final = 1000
SECOND: Final = 1_000_000
MAX_INT: Final = 0x7FFF_FFFF_FFFF_FFFF
MIN_INT: Final = -0x8000_0000_0000_0000
DATABASES: Final = 16
MAX_SHOWN_BYTES: Final = 128  # bytes of a word that is not known
MAX_WAIT: Final = 100 * 365 * 86_400 * SECOND

OK: Final = b"+OK\r\n"
EMPTY: Final = b"*0\r\n"
ZERO: Final = b":0\r\n"
ONE: Final = b":1\r\n"

NOT_AN_INTEGER: Final = "ERR value is not an integer or out of range"
SYNTAX: Final = "ERR syntax error"
WRONG_TYPE: Final = "WRONGTYPE Operation against a key holding the wrong kind of value"

_INTEGER: Final = re.compile(rb"0|-?[1-9][0-9]{0,18}")
_FLOAT: Final = re.compile(rb"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_INFINITE: Final = re.compile(rb"[+-]?inf(inity)?", re.IGNORECASE)


class CommandError(Exception):
    """A command that is answered with an error: its code, and a sentence."""


def parse_integer(text: bytes, otherwise: str = NOT_AN_INTEGER) -> int:
    """Parse a number of 64 bits, in the one form in which it is printed."""
    if _INTEGER.fullmatch(text):
        number = int(text)
        if MIN_INT <= number <= MAX_INT:
            return number
    raise CommandError(otherwise)


def check_count(queues: int) -> None:
    if queues > MAX_QUEUES_PER_COMMAND:
        raise CommandError(f"ERR too many queues: a command names at most {MAX_QUEUES_PER_COMMAND}")


def parse_timeout(text: bytes) -> int:
    """Seconds, with a fraction if need be, in microseconds."""
    if _FLOAT.fullmatch(text):
        seconds = float(text)
    elif _INFINITE.fullmatch(text):
        seconds = float("-inf" if text.startswith(b"-") else "inf")
    else:
        raise CommandError("ERR timeout is not a float or out of range")
    if seconds * 1000 > MAX_INT:
        raise CommandError("ERR timeout is out of range")
    if seconds < 0:
        raise CommandError("ERR timeout is negative")
    return int(min(seconds * SECOND + 0.999, MAX_WAIT))


def number_reply(number: int) -> bytes:
    if -1 < number < _DECIMAL_LIMIT:
        return b":" + decimal(number) + b"\r\n"
    return b":%d\r\n" % number


def bulk(data: bytes) -> bytes:
    return b"".join([b"$", decimal(len(data)), b"\r\n", data, b"\r\n"])


def simple_string(text: bytes) -> bytes:
    """A simple string; a bulk string if it cannot be one."""
    if text.find(b"\r") >= 0 or text.find(b"\n") >= 0:
        return bulk(text)
    return b"+" + text + b"\r\n"


def array(parts: list[bytes]) -> bytes:
    """An array of what is spelled already."""
    return b"".join([b"*", decimal(len(parts)), b"\r\n", *parts])


def printable(word: bytes, most: int = MAX_SHOWN_BYTES) -> str:
    """What a client has said, for an error: any bytes, but like Redis none behind a NUL."""
    return word[:most].partition(b"\0")[0].decode(errors="surrogateescape")


def error_line(text: str) -> bytes:
    line = text.strip("\r\n").replace("\r", " ").replace("\n", " ")
    return b"-%b\r\n" % line.encode(errors="surrogateescape")


def resolve_range(start: int, stop: int, size: int) -> tuple[i64, i64]:
    """Where a range of a list begins, and how long it is; negative numbers count from the end."""
    if start < 0:
        start = max(0, start + size)
    if stop < 0:
        stop += size
    stop = min(stop, size - 1)
    return (start, stop - start + 1) if start <= stop else (0, 0)
