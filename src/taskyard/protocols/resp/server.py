"""Commands about the connection and the server.

Redis has HELLO, AUTH, CLIENT, COMMAND, CONFIG, INFO and SLOWLOG; API is Taskyard's own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final
from urllib.parse import parse_qsl, unquote

from mypy_extensions import i64

from taskyard import __version__
from taskyard.access.principal import ADMIN, INSPECT
from taskyard.broker.interfaces import is_fatal
from taskyard.broker.metrics import SlowCommand
from taskyard.protocols.http.routing import NoRoute, Router
from taskyard.protocols.http.wire import Request, Response, Stream, no_route, problem
from taskyard.protocols.resp.connection import LoginReply, Resp, RespCommand, RespConnection
from taskyard.protocols.resp.wire import (
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
    wrong_arg_count,
)

LIKE_REDIS: Final = "7.0.0"  # its commands are like these; clients check it
_NOT_INT32: Final = "ERR value is out of range, value must between -2147483648 and 2147483647"
_NO_USERS: Final = (
    "ERR AUTH <password> called without any password configured for the default user. "
    "Are you sure your configuration is correct?"
)
_WRONG: Final = "WRONGPASS invalid username-password pair or user is disabled."

_DEFAULT: Final = 10
_ALL: Final = -1
_BAD_COUNT: Final = "ERR count should be greater than or equal to -1"

PATH_LIMIT: Final = 65_536
JSON: Final = "application/json"
STREAM_PATHS: Final = ("/api/v1/events", "/api/v1/live")
SEGMENT_BYTES_PATH: Final = "/api/v1/journal/segments/"

log = logging.getLogger("taskyard")


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


# SLOWLOG: the commands that took too long, in the form that Redis gives them. They are those of all
# protocols. In the place of a command's arguments, which only its client should see, is the
# client's address.


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


def _slowlog_reset(connection: RespConnection, args: list[bytes]) -> None:
    connection.require_permission(ADMIN, "")
    connection.broker.slow_commands.clear()
    connection.send(OK, 0)


def _help(connection: RespConnection, args: list[bytes]) -> None:
    send_help(connection, _HELP)


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


_SLOWLOG: Final[dict[bytes, tuple[int, Callable[[RespConnection, list[bytes]], None]]]] = {
    b"GET": (3, _get),
    b"LEN": (2, _len),
    b"RESET": (2, _slowlog_reset),
    b"HELP": (2, _help),
}


# API: the JSON API, as the user who is logged in there. The routes are those of the HTTP listener;
# what is special to HTTP, such as streams, is not here.


def add_api_command(resp: Resp, router: Router, body_limit: i64) -> None:
    resp.add_command(b"API", ApiCommand(router, body_limit).run, 3, 5, when_read_only=True)


class ApiCommand:
    def __init__(self, router: Router, body_limit: i64) -> None:
        self._router = router
        self._body_limit = body_limit

    def run(self, connection: RespConnection, args: list[bytes]) -> None:
        raw_path, request = self._parse_request(connection, args)
        exchange = ApiExchange(connection, request)
        # Commands behind it wait for its answer, which may be later: see ApiExchange.reply.
        connection.command_suspended = True
        connection.command_started_at = connection.broker.turn_queue.now
        try:
            self._dispatch(raw_path, exchange)
        except Exception as error:
            if is_fatal(error):
                raise
            log_fields = {
                **connection.log_fields(),
                "request": connection.request_id(connection.command_count),
            }
            what = "a request failed: API %s %s"
            log.exception(what, request.method, request.path, extra={"fields": log_fields})
            exchange.fail()
        exchange.in_turn = False
        connection.now = connection.broker.clock.now()  # records are in the order of time

    def _parse_request(self, connection: RespConnection, args: list[bytes]) -> tuple[str, Request]:
        if len(args[2]) > PATH_LIMIT:
            raise CommandError(f"ERR the path is longer than {PATH_LIMIT} bytes")
        body = args[3] if len(args) > 3 else b""
        if len(body) > self._body_limit:
            raise CommandError(f"ERR the body is larger than {self._body_limit} bytes")
        try:
            path, _, query = args[2].decode().partition("?")
            content_type = args[4].decode() if len(args) > 4 else JSON
        except UnicodeDecodeError:
            raise CommandError("ERR path and content type must be UTF-8") from None
        if not path.startswith("/"):
            raise CommandError("ERR the path must begin with a slash, such as /api/v1/queues")
        plain = "/" + path.strip("/")  # as the router sees it
        if plain in STREAM_PATHS:
            raise CommandError("ERR this is a stream: ask for it over HTTP")
        if plain.startswith(SEGMENT_BYTES_PATH):
            raise CommandError("ERR these are bytes, not JSON: ask for them over HTTP")
        request = Request(
            args[1].decode("latin-1").upper(),
            unquote(path),
            dict(parse_qsl(query, keep_blank_values=True)),
            {"content-type": content_type} if len(args) > 3 else {},
            body,
            connection.peer,
            connection.principal,
        )
        return path, request

    def _dispatch(self, raw_path: str, exchange: ApiExchange) -> None:
        request = exchange.request
        try:
            handler, request.params = self._router.find(request.method, raw_path)
        except NoRoute as error:
            exchange.reply(no_route(request, error.allowed))
            return
        handler(exchange)


class ApiExchange:
    """One request, and its one answer in the form of a RESP reply."""

    def __init__(self, connection: RespConnection, request: Request) -> None:
        self._connection = connection
        self._request = request
        self._answered = False
        self.in_turn = True  # in the turn of the command

    @property
    def request(self) -> Request:
        return self._request

    def reply(self, response: Response) -> None:
        assert not self._answered, "a request is answered once"
        self._answered = True
        connection = self._connection
        connection.command_suspended = False
        if connection.closed:
            return
        if response.status >= 400:
            connection.current_command.errors += 1
        if not self.in_turn:
            # That of the last turn may be long ago.
            connection.broker.turn_queue.now = connection.broker.clock.now()
        body = b"" if self._request.method == "HEAD" else response.body
        connection.send(array([number_reply(response.status), bulk(body)]), response.position)
        if self.in_turn:
            connection.command_started_at = 0
        else:
            connection.finish_deferred_command()
            connection.continue_after_reply()

    def fail(self) -> None:
        """Its handler has failed: say so, if nothing was said yet."""
        if not self._answered:
            self.reply(problem(500, "The server made a mistake; its log tells more."))

    def stream(
        self,
        content_type: str,
        *,
        on_writable: Callable[[], None],
        on_close: Callable[[], None],
    ) -> Stream:
        raise NotImplementedError  # no route streams
