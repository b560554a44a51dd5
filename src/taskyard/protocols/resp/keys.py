"""Redis's string keys: values that may expire, and commands about a key of either kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from taskyard.access.principal import ADMIN, INSPECT, PUSH
from taskyard.engine.model.job import READY
from taskyard.engine.model.state import Value
from taskyard.protocols.resp.connection import ChunkedCommand, Resp, RespConnection
from taskyard.protocols.resp.lists import CHUNK_JOBS
from taskyard.protocols.resp.wire import (
    MAX_INT,
    MILLISECOND,
    MIN_INT,
    OK,
    ONE,
    SECOND,
    SYNTAX,
    WRONG_TYPE,
    ZERO,
    CommandError,
    number_reply,
    parse_integer,
    printable,
)

KEYS_PER_CHUNK: Final = 1024

_NO_KEY: Final = b":-2\r\n"
_NO_EXPIRY: Final = b":-1\r\n"
_UNITS: Final = {
    b"EX": (SECOND, True),
    b"PX": (MILLISECOND, True),
    b"EXAT": (SECOND, False),
    b"PXAT": (MILLISECOND, False),
}


def add_key_commands(resp: Resp) -> None:
    resp.add_command(b"SET", _set, 3, 0)
    resp.add_command(b"SETEX", _setex, 4, 4)
    resp.add_command(b"PSETEX", _psetex, 4, 4)
    resp.add_command(b"SETNX", _setnx, 3, 3)
    resp.add_command(b"GET", _get, 2, 2)
    resp.add_command(b"TTL", _ttl, 2, 2)
    resp.add_command(b"PTTL", _pttl, 2, 2)
    resp.add_command(b"EXPIRE", _expire, 3, 0)
    resp.add_command(b"PEXPIRE", _pexpire, 3, 0)
    resp.add_command(b"EXPIREAT", _expireat, 3, 0)
    resp.add_command(b"PEXPIREAT", _pexpireat, 3, 0)
    resp.add_command(b"PERSIST", _persist, 2, 2)
    resp.add_command(b"DEL", _del, 2, 0)
    resp.add_command(b"UNLINK", _del, 2, 0)
    resp.add_command(b"EXISTS", _exists, 2, 0)
    resp.add_command(b"TYPE", _type, 2, 2)


# Setting


class _SetOptions:
    """What stands behind the value in SET."""

    def __init__(self) -> None:
        self.if_absent = False
        self.if_present = False
        self.keeps_expiry = False
        self.returns_old = False
        self.expires_at: int = 0


def _set(connection: RespConnection, args: list[bytes]) -> None:
    options = _parse_set_options(connection, args)
    connection.require_key_permission(PUSH, args[1])
    if options.returns_old:
        connection.require_key_permission(INSPECT, args[1])
    old = connection.engine.value(connection.full_key(args[1]))
    if options.returns_old and old is not None:
        _SetReturningOld(connection, args[1], args[2], options).read_old(old)
    else:
        _set_and_answer(connection, args[1], args[2], options, None)


class _SetReturningOld:
    """A SET that answers with the value that was there, which may have to be loaded first."""

    def __init__(
        self, connection: RespConnection, key: bytes, value: bytes, options: _SetOptions
    ) -> None:
        self._connection = connection
        self._key = key
        self._value = value
        self._options = options

        self._old_position: i64 = 0  # of the value that is read

    def read_old(self, old: Value) -> None:
        self._old_position = old.value_at
        _read_value(self._connection, old, self.on_old_read)

    def on_old_read(self, data: bytes) -> None:
        connection = self._connection
        there = connection.engine.value(connection.full_key(self._key))
        if there is None:  # it has gone while it was read
            _set_and_answer(connection, self._key, self._value, self._options, None)
        elif there.value_at != self._old_position:  # and there is another one
            self.read_old(there)
        else:
            _set_and_answer(connection, self._key, self._value, self._options, data)


def _set_and_answer(
    connection: RespConnection, key: bytes, value: bytes, options: _SetOptions, old: bytes | None
) -> None:
    full = connection.full_key(key)
    there = connection.engine.value(full)
    if there is None and _is_queue_name(connection, full):
        # XX requires a string: without one, and without a list, nothing happens.
        forbidden = options.if_absent or (options.if_present and not connection.has_list(key))
        if options.returns_old or not forbidden:
            raise CommandError(WRONG_TYPE)
        connection.send_nil()
        return
    refused = (options.if_absent and there is not None) or (options.if_present and there is None)
    if not refused:
        expires_at = options.expires_at
        if options.keeps_expiry and there is not None:
            expires_at = there.expires_at
        _store(connection, full, value, expires_at)
    if options.returns_old:
        if old is None:
            connection.send_nil()
        else:
            connection.send_bulk(old)
    elif refused:
        connection.send_nil()
    else:
        connection.reply(OK)


def _is_queue_name(connection: RespConnection, full: bytes) -> bool:
    """Whether there is a queue of this name.

    While a string had it, no client could use the queue as a list, so a queue keeps its name also
    while it is empty.
    """
    return full in connection.engine.state.queues


def _store(connection: RespConnection, key: bytes, value: bytes, expires_at: int) -> None:
    now: int = connection.now
    if expires_at and expires_at <= now:  # it would expire at once
        connection.engine.delete_value(key, connection.origin, connection.now)
    else:
        connection.engine.set_value(key, value, expires_at, connection.origin, connection.now)


def _parse_set_options(connection: RespConnection, args: list[bytes]) -> _SetOptions:
    options = _SetOptions()
    moment = b""
    at = 3
    timed = b""  # how the time to expire is spelled
    while at < len(args):
        word = args[at].upper()
        if word == b"NX" and not options.if_present:
            options.if_absent = True
        elif word == b"XX" and not options.if_absent:
            options.if_present = True
        elif word == b"GET":
            options.returns_old = True
        elif word == b"KEEPTTL" and not timed:
            options.keeps_expiry = True
        elif word in _UNITS and _may_set_expiry(options, timed, word) and at + 1 < len(args):
            timed = word
            at += 1
            moment = args[at]
        else:
            raise CommandError(SYNTAX)
        at += 1
    if timed:  # parsed once all words are known to be in their places
        unit, is_span = _UNITS[timed]
        options.expires_at = _expiry_time(connection, moment, unit, is_span, b"set")
    return options


def _may_set_expiry(options: _SetOptions, timed: bytes, word: bytes) -> bool:
    """Whether this option may follow; if a unit is given twice, the last counts."""
    return not options.keeps_expiry and timed in (b"", word)


def _setex(connection: RespConnection, args: list[bytes]) -> None:
    _set_for(connection, args, SECOND)


def _psetex(connection: RespConnection, args: list[bytes]) -> None:
    _set_for(connection, args, MILLISECOND)


def _set_for(connection: RespConnection, args: list[bytes], unit: int) -> None:
    expires_at = _expiry_time(connection, args[2], unit, True, args[0].lower())
    connection.require_key_permission(PUSH, args[1])
    key = connection.full_key(args[1])
    if connection.engine.value(key) is None and _is_queue_name(connection, key):
        raise CommandError(WRONG_TYPE)
    _store(connection, key, args[3], expires_at)
    connection.reply(OK)


def _setnx(connection: RespConnection, args: list[bytes]) -> None:
    connection.require_key_permission(PUSH, args[1])
    key = connection.full_key(args[1])
    if connection.engine.value(key) is not None or _is_queue_name(connection, key):
        connection.reply(ZERO)
    else:
        _store(connection, key, args[2], 0)
        connection.reply(ONE)


def _expiry_time(
    connection: RespConnection, text: bytes, unit: int, is_relative: bool, command: bytes
) -> int:
    """When a key expires that is to be set; it must not be before there was time."""
    number = parse_integer(text)
    when = number * unit
    if is_relative:
        now: int = connection.now
        when += now
    if number <= 0 or when > MAX_INT:
        raise CommandError(f"ERR invalid expire time in '{command.decode()}' command")
    return when


# Reading


def _get(connection: RespConnection, args: list[bytes]) -> None:
    connection.require_key_permission(INSPECT, args[1])
    value = connection.engine.value(connection.full_key(args[1]))
    if value is not None:
        _read_value(connection, value, connection.send_bulk)
    elif connection.has_list(args[1]):
        raise CommandError(WRONG_TYPE)
    else:
        connection.send_nil()


def _read_value(connection: RespConnection, value: Value, then: Callable[[bytes], None]) -> None:
    """Give the bytes of a value to `then`, now or when they have been loaded."""
    data = connection.broker.journal.read_blob(value.value_at, value.size) if value.size else b""
    if data is None:
        connection.read_for_command(value.value_at, value.size, then)
    else:
        then(data)


def _exists(connection: RespConnection, args: list[bytes]) -> None:
    for key in args[1:]:
        connection.require_key_permission(INSPECT, key)
    connection.start_chunked(_CountKeys(args))


class _CountKeys(ChunkedCommand):
    """Counts the keys that exist, in chunks."""

    def __init__(self, args: list[bytes]) -> None:
        self._args = args
        self._at: i64 = 1
        self._found: i64 = 0

    def run_chunk(self, connection: RespConnection) -> bool:
        end = min(self._at + KEYS_PER_CHUNK, len(self._args))
        while self._at < end:
            if _key_exists(connection, self._args[self._at]):
                self._found += 1
            self._at += 1
        if self._at < len(self._args):
            return False
        connection.reply(number_reply(self._found))
        return True


def _key_exists(connection: RespConnection, key: bytes) -> bool:
    return connection.engine.value(connection.full_key(key)) is not None or connection.has_list(key)


def _type(connection: RespConnection, args: list[bytes]) -> None:
    connection.require_key_permission(INSPECT, args[1])
    if connection.engine.value(connection.full_key(args[1])) is not None:
        connection.reply(b"+string\r\n")
    elif connection.has_list(args[1]):
        connection.reply(b"+list\r\n")
    else:
        connection.reply(b"+none\r\n")


# Expiry


def _ttl(connection: RespConnection, args: list[bytes]) -> None:
    _reply_ttl(connection, args[1], SECOND)


def _pttl(connection: RespConnection, args: list[bytes]) -> None:
    _reply_ttl(connection, args[1], MILLISECOND)


def _reply_ttl(connection: RespConnection, key: bytes, unit: i64) -> None:
    connection.require_key_permission(INSPECT, key)
    value = connection.engine.value(connection.full_key(key))
    if value is not None:
        if not value.expires_at:
            connection.reply(_NO_EXPIRY)
        else:
            # What is due may wait for its turn; below 0 it would be another answer.
            left = max(value.expires_at - connection.now, i64(0))
            connection.reply(number_reply((left + unit // 2) // unit))
    else:
        connection.reply(_NO_EXPIRY if connection.has_list(key) else _NO_KEY)


def _expire(connection: RespConnection, args: list[bytes]) -> None:
    _change_expiry(connection, args, SECOND, True)


def _pexpire(connection: RespConnection, args: list[bytes]) -> None:
    _change_expiry(connection, args, MILLISECOND, True)


def _expireat(connection: RespConnection, args: list[bytes]) -> None:
    _change_expiry(connection, args, SECOND, False)


def _pexpireat(connection: RespConnection, args: list[bytes]) -> None:
    _change_expiry(connection, args, MILLISECOND, False)


def _change_expiry(
    connection: RespConnection, args: list[bytes], unit: int, is_relative: bool
) -> None:
    conditions = _parse_conditions(args[3:])
    number = parse_integer(args[2])
    now: int = connection.now
    when = number * unit
    if is_relative:
        when += now
    # Milliseconds of the past may be as many as 64 bits hold; the future is kept in microseconds.
    if when > MAX_INT or number * unit // MILLISECOND < MIN_INT:
        name = args[0].lower().decode()
        raise CommandError(f"ERR invalid expire time in '{name}' command")
    connection.require_key_permission(PUSH, args[1])
    key = connection.full_key(args[1])
    engine = connection.engine
    value = engine.value(key)
    if value is None:
        if connection.has_list(args[1]):
            raise CommandError("ERR a list does not expire")
        connection.reply(ZERO)
        return
    if not _may_change_expiry(conditions, value.expires_at, when):
        connection.reply(ZERO)
        return
    if when <= now:
        engine.delete_value(key, connection.origin, connection.now)
    else:
        engine.set_value_expiry(key, when, connection.origin, connection.now)
    connection.reply(ONE)


def _parse_conditions(words: list[bytes]) -> set[bytes]:
    conditions: set[bytes] = set()
    for word in words:
        condition = word.upper()
        if condition not in (b"NX", b"XX", b"GT", b"LT"):
            raise CommandError(f"ERR Unsupported option {printable(word, len(word))}")
        conditions.add(condition)
    if b"NX" in conditions and len(conditions) > 1:
        raise CommandError("ERR NX and XX, GT or LT options at the same time are not compatible")
    if b"GT" in conditions and b"LT" in conditions:
        raise CommandError("ERR GT and LT options at the same time are not compatible")
    return conditions


def _may_change_expiry(conditions: set[bytes], before: int, after: int) -> bool:
    """A key without an expiry counts as one that expires after all others."""
    if b"NX" in conditions and before:
        return False
    if b"XX" in conditions and not before:
        return False
    if b"GT" in conditions and (not before or after <= before):
        return False
    return not (b"LT" in conditions and before and after >= before)


def _persist(connection: RespConnection, args: list[bytes]) -> None:
    connection.require_key_permission(PUSH, args[1])
    key = connection.full_key(args[1])
    value = connection.engine.value(key)
    if value is None or not value.expires_at:
        connection.reply(ZERO)
    else:
        connection.engine.set_value_expiry(key, 0, connection.origin, connection.now)
        connection.reply(ONE)


# Deleting


def _del(connection: RespConnection, args: list[bytes]) -> None:
    """Delete keys: a string needs the permission to set it; jobs need another."""
    strings: set[bytes] = set()
    if not connection.principal.is_superuser:
        for key in args[1:]:
            is_string = connection.engine.value(connection.full_key(key)) is not None
            connection.require_key_permission(PUSH if is_string else ADMIN, key)
            if is_string:
                strings.add(key)
    connection.start_chunked(_DeleteKeys(args[1:], strings))


class _DeleteKeys(ChunkedCommand):
    """Deletes a value in one turn, and the jobs that a list had at first in chunks."""

    def __init__(self, keys: list[bytes], strings: set[bytes]) -> None:
        self._keys = keys
        self._strings = strings  # of which no more than that may be deleted: a list may be behind
        self._at: i64 = 0
        self._left: i64 = 0  # jobs of the list that is being deleted
        self._deleted: i64 = 0

    def run_chunk(self, connection: RespConnection) -> bool:
        engine = connection.engine
        budget: i64 = CHUNK_JOBS
        while self._at < len(self._keys) and budget > 0:
            key = connection.full_key(self._keys[self._at])
            if self._left:
                count = min(self._left, budget)
                gone = engine.purge_queue(key, READY, count, connection.origin, connection.now)
                budget -= count
                self._left = self._left - count if gone == count else 0
            elif engine.delete_value(key, connection.origin, connection.now):
                self._deleted += 1
                budget -= 1
            else:
                is_list = self._keys[self._at] not in self._strings
                queue = engine.queue(key) if is_list else None
                if queue is not None and queue.ready.size:
                    self._left = queue.ready.size
                    self._deleted += 1
                    continue
                budget -= 1
            if not self._left:
                self._at += 1
        if self._at < len(self._keys):
            return False
        connection.reply(number_reply(self._deleted))
        return True
