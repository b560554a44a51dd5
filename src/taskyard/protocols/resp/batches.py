"""Many jobs in one command: JOB.PUSHALL, all of them or none, and JOB.DONEALL, each for itself."""

from __future__ import annotations

import contextlib
from typing import Final

from librt.vecs import append, vec
from mypy_extensions import i64

from taskyard.access.principal import TAKE
from taskyard.engine.model.errors import (
    DuplicateJob,
    JobNotFound,
    NotLeaseholder,
    StepRefused,
    TaskyardError,
    UidTaken,
)
from taskyard.engine.operations.push import Step
from taskyard.protocols.digits import decimal
from taskyard.protocols.resp.answers import Work
from taskyard.protocols.resp.connection import Resp, RespConnection
from taskyard.protocols.resp.errors import error_text
from taskyard.protocols.resp.jobs import Pushing, Wish, read_ref, unknown_blocker
from taskyard.protocols.resp.values import ONE, SYNTAX, ZERO, Refused, array, integer, number_reply
from taskyard.protocols.uids import parse_uid

MAX_PUSHED: Final = 1000  # jobs of one command
MAX_DONE: Final = 1000  # and those that it ends
MAX_NAMED: Final = 32_000  # jobs that they wait for, all together
PORTION: Final = 256  # steps of reading that count as one of the commands of a turn
_TOKEN: Final = 3  # numbers of a lease: its job, the boot of the server, and which it is
JOB_STEPS: Final = 8  # those of a job; each one that it waits for is another


def add_commands(resp: Resp) -> None:
    resp.add(b"JOB.PUSHALL", _Batches(resp.max_losses).push, 5, 0)
    resp.add(b"JOB.DONEALL", _done_all, 2, MAX_DONE + 1)


def _done_all(connection: RespConnection, args: list[bytes]) -> None:
    """End leases with success; one that is over ends nothing, and says so."""
    tokens = _read_tokens(args)  # before any of it is done
    if not connection.principal.free:
        _check_taking(connection, tokens)
    engine = connection.engine
    origin = connection.job_origin
    now = connection.now
    parts = [b"*", decimal(len(args) - 1), b"\r\n"]
    done: i64 = 0
    row: i64 = 0  # how many have ended since the last that has not
    at: i64 = 0
    while at < len(tokens):
        try:
            engine.finish_with_token(tokens[at], tokens[at + 1], tokens[at + 2], b"", origin, now)
        except TaskyardError as error:
            if not done and not isinstance(error, (NotLeaseholder, JobNotFound)):
                raise
            parts.append(ONE * row)  # those that have ended are told all the same
            parts.append(ZERO)
            row = 0
        else:
            done += 1
            row += 1
        at += _TOKEN
    parts.append(ONE * row)
    connection.reply(b"".join(parts))


def _read_tokens(args: list[bytes]) -> vec[i64]:
    """Job, boot and lease of each ref, one behind the other: as objects they would cost more than
    to read them."""
    tokens = vec[i64]()
    at: i64 = 1
    while at < len(args):
        id, epoch, number = read_ref(args[at])
        tokens = append(tokens, id)
        tokens = append(tokens, epoch)
        tokens = append(tokens, number)
        at += 1
    return tokens


def _check_taking(connection: RespConnection, tokens: vec[i64]) -> None:
    """Refuse all of it if one of the jobs is of a queue that the client may not take from."""
    principal = connection.principal
    engine = connection.engine
    principal.check_somewhere(TAKE)
    at: i64 = 0
    while at < len(tokens):
        with contextlib.suppress(NotLeaseholder):
            engine.owner_by_token(tokens[at], tokens[at + 1], tokens[at + 2])
            principal.check_unnamed(TAKE, engine.job(tokens[at]).queue.name)
        at += _TOKEN


class _Batches:
    def __init__(self, max_losses: i64) -> None:
        self._pushing = Pushing("JOB.PUSHALL", max_losses)

    def push(self, connection: RespConnection, args: list[bytes]) -> None:
        count = integer(args[1])
        if not 1 <= count <= MAX_PUSHED:
            raise Refused(f"ERR one command pushes 1 to {MAX_PUSHED} jobs")
        connection.begin_work(_PushAll(self._pushing, args, count))


class _PushAll(Work):
    """Reads what is to be pushed in portions, then pushes all of it at once."""

    def __init__(self, pushing: Pushing, args: list[bytes], count: i64) -> None:
        self._pushing = pushing
        self._args = args
        self._count = count
        self._at: i64 = 2  # in the arguments
        self._wishes: list[Wish] = []
        self._named: i64 = 0  # jobs that they wait for
        self._known: dict[bytes, int] = {}  # those of them that are named by uids; 0: not known

    def step(self, connection: RespConnection) -> bool:
        wishes = self._wishes
        budget: i64 = PORTION
        while len(wishes) < self._count and budget > 0:
            try:
                budget -= JOB_STEPS + self._read(connection)
            except Refused as refusal:
                raise Refused(_of_job(str(refusal), len(wishes))) from None
        if len(wishes) < self._count:
            return False
        if self._at != len(self._args):
            raise Refused(SYNTAX)
        ids = _push(connection, wishes, self._known)
        connection.reply(array([number_reply(id) for id in ids]))
        return True

    def _read(self, connection: RespConnection) -> i64:
        """Read the next job; gives how many others it names."""
        args = self._args
        if self._at >= len(args):
            raise Refused(SYNTAX)
        size = integer(args[self._at])
        first = self._at + 1
        if not 2 <= size <= len(args) - first:
            raise Refused(SYNTAX)
        wish = self._pushing.read(connection, args, first, first + size)
        named: i64 = len(wish.after)
        self._named += named
        if self._named > MAX_NAMED:
            raise Refused(f"ERR AFTER: one command names at most {MAX_NAMED} jobs")
        for name in wish.after:
            uid = parse_uid(name)
            if uid is not None and uid not in self._known:  # to find one takes a while
                self._known[uid] = connection.engine.known_id(uid)
        self._wishes.append(wish)
        self._at = first + size
        return named


def _push(connection: RespConnection, wishes: list[Wish], named: dict[bytes, int]) -> list[int]:
    """Push all of them; or none, if that is a repetition."""
    engine = connection.engine
    known = [_repeated_id(connection, wish, index) for index, wish in enumerate(wishes)]
    if all(known):
        return known
    uids: dict[bytes, int] = {}  # and which of the jobs has it
    keys: set[tuple[str, bytes]] = set()
    for index, wish in enumerate(wishes):
        try:
            if known[index]:
                raise DuplicateJob(known[index])
            if wish.after:
                wish.new.blocked_by = [_blocker(name, index, uids, named) for name in wish.after]
            _check(connection, wish, index, uids, keys)
        except Refused as refusal:
            raise Refused(_of_job(str(refusal), index)) from None
        except TaskyardError as error:
            raise Refused(_of_job(error_text(error), index)) from None
    steps = [Step(wish.new) for wish in wishes]
    try:
        return engine.transact(steps, connection.owner, connection.job_origin, connection.now)
    except StepRefused as stop:
        raise Refused(_of_job(error_text(stop), stop.index)) from None


def _repeated_id(connection: RespConnection, wish: Wish, index: int) -> int:
    try:
        return connection.engine.repeated_id(wish.new, connection.job_origin)
    except UidTaken as error:
        raise Refused(_of_job(error_text(error), index)) from None


def _check(
    connection: RespConnection,
    wish: Wish,
    index: int,
    uids: dict[bytes, int],
    keys: set[tuple[str, bytes]],
) -> None:
    """What no other job of this command may have."""
    new = wish.new
    uid = new.uid
    if uid is not None:
        if uid in uids:
            raise Refused("ERR uid: two jobs of this command have it")
        uids[uid] = index
    key = new.key
    if key is not None:
        connection.engine.check_key(new.queue, key)
        if (new.queue, key) in keys:
            raise Refused("ERR key: two jobs of this command have it")
        keys.add((new.queue, key))


def _blocker(name: bytes, index: int, uids: dict[bytes, int], named: dict[bytes, int]) -> int:
    """What the engine calls it: an id, or how many pushes before this one."""
    uid = parse_uid(name)
    if uid is not None:
        earlier = uids.get(uid)
        if earlier is not None:
            return earlier - index
        if not named[uid]:
            raise unknown_blocker(uid)
        return named[uid]
    id = integer(name)
    if not id or -id > index:
        raise Refused("ERR AFTER must name an id, a uid, or -k for the k-th job before this one")
    return id


def _of_job(text: str, index: int) -> str:
    return f"{text} (job {index + 1} of the command)"
