"""Taskyard's own commands for single jobs: push with options, take, end or extend a lease, result.

A lease is named by its token (job, boot of the server, attempt), so that it can be finished from
any connection, and no longer once it is over. `batches` has the commands for many jobs.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from taskyard.access.principal import INSPECT, PUSH, TAKE
from taskyard.engine.model.events import DuplicateJob, FetchRequest, TaskyardError
from taskyard.engine.model.job import (
    BACKOFF_DEFAULT,
    BACKOFF_EXPONENTIAL,
    DELAYED,
    FAILED,
    FAILS_DEFAULT,
    GONE,
    MAX_BLOCKERS,
    MAX_TRIES,
    MAX_TTR,
    SUCCEEDED,
    Job,
    NewJob,
    Policy,
)
from taskyard.engine.model.queue import Queue
from taskyard.engine.operations.finish import BY_POLICY, NEVER
from taskyard.protocols.resp.connection import FetchReply, Resp, RespConnection, ResultReply
from taskyard.protocols.resp.lists import MAX_REPLY, PayloadListReader
from taskyard.protocols.resp.wire import (
    EMPTY,
    MAX_INT,
    MAX_SPAN_MS,
    MILLISECOND,
    OK,
    SYNTAX,
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
from taskyard.protocols.text import (
    decimal,
    digit_count,
    number_at,
    parse_uid,
    put_decimal,
    show_uid,
)

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

MAX_TAKEN: Final = 1000  # jobs of one JOB.TAKE
_TAKE_OPTIONS: Final = OptionNames("JOB.TAKE", ("COUNT", "WAIT", "TTR", "RANDOM", "BRIEF"))
_MAX_REUSED_BUFFER_BYTES: Final = 1_048_576  # bytes of an answer whose buffer is used again
# How a job begins in a brief answer, by the size of its ref: three numbers of at most 19 digits.
_BRIEF_HEADS: Final[list[bytes]] = [b"*3\r\n$%d\r\n" % size for size in range(3 * 19 + 3)]

NO_JOB: Final = "NOJOB there is no such job, or it is forgotten"
BAD_NAME: Final = "ERR a job is named by its id, a number, or by its uid, a UUID"

_RESULT_OPTIONS: Final = OptionNames("JOB.RESULT", ("WAIT",))

# How a job has ended.
_UNFINISHED: Final = 0
_SUCCEEDED: Final = 1
_FAILED: Final = 2
_UNKNOWN: Final = 3


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


# JOB.TAKE: leases of one job or many, shown in full or briefly


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


# JOB.RESULT: how a job has ended, now or when it does


def add_result_commands(resp: Resp) -> None:
    resp.add_command(b"JOB.RESULT", _result, 2, 4)


def _result(connection: RespConnection, args: list[bytes]) -> None:
    wait = 0
    options = OptionReader(_RESULT_OPTIONS, args, 2)
    word = options.next_option()
    if word == b"WAIT":
        wait = options.next_number("WAIT", 0, MAX_SPAN_MS)
    elif word:
        raise options.unknown_option()
    job = known_job(connection, args[1])
    principal = connection.principal
    if not principal.is_superuser:
        principal.check_permission_on_any_queue(INSPECT)
        if job is None or not principal.may(INSPECT, job.queue.name):
            raise CommandError(NO_JOB)  # another error would show in which queue it is
    if job is None:
        raise CommandError(NO_JOB)
    result = _JobResultReply(job)
    how = _outcome(job)
    if how == _UNKNOWN:
        raise CommandError(NO_JOB)
    if how == _UNFINISHED:
        connection.watch_job(job, wait * MILLISECOND, result)
    else:
        result.on_job_ended(connection, how == _SUCCEEDED, job.queue.name)


def known_job(connection: RespConnection, name: bytes) -> Job | None:
    """Return the job of an id or uid, alive or in the ring of recently finished jobs."""
    engine = connection.engine
    uid = parse_uid(name)
    if uid is not None:
        job = engine.job_by_uid(uid)
        return job if job is not None else engine.recent_by_uid(uid)
    id = parse_integer(name, BAD_NAME)
    next_id: int = engine.state.next_id
    return engine.state.jobs.get(id) if 0 < id < next_id else None


def _outcome(job: Job) -> i64:
    if job.state == GONE:
        return _SUCCEEDED if job.order_key else _UNKNOWN
    if job.state == SUCCEEDED:
        return _SUCCEEDED
    extra = job.extras
    if job.state == FAILED or (extra is not None and extra.reason):
        return _FAILED  # with a reason, and still there: in the queue for those that have failed
    return _UNFINISHED


def _may_see_result(connection: RespConnection, queue: str) -> bool:
    """Whether the client may see the end of a job that is in this queue by then: the job may have
    moved since the request, and the permissions may have changed.
    """
    principal = connection.principal
    return principal.is_superuser or principal.may(INSPECT, queue)


class _JobResultReply(ResultReply):
    """How a job has ended: its id, state, whether it succeeded, its result, its last error."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._queue = ""  # where it was at its end
        self._succeeded = False
        self._connection: RespConnection | None = None

    def on_job_ended(self, connection: RespConnection, succeeded: bool, queue: str) -> None:
        self._queue = queue
        self._succeeded = succeeded
        at: i64 = 0
        size: i64 = 0
        extra = self._job.extras
        if extra is not None:
            at = extra.result_at if succeeded else extra.error_at
            size = extra.result_size if succeeded else extra.error_size
        if size and at < connection.broker.journal.first_base:
            connection.refuse(NO_JOB)  # compaction has removed what the ring still refers to
            return
        data = connection.broker.journal.read_blob(at, size)
        if data is not None:
            self._send_result(connection, data)
        else:
            self._connection = connection
            connection.read_from_disk(at, size, self._on_result_read)

    def on_job_gone(self, connection: RespConnection) -> None:
        connection.refuse(NO_JOB)

    def on_timeout(self, connection: RespConnection) -> None:
        how = _outcome(self._job)  # it may have ended at that very moment
        queue = self._job.queue.name
        if how == _UNFINISHED and _may_see_result(connection, queue):
            connection.send_nil(b"*-1\r\n")
        elif how in (_UNFINISHED, _UNKNOWN):
            self.on_job_gone(connection)
        else:
            self.on_job_ended(connection, how == _SUCCEEDED, queue)

    def _on_result_read(self, data: bytes | None) -> None:
        connection = self._connection
        assert connection is not None
        if data is not None:
            try:
                connection.check_alive()
            except TaskyardError as error:
                connection.refuse(error_text(error))
            else:
                self._send_result(connection, data)
        elif self._job.state == GONE:
            connection.refuse(NO_JOB)
        else:
            connection.discard_input()
            connection.reply_queue.abort()  # the disk cannot be read

    def _send_result(self, connection: RespConnection, data: bytes) -> None:
        if not _may_see_result(connection, self._queue):
            connection.refuse(NO_JOB)
            return
        job = self._job
        nil = connection.nil()
        said = bulk(data) if data else nil
        if self._succeeded:
            how = [bulk(b"succeeded"), number_reply(1), said, nil]
        else:
            extra = job.extras
            if not data and extra is not None:
                said = bulk(extra.reason.encode())
            how = [bulk(b"failed"), number_reply(0), nil, said]
        connection.reply(array([number_reply(job.id), *how]))
