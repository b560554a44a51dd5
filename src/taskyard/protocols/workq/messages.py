"""Workq's commands: out of a stream of bytes, then from fields to the engine's terms. No I/O.

A command is a line that ends with CR LF; behind some of them follow as many bytes as the line says,
and CR LF again. Errors are in the protocol's fixed words.
"""

from __future__ import annotations

import re
from typing import Final

from mypy_extensions import i64

from taskyard.engine.model.events import MAX_QUEUES_PER_COMMAND
from taskyard.engine.model.job import MAX_TTL_MS, OPAQUE, SYNCHRONOUS_CALL, NewJob, Notify, Policy
from taskyard.protocols.text import parse_time, parse_uid

MAX_BLOCK: Final = 1_048_576  # bytes of a payload or result
LINE_LIMIT: Final = 65_536
UNAUTHENTICATED_LIMIT: Final = 16_384  # of a line or a block of a client that has to log in first
SKIP_LIMIT: Final = 64 * 1_048_576  # of a block that is too large, and is left out

# What `WorkqFrameParser.next` has found.
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

MILLISECOND: Final = 1000
DAY_MS: Final = 86_400_000
MAX_OFFSET: Final = 2**63 - 1

BAD_ARGS: Final = "Invalid command args"
BAD_FLAGS: Final = "Invalid command flags"
BAD_PAYLOAD: Final = "Invalid payload size"
BAD_RESULT: Final = "Invalid result size"

_NAME: Final = re.compile(rb"[A-Za-z0-9_.-]{1,255}")
_INT32: Final = re.compile(rb"-?[0-9]{1,10}")
_UTC: Final = re.compile(rb"[0-9:.T-]{19,40}Z")
_CACHE_SIZE: Final = 1024


# Frames: lines, and the blocks of bytes behind them


class WorkqFrameParser:
    """Feed bytes, however they arrive; take commands.

    If a line is wrong but says how much follows, that is read along with it, so that the next
    command is read from its beginning. That something is too large is known as soon as the line is
    there: the command is returned then, and what follows is dropped later.
    """

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


# Requests: each value has one check, whose error is in the protocol's fixed words


class CommandError(Exception):
    """A command that is answered with -CLIENT-ERROR and this text."""


class RequestParser:
    """Parses commands; caches names and policies."""

    def __init__(self, max_losses: i64) -> None:
        self._max_losses = max_losses
        self._names: dict[bytes, str] = {}
        self._policies: dict[tuple[int, int, int], Policy] = {}
        self._flagless_policies: dict[bytes, Policy] = {}  # by ttr, of jobs without flags

    def parse_add(self, fields: list[bytes], payload: bytes | None) -> NewJob:
        if len(fields) == 6 and payload is not None:
            plain = self._flagless_policies.get(fields[3])
            if plain is not None:  # as most are
                uid = parse_job_uid(fields[1])
                name = self.parse_name(fields[2])
                ttl = _parse_ttl(fields[4])
                return NewJob(name, name, payload, plain, 0, 0, OPAQUE, False, ttl, uid)
        flags = _check_field_count(fields, 6, 3)
        uid, name, payload = self._parse_job(fields, payload)
        ttr = _parse_ttr(fields[3])
        ttl = _parse_ttl(fields[4])
        new = self._build_job(uid, name, payload, ttr, ttl, 0, flags)
        if not flags:
            if len(self._flagless_policies) >= _CACHE_SIZE:
                self._flagless_policies.clear()
            self._flagless_policies[fields[3]] = new.policy
        return new

    def parse_schedule(self, fields: list[bytes], payload: bytes | None, now: i64) -> NewJob:
        flags = _check_field_count(fields, 7, 3)
        uid, name, payload = self._parse_job(fields, payload)
        ttr = _parse_ttr(fields[3])
        ttl = _parse_ttl(fields[4])
        run_at = _parse_time(fields[5])
        end: int = run_at + ttl * MILLISECOND  # ints, since it may be beyond 64 bits
        moment: int = now
        if end <= moment:
            raise CommandError("Invalid Time")
        return self._build_job(uid, name, payload, ttr, ttl, run_at, flags)

    def parse_run(
        self, fields: list[bytes], payload: bytes | None, caller: i64
    ) -> tuple[NewJob, i64]:
        """The job, and how long to wait for a worker that takes it."""
        flags = _check_field_count(fields, 6, 1)
        uid, name, payload = self._parse_job(fields, payload)
        ttr = _parse_ttr(fields[3])
        wait = _parse_wait_us(fields[4])
        values = _parse_flags(flags, (b"priority",))
        # One attempt: when its time is over, so is the call.
        policy = self._policy(ttr, 1, 0)
        ttl = wait // MILLISECOND + ttr  # no caller can want it any longer
        new = NewJob(
            name, name, payload, policy, _parse_priority(values), 0, OPAQUE, False, ttl, uid
        )
        new.notify = Notify(caller, 0, SYNCHRONOUS_CALL)
        return new, wait

    def parse_lease(self, fields: list[bytes]) -> tuple[list[bytes], i64]:
        """Names without repetition, and how long to wait."""
        if len(fields) < 3:
            raise CommandError(BAD_ARGS)
        for field in fields:
            if field.startswith(b"-") and b"=" in field:  # a flag, and there are none
                raise CommandError(BAD_ARGS)
        names = fields[1:-1]
        if len(names) > MAX_QUEUES_PER_COMMAND:
            raise CommandError(f"Too many names: at most {MAX_QUEUES_PER_COMMAND}")
        for name in names:
            self.parse_name(name)
        return list(dict.fromkeys(names)), _parse_wait_us(fields[-1])

    def parse_name(self, field: bytes) -> str:
        known = self._names.get(field)
        if known is None:
            if not is_valid_name(field):
                raise CommandError("Invalid Name")
            known = field.decode()
            if len(self._names) >= _CACHE_SIZE:
                self._names.clear()
            self._names[field] = known
        return known

    def _parse_job(self, fields: list[bytes], payload: bytes | None) -> tuple[bytes, str, bytes]:
        uid = parse_job_uid(fields[1])
        name = self.parse_name(fields[2])
        if payload is None:
            raise CommandError(BAD_PAYLOAD)
        return uid, name, payload

    def _build_job(
        self,
        uid: bytes,
        name: str,
        payload: bytes,
        ttr: int,
        ttl: int,
        run_at: i64,
        flags: list[bytes],
    ) -> NewJob:
        attempts: int = 0
        fails: int = 0
        priority: int = 0
        if flags:
            values = _parse_flags(flags, (b"priority", b"max-attempts", b"max-fails"))
            priority = _parse_priority(values)
            attempts = _parse_attempts(values, b"max-attempts", "Invalid Max Attempts")
            fails = _parse_attempts(values, b"max-fails", "Invalid Max Fails")
        policy = self._policy(ttr, attempts, fails)
        return NewJob(name, name, payload, policy, priority, run_at, OPAQUE, False, ttl, uid)

    def _policy(self, ttr: int, max_attempts: int, max_fails: int) -> Policy:
        key = (ttr, max_attempts, max_fails)
        known = self._policies.get(key)
        if known is None:
            known = Policy(ttr * MILLISECOND, max_attempts, max_fails, self._max_losses)
            if len(self._policies) >= _CACHE_SIZE:
                self._policies.clear()
            self._policies[key] = known
        return known


def parse_credentials(fields: list[bytes]) -> tuple[str, str]:
    """A name and its password, or no name and a token."""
    if not 2 <= len(fields) <= 3:
        raise CommandError(BAD_ARGS)
    try:
        words = [field.decode() for field in fields[1:]]
    except UnicodeDecodeError:
        raise CommandError(BAD_ARGS) from None
    return ("", words[0]) if len(words) == 1 else (words[0], words[1])


def parse_result(fields: list[bytes]) -> tuple[bytes, i64]:
    """Which job, and how long to wait for its end."""
    _check_field_count(fields, 3, 0)
    return parse_job_uid(fields[1]), _parse_wait_us(fields[2])


def parse_finish(fields: list[bytes], block: bytes | None, bad_size: str) -> tuple[bytes, bytes]:
    """Which job, and its result."""
    _check_field_count(fields, 3, 0)
    uid = parse_job_uid(fields[1])
    if block is None:
        raise CommandError(bad_size)
    return uid, block


def parse_delete(fields: list[bytes]) -> bytes:
    _check_field_count(fields, 2, 0)
    return parse_job_uid(fields[1])


def parse_page(fields: list[bytes]) -> tuple[i64, i64]:
    """The last two fields: where to begin, and how many at most."""
    offset, limit = fields[-2], fields[-1]
    if not is_number(offset) or int(offset) > MAX_OFFSET:
        raise CommandError("Invalid cursor offset")
    if not is_number(limit) or not 1 <= int(limit) <= 100:
        raise CommandError("Invalid limit")
    return int(offset), int(limit)


def parse_job_uid(field: bytes) -> bytes:
    uid = parse_uid(field)
    if uid is None:
        raise CommandError("Invalid ID")
    return uid


def is_valid_name(name: bytes) -> bool:
    """Whether this protocol can name such a queue."""
    return _NAME.fullmatch(name) is not None


def _check_field_count(fields: list[bytes], wanted: i64, flags: i64) -> list[bytes]:
    """Refuse too few or too many fields; gives the flags behind them."""
    if len(fields) == wanted:
        return []
    if not wanted < len(fields) <= wanted + flags:
        raise CommandError(BAD_ARGS)
    rest = fields[wanted:]
    for flag in rest:
        if not flag.startswith(b"-"):
            raise CommandError(BAD_ARGS)
    return rest


def _parse_flags(flags: list[bytes], known: tuple[bytes, ...]) -> dict[bytes, bytes]:
    values: dict[bytes, bytes] = {}
    for flag in flags:
        key, _, value = flag[1:].partition(b"=")
        if not value or key in values or key not in known:
            raise CommandError(BAD_FLAGS)
        values[key] = value
    return values


def _parse_ttr(field: bytes) -> int:
    if not is_number(field) or not 1 <= int(field) <= DAY_MS:
        raise CommandError("Invalid TTR")
    return int(field)


def _parse_ttl(field: bytes) -> int:
    ttl = int(field) if is_number(field) else 0
    if not 1 <= ttl <= MAX_TTL_MS:
        raise CommandError("Invalid TTL")
    return ttl


def _parse_wait_us(field: bytes) -> i64:
    """Microseconds."""
    if not is_number(field) or int(field) > DAY_MS:
        raise CommandError("Invalid wait timeout")
    return int(field) * MILLISECOND


def _parse_time(field: bytes) -> int:
    if _UTC.fullmatch(field) is None:
        raise CommandError("Invalid Time")
    try:
        return parse_time(field.decode())
    except ValueError:
        raise CommandError("Invalid Time") from None


def _parse_priority(values: dict[bytes, bytes]) -> int:
    value = values.get(b"priority", b"0")
    if _INT32.fullmatch(value) is None or not -(2**31) <= int(value) < 2**31:
        raise CommandError("Invalid Priority")
    return int(value)


def _parse_attempts(values: dict[bytes, bytes], key: bytes, error: str) -> int:
    value = values.get(key, b"0")
    if not is_number(value) or int(value) > 255:
        raise CommandError(error)
    return int(value)
