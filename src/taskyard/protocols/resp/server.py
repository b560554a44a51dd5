"""Redis's connection commands: HELLO, AUTH, CLIENT, COMMAND, CONFIG, INFO."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from taskyard import __version__
from taskyard.protocols.resp.answers import LoginReply
from taskyard.protocols.resp.command import RespCommand
from taskyard.protocols.resp.connection import Resp, RespConnection
from taskyard.protocols.resp.errors import wrong_arg_count
from taskyard.protocols.resp.values import (
    DATABASES,
    EMPTY,
    OK,
    SECOND,
    SYNTAX,
    CommandError,
    array,
    bulk,
    number_reply,
    parse_integer,
    printable,
)

LIKE_REDIS: Final = "7.0.0"  # its commands are like these; clients check it
_NOT_INT32: Final = "ERR value is out of range, value must between -2147483648 and 2147483647"
_NO_USERS: Final = (
    "ERR AUTH <password> called without any password configured for the default user. "
    "Are you sure your configuration is correct?"
)
_WRONG: Final = "WRONGPASS invalid username-password pair or user is disabled."


def add_server_commands(resp: Resp) -> None:
    resp.add_command(b"PING", _ping, 1, 2, when_read_only=True)
    resp.add_command(b"ECHO", _echo, 2, 2, when_read_only=True)
    resp.add_command(b"HELLO", _hello, 1, 0, when_read_only=True)
    resp.add_command(b"AUTH", _auth, 2, 0, when_read_only=True)
    resp.add_command(b"SELECT", _select, 2, 2, when_read_only=True)
    resp.add_command(b"CLIENT", _client, 2, 0, when_read_only=True)
    resp.add_command(b"COMMAND", _command, 1, 0, when_read_only=True)
    resp.add_command(b"CONFIG", _config, 2, 0, when_read_only=True)
    resp.add_command(b"RESET", _reset, 1, 1, immediate=True, when_read_only=True)
    resp.add_command(b"QUIT", _quit, 1, 0, immediate=True, when_read_only=True)


def _ping(connection: RespConnection, args: list[bytes]) -> None:
    connection.send(bulk(args[1]) if len(args) == 2 else b"+PONG\r\n", 0)


def _echo(connection: RespConnection, args: list[bytes]) -> None:
    connection.send(bulk(args[1]), 0)


def _quit(connection: RespConnection, args: list[bytes]) -> None:
    connection.reply(OK)
    connection.close()


def _reset(connection: RespConnection, args: list[bytes]) -> None:
    _select_database(connection, 0)
    connection.transaction = None
    connection.resp_version = 2
    connection.name = b""
    connection.release_claims()
    connection.reset_principal()
    connection.send(b"+RESET\r\n", 0)


def _select(connection: RespConnection, args: list[bytes]) -> None:
    number = parse_integer(args[1])
    if not -(2**31) <= number < 2**31:
        raise CommandError(_NOT_INT32)
    if not 0 <= number < DATABASES:
        raise CommandError("ERR DB index is out of range")
    _select_database(connection, number)
    connection.send(OK, 0)


def _select_database(connection: RespConnection, database: int) -> None:
    """Another database is another name space: its names have a prefix."""
    queue = connection.resp.queue
    connection.database = database
    connection.prefix = b"db%d:" % database if database else b""
    connection.item_queue = f"{queue}:{database}" if database else queue
    connection.item_queue_utf8 = connection.item_queue.encode()
    connection.last_pop = []


def _auth(connection: RespConnection, args: list[bytes]) -> None:
    """With a name and a password, or with a token alone."""
    if len(args) > 3:
        raise CommandError(SYNTAX)
    if not connection.resp.authenticator.has_users:
        if len(args) == 2:
            raise CommandError(_NO_USERS)
        _check_default_user(args[1])
        connection.send(OK, 0)
        return
    name = _decode_credential(args[1]) if len(args) == 3 else ""
    connection.start_login(name, _decode_credential(args[-1]), _AuthReply())


class _AuthReply(LoginReply):
    def send(self, connection: RespConnection, succeeded: bool) -> None:
        if succeeded:
            connection.send(OK, 0)
        else:
            connection.refuse(_WRONG)


def _check_default_user(user: bytes) -> None:
    """Without users there is one user without a password: any password is right."""
    if user != b"default":
        raise CommandError(_WRONG)


def _decode_credential(word: bytes) -> str:
    """Decode a name or a secret; bytes that are no text belong to no user."""
    try:
        return word.decode()
    except UnicodeDecodeError:
        raise CommandError(_WRONG) from None


def _hello(connection: RespConnection, args: list[bytes]) -> None:
    hello = _HelloReply(connection.resp_version)
    if len(args) > 1:
        hello.resp_version = parse_integer(
            args[1], "ERR Protocol version is not an integer or out of range"
        )
        if hello.resp_version not in (2, 3):
            raise CommandError("NOPROTO unsupported protocol version")
    user: bytes | None = None
    secret = b""
    at = 2
    while at < len(args):
        word = args[at].upper()
        if word == b"AUTH" and at + 2 < len(args):
            if connection.resp.authenticator.has_users:
                user = args[at + 1]
                secret = args[at + 2]
            else:
                _check_default_user(args[at + 1])
            at += 3
        elif word == b"SETNAME" and at + 1 < len(args):
            hello.name = _checked_name(args[at + 1])
            at += 2
        else:
            raise CommandError(
                f"ERR Syntax error in HELLO option '{printable(args[at], len(args[at]))}'"
            )
    if user is None:
        hello.send_hello(connection)
    else:
        connection.start_login(_decode_credential(user), _decode_credential(secret), hello)


class _HelloReply(LoginReply):
    """HELLO, which is answered when the client is authenticated."""

    def __init__(self, resp_version: int) -> None:
        self.resp_version = resp_version
        self.name: bytes | None = None

    def send(self, connection: RespConnection, succeeded: bool) -> None:
        if succeeded:
            self.send_hello(connection)
        else:
            connection.refuse(_WRONG)

    def send_hello(self, connection: RespConnection) -> None:
        if self.name is not None:
            connection.name = self.name
        connection.resp_version = self.resp_version
        parts = [connection.map_header(7)]
        for key, value in (
            (b"server", bulk(b"redis")),
            (b"version", bulk(LIKE_REDIS.encode())),
            (b"proto", number_reply(self.resp_version)),
            (b"id", number_reply(connection.id)),
            (b"mode", bulk(b"standalone")),
            (b"role", bulk(b"master")),
            (b"modules", EMPTY),
        ):
            parts.append(bulk(key))
            parts.append(value)
        connection.send(b"".join(parts), 0)


# CLIENT


def _client(connection: RespConnection, args: list[bytes]) -> None:
    found = _CLIENT.get(args[1].upper())
    if found is None:
        raise CommandError(f"ERR unknown subcommand '{printable(args[1])}'. Try CLIENT HELP.")
    count, run = found
    if len(args) != count:
        raise CommandError(wrong_arg_count(b"client|" + args[1]))
    run(connection, args)


def _client_setname(connection: RespConnection, args: list[bytes]) -> None:
    connection.name = _checked_name(args[2])
    connection.send(OK, 0)


def _client_getname(connection: RespConnection, args: list[bytes]) -> None:
    if connection.name:
        connection.send(bulk(connection.name), 0)
    else:
        connection.send_nil()


def _client_id(connection: RespConnection, args: list[bytes]) -> None:
    connection.send(number_reply(connection.id), 0)


def _client_info(connection: RespConnection, args: list[bytes]) -> None:
    text = (
        f"id={connection.id} addr={connection.peer} name={connection.name.decode()} "
        f"db={connection.database} resp={connection.resp_version}\n"
    )
    connection.send(bulk(text.encode()), 0)


def _client_switch(connection: RespConnection, args: list[bytes]) -> None:
    """What makes no difference here, on or off."""
    if args[2].upper() not in (b"ON", b"OFF"):
        raise CommandError(SYNTAX)
    connection.send(OK, 0)


def _client_accept(connection: RespConnection, args: list[bytes]) -> None:
    """What makes no difference here, and clients send as a courtesy."""
    connection.send(OK, 0)


def _client_help(connection: RespConnection, args: list[bytes]) -> None:
    send_help(connection, _CLIENT_HELP)


_CLIENT: Final[dict[bytes, tuple[int, Callable[[RespConnection, list[bytes]], None]]]] = {
    b"SETNAME": (3, _client_setname),
    b"GETNAME": (2, _client_getname),
    b"SETINFO": (4, _client_accept),
    b"ID": (2, _client_id),
    b"INFO": (2, _client_info),
    b"NO-EVICT": (3, _client_switch),
    b"NO-TOUCH": (3, _client_switch),
    b"HELP": (2, _client_help),
}


_CLIENT_HELP: Final = (
    b"CLIENT <subcommand> [<arg> ...]. Subcommands are:",
    b"GETNAME",
    b"    The name of this connection.",
    b"ID",
    b"    The number of this connection.",
    b"INFO",
    b"    What is known of this connection.",
    b"NO-EVICT (ON|OFF)",
    b"    Accepted; it makes no difference here.",
    b"NO-TOUCH (ON|OFF)",
    b"    Accepted; it makes no difference here.",
    b"SETINFO <attribute> <value>",
    b"    Accepted; it makes no difference here.",
    b"SETNAME <name>",
    b"    Name this connection.",
    b"HELP",
    b"    This help.",
)
_COMMAND_HELP: Final = (
    b"COMMAND [<subcommand> [<arg> ...]]. Without one: all commands. Subcommands are:",
    b"COUNT",
    b"    How many commands there are.",
    b"DOCS [<name> ...]",
    b"    Answered with nothing: see the documentation of Taskyard.",
    b"INFO [<name> ...]",
    b"    How many arguments these commands take.",
    b"HELP",
    b"    This help.",
)
_CONFIG_HELP: Final = (
    b"CONFIG <subcommand> [<arg> ...]. Subcommands are:",
    b"GET <pattern> [<pattern> ...]",
    b"    Answered with nothing: the settings are not those of Redis.",
    b"HELP",
    b"    This help.",
)


def send_help(connection: RespConnection, lines: tuple[bytes, ...]) -> None:
    connection.send(array([b"+%b\r\n" % line for line in lines]), 0)


def _checked_name(name: bytes) -> bytes:
    for byte in name:
        if not 33 <= byte <= 126:
            raise CommandError(
                "ERR Client names cannot contain spaces, newlines or special characters."
            )
    return name


# COMMAND, CONFIG, INFO


def _command(connection: RespConnection, args: list[bytes]) -> None:
    commands = connection.resp.commands
    word = args[1].upper() if len(args) > 1 else b""
    if not word:
        connection.send(array([_describe(command) for command in commands.values()]), 0)
    elif word == b"COUNT" and len(args) == 2:
        connection.send(number_reply(len(commands)), 0)
    elif word == b"INFO":
        parts: list[bytes] = []
        for name in args[2:]:
            command = commands.get(name.upper())
            parts.append(connection.nil() if command is None else _describe(command))
        connection.send(array(parts), 0)
    elif word == b"DOCS":  # there are none; redis-cli requests them when it starts
        connection.send(connection.map_header(0), 0)
    elif word == b"HELP" and len(args) == 2:
        send_help(connection, _COMMAND_HELP)
    else:
        raise CommandError(f"ERR unknown subcommand '{printable(args[1])}'. Try COMMAND HELP.")


def _describe(command: RespCommand) -> bytes:
    """Return name, arity, and the flags and places of keys, which are left empty."""
    name = bulk(command.name.lower())
    return array([name, number_reply(command.arity()), EMPTY, b":0\r\n", b":0\r\n", b":0\r\n"])


def _config(connection: RespConnection, args: list[bytes]) -> None:
    """Return nothing: tools request Redis's configuration and continue without it."""
    word = args[1].upper()
    if word == b"HELP" and len(args) == 2:
        send_help(connection, _CONFIG_HELP)
        return
    if word != b"GET":
        raise CommandError(f"ERR unknown subcommand '{printable(args[1])}'. Try CONFIG HELP.")
    if len(args) < 3:
        raise CommandError(wrong_arg_count(b"config|get"))
    connection.send(connection.map_header(0), 0)


def info_text(resp: Resp, sections: list[bytes]) -> str:
    """Redis's INFO, as far as it makes sense here."""
    wanted = {section.lower() for section in sections}
    everything = bool(wanted & {b"all", b"default", b"everything"})
    traffic = resp.stats
    uptime = (resp.broker.clock.now() - resp.started) // SECOND
    known = {
        b"server": [
            f"redis_version:{LIKE_REDIS}",
            "redis_mode:standalone",
            f"taskyard_version:{__version__}",
            f"uptime_in_seconds:{uptime}",
        ],
        b"clients": [f"connected_clients:{traffic.open_connections}"],
        b"persistence": ["loading:0", "aof_enabled:1"],
        b"stats": [
            f"total_connections_received:{traffic.total_connections}",
            f"total_commands_processed:{resp.ops}",
        ],
        b"replication": ["role:master", "connected_slaves:0"],
    }
    parts: list[str] = []
    for name, lines in known.items():
        if everything or name in wanted:
            parts.append("\r\n".join([f"# {name.decode().capitalize()}", *lines, ""]))
    return "\r\n".join(parts)
