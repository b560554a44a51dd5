"""API: the JSON API through a RESP connection, as the user who is logged in there.

The routes are those of the HTTP listener; what is special to HTTP, such as streams, is not here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final
from urllib.parse import parse_qsl, unquote

from mypy_extensions import i64

from taskyard.broker.fatal import is_fatal
from taskyard.protocols.http.messages import Request, Response, Stream
from taskyard.protocols.http.problems import no_route, problem
from taskyard.protocols.http.router import NoRoute, Router
from taskyard.protocols.resp.connection import Resp, RespConnection
from taskyard.protocols.resp.values import CommandError, array, bulk, number_reply

PATH_LIMIT: Final = 65_536
JSON: Final = "application/json"
STREAM_PATHS: Final = ("/api/v1/events", "/api/v1/live")
SEGMENT_BYTES_PATH: Final = "/api/v1/journal/segments/"

log = logging.getLogger("taskyard")


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
