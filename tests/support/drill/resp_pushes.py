"""How a client of RESP pushes jobs into shared queues, and again if there was no answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from random import Random
from typing import Any

from support.drill.book import HistoryChecker
from support.drill.drafts import Draft, Drafts
from support.drill.habits import DriverOptions
from support.drill.resp_replies import Heard, Request, expect, is_refusal, number
from support.drill.slip import Bundle, RequestTime, require
from support.replies_resp import Failure, Word


@dataclass(eq=False, slots=True)
class PendingPush:
    """Jobs with uids whose push was not answered, and may be sent again as it was."""

    request: Request
    drafts: list[Draft]
    bundle: Bundle | None = None
    delay: float = 0.0  # seconds from when it arrives on


class RespPushes:
    """Of one client; `left`: parcels of those who went without an answer."""

    def __init__(
        self,
        book: HistoryChecker,
        chance: Random,
        habits: DriverOptions,
        drafts: Drafts,
        left: list[PendingPush],
    ) -> None:
        self._book = book
        self._chance = chance
        self._habits = habits
        self._drafts = drafts
        self._left = left
        self._parcels: list[PendingPush] = []  # on their way

    def ways(self) -> list[Callable[[], tuple[Request, Heard]]]:
        return [self.push_list, self.push_job, self.push_all]

    def has_left(self) -> bool:
        return bool(self._left)

    def lost(self) -> None:
        self._left += self._parcels
        self._parcels = []

    def push_list(self) -> tuple[Request, Heard]:
        verb = self._chance.choice(["RPUSH", "LPUSH"])
        queue, size = self._drafts.queue(), self._chance.choice([1, 1, 1, 2, 4])
        drafts = [self._drafts.simple(queue, at_front=verb == "LPUSH") for _ in range(size)]
        request: Request = (verb, queue, *(draft.payload for draft in drafts))
        return request, self._pushed_together(drafts, with_ids=False)

    def push_job(self) -> tuple[Request, Heard]:
        draft = self._drafts.any()
        request: Request = ("JOB.PUSH", *push_words(draft))
        delay = 0.0
        if self._chance.random() < 0.1:
            asked = self._asked([draft])
            ms = self._chance.randint(1, round(self._habits.longest_delay * 1000))
            delay = ms / 1000
            draft.slip.run_at = asked.time + delay
            draft.slip.ttl = inf  # when it would begin is not known to the instant
            request = ("JOB.PUSH", *push_words(draft, delay_ms=ms))
        else:
            asked = self._asked([draft])
        parcel = PendingPush(request, [draft], delay=delay)
        if draft.slip.unique:
            self._parcels.append(parcel)
        return request, self._pushed(parcel, asked)

    def push_all(self) -> tuple[Request, Heard]:
        chance = self._chance
        size = chance.choice([1, 2, 5])
        with_uids = chance.random() < 0.5
        drafts: list[Draft] = []
        words: list[Word] = []
        for place in range(size):
            draft = self._drafts.any()
            slip = draft.slip
            slip.unique = slip.unique or self._drafts.uid() if with_uids else ""
            after: list[Word] = []
            if place and chance.random() < 0.3:
                back = chance.randint(1, place)
                after = [-back]
                slip.blockers = (*slip.blockers, drafts[-back].slip)
            group = push_words(draft, after=after)
            words += [len(group), *group]
            drafts.append(draft)
        request: Request = ("JOB.PUSHALL", size, *words)
        return request, self._pushed_together(drafts, with_ids=True, request=request)

    def _pushed(self, parcel: PendingPush, asked: RequestTime) -> Heard:
        slip = parcel.drafts[0].slip

        def heard(reply: Any) -> None:
            if parcel in self._parcels:
                self._parcels.remove(parcel)
            if is_refusal(reply):
                self._book.on_push_refused(slip)
            elif isinstance(reply, Failure):
                word, id = reply.split(" ")[:2]
                require(word == "DUPLICATE", f"{slip.token} was refused: {reply}")
                require(slip.id in ("", id), f"{slip.token} has id {slip.id}, and was called {id}")
                self._book.on_push_repeated(slip, asked)
            else:
                self._book.on_pushed(slip, asked, str(number(reply)))

        return heard

    def _pushed_together(
        self, drafts: list[Draft], *, with_ids: bool, request: Request = ()
    ) -> Heard:
        asked = self._asked(drafts)
        slips = [draft.slip for draft in drafts]
        bundle = self._book.before_bundle(slips, [], asked)
        parcel = PendingPush(request, drafts, bundle)
        if request and all(slip.unique for slip in slips):
            self._parcels.append(parcel)
        return self._bundled(parcel, bundle, with_ids=with_ids)

    def _bundled(self, parcel: PendingPush, bundle: Bundle, *, with_ids: bool) -> Heard:
        repeated = any(draft.slip.repeated for draft in parcel.drafts)

        def heard(reply: Any) -> None:
            if parcel in self._parcels:
                self._parcels.remove(parcel)
            if is_refusal(reply):
                self._not_bundled(bundle, repeated=repeated)
            elif with_ids:
                require(isinstance(reply, list), f"jobs were refused: {reply}")
                require(len(reply) == len(bundle.pushes), f"{reply} for {len(bundle.pushes)} jobs")
                self._book.on_bundle_applied(bundle, [str(number(id)) for id in reply])
            else:
                require(number(reply) >= 1, f"a list has {reply} jobs after a push")
                self._book.on_bundle_applied(bundle)

        return heard

    def _not_bundled(self, bundle: Bundle, *, repeated: bool) -> None:
        if not repeated:
            self._book.on_bundle_refused(bundle, still_held=True)
            return
        for slip in bundle.pushes:
            self._book.on_push_refused(slip)

    def again(self) -> tuple[Request, Heard]:
        """A push that was not answered, as it was, if that may be."""
        parcel = self._left.pop(0)
        if not all(self._drafts.may_be_sent_again(draft.slip) for draft in parcel.drafts):
            return ("PING",), expect("PONG")
        self._parcels.append(parcel)
        asked = self._asked(parcel.drafts)
        if parcel.delay:  # only this one may arrive, and after a crash the clock may be behind
            slip = parcel.drafts[0].slip
            slip.run_at = min(slip.run_at, asked.time + parcel.delay)
        if parcel.bundle is None:
            return parcel.request, self._pushed(parcel, asked)
        return parcel.request, self._bundled(parcel, parcel.bundle, with_ids=True)

    def _asked(self, drafts: list[Draft]) -> RequestTime:
        asked = self._book.ask()
        for draft in drafts:
            self._book.before_push(draft.slip, asked)
        return asked


def push_words(draft: Draft, *, after: Sequence[Word] = (), delay_ms: int = 0) -> list[Word]:
    """The arguments of JOB.PUSH."""
    slip = draft.slip
    words: list[Word] = [slip.queue, draft.payload]
    if slip.unique:
        words += ["UID", slip.unique]
    if slip.priority:
        words += ["PRIORITY", slip.priority]
    if delay_ms:
        words += ["IN", delay_ms]
    elif slip.run_at:
        words += ["AT", round(slip.run_at * 1000)]
    if slip.limit_key:
        words += ["LIMIT", slip.limit_key]
    named = [slip.id for slip in slip.blockers if slip.id]
    if named or after:
        words += ["AFTER", len(named) + len(after), *named, *after]
    return words + _policy_words(draft)


def _policy_words(draft: Draft) -> list[Word]:
    slip = draft.slip
    words: list[Word] = []
    if slip.ttr != inf:
        words += ["TTR", round(slip.ttr * 1000)]
    if slip.ttl != inf:
        words += ["TTL", round(slip.ttl * 1000)]
    if slip.max_attempts:
        words += ["ATTEMPTS", slip.max_attempts]
    if draft.says_fails:
        words += ["FAILS", slip.max_fails]
    words += ["BACKOFF", *(draft.backoff_ms or (0, 0))]  # the pauses of the default are long
    if slip.dead_queue:
        words += ["DEAD", slip.dead_queue]
    return words
