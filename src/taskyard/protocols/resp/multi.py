"""MULTI and EXEC: commands that are executed one after the other, with one array of replies.

No other client is served in between, except while one of them works in chunks or reads from disk. A
command that would wait for a job does not.
"""

from __future__ import annotations

from taskyard.access.principal import Denied
from taskyard.protocols.resp.command import MultiTransaction
from taskyard.protocols.resp.connection import Resp, RespConnection
from taskyard.protocols.resp.values import OK, CommandError


def add_transaction_commands(resp: Resp) -> None:
    resp.add_command(b"MULTI", _multi, 1, 1, immediate=True, when_read_only=True)
    resp.add_command(b"EXEC", _exec, 1, 1, immediate=True, when_read_only=True)
    resp.add_command(b"DISCARD", _discard, 1, 1, immediate=True, when_read_only=True)


def _multi(connection: RespConnection, args: list[bytes]) -> None:
    if connection.transaction is not None:
        raise CommandError("ERR MULTI calls can not be nested")
    if connection.unauthenticated:  # nothing is kept for such a client
        raise Denied("log in first")
    connection.transaction = MultiTransaction(connection.resp.batch_limit)
    connection.send(OK, 0)


def _exec(connection: RespConnection, args: list[bytes]) -> None:
    batch = connection.transaction
    if batch is None:
        raise CommandError("ERR EXEC without MULTI")
    connection.transaction = None
    if batch.limit_error:
        raise CommandError(f"EXECABORT Transaction discarded because of: {batch.limit_error}")
    if batch.aborted:
        raise CommandError("EXECABORT Transaction discarded because of previous errors.")
    connection.send(b"*%d\r\n" % len(batch.commands), 0)
    connection.run_transaction(batch)


def _discard(connection: RespConnection, args: list[bytes]) -> None:
    if connection.transaction is None:
        raise CommandError("ERR DISCARD without MULTI")
    connection.transaction = None
    connection.send(OK, 0)
