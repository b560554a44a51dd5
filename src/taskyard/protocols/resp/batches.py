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
    TaskyardError,
    TransactionStepRefused,
    UidTaken,
)
from taskyard.engine.operations.push import TransactionStep
from taskyard.protocols.digits import decimal
from taskyard.protocols.resp.answers import ChunkedCommand
from taskyard.protocols.resp.connection import Resp, RespConnection
from taskyard.protocols.resp.errors import error_text
from taskyard.protocols.resp.jobs import (
    ParsedPush,
    PushCommand,
    parse_lease_token,
    unknown_blocker_error,
)
from taskyard.protocols.resp.values import (
    ONE,
    SYNTAX,
    ZERO,
    CommandError,
    array,
    number_reply,
    parse_integer,
)
from taskyard.protocols.uids import parse_uid

MAX_PUSHED: Final = 1000  # jobs of one command
MAX_DONE: Final = 1000  # and those that it ends
MAX_NAMED: Final = 32_000  # jobs that they wait for, all together
CHUNK_STEPS: Final = 256  # steps of reading that count as one of the commands of a turn
# numbers of a lease: its job, the boot of the server, and which it is
_NUMBERS_PER_TOKEN: Final = 3
JOB_STEPS: Final = 8  # those of a job; each one that it waits for is another


def add_batch_commands(resp: Resp) -> None:
    resp.add_command(b"JOB.PUSHALL", _PushAllCommand(resp.max_losses).run, 5, 0)
    resp.add_command(b"JOB.DONEALL", _done_all, 2, MAX_DONE + 1)


def _done_all(connection: RespConnection, args: list[bytes]) -> None:
    """End leases with success; one that is over ends nothing, and says so."""
    tokens = _read_tokens(args)  # before any of it is done
    if not connection.principal.is_superuser:
        _check_take_permission(connection, tokens)
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
            parts.append(ONE * row)  # those that have ended are shown all the same
            parts.append(ZERO)
            row = 0
        else:
            done += 1
            row += 1
        at += _NUMBERS_PER_TOKEN
    parts.append(ONE * row)
    connection.reply(b"".join(parts))


def _read_tokens(args: list[bytes]) -> vec[i64]:
    """Job, boot and lease of each token, one behind the other: as objects they would cost more than
    to read them.
    """
    tokens = vec[i64]()
    at: i64 = 1
    while at < len(args):
        id, epoch, number = parse_lease_token(args[at])
        tokens = append(tokens, id)
        tokens = append(tokens, epoch)
        tokens = append(tokens, number)
        at += 1
    return tokens


def _check_take_permission(connection: RespConnection, tokens: vec[i64]) -> None:
    """Refuse all of it if one of the jobs is of a queue that the client may not take from."""
    principal = connection.principal
    engine = connection.engine
    principal.check_permission_on_any_queue(TAKE)
    at: i64 = 0
    while at < len(tokens):
        with contextlib.suppress(NotLeaseholder):
            engine.owner_by_token(tokens[at], tokens[at + 1], tokens[at + 2])
            principal.check_permission_unnamed(TAKE, engine.job(tokens[at]).queue.name)
        at += _NUMBERS_PER_TOKEN


class _PushAllCommand:
    def __init__(self, max_losses: i64) -> None:
        self._push_command = PushCommand("JOB.PUSHALL", max_losses)

    def run(self, connection: RespConnection, args: list[bytes]) -> None:
        count = parse_integer(args[1])
        if not 1 <= count <= MAX_PUSHED:
            raise CommandError(f"ERR one command pushes 1 to {MAX_PUSHED} jobs")
        connection.start_chunked(_PushAllInChunks(self._push_command, args, count))


class _PushAllInChunks(ChunkedCommand):
    """Reads the jobs to push in chunks, then pushes all of them in one turn."""

    def __init__(self, push_command: PushCommand, args: list[bytes], count: i64) -> None:
        self._push_command = push_command
        self._args = args
        self._count = count
        self._at: i64 = 2  # in the arguments
        self._pushes: list[ParsedPush] = []
        self._blocker_count: i64 = 0  # jobs that they wait for
        self._ids_by_uid: dict[
            bytes, int
        ] = {}  # those of them that are named by uids; 0: not known

    def run_chunk(self, connection: RespConnection) -> bool:
        pushes = self._pushes
        budget: i64 = CHUNK_STEPS
        while len(pushes) < self._count and budget > 0:
            try:
                budget -= JOB_STEPS + self._parse_job(connection)
            except CommandError as refusal:
                raise CommandError(_with_job_number(str(refusal), len(pushes))) from None
        if len(pushes) < self._count:
            return False
        if self._at != len(self._args):
            raise CommandError(SYNTAX)
        ids = _push(connection, pushes, self._ids_by_uid)
        connection.reply(array([number_reply(id) for id in ids]))
        return True

    def _parse_job(self, connection: RespConnection) -> i64:
        """Read the next job; gives how many others it names."""
        args = self._args
        if self._at >= len(args):
            raise CommandError(SYNTAX)
        size = parse_integer(args[self._at])
        first = self._at + 1
        if not 2 <= size <= len(args) - first:
            raise CommandError(SYNTAX)
        push = self._push_command.parse_push(connection, args, first, first + size)
        named: i64 = len(push.blockers)
        self._blocker_count += named
        if self._blocker_count > MAX_NAMED:
            raise CommandError(f"ERR AFTER: one command names at most {MAX_NAMED} jobs")
        for name in push.blockers:
            uid = parse_uid(name)
            if uid is not None and uid not in self._ids_by_uid:  # to find one takes a while
                self._ids_by_uid[uid] = connection.engine.job_id_of_uid(uid)
        self._pushes.append(push)
        self._at = first + size
        return named


def _push(
    connection: RespConnection, pushes: list[ParsedPush], named: dict[bytes, int]
) -> list[int]:
    """Push all of them; or none, if that is a repetition."""
    engine = connection.engine
    known = [_repeated_id(connection, push, index) for index, push in enumerate(pushes)]
    if all(known):
        return known
    uids: dict[bytes, int] = {}  # and which of the jobs has it
    keys: set[tuple[str, bytes]] = set()
    for index, push in enumerate(pushes):
        try:
            if known[index]:
                raise DuplicateJob(known[index])
            if push.blockers:
                push.new.blocked_by = [
                    _resolve_blocker(name, index, uids, named) for name in push.blockers
                ]
            _check_unique(connection, push, index, uids, keys)
        except CommandError as refusal:
            raise CommandError(_with_job_number(str(refusal), index)) from None
        except TaskyardError as error:
            raise CommandError(_with_job_number(error_text(error), index)) from None
    steps = [TransactionStep(push.new) for push in pushes]
    try:
        return engine.transact(steps, connection.owner, connection.job_origin, connection.now)
    except TransactionStepRefused as stop:
        raise CommandError(_with_job_number(error_text(stop), stop.index)) from None


def _repeated_id(connection: RespConnection, push: ParsedPush, index: int) -> int:
    try:
        return connection.engine.repeated_push_id(push.new, connection.job_origin)
    except UidTaken as error:
        raise CommandError(_with_job_number(error_text(error), index)) from None


def _check_unique(
    connection: RespConnection,
    push: ParsedPush,
    index: int,
    uids: dict[bytes, int],
    keys: set[tuple[str, bytes]],
) -> None:
    """What no other job of this command may have."""
    new = push.new
    uid = new.uid
    if uid is not None:
        if uid in uids:
            raise CommandError("ERR uid: two jobs of this command have it")
        uids[uid] = index
    key = new.key
    if key is not None:
        connection.engine.check_key(new.queue, key)
        if (new.queue, key) in keys:
            raise CommandError("ERR key: two jobs of this command have it")
        keys.add((new.queue, key))


def _resolve_blocker(
    name: bytes, index: int, uids: dict[bytes, int], named: dict[bytes, int]
) -> int:
    """What the engine calls it: an id, or how many pushes before this one."""
    uid = parse_uid(name)
    if uid is not None:
        earlier = uids.get(uid)
        if earlier is not None:
            return earlier - index
        if not named[uid]:
            raise unknown_blocker_error(uid)
        return named[uid]
    id = parse_integer(name)
    if not id or -id > index:
        raise CommandError(
            "ERR AFTER must name an id, a uid, or -k for the k-th job before this one"
        )
    return id


def _with_job_number(text: str, index: int) -> str:
    return f"{text} (job {index + 1} of the command)"
