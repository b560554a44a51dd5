"""Parses Workq's commands: from the fields of a line to the engine's terms, and errors back.

Each value has one check, whose error is in the protocol's fixed words.
"""

from __future__ import annotations

import re
from typing import Final

from mypy_extensions import i64

from taskyard.engine.model.effects import MAX_QUEUES_PER_COMMAND
from taskyard.engine.model.job import MAX_TTL_MS, OPAQUE, NewJob, Notify, Policy
from taskyard.engine.model.stages import SYNCHRONOUS_CALL
from taskyard.protocols.times import parse_time
from taskyard.protocols.uids import parse_uid
from taskyard.protocols.workq.frames import is_number

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
