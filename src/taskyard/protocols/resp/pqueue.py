"""Pqueue: items with scores, of which the highest leaves first.

An item is a job with a key; its score is its priority. Whatever else is in the queue, NEXT gives
as well.
"""

from __future__ import annotations

from typing import Final

from taskyard.access.principal import INSPECT, PUSH, TAKE
from taskyard.engine.model.effects import FetchRequest
from taskyard.engine.model.errors import InvalidOption
from taskyard.engine.model.job import LIMITED, READY, Job
from taskyard.protocols.resp.answers import ChunkedCommand, FetchReply
from taskyard.protocols.resp.connection import Resp, RespConnection
from taskyard.protocols.resp.server import info_text
from taskyard.protocols.resp.values import (
    CommandError,
    array,
    bulk,
    number_reply,
    parse_integer,
    simple_string,
)


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
