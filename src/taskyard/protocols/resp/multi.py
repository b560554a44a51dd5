"""MULTI and EXEC: commands that are carried out one after the other, with one array of replies.

Nobody comes in between, except while one of them works in portions or reads from disk. What
would wait for a job does not.
"""

from __future__ import annotations

from taskyard.access.principal import Denied
from taskyard.protocols.resp.command import Batch
from taskyard.protocols.resp.connection import Resp, RespConnection
from taskyard.protocols.resp.values import OK, Refused


def add_commands(resp: Resp) -> None:
    resp.add(b"MULTI", _multi, 1, 1, at_once=True, always=True)
    resp.add(b"EXEC", _exec, 1, 1, at_once=True, always=True)
    resp.add(b"DISCARD", _discard, 1, 1, at_once=True, always=True)


def _multi(connection: RespConnection, args: list[bytes]) -> None:
    if connection.batch is not None:
        raise Refused("ERR MULTI calls can not be nested")
    if connection.unknown:  # nothing is kept for such a client
        raise Denied("log in first")
    connection.batch = Batch(connection.resp.batch_limit)
    connection.send(OK, 0)


def _exec(connection: RespConnection, args: list[bytes]) -> None:
    batch = connection.batch
    if batch is None:
        raise Refused("ERR EXEC without MULTI")
    connection.batch = None
    if batch.too_much:
        raise Refused(f"EXECABORT Transaction discarded because of: {batch.too_much}")
    if batch.broken:
        raise Refused("EXECABORT Transaction discarded because of previous errors.")
    connection.send(b"*%d\r\n" % len(batch.commands), 0)
    connection.run_batch(batch)


def _discard(connection: RespConnection, args: list[bytes]) -> None:
    if connection.batch is None:
        raise Refused("ERR DISCARD without MULTI")
    connection.batch = None
    connection.send(OK, 0)
