"""The wire format of RESP: commands out of a stream of bytes, arguments, replies, errors. No I/O.

A command is an array of bulk strings, or a line of words as somebody types it (inline).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from librt.strings import read_i64_le
from mypy_extensions import i64

from taskyard.engine.model.events import (
    MAX_QUEUES_PER_COMMAND,
    Draining,
    DuplicateJob,
    DuplicateKey,
    InvalidOption,
    NoSpace,
    NotLeaseholder,
    QueueFull,
    ReadOnly,
    StaleBatch,
    TaskyardError,
    TooManyWaiting,
    TransactionStepRefused,
    UidTaken,
)
from taskyard.protocols.text import decimal
from taskyard.shared.misspelt import suggestion
from taskyard.shared.text import NAME_RULE, valid_name

MAX_ARGS: Final = 1_048_576
MAX_BULK: Final = 512 * 1_048_576
MAX_COMMAND: Final = 64 * 1_048_576  # bytes of all arguments that are kept
MAX_LINE: Final = 65_536
ARG_OVERHEAD: Final = 48  # bytes that an argument takes in memory beside its own
UNAUTHENTICATED_ARGS: Final = 10  # of a command of a client that has to log in first
UNAUTHENTICATED_BULK: Final = 16_384  # bytes of an argument, or of a line, of such a client
_MAX_DIGITS: Final = 18

# What `RespFrameParser.next` has found.
INCOMPLETE: Final = 0  # more must arrive first
COMMAND: Final = 1  # in `args`
BROKEN: Final = 2  # nothing can be read after this; why is in `error`

_CR: Final = 13
_LF: Final = 10
_STAR: Final = 42
_DOLLAR: Final = 36
_MINUS: Final = 45
_ZERO: Final = 48
_NINE: Final = 57
_WORD_BYTES: Final = 8  # bytes that can be compared at once

_ESCAPES: Final = {
    ord("n"): b"\n",
    ord("r"): b"\r",
    ord("t"): b"\t",
    ord("b"): b"\b",
    ord("a"): b"\a",
}
_SPACES: Final = b" \t\r\n\v\f\0"
_HEX: Final = b"0123456789abcdefABCDEF"

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

BAD_QUEUE: Final = f"ERR invalid queue name: it {NAME_RULE}"

_CACHE_SIZE: Final = 4096

MAX_SPAN_MS: Final = 100 * 365 * 86_400_000


# Commands out of a stream of bytes


class RespFrameParser:
    """Feed bytes, however they arrive; take commands.

    What has been read of an incomplete command is kept, so that no byte is read twice.
    """

    def __init__(self, bulk_limit: i64) -> None:
        self.args: list[bytes] = []
        self.oversize = False  # an argument was beyond the limit, and is left out
        self.error = ""
        self._bulk_limit = bulk_limit
        self._max_args: i64 = MAX_ARGS
        self._max_bulk: i64 = MAX_BULK
        self._max_line: i64 = MAX_LINE
        self._buffer = b""
        self._at: i64 = 0  # in the buffer
        self._pieces: list[bytes] = []  # follow the buffer
        self._size: i64 = 0  # bytes of both that were not taken
        self._needed_bytes: i64 = 1  # so many must be there before anything more can be found
        self._missing_args: i64 = 0  # arguments that are still to arrive
        self._bulk_size: i64 = -1  # bytes of the argument that was announced
        self._skip: i64 = 0  # bytes of it that are to be dropped
        self._args_bytes: i64 = 0  # bytes of the arguments so far
        self._reported_args: i64 = 0  # of them, those that take_unreported_overhead has returned
        # bytes of memory that the arguments of the last command take
        self.args_memory_bytes: i64 = 0
        self._number: i64 = 0  # what _read_number has found
        self._searched_pieces: i64 = 0  # the buffer and pieces that have no end of a line
        # How the last argument was announced, as a number, if that was not long: values of one
        # command are often of one size.
        self._bulk_header: i64 = -1
        self._bulk_header_mask: i64 = 0
        self._bulk_header_size: i64 = 0
        self._bulk_header_value: i64 = 0

    def limit_unauthenticated_input(self, unauthenticated: bool) -> None:
        """Apply, or lift, the limits of clients that have to log in first."""
        self._max_args = UNAUTHENTICATED_ARGS if unauthenticated else MAX_ARGS
        self._max_bulk = UNAUTHENTICATED_BULK if unauthenticated else MAX_BULK
        self._max_line = UNAUTHENTICATED_BULK if unauthenticated else MAX_LINE
        self._drop_bulk_header()

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
        if not self._missing_args:
            return self._size
        kept = self._args_bytes - max(self._bulk_size, 0)  # that one is still in the buffer
        return self._size + kept + len(self.args) * ARG_OVERHEAD

    def take_unreported_overhead(self) -> i64:
        """Return the bytes that the arguments of an incomplete command take in memory beside their
        own, since the last call.
        """
        if not self._missing_args:
            return 0
        count: i64 = len(self.args)
        reported = self._reported_args
        self._reported_args = count
        return (count - reported) * ARG_OVERHEAD

    def release_args(self) -> None:
        """The last command needs its arguments no more."""
        if not self._missing_args:
            self.args = []
            self.args_memory_bytes = 0

    def partial_command_bytes(self) -> i64:
        """Bytes of an incomplete command; 0: there is none."""
        if self._size >= self._needed_bytes:
            return 0  # it is not parsed yet
        return self.buffered_bytes() + (1 if self._missing_args else 0)

    def discard(self) -> None:
        """Forget everything that was not taken."""
        self._buffer = b""
        self._at = 0
        self._pieces = []
        self._size = 0

    def parse_next(self) -> i64:
        while self._size >= self._needed_bytes:
            if not self._missing_args:
                self._load_next_piece()
                if self._buffer[self._at] != _STAR:
                    found = self._parse_inline()
                    if found >= 0:
                        return found
                    continue
                if not self._parse_array_header():
                    return BROKEN if self.error else INCOMPLETE
                if not self._missing_args:
                    continue  # an empty array is no command, and has no answer
            if not self._parse_arguments():
                return BROKEN if self.error else INCOMPLETE
            return COMMAND
        return INCOMPLETE

    def _parse_array_header(self) -> bool:
        """Parse how many arguments there are."""
        if not self._read_number("invalid multibulk length"):
            return False
        count = self._number
        if count > self._max_args:
            what = "invalid" if count > MAX_ARGS else "unauthenticated"
            self.error = f"{what} multibulk length"
            return False
        self.args = []
        self.oversize = False
        self._args_bytes = 0
        self._reported_args = 0
        self._missing_args = max(0, count)
        self._needed_bytes = 1
        return True

    def _parse_arguments(self) -> bool:
        """Read arguments; True when the last one is there."""
        args = self.args
        while self._missing_args:
            if (
                self._bulk_size < 0
                and not self._reuse_bulk_header()
                and not self._parse_bulk_header()
            ):
                return False
            if self._skip and not self._drop_skipped():
                return False
            bulk = self._bulk_size
            if self._size < bulk + 2:
                self._needed_bytes = bulk + 2
                return False
            at = self._at
            if len(self._buffer) - at < bulk + 2:
                self._merge_pieces()
                at = self._at
            buffer = self._buffer
            if buffer[at + bulk] != _CR or buffer[at + bulk + 1] != _LF:
                self.error = "expected CRLF after a bulk string"
                return False
            args.append(buffer[at : at + bulk])
            self._at = at + bulk + 2
            self._size -= bulk + 2
            self._bulk_size = -1
            self._missing_args -= 1
        self._needed_bytes = 1
        self.args_memory_bytes = self._args_bytes + len(args) * ARG_OVERHEAD
        return True

    def _reuse_bulk_header(self) -> bool:
        """Whether the next argument is announced just as the last one."""
        at = self._at
        buffer = self._buffer
        if (
            len(buffer) - at < _WORD_BYTES
            or read_i64_le(buffer, at) & self._bulk_header_mask != self._bulk_header
        ):
            return False
        kept = self._args_bytes + self._bulk_header_value
        if kept > MAX_COMMAND:
            return False
        self._args_bytes = kept
        self._bulk_size = self._bulk_header_value
        self._at = at + self._bulk_header_size
        self._size -= self._bulk_header_size
        return True

    def _cache_bulk_header(self, size: i64, bulk: i64) -> None:
        """So many bytes have announced so many, and have just been read."""
        start = self._at - size
        if size >= _WORD_BYTES or len(self._buffer) - start < _WORD_BYTES:
            self._drop_bulk_header()
            return
        mask: i64 = 0
        for _ in range(size):  # 1 << n would be done with 32 bits, compiled
            mask = (mask << 8) | 0xFF
        self._bulk_header_mask = mask
        self._bulk_header = read_i64_le(self._buffer, start) & mask
        self._bulk_header_size = size
        self._bulk_header_value = bulk

    def _drop_bulk_header(self) -> None:
        self._bulk_header = -1
        self._bulk_header_mask = 0

    def _parse_bulk_header(self) -> bool:
        """Read how long the next argument is."""
        if not self._size:
            self._needed_bytes = 1
            return False
        self._load_next_piece()
        first_byte = self._buffer[self._at]
        if first_byte != _DOLLAR:
            shown = bytes([first_byte]).decode(errors="surrogateescape")
            self.error = f"expected '$', got '{shown}'"
            return False
        before = self._size
        if not self._read_number("invalid bulk length"):
            return False
        size = self._number
        if not 0 <= size <= self._max_bulk:
            what = "unauthenticated" if 0 <= size <= MAX_BULK else "invalid"
            self.error = f"{what} bulk length"
            return False
        if size > self._bulk_limit:
            self.oversize = True
            self._skip = size
            size = 0
            self._drop_bulk_header()
        else:
            self._cache_bulk_header(before - self._size, size)
        self._args_bytes += size
        if self._args_bytes > MAX_COMMAND:
            self.error = "too big command"
            return False
        self._bulk_size = size
        return True

    def _read_number(self, wrong: str) -> bool:
        """Read the number behind the next byte, and CR LF; False if that cannot be done yet."""
        at = self._at + 1
        buffer = self._buffer
        end: i64 = len(buffer)
        if end - at < _MAX_DIGITS + 3 and self._pieces:
            self._merge_pieces()
            buffer = self._buffer
            at = self._at + 1
            end = len(buffer)
        start = at
        negative = False
        if at < end and buffer[at] == _MINUS:
            negative = True
            at += 1
        number: i64 = 0
        while at < end and _ZERO <= buffer[at] <= _NINE:
            number = number * 10 + (buffer[at] - _ZERO)
            at += 1
            if at - start == _MAX_DIGITS:
                self.error = wrong
                return False
        if at + 1 >= end and (at == end or buffer[at] == _CR):
            self._needed_bytes = self._size + 1
            return False
        if buffer[at] != _CR or buffer[at + 1] != _LF or at == start + (1 if negative else 0):
            self.error = wrong
            return False
        self._number = -number if negative else number
        self._size -= at + 2 - self._at
        self._at = at + 2
        return True

    def _parse_inline(self) -> i64:
        """Take a line; -1 if it was empty."""
        end = self._find_line_end()
        if end < 0 and self._size <= self._max_line:
            self._needed_bytes = self._size + 1
            return INCOMPLETE
        if end < 0 or end - self._at > self._max_line:
            self.error = "too big inline request"
            return BROKEN
        line = self._buffer[self._at : end]
        self._size -= end + 1 - self._at
        self._at = end + 1
        self._needed_bytes = 1
        if line.endswith(b"\r"):
            line = line[:-1]
        self.oversize = False
        if b'"' in line or b"'" in line:
            words = split_quoted(line)
            if words is None:
                self.error = "unbalanced quotes in request"
                return BROKEN
        else:
            words = line.split()
        self.args = words
        self.args_memory_bytes = len(line) + len(words) * ARG_OVERHEAD
        return COMMAND if words else -1

    def _find_line_end(self) -> i64:
        """Return where in the buffer the line ends; -1 if its end has not arrived."""
        if not self._searched_pieces:
            end = self._buffer.find(b"\n", self._at)
            if end >= 0:
                return end
            self._searched_pieces = 1
        while self._searched_pieces <= len(self._pieces):
            if b"\n" in self._pieces[self._searched_pieces - 1]:
                self._merge_pieces()
                self._searched_pieces = 0
                return self._buffer.find(b"\n", self._at)
            self._searched_pieces += 1
        return -1

    def _drop_skipped(self) -> bool:
        """Drop what is too large as it arrives; True when all of it is dropped."""
        while self._skip and self._size:
            self._load_next_piece()
            count = min(self._skip, len(self._buffer) - self._at)
            self._at += count
            self._size -= count
            self._skip -= count
        self._needed_bytes = 1
        return not self._skip

    def _load_next_piece(self) -> None:
        if self._at == len(self._buffer) and self._pieces:
            self._buffer = b"".join(self._pieces)  # all: to take them one by one is quadratic
            self._at = 0
            self._pieces = []

    def _merge_pieces(self) -> None:
        """Have everything in the buffer."""
        if self._pieces:
            self._pieces.insert(0, self._buffer[self._at :])
            self._buffer = b"".join(self._pieces)
            self._at = 0
            self._pieces = []


def split_quoted(line: bytes) -> list[bytes] | None:
    """The words of a line, of which some are in quotes; None if a quote has no end."""
    words: list[bytes] = []
    at = 0
    while True:
        while at < len(line) and line[at] in _SPACES:
            at += 1
        if at == len(line):
            return words
        word = bytearray()
        while at < len(line) and line[at] not in _SPACES:
            quote = line[at]
            at += 1
            if quote not in b"\"'":
                word.append(quote)
                continue
            end = _read_quoted(line, at, quote, word)
            if end < 0 or (end < len(line) and line[end] not in _SPACES):
                return None  # a closing quote must be followed by a space
            at = end
        words.append(bytes(word))


def _read_quoted(line: bytes, at: int, quote: int, word: bytearray) -> int:
    """Add what is in quotes to the word; returns where the next begins, -1 if no end is there."""
    doubled = quote == ord('"')
    while at < len(line):
        byte = line[at]
        if byte == quote:
            return at + 1
        if byte != ord("\\") or at + 1 == len(line):
            word.append(byte)
            at += 1
        elif doubled and line[at + 1] == ord("x") and _is_hex(line[at + 2 : at + 4]):
            word.append(int(line[at + 2 : at + 4], 16))
            at += 4
        elif doubled:
            word += _ESCAPES.get(line[at + 1], line[at + 1 : at + 2])
            at += 2
        elif line[at + 1] == quote:
            word.append(quote)
            at += 2
        else:
            word.append(byte)
            at += 1
    return -1


def _is_hex(digits: bytes) -> bool:
    return len(digits) == 2 and digits[0] in _HEX and digits[1] in _HEX


# Arguments and replies


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


# Errors, in the words that clients of Redis know


def wrong_arg_count(name: bytes) -> str:
    return f"ERR wrong number of arguments for '{name.decode().lower()}' command"


def error_text(error: TaskyardError) -> str:
    if isinstance(error, InvalidOption):
        if error.option == "queue":
            return BAD_QUEUE
        return f"ERR {error.option}: {error.reason}"
    if isinstance(error, TransactionStepRefused):  # of a push of several values
        return error_text(error.cause)
    if isinstance(error, (NoSpace, QueueFull, TooManyWaiting)):
        return f"OOM {error}"
    if isinstance(error, Draining):
        return f"DRAINING {error}"
    if isinstance(error, ReadOnly):
        return f"READONLY {error}"
    if isinstance(error, DuplicateKey):
        return f"DUPLICATE {error.job_id} is a job with this key, and waits"
    if isinstance(error, DuplicateJob):
        return f"DUPLICATE {error.job_id} is a job with this uid"
    if isinstance(error, UidTaken):
        return f"UIDTAKEN {error}"
    if isinstance(error, NotLeaseholder):
        return "STALE the lease is over, or the job is gone"
    if isinstance(error, StaleBatch):
        return f"STALEBATCH {error}"
    return f"ERR {error}"


def unknown_command(args: list[bytes], commands: Iterable[bytes]) -> str:
    family, dot, _ = args[0][:MAX_SHOWN_BYTES].upper().partition(b".")
    if dot:
        ours = [name.decode() for name in commands if name.startswith(family + dot)]
        if ours:
            word = printable(args[0])
            return (
                f"ERR unknown command '{word}'{suggestion(word, ours)} There are {', '.join(ours)}"
            )
    arguments = ""
    left = MAX_SHOWN_BYTES
    for arg in args[1:]:
        if left <= 0:
            break
        word = f"'{printable(arg, left)}' "
        arguments += word
        left -= len(word.encode(errors="surrogateescape"))
    return f"ERR unknown command '{printable(args[0])}', with args beginning with: {arguments}"


# Which queue a key is


class QueueNameCache:
    """Caches names of queues."""

    def __init__(self) -> None:
        self._known: dict[bytes, str] = {}

    def queue_name(self, key: bytes) -> str:
        known = self._known.get(key)
        if known is None:
            known = _decode_queue_name(key)
            if len(self._known) >= _CACHE_SIZE:
                self._known.clear()
            self._known[key] = known
        return known


def _decode_queue_name(key: bytes) -> str:
    try:
        name = key.decode()
    except UnicodeDecodeError:
        raise CommandError(BAD_QUEUE) from None
    if not valid_name(name):
        raise CommandError(BAD_QUEUE)
    return name


# Arguments of Taskyard's own commands, which may be in any order


class OptionNames:
    """The options of one of Taskyard's own commands."""

    def __init__(self, command: str, words: tuple[str, ...]) -> None:
        self.command = command
        self._words = words

    def unknown_option(self, word: bytes) -> CommandError:
        shown = printable(word)
        question = suggestion(shown, self._words)
        known = ", ".join(self._words)
        return CommandError(f"ERR {self.command} has no word '{shown}'{question} It has {known}")


class OptionReader:
    """Reads the arguments behind the fixed ones: options, most of them with a value."""

    def __init__(self, known: OptionNames, args: list[bytes], at: int, end: int = -1) -> None:
        self._known = known
        self._option = b""  # the last one
        self._args = args
        self._at = at
        self._end = len(args) if end < 0 else end

    def next_option(self) -> bytes:
        """The next word in upper case; b"" at the end."""
        if self._at >= self._end:
            return b""
        self._at += 1
        word = self._args[self._at - 1].upper()
        if not word:
            raise self._known.unknown_option(word)
        self._option = word
        return word

    def unknown_option(self) -> CommandError:
        """Return the error for the last word: there is no such option; and which there are."""
        return self._known.unknown_option(self._args[self._at - 1])

    def next_value(self) -> bytes:
        if self._at >= self._end:
            raise CommandError(
                f"ERR {printable(self._option)} of {self._known.command}: a value is missing"
            )
        self._at += 1
        return self._args[self._at - 1]

    def next_number(self, what: str, least: int, most: int) -> int:
        found = parse_integer(self.next_value())
        if not least <= found <= most:
            raise CommandError(f"ERR {what} must be between {least} and {most}")
        return found

    def next_text(self, what: str) -> str:
        try:
            return self.next_value().decode()
        except UnicodeDecodeError:
            raise CommandError(f"ERR {what}: {NAME_RULE}") from None
