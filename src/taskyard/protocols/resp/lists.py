"""Redis's list commands: a list is a queue, of which the jobs that are ready are seen.

A pop finishes the job with success; a move keeps the job and changes its queue.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from taskyard.access.principal import INSPECT, PUSH, TAKE
from taskyard.engine.model.effects import FetchRequest
from taskyard.engine.model.job import FOREVER, READY, Job, NewJob
from taskyard.protocols.resp.answers import FetchReply
from taskyard.protocols.resp.connection import Resp, RespConnection
from taskyard.protocols.resp.portions import (
    MAX_REPLY,
    PayloadListReader,
    PopMany,
    RemoveByPayload,
    SinglePayloadReader,
)
from taskyard.protocols.resp.values import (
    EMPTY,
    SYNTAX,
    ZERO,
    CommandError,
    check_count,
    number_reply,
    parse_integer,
    parse_timeout,
    resolve_range,
)

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
