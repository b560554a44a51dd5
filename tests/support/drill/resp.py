"""Clients of the RESP listener that work on shared queues at random and record the history."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from random import Random
from typing import Any

from support.drill.book import HistoryChecker
from support.drill.drafts import Drafts
from support.drill.habits import EVERY_QUEUE, DriverOptions, payload_of, token_of
from support.drill.resp_pushes import PendingPush, RespPushes
from support.drill.resp_replies import Heard, Request, expect, is_refusal, is_stale, number
from support.drill.slip import (
    NEVER,
    EndKind,
    FetchAttempt,
    HistoryViolation,
    JobHistory,
    Lease,
    RequestTime,
    require,
)
from support.replies_resp import Failure, Incomplete, ReplyReader, Word, command

CLOCKS_DIFFER = 1.0  # seconds by which the times of a real server may be off


@dataclass(eq=False, slots=True)
class LeasedJob:
    """A lease and the name it has here; good on any connection."""

    ref: bytes
    lease: Lease


@dataclass(eq=False, slots=True)
class RespClients:
    """All clients of RESP, and what disconnected ones have left behind."""

    book: HistoryChecker
    chance: Random
    habits: DriverOptions
    holds: list[LeasedJob] = field(default_factory=list)
    refs: set[bytes] = field(default_factory=set)  # all there were
    parcels: list[PendingPush] = field(default_factory=list)

    def add_client(self, name: str) -> RespDriver:
        return RespDriver(self, name)


class RespDriver:
    def __init__(self, people: RespClients, name: str) -> None:
        self.name = name
        self._people = people
        self._book = people.book
        self._chance = people.chance
        self._habits = people.habits
        self._drafts = Drafts(name, people.book, people.chance, people.habits)
        self._reader = ReplyReader()
        self._open: deque[Heard] = deque()
        self._pushes = RespPushes(
            people.book, people.chance, people.habits, self._drafts, people.parcels
        )
        self._results = 0

    # As a talk

    def request(self) -> bytes:
        chance, holds = self._chance, self._people.holds
        if holds and chance.random() < 0.45:
            hold = holds.pop(chance.randrange(len(holds)))
            return self._send(*self._ending(hold))
        if self._pushes.has_left() and chance.random() < 0.3:
            return self._send(*self._pushes.again())
        action = chance.random()
        if action < 0.2:
            return self._send(*self._pushes.push_list())
        if action < 0.35:
            return self._send(*self._pushes.push_job())
        if action < 0.42:
            return self._send(*self._pushes.push_all())
        if action < 0.52:
            return self._send(*self._pop())
        if action < 0.85:
            return self._send(*self._take())
        if action < 0.9:
            return self._multi()
        slip = self._drafts.known()
        if action < 0.97 and slip is not None:
            return self._send(*self._result(slip))
        return self._send(("PING",), expect("PONG"))

    def receive(self, data: bytes) -> None:
        self._reader.feed(data)
        while self._open:
            try:
                reply = self._reader.next()
            except Incomplete:
                return
            self._open.popleft()(reply)
        if not self._reader.is_empty():
            raise HistoryViolation(f"{self.name} got a reply to nothing")

    def is_idle(self) -> bool:
        return not self._open

    def leave(self) -> None:
        self.lost()

    def lost(self) -> None:
        self._pushes.lost()
        self._book.on_disconnect(self.name)

    def _send(self, request: Request, heard: Heard) -> bytes:
        self._open.append(heard)
        return command(*request)

    # For the end of a run

    def take(self, queues: Sequence[str], count: int, wait_ms: int = 0) -> bytes:
        return self._send(*self._take_from(list(queues), count, wait_ms, 0.0))

    def finish_all(self) -> bytes:
        """Say that everything is done that anybody holds."""
        holds = self._people.holds
        done = b"".join(self._send(*self._done(hold)) for hold in holds)
        holds.clear()
        return done

    def holds_any(self) -> bool:
        return bool(self._people.holds)

    # Taking

    def _pop(self) -> tuple[Request, Heard]:
        chance = self._chance
        verb = chance.choice(["LPOP", "RPOP", "BLPOP", "BRPOP"])
        if verb.startswith("B"):
            return self._pop_or_wait(verb)
        queue, count = chance.choice(EVERY_QUEUE), chance.choice([0, 1, 2, 4])
        take = self._book.before_fetch(
            self.name, [queue], count=count or 1, pops=True, last_first=verb == "RPOP"
        )

        def heard(reply: Any) -> None:
            if not is_refusal(reply):
                require(not isinstance(reply, Failure), f"{verb} was refused: {reply}")
                found = reply if count else [reply]
                for payload in [each for each in found or () if each is not None]:
                    self._book.on_job_received(
                        take, token_of(payload), queue, payload_is_right=self._is_right(payload)
                    )
            self._book.on_fetch_answered(take)

        words: Request = (count,) if count else ()
        return (verb, queue, *words), heard

    def _pop_or_wait(self, verb: str) -> tuple[Request, Heard]:
        queues = self._drafts.queues(3)
        take = self._book.before_fetch(self.name, queues, pops=True, last_first=verb == "BRPOP")
        wait = self._chance.choice(self._habits.waits_ms) / 1000

        def heard(reply: Any) -> None:
            if not is_refusal(reply) and reply is not None:
                require(isinstance(reply, list), f"{verb} was refused: {reply}")
                queue, payload = reply
                right = self._is_right(payload)
                self._book.on_job_received(
                    take, token_of(payload), queue.decode(), payload_is_right=right
                )
            self._book.on_fetch_answered(take)

        return (verb, *queues, str(wait)), heard

    def _take(self) -> tuple[Request, Heard]:
        chance, habits = self._chance, self._habits
        wait = chance.choice([0, *habits.waits_ms])
        ttr = chance.choice([habits.short_ttr, habits.long_ttr, 0.0])
        return self._take_from(self._drafts.queues(4), chance.choice([1, 1, 3]), wait, ttr)

    def _take_from(
        self, queues: list[str], count: int, wait_ms: int, ttr: float
    ) -> tuple[Request, Heard]:
        take = self._book.before_fetch(
            self.name,
            queues,
            count=count,
            ttr=ttr or inf,
            default_ttr=self._habits.default_ttr,
        )
        words: list[Word] = ["COUNT", count] if count > 1 else []
        if wait_ms:
            words += ["WAIT", wait_ms]
        if ttr:
            words += ["TTR", round(ttr * 1000)]
        if self._chance.random() < 0.2:
            words.append("RANDOM")

        def heard(reply: Any) -> None:
            if not is_refusal(reply):
                require(isinstance(reply, list), f"a take was refused: {reply}")
                for job in reply:
                    self._took(take.asked, job, self._came(take, job))
            elapsed = self._book.clock() - take.asked.time
            self._book.on_fetch_answered(take, late=elapsed >= self._habits.short_ttr)

        return ("JOB.TAKE", len(queues), *queues, *words), heard

    def _came(self, take: FetchAttempt, job: list[Any]) -> Lease:
        _, id, uid, queue, _, _, fails, _, payload = job
        return self._book.on_job_received(
            take,
            token_of(payload),
            queue.decode(),
            id=str(id),
            uid=uid.decode(),
            fails=fails,
            payload_is_right=self._is_right(payload),
        )

    def _took(self, asked: RequestTime, job: list[Any], lease: Lease) -> None:
        ref, id, uid, _, _, _, _, deadline, _ = job
        token, unique = lease.slip.token, lease.slip.unique
        require(unique in ("", uid.decode()), f"{token} came with another uid")
        require(int(ref.split(b"-")[0]) == id, f"{token} is leased under {ref!r}")
        require(ref not in self._people.refs, f"{ref!r} is the ref of two leases")
        self._people.refs.add(ref)
        latest = self._book.clock() + lease.ttr + CLOCKS_DIFFER
        require(
            asked.time + lease.ttr - CLOCKS_DIFFER <= deadline / 1000 <= latest,
            f"{token} was leased for {lease.ttr} s at {asked.time}, until {deadline} ms",
        )
        self._people.holds.append(LeasedJob(ref, lease))

    def _is_right(self, payload: bytes) -> bool:
        return payload == payload_of(token_of(payload), self._habits.largest_payload)

    # What becomes of a job

    def _ending(self, hold: LeasedJob) -> tuple[Request, Heard]:
        action = self._chance.random()
        if action < 0.5:
            return self._done(hold)
        if action < 0.6:
            return self._end(hold, EndKind.RETURN, ("JOB.RETURN", hold.ref), expect("OK"))
        if action < 0.7:
            return self._extend(hold)
        if action < 0.75:
            return self._progress(hold)
        return self._fail(hold)

    def _done(self, hold: LeasedJob) -> tuple[Request, Heard]:
        self._results += 1
        result = f"{self.name} did {self._results}".encode() if self._results % 2 else b""
        request = ("JOB.DONE", hold.ref, result) if result else ("JOB.DONE", hold.ref)
        return self._end(hold, EndKind.SUCCESS, request, expect("OK"), result)

    def _fail(self, hold: LeasedJob) -> tuple[Request, Heard]:
        slip = hold.lease.slip
        words: Request = ()
        if self._chance.random() < 0.15:
            words = ("FINAL",)
        elif slip.max_fails != 1 and self._chance.random() < 0.5:
            # Where nobody has said how often it may fail, this would say: once more.
            words = ("IN", self._chance.choice([0, 10, 500]))

        def heard(reply: Any) -> None:
            require(reply in ("failed", "ready", "delayed"), f"a failure was answered: {reply}")
            if words == ("FINAL",):
                require(reply == "failed" or slip.dead_queue != "", f"FINAL was answered: {reply}")
            elif reply == "failed":
                require(slip.may_be_dead(), f"{slip.token} was given up too soon")

        kind = EndKind.FINAL if words == ("FINAL",) else EndKind.FAIL
        self._results += 1
        error = f"{self.name} failed {self._results}".encode()
        return self._end(hold, kind, ("JOB.FAIL", hold.ref, error, *words), heard, error)

    def _end(
        self, hold: LeasedJob, kind: EndKind, request: Request, right: Heard, data: bytes = b""
    ) -> tuple[Request, Heard]:
        ending = self._book.before_end(hold.lease.slip, kind, hold.lease, data)

        def heard(reply: Any) -> None:
            if is_refusal(reply):
                self._book.on_end_refused(ending, still_held=True)
                self._people.holds.append(hold)
            elif is_stale(reply):
                self._book.on_end_refused(ending, still_held=False)
            else:
                right(reply)
                self._book.on_ended(ending)

        return request, heard

    def _extend(self, hold: LeasedJob) -> tuple[Request, Heard]:
        lease = hold.lease
        seconds = self._chance.choice([self._habits.short_ttr, self._habits.long_ttr])
        term = self._book.before_extend(lease, seconds)
        asked = term.asked
        self._people.holds.append(hold)

        def heard(reply: Any) -> None:
            if is_refusal(reply):
                self._book.on_extend_refused(lease, term)
            elif is_stale(reply):
                self._check_over(lease, asked)
            else:
                latest = self._book.clock() + seconds + CLOCKS_DIFFER
                require(
                    asked.time + seconds - CLOCKS_DIFFER <= number(reply) / 1000 <= latest,
                    f"{lease.slip.token} was to be held for {seconds} s, and is until {reply} ms",
                )
                self._book.on_extended(term)

        return ("JOB.EXTEND", hold.ref, round(seconds * 1000)), heard

    def _progress(self, hold: LeasedJob) -> tuple[Request, Heard]:
        asked = self._book.ask()
        self._people.holds.append(hold)

        def heard(reply: Any) -> None:
            if is_stale(reply):
                self._check_over(hold.lease, asked)
            elif not is_refusal(reply):
                expect("OK")(reply)

        return ("JOB.PROGRESS", hold.ref, self._chance.randint(0, 1000), "on its way"), heard

    def _check_over(self, lease: Lease, asked: RequestTime) -> None:
        """A lease is said to be over: is there a reason?"""
        slip = lease.slip
        sure = (
            lease.alive
            and lease in slip.leases
            and slip.over == NEVER
            and not slip.endings
            and self._book.clock() < min(lease.sure_until, slip.may_die_from())
        )
        require(not sure, f"the holder of {slip.token} was not heeded")

    def _result(self, slip: JobHistory) -> tuple[Request, Heard]:
        asked = self._book.ask()
        name = slip.unique if slip.unique and self._chance.random() < 0.5 else slip.id
        wait = self._chance.choice([0, *self._habits.waits_ms])

        def heard(reply: Any) -> None:
            if reply is None:
                self._book.on_no_result(slip, asked)
            elif isinstance(reply, list):
                self._show_result(slip, asked, reply)
            elif not is_refusal(reply):
                require(reply.startswith("NOJOB"), f"a result was refused: {reply}")
                self._book.on_not_found(slip, asked)

        return ("JOB.RESULT", name, "WAIT", wait) if wait else ("JOB.RESULT", name), heard

    def _show_result(self, slip: JobHistory, asked: RequestTime, reply: list[Any]) -> None:
        id, state, success, result, _ = reply
        require(str(id) == slip.id, f"{slip.token} has id {slip.id}, and was shown as {id}")
        require(state == b"succeeded" if success else state == b"failed", f"{reply}")
        # What a failure has left is shown in other words by others.
        data = (result or b"") if success else None
        self._book.on_result_shown(slip, asked, data, success=bool(success))

    # Several at once

    def _multi(self) -> bytes:
        """Nobody is served in between, but each of them is by itself if the server is killed."""
        chance, holds = self._chance, self._people.holds
        steps = []
        for _ in range(chance.randint(1, 4)):
            if holds and chance.random() < 0.5:
                steps.append(self._ending(holds.pop()))
            else:
                choice = chance.choice([*self._pushes.ways(), self._pop])
                steps.append(choice())
        self._open.append(expect("OK"))
        self._open.extend([expect("QUEUED")] * len(steps))

        def heard(reply: Any) -> None:
            answers = reply if isinstance(reply, list) else [reply] * len(steps)
            require(len(answers) == len(steps), f"{len(steps)} commands, answered: {reply}")
            for (_, each), answer in zip(steps, answers, strict=True):
                each(answer)

        self._open.append(heard)
        commands = b"".join(command(*request) for request, _ in steps)
        return command("MULTI") + commands + command("EXEC")
