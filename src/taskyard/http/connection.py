"""The course of one HTTP connection: request after request, answers in order.

Each answer is held back until what it shows is on disk, like the replies of every dialect. A
request whose answer takes time holds up those behind it on this connection, and nobody else.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, Protocol

from mypy_extensions import i64

from taskyard.access.principal import Principal
from taskyard.broker.broker import Broker
from taskyard.broker.line import TURN
from taskyard.broker.outbox import Outbox
from taskyard.broker.pace import Share
from taskyard.broker.receiver import Receiver
from taskyard.broker.seams import Cancellable, Scheduler, Transport
from taskyard.http.admission import Admission
from taskyard.http.messages import Identify, Request, Response, anonymous
from taskyard.http.parser import SMALL_BODY, BadRequest, Incoming, Parser
from taskyard.http.problems import log_in, no_route, problem, without_prompt
from taskyard.http.router import NoRoute, Router
from taskyard.http.wire import CONTINUE, LAST_CHUNK, encode, encode_chunk, encode_stream_head

INPUT_LIMIT: Final = 262_144  # bytes of requests kept while one has to wait
PATIENCE: Final = 60_000_000  # microseconds for a request to arrive, or for the next one to begin

log = logging.getLogger("taskyard")


class Socket(Transport, Protocol):
    """The transport of a connection that can change to another protocol."""

    def become(self, receiver: Receiver) -> None:
        """From now on this one hears of the connection."""
        ...

    def raw(self) -> asyncio.Transport: ...

    def certificate_name(self) -> str:
        """Whose certificate the client has shown, as verified by TLS; "": nobody's."""
        ...


# Gives the one who goes on with the connection, and has what came behind the request; or a refusal.
Upgrade = Callable[[Socket, Incoming, bytes], Receiver | Response]


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
        refuse: Callable[[str], Response] = log_in,
    ) -> None:
        self.broker = broker
        self.scheduler = scheduler
        self.router = router
        self.output_limit = output_limit
        self.body_limit = body_limit
        self.identify = identify  # the one place where it is found out who asks
        self.refuse = refuse  # makes the answer to those who have to log in first
        self.upgrades: dict[str, Upgrade] = {}  # by path
        self.clients = 0
        self.requests = 0  # all there were
        self.connections = 0

    def connect(self, socket: Socket, peer: str) -> HttpConnection:
        connection = HttpConnection(self, socket, peer)
        self.clients += 1
        self.connections += 1
        self.broker.join(connection)
        return connection


class HttpConnection(Receiver):
    def __init__(self, http: Http, socket: Socket, peer: str) -> None:
        super().__init__(http.broker.engine.new_owner())
        self.http = http
        self.broker = http.broker
        self.socket = socket
        self.peer = peer
        self._certificate = socket.certificate_name()
        self.outbox = Outbox(http.broker, socket, self, http.output_limit)
        self.closed = False
        self._parser = Parser(http.body_limit)
        self._admission = Admission(http.refuse)
        self._bad: Response | None = None  # the last answer, since nothing more can be read
        self._exchange: _Exchange | None = None  # the one that is not answered yet
        self._identified: _Identified | None = None  # who sends that one, now that it is known
        self._ending = False  # answer what has arrived, then close
        self._stopping = False  # since the server stops
        self._in_turn = False
        self._upgrading = False  # somebody else may have written to the socket
        self._reading = True
        self._share: Share | None = None  # if there is a rate to keep to
        self._since = http.broker.clock.now()  # that a request is awaited, or its rest
        self._alarm: Cancellable = http.scheduler.call_at(self._since + PATIENCE, self._look)

    # From the connection

    def feed(self, data: bytes) -> None:
        if self.closed or self._ending or self._bad is not None:
            return
        was_idle = self._parser.idle
        try:
            self._parser.feed(data)
        except BadRequest as error:
            self._bad = problem(error.status, error.detail)
        if was_idle and not self._parser.idle:
            self._since = self.broker.clock.now()
        large = self._parser.large
        if large is not None and self._bad is None:
            large.peer = self.peer
            large.certificate = self._certificate
            self._admission.look(large, self.http.identify, self._decided)
            self._bad = self._admission.refusal_of(large)
        self._run()

    def _decided(self) -> None:
        """It is known now whether the body of a large request may come."""
        self._since = self.broker.clock.now()
        if self._bad is None:  # else, or if it has come in whole meanwhile, it is answered anyway
            self._bad = self._admission.refusal_of(self._parser.large)
        self._run()

    def ended(self) -> None:
        self._ending = True
        if self._exchange is not None and self._exchange.is_stream():
            self.close()
        else:
            self._run()

    def shut_down(self) -> None:
        self._stopping = True
        self.ended()

    def lost(self) -> None:
        self._leave()
        self._admission.forget()
        self._identified = None
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.over()

    def _leave(self) -> None:
        self.closed = True
        self.http.clients -= 1
        self._alarm.cancel()
        self.broker.leave(self)
        self.outbox.forget_receiver()

    def resume(self) -> None:
        if self._exchange is not None and self._exchange.is_stream():
            self._exchange.has_room_again()
        else:
            self._run()

    def take_turn(self) -> None:
        self._turn()

    def holding(self) -> i64:
        exchange = self._exchange
        body = 0 if exchange is None else len(exchange.request.body)
        return self._parser.holding() + body

    # Requests

    def _run(self) -> None:
        if self.in_line:
            return
        if self.broker.line.is_long(self.broker.clock.now()):
            self.broker.line.join(self)
        else:
            self._turn()

    def _turn(self) -> None:
        now = self.broker.begin()
        self._in_turn = True
        if self._identified is not None:
            self._next()  # it has had its share when it came
        turn = self._allowed(now) if self.broker.pacer.rate else TURN
        done = 0
        while done < turn and self._next():
            done += 1
        if done == turn:
            self._go_on_later(turn)
        if self._share is not None:
            self._share.spend(done)
        self._in_turn = False
        self._invite()
        self._keep_reading()
        self.outbox.flush()
        self.broker.end()

    def _allowed(self, now: int) -> int:
        """Requests of this turn, where there is a rate to keep to."""
        if self._stopping:
            return TURN
        if self._share is None:
            self._share = Share()
        return min(TURN, self._share.left(self.broker.pacer.rate, now))

    def _go_on_later(self, turn: int) -> None:
        if turn < TURN:
            if self._parser.ready or self._bad is not None or self._ending:
                self.broker.pacer.wait(self)
        elif not self.in_line:
            self.broker.line.join(self)

    def _next(self) -> bool:
        """Begin one request, or go on with it; False if there is none, or it has to wait."""
        identified = self._identified
        if identified is not None:
            self._identified = None
            self._guarded(identified, self._pass_on)
            return True
        if self.closed or self._exchange is not None or self.stuffed or not self.outbox.has_room():
            return False
        incoming = self._parser.take()
        if incoming is not None:
            self._handle(incoming)
            return True
        if self._bad is not None:
            self._answer_bad(self._bad)
        elif self._ending:
            self.close()
        return False

    def _invite(self) -> None:
        """Ask for a body that its client holds back, when it is its turn and may come."""
        parser = self._parser
        if not parser.wants_continue or self._bad is not None or self._admission.pending:
            return
        if not self.closed and self._exchange is None and not parser.ready:
            parser.wants_continue = False
            self.outbox.send(CONTINUE, 0)

    def _handle(self, incoming: Incoming) -> None:
        self.http.requests += 1
        exchange = _Exchange(self, incoming)
        self._exchange = exchange
        incoming.request.peer = self.peer
        incoming.request.certificate = self._certificate
        identified = _Identified(self, exchange, incoming)
        self._guarded(identified, self._identify)

    def identified(self, identified: _Identified) -> None:
        """It is known now who sends the request that the others wait behind."""
        if self._exchange is identified.exchange:
            self._identified = identified
            self._run()

    def _guarded(self, identified: _Identified, step: Callable[[_Identified], None]) -> None:
        try:
            step(identified)
        except Exception:
            request = identified.incoming.request
            log.exception("a request failed: %s %s", request.method, request.path)
            self._give_up(identified.exchange, identified.incoming)

    def _identify(self, identified: _Identified) -> None:
        identified.who = self.http.identify(identified.incoming.request, identified.told)
        if identified.who is not None:
            self._pass_on(identified)

    def _pass_on(self, identified: _Identified) -> None:
        exchange, incoming, who = identified.exchange, identified.incoming, identified.who
        upgrade = self._parser.upgrade and not self._parser.ready
        if isinstance(who, Response):
            incoming.keep_alive = incoming.keep_alive and not upgrade
            exchange.reply(who)
            return
        assert who is not None
        request = incoming.request
        request.principal = who
        if upgrade:
            self._change(exchange, incoming)
            return
        try:
            handler, request.params = self.http.router.find(request.method, incoming.raw_path)
        except NoRoute as error:
            exchange.reply(no_route(request, error.allowed))
            return
        handler(exchange)

    def _give_up(self, exchange: _Exchange, incoming: Incoming) -> None:
        """Its handler has failed: say so if nothing was said yet, and hear no more of it.

        What it has done so far stays, and is told to whom it concerns when this turn ends.
        """
        if self._exchange is not exchange:
            return  # it was answered before that
        begun = exchange.is_stream() or self._upgrading
        exchange.over()
        if begun:
            self.outbox.abort()  # an answer in the middle of another would be taken for part of it
        else:
            self.answered(incoming, problem(500, "The server made a mistake; its log tells more."))

    def _change(self, exchange: _Exchange, incoming: Incoming) -> None:
        """Go on in another protocol, if there is one at this path."""
        upgrade = self.http.upgrades.get(incoming.raw_path.rstrip("/"))
        if upgrade is None:
            incoming.keep_alive = False
            exchange.reply(problem(404, f"There is no WebSocket at {incoming.raw_path}."))
            return
        if self._ending:  # while it was found out who asks
            incoming.keep_alive = False
            exchange.reply(problem(503, "This connection is about to be closed."))
            return
        self.outbox.flush()
        self._upgrading = True
        became = upgrade(self.socket, incoming, self._parser.rest)
        if isinstance(became, Response):
            incoming.keep_alive = False
            exchange.reply(became)
        else:
            self._leave()
            self.socket.become(became)
            if not self._reading:  # the other one begins as if it had never been paused
                self.socket.resume_reading()

    def _answer_bad(self, answer: Response) -> None:
        self.outbox.send(encode(answer, keep_alive=False, head_only=False), answer.mark)
        self.close(lingers=True)

    def answered(self, incoming: Incoming, response: Response) -> None:
        keep_alive = incoming.keep_alive
        head_only = incoming.request.method == "HEAD"
        if response.status == 401:
            response = without_prompt(incoming.request, response)
        self.outbox.send(
            encode(response, keep_alive=keep_alive, head_only=head_only), response.mark
        )
        self._exchange = None
        self._since = self.broker.clock.now()
        if not keep_alive:
            self.close()
        elif not self._in_turn:
            self.outbox.flush()
            if not self.in_line:
                self.broker.line.join(self)

    def close(self, lingers: bool = False) -> None:
        """Close once all answers are out."""
        if not self.closed:
            self.closed = True
            self.outbox.close(lingers)

    # Limits

    def _keep_reading(self) -> None:
        parser = self._parser
        # What comes behind an upgrade is in no hurry, and may be a stranger's.
        limit = SMALL_BODY if parser.upgrade else INPUT_LIMIT
        wanted = parser.unread <= limit and len(parser.ready) <= TURN and not self.slowed
        wanted = wanted and not self._admission.pending
        if wanted == self._reading or self.closed:
            return
        self._reading = wanted
        if wanted:
            self.socket.resume_reading()
        else:
            self.socket.pause_reading()

    def _look(self) -> None:
        """Let go of a client that has begun a request and does not end it, or begins none."""
        now = self.broker.clock.now()
        if self.closed:
            self.outbox.abort()  # its last answer was not read in all this time
            return
        waits = self._exchange is not None or self._admission.pending
        if waits or now < self._since + PATIENCE:
            since = now if waits else self._since
            self._alarm = self.http.scheduler.call_at(since + PATIENCE, self._look)
            return
        if not self._parser.idle:
            detail = f"The request did not arrive within {PATIENCE // 1_000_000} seconds."
            self.outbox.send(encode(problem(408, detail), keep_alive=False, head_only=False), 0)
        self.close()
        self._alarm = self.http.scheduler.call_at(now + PATIENCE, self._look)


class _Identified:
    """A request, and who sends it as soon as that is known."""

    def __init__(self, connection: HttpConnection, exchange: _Exchange, incoming: Incoming) -> None:
        self.exchange = exchange
        self.incoming = incoming
        self.who: Principal | Response | None = None
        self._connection = connection

    def told(self, who: Principal | Response) -> None:
        self.who = who
        self._connection.identified(self)


class _Exchange:
    """One request and its one answer."""

    def __init__(self, connection: HttpConnection, incoming: Incoming) -> None:
        self._connection: HttpConnection | None = connection
        self._incoming = incoming
        self._on_room: Callable[[], None] | None = None
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
            connection.answered(self._incoming, response)

    def stream(
        self,
        content_type: str,
        *,
        on_room: Callable[[], None],
        on_close: Callable[[], None],
    ) -> _Exchange:
        assert not self.answered, "a request is answered once"
        self.answered = True
        self._on_room = on_room
        self._on_close = on_close
        connection = self._connection
        if connection is not None:
            connection.outbox.send(encode_stream_head(content_type), 0)
            connection.outbox.flush()
        return self

    # As the stream

    def send(self, data: bytes, mark: int = 0) -> None:
        connection = self._connection
        if connection is not None:
            connection.outbox.send(encode_chunk(data), mark)
            connection.outbox.flush()

    def has_room(self) -> bool:
        connection = self._connection
        return connection is None or (not connection.stuffed and connection.outbox.has_room())

    def close(self) -> None:
        connection = self._connection
        if connection is not None:
            connection.outbox.send(LAST_CHUNK, 0)
            connection.close()
            self.over()

    # From the connection

    def is_stream(self) -> bool:
        return self._on_close is not None

    def has_room_again(self) -> None:
        if self._on_room is not None:
            self._on_room()

    def over(self) -> None:
        self._connection = None
        on_close, self._on_close = self._on_close, None
        if on_close is not None:
            on_close()
