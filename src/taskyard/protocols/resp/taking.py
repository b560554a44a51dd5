"""JOB.TAKE: leases of one job or many, shown in full or briefly."""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from taskyard.access.principal import TAKE
from taskyard.engine.model.effects import FetchRequest
from taskyard.engine.model.job import Job
from taskyard.engine.model.queue import Queue
from taskyard.protocols.digits import decimal, digit_count, put_decimal
from taskyard.protocols.resp.answers import FetchReply
from taskyard.protocols.resp.connection import Resp, RespConnection
from taskyard.protocols.resp.jobs import MAX_TTR_MS
from taskyard.protocols.resp.portions import MAX_REPLY, PayloadListReader
from taskyard.protocols.resp.values import (
    EMPTY,
    MILLISECOND,
    SYNTAX,
    CommandError,
    array,
    bulk,
    check_count,
    number_reply,
    parse_integer,
)
from taskyard.protocols.resp.words import MAX_SPAN_MS, OptionNames, OptionReader
from taskyard.protocols.uids import show_uid

MAX_TAKEN: Final = 1000  # jobs of one JOB.TAKE
_TAKE_OPTIONS: Final = OptionNames("JOB.TAKE", ("COUNT", "WAIT", "TTR", "RANDOM", "BRIEF"))
_MAX_REUSED_BUFFER_BYTES: Final = 1_048_576  # bytes of an answer whose buffer is used again
# How a job begins in a brief answer, by the size of its ref: three numbers of at most 19 digits.
_BRIEF_HEADS: Final[list[bytes]] = [b"*3\r\n$%d\r\n" % size for size in range(3 * 19 + 3)]


def add_take_commands(resp: Resp) -> None:
    resp.add_command(b"JOB.TAKE", _take, 3, 0)


def _take(connection: RespConnection, args: list[bytes]) -> None:
    count = parse_integer(args[1])
    if not 1 <= count <= len(args) - 2:
        raise CommandError(SYNTAX)
    check_count(count)
    names = [connection.queue_name(key).encode() for key in args[2 : 2 + count]]
    for key in args[2 : 2 + count]:
        connection.require_key_permission(TAKE, key)
    options = OptionReader(_TAKE_OPTIONS, args, 2 + count)
    limit = 1
    wait = ttr = 0
    uniform = brief = False
    word = options.next_option()
    while word:
        if word == b"COUNT":
            limit = options.next_number("COUNT", 1, MAX_TAKEN)
        elif word == b"WAIT":
            wait = options.next_number("WAIT", 0, MAX_SPAN_MS)
        elif word == b"TTR":
            ttr = options.next_number("TTR", 1, MAX_TTR_MS)
        elif word == b"RANDOM":
            uniform = True
        elif word == b"BRIEF":
            brief = True
        else:
            raise options.unknown_option()
        word = options.next_option()
    request = FetchRequest(
        list(dict.fromkeys(names)),
        connection.owner,
        connection.job_origin,
        random_queue=uniform,
        ttr=ttr * MILLISECOND,
    )
    connection.fetch_and_reply(request, wait * MILLISECOND, _TakeReply(request, limit, brief))


class _TakeReply(FetchReply):
    """One job, and as many others as there are, up to a limit."""

    def __init__(self, request: FetchRequest, limit: i64, brief: bool) -> None:
        self._request = request
        self._limit = limit
        self._brief = brief

    def send_job(self, connection: RespConnection, job: Job, payload: bytes) -> None:
        if not _still_leased(connection, job):
            self.send_no_job(connection)
            return
        jobs = [job]
        if self._limit > 1:
            now = connection.broker.clock.now()
            room = MAX_REPLY - job.payload_size
            connection.engine.fetch_more(self._request, jobs, self._limit, room, now)
        if len(jobs) == 1:
            reply = b"*1\r\n" + self._encode_job(connection, job, payload)
            connection.send(reply, connection.broker.delivery_position(job))
        else:
            connection.start_chunked(
                _BriefJobsReader(connection, jobs) if self._brief else _TakenJobsReader(jobs)
            )

    def _encode_job(self, connection: RespConnection, job: Job, payload: bytes) -> bytes:
        if not self._brief:
            return _encode_job(connection, job, payload)
        brief = _BriefWriter(connection)
        brief.write_job(job, payload)
        return brief.finish()

    def send_no_job(self, connection: RespConnection) -> None:
        connection.current_command.no_result += 1
        connection.send(EMPTY, 0)


class _TakenJobsReader(PayloadListReader):
    def encode_job(self, connection: RespConnection, job: Job, payload: bytes) -> bytes:
        return _encode_job(connection, job, payload) if _still_leased(connection, job) else b""

    def send_reply(self, connection: RespConnection, reply: bytes) -> None:
        position: i64 = 0
        for job in self.jobs:
            position = max(position, connection.broker.delivery_position(job))
        connection.send(reply, position)


class _BriefJobsReader(_TakenJobsReader):
    """Writes one job behind the other, without making parts of the reply first."""

    def __init__(self, connection: RespConnection, jobs: list[Job]) -> None:
        super().__init__(jobs)
        self._writer = _BriefWriter(connection)
        self._unwritten: i64 = len(jobs)  # those that are not written
        self._head = b"*%d\r\n" % len(jobs)
        self._writer.out.write(self._head)

    def encode_job(self, connection: RespConnection, job: Job, payload: bytes) -> bytes:
        if _still_leased(connection, job):
            self._unwritten -= 1
            self._writer.write_job(job, payload)
        return b""

    def encode_reply(self) -> bytes:
        written = self._writer.finish()
        if not self._unwritten:
            return written
        return b"*%d\r\n" % (len(self.jobs) - self._unwritten) + written[len(self._head) :]


def _still_leased(connection: RespConnection, job: Job) -> bool:
    """Whether the lease is not over: it may have taken long to read the payload back."""
    lease = job.lease
    return lease is not None and lease.owner == connection.owner


def _encode_job(connection: RespConnection, job: Job, payload: bytes) -> bytes:
    engine = connection.engine
    queue = connection.local_name(job.queue.utf8)
    lease = job.lease
    deadline: i64 = lease.deadline if lease is not None else 0
    return array(
        [
            bulk(_lease_token(connection, job)),
            number_reply(job.id),
            bulk(show_uid(engine.uid_of(job))),
            bulk(queue),
            bulk(queue if job.name == job.queue.name else job.name.encode()),
            number_reply(job.attempts),
            number_reply(job.fails),
            number_reply(deadline // MILLISECOND),
            bulk(payload),
        ]
    )


class _BriefWriter:
    """Writes what a worker cannot do without: lease token, name and payload. In few pieces, since
    each of them costs about the same: what is before and behind the numbers is put together
    beforehand.
    """

    def __init__(self, connection: RespConnection) -> None:
        spare = connection.resp.spare_writer
        connection.resp.spare_writer = None
        self.out = BytesWriter() if spare is None else spare
        self._connection = connection
        self._boot = b"-%d-" % connection.engine.state.epoch
        # Of the last job, which most others are like:
        self._name: str | None = None
        self._queue: Queue | None = None
        self._leases: i64 = -1
        self._size: i64 = -1  # of its payload
        self._middle = b""  # what stands between its id and its payload
        self._token_suffix_size: i64 = 0  # how much of that is of its ref

    def write_job(self, job: Job, payload: bytes) -> None:
        if (
            i64(job.leases) != self._leases
            or len(payload) != self._size
            or job.queue is not self._queue
            or job.name is not self._name
        ):
            self._cache_layout(job, len(payload))
        out = self.out
        out.write(_BRIEF_HEADS[digit_count(job.id) + self._token_suffix_size])
        put_decimal(out, job.id)
        out.write(self._middle)
        out.write(payload)
        out.write(b"\r\n")

    def finish(self) -> bytes:
        """Return all that was written and free the buffer for the next reply."""
        written = self.out.getvalue()
        if len(written) <= _MAX_REUSED_BUFFER_BYTES:
            self.out.truncate(0)
            self._connection.resp.spare_writer = self.out
        return written

    def _cache_layout(self, job: Job, size: i64) -> None:
        queue = job.queue
        is_named = job.name != queue.name
        name = job.name.encode() if is_named else self._connection.local_name(queue.utf8)
        self._name = job.name
        self._queue = queue
        self._leases = i64(job.leases)
        self._size = size
        rest = self._boot + decimal(i64(job.leases))
        self._token_suffix_size = len(rest)
        self._middle = b"%b\r\n$%d\r\n%b\r\n$%d\r\n" % (rest, len(name), name, size)


def _lease_token(connection: RespConnection, job: Job) -> bytes:
    epoch = decimal(connection.engine.state.epoch)
    return b"".join([decimal(job.id), b"-", epoch, b"-", decimal(i64(job.leases))])
