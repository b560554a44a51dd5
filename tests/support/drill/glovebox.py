"""Clients of Glovebox, over the bytes of a WebSocket, that send requests at random and record the
history.

Some have sessions that outlive their sockets, and return to them. Pings are answered with what
`answer` returns, or before the next request.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from support.drill.book import HistoryChecker
from support.drill.door import DriverConnector
from support.drill.drafts import Drafts
from support.drill.habits import BOX, EVERY_QUEUE, DriverOptions, payload_of, token_of
from support.drill.http_replies import HttpReader
from support.drill.session import ONCE, Hold, Posted, Session
from support.drill.slip import (
    NEVER,
    EndKind,
    FetchAttempt,
    HistoryViolation,
    Lease,
    RequestTime,
    require,
)
from support.drill.websocket import BINARY, CLOSE, PING, PONG, TEXT, FrameReader, masked, upgrade
from support.glovebox_socket import LEVELS, STAGES, decode, encode

ATTEMPTS_UNSAID = 21
BOX_RETRIES = 1
NOTIFIED = (
    ("sync", "finish"),
    ("sync", "finish"),
    STAGES,
    ("ready",),
    ("write", "finish"),
    ("sync",),
    ("assign", "retry", "drop", "finish"),
    (),
)

Response = dict[str, Any]
Heard = Callable[[Response], None]


@dataclass(eq=False, slots=True)
class GloveboxClients:
    """All clients of Glovebox, and the sessions of those that are disconnected."""

    book: HistoryChecker
    chance: Random
    habits: DriverOptions
    forgetful: bool = False  # the server may forget what it has answered, as it was told to
    away: list[Session] = field(default_factory=list)
    there: dict[str, int] = field(default_factory=dict)  # queues, and since which tick for sure

    def add_client(self, name: str) -> GloveboxDriver:
        if self.away and self.chance.random() < 0.6:
            session = self.away.pop(self.chance.randrange(len(self.away)))
            return GloveboxDriver(self, name, session)
        return GloveboxDriver(self, name, Session(durable=self.chance.random() < 0.6))

    def restore_client(self, name: str) -> list[GloveboxDriver]:
        """All who are away, for the end of a run: they come to hear what there is."""
        talks = [
            GloveboxDriver(self, f"{name}-{number}", session)
            for number, session in enumerate(self.away)
        ]
        self.away = []
        return talks

    def read_owed_notices(self, door: DriverConnector) -> None:
        """At the end: whoever has a session was told of the end of all its posts."""
        for talk in self.restore_client("reunited"):
            door.connect("glovebox", talk)
            door.exchange(talk, talk.request())
            door.exchange(talk, talk.probe())
            unheard = talk.session.unheard()
            require(not unheard, f"nobody was told that these are finished: {unheard[:20]}")
            talk.leave()
            door.disconnect(talk)
        self.away = []

    def heard_of(self, queue: str) -> None:
        if queue not in self.there:
            self.there[queue] = self.book.ask().tick

    def on_crash(self) -> None:
        if self.forgetful:
            self.there.clear()


class GloveboxDriver:
    def __init__(self, people: GloveboxClients, name: str, session: Session) -> None:
        self.name = name
        self.session = session
        self._people = people
        self._book = people.book
        self._chance = people.chance
        self._habits = people.habits
        self._drafts = Drafts(name, people.book, people.chance, people.habits)
        self._binary = people.chance.random() < 0.5
        self._begun = False  # it has asked for the upgrade
        self._http: HttpReader | None = HttpReader()  # until that is answered
        self._frames = FrameReader()
        self._greeted = False
        self._refused = False  # the server cannot keep a session
        self._outgoing = b""
        self._heard: dict[int, Heard] = {}  # by label
        self._awaited: set[int] = set()  # labels that will be answered
        for posted in session.posts.values():
            posted.told_here.clear()

    # As a talk

    def request(self) -> bytes:
        if not self._begun:
            return self._connect()
        if self._refused:
            return b""
        return self.answer() + self._frame(*self._next())

    def answer(self) -> bytes:
        """What it has to say without having been asked to: pongs."""
        data, self._outgoing = self._outgoing, b""
        return data

    def receive(self, data: bytes) -> None:
        http = self._http
        if http is not None:
            http.feed(data)
            reply = http.next()
            if reply is None:
                return
            self._http = None
            if reply.status != 101:
                require(reply.status == 503, f"{self.name} may not connect: {reply}")
                self._refused = True
                return
            data = http.rest
        if self._refused:
            return
        self._frames.feed(data)
        while (frame := self._frames.next()) is not None:
            self._arrived(*frame)

    def is_idle(self) -> bool:
        return self._refused or (self._greeted and not self._awaited) or not self._begun

    def leave(self) -> None:
        self.lost()

    def lost(self) -> None:
        session = self.session
        if self._greeted:
            session.left_at = self._book.clock()
        if session.durable and session.id:
            self._people.away.append(session)
        self._book.on_disconnect(self.name)

    def probe(self) -> bytes:
        """Ask for nothing: whatever was to be told before the answer has been told then."""
        label = self._label(awaited=True)
        self._heard[label] = self._settled(label, lambda _: None)
        return self._frame("pop", {"queue": "no-such-queue", "label": label})

    # Connecting

    def _connect(self) -> bytes:
        self._begun = True
        session = self.session
        headers = {"Binary": "true" if self._binary else "0"}
        if session.durable:
            headers["DURABLE-SESSION"] = "1"
        if session.id:
            headers["RECONNECT-AS"] = str(session.id)
        return upgrade("/connect/", headers)

    def _greet(self, id: int) -> None:
        session = self.session
        require(not self._greeted, f"{self.name} was greeted twice")
        self._greeted = True
        if session.id and session.id != id:
            must = session.must_be_known(self._book.clock()) and not self._people.forgetful
            require(not must, f"the session of {self.name} was forgotten")
            self.session = Session(durable=session.durable, label=session.label)
            # What it has asked for already is in the name of the new one.
            asked = [label for label in session.posts if label in self._heard]
            self.session.posts = {label: session.posts[label] for label in asked}
        self.session.id = id

    def _arrived(self, opcode: int, payload: bytes) -> None:
        if opcode == PING:
            self._outgoing += masked(PONG, payload, self._chance)
        elif opcode != CLOSE:
            require(opcode == (BINARY if self._binary else TEXT), f"a frame of kind {opcode}")
            self._told(decode(payload) if self._binary else _read_json(payload))

    def _told(self, response: Response) -> None:
        if response["type"] == "hello":
            self._greet(response["id"])
            return
        require(self._greeted, f"{self.name} heard {response} before it was greeted")
        label = response["label"]
        posted = self.session.posts.get(label)
        if response["type"] == "notice" and posted is not None:
            self._staged(label, posted, response["notice"])
            return
        heard = self._heard.get(label)
        if heard is None:
            raise HistoryViolation(f"{self.name} got an answer to nothing: {response}")
        heard(response)

    # Requests

    def _next(self) -> tuple[str, Response]:
        chance, holds = self._chance, self.session.holds
        if BOX not in self._people.there and chance.random() < 0.3:
            return self._create()
        if holds and chance.random() < 0.5:
            return self._finish(holds.pop(chance.randrange(len(holds))))
        action = chance.random()
        if action < 0.5:
            return self._post()
        return self._pop() if action < 0.65 else self._fetch()

    def _create(self) -> tuple[str, Response]:
        label = self._label(awaited=True)

        def heard(response: Response) -> None:
            there = response.get("code") == "ObjectAlreadyExists"
            if not is_refusal(response):
                require(there or response.get("notice") == "ready", f"create: {response}")
                self._people.heard_of(BOX)

        self._heard[label] = self._settled(label, heard)
        return "create", {"queue": BOX, "label": label, "retries": BOX_RETRIES}

    def _post(self) -> tuple[str, Response]:
        chance = self._chance
        notify = chance.choice(NOTIFIED)
        label = self._label(awaited={"sync", "finish"} <= set(notify))
        boxed = BOX in self._people.there and chance.random() < 0.3
        queue = BOX if boxed else self._drafts.queue()
        draft = self._drafts.simple(
            queue,
            priority=chance.choice([0, 0, 0, 1, 7]),
            max_attempts=BOX_RETRIES + 1 if boxed else ATTEMPTS_UNSAID,
            max_fails=0,
            max_losses=0,
        )
        asked = self._book.ask()
        self._book.before_push(draft.slip, asked)
        self.session.posts[label] = Posted(draft.slip, asked, notify)

        def heard(response: Response) -> None:
            self._check_there(queue, asked, response)
            self._book.on_push_refused(draft.slip)
            del self.session.posts[label]

        self._heard[label] = self._settled(label, heard)
        fields = {"queue": queue, "message": draft.payload, "label": label}
        return "post", {**fields, "priority": draft.slip.priority, "notify": list(notify)}

    def _staged(self, label: int, posted: Posted, stage: str) -> None:
        """A notice: is it one that was asked for, and can it be true?"""
        slip, book = posted.slip, self._book
        # A message that is popped before it was ever in its queue is finished in place of ready.
        expected = stage in posted.notify or (stage == "finish" and "ready" in posted.notify)
        require(expected, f"{slip.token} was posted without {stage}")
        again = stage in ONCE and stage in posted.told_here
        require(not again, f"{self.name} was told twice that {slip.token} is {stage}")
        posted.told_here.add(stage)
        posted.told.add(stage)
        if stage in ("ready", "write"):
            book.ready(slip)
            return
        self._people.heard_of(slip.queue)
        if not posted.arrived:
            posted.arrived = True
            book.on_pushed(slip, posted.asked)
        if stage in ("sync", "finish"):
            self._awaited.discard(label)
        if stage == "finish":
            book.on_result_shown(slip, posted.asked, None, success=True)
        elif stage == "drop":
            book.on_result_shown(slip, posted.asked, None, success=False)

    def _pop(self) -> tuple[str, Response]:
        queue, level = self._chance.choice(EVERY_QUEUE), self._chance.choice([None, *LEVELS])
        level = level or ("sync" if self._chance.random() < 0.5 else None)
        weak = level in ("ready", "write")
        take = self._book.before_fetch(self.name, [queue], pops=True, weak=weak)
        label = self._label(awaited=True)

        def heard(response: Response) -> None:
            if response["type"] == "message":
                require(response["finished"], f"a pop that is not finished: {response}")
                self._came(take, queue, response)
            else:
                self._check_there(queue, take.asked, response)
            self._book.on_fetch_answered(take)

        self._heard[label] = self._settled(label, heard)
        fields = {"queue": queue, "timeout": self._wait(), "label": label}
        return "pop", {**fields, "sync": level}

    def _fetch(self) -> tuple[str, Response]:
        chance, habits = self._chance, self._habits
        queue, level = chance.choice(EVERY_QUEUE), chance.choice([None, *LEVELS])
        seconds = chance.choice([habits.short_ttr, habits.long_ttr])
        take = self._book.before_fetch(self.name, [queue], ttr=seconds)
        label = self._label(awaited=True)

        def heard(response: Response) -> None:
            if response["type"] == "message":
                require(not response["finished"], f"a fetch that is finished: {response}")
                lease = self._came(take, queue, response)
                self.session.hold(response["sequence"], lease)
            else:
                self._check_there(queue, take.asked, response)
            self._book.on_fetch_answered(take)

        self._heard[label] = self._settled(label, heard)
        fields = {"queue": queue, "block_timeout": self._wait(), "work_timeout": seconds}
        return "fetch", {**fields, "sync": level, "label": label}

    def _came(self, take: FetchAttempt, queue: str, message: Response) -> Lease:
        body = message["body"]
        token = token_of(body)
        self._people.heard_of(queue)
        return self._book.on_job_received(
            take,
            token,
            queue,
            id=str(message["sequence"]),
            payload_is_right=body == payload_of(token, self._habits.largest_payload),
        )

    def _finish(self, hold: Hold) -> tuple[str, Response]:
        level = self._chance.choice([None, "ready", "write", "sync", "sync", "sync"])
        label = self._label(awaited=level is not None)
        lease = hold.lease
        weak = level in ("ready", "write")
        ending = self._book.before_end(lease.slip, EndKind.SUCCESS, lease, weak=weak)
        ending.fenced = False  # it is good for whatever lease the session has by then

        def heard(response: Response) -> None:
            if response["type"] == "notice":
                require(response["notice"] == "finish", f"a finish was answered: {response}")
                self._book.on_ended(ending)
            elif is_refusal(response):
                self._book.on_end_refused(ending, still_held=True)
                self.session.holds.append(hold)
            else:
                require(response["code"] == "NoObject", f"a finish was answered: {response}")
                self._book.on_end_refused(ending, still_held=False)

        self._heard[label] = self._settled(label, heard)
        fields = {"queue": lease.queue, "sequence": hold.sequence, "shard": 0, "label": label}
        return "finish", {**fields, "response": level}

    # Parts of requests

    def _label(self, *, awaited: bool) -> int:
        label = self.session.next_label()
        if awaited:
            self._awaited.add(label)
        return label

    def _settled(self, label: int, heard: Heard) -> Heard:
        def once(response: Response) -> None:
            del self._heard[label]
            self._awaited.discard(label)
            heard(response)

        return once

    def _check_there(self, queue: str, asked: RequestTime, response: Response) -> None:
        """Nothing came of a request: is there a reason?"""
        if response["type"] == "nomessage" or is_refusal(response):
            return
        right = response["type"] == "error" and response["code"] == "NoObject"
        require(right, f"{self.name} was answered: {response}")
        since = self._people.there.get(queue, NEVER)
        require(not since <= asked.tick, f"lost: the queue {queue}")

    def _wait(self) -> float | None:
        wait = self._chance.choice([0, *self._habits.waits_ms])
        return wait / 1000 if wait else None

    def _frame(self, kind: str, fields: Response) -> bytes:
        if self._chance.random() < 0.5:
            return masked(BINARY, encode(kind, fields), self._chance)
        given = {name: value for name, value in fields.items() if value is not None}
        if "message" in given:
            text = given["message"]
            given["message"] = text.decode() if self._chance.random() < 0.7 else list(text)
        return masked(TEXT, json.dumps({"type": kind, **given}).encode(), self._chance)


def is_refusal(response: Response) -> bool:
    """The server cannot write, for now or until it is started again: nothing was done."""
    if response["type"] != "error":
        return False
    code, key = str(response["code"]), str(response["key"])
    return code == "Unavailable" or (code == "PermissionDenied" and key.startswith("Unavailable:"))


def _read_json(text: bytes) -> Response:
    response: Response = json.loads(text)
    if "body" in response:
        body = response["body"]
        response["body"] = body.encode() if isinstance(body, str) else bytes(body)
    return response
