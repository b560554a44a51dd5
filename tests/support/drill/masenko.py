"""Clients of Masenko that work on shared queues at random and record the history. No I/O."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from support.drill.book import HistoryChecker
from support.drill.habits import (
    DEAD,
    EVERY_QUEUE,
    NARROW,
    QUEUES,
    DriverOptions,
    payload_of,
    token_of,
)
from support.drill.slip import (
    NEVER,
    Bundle,
    EndAttempt,
    EndKind,
    FetchAttempt,
    JobHistory,
    Lease,
    RequestTime,
    require,
)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_REFUSALS = ("no space: ", "read only: ", "queue is full: ", "draining: ")

Reply = dict[str, Any]
Handler = Callable[[str, Reply, bytes], None]


class MasenkoDriver:
    """One client, from its first to its last request."""

    def __init__(
        self, name: str, book: HistoryChecker, chance: Random, habits: DriverOptions
    ) -> None:
        self.name = name
        self._book = book
        self._chance = chance
        self._habits = habits
        self._pending: deque[tuple[RequestTime, Handler]] = deque()
        self._unread = b""
        self._made = 0
        self._dropped = False  # the server has said that it hears nothing

    def is_idle(self) -> bool:
        return not self._pending

    def leave(self) -> None:
        self.lost()

    def lost(self) -> None:
        self._book.on_disconnect(self.name)

    def receive(self, data: bytes) -> None:
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            verb, _, text = line.decode().partition(" ")
            body: Reply = json.loads(text)
            if self._dropped or body.get("msg") == "no heartbeat":
                self._dropped = True
                return
            require(bool(self._pending), f"{self.name} got {line!r} for nothing")
            asked, handler = self._pending.popleft()
            self._book.on_connection_seen(self.name, asked, self._habits.heartbeat)
            handler(verb, body, line)

    # Requests

    def request(self) -> bytes:
        """One at random. Who holds jobs mostly finishes them."""
        chance = self._chance
        held = self.holds()
        if held and chance.random() < 0.6:
            lease = chance.choice(held)
            return chance.choice([self.finish, self.finish, self.fail])(lease)
        makers: Sequence[Callable[[], bytes]] = (
            self.push,
            self.push,
            self.push,
            self.take,
            self.take,
            self.take,
            self.transaction,
            self.info,
            self.ping,
        )
        return chance.choice(makers)()

    def holds(self) -> list[Lease]:
        return self._book.leases_of(self.name)

    def push(self) -> bytes:
        slip, line = self._push()
        asked = self._book.ask()
        self._book.before_push(slip, asked)

        def reply(verb: str, body: Reply, line: bytes) -> None:
            if _is_refused(verb, body):
                self._book.on_push_refused(slip)
            else:
                self._book.on_pushed(slip, asked, str(body["id"]))

        self._pending.append((asked, reply))
        return line

    def take(self, queues: Sequence[str] = (), wait_ms: int = 0) -> bytes:
        chosen = list(queues) or self._chance.sample(EVERY_QUEUE, self._chance.randint(1, 4))
        take = self._book.before_fetch(self.name, chosen, bound=True)

        def reply(verb: str, body: Reply, line: bytes) -> None:
            if verb != "EMPTY" and not _is_refused(verb, body):
                self._came(take, body, line)
            self._book.on_fetch_answered(take)

        self._pending.append((take.asked, reply))
        timeout = wait_ms or self._chance.choice(self._habits.waits_ms)
        return _line("FETCH", {"queues": chosen, "timeout": f"{timeout}ms"})

    def finish(self, lease: Lease) -> bytes:
        return self._end("ACK", EndKind.SUCCESS, lease)

    def fail(self, lease: Lease) -> bytes:
        return self._end("NACK", EndKind.FAIL, lease)

    def transaction(self) -> bytes:
        chance = self._chance
        held = self.holds()
        leases = chance.sample(held, chance.randint(0, min(len(held), 3)))
        pushes: list[JobHistory] = []
        lines: list[bytes] = []
        for _ in range(chance.randint(0, 4)):
            slip, line = self._push(pushes)
            pushes.append(slip)
            lines.append(line)
        endings = [self._book.before_end(lease.slip, EndKind.SUCCESS, lease) for lease in leases]
        for lease in leases:
            line = _line("ACK", {"id": int(lease.slip.id)})
            lines.insert(chance.randint(0, len(lines)), line)
        asked = self._book.ask()
        for slip in pushes:
            self._book.before_push(slip, asked)
        bundle = self._book.before_bundle(pushes, endings, asked)
        self._pending.append((asked, self._transacted(bundle)))
        return b"ATOMIC\n" + b"".join(lines) + b"DONE\n"

    def info(self) -> bytes:
        def reply(verb: str, body: Reply, line: bytes) -> None:
            if not _is_refused(verb, body):
                for queue in body["queues"]:
                    counts = (queue["ready"], queue["delayed"], queue["to_ack"])
                    require(min(counts) >= 0, f"{queue['name']} has {counts} jobs")

        self._pending.append((self._book.ask(), reply))
        return b"INFO\n"

    def ping(self) -> bytes:
        def reply(verb: str, body: Reply, line: bytes) -> None:
            require((verb, body) == ("PONG", {}), f"PING was answered with {line!r}")

        self._pending.append((self._book.ask(), reply))
        return b"PING\n"

    # Parts of requests

    def _push(self, before: Sequence[JobHistory] | None = None) -> tuple[JobHistory, bytes]:
        """A push; inside of a transaction with those that are `before` it."""
        chance, habits = self._chance, self._habits
        self._made += 1
        narrow = (NARROW,) if NARROW in self._book.limits.in_flight else ()
        retries = chance.choice(habits.retries)
        blockers, ids = self._blockers(before)
        slip = JobHistory(
            token=f"{self.name}.{self._made}",
            maker=self.name,
            queue=chance.choice((*QUEUES, *narrow)),
            max_fails=retries + 1,
            dead_queue=DEAD if chance.random() < 0.3 else "",
            loss_fails=True,
            blockers=blockers,
        )
        fields: dict[str, object] = {
            "name": "task",
            "queue": slip.queue,
            "retry": retries,
            "payload": json.loads(payload_of(slip.token, habits.largest_payload)),
        }
        if slip.dead_queue:
            fields["deadqueue"] = DEAD
        if chance.random() < 0.15:
            slip.run_at = round(self._book.clock() + chance.random() * habits.longest_delay, 3)
            fields["execute_at"] = _rfc_3339(slip.run_at)
        if ids:
            fields["blocked_by"] = ids
        return slip, _line("PUSH", fields)

    def _blockers(
        self, before: Sequence[JobHistory] | None
    ) -> tuple[tuple[JobHistory, ...], list[int]]:
        chance = self._chance
        if chance.random() > 0.15:
            return (), []
        if before:
            back = chance.randint(1, len(before))
            return (before[-back],), [-back]
        known = [slip for slip in self._book.recent if slip.id and slip.over == NEVER]
        if chance.random() < 0.7:
            known = [slip for slip in known if not slip.may_have_failed()]
        blockers = chance.sample(known, min(len(known), chance.randint(1, 2)))
        return tuple(blockers), [int(slip.id) for slip in blockers]

    def _came(self, take: FetchAttempt, body: Reply, line: bytes) -> None:
        token = token_of(json.dumps(body["payload"]).encode())
        payload = payload_of(token, self._habits.largest_payload)
        got = self._book.on_job_received(
            take,
            token,
            body["queue"],
            id=str(body["id"]),
            fails=body.get("failures", 0),
            payload_is_right=b'"payload":' + payload in line,
        )
        for lease in self.holds():
            if lease.slip is got.slip and lease is not got:
                self._book.forget_lease(lease)  # an ACK names the job, and is about the new one

    def _end(self, verb: str, kind: EndKind, lease: Lease) -> bytes:
        ending = self._book.before_end(lease.slip, kind, lease)

        def reply(verb: str, body: Reply, line: bytes) -> None:
            if verb == "ERR" and body["msg"] == "task not acquired":
                self._book.on_end_refused(ending, still_held=False)
            elif _is_refused(verb, body):
                self._book.on_end_refused(ending, still_held=True)
            else:
                self._book.on_ended(ending)

        self._pending.append((ending.asked, reply))
        return _line(verb, {"id": int(lease.slip.id)})

    def _transacted(self, bundle: Bundle) -> Handler:
        def reply(verb: str, body: Reply, line: bytes) -> None:
            over = _not_acquired(bundle, body.get("msg", ""))
            if over is not None:
                self._book.on_bundle_refused(bundle, still_held=True, over=[over])
            elif _is_refused(verb, body):
                self._book.on_bundle_refused(bundle, still_held=True)
            else:
                ids = [str(id) for id in body.get("ids", [])]
                require(len(ids) == len(bundle.pushes), f"{ids} for {len(bundle.pushes)} pushes")
                self._book.on_bundle_applied(bundle, ids)

        return reply


def _not_acquired(bundle: Bundle, message: str) -> EndAttempt | None:
    words = message.split(" ")
    if words[0] != "task" or words[2:] != ["not", "acquired"]:
        return None
    (ending,) = (each for each in bundle.endings if each.slip.id == words[1])
    return ending


def _is_refused(verb: str, body: Reply) -> bool:
    """Nothing these clients ask for is wrong, so only a disk that fails can refuse it."""
    if verb == "OK":
        return False
    require(verb == "ERR" and body["msg"].startswith(_REFUSALS), f"{verb} {body}")
    return True


def _line(verb: str, body: object) -> bytes:
    return f"{verb} {json.dumps(body)}\n".encode()


def _rfc_3339(moment: float) -> str:
    return (_EPOCH + timedelta(milliseconds=round(moment * 1000))).isoformat()
