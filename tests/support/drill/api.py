"""Clients of the JSON API that push, read and cancel jobs at random and record the history.

Jobs are fetched over the other protocols.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from math import inf
from random import Random
from typing import Any

from support.drill.book import HistoryChecker
from support.drill.drafts import FAILS_UNSAID, Draft, Drafts, may_be_deleted
from support.drill.habits import EVERY_QUEUE, NARROW, DriverOptions, payload_of
from support.drill.http_replies import HttpReader, HttpReply, http_request
from support.drill.settings import narrow_settings, narrowed
from support.drill.slip import Bundle, EndKind, JobHistory, RequestTime, require

JSON = "application/json"
NDJSON = "application/x-ndjson"
UNREADABLE = "urn:taskyard:problem:disk-error"
REFUSALS = ("urn:taskyard:problem:no-space", "urn:taskyard:problem:read-only")
LIVE = ("blocked", "delayed", "ready", "leased", "limited")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Heard = Callable[[HttpReply], None]


@dataclass(eq=False, slots=True)
class PendingPush:
    """Jobs with uids whose push was not answered, and may be sent again as it was."""

    request: bytes
    drafts: list[Draft]
    bundle: Bundle | None = None


@dataclass(eq=False, slots=True)
class ApiClients:
    book: HistoryChecker
    chance: Random
    habits: DriverOptions
    narrows: bool = False  # the queue that is to be narrow is made so by these clients
    parcels: list[PendingPush] = field(default_factory=list)

    def add_client(self, name: str) -> ApiDriver:
        return ApiDriver(self, name)


class ApiDriver:
    def __init__(self, people: ApiClients, name: str) -> None:
        self.name = name
        self._people = people
        self._book = people.book
        self._chance = people.chance
        self._habits = people.habits
        self._drafts = Drafts(name, people.book, people.chance, people.habits)
        self._reader = HttpReader()
        self._open: deque[Heard] = deque()
        self._parcels: list[PendingPush] = []  # sent without an answer

    # As a talk

    def request(self) -> bytes:
        chance = self._chance
        if self._people.narrows and NARROW not in self._book.limits.in_flight:
            return self._narrow()
        if self._people.parcels and chance.random() < 0.3:
            return self._again()
        action = chance.random()
        slip = self._drafts.known()
        if action < 0.4 or slip is None:
            return self._push()
        if action < 0.6:
            return self._push_batch()
        if action < 0.65:
            return self._count()
        if action < 0.78 and may_be_deleted(slip):
            return self._delete(slip)
        return self._look(slip)

    def receive(self, data: bytes) -> None:
        self._reader.feed(data)
        while self._open:
            reply = self._reader.next()
            if reply is None:
                return
            self._open.popleft()(reply)
        require(not self._reader.rest, f"{self.name} got an answer to nothing")

    def is_idle(self) -> bool:
        return not self._open

    def leave(self) -> None:
        self.lost()

    def lost(self) -> None:
        self._people.parcels += self._parcels
        self._parcels = []
        self._book.on_disconnect(self.name)

    def _send(
        self, heard: Heard, method: str, path: str, body: bytes = b"", kind: str = ""
    ) -> bytes:
        self._open.append(heard)
        return http_request(method, f"/api/v1/{path}", body, kind)

    # Queues

    def _narrow(self) -> bytes:
        """Until this is answered, nobody pushes there."""

        def heard(reply: HttpReply) -> None:
            if not is_refusal(reply):
                require(reply.status in (200, 201), f"settings were refused: {reply}")
                narrowed(self._book.limits, self._habits)

        return self._send(heard, "PUT", f"queues/{NARROW}", narrow_settings(self._habits), JSON)

    # Pushing

    def _push(self) -> bytes:
        draft = self._drafts.any()
        asked = self._asked([draft])
        path = f"queues/{draft.slip.queue}/jobs"
        body = json.dumps(_fields(draft, self._chance)).encode()
        parcel = PendingPush(http_request("POST", f"/api/v1/{path}", body, JSON), [draft])
        if draft.slip.unique:
            self._parcels.append(parcel)
        return self._send(self._pushed(parcel, asked), "POST", path, body, JSON)

    def _pushed(self, parcel: PendingPush, asked: RequestTime) -> Heard:
        slip = parcel.drafts[0].slip

        def heard(reply: HttpReply) -> None:
            self._arrived(parcel)
            if is_refusal(reply):
                self._book.on_push_refused(slip)
                return
            require(reply.status in (200, 201), f"{slip.token} was refused: {reply}")
            told = reply.json()
            self._check_told(slip, told)
            require(told["duplicate"] == (reply.status == 200), f"{slip.token}: {reply}")
            if told["duplicate"]:
                self._book.on_push_repeated(slip, asked)
            else:
                self._book.on_pushed(slip, asked, str(told["id"]))

        return heard

    def _push_batch(self) -> bytes:
        chance = self._chance
        queue, with_uids = self._drafts.queue(), chance.random() < 0.5
        drafts: list[Draft] = []
        lines = []
        for number in range(chance.choice([1, 2, 5])):
            draft = self._drafts.any(queue)
            slip = draft.slip
            slip.unique = slip.unique or self._drafts.uid() if with_uids else ""
            fields = _fields(draft, chance)
            if number and chance.random() < 0.3:
                back = chance.randint(1, number)
                slip.blockers = (*slip.blockers, drafts[-back].slip)
                fields["blocked_by"] = [*fields.get("blocked_by", []), -back]
            drafts.append(draft)
            lines.append(json.dumps(fields).encode() + b"\n")
        asked = self._asked(drafts)
        path, body = f"queues/{queue}/jobs", b"".join(lines)
        bundle = self._book.before_bundle([draft.slip for draft in drafts], [], asked)
        parcel = PendingPush(http_request("POST", f"/api/v1/{path}", body, NDJSON), drafts, bundle)
        if with_uids:
            self._parcels.append(parcel)
        return self._send(self._bundled(parcel, bundle), "POST", path, body, NDJSON)

    def _bundled(self, parcel: PendingPush, bundle: Bundle) -> Heard:
        repeated = any(draft.slip.repeated for draft in parcel.drafts)

        def heard(reply: HttpReply) -> None:
            self._arrived(parcel)
            if is_refusal(reply):
                self._not_bundled(bundle, repeated=repeated)
                return
            require(reply.status in (200, 201), f"a batch was refused: {reply}")
            jobs = reply.json()["jobs"]
            require(len(jobs) == len(bundle.pushes), f"{reply} for {len(bundle.pushes)} jobs")
            for slip, told in zip(bundle.pushes, jobs, strict=True):
                self._check_told(slip, told)
                require(repeated or not told["duplicate"], f"{slip.token} was called a duplicate")
            require(
                len({told["duplicate"] for told in jobs}) == 1,
                f"half of a batch was there: {reply}",
            )
            self._book.on_bundle_applied(bundle, [str(told["id"]) for told in jobs])

        return heard

    def _not_bundled(self, bundle: Bundle, *, repeated: bool) -> None:
        if not repeated:
            self._book.on_bundle_refused(bundle, still_held=True)
            return
        for slip in bundle.pushes:
            self._book.on_push_refused(slip)

    def _again(self) -> bytes:
        """A push that was not answered, as it was, if that may be."""
        parcel = self._people.parcels.pop(0)
        if not all(self._drafts.may_be_sent_again(draft.slip) for draft in parcel.drafts):
            return self._push()
        self._parcels.append(parcel)
        asked = self._asked(parcel.drafts)
        bundle = parcel.bundle
        heard = self._pushed(parcel, asked) if bundle is None else self._bundled(parcel, bundle)
        self._open.append(heard)
        return parcel.request

    def _asked(self, drafts: list[Draft]) -> RequestTime:
        asked = self._book.ask()
        for draft in drafts:
            self._book.before_push(draft.slip, asked)
        return asked

    def _arrived(self, parcel: PendingPush) -> None:
        if parcel in self._parcels:
            self._parcels.remove(parcel)

    def _check_told(self, slip: JobHistory, told: dict[str, Any]) -> None:
        id = str(told["id"])
        require(slip.id in ("", id), f"{slip.token} has id {slip.id}, and was called {id}")
        require(slip.unique in ("", told["uid"]), f"{slip.token} has another uid: {told}")

    # What is there

    def _count(self) -> bytes:
        """Glovebox's page about a queue."""
        queue = self._chance.choice(EVERY_QUEUE)

        def heard(reply: HttpReply) -> None:
            if reply.status == 404:
                require(reply.json()["code"] == "QueueNotFound", f"no status: {reply}")
            elif not is_refusal(reply):
                require(reply.status == 200, f"no status: {reply}")
                told = reply.json()
                numbers = (told["length"], told["readers_waiting"])
                require(min(numbers) >= 0 and told["type"] == "Status", f"a status: {told}")

        self._open.append(heard)
        return http_request("GET", f"/status/{queue}")

    def _look(self, slip: JobHistory) -> bytes:
        asked = self._book.ask()
        name = slip.unique if slip.unique and self._chance.random() < 0.5 else slip.id

        def heard(reply: HttpReply) -> None:
            if is_refusal(reply) or _is_unreadable(reply):
                return
            if reply.status == 404:
                self._book.on_not_found(slip, asked)
                return
            require(reply.status == 200, f"{slip.token} cannot be looked at: {reply}")
            self._check_seen(slip, asked, reply.json())

        return self._send(heard, "GET", f"jobs/{name}")

    def _check_seen(self, slip: JobHistory, asked: RequestTime, seen: dict[str, Any]) -> None:
        token, state, payload = slip.token, seen["state"], seen["payload"]
        self._check_told(slip, seen)
        require(seen["queue"] in (slip.queue, slip.dead_queue), f"{token} is in {seen['queue']}")
        if state != "gone":  # which shows what was, not what is
            ended = None if state in LIVE else state == "succeeded"
            attempts, fails = seen["attempts"], seen["fails"]
            self._book.on_inspected(slip, asked, attempts=attempts, fails=fails, ended=ended)
        right = payload_of(token, self._habits.largest_payload)
        require(payload["size"] == len(right), f"{token} is shown with {payload['size']} bytes")
        if payload.get("json") is not None:
            require(payload["json"] == json.loads(right), f"{token} is shown with another payload")
        else:
            require(state not in LIVE, f"{token} is shown without its payload")

    def _delete(self, slip: JobHistory) -> bytes:
        ending = self._book.before_end(slip, EndKind.DELETE)

        def heard(reply: HttpReply) -> None:
            if is_refusal(reply):
                self._book.on_end_refused(ending, still_held=True)
            elif reply.status == 404:
                self._book.on_end_refused(ending, still_held=False)
                self._book.on_not_found(slip, ending.asked)
            else:
                require(reply.status == 204, f"{slip.token} cannot be deleted: {reply}")
                self._book.on_ended(ending)

        return self._send(heard, "DELETE", f"jobs/{slip.id}")


def is_refusal(reply: HttpReply) -> bool:
    """The server cannot write, for now or until it is started again: nothing was done."""
    return reply.status in (503, 507) and reply.json()["type"] in REFUSALS


def _is_unreadable(reply: HttpReply) -> bool:
    """The disk failed once, when the payload was looked for."""
    return reply.status == 503 and reply.json()["type"] == UNREADABLE


def _fields(draft: Draft, chance: Random) -> dict[str, Any]:
    """The body of a push."""
    slip = draft.slip
    kind = chance.choice(["payload", "text"])
    payload = draft.payload.decode()
    fields: dict[str, Any] = {kind: json.loads(payload) if kind == "payload" else payload}
    if slip.priority:
        fields["priority"] = slip.priority
    if slip.run_at:
        fields["run_at"] = (EPOCH + timedelta(milliseconds=round(slip.run_at * 1000))).isoformat()
    if slip.ttr != inf:
        fields["ttr"] = slip.ttr
    if slip.ttl != inf:
        fields["ttl"] = slip.ttl
    if slip.max_attempts:
        fields["max_attempts"] = slip.max_attempts
    if draft.says_fails and slip.max_fails:
        fields["max_fails"] = slip.max_fails
    else:
        slip.max_fails = FAILS_UNSAID
    fields["backoff"] = "none"
    if slip.dead_queue:
        fields["dead_queue"] = slip.dead_queue
    if slip.limit_key:
        fields["limit_key"] = slip.limit_key
    if slip.unique:
        fields["uid"] = slip.unique
    if slip.blockers:
        fields["blocked_by"] = [int(blocker.id) for blocker in slip.blockers]
    return fields
