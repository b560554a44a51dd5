"""Parses Masenko's commands: from their JSON to the engine's terms, and errors back."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from taskyard.engine.model.events import (
    MAX_QUEUES_PER_COMMAND,
    Draining,
    InvalidOption,
    NoSpace,
    NotLeaseholder,
    ReadOnly,
    TaskyardError,
    TransactionStepRefused,
)
from taskyard.engine.model.job import BACKOFF_QUARTIC, JSON, MAX_BLOCKERS, NewJob, Policy
from taskyard.engine.model.queue import Queue
from taskyard.engine.operations.push import TransactionStep
from taskyard.protocols.masenko.messages import (
    CREDENTIALS_FIELDS,
    FETCH_FIELDS,
    FINISH_FIELDS,
    MALFORMED,
    PUSH_FIELDS,
    decode_credentials,
    decode_fetch,
    decode_finish,
    decode_push,
    decode_raw,
    encode_json,
    normalize_keys,
    push_fields,
    timeout_of,
)
from taskyard.protocols.text import compact, number_at, parse_time
from taskyard.shared.text import format_duration, valid_name

DEFAULT_RETRY: Final = 20
BAD_JSON: Final = "cannot unmarshal payload"
SPACE: Final = 32
_CACHE_SIZE: Final = 1024
_MAX_VERB_BYTES: Final = 8  # no verb is longer
_ID: Final = b'{"id":'
_BRACE: Final = 125
_QUEUES: Final = b'{"queues":["'
_PAYLOAD: Final = b'"payload":'
_MAX_CACHED_PREFIX_BYTES: Final = 1024  # bytes before a payload that are not worth to be remembered
_TIMEOUT: Final = b'"],"timeout":'
_COMMA: Final = 44
_QUOTE: Final = 34
_BACKSLASH: Final = 92


class CommandError(Exception):
    """A command that is answered with ERR and this text."""


class RequestParser:
    """Reads commands under the server's limits."""

    def __init__(self, heartbeat: i64, max_losses: i64) -> None:
        self._heartbeat = heartbeat
        self._max_losses = max_losses
        self._policies: dict[tuple[int, str], Policy] = {}
        self._last_retry = -1  # what most pushes have in common
        self._last_dead_queue = ""
        self._last_policy = Policy()
        # What stands behind the name in a FETCH of one queue, and how long such a one waits.
        self._cached_fetch_suffix = b'"]}'
        self._cached_fetch_wait_us: i64 = (heartbeat * 1000 // 2 + 999) // 1000
        # What is before the payload in a PUSH that ends with it, and the push it stands for.
        self._cached_push_prefix = b""
        self._cached_push_queue = ""
        self._cached_push_name = ""
        self._cached_push_policy = self._last_policy

    def parse_push(self, text: bytes) -> NewJob:
        begin: i64 = len(self._cached_push_prefix)
        end: i64 = len(text) - 1
        if (
            begin
            and end > begin
            and text[end] == _BRACE
            and text.startswith(self._cached_push_prefix)
        ):
            payload = text[begin:end]
            if _is_json(payload):
                return NewJob(
                    self._cached_push_queue,
                    self._cached_push_name,
                    compact(payload),
                    self._cached_push_policy,
                    0,
                    0,
                    JSON,
                    False,
                    0,
                    None,
                    None,
                    None,
                )
            # something is behind the payload, as in others that will follow
            self._cached_push_prefix = b""
        return self._parse_push_json(text)

    def _parse_push_json(self, text: bytes) -> NewJob:
        try:
            try:
                message = decode_push(text)
            except MALFORMED:
                message = decode_push(normalize_keys(text, PUSH_FIELDS))
            if not text.isascii():
                text.decode()  # strings that are passed on as they are must be text too
        except MALFORMED:
            raise CommandError(BAD_JSON) from None
        # All at once: each by its name would be a lookup of its own.
        name, queue, dead_queue, payload, retry, execute_at, blocked_by = push_fields(message)
        if blocked_by is not None and len(blocked_by) > MAX_BLOCKERS:
            raise CommandError("at most 255 blocked by task IDs can be provided")
        body = bytes(payload)
        policy = self._policy(DEFAULT_RETRY if retry is None else retry, dead_queue or "")
        if execute_at is None and blocked_by is None:
            begin = _push_prefix(text, body)
            if begin:
                self._cached_push_prefix = begin
                self._cached_push_queue = "default" if queue is None else queue
                self._cached_push_name = name or ""
                self._cached_push_policy = policy
        return NewJob(
            "default" if queue is None else queue,
            name or "",
            compact(body),
            policy,
            0,
            _parse_run_at(execute_at),
            JSON,
            False,
            0,
            None,
            None,
            blocked_by or None,
        )

    def parse_fetch(self, text: bytes, known: dict[bytes, Queue]) -> tuple[list[bytes], i64]:
        """Queues in the order in which to search them, and how long to wait in microseconds."""
        end: i64 = len(text) - len(self._cached_fetch_suffix)
        if (
            end > len(_QUEUES)
            and text.startswith(_QUEUES)
            and text.endswith(self._cached_fetch_suffix)
        ):
            only = text[len(_QUEUES) : end]
            queue = known.get(only)
            # A name that is known is a good one; but it may also be how JSON spells several.
            if queue is not None and _QUOTE not in only and _BACKSLASH not in only:
                return [queue.utf8], self._cached_fetch_wait_us
        bound: int = self._heartbeat * 1000  # an int of any size, as the timeout may be
        try:
            try:
                message = decode_fetch(text or b"{}")
            except MALFORMED:
                message = decode_fetch(normalize_keys(text, FETCH_FIELDS))
            timeout: int = timeout_of(message, bound // 2)
        except MALFORMED:
            raise CommandError(BAD_JSON) from None
        except ValueError:
            raise CommandError(BAD_JSON) from None
        if timeout <= 0:
            raise CommandError("timeout must be greater than zero")
        if timeout >= bound:
            frequency = format_duration(self._heartbeat)
            raise CommandError(f"timeout must be smaller than the heartbeat frequency {frequency}")
        names: list[str] = ["default"] if message.queues is None else message.queues
        _check_names(names)
        wait: i64 = (timeout + 999) // 1000
        if len(names) == 1:
            queue_name = names[0].encode()
            begins = _QUEUES + queue_name
            if text.startswith(begins) and _is_reusable_fetch_suffix(text[len(begins) :]):
                self._cached_fetch_suffix = text[len(begins) :]
                self._cached_fetch_wait_us = wait
            return [queue_name], wait
        return [name.encode() for name in dict.fromkeys(names)], wait

    def _policy(self, retry: int, dead_queue: str) -> Policy:
        if retry == self._last_retry and dead_queue == self._last_dead_queue:
            return self._last_policy
        key = (retry, dead_queue)
        known = self._policies.get(key)
        if known is None:
            known = Policy(
                max_fails=retry + 1,
                max_losses=self._max_losses,
                backoff=BACKOFF_QUARTIC,
                dead_queue=dead_queue,
                lost_is_failed=True,
            )
            if len(self._policies) >= _CACHE_SIZE:
                self._policies.clear()
            self._policies[key] = known
        self._last_retry = retry
        self._last_dead_queue = dead_queue
        self._last_policy = known
        return known


def _check_names(names: list[str]) -> None:
    if len(names) > MAX_QUEUES_PER_COMMAND:
        raise CommandError(f"too many queues: at most {MAX_QUEUES_PER_COMMAND} can be fetched from")
    for name in names:
        if not valid_name(name):
            raise CommandError(f"invalid queue name {quote(name)}")


def _push_prefix(text: bytes, payload: bytes) -> bytes:
    """What stands before the payload of a valid PUSH if nothing but a brace is behind it, and any
    other payload could stand there; else nothing.

    It ends with the key, and has no quote that is part of a string: so that is a key, and since
    one value and one brace end the whole, it is one of the outermost object.
    """
    last: i64 = len(text) - 1
    end: i64 = last - len(payload)
    if end > _MAX_CACHED_PREFIX_BYTES or end < len(_PAYLOAD) or text[last] != _BRACE:
        return b""
    begin = text[:end]
    if _BACKSLASH in begin or not begin.endswith(_PAYLOAD) or text[end:last] != payload:
        return b""
    return begin


def _is_json(text: bytes) -> bool:
    """Whether it is one value and nothing else. Why it is not is for the parser to say."""
    try:
        decode_raw(text)
        if not text.isascii():
            text.decode()  # a string that is passed on as it is must be text too
    except MALFORMED:
        return False
    return True


def _is_reusable_fetch_suffix(end: bytes) -> bool:
    """Whether what is behind the name of one queue means the same behind any other: there is a
    timeout, or nothing, and above all no second list of queues.
    """
    if end == b'"]}':
        return True
    return end.startswith(_TIMEOUT) and _COMMA not in end[len(_TIMEOUT) :]


def verb_end(line: bytes) -> i64:
    """Where the first space is, or the end of the line."""
    size: i64 = len(line)
    at: i64 = 0
    while at < size and at < _MAX_VERB_BYTES:
        if line[at] == SPACE:
            return at
        at += 1
    if at < size:
        at = line.find(b" ", at)
        return size if at < 0 else at
    return size


def parse_credentials(text: bytes) -> tuple[str, str]:
    """A name and its password, or no name and a token."""
    try:
        try:
            message = decode_credentials(text)
        except MALFORMED:
            message = decode_credentials(normalize_keys(text, CREDENTIALS_FIELDS))
    except MALFORMED:
        raise CommandError(BAD_JSON) from None
    if message.token and not message.user and not message.password:
        return "", message.token
    if message.user and message.password and not message.token:
        return message.user, message.password
    raise CommandError("AUTH needs user and password, or token")


def parse_job_id(text: bytes) -> i64:
    if text.startswith(_ID):  # as most clients spell it: no need for a parser
        plain, end = number_at(text, len(_ID))
        if plain > 0 and end == len(text) - 1 and text[end] == _BRACE:
            return plain
    try:
        try:
            id = decode_finish(text).id
        except MALFORMED:
            id = decode_finish(normalize_keys(text, FINISH_FIELDS)).id
    except MALFORMED as error:
        raise CommandError(f"unmarshal payload: {error}") from None
    if not id:
        raise CommandError("missing id")
    return id


def error_text(error: TaskyardError, new: NewJob | None) -> str:
    """The engine's refusal in this protocol's words; `new` is the job that was refused."""
    if isinstance(error, NotLeaseholder):
        return "task not acquired"
    if isinstance(error, ReadOnly):
        return f"read only: {error}"
    if isinstance(error, NoSpace):
        return f"no space: {error}"
    if isinstance(error, Draining):
        return f"draining: {error}"
    if isinstance(error, InvalidOption) and new is not None:
        return _option_text(error, new)
    return str(error)


def step_error_text(step: TransactionStep, error: TransactionStepRefused) -> str:
    """The same for a step of a transaction."""
    cause = error.cause
    new = step.new
    if new is None and isinstance(cause, NotLeaseholder):
        return f"task {step.ack} not acquired"
    verb = "ACK" if new is None else "PUSH"
    return f"message {error.index}: {verb}: {error_text(cause, new)}"


def _option_text(error: InvalidOption, new: NewJob) -> str:
    option = error.option
    if option == "queue":
        return f"invalid queue name {quote(new.queue)}"
    if option == "name":
        return f"invalid task name {quote(new.name)}"
    if option == "dead_queue":
        return f"invalid queue name {quote(new.policy.dead_queue)}"
    if option == "payload":
        return "payload too large"
    if option == "blocked_by":
        if 0 in (new.blocked_by or []):
            return "cannot self reference in blocked by"
        return "invalid relative task position in blocked by"
    return str(error)


def quote(text: str) -> str:
    return encode_json(text).decode()


def _parse_run_at(moment: str | None) -> i64:
    if moment is None:
        return 0
    try:
        return parse_time(moment)
    except ValueError:
        raise CommandError(BAD_JSON) from None
