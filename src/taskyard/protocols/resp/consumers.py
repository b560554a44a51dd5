"""Numbered batches on the RESP listener: the same jobs for the same number, read by many at once.

A batch is leased, read and ended from any connection, unless somebody has claimed the consumer; who
has asked for it by its number may ask again after a crash. What is long is done in portions, see
engine/operations/batches.py.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from taskyard.access.principal import ADMIN, TAKE, Denied, Principal
from taskyard.broker.aside import Aside, Milestone
from taskyard.broker.broker import SYNC
from taskyard.engine.model.errors import StaleBatch
from taskyard.engine.model.job import Job
from taskyard.engine.model.state import Consumer
from taskyard.engine.operations.batches import MAX_BATCH, BatchRequest
from taskyard.protocols.resp.answers import Work
from taskyard.protocols.resp.connection import Claim, Resp, RespConnection
from taskyard.protocols.resp.jobs import MAX_TTR_MS
from taskyard.protocols.resp.values import (
    MAX_INT,
    MILLISECOND,
    OK,
    SYNTAX,
    Refused,
    array,
    bulk,
    check_count,
    integer,
    number_reply,
)
from taskyard.protocols.resp.words import Spoken, Words
from taskyard.protocols.uids import show_uid
from taskyard.shared.names import NAME_RULE, valid_name

_WORDS: Final = Spoken("BATCH.LEASE", ("TTR", "QUEUES"))
MAX_CLAIMS: Final = 256  # of one connection
MAX_READ: Final = 10_000  # places that one BATCH.READ may ask for
_AT_ONCE: Final = 256  # of them, in one turn: they are many bytes
MAX_BYTES: Final = 8 * 1_048_576  # of a reply: several read at once


def add_commands(resp: Resp) -> None:
    resp.add(b"BATCH.CLAIM", _claim, 3, 3, always=True)
    resp.add(b"BATCH.LEASE", _lease, 6, 0)
    resp.add(b"BATCH.READ", _read, 5, 5)
    resp.add(b"BATCH.ACK", _ack, 3, 4)
    resp.add(b"BATCH.DROP", _drop, 2, 2)


def _consumer_name(text: bytes) -> str:
    return _name(text, "consumer")


def _name(text: bytes, what: str) -> str:
    try:
        name = text.decode()
    except UnicodeDecodeError:
        name = ""
    if not valid_name(name):
        raise Refused(f"ERR {what}: {NAME_RULE}")
    return name


def _within(text: bytes, what: str, least: int, most: int) -> int:
    number = integer(text)
    if not least <= number <= most:
        raise Refused(f"ERR {what} must be between {least} and {most}")
    return number


def _check_batch(connection: RespConnection, name: str) -> None:
    """Whoever deals with a batch must be allowed to take from all queues that it is from, and the
    consumer must not be another user's.

    To be asked before each portion: meanwhile it may have grown, or be another one.
    """
    principal = connection.principal
    if principal.free:
        return
    principal.check_somewhere(TAKE)
    consumer = connection.engine.consumer(name)
    if consumer is None:
        return
    if consumer.user and consumer.user != principal.name and not _rules(principal, consumer):
        raise Denied(f"consumer {name} belongs to another user")
    for queue in consumer.queues:
        principal.check_unnamed(TAKE, queue.decode())


def _rules(principal: Principal, consumer: Consumer) -> bool:
    """Whether an administrator asks: of all queues that the batch is from, or of all there are."""
    queues = [queue.decode() for queue in consumer.queues] or [""]
    return all(principal.may(ADMIN, queue) for queue in queues)


def _same_owner(connection: RespConnection, name: str, known: i64) -> i64:
    """Whose jobs the consumer's are, 0 if it is not there; it must be who it was, if that is known.

    One that was dropped between two portions may be back, with other jobs by the same number.
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
    name = _consumer_name(args[1])
    holder = _name(args[2], "holder")
    _check_batch(connection, name)
    _check_claim(connection, name, holder)
    if name not in connection.claimed:
        if len(connection.claimed) == MAX_CLAIMS:
            raise Refused(f"ERR a connection can claim {MAX_CLAIMS} consumers at most")
        claims = connection.resp.claims
        claim = claims.get(name)
        if claim is None:
            claim = Claim(holder, connection.principal.name, connection.peer)
            claims[name] = claim
        claim.connections += 1
        connection.claimed.append(name)
    connection.send(OK, 0)


def _check_claim(connection: RespConnection, name: str, holder: str = "") -> None:
    """Whoever leases or ends batches must be the consumer's holder, if it has one; dropping it is
    for operators. To be asked before each portion, as above.
    """
    claim = connection.resp.claims.get(name)
    if claim is None or name in connection.claimed:
        return
    principal = connection.principal
    if principal.name != claim.user and not principal.may(ADMIN, ""):
        raise Denied(f"consumer {name} belongs to another user")
    if holder != claim.holder:
        raise Refused(
            f"CLAIMED {claim.holder} at {claim.peer} has the consumer {name}, and two would get "
            "the same jobs: stop that one, or give this one another name"
        )


# Leasing


def _lease(connection: RespConnection, args: list[bytes]) -> None:
    name = _consumer_name(args[1])
    number = _within(args[2], "the batch", 1, MAX_INT // 2)
    limit = _within(args[3], "the limit", 1, MAX_BATCH)
    words = Words(_WORDS, args, 4)
    word = words.next()
    ttr: i64 = 0
    at = 5
    if word == b"TTR":
        ttr = words.number("TTR", 1, MAX_TTR_MS) * MILLISECOND
        word = words.next()
        at = 7
    keys = args[at:]
    if word and word != b"QUEUES":
        raise words.unknown()
    if not word or not keys:
        raise Refused(SYNTAX)
    check_count(len(keys))
    queues = [connection.queue_name(key).encode() for key in keys]
    for key in keys:
        connection.require_key(TAKE, key)
    origin = connection.job_origin
    connection.begin_work(_Lease(BatchRequest(name, number, queues, limit, ttr, origin)))


class _Lease(Work):
    def __init__(self, request: BatchRequest) -> None:
        self._request = request
        self._owner: i64 = 0

    def step(self, connection: RespConnection) -> bool:
        request = self._request
        _check_batch(connection, request.consumer)
        _check_claim(connection, request.consumer)
        self._owner = _same_owner(connection, request.consumer, self._owner)
        if not connection.engine.lease_batch(request, connection.now):
            _rest(connection)
            return False
        if not request.count:
            connection.verb.empty += 1
        # Whoever knows of the batch may rely on its jobs whatever happens to this machine.
        reply = array([number_reply(request.got), number_reply(request.count)])
        _reply_synced(connection, reply)
        return True


def _reply_synced(connection: RespConnection, reply: bytes) -> None:
    mark = connection.engine.log.mark()
    broker = connection.broker
    if broker.durability == SYNC or mark <= broker.journal.durable:
        connection.send(reply, mark)
        return
    connection.verb.replies += 1
    connection.loading = True  # what is behind it waits with it
    _Later(connection, broker.synced).put(reply, mark)


def _rest(connection: RespConnection) -> None:
    """Go on in another turn: if the disk is behind, when it has caught up."""
    broker = connection.broker
    mark = connection.engine.log.mark()
    if broker.is_behind() and mark > broker.journal.written:
        connection.loading = True
        _Later(connection, broker.written).put(b"", mark)
    else:
        connection.rest()


class _Later(Aside):
    """A reply, or the next portion of one, that waits for the disk where others need not."""

    def __init__(self, connection: RespConnection, milestone: Milestone) -> None:
        super().__init__(connection.broker, connection.outbox, milestone)
        self._connection = connection

    def release(self, mark: i64) -> None:
        super().release(mark)
        connection = self._connection
        if not self.waits() and not connection.closed:
            connection.loading = False
            if not connection.is_working():
                connection.end_late()
            connection.go_on()


# Reading


def _read(connection: RespConnection, args: list[bytes]) -> None:
    name = _consumer_name(args[1])
    number = integer(args[2])
    start = _within(args[3], "the place", 0, MAX_BATCH)
    count = _within(args[4], "the count", 1, MAX_READ)
    connection.begin_work(_Read(name, number, start, count))


class _Read(Work):
    """The jobs at some places of a batch, as many of them as one reply takes.

    A place stands for nothing if its job is not the consumer's any more, so that it can be seen
    how far the reply goes.
    """

    def __init__(self, name: str, number: i64, start: i64, count: i64) -> None:
        self._name = name
        self._number = number
        self._at = start
        self._end = start + count
        self._parts: list[bytes] = []
        self._size: i64 = 0
        self._owner: i64 = 0
        self._deadline: i64 = 0
        self._job: Job | None = None  # whose payload was not in memory
        self._payload: bytes | None = None  # of that one, once it has been read back

    def step(self, connection: RespConnection) -> bool:
        _check_batch(connection, self._name)
        count = min(self._end - self._at, _AT_ONCE)
        engine = connection.engine
        jobs = engine.read_batch(self._name, self._number, self._at, count, connection.now)
        self._owner = _same_owner(connection, self._name, self._owner)
        consumer = engine.consumer(self._name)
        self._deadline = consumer.deadline if consumer is not None else 0
        for job in jobs:
            if self._size >= MAX_BYTES:
                break
            if not self._add(connection, job):
                return False
        if self._at < self._end and len(jobs) == count and self._size < MAX_BYTES:
            connection.rest()
            return False
        connection.reply(array(self._parts))
        return True

    def _add(self, connection: RespConnection, job: Job | None) -> bool:
        """Show a job; False if its payload has to be read back first."""
        if job is None:
            self._take(connection.nil())
            return True
        payload = self._payload if job is self._job else None
        if payload is None:
            payload = connection.broker.payload(job)
        if payload is None:
            self._job = job
            self._payload = None
            connection.read_back(job.payload_at, job.payload_size, self._loaded)
            return False
        self._job = None
        self._payload = None
        self._take(_show(connection, job, payload, self._deadline))
        return True

    def _loaded(self, payload: bytes) -> None:
        """The next step shows it, unless the job was ended meanwhile."""
        self._payload = payload

    def _take(self, part: bytes) -> None:
        self._parts.append(part)
        self._size += len(part)
        self._at += 1


def _show(connection: RespConnection, job: Job, payload: bytes, until: i64) -> bytes:
    """As JOB.TAKE shows it, and what a table of jobs has beside that.

    The lease may be one of an earlier run of the server.
    """
    lease = job.lease
    assert lease is not None
    queue = job.queue.utf8
    if connection.prefix and queue.startswith(connection.prefix):
        queue = connection.bare(queue)
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
    name = _consumer_name(args[1])
    upto = _within(args[2], "the batch", 0, MAX_INT)
    holder = _name(args[3], "holder") if len(args) > 3 else ""
    connection.begin_work(_Ack(name, upto, holder))


class _Ack(Work):
    def __init__(self, name: str, upto: i64, holder: str) -> None:
        self._name = name
        self._upto = upto
        self._holder = holder
        self._owner: i64 = 0

    def step(self, connection: RespConnection) -> bool:
        engine = connection.engine
        _check_batch(connection, self._name)
        _check_claim(connection, self._name, self._holder)
        self._owner = _same_owner(connection, self._name, self._owner)
        if not engine.ack_batch(self._name, self._upto, connection.job_origin, connection.now):
            _rest(connection)
            return False
        connection.reply(OK)
        return True


def _drop(connection: RespConnection, args: list[bytes]) -> None:
    connection.begin_work(_Drop(_consumer_name(args[1])))


class _Drop(Work):
    def __init__(self, name: str) -> None:
        self._name = name
        self._owner: i64 = 0

    def step(self, connection: RespConnection) -> bool:
        engine = connection.engine
        consumer = engine.consumer(self._name)
        if self._owner and (consumer is None or consumer.owner != self._owner):
            connection.reply(OK)  # somebody else was quicker
            return True
        _check_batch(connection, self._name)
        self._owner = consumer.owner if consumer is not None else 0
        if not engine.drop_consumer(self._name, connection.job_origin, connection.now):
            _rest(connection)
            return False
        connection.reply(OK)
        return True
