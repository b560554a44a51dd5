"""Taskyard's own commands on the RESP listener: push with options, finish, fail, extend, release.

A lease is named by its token (job, boot of the server, attempt), so that it can be finished from
any connection, and no longer once it is over.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from taskyard.access.principal import PUSH, TAKE
from taskyard.engine.model.errors import DuplicateJob
from taskyard.engine.model.job import (
    BACKOFF_DEFAULT,
    BACKOFF_EXPONENTIAL,
    DELAYED,
    FAILS_DEFAULT,
    MAX_BLOCKERS,
    MAX_TRIES,
    MAX_TTR,
    NewJob,
    Policy,
)
from taskyard.engine.operations.finish import BY_POLICY, NEVER
from taskyard.protocols.digits import number_at
from taskyard.protocols.resp.connection import Resp, RespConnection
from taskyard.protocols.resp.values import (
    MAX_INT,
    MILLISECOND,
    OK,
    CommandError,
    number_reply,
    parse_integer,
)
from taskyard.protocols.resp.words import MAX_SPAN_MS, OptionNames, OptionReader
from taskyard.protocols.uids import parse_uid, show_uid

MAX_TTR_MS: Final = MAX_TTR // MILLISECOND
_MAX_CACHED_POLICIES: Final = 1024
UNSET: Final = -1
_DASH: Final = 45
_PUSH_OPTIONS: Final = (
    "NAME",
    "UID",
    "PRIORITY",
    "AT",
    "IN",
    "TTR",
    "TTL",
    "ATTEMPTS",
    "FAILS",
    "BACKOFF",
    "DEAD",
    "KEY",
    "AFTER",
    "LIMIT",
)
_DONE_OPTIONS: Final = OptionNames("JOB.DONE", ("KEEP",))
_FAIL_OPTIONS: Final = OptionNames("JOB.FAIL", ("IN", "FINAL"))
INVALID_LEASE: Final = "ERR invalid ref"


def add_job_commands(resp: Resp) -> None:
    resp.add_command(b"JOB.PUSH", PushCommand("JOB.PUSH", resp.max_losses).run, 3, 0)
    resp.add_command(b"JOB.DONE", _done, 2, 5)
    resp.add_command(b"JOB.FAIL", _fail, 3, 5)
    resp.add_command(b"JOB.EXTEND", _extend, 3, 3)
    resp.add_command(b"JOB.RETURN", _return, 2, 2)
    resp.add_command(b"JOB.PROGRESS", _progress, 3, 4)


class ParsedPush:
    """A push as the options of JOB.PUSH describe it."""

    def __init__(self, new: NewJob, now: int, prefix: str) -> None:
        self.new = new
        self.now = now
        self.prefix = prefix  # of the queues in the chosen database
        self.has_policy = False  # a word of a policy was said
        self.ttr = 0
        self.attempts = 0
        self.fails = UNSET
        self.backoff_base = UNSET
        self.backoff_cap = 0
        self.dead_queue = ""
        self.blockers: list[bytes] = []  # ids and uids of the jobs it waits for

    def apply_option(self, option: bytes, options: OptionReader) -> None:
        new = self.new
        if option == b"NAME":
            new.name = options.next_text("name")
        elif option == b"UID":
            new.uid = parse_uid(options.next_value())
            if new.uid is None:
                raise CommandError("ERR uid: must be a UUID in its canonical form")
        elif option == b"PRIORITY":
            new.priority = parse_integer(options.next_value())
        elif option == b"AT":
            new.run_at = options.next_number("AT", 0, MAX_INT // MILLISECOND) * MILLISECOND
        elif option == b"IN":
            new.run_at = self.now + options.next_number("IN", 0, MAX_SPAN_MS) * MILLISECOND
        elif option == b"LIMIT":
            new.limit_key = options.next_value()
        elif option == b"TTL":
            new.ttl_ms = options.next_number("TTL", 1, MAX_INT)
        elif option == b"AFTER":
            count = options.next_number("AFTER", 1, MAX_BLOCKERS)
            self.blockers = [options.next_value() for _ in range(count)]
        elif option == b"KEY":
            new.key = options.next_value()
        else:
            self.has_policy = True
            self._apply_policy_option(option, options)

    def _apply_policy_option(self, option: bytes, options: OptionReader) -> None:
        if option == b"TTR":
            self.ttr = options.next_number("TTR", 0, MAX_TTR_MS)
        elif option == b"ATTEMPTS":
            self.attempts = options.next_number("ATTEMPTS", 0, MAX_TRIES)
        elif option == b"FAILS":
            self.fails = options.next_number("FAILS", 0, MAX_TRIES)
        elif option == b"BACKOFF":
            self.backoff_base = options.next_number("BACKOFF", 0, MAX_SPAN_MS)
            self.backoff_cap = options.next_number("BACKOFF", 0, MAX_SPAN_MS)
        elif option == b"DEAD":
            self.dead_queue = options.next_text("dead_queue")
            if self.dead_queue:
                self.dead_queue = self.prefix + self.dead_queue
        else:
            raise options.unknown_option()


class PushCommand:
    """JOB.PUSH; caches policies."""

    def __init__(self, command: str, max_losses: i64) -> None:
        self._options = OptionNames(command, _PUSH_OPTIONS)
        self._max_losses = max_losses
        self._policies: dict[tuple[int, int, int, int, int, str], Policy] = {}

    def run(self, connection: RespConnection, args: list[bytes]) -> None:
        engine = connection.engine
        if len(args) > 3:
            push = self.parse_push(connection, args, 1, len(args))
            new = push.new
            if new.uid is not None and (push.blockers or new.key is not None):
                known = engine.repeated_push_id(new, connection.job_origin)
                if known:
                    raise DuplicateJob(known)
            if new.key is not None:
                engine.check_key(new.queue, new.key)
            if push.blockers:
                new.blocked_by = [_resolve_blocker(connection, name) for name in push.blockers]
        else:
            queue = connection.queue_name(args[1])
            new = NewJob(queue, queue, args[2], connection.resp.job_policy)
            connection.require_permission(PUSH, queue)
        job = engine.push(new, connection.job_origin, connection.now)
        connection.reply(number_reply(job.id))

    def parse_push(
        self, connection: RespConnection, args: list[bytes], at: int, end: int
    ) -> ParsedPush:
        """The job that the arguments from `at` on describe, if the client may push it."""
        queue = connection.queue_name(args[at])
        new = NewJob(queue, queue, args[at + 1], connection.resp.job_policy)
        options = OptionReader(self._options, args, at + 2, end)
        push = ParsedPush(new, connection.now, connection.prefix.decode())
        word = options.next_option()
        while word:
            push.apply_option(word, options)
            word = options.next_option()
        connection.require_permission(PUSH, queue)
        if push.has_policy:
            new.policy = self._policy(push)
            if push.dead_queue:
                connection.require_permission(PUSH, push.dead_queue)
        return push

    def _policy(self, push: ParsedPush) -> Policy:
        key = (
            push.ttr,
            push.attempts,
            push.fails,
            push.backoff_base,
            push.backoff_cap,
            push.dead_queue,
        )
        known = self._policies.get(key)
        if known is None:
            known = Policy(
                push.ttr * MILLISECOND,
                push.attempts,
                FAILS_DEFAULT if push.fails == UNSET else push.fails or -1,
                self._max_losses,
                # 0 means that there is no pause, also if the queue has one.
                BACKOFF_DEFAULT if push.backoff_base == UNSET else BACKOFF_EXPONENTIAL,
                0 if push.backoff_base == UNSET else push.backoff_base * MILLISECOND,
                push.backoff_cap * MILLISECOND,
                push.dead_queue,
            )
            if len(self._policies) >= _MAX_CACHED_POLICIES:
                self._policies.clear()
            self._policies[key] = known
        return known


def unknown_blocker_error(uid: bytes) -> CommandError:
    name = show_uid(uid).decode()
    return CommandError(f"NOJOB there is no job {name} to wait for, or it is forgotten")


def _resolve_blocker(connection: RespConnection, name: bytes) -> int:
    """The id of a job; one that is done does not block."""
    uid = parse_uid(name)
    if uid is not None:
        known = connection.engine.job_id_of_uid(uid)
        if not known:
            raise unknown_blocker_error(uid)
        return known
    id = parse_integer(name)
    if id < 1:
        raise CommandError(f"ERR AFTER must be between 1 and {MAX_INT}")
    return id


# Ending a lease


def _leased_job(connection: RespConnection, lease_token: bytes) -> tuple[i64, i64]:
    """The job of a lease token, and the lease holder."""
    id, epoch, number = parse_lease_token(lease_token)
    principal = connection.principal
    principal.check_permission_on_any_queue(TAKE)
    owner = connection.engine.owner_by_token(id, epoch, number)
    principal.check_permission_unnamed(TAKE, connection.engine.job(id).queue.name)
    return id, owner


def parse_lease_token(token: bytes) -> tuple[i64, i64, i64]:
    """The job of a lease token, the boot of the server, and the lease."""
    id, first = number_at(token, 0)
    epoch, second = number_at(token, first + 1)
    number, end = number_at(token, second + 1)
    if (
        end != len(token)
        or number < 0
        or epoch < 0
        or id < 0
        or token[first] != _DASH
        or token[second] != _DASH
    ):
        return _parse_unusual_lease_token(token)
    return id, epoch, number


def _parse_unusual_lease_token(token: bytes) -> tuple[i64, i64, i64]:
    """One that no server has given: refused, unless it could be one."""
    parts = token.split(b"-")
    if len(parts) != 3:
        raise CommandError(INVALID_LEASE)
    numbers = [parse_integer(part, INVALID_LEASE) for part in parts]
    return numbers[0], numbers[1], numbers[2]


def _done(connection: RespConnection, args: list[bytes]) -> None:
    keep: i64 = 0
    if len(args) > 3:
        options = OptionReader(_DONE_OPTIONS, args, 3)
        if options.next_option() != b"KEEP":
            raise options.unknown_option()
        keep = options.next_number("KEEP", 1, MAX_SPAN_MS) * MILLISECOND
    id, _ = _leased_job(connection, args[1])
    result = args[2] if len(args) > 2 else b""
    connection.engine.complete(id, result, connection.job_origin, connection.now, keep)
    connection.reply(OK)


def _fail(connection: RespConnection, args: list[bytes]) -> None:
    delay: i64 = BY_POLICY
    options = OptionReader(_FAIL_OPTIONS, args, 3)
    word = options.next_option()
    if word == b"FINAL":
        delay = NEVER
    elif word == b"IN":
        delay = options.next_number("IN", 0, MAX_SPAN_MS) * MILLISECOND
    elif word:
        raise options.unknown_option()
    word = options.next_option()
    if word in (b"FINAL", b"IN"):
        raise CommandError("ERR JOB.FAIL takes IN or FINAL, and not both")
    if word:
        raise options.unknown_option()
    id, owner = _leased_job(connection, args[1])
    engine = connection.engine
    queue = engine.job(id).queue
    retried = queue.retried
    job = engine.nack(id, owner, args[2], connection.job_origin, connection.now, delay)
    # Its state may be another already: of a dead queue, or because a client waited for it. And
    # others of its queue may have failed with it, but none of them is tried again.
    if queue.retried == retried:
        connection.reply(b"+failed\r\n")
    else:
        connection.reply(b"+delayed\r\n" if job.state == DELAYED else b"+ready\r\n")


def _extend(connection: RespConnection, args: list[bytes]) -> None:
    ttr = parse_integer(args[2])
    if not 1 <= ttr <= MAX_TTR_MS:
        raise CommandError(f"ERR the time must be between 1 and {MAX_TTR_MS} milliseconds")
    id, owner = _leased_job(connection, args[1])
    engine = connection.engine
    engine.extend_lease(id, owner, ttr * MILLISECOND, connection.job_origin, connection.now)
    lease = engine.job(id).lease
    deadline: i64 = lease.deadline if lease is not None else 0
    connection.reply(number_reply(deadline // MILLISECOND))


def _return(connection: RespConnection, args: list[bytes]) -> None:
    id, owner = _leased_job(connection, args[1])
    connection.engine.release_lease(id, owner, connection.job_origin, connection.now)
    connection.reply(OK)


def _progress(connection: RespConnection, args: list[bytes]) -> None:
    permille = parse_integer(args[2])
    if not 0 <= permille <= 1000:
        raise CommandError("ERR progress is told in thousandths: 0 to 1000")
    try:
        message = args[3].decode() if len(args) == 4 else ""
    except UnicodeDecodeError:
        raise CommandError("ERR message: must be UTF-8") from None
    id, owner = _leased_job(connection, args[1])
    connection.engine.report_progress(
        id, owner, permille, message, connection.job_origin, connection.now
    )
    connection.send(OK, 0)  # that it is lost with the server does no harm
