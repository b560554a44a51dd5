"""The course of one HTTP connection: request after request, answers in order.

Each answer waits until what it shows is on disk, like the replies of every protocol. A request
whose answer takes time delays those behind it on this connection, and no other client.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from typing import Final, Protocol

from mypy_extensions import i64

from taskyard.access.principal import Principal
from taskyard.broker.commit import Broker
from taskyard.broker.interfaces import Cancellable, Scheduler, Transport, is_fatal
from taskyard.broker.metrics import CommandStats
from taskyard.broker.replies import ReplyQueue
from taskyard.broker.turns import (
    AUTHENTICATED,
    AUTHENTICATING,
    COMMANDS_PER_TURN,
    UNAUTHENTICATED,
    ClientConnection,
    TokenBucket,
)
from taskyard.protocols.http.routing import NoRoute, Router
from taskyard.protocols.http.wire import (
    CONTINUE,
    LAST_CHUNK,
    SMALL_BODY,
    BadRequest,
    Identify,
    ParsedRequest,
    Parser,
    Request,
    Response,
    anonymous,
    encode,
    encode_chunk,
    encode_stream_head,
    login_required,
    no_route,
    problem,
    without_prompt,
)

LOG_IN_FIRST = "A request of this size is taken only from those who log in."

INPUT_LIMIT: Final = 262_144  # bytes of requests kept while one has to wait
# microseconds for a request to arrive, or for the next one to begin
REQUEST_TIMEOUT_US: Final = 60_000_000

MAX_LOGGED_PATH_CHARS: Final = 256  # characters of a path in the log
_REQUEST_ID: Final = re.compile(r"[!-~]{1,128}")

log = logging.getLogger("taskyard")


class UpgradableTransport(Transport, Protocol):
    """The transport of a connection that can change to another protocol."""

    def switch_protocol(self, receiver: ClientConnection) -> None:
        """Pass the events of the connection to this one from now on."""
        ...

    def detach_transport(self) -> asyncio.Transport: ...

    def certificate_name(self) -> str:
        """Return the name in the client's certificate, as verified by TLS; "": there is none."""
        ...


# Returns the protocol that continues the connection, with what follows the request; or a refusal.
Upgrade = Callable[[UpgradableTransport, ParsedRequest, bytes], ClientConnection | Response]


class Http:
    """What all HTTP connections share."""

    def __init__(
        self,
        broker: Broker,
        scheduler: Scheduler,
        router: Router,
        *,
        output_limit: int,
        body_limit: int,
        identify: Identify = anonymous,
        refuse: Callable[[str], Response] = login_required,
        secure: bool = False,
    ) -> None:
        self.broker = broker
        self.scheduler = scheduler
        self.router = router
        self.output_limit = output_limit
        self.body_limit = body_limit
        self.identify = identify  # authenticates each request
        self.refuse = refuse  # makes the answer to clients that have to log in first
        self.secure = secure  # all connections are under TLS
        self.upgrades: dict[str, Upgrade] = {}  # by path
        self.clients = 0
        self.requests = 0  # all there were
        self.connections = 0

    def connect(self, socket: UpgradableTransport, peer: str) -> HttpConnection:
        connection = HttpConnection(self, socket, peer)
        self.clients += 1
        self.connections += 1
        self.broker.register(connection)
        return connection


class HttpConnection(ClientConnection):
    def __init__(self, http: Http, socket: UpgradableTransport, peer: str) -> None:
        super().__init__(http.broker.engine.new_owner(), "http")
        self.http = http
        self.broker = http.broker
        self.socket = socket
        self.peer = peer
        self._certificate = socket.certificate_name()
        self.reply_queue = ReplyQueue(http.broker, socket, self, http.output_limit)
        self.closed = False
        self._is_authenticated = False  # a client with permissions has sent a request
        self._parser = Parser(http.body_limit)
        self._body_authorization = BodyAuthorization(http.refuse)
        # the last answer, since nothing more can be read
        self._fatal_response: Response | None = None
        self._protocol_error = ""  # what is wrong with the input
        self._current_request: Request | None = None  # the last request that was started
        self._logs_requests = log.isEnabledFor(logging.DEBUG)
        self._exchange: HttpExchange | None = None  # the one that is not answered yet
        # that request with its principal, once it is authenticated
        self._identified: IdentifiedRequest | None = None
        self._closing_after_replies = False  # answer what has arrived, then close
        self._stopping = False  # since the server stops
        self._in_turn = False
        self._upgrading = False  # the next protocol may have written to the socket
        self._reading = True
        self._token_bucket: TokenBucket | None = None  # None: no rate limit applies so far
        # when the wait for a request, or the remainder of one, began
        self._waiting_since = http.broker.clock.now()
        self._timeout_timer: Cancellable = http.scheduler.call_at(
            self._waiting_since + REQUEST_TIMEOUT_US, self._check_timeout
        )

    # From the connection

    def feed(self, data: bytes) -> None:
        if self.closed or self._closing_after_replies or self._fatal_response is not None:
            return
        was_idle = self._parser.idle
        try:
            self._parser.feed(data)
        except BadRequest as error:
            self._fatal_response = problem(error.status, error.detail)
            self._protocol_error = error.detail
        if was_idle and not self._parser.idle:
            self._waiting_since = self.broker.clock.now()
        large = self._parser.large_request
        if large is not None and self._fatal_response is None:
            self._set_origin_and_id(large, self.command_count + len(self._parser.ready) + 1)
            self._body_authorization.check(large, self.http.identify, self._on_body_decision)
            self._fatal_response = self._body_authorization.refusal_of(large)
        self._process_input()

    def _on_body_decision(self) -> None:
        """It has been decided whether the client may send the body of a large request."""
        self._waiting_since = self.broker.clock.now()
        if (
            self._fatal_response is None
        ):  # else, or if it is complete meanwhile, it is answered anyway
            self._fatal_response = self._body_authorization.refusal_of(self._parser.large_request)
        self._process_input()

    def login_state(self) -> i64:
        if self._is_authenticated:
            return AUTHENTICATED
        # A request that has begun may have credentials, and has a time limit of its own.
        busy = (
            self._exchange is not None or self._body_authorization.pending or not self._parser.idle
        )
        return AUTHENTICATING if busy else UNAUTHENTICATED

    def close_unauthenticated(self, reason: str) -> None:
        """Close without an answer: there is no request that it would be for."""
        if self.closed:
            self.reply_queue.abort()
        else:
            self.close()

    def on_eof(self) -> None:
        self._closing_after_replies = True
        if self._exchange is not None and self._exchange.is_stream():
            self.close()
        else:
            self._process_input()

    def shut_down(self) -> None:
        self._stopping = True
        self.on_eof()

    def on_disconnect(self) -> None:
        self._unregister()
        self._body_authorization.forget()
        self._identified = None
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.on_connection_end()

    def _unregister(self) -> None:
        self.closed = True
        self.http.clients -= 1
        self._timeout_timer.cancel()
        self.broker.unregister(self)
        self.reply_queue.detach_connection()

    def resume(self) -> None:
        if self._exchange is not None and self._exchange.is_stream():
            self._exchange.on_writable()
        else:
            self._process_input()

    def take_turn(self) -> None:
        self._process_in_turn()

    def buffered_bytes(self) -> i64:
        exchange = self._exchange
        body = 0 if exchange is None else len(exchange.request.body)
        return self._parser.buffered_bytes() + body

    # Requests

    def _process_input(self) -> None:
        if self.queued_for_turn:
            return
        line = self.broker.turn_queue
        if line.has_waiting() or line.must_queue(self.broker.clock.now(), self):
            line.enqueue(self, self.buffered_bytes())
        else:
            self._process_in_turn()

    def _process_in_turn(self) -> None:
        now = self.broker.begin_turn()
        self._in_turn = True
        if self._identified is not None:
            self._execute_next()  # it had its tokens when it arrived
        turn = (
            self._requests_this_turn(now)
            if self.broker.rate_limiter.commands_per_second
            else COMMANDS_PER_TURN
        )
        done = 0
        while done < turn and self._execute_next():
            done += 1
        if done == turn:
            self._continue_next_turn(turn)
        if self._token_bucket is not None:
            self._token_bucket.consume(done)
        self._in_turn = False
        self._send_continue()
        self._update_reading()
        self.reply_queue.flush_output()
        self.broker.end_turn()

    def _requests_this_turn(self, now: int) -> int:
        """Return how many requests this turn may execute under the rate limit."""
        if self._stopping:
            return COMMANDS_PER_TURN
        if self._token_bucket is None:
            self._token_bucket = TokenBucket()
        return min(
            COMMANDS_PER_TURN,
            self._token_bucket.available(self.broker.rate_limiter.commands_per_second, now),
        )

    def _continue_next_turn(self, turn: int) -> None:
        if turn < COMMANDS_PER_TURN:
            if (
                self._parser.ready
                or self._fatal_response is not None
                or self._closing_after_replies
            ):
                self.broker.rate_limiter.resume_later(self)
        elif not self.queued_for_turn:
            self.broker.turn_queue.requeue(self)

    def _execute_next(self) -> bool:
        """Start or continue one request; False if there is none, or it has to wait."""
        identified = self._identified
        if identified is not None:
            self._identified = None
            self._run_guarded(identified, self._dispatch)
            return True
        if (
            self.closed
            or self._exchange is not None
            or self.output_blocked
            or not self.reply_queue.check_capacity()
        ):
            return False
        incoming = self._parser.next_request()
        if incoming is not None:
            self._start_request(incoming)
            return True
        if self._fatal_response is not None:
            self._send_fatal_response(self._fatal_response)
        elif self._closing_after_replies:
            self.close()
        return False

    def _send_continue(self) -> None:
        """Send 100 Continue for a body that the client holds back, when its turn has come and it
        may send it.
        """
        parser = self._parser
        if (
            not parser.wants_continue
            or self._fatal_response is not None
            or self._body_authorization.pending
        ):
            return
        if not self.closed and self._exchange is None and not parser.ready:
            parser.wants_continue = False
            self.reply_queue.send(CONTINUE, 0)

    def _start_request(self, incoming: ParsedRequest) -> None:
        self.http.requests += 1
        self.command_count += 1
        self.command_started_at = self.broker.turn_queue.now
        exchange = HttpExchange(self, incoming)
        self._exchange = exchange
        self._current_request = incoming.request
        self._set_origin_and_id(incoming.request, self.command_count)
        identified = IdentifiedRequest(self, exchange, incoming)
        self._run_guarded(identified, self._identify)

    def _set_origin_and_id(self, request: Request, number: i64) -> None:
        """Set the request's peer, and its id: the client's own if it can be logged."""
        request.peer = self.peer
        request.certificate = self._certificate
        request.connection = int(self.connection_number)
        if not request.id:
            given = request.headers.get("x-request-id")
            if given is None or _REQUEST_ID.fullmatch(given) is None:
                given = f"{self.connection_number}-{number}"
            request.id = given

    def on_identified(self, identified: IdentifiedRequest) -> None:
        """The sender of the request that the others wait behind has been authenticated."""
        if self._exchange is identified.exchange:
            # to find that out takes its time on purpose
            self.command_started_at = self.broker.clock.now()
            self._identified = identified
            self._process_input()

    def _run_guarded(
        self, identified: IdentifiedRequest, step: Callable[[IdentifiedRequest], None]
    ) -> None:
        try:
            step(identified)
        except Exception as error:
            if is_fatal(error):
                raise
            request = identified.incoming.request
            log_fields = {**self.log_fields(), "request": request.id}
            what = "a request failed: %s %s"
            log.exception(what, request.method, request.path, extra={"fields": log_fields})
            self._fail_request(identified.exchange, identified.incoming)

    def _identify(self, identified: IdentifiedRequest) -> None:
        identified.who = self.http.identify(identified.incoming.request, identified.on_identified)
        if identified.who is not None:
            self._dispatch(identified)

    def _dispatch(self, identified: IdentifiedRequest) -> None:
        exchange, incoming, who = identified.exchange, identified.incoming, identified.who
        upgrade = self._parser.upgrade and not self._parser.ready
        if isinstance(who, Response):
            incoming.keep_alive = incoming.keep_alive and not upgrade
            exchange.reply(who)
            return
        assert who is not None
        request = incoming.request
        request.principal = who
        if not self._is_authenticated:
            self._is_authenticated = not who.needs_login()
        if upgrade:
            self._upgrade(exchange, incoming)
            return
        try:
            handler, request.params = self.http.router.find(request.method, incoming.raw_path)
        except NoRoute as error:
            exchange.reply(no_route(request, error.allowed))
            return
        handler(exchange)

    def _fail_request(self, exchange: HttpExchange, incoming: ParsedRequest) -> None:
        """The handler has failed: answer with status 500 if nothing was sent yet.

        What it has done so far stays, and clients are notified of it when this turn ends.
        """
        if self._exchange is not exchange:
            return  # it was answered before that
        begun = exchange.is_stream() or self._upgrading
        exchange.on_connection_end()
        if begun:
            # an answer in the middle of another would be taken for part of it
            self.reply_queue.abort()
        else:
            self.send_response(
                incoming, problem(500, "The server made a mistake; its log tells more.")
            )

    def _upgrade(self, exchange: HttpExchange, incoming: ParsedRequest) -> None:
        """Switch to another protocol, if there is one at this path."""
        upgrade = self.http.upgrades.get(incoming.raw_path.rstrip("/"))
        if upgrade is None:
            incoming.keep_alive = False
            exchange.reply(problem(404, f"There is no WebSocket at {incoming.raw_path}."))
            return
        if self._closing_after_replies:  # while the request was being authenticated
            incoming.keep_alive = False
            exchange.reply(problem(503, "This connection is about to be closed."))
            return
        self.reply_queue.flush_output()
        self._upgrading = True
        became = upgrade(self.socket, incoming, self._parser.upgrade_bytes)
        if isinstance(became, Response):
            incoming.keep_alive = False
            exchange.reply(became)
        else:
            self._unregister()
            self.socket.switch_protocol(became)
            if not self._reading:  # the other one begins as if it had never been paused
                self.socket.resume_reading()

    def _send_fatal_response(self, answer: Response) -> None:
        self.command_count += 1
        self._current_request = None
        if self._protocol_error:
            self.log_protocol_error(self._protocol_error)
        large = self._parser.large_request
        id = self.request_id(self.command_count) if large is None or not large.id else large.id
        data = self._encode_last_response(answer, id)
        self.reply_queue.send(data, answer.position)
        self.close(drain_input=True)

    def _encode_last_response(self, answer: Response, id: str) -> bytes:
        return encode(
            answer, keep_alive=False, head_only=False, request_id=id, secure=self.http.secure
        )

    def send_response(self, incoming: ParsedRequest, response: Response) -> None:
        keep_alive = incoming.keep_alive
        head_only = incoming.request.method == "HEAD"
        if response.status == 401:
            response = without_prompt(incoming.request, response)
        id = incoming.request.id
        if not self._in_turn:
            # that of the last turn may be long ago
            self.broker.turn_queue.now = self.broker.clock.now()
        self.reply_queue.send(
            encode(
                response,
                keep_alive=keep_alive,
                head_only=head_only,
                request_id=id,
                secure=self.http.secure,
            ),
            response.position,
        )
        self._exchange = None
        since = self.command_started_at
        self.command_started_at = 0
        now: i64 = self.broker.clock.now()
        self._waiting_since = now
        if self._logs_requests:
            self._log_request(incoming.request, response, now - since)
        slow = self.broker.slow_commands
        if now - since > slow.threshold_us and not self._in_turn and not self.has_pending_replies():
            slow.record(self, self.current_command, self.command_count, 1, since, 0, 0, now)
        if not keep_alive:
            self.close()
        elif not self._in_turn:
            self.reply_queue.flush_output()
            if not self.queued_for_turn:
                self.broker.turn_queue.requeue(self)

    # For the log

    def _log_request(self, request: Request, response: Response, took: i64) -> None:
        log_fields = self.log_fields()
        log_fields["request"] = request.id
        log_fields["method"] = request.method
        log_fields["path"] = request.path[:MAX_LOGGED_PATH_CHARS]
        log_fields["status"] = response.status
        log_fields["milliseconds"] = int(took) / 1000
        log.debug("a request was answered", extra={"fields": log_fields})

    def address(self) -> str:
        return self.peer

    def has_pending_replies(self) -> bool:
        return self.reply_queue.has_waiting()

    def describe_command(self, command: CommandStats) -> tuple[str, str]:
        request = self._current_request
        if request is None:
            return command.name, ""
        return f"{request.method} {request.path[:MAX_LOGGED_PATH_CHARS]}", request.params.get(
            "queue", ""
        )

    def request_id(self, number: i64) -> str:
        request = self._current_request
        if request is not None and request.id and number == self.command_count:
            return request.id
        return f"{self.connection_number}-{number}"

    def close(self, drain_input: bool = False) -> None:
        """Close once all answers are out."""
        if not self.closed:
            self.closed = True
            self.reply_queue.close(drain_input)

    # Limits

    def _update_reading(self) -> None:
        parser = self._parser
        # What comes behind an upgrade may be of a client that has not logged in.
        limit = SMALL_BODY if parser.upgrade else INPUT_LIMIT
        wanted = (
            parser.pending_bytes <= limit
            and len(parser.ready) <= COMMANDS_PER_TURN
            and not self.rate_limited
        )
        wanted = wanted and not self._body_authorization.pending
        if wanted == self._reading or self.closed:
            return
        self._reading = wanted
        if wanted:
            self.socket.resume_reading()
        else:
            self.socket.pause_reading()

    def _check_timeout(self) -> None:
        """Disconnect a client whose request, or next request, does not arrive in time."""
        now = self.broker.clock.now()
        if self.closed:
            self.reply_queue.abort()  # its last answer was not read in all this time
            return
        waits = self._exchange is not None or self._body_authorization.pending
        if waits or now < self._waiting_since + REQUEST_TIMEOUT_US:
            since = now if waits else self._waiting_since
            self._timeout_timer = self.http.scheduler.call_at(
                since + REQUEST_TIMEOUT_US, self._check_timeout
            )
            return
        if not self._parser.idle:
            detail = f"The request did not arrive within {REQUEST_TIMEOUT_US // 1_000_000} seconds."
            self.command_count += 1
            self._current_request = None
            self.log_protocol_error(detail)
            id = self.request_id(self.command_count)
            answer = problem(408, detail)
            self.reply_queue.send(self._encode_last_response(answer, id), 0)
        self.close()
        self._timeout_timer = self.http.scheduler.call_at(
            now + REQUEST_TIMEOUT_US, self._check_timeout
        )


# Requests, and their answers


class IdentifiedRequest:
    """A request, and its principal once that is known."""

    def __init__(
        self, connection: HttpConnection, exchange: HttpExchange, incoming: ParsedRequest
    ) -> None:
        self.exchange = exchange
        self.incoming = incoming
        self.who: Principal | Response | None = None
        self._connection = connection

    def on_identified(self, who: Principal | Response) -> None:
        self.who = who
        self._connection.on_identified(self)


class HttpExchange:
    """One request, and its one answer, whole or as a stream."""

    def __init__(self, connection: HttpConnection, incoming: ParsedRequest) -> None:
        self._connection: HttpConnection | None = connection
        self._incoming = incoming
        self._on_writable: Callable[[], None] | None = None
        self._on_close: Callable[[], None] | None = None
        self.answered = False

    @property
    def request(self) -> Request:
        return self._incoming.request

    def reply(self, response: Response) -> None:
        assert not self.answered, "a request is answered once"
        self.answered = True
        connection = self._connection
        if connection is not None:
            connection.send_response(self._incoming, response)

    def stream(
        self,
        content_type: str,
        *,
        on_writable: Callable[[], None],
        on_close: Callable[[], None],
    ) -> HttpExchange:
        assert not self.answered, "a request is answered once"
        self.answered = True
        self._on_writable = on_writable
        self._on_close = on_close
        connection = self._connection
        if connection is not None:
            connection.command_started_at = 0  # it lasts as long as its client reads
            connection.reply_queue.send(
                encode_stream_head(content_type, self.request.id, connection.http.secure), 0
            )
            connection.reply_queue.flush_output()
        return self

    # As the stream

    def send(self, data: bytes, position: int = 0) -> None:
        connection = self._connection
        if connection is not None:
            connection.reply_queue.send(encode_chunk(data), position)
            connection.reply_queue.flush_output()

    def accepts_more(self) -> bool:
        connection = self._connection
        return connection is None or (
            not connection.output_blocked and connection.reply_queue.check_capacity()
        )

    def close(self) -> None:
        connection = self._connection
        if connection is not None:
            connection.reply_queue.send(LAST_CHUNK, 0)
            connection.close()
            self.on_connection_end()

    # From the connection

    def is_stream(self) -> bool:
        return self._on_close is not None

    def on_writable(self) -> None:
        if self._on_writable is not None:
            self._on_writable()

    def on_connection_end(self) -> None:
        self._connection = None
        on_close, self._on_close = self._on_close, None
        if on_close is not None:
            on_close()


# Authorization of large requests: the sender is authenticated before the body is kept. A small body
# is always kept; its sender is authenticated when the request is complete.


class BodyAuthorization:
    """The decision about the request that is arriving on one connection."""

    def __init__(self, refuse: Callable[[str], Response]) -> None:
        """`refuse` makes an answer of status 401 out of the reason."""
        self._refuse = refuse
        self._request: Request | None = None
        self.pending = False  # it is not known yet: nothing more is to be read
        self._refusal: Response | None = None

    def check(self, request: Request, identify: Identify, decided: Callable[[], None]) -> None:
        """Check a request of which more has arrived; `decided` is called if that takes a while."""
        if request is self._request:
            return
        self._request = request
        self._refusal = None
        try:
            who = identify(request, _IdentifyCallback(self, request, decided).on_identified)
        except Exception as error:
            if is_fatal(error):
                raise
            log_fields = {"connection": request.connection, "request": request.id}
            what = "a request failed: %s %s"
            log.exception(what, request.method, request.path, extra={"fields": log_fields})
            who = problem(500, "The server made a mistake; its log tells more.")
        self.pending = who is None
        if who is not None:
            self._set_decision(who)

    def on_identified(self, request: Request, who: Principal | Response) -> bool:
        """Whether that is still of interest."""
        if request is not self._request:
            return False
        self.pending = False
        self._set_decision(who)
        return True

    def refusal_of(self, request: Request | None) -> Response | None:
        """Return the answer to a request whose body must not be sent."""
        return self._refusal if request is not None and request is self._request else None

    def forget(self) -> None:
        """The connection is gone."""
        self._request = None

    def _set_decision(self, who: Principal | Response) -> None:
        if isinstance(who, Response):
            self._refusal = who
        elif who.needs_login():
            self._refusal = self._refuse(LOG_IN_FIRST)


class _IdentifyCallback:
    """Keeps the request that is being identified, and the callback."""

    def __init__(
        self, authorization: BodyAuthorization, request: Request, decided: Callable[[], None]
    ) -> None:
        self._authorization = authorization
        self._request = request
        self._decided = decided

    def on_identified(self, who: Principal | Response) -> None:
        if self._authorization.on_identified(self._request, who):
            self._decided()
