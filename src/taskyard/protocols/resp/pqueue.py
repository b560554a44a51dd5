"""Pqueue: items with scores, of which the highest leaves first.

An item is a job with a key; its score is its priority. Whatever else is in the queue, NEXT gives
as well.
"""

from __future__ import annotations

from typing import Final

from taskyard.access.principal import INSPECT, PUSH, TAKE
from taskyard.engine.model.effects import Take
from taskyard.engine.model.errors import InvalidOption
from taskyard.engine.model.job import LIMITED, READY, Job
from taskyard.protocols.resp.answers import Answer, Work
from taskyard.protocols.resp.connection import Resp, RespConnection
from taskyard.protocols.resp.server import info_text
from taskyard.protocols.resp.values import Refused, array, bulk, integer, number_reply, simple


def add_commands(resp: Resp) -> None:
    resp.add(b"UPDATE", _update, 2, 3)
    resp.add(b"NEXT", _next, 1, 1)
    resp.add(b"PEEK", _peek, 1, 2)
    resp.add(b"SCORE", _score, 2, 2)
    resp.add(b"INFO", _info, 1, 0)


def _update(connection: RespConnection, args: list[bytes]) -> None:
    key = args[1]
    resp = connection.resp
    delta = integer(args[2]) if len(args) == 3 else 1
    if not key or key.split() != [key]:
        raise Refused("ERR invalid item key: it must not be empty or have spaces or newlines")
    connection.require(PUSH, connection.items)
    resp.updates += 1
    try:
        score = connection.engine.update_keyed(
            connection.items, key, delta, resp.policy, connection.item_origin, connection.now
        )
    except InvalidOption as error:
        if error.option == "priority":
            raise Refused("ERR increment or decrement would overflow") from error
        raise
    connection.reply(number_reply(score))


def _next(connection: RespConnection, args: list[bytes]) -> None:
    connection.require(TAKE, connection.items)
    queue = connection.items_utf8
    take = Take([queue], connection.owner, connection.item_origin, pop=True)
    connection.take(take, 0, _ITEM)


class _Item(Answer):
    def give(self, connection: RespConnection, job: Job, payload: bytes) -> None:
        connection.reply(simple(payload))

    def nothing(self, connection: RespConnection) -> None:
        connection.send_nothing()


_ITEM: Final = _Item()


def _peek(connection: RespConnection, args: list[bytes]) -> None:
    connection.require(INSPECT, connection.items)
    if len(args) == 2:
        if _item(connection, args[1]) is None:
            connection.send_nothing()
        else:
            connection.reply(simple(args[1]))
        return
    job = connection.engine.peek(connection.items_utf8)
    if job is None:
        connection.send_nothing()
    else:
        connection.begin_work(_Show(job))


class _Show(Work):
    """Answer with a job's payload, without taking it."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._connection: RespConnection | None = None

    def step(self, connection: RespConnection) -> bool:
        payload = connection.broker.payload(self._job)
        if payload is None:
            self._connection = connection
            connection.read_back(self._job.payload_at, self._job.payload_size, self._loaded)
            return False
        connection.reply(simple(payload))
        return True

    def _loaded(self, payload: bytes) -> None:
        connection = self._connection
        assert connection is not None
        connection.reply(simple(payload))
        connection.work = None


def _score(connection: RespConnection, args: list[bytes]) -> None:
    connection.require(INSPECT, connection.items)
    job = _item(connection, args[1])
    if job is None:
        connection.send_nothing()
    else:
        connection.reply(number_reply(job.priority))


def _item(connection: RespConnection, key: bytes) -> Job | None:
    """The queued item with this key."""
    queue = connection.engine.queue(connection.items_utf8)
    keys = queue.keys if queue is not None else None
    job = keys.get(key) if keys is not None else None
    return job if job is not None and job.state in (READY, LIMITED) else None


def _info(connection: RespConnection, args: list[bytes]) -> None:
    if len(args) > 1:
        connection.require(INSPECT, "")
        connection.reply(bulk(info_text(connection.resp, args[1:]).encode()))
        return
    connection.require(INSPECT, connection.items)
    resp = connection.resp
    queue = connection.engine.queue(connection.items_utf8)
    pools = queue.ready.pools() if queue is not None else 0
    items = queue.ready.size if queue is not None else 0
    parts: list[bytes] = []
    for name, number in (
        (b"pools", pools),
        (b"updates", resp.updates),
        (b"connected", resp.traffic.clients),
        (b"connections", resp.traffic.connections),
        (b"ops", resp.ops),
        (b"items", items),
    ):
        parts.append(bulk(name))
        parts.append(number_reply(number))
    connection.reply(array(parts))
