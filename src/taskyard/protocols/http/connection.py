"""The course of one HTTP connection: request after request, answers in order.

Each answer is held back until what it shows is on disk, like the replies of every dialect. A
request whose answer takes time holds up those behind it on this connection, and nobody else.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from typing import Final, Protocol

from mypy_extensions import i64

from taskyard.broker.broker import Broker
from taskyard.broker.fatal import is_fatal
from taskyard.broker.line import TURN
from taskyard.broker.metrics import Verb
from taskyard.broker.outbox import Outbox
from taskyard.broker.pace import Share
from taskyard.broker.receiver import BUSY, KNOWN, STRANGER, Receiver
from taskyard.broker.seams import Cancellable, Scheduler, Transport
from taskyard.protocols.http.admission import Admission
from taskyard.protocols.http.exchange import Exchange, Identified
from taskyard.protocols.http.messages import Identify, Request, Response, anonymous
from taskyard.protocols.http.parser import SMALL_BODY, BadRequest, Incoming, Parser
from taskyard.protocols.http.problems import log_in, no_route, problem, without_prompt
from taskyard.protocols.http.router import NoRoute, Router
from taskyard.protocols.http.wire import CONTINUE, encode

INPUT_LIMIT: Final = 262_144  # bytes of requests kept while one has to wait
PATIENCE: Final = 60_000_000  # microseconds for a request to arrive, or for the next one to begin

SHOWN: Final = 256  # characters of a path in the log
_REQUEST_ID: Final = re.compile(r"[!-~]{1,128}")

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
        secure: bool = False,
    ) -> None:
        self.broker = broker
        self.scheduler = scheduler
        self.router = router
        self.output_limit = output_limit
        self.body_limit = body_limit
        self.identify = identify  # the one place where it is found out who asks
        self.refuse = refuse  # makes the answer to those who have to log in first
        self.secure = secure  # all connections are under TLS
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
        super().__init__(http.broker.engine.new_owner(), "http")
        self.http = http
        self.broker = http.broker
        self.socket = socket
        self.peer = peer
        self._certificate = socket.certificate_name()
        self.outbox = Outbox(http.broker, socket, self, http.output_limit)
        self.closed = False
        self._known = False  # somebody who may do anything has asked for something
        self._parser = Parser(http.body_limit)
        self._admission = Admission(http.refuse)
        self._bad: Response | None = None  # the last answer, since nothing more can be read
        self._fault = ""  # what is wrong with what has come
        self._asked: Request | None = None  # the last request that was begun
        self._tells = log.isEnabledFor(logging.DEBUG)
        self._exchange: Exchange | None = None  # the one that is not answered yet
        self._identified: Identified | None = None  # who sends that one, now that it is known
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
            self._fault = error.detail
        if was_idle and not self._parser.idle:
            self._since = self.broker.clock.now()
        large = self._parser.large
        if large is not None and self._bad is None:
            self._name(large, self.commands + len(self._parser.ready) + 1)
            self._admission.look(large, self.http.identify, self._decided)
            self._bad = self._admission.refusal_of(large)
        self._run()

    def _decided(self) -> None:
        """It is known now whether the body of a large request may come."""
        self._since = self.broker.clock.now()
        if self._bad is None:  # else, or if it has come in whole meanwhile, it is answered anyway
            self._bad = self._admission.refusal_of(self._parser.large)
        self._run()

    def standing(self) -> i64:
        if self._known:
            return KNOWN
        # A request that has begun may say who sends it, and has a time of its own.
        busy = self._exchange is not None or self._admission.pending or not self._parser.idle
        return BUSY if busy else STRANGER

    def dismissed(self, why: str) -> None:
        """There is no request that it would be an answer to."""
        if self.closed:
            self.outbox.abort()
        else:
            self.close()

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
        line = self.broker.line
        if line.waits() or line.is_long(self.broker.clock.now(), self):
            line.come(self, self.holding())
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
        self.commands += 1
        self.since = self.broker.line.now
        exchange = Exchange(self, incoming)
        self._exchange = exchange
        self._asked = incoming.request
        self._name(incoming.request, self.commands)
        identified = Identified(self, exchange, incoming)
        self._guarded(identified, self._identify)

    def _name(self, request: Request, number: i64) -> None:
        """Say where it comes from, and how it is called: as its client calls it, if that is fit
        to be said in a log."""
        request.peer = self.peer
        request.certificate = self._certificate
        request.connection = int(self.connection)
        if not request.id:
            given = request.headers.get("x-request-id")
            if given is None or _REQUEST_ID.fullmatch(given) is None:
                given = f"{self.connection}-{number}"
            request.id = given

    def identified(self, identified: Identified) -> None:
        """It is known now who sends the request that the others wait behind."""
        if self._exchange is identified.exchange:
            self.since = self.broker.clock.now()  # to find that out takes its time on purpose
            self._identified = identified
            self._run()

    def _guarded(self, identified: Identified, step: Callable[[Identified], None]) -> None:
        try:
            step(identified)
        except Exception as error:
            if is_fatal(error):
                raise
            request = identified.incoming.request
            told = {**self.told(), "request": request.id}
            what = "a request failed: %s %s"
            log.exception(what, request.method, request.path, extra={"fields": told})
            self._give_up(identified.exchange, identified.incoming)

    def _identify(self, identified: Identified) -> None:
        identified.who = self.http.identify(identified.incoming.request, identified.told)
        if identified.who is not None:
            self._pass_on(identified)

    def _pass_on(self, identified: Identified) -> None:
        exchange, incoming, who = identified.exchange, identified.incoming, identified.who
        upgrade = self._parser.upgrade and not self._parser.ready
        if isinstance(who, Response):
            incoming.keep_alive = incoming.keep_alive and not upgrade
            exchange.reply(who)
            return
        assert who is not None
        request = incoming.request
        request.principal = who
        if not self._known:
            self._known = not who.is_unknown()
        if upgrade:
            self._change(exchange, incoming)
            return
        try:
            handler, request.params = self.http.router.find(request.method, incoming.raw_path)
        except NoRoute as error:
            exchange.reply(no_route(request, error.allowed))
            return
        handler(exchange)

    def _give_up(self, exchange: Exchange, incoming: Incoming) -> None:
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

    def _change(self, exchange: Exchange, incoming: Incoming) -> None:
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
        self.commands += 1
        self._asked = None
        if self._fault:
            self.fault(self._fault)
        large = self._parser.large
        id = self.request_id(self.commands) if large is None or not large.id else large.id
        data = self._last_answer(answer, id)
        self.outbox.send(data, answer.mark)
        self.close(lingers=True)

    def _last_answer(self, answer: Response, id: str) -> bytes:
        return encode(
            answer, keep_alive=False, head_only=False, request_id=id, secure=self.http.secure
        )

    def answered(self, incoming: Incoming, response: Response) -> None:
        keep_alive = incoming.keep_alive
        head_only = incoming.request.method == "HEAD"
        if response.status == 401:
            response = without_prompt(incoming.request, response)
        id = incoming.request.id
        if not self._in_turn:
            self.broker.line.now = self.broker.clock.now()  # that of the last turn may be long ago
        self.outbox.send(
            encode(
                response,
                keep_alive=keep_alive,
                head_only=head_only,
                request_id=id,
                secure=self.http.secure,
            ),
            response.mark,
        )
        self._exchange = None
        since = self.since
        self.since = 0
        now: i64 = self.broker.clock.now()
        self._since = now
        if self._tells:
            self._tell(incoming.request, response, now - since)
        slow = self.broker.slow
        if now - since > slow.limit and not self._in_turn and not self.replies_wait():
            slow.note(self, self.verb, self.commands, 1, since, 0, 0, now)
        if not keep_alive:
            self.close()
        elif not self._in_turn:
            self.outbox.flush()
            if not self.in_line:
                self.broker.line.join(self)

    # For the log

    def _tell(self, request: Request, response: Response, took: i64) -> None:
        told = self.told()
        told["request"] = request.id
        told["method"] = request.method
        told["path"] = request.path[:SHOWN]
        told["status"] = response.status
        told["milliseconds"] = int(took) / 1000
        log.debug("a request was answered", extra={"fields": told})

    def address(self) -> str:
        return self.peer

    def replies_wait(self) -> bool:
        return self.outbox.waits()

    def asked(self, verb: Verb) -> tuple[str, str]:
        request = self._asked
        if request is None:
            return verb.name, ""
        return f"{request.method} {request.path[:SHOWN]}", request.params.get("queue", "")

    def request_id(self, number: i64) -> str:
        request = self._asked
        if request is not None and request.id and number == self.commands:
            return request.id
        return f"{self.connection}-{number}"

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
            self.commands += 1
            self._asked = None
            self.fault(detail)
            id = self.request_id(self.commands)
            answer = problem(408, detail)
            self.outbox.send(self._last_answer(answer, id), 0)
        self.close()
        self._alarm = self.http.scheduler.call_at(now + PATIENCE, self._look)
