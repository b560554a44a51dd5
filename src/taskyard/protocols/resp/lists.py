"""Redis's list commands, and those of Pqueue.

A list is a queue, of which the jobs that are ready are seen. A pop finishes the job with success; a
move keeps the job and changes its queue.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from taskyard.access.principal import INSPECT, PUSH, TAKE
from taskyard.engine.model.events import FetchRequest, InvalidOption, TaskyardError
from taskyard.engine.model.job import FOREVER, GONE, LIMITED, MIN_PRIORITY, READY, Job, NewJob
from taskyard.engine.model.queue import Queue
from taskyard.protocols.resp.connection import ChunkedCommand, FetchReply, Resp, RespConnection
from taskyard.protocols.resp.server import info_text
from taskyard.protocols.resp.wire import (
    EMPTY,
    SYNTAX,
    ZERO,
    CommandError,
    array,
    bulk,
    check_count,
    number_reply,
    parse_integer,
    parse_timeout,
    resolve_range,
    simple_string,
)

MAX_REPLY: Final = 64 * 1_048_576
CHUNK_JOBS: Final = 256

MAX_VALUES: Final = 10_000  # of one push, which is a transaction

_MAX_CACHED_POP_ARGS: Final = 32  # arguments of a pop; longer ones are read anew each time

_OUT_OF_RANGE: Final = "ERR value is out of range, must be positive"


def add_list_commands(resp: Resp) -> None:
    resp.add_command(b"RPUSH", _rpush, 3, 0)
    resp.add_command(b"LPUSH", _lpush, 3, 0)
    resp.add_command(b"LPOP", _lpop, 2, 3)
    resp.add_command(b"RPOP", _rpop, 2, 3)
    resp.add_command(b"BLPOP", _blpop, 3, 0)
    resp.add_command(b"BRPOP", _brpop, 3, 0)
    resp.add_command(b"LLEN", _llen, 2, 2)
    resp.add_command(b"LRANGE", _lrange, 4, 4)
    resp.add_command(b"LINDEX", _lindex, 3, 3)
    resp.add_command(b"LREM", _lrem, 4, 4)
    resp.add_command(b"LMOVE", _lmove, 5, 5)
    resp.add_command(b"BLMOVE", _blmove, 6, 6)
    resp.add_command(b"RPOPLPUSH", _rpoplpush, 3, 3)
    resp.add_command(b"BRPOPLPUSH", _brpoplpush, 4, 4)


# Pushing


def _rpush(connection: RespConnection, args: list[bytes]) -> None:
    _push(connection, args, False)


def _lpush(connection: RespConnection, args: list[bytes]) -> None:
    _push(connection, args, True)


def _push(connection: RespConnection, args: list[bytes], front: bool) -> None:
    name = connection.queue_name(args[1])
    connection.require_permission(PUSH, name)
    queue = connection.list_queue(args[1])
    before: i64 = 0 if queue is None else queue.ready.size
    policy = connection.resp.policy
    count: i64 = len(args) - 2
    if count == 1:
        new = NewJob(name, name, args[2], policy, front=front)
        connection.engine.push(new, connection.origin, connection.now)
    else:
        if count > MAX_VALUES:
            raise CommandError(f"ERR too many values: one push takes at most {MAX_VALUES}")
        new = NewJob(name, name, b"", policy, front=front)
        connection.engine.push_all(
            new, args[2:], connection.owner, connection.origin, connection.now
        )
    # Some may be delivered to waiting clients already.
    connection.reply(number_reply(before + count))


# Popping


def _lpop(connection: RespConnection, args: list[bytes]) -> None:
    _pop(connection, args, False)


def _rpop(connection: RespConnection, args: list[bytes]) -> None:
    _pop(connection, args, True)


def _pop(connection: RespConnection, args: list[bytes], last: bool) -> None:
    count: int = 1
    if len(args) == 3:
        count = parse_integer(args[2], _OUT_OF_RANGE)
        if count < 0:
            raise CommandError(_OUT_OF_RANGE)
    connection.require_key_permission(TAKE, args[1])
    queue = connection.list_queue(args[1])
    if queue is None or not queue.ready.size:
        connection.send_nil(b"$-1\r\n" if len(args) == 2 else b"*-1\r\n")
    elif len(args) == 2:
        request = FetchRequest(
            [queue.utf8], connection.owner, connection.origin, pop=True, last=last
        )
        connection.fetch_and_reply(request, 0, _PAYLOAD_REPLY)
    elif not count:
        connection.reply(EMPTY)
    else:
        connection.start_chunked(PopMany(queue, min(count, queue.ready.size), last))


def _blpop(connection: RespConnection, args: list[bytes]) -> None:
    _pop_or_wait(connection, args, False)


def _brpop(connection: RespConnection, args: list[bytes]) -> None:
    _pop_or_wait(connection, args, True)


def _pop_or_wait(connection: RespConnection, args: list[bytes], last: bool) -> None:
    if args != connection.last_pop:
        wait = parse_timeout(args[-1])
        check_count(len(args) - 2)
        names = [connection.queue_name(key).encode() for key in args[1:-1]]
        request = FetchRequest(
            list(dict.fromkeys(names)), connection.owner, connection.origin, pop=True, last=last
        )
        if len(args) > _MAX_CACHED_POP_ARGS:
            _check_and_pop(connection, args, request, wait or FOREVER)
            return
        connection.last_pop = args
        connection.last_request = request
        connection.last_wait = wait or FOREVER
    _check_and_pop(connection, args, connection.last_request, connection.last_wait)


def _check_and_pop(
    connection: RespConnection, args: list[bytes], request: FetchRequest, wait: i64
) -> None:
    if not connection.principal.is_superuser:
        for key in args[1:-1]:
            connection.require_key_permission(TAKE, key)
    if connection.engine.state.values:
        for key in args[1:-1]:
            connection.list_queue(key)
            if connection.has_list(key):
                break
    connection.fetch_and_reply(request, wait, _KEY_AND_PAYLOAD_REPLY)


class _PayloadReply(FetchReply):
    """The payload alone."""

    def send_job(self, connection: RespConnection, job: Job, payload: bytes) -> None:
        connection.send_bulk(payload)

    def send_no_job(self, connection: RespConnection) -> None:
        connection.send_nil()


class _PayloadOrNilArrayReply(FetchReply):
    """The same for a move that may have waited, whose nil is encoded in another way."""

    def send_job(self, connection: RespConnection, job: Job, payload: bytes) -> None:
        connection.send_bulk(payload)


class _KeyAndPayloadReply(FetchReply):
    """The list's key and the payload."""

    def send_job(self, connection: RespConnection, job: Job, payload: bytes) -> None:
        key = connection.local_name(job.queue.utf8)
        head = b"*2\r\n$%d\r\n%b\r\n$%d\r\n" % (len(key), key, len(payload))
        connection.reply(b"".join([head, payload, b"\r\n"]))


_PAYLOAD_REPLY: Final = _PayloadReply()
_PAYLOAD_OR_NIL_ARRAY_REPLY: Final = _PayloadOrNilArrayReply()
_KEY_AND_PAYLOAD_REPLY: Final = _KeyAndPayloadReply()


# Looking


def _llen(connection: RespConnection, args: list[bytes]) -> None:
    connection.require_key_permission(INSPECT, args[1])
    queue = connection.list_queue(args[1])
    connection.reply(ZERO if queue is None else number_reply(queue.ready.size))


def _lrange(connection: RespConnection, args: list[bytes]) -> None:
    first = parse_integer(args[2])
    stop = parse_integer(args[3])
    connection.require_key_permission(INSPECT, args[1])
    queue = connection.list_queue(args[1])
    if queue is None:
        connection.reply(EMPTY)
        return
    start, count = resolve_range(first, stop, queue.ready.size)
    jobs = connection.engine.jobs_from(queue, READY, start, count) if count else []
    size: i64 = 0
    for job in jobs:
        size += job.payload_size
    if size > MAX_REPLY:
        raise CommandError(f"ERR the range has {size} bytes: ask for at most {MAX_REPLY} at a time")
    connection.start_chunked(PayloadListReader(jobs))


def _lindex(connection: RespConnection, args: list[bytes]) -> None:
    connection.require_key_permission(INSPECT, args[1])
    queue = connection.list_queue(args[1])
    if queue is None or not queue.ready.size:
        connection.send_nil()
        return
    index = parse_integer(args[2])
    size: int = queue.ready.size
    if index < 0:
        index += size
    if not 0 <= index < size:
        connection.send_nil()
        return
    connection.start_chunked(
        SinglePayloadReader(connection.engine.jobs_from(queue, READY, index, 1))
    )


# Removing


def _lrem(connection: RespConnection, args: list[bytes]) -> None:
    count = parse_integer(args[2])
    connection.require_key_permission(TAKE, args[1])
    queue = connection.list_queue(args[1])
    if queue is None or not queue.ready.size:
        connection.reply(ZERO)
    else:
        connection.start_chunked(RemoveByPayload(queue, args[3], count))


# Moving


def _lmove(connection: RespConnection, args: list[bytes]) -> None:
    last = _is_right(args[3])
    front = not _is_right(args[4])
    _move(connection, args[1], args[2], last, front, 0, _PAYLOAD_REPLY)


def _blmove(connection: RespConnection, args: list[bytes]) -> None:
    last = _is_right(args[3])
    front = not _is_right(args[4])
    wait = parse_timeout(args[5]) or FOREVER
    _move(connection, args[1], args[2], last, front, wait, _PAYLOAD_OR_NIL_ARRAY_REPLY)


def _rpoplpush(connection: RespConnection, args: list[bytes]) -> None:
    _move(connection, args[1], args[2], True, True, 0, _PAYLOAD_REPLY)


def _brpoplpush(connection: RespConnection, args: list[bytes]) -> None:
    wait = parse_timeout(args[3]) or FOREVER
    _move(connection, args[1], args[2], True, True, wait, _PAYLOAD_OR_NIL_ARRAY_REPLY)


def _is_right(word: bytes) -> bool:
    side = word.upper()
    if side == b"RIGHT":
        return True
    if side == b"LEFT":
        return False
    raise CommandError(SYNTAX)


def _move(
    connection: RespConnection,
    source: bytes,
    target: bytes,
    last: bool,
    front: bool,
    wait: i64,
    reply: FetchReply,
) -> None:
    connection.require_key_permission(TAKE, source)
    connection.require_key_permission(PUSH, target)
    queue = connection.list_queue(source)
    if queue is not None and queue.ready.size:
        connection.list_queue(target)
    elif not wait:
        reply.send_no_job(connection)
        return
    request = FetchRequest(
        [connection.queue_name(source).encode()],
        connection.owner,
        connection.origin,
        last=last,
        move_to=connection.queue_name(target),
        front=front,
    )
    connection.fetch_and_reply(request, wait, reply)


# Pqueue: items with scores, of which the highest leaves first. An item is a job with a key; its
# score is its priority. Whatever else is in the queue, NEXT gives as well.


def add_item_commands(resp: Resp) -> None:
    resp.add_command(b"UPDATE", _update, 2, 3)
    resp.add_command(b"NEXT", _next, 1, 1)
    resp.add_command(b"PEEK", _peek, 1, 2)
    resp.add_command(b"SCORE", _score, 2, 2)
    resp.add_command(b"INFO", _info, 1, 0)


def _update(connection: RespConnection, args: list[bytes]) -> None:
    key = args[1]
    resp = connection.resp
    delta = parse_integer(args[2]) if len(args) == 3 else 1
    if not key or key.split() != [key]:
        raise CommandError("ERR invalid item key: it must not be empty or have spaces or newlines")
    connection.require_permission(PUSH, connection.item_queue)
    resp.updates += 1
    try:
        score = connection.engine.update_keyed(
            connection.item_queue, key, delta, resp.policy, connection.item_origin, connection.now
        )
    except InvalidOption as error:
        if error.option == "priority":
            raise CommandError("ERR increment or decrement would overflow") from error
        raise
    connection.reply(number_reply(score))


def _next(connection: RespConnection, args: list[bytes]) -> None:
    connection.require_permission(TAKE, connection.item_queue)
    queue = connection.item_queue_utf8
    request = FetchRequest([queue], connection.owner, connection.item_origin, pop=True)
    connection.fetch_and_reply(request, 0, _ITEM_REPLY)


class _ItemReply(FetchReply):
    def send_job(self, connection: RespConnection, job: Job, payload: bytes) -> None:
        connection.reply(simple_string(payload))

    def send_no_job(self, connection: RespConnection) -> None:
        connection.send_nil()


_ITEM_REPLY: Final = _ItemReply()


def _peek(connection: RespConnection, args: list[bytes]) -> None:
    connection.require_permission(INSPECT, connection.item_queue)
    if len(args) == 2:
        if _find_item(connection, args[1]) is None:
            connection.send_nil()
        else:
            connection.reply(simple_string(args[1]))
        return
    job = connection.engine.peek(connection.item_queue_utf8)
    if job is None:
        connection.send_nil()
    else:
        connection.start_chunked(_PeekItem(job))


class _PeekItem(ChunkedCommand):
    """Answer with a job's payload, without taking it."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._connection: RespConnection | None = None

    def run_chunk(self, connection: RespConnection) -> bool:
        payload = connection.broker.cached_payload(self._job)
        if payload is None:
            self._connection = connection
            connection.read_for_command(
                self._job.payload_at, self._job.payload_size, self._on_payload_read
            )
            return False
        connection.reply(simple_string(payload))
        return True

    def _on_payload_read(self, payload: bytes) -> None:
        connection = self._connection
        assert connection is not None
        connection.reply(simple_string(payload))
        connection.chunked_command = None


def _score(connection: RespConnection, args: list[bytes]) -> None:
    connection.require_permission(INSPECT, connection.item_queue)
    job = _find_item(connection, args[1])
    if job is None:
        connection.send_nil()
    else:
        connection.reply(number_reply(job.priority))


def _find_item(connection: RespConnection, key: bytes) -> Job | None:
    """The queued item with this key."""
    queue = connection.engine.queue(connection.item_queue_utf8)
    keys = queue.keys if queue is not None else None
    job = keys.get(key) if keys is not None else None
    return job if job is not None and job.state in (READY, LIMITED) else None


def _info(connection: RespConnection, args: list[bytes]) -> None:
    if len(args) > 1:
        connection.require_permission(INSPECT, "")
        connection.reply(bulk(info_text(connection.resp, args[1:]).encode()))
        return
    connection.require_permission(INSPECT, connection.item_queue)
    resp = connection.resp
    queue = connection.engine.queue(connection.item_queue_utf8)
    pools = queue.ready.priority_count() if queue is not None else 0
    items = queue.ready.size if queue is not None else 0
    parts: list[bytes] = []
    for name, number in (
        (b"pools", pools),
        (b"updates", resp.updates),
        (b"connected", resp.stats.open_connections),
        (b"connections", resp.stats.total_connections),
        (b"ops", resp.ops),
        (b"items", items),
    ):
        parts.append(bulk(name))
        parts.append(number_reply(number))
    connection.reply(array(parts))


# Work on long lists in chunks, so that other connections do not wait. It reads payloads that are on
# disk only.


class PopMany(ChunkedCommand):
    """Pops jobs from one end, and answers with their payloads.

    A job is popped when its payload is at hand, because the payload of a popped job may be removed
    from disk; and those of a chunk are popped together, so that no crash separates them.
    """

    def __init__(self, queue: Queue, count: i64, last: bool) -> None:
        self._name = queue.utf8
        self._left = count
        self._last = last
        self._parts: list[bytes] = []
        self._size: i64 = 0
        self._chunk: list[Job] = []  # that will be popped next, unless others are quicker
        self._at: i64 = 0  # in it
        self._payloads: dict[int, bytes] = {}

    def run_chunk(self, connection: RespConnection) -> bool:
        if not self._chunk:
            self._select_chunk(connection)
        if not self._load_payloads(connection):
            return False
        self._pop_chunk(connection)
        if self._left:
            return False
        if self._parts:
            connection.reply(array(self._parts))
        else:
            connection.send_nil(b"*-1\r\n")
        return True

    def _select_chunk(self, connection: RespConnection) -> None:
        queue = connection.engine.queue(self._name)
        if queue is None:
            return
        ready = queue.ready
        count = min(self._left, CHUNK_JOBS)
        jobs = ready.slice(max(ready.size - count, i64(0)) if self._last else i64(0), count)
        if self._last:
            jobs.reverse()
        size = self._size
        for job in jobs:
            if size >= MAX_REPLY:
                break
            size += job.payload_size
            self._chunk.append(job)

    def _load_payloads(self, connection: RespConnection) -> bool:
        """Get the payloads of the chunk; False if one has to be read from disk first."""
        while self._at < len(self._chunk):
            job = self._chunk[self._at]
            payload = connection.broker.cached_payload(job)
            if payload is not None:
                self._payloads[job.id] = payload
            elif job.state != GONE:
                connection.read_for_command(job.payload_at, job.payload_size, self._on_payload_read)
                return False
            self._at += 1
        return True

    def _on_payload_read(self, payload: bytes) -> None:
        self._payloads[self._chunk[self._at].id] = payload
        self._at += 1

    def _pop_chunk(self, connection: RespConnection) -> None:
        while self._left:
            job = self._next_job(connection)
            if job is None or self._size >= MAX_REPLY:
                self._left = 0
                break
            payload = self._payloads.pop(job.id, None)
            if payload is None:
                break  # behind the chunk, or it has just been pushed: scan again
            try:
                connection.engine.pop(self._name, self._last, connection.origin, connection.now)
            except TaskyardError:
                if not self._parts:
                    raise
                self._left = 0  # those that are popped are given all the same
                break
            self._parts.append(bulk(payload))
            self._size += len(payload)
            self._left -= 1
        self._chunk = []
        self._payloads = {}
        self._at = 0

    def _next_job(self, connection: RespConnection) -> Job | None:
        return connection.engine.next_pop(self._name, self._last, connection.now)


class PayloadListReader(ChunkedCommand):
    """Answer with the payloads of jobs; some may have to be read back from disk first."""

    def __init__(self, jobs: list[Job]) -> None:
        self.jobs = jobs
        self._at: i64 = 0
        self._parts: list[bytes] = []
        self._connection: RespConnection | None = None

    def encode_job(self, connection: RespConnection, job: Job, payload: bytes) -> bytes:
        """A job as it stands in the reply; b"": not at all."""
        return bulk(payload)

    def send_reply(self, connection: RespConnection, reply: bytes) -> None:
        connection.reply(reply)

    def run_chunk(self, connection: RespConnection) -> bool:
        jobs = self.jobs
        end = min(self._at + CHUNK_JOBS, len(jobs))
        while self._at < end:
            job = jobs[self._at]
            payload = connection.broker.cached_payload(job)
            if payload is not None:
                self._add_job(connection, job, payload)
            elif job.state == GONE:  # it was taken meanwhile, and may be gone from disk as well
                self._at += 1
            else:
                self._connection = connection
                connection.read_for_command(job.payload_at, job.payload_size, self._on_payload_read)
                return False
        if self._at < len(jobs):
            return False
        self.send_reply(connection, self.encode_reply())
        return True

    def encode_reply(self) -> bytes:
        return array(self._parts)

    def _on_payload_read(self, payload: bytes) -> None:
        connection = self._connection
        assert connection is not None
        self._add_job(connection, self.jobs[self._at], payload)

    def _add_job(self, connection: RespConnection, job: Job, payload: bytes) -> None:
        shown = self.encode_job(connection, job, payload)
        if shown:
            self._parts.append(shown)
        self._at += 1


class SinglePayloadReader(PayloadListReader):
    def run_chunk(self, connection: RespConnection) -> bool:
        job = self.jobs[0]
        if self._parts:
            connection.reply(self._parts[0])
            return True
        payload = connection.broker.cached_payload(job)
        if payload is None:
            self._connection = connection
            connection.read_for_command(job.payload_at, job.payload_size, self._on_payload_read)
            return False
        connection.send_bulk(payload)
        return True


class RemoveByPayload(ChunkedCommand):
    """Finishes ready jobs with exactly this payload, from the front, or from the back if negative.

    Linear in the distance that it has to scan. From the back it goes through the jobs that were
    there when it began; from the front it continues behind the last job.
    """

    def __init__(self, queue: Queue, payload: bytes, count: int) -> None:
        self._queue = queue
        self._payload = payload
        self._wanted: i64 = min(abs(count), FOREVER) or FOREVER
        self._removed: i64 = 0
        self._chunk: list[Job] = []
        self._at: i64 = 0  # in the chunk
        self._backwards = count < 0
        self._all: list[Job] = []
        if self._backwards:
            self._all = queue.ready.slice(0, queue.ready.size)
        self._priority: i64 = queue.ready.walk_start_priority()
        self._position: i64 = MIN_PRIORITY
        self._id: i64 = 0
        self._connection: RespConnection | None = None

    def run_chunk(self, connection: RespConnection) -> bool:
        if self._at == len(self._chunk) and not self._load_next_chunk():
            connection.reply(number_reply(self._removed))
            return True
        portion = self._chunk
        while self._at < len(portion):
            job = portion[self._at]
            if job.payload_size != len(self._payload):
                self._at += 1
                continue
            payload = connection.broker.cached_payload(job)
            if payload is None:
                self._connection = connection
                connection.read_for_command(job.payload_at, job.payload_size, self._on_payload_read)
                return False
            self._remove_if_equal(connection, job, payload)
        return False

    def _on_payload_read(self, payload: bytes) -> None:
        connection = self._connection
        assert connection is not None
        self._remove_if_equal(connection, self._chunk[self._at], payload)

    def _remove_if_equal(self, connection: RespConnection, job: Job, payload: bytes) -> None:
        self._at += 1
        if payload != self._payload or job.state != READY or job.queue is not self._queue:
            return
        connection.engine.remove_from_list(job.id, connection.origin, connection.now)
        self._removed += 1
        if self._removed == self._wanted:
            self._wanted = 0
            self._at = len(self._chunk)

    def _load_next_chunk(self) -> bool:
        if not self._wanted:
            return False
        self._at = 0
        if self._backwards:
            self._chunk = self._all[-CHUNK_JOBS:]
            self._chunk.reverse()
            del self._all[-CHUNK_JOBS:]
        else:
            self._chunk = self._queue.ready.jobs_after(
                self._priority, self._position, self._id, CHUNK_JOBS
            )
        if not self._chunk:
            return False
        last = self._chunk[-1]
        self._priority = last.priority
        self._position = last.order_key
        self._id = last.id
        return True
