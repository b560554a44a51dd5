"""Taskyard's own words on the RESP listener: push with options, finish, fail, extend, give back.

A lease is named by its ref (job, boot of the server, attempt), so that it can be finished from
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
    Refused,
    integer,
    number_reply,
)
from taskyard.protocols.resp.words import MAX_SPAN_MS, Spoken, Words
from taskyard.protocols.uids import parse_uid, show_uid

MAX_TTR_MS: Final = MAX_TTR // MILLISECOND
_POLICIES_KEPT: Final = 1024
UNSAID: Final = -1
_DASH: Final = 45
_PUSH_WORDS: Final = (
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
_DONE: Final = Spoken("JOB.DONE", ("KEEP",))
_FAIL: Final = Spoken("JOB.FAIL", ("IN", "FINAL"))
INVALID_REF: Final = "ERR invalid ref"


def add_commands(resp: Resp) -> None:
    resp.add(b"JOB.PUSH", Pushing("JOB.PUSH", resp.max_losses).push, 3, 0)
    resp.add(b"JOB.DONE", _done, 2, 5)
    resp.add(b"JOB.FAIL", _fail, 3, 5)
    resp.add(b"JOB.EXTEND", _extend, 3, 3)
    resp.add(b"JOB.RETURN", _return, 2, 2)
    resp.add(b"JOB.PROGRESS", _progress, 3, 4)


class Wish:
    """A job as JOB.PUSH describes it, word by word."""

    def __init__(self, new: NewJob, now: int, prefix: str) -> None:
        self.new = new
        self.now = now
        self.prefix = prefix  # of the queues in the chosen database
        self.has_policy = False  # a word of a policy was said
        self.ttr = 0
        self.attempts = 0
        self.fails = UNSAID
        self.base = UNSAID
        self.cap = 0
        self.dead = ""
        self.after: list[bytes] = []  # ids and uids of the jobs it waits for

    def take_word(self, word: bytes, words: Words) -> None:
        new = self.new
        if word == b"NAME":
            new.name = words.text("name")
        elif word == b"UID":
            new.uid = parse_uid(words.value())
            if new.uid is None:
                raise Refused("ERR uid: must be a UUID in its canonical form")
        elif word == b"PRIORITY":
            new.priority = integer(words.value())
        elif word == b"AT":
            new.run_at = words.number("AT", 0, MAX_INT // MILLISECOND) * MILLISECOND
        elif word == b"IN":
            new.run_at = self.now + words.number("IN", 0, MAX_SPAN_MS) * MILLISECOND
        elif word == b"LIMIT":
            new.limit_key = words.value()
        elif word == b"TTL":
            new.ttl_ms = words.number("TTL", 1, MAX_INT)
        elif word == b"AFTER":
            count = words.number("AFTER", 1, MAX_BLOCKERS)
            self.after = [words.value() for _ in range(count)]
        elif word == b"KEY":
            new.key = words.value()
        else:
            self.has_policy = True
            self._take_policy(word, words)

    def _take_policy(self, word: bytes, words: Words) -> None:
        if word == b"TTR":
            self.ttr = words.number("TTR", 0, MAX_TTR_MS)
        elif word == b"ATTEMPTS":
            self.attempts = words.number("ATTEMPTS", 0, MAX_TRIES)
        elif word == b"FAILS":
            self.fails = words.number("FAILS", 0, MAX_TRIES)
        elif word == b"BACKOFF":
            self.base = words.number("BACKOFF", 0, MAX_SPAN_MS)
            self.cap = words.number("BACKOFF", 0, MAX_SPAN_MS)
        elif word == b"DEAD":
            self.dead = words.text("dead_queue")
            if self.dead:
                self.dead = self.prefix + self.dead
        else:
            raise words.unknown()


class Pushing:
    """JOB.PUSH; remembers policies, which come again and again."""

    def __init__(self, command: str, max_losses: i64) -> None:
        self._spoken = Spoken(command, _PUSH_WORDS)
        self._max_losses = max_losses
        self._policies: dict[tuple[int, int, int, int, int, str], Policy] = {}

    def push(self, connection: RespConnection, args: list[bytes]) -> None:
        engine = connection.engine
        if len(args) > 3:
            wish = self.read(connection, args, 1, len(args))
            new = wish.new
            if new.uid is not None and (wish.after or new.key is not None):
                known = engine.repeated_id(new, connection.job_origin)
                if known:
                    raise DuplicateJob(known)
            if new.key is not None:
                engine.check_key(new.queue, new.key)
            if wish.after:
                new.blocked_by = [_blocker(connection, name) for name in wish.after]
        else:
            queue = connection.queue_name(args[1])
            new = NewJob(queue, queue, args[2], connection.resp.job_policy)
            connection.require(PUSH, queue)
        job = engine.push(new, connection.job_origin, connection.now)
        connection.reply(number_reply(job.id))

    def read(self, connection: RespConnection, args: list[bytes], at: int, end: int) -> Wish:
        """The job that the arguments from `at` on describe, if the client may push it."""
        queue = connection.queue_name(args[at])
        new = NewJob(queue, queue, args[at + 1], connection.resp.job_policy)
        words = Words(self._spoken, args, at + 2, end)
        wish = Wish(new, connection.now, connection.prefix.decode())
        word = words.next()
        while word:
            wish.take_word(word, words)
            word = words.next()
        connection.require(PUSH, queue)
        if wish.has_policy:
            new.policy = self._policy(wish)
            if wish.dead:
                connection.require(PUSH, wish.dead)
        return wish

    def _policy(self, wish: Wish) -> Policy:
        key = (wish.ttr, wish.attempts, wish.fails, wish.base, wish.cap, wish.dead)
        known = self._policies.get(key)
        if known is None:
            known = Policy(
                wish.ttr * MILLISECOND,
                wish.attempts,
                FAILS_DEFAULT if wish.fails == UNSAID else wish.fails or -1,
                self._max_losses,
                # To say 0 is to say that there is no pause, also if the queue has one.
                BACKOFF_DEFAULT if wish.base == UNSAID else BACKOFF_EXPONENTIAL,
                0 if wish.base == UNSAID else wish.base * MILLISECOND,
                wish.cap * MILLISECOND,
                wish.dead,
            )
            if len(self._policies) >= _POLICIES_KEPT:
                self._policies.clear()
            self._policies[key] = known
        return known


def unknown_blocker(uid: bytes) -> Refused:
    name = show_uid(uid).decode()
    return Refused(f"NOJOB there is no job {name} to wait for, or it is forgotten")


def _blocker(connection: RespConnection, name: bytes) -> int:
    """The id of a job; one that is done does not block."""
    uid = parse_uid(name)
    if uid is not None:
        known = connection.engine.known_id(uid)
        if not known:
            raise unknown_blocker(uid)
        return known
    id = integer(name)
    if id < 1:
        raise Refused(f"ERR AFTER must be between 1 and {MAX_INT}")
    return id


# Ending a lease


def _held(connection: RespConnection, ref: bytes) -> tuple[i64, i64]:
    """The job of a ref, and who holds it."""
    id, epoch, number = read_ref(ref)
    principal = connection.principal
    principal.check_somewhere(TAKE)
    owner = connection.engine.owner_by_token(id, epoch, number)
    principal.check_unnamed(TAKE, connection.engine.job(id).queue.name)
    return id, owner


def read_ref(ref: bytes) -> tuple[i64, i64, i64]:
    """The job of a ref, the boot of the server, and the lease."""
    id, first = number_at(ref, 0)
    epoch, second = number_at(ref, first + 1)
    number, end = number_at(ref, second + 1)
    if (
        end != len(ref)
        or number < 0
        or epoch < 0
        or id < 0
        or ref[first] != _DASH
        or ref[second] != _DASH
    ):
        return _read_odd_ref(ref)
    return id, epoch, number


def _read_odd_ref(ref: bytes) -> tuple[i64, i64, i64]:
    """One that no server has given: refused, unless it could be one."""
    parts = ref.split(b"-")
    if len(parts) != 3:
        raise Refused(INVALID_REF)
    numbers = [integer(part, INVALID_REF) for part in parts]
    return numbers[0], numbers[1], numbers[2]


def _done(connection: RespConnection, args: list[bytes]) -> None:
    keep: i64 = 0
    if len(args) > 3:
        words = Words(_DONE, args, 3)
        if words.next() != b"KEEP":
            raise words.unknown()
        keep = words.number("KEEP", 1, MAX_SPAN_MS) * MILLISECOND
    id, _ = _held(connection, args[1])
    result = args[2] if len(args) > 2 else b""
    connection.engine.complete(id, result, connection.job_origin, connection.now, keep)
    connection.reply(OK)


def _fail(connection: RespConnection, args: list[bytes]) -> None:
    delay: i64 = BY_POLICY
    words = Words(_FAIL, args, 3)
    word = words.next()
    if word == b"FINAL":
        delay = NEVER
    elif word == b"IN":
        delay = words.number("IN", 0, MAX_SPAN_MS) * MILLISECOND
    elif word:
        raise words.unknown()
    word = words.next()
    if word in (b"FINAL", b"IN"):
        raise Refused("ERR JOB.FAIL takes IN or FINAL, and not both")
    if word:
        raise words.unknown()
    id, owner = _held(connection, args[1])
    engine = connection.engine
    queue = engine.job(id).queue
    retried = queue.retried
    job = engine.nack(id, owner, args[2], connection.job_origin, connection.now, delay)
    # Its state may be another already: of a dead queue, or since somebody waited for it. And
    # others of its queue may have failed with it, but none of them is tried again.
    if queue.retried == retried:
        connection.reply(b"+failed\r\n")
    else:
        connection.reply(b"+delayed\r\n" if job.state == DELAYED else b"+ready\r\n")


def _extend(connection: RespConnection, args: list[bytes]) -> None:
    ttr = integer(args[2])
    if not 1 <= ttr <= MAX_TTR_MS:
        raise Refused(f"ERR the time must be between 1 and {MAX_TTR_MS} milliseconds")
    id, owner = _held(connection, args[1])
    engine = connection.engine
    engine.extend(id, owner, ttr * MILLISECOND, connection.job_origin, connection.now)
    lease = engine.job(id).lease
    deadline: i64 = lease.deadline if lease is not None else 0
    connection.reply(number_reply(deadline // MILLISECOND))


def _return(connection: RespConnection, args: list[bytes]) -> None:
    id, owner = _held(connection, args[1])
    connection.engine.give_back(id, owner, connection.job_origin, connection.now)
    connection.reply(OK)


def _progress(connection: RespConnection, args: list[bytes]) -> None:
    permille = integer(args[2])
    if not 0 <= permille <= 1000:
        raise Refused("ERR progress is told in thousandths: 0 to 1000")
    try:
        message = args[3].decode() if len(args) == 4 else ""
    except UnicodeDecodeError:
        raise Refused("ERR message: must be UTF-8") from None
    id, owner = _held(connection, args[1])
    connection.engine.progress(id, owner, permille, message, connection.job_origin, connection.now)
    connection.send(OK, 0)  # that it is lost with the server does no harm
