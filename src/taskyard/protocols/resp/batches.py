"""Many jobs in one command: JOB.PUSHALL, JOB.DONEALL, and numbered batches for consumers.

JOB.PUSHALL pushes all of its jobs or none; JOB.DONEALL ends each for itself.
"""

from __future__ import annotations

import contextlib
from typing import Final

from librt.vecs import append, vec
from mypy_extensions import i64

from taskyard.access.principal import ADMIN, TAKE, Denied, Principal
from taskyard.broker.commit import SYNC
from taskyard.broker.replies import DeferredReplies, DurabilityWaiters
from taskyard.engine.model.events import (
    DuplicateJob,
    JobNotFound,
    NotLeaseholder,
    StaleBatch,
    TaskyardError,
    TransactionStepRefused,
    UidTaken,
)
from taskyard.engine.model.job import Job
from taskyard.engine.model.state import BatchConsumer
from taskyard.engine.operations.batches import MAX_BATCH_JOBS, BatchRequest
from taskyard.engine.operations.push import TransactionStep
from taskyard.protocols.resp.connection import ChunkedCommand, ConsumerClaim, Resp, RespConnection
from taskyard.protocols.resp.jobs import (
    MAX_TTR_MS,
    ParsedPush,
    PushCommand,
    parse_lease_token,
    unknown_blocker_error,
)
from taskyard.protocols.resp.wire import (
    MAX_INT,
    MILLISECOND,
    OK,
    ONE,
    SYNTAX,
    ZERO,
    CommandError,
    OptionNames,
    OptionReader,
    array,
    bulk,
    check_count,
    error_text,
    number_reply,
    parse_integer,
)
from taskyard.protocols.text import decimal, parse_uid, show_uid
from taskyard.shared.text import NAME_RULE, valid_name

MAX_PUSHED: Final = 1000  # jobs of one command
MAX_DONE: Final = 1000  # and those that it ends
MAX_NAMED: Final = 32_000  # jobs that they wait for, all together
CHUNK_STEPS: Final = 256  # steps of reading that count as one of the commands of a turn
# numbers of a lease: its job, the boot of the server, and which it is
_NUMBERS_PER_TOKEN: Final = 3
JOB_STEPS: Final = 8  # those of a job; each one that it waits for is another

_LEASE_OPTIONS: Final = OptionNames("BATCH.LEASE", ("TTR", "QUEUES"))
MAX_CLAIMS: Final = 256  # of one connection
MAX_READ: Final = 10_000  # places that one BATCH.READ may request
_JOBS_PER_CHUNK: Final = 256  # of them, in one turn: they are many bytes
MAX_BYTES: Final = 8 * 1_048_576  # of a reply: several are read at the same time


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


# Numbered batches: the same jobs for the same number, read by many at once. Any connection may
# lease, read and end a batch, unless another has claimed the consumer; a client that has requested
# it by its number may request it again after a crash. Long work is done in chunks, see
# engine/operations/batches.py.


def add_consumer_commands(resp: Resp) -> None:
    resp.add_command(b"BATCH.CLAIM", _claim, 3, 3, when_read_only=True)
    resp.add_command(b"BATCH.LEASE", _lease, 6, 0)
    resp.add_command(b"BATCH.READ", _read, 5, 5)
    resp.add_command(b"BATCH.ACK", _ack, 3, 4)
    resp.add_command(b"BATCH.DROP", _drop, 2, 2)


def _parse_consumer_name(text: bytes) -> str:
    return _parse_name(text, "consumer")


def _parse_name(text: bytes, what: str) -> str:
    try:
        name = text.decode()
    except UnicodeDecodeError:
        name = ""
    if not valid_name(name):
        raise CommandError(f"ERR {what}: {NAME_RULE}")
    return name


def _parse_in_range(text: bytes, what: str, least: int, most: int) -> int:
    number = parse_integer(text)
    if not least <= number <= most:
        raise CommandError(f"ERR {what} must be between {least} and {most}")
    return number


def _check_batch_permission(connection: RespConnection, name: str) -> None:
    """Raise Denied unless the client may take from all queues of the batch, and the consumer is not
    another user's.

    Check before each chunk: meanwhile the batch may have grown, or be another one.
    """
    principal = connection.principal
    if principal.is_superuser:
        return
    principal.check_permission_on_any_queue(TAKE)
    consumer = connection.engine.consumer(name)
    if consumer is None:
        return
    if (
        consumer.user
        and consumer.user != principal.name
        and not _is_administrator(principal, consumer)
    ):
        raise Denied(f"consumer {name} belongs to another user")
    for queue in consumer.queues:
        principal.check_permission_unnamed(TAKE, queue.decode())


def _is_administrator(principal: Principal, consumer: BatchConsumer) -> bool:
    """Whether the client administers all queues that the batch is from, or all queues."""
    queues = [queue.decode() for queue in consumer.queues] or [""]
    return all(principal.may(ADMIN, queue) for queue in queues)


def _check_owner(connection: RespConnection, name: str, known: i64) -> i64:
    """Return the owner of the consumer's jobs, 0 if there is none; it must be the same as before,
    if that is known.

    A consumer that was dropped between two chunks may exist again, with other jobs by the same
    number.
    """
    consumer = connection.engine.consumer(name)
    owner: i64 = consumer.owner if consumer is not None else 0
    if known and owner != known:
        raise StaleBatch(f"{name} was dropped meanwhile")
    return owner


# Claiming


def _claim(connection: RespConnection, args: list[bytes]) -> None:
    """Connections that name the same holder share its claim: a client may have lost one of them
    before the server notices. The journal knows of no claims.
    """
    name = _parse_consumer_name(args[1])
    holder = _parse_name(args[2], "holder")
    _check_batch_permission(connection, name)
    _check_claim(connection, name, holder)
    if name not in connection.claimed_consumers:
        if len(connection.claimed_consumers) == MAX_CLAIMS:
            raise CommandError(f"ERR a connection can claim {MAX_CLAIMS} consumers at most")
        claims = connection.resp.claims
        claim = claims.get(name)
        if claim is None:
            claim = ConsumerClaim(holder, connection.principal.name, connection.peer)
            claims[name] = claim
        claim.connections += 1
        connection.claimed_consumers.append(name)
    connection.send(OK, 0)


def _check_claim(connection: RespConnection, name: str, holder: str = "") -> None:
    """Raise unless the client is the consumer's holder, if it has one, to lease or end batches;
    dropping it is for operators.

    Check before each chunk, as above.
    """
    claim = connection.resp.claims.get(name)
    if claim is None or name in connection.claimed_consumers:
        return
    principal = connection.principal
    if principal.name != claim.user and not principal.may(ADMIN, ""):
        raise Denied(f"consumer {name} belongs to another user")
    if holder != claim.holder:
        raise CommandError(
            f"CLAIMED {claim.holder} at {claim.peer} has the consumer {name}, and two would get "
            "the same jobs: stop that one, or give this one another name"
        )


# Leasing


def _lease(connection: RespConnection, args: list[bytes]) -> None:
    name = _parse_consumer_name(args[1])
    number = _parse_in_range(args[2], "the batch", 1, MAX_INT // 2)
    limit = _parse_in_range(args[3], "the limit", 1, MAX_BATCH_JOBS)
    options = OptionReader(_LEASE_OPTIONS, args, 4)
    word = options.next_option()
    ttr: i64 = 0
    at = 5
    if word == b"TTR":
        ttr = options.next_number("TTR", 1, MAX_TTR_MS) * MILLISECOND
        word = options.next_option()
        at = 7
    keys = args[at:]
    if word and word != b"QUEUES":
        raise options.unknown_option()
    if not word or not keys:
        raise CommandError(SYNTAX)
    check_count(len(keys))
    queues = [connection.queue_name(key).encode() for key in keys]
    for key in keys:
        connection.require_key_permission(TAKE, key)
    origin = connection.job_origin
    connection.start_chunked(_LeaseBatch(BatchRequest(name, number, queues, limit, ttr, origin)))


class _LeaseBatch(ChunkedCommand):
    def __init__(self, request: BatchRequest) -> None:
        self._request = request
        self._owner: i64 = 0

    def run_chunk(self, connection: RespConnection) -> bool:
        request = self._request
        _check_batch_permission(connection, request.consumer)
        _check_claim(connection, request.consumer)
        self._owner = _check_owner(connection, request.consumer, self._owner)
        if not connection.engine.lease_batch(request, connection.now):
            _yield_turn(connection)
            return False
        if not request.count:
            connection.current_command.no_result += 1
        # A client that knows of the batch may rely on its jobs whatever happens to this machine.
        reply = array([number_reply(request.result_number), number_reply(request.count)])
        _reply_synced(connection, reply)
        return True


def _reply_synced(connection: RespConnection, reply: bytes) -> None:
    position = connection.engine.records.end_position()
    broker = connection.broker
    if broker.durability == SYNC or position <= broker.journal.durable:
        connection.send(reply, position)
        return
    connection.current_command.replies += 1
    connection.command_suspended = True  # what is behind it waits with it
    _DelayedReply(connection, broker.synced_waiters).add(reply, position)


def _yield_turn(connection: RespConnection) -> None:
    """Continue in another turn: if the disk is behind, when it has caught up."""
    broker = connection.broker
    position = connection.engine.records.end_position()
    if broker.is_backlogged() and position > broker.journal.written:
        connection.command_suspended = True
        _DelayedReply(connection, broker.written_waiters).add(b"", position)
    else:
        connection.yield_turn()


class _DelayedReply(DeferredReplies):
    """A reply, or the next chunk of one, that waits for a durability others need not wait for."""

    def __init__(self, connection: RespConnection, waiters: DurabilityWaiters) -> None:
        super().__init__(connection.broker, connection.reply_queue, waiters)
        self._connection = connection

    def release_up_to(self, position: i64) -> None:
        super().release_up_to(position)
        connection = self._connection
        if not self.has_waiting() and not connection.closed:
            connection.command_suspended = False
            if not connection.is_command_running():
                connection.finish_deferred_command()
            connection.continue_after_reply()


# Reading


def _read(connection: RespConnection, args: list[bytes]) -> None:
    name = _parse_consumer_name(args[1])
    number = parse_integer(args[2])
    start = _parse_in_range(args[3], "the place", 0, MAX_BATCH_JOBS)
    count = _parse_in_range(args[4], "the count", 1, MAX_READ)
    connection.start_chunked(_ReadBatch(name, number, start, count))


class _ReadBatch(ChunkedCommand):
    """The jobs at some places of a batch, as many of them as one reply may have.

    A place without an entry has a job that is not the consumer's any more, so that it can be seen
    how far the reply goes.
    """

    def __init__(self, name: str, number: i64, start: i64, count: i64) -> None:
        self._name = name
        self._number = number
        self._position = start
        self._end = start + count
        self._parts: list[bytes] = []
        self._size: i64 = 0
        self._owner: i64 = 0
        self._deadline: i64 = 0
        self._job: Job | None = None  # whose payload was not in memory
        self._payload: bytes | None = None  # of that one, once it has been read back

    def run_chunk(self, connection: RespConnection) -> bool:
        _check_batch_permission(connection, self._name)
        count = min(self._end - self._position, _JOBS_PER_CHUNK)
        engine = connection.engine
        jobs = engine.read_batch(self._name, self._number, self._position, count, connection.now)
        self._owner = _check_owner(connection, self._name, self._owner)
        consumer = engine.consumer(self._name)
        self._deadline = consumer.deadline if consumer is not None else 0
        for job in jobs:
            if self._size >= MAX_BYTES:
                break
            if not self._add_job(connection, job):
                return False
        if self._position < self._end and len(jobs) == count and self._size < MAX_BYTES:
            connection.yield_turn()
            return False
        connection.reply(array(self._parts))
        return True

    def _add_job(self, connection: RespConnection, job: Job | None) -> bool:
        """Show a job; False if its payload has to be read back first."""
        if job is None:
            self._append_part(connection.nil())
            return True
        payload = self._payload if job is self._job else None
        if payload is None:
            payload = connection.broker.cached_payload(job)
        if payload is None:
            self._job = job
            self._payload = None
            connection.read_for_command(job.payload_at, job.payload_size, self._on_payload_read)
            return False
        self._job = None
        self._payload = None
        self._append_part(_encode_job(connection, job, payload, self._deadline))
        return True

    def _on_payload_read(self, payload: bytes) -> None:
        """The next step shows it, unless the job was ended meanwhile."""
        self._payload = payload

    def _append_part(self, part: bytes) -> None:
        self._parts.append(part)
        self._size += len(part)
        self._position += 1


def _encode_job(connection: RespConnection, job: Job, payload: bytes, until: i64) -> bytes:
    """As JOB.TAKE shows it, and what a table of jobs has beside that.

    The lease may be one of an earlier run of the server.
    """
    lease = job.lease
    assert lease is not None
    queue = job.queue.utf8
    if connection.prefix and queue.startswith(connection.prefix):
        queue = connection.local_name(queue)
    deadline = lease.deadline or until
    return array(
        [
            bulk(b"%d-%d-%d" % (job.id, lease.epoch, job.leases)),
            number_reply(job.id),
            bulk(show_uid(connection.engine.uid_of(job))),
            bulk(queue),
            bulk(queue if job.name == job.queue.name else job.name.encode()),
            number_reply(job.attempts),
            number_reply(job.fails),
            number_reply(deadline // MILLISECOND),
            bulk(payload),
            number_reply(job.priority),
            number_reply(job.pushed_at),
        ]
    )


# Ending


def _ack(connection: RespConnection, args: list[bytes]) -> None:
    name = _parse_consumer_name(args[1])
    upto = _parse_in_range(args[2], "the batch", 0, MAX_INT)
    holder = _parse_name(args[3], "holder") if len(args) > 3 else ""
    connection.start_chunked(_AckBatches(name, upto, holder))


class _AckBatches(ChunkedCommand):
    def __init__(self, name: str, upto: i64, holder: str) -> None:
        self._name = name
        self._upto = upto
        self._holder = holder
        self._owner: i64 = 0

    def run_chunk(self, connection: RespConnection) -> bool:
        engine = connection.engine
        _check_batch_permission(connection, self._name)
        _check_claim(connection, self._name, self._holder)
        self._owner = _check_owner(connection, self._name, self._owner)
        if not engine.ack_batch(self._name, self._upto, connection.job_origin, connection.now):
            _yield_turn(connection)
            return False
        connection.reply(OK)
        return True


def _drop(connection: RespConnection, args: list[bytes]) -> None:
    connection.start_chunked(_DropConsumer(_parse_consumer_name(args[1])))


class _DropConsumer(ChunkedCommand):
    def __init__(self, name: str) -> None:
        self._name = name
        self._owner: i64 = 0

    def run_chunk(self, connection: RespConnection) -> bool:
        engine = connection.engine
        consumer = engine.consumer(self._name)
        if self._owner and (consumer is None or consumer.owner != self._owner):
            connection.reply(OK)  # another client was quicker
            return True
        _check_batch_permission(connection, self._name)
        self._owner = consumer.owner if consumer is not None else 0
        if not engine.drop_consumer(self._name, connection.job_origin, connection.now):
            _yield_turn(connection)
            return False
        connection.reply(OK)
        return True
