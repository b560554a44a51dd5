"""SLOWLOG: the commands that took too long, in the form that Redis gives them.

They are those of all protocols. In the place of a command's arguments, which only its client should
see, is the client's address.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from taskyard.access.principal import ADMIN, INSPECT
from taskyard.broker.slow import SlowCommand
from taskyard.protocols.resp.connection import Resp, RespConnection
from taskyard.protocols.resp.errors import wrong_arg_count
from taskyard.protocols.resp.server import send_help
from taskyard.protocols.resp.values import (
    OK,
    SECOND,
    CommandError,
    array,
    bulk,
    number_reply,
    parse_integer,
    printable,
)

_DEFAULT: Final = 10
_ALL: Final = -1
_BAD_COUNT: Final = "ERR count should be greater than or equal to -1"
_HELP: Final = (
    b"SLOWLOG <subcommand> [<arg> ...]. Subcommands are:",
    b"GET [<count>]",
    b"    The newest slow commands, 10 of them or as many as asked for; -1: all.",
    b"LEN",
    b"    How many are kept.",
    b"RESET",
    b"    Forget them.",
    b"HELP",
    b"    This help.",
)


def add_slow_commands(resp: Resp) -> None:
    resp.add_command(b"SLOWLOG", _slowlog, 2, 0, when_read_only=True)


def _slowlog(connection: RespConnection, args: list[bytes]) -> None:
    found = _SLOWLOG.get(args[1].upper())
    if found is None:
        raise CommandError(f"ERR unknown subcommand '{printable(args[1])}'. Try SLOWLOG HELP.")
    most, run = found
    if len(args) > most:
        word = args[1].lower()
        if word == b"get":
            what = "ERR unknown subcommand or wrong number of arguments for"
            raise CommandError(f"{what} '{printable(args[1])}'. Try SLOWLOG HELP.")
        raise CommandError(wrong_arg_count(b"slowlog|" + word))
    run(connection, args)


def _get(connection: RespConnection, args: list[bytes]) -> None:
    count = parse_integer(args[2], _BAD_COUNT) if len(args) == 3 else _DEFAULT
    if count < _ALL:
        raise CommandError(_BAD_COUNT)
    connection.require_permission(INSPECT, "")
    found = connection.broker.slow_commands.newest_first()
    if count != _ALL:
        found = found[:count]
    connection.send(array([_entry(slow) for slow in found]), 0)


def _entry(slow: SlowCommand) -> bytes:
    words = [slow.command, f"dialect={slow.protocol_name}", f"request={slow.request_id}"]
    if slow.queue:
        words.append(f"queue={slow.queue}")
    if slow.command_count > 1:
        words.append(f"commands={slow.command_count}")
    return array(
        [
            number_reply(slow.id),
            number_reply(slow.time // SECOND),
            number_reply(slow.duration_us),
            array([bulk(word.encode()) for word in words]),
            bulk(slow.peer.encode()),
            bulk(b""),
        ]
    )


def _len(connection: RespConnection, args: list[bytes]) -> None:
    connection.require_permission(INSPECT, "")
    connection.send(number_reply(connection.broker.slow_commands.kept_count()), 0)


def _reset(connection: RespConnection, args: list[bytes]) -> None:
    connection.require_permission(ADMIN, "")
    connection.broker.slow_commands.clear()
    connection.send(OK, 0)


def _help(connection: RespConnection, args: list[bytes]) -> None:
    send_help(connection, _HELP)


_SLOWLOG: Final[dict[bytes, tuple[int, Callable[[RespConnection, list[bytes]], None]]]] = {
    b"GET": (3, _get),
    b"LEN": (2, _len),
    b"RESET": (2, _reset),
    b"HELP": (2, _help),
}
