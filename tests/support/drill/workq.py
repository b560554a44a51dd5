"""Clients of Workq that work on shared queues at random and record the history. No I/O."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from math import inf
from random import Random
from uuid import UUID

from support.drill.book import HistoryChecker
from support.drill.habits import EVERY_QUEUE, NARROW, QUEUES, DriverOptions, payload_of, token_of
from support.drill.slip import EndKind, JobHistory, Lease, RequestTime, require
from support.replies_workq import Reply, ReplyReader, Shape

LONG_TTL = 30 * 86_400.0
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Handler = Callable[[Reply], None]


class WorkqDriver:
    """One client, from its first to its last request."""

    def __init__(
        self, name: str, book: HistoryChecker, chance: Random, habits: DriverOptions
    ) -> None:
        self.name = name
        self._book = book
        self._chance = chance
        self._habits = habits
        self._replies = ReplyReader()
        self._pending: deque[tuple[Shape, Handler]] = deque()
        self._made = 0
        self._results = 0

    def is_idle(self) -> bool:
        return not self._pending

    def leave(self) -> None:
        """What was leased stays so until its time is over."""
        self.lost()

    def lost(self) -> None:
        self._book.on_disconnect(self.name)

    def receive(self, data: bytes) -> None:
        self._replies.feed(data)
        while self._pending:
            reply = self._replies.next(self._pending[0][0])
            if reply is None:
                return
            self._pending.popleft()[1](reply)
        require(self._replies.is_empty(), f"{self.name} got something for nothing")

    # Requests

    def request(self) -> bytes:
        """One at random. Who holds jobs mostly finishes them."""
        chance = self._chance
        held = self.holds()
        if held and chance.random() < 0.6:
            lease = chance.choice(held)
            if chance.random() < 0.2:
                self._book.forget_lease(lease)  # and forget about it
                return self.take()
            return chance.choice([self.finish, self.finish, self.fail])(lease)
        if self._book.recent and chance.random() < 0.2:
            return self._about_any()
        makers = [self.add] * 4 + [self.schedule] + [self.take] * 4
        return self.run() if chance.random() < 0.03 else chance.choice(makers)()

    def holds(self) -> list[Lease]:
        return self._book.leases_of(self.name)

    def _about_any(self) -> bytes:
        """Something with any job, whoever asked for it and whoever has it."""
        chance = self._chance
        known = [slip for slip in self._book.recent if slip.uid]
        if not known:
            return self.add()
        slip = chance.choice(known)
        makers: list[Callable[[JobHistory], bytes]] = [self.result, self.inspect] * 4
        if chance.random() < 0.4:
            makers += [self.complete, self.fail_any]
            if not slip.repeated:
                makers.append(self.delete)
        if slip.ttl == LONG_TTL and not slip.may_be_deleted():
            makers += [self._ask_to_add] * 2
        return chance.choice(makers)(slip)

    def add(self) -> bytes:
        return self._ask_to_add(self._new_slip())

    def schedule(self) -> bytes:
        slip = self._new_slip()
        delay = self._chance.random() * self._habits.longest_delay
        slip.run_at = round(self._book.clock() + delay, 3)
        return self._ask_to_add(slip)

    def take(self, queues: Sequence[str] = (), wait_ms: int = -1) -> bytes:
        chosen = list(queues) or self._chance.sample(EVERY_QUEUE, self._chance.randint(1, 4))
        take = self._book.before_fetch(self.name, chosen, default_ttr=self._habits.default_ttr)

        def reply(reply: Reply) -> None:
            if reply.error:
                require(reply.error == "TIMEOUT" or is_refusal(reply), f"lease: {reply.error}")
            else:
                token = token_of(reply.data)
                right = reply.data == payload_of(token, self._habits.largest_payload)
                uid, queue = reply.words[:2]
                lease = self._book.on_job_received(
                    take, token, queue, uid=uid, payload_is_right=right
                )
                shows = len(reply.words) == 4
                require(shows == self._habits.lease_ttr, f"{reply.words}")
                if shows and lease.slip.ttr != inf:
                    require(int(reply.words[2]) == _ms(lease.slip.ttr), f"{reply.words}")
            self._book.on_fetch_answered(take)

        self._pending.append((Shape.BLOCK, reply))
        wait = wait_ms if wait_ms >= 0 else self._wait()
        return f"lease {' '.join(chosen)} {wait}\r\n".encode()

    def finish(self, lease: Lease) -> bytes:
        self._book.forget_lease(lease)
        return self.complete(lease.slip)

    def fail(self, lease: Lease) -> bytes:
        self._book.forget_lease(lease)
        return self.fail_any(lease.slip)

    def complete(self, slip: JobHistory) -> bytes:
        return self._end("complete", EndKind.SUCCESS, slip)

    def fail_any(self, slip: JobHistory) -> bytes:
        return self._end("fail", EndKind.FAIL, slip)

    def delete(self, slip: JobHistory) -> bytes:
        ending = self._book.before_end(slip, EndKind.DELETE)

        def reply(reply: Reply) -> None:
            if reply.error:
                self._book.on_end_refused(ending, still_held=True)
                self._is_missing(slip, ending.asked, reply)
            else:
                self._book.on_ended(ending)

        self._pending.append((Shape.NOTHING, reply))
        return f"delete {slip.uid}\r\n".encode()

    def result(self, slip: JobHistory) -> bytes:
        asked, uid = self._book.ask(), slip.uid

        def reply(reply: Reply) -> None:
            if not reply.error:
                self._show(slip, uid, asked, reply)
            elif reply.error == "TIMEOUT":
                self._book.on_no_result(slip, asked)
            else:
                self._is_missing(slip, asked, reply)

        self._pending.append((Shape.BLOCK, reply))
        return f"result {uid} {self._wait()}\r\n".encode()

    def inspect(self, slip: JobHistory) -> bytes:
        asked, uid = self._book.ask(), slip.uid

        def reply(reply: Reply) -> None:
            if reply.error:
                self._is_missing(slip, asked, reply)
                return
            keys = reply.keys
            require(reply.words[0] == uid, f"{reply.words} instead of {uid}")
            payload = payload_of(slip.token, self._habits.largest_payload)
            require(keys["payload"] == payload, f"{slip.token} has another payload")
            require(int(keys["priority"]) == slip.priority, f"{slip.token} has another priority")
            state = int(keys["state"])
            self._book.on_inspected(
                slip,
                asked,
                attempts=int(keys["attempts"]),
                fails=int(keys["fails"]),
                ended=state == 1 if state in (1, 2) else None,
            )

        self._pending.append((Shape.KEYS, reply))
        return f"inspect job {uid}\r\n".encode()

    def run(self) -> bytes:
        slip = self._new_slip()
        slip.momentary, slip.max_attempts, slip.max_fails = True, 1, 1
        slip.ttr, slip.ttl, slip.keeps_result = self._habits.short_ttr, inf, False
        asked = self._book.ask()
        self._book.before_push(slip, asked)

        def reply(reply: Reply) -> None:
            if is_refusal(reply):
                return  # it may have begun
            if not reply.error:
                self._book.on_pushed(slip, asked)
                self._show(slip, slip.uid, asked, reply)
            else:
                require(reply.error in ("TIMEOUT", "NOT-FOUND"), f"run: {reply.error}")
            if not self._habits.disk_fails:
                self._book.on_gone(slip)

        self._pending.append((Shape.BLOCK, reply))
        payload = payload_of(slip.token, self._habits.largest_payload)
        head = f"run {slip.uid} {slip.queue} {_ms(slip.ttr)} {self._wait()} {len(payload)}"
        return _lines(f"{head} -priority={slip.priority}", payload)

    # Parts of requests

    def _wait(self) -> int:
        return self._chance.choice((0, *self._habits.waits_ms))

    def _new_slip(self) -> JobHistory:
        chance, habits = self._chance, self._habits
        self._made += 1
        uid = str(UUID(int=chance.getrandbits(128), version=4))
        narrow = (NARROW,) if NARROW in self._book.limits.in_flight else ()
        return JobHistory(
            token=f"{self.name}.{self._made}",
            maker=self.name,
            queue=chance.choice((*QUEUES, *narrow)),
            priority=chance.choice([0, 0, 0, 7, -7]),
            ttr=habits.short_ttr if chance.random() < 0.2 else habits.long_ttr,
            ttl=habits.short_ttl if chance.random() < 0.1 else LONG_TTL,
            max_attempts=chance.choice([0, 0, 0, 0, 1, 2, 3]),
            max_fails=chance.choice([1, 1, 2, 3]),
            max_losses=habits.workq_max_losses,
            unique=uid,
            uid=uid,
            keeps_result=True,
        )

    def _ask_to_add(self, slip: JobHistory) -> bytes:
        asked = self._book.ask()
        self._book.before_push(slip, asked)

        def reply(reply: Reply) -> None:
            if is_refusal(reply) or self._is_too_late(slip, reply):
                self._book.on_push_refused(slip)
            elif reply.error:
                require(reply.error == "CLIENT-ERROR Duplicate job", f"add: {reply.error}")
                self._book.on_push_repeated(slip, asked)
            else:
                self._book.on_pushed(slip, asked)

        self._pending.append((Shape.NOTHING, reply))
        payload = payload_of(slip.token, self._habits.largest_payload)
        head = f"{slip.uid} {slip.queue} {_ms(slip.ttr)} {_ms(slip.ttl)}"
        head = f"schedule {head} {_rfc_3339(slip.run_at)}" if slip.run_at else f"add {head}"
        fails = 0 if slip.max_fails == 1 and self._chance.random() < 0.5 else slip.max_fails
        flags = f"-priority={slip.priority} -max-attempts={slip.max_attempts} -max-fails={fails}"
        return _lines(f"{head} {len(payload)} {flags}", payload)

    def _is_too_late(self, slip: JobHistory, reply: Reply) -> bool:
        """Its time and its ttl were both over, as the clock was set."""
        if reply.error != "CLIENT-ERROR Invalid Time":
            return False
        return self._book.clock() >= slip.run_at + slip.ttl

    def _end(self, verb: str, kind: EndKind, slip: JobHistory) -> bytes:
        self._results += 1
        # Some look like the end of a reply.
        data = f"{self.name}.{self._results}\r\n".encode() + b"x" * self._chance.choice([0, 300])
        ending = self._book.before_end(slip, kind, None, data)

        def reply(reply: Reply) -> None:
            if not reply.error:
                self._book.on_ended(ending)
                return
            self._book.on_end_refused(ending, still_held=True)
            if reply.error == "CLIENT-ERROR Duplicate result":
                self._book.has_ended(slip)
            else:
                self._is_missing(slip, ending.asked, reply)

        self._pending.append((Shape.NOTHING, reply))
        return _lines(f"{verb} {slip.uid} {len(data)}", data)

    def _show(self, slip: JobHistory, uid: str, asked: RequestTime, reply: Reply) -> None:
        id, success, _ = reply.words
        require(id == uid and success in ("0", "1"), f"{reply.words} for {uid}")
        self._book.on_result_shown(slip, asked, reply.data, success=success == "1")

    def _is_missing(self, slip: JobHistory, asked: RequestTime, reply: Reply) -> None:
        if not is_refusal(reply):
            require(reply.error == "NOT-FOUND", f"{slip.token}: {reply.error}")
            self._book.on_not_found(slip, asked)


def is_refusal(reply: Reply) -> bool:
    """Only a disk that fails can make the server say that."""
    return reply.error.startswith("SERVER-ERROR ")


def _lines(head: str, data: bytes) -> bytes:
    return head.encode() + b"\r\n" + data + b"\r\n"


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def _rfc_3339(moment: float) -> str:
    time = _EPOCH + timedelta(milliseconds=round(moment * 1000))
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
