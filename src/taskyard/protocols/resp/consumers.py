"""Numbered batches on the RESP listener: the same jobs for the same number, read by many at once.

Any connection may lease, read and end a batch, unless another has claimed the consumer; a client
that has requested it by its number may request it again after a crash. Long work is done in chunks,
see engine/operations/batches.py.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from taskyard.access.principal import ADMIN, TAKE, Denied, Principal
from taskyard.broker.aside import DeferredReplies, DurabilityWaiters
from taskyard.broker.broker import SYNC
from taskyard.engine.model.errors import StaleBatch
from taskyard.engine.model.job import Job
from taskyard.engine.model.state import BatchConsumer
from taskyard.engine.operations.batches import MAX_BATCH_JOBS, BatchRequest
from taskyard.protocols.resp.answers import ChunkedCommand
from taskyard.protocols.resp.connection import ConsumerClaim, Resp, RespConnection
from taskyard.protocols.resp.jobs import MAX_TTR_MS
from taskyard.protocols.resp.values import (
    MAX_INT,
    MILLISECOND,
    OK,
    SYNTAX,
    CommandError,
    array,
    bulk,
    check_count,
    number_reply,
    parse_integer,
)
from taskyard.protocols.resp.words import OptionNames, OptionReader
from taskyard.protocols.uids import show_uid
from taskyard.shared.names import NAME_RULE, valid_name

_LEASE_OPTIONS: Final = OptionNames("BATCH.LEASE", ("TTR", "QUEUES"))
MAX_CLAIMS: Final = 256  # of one connection
MAX_READ: Final = 10_000  # places that one BATCH.READ may request
_JOBS_PER_CHUNK: Final = 256  # of them, in one turn: they are many bytes
MAX_BYTES: Final = 8 * 1_048_576  # of a reply: several are read at the same time


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
