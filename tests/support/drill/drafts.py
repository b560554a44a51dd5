"""Jobs as a client thinks them up, and what it may choose among: the same for RESP and the API."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from uuid import UUID

from support.drill.book import HistoryChecker
from support.drill.habits import BOX, DEAD, EVERY_QUEUE, NARROW, QUEUES, DriverOptions, payload_of
from support.drill.slip import NEVER, JobHistory

FAILS_UNSAID = 4  # how often a job may fail whose push says nothing of that
LIMIT_KEYS = ("ann", "ben")
LONGEST_RETRY = 300.0  # seconds after which a push is not sent again: uids are forgotten one day


@dataclass(frozen=True, slots=True)
class Draft:
    """A job that is to be pushed, and what is said of it beyond what its slip has."""

    slip: JobHistory
    payload: bytes
    says_fails: bool
    backoff_ms: tuple[int, int] | None


class Drafts:
    """Random jobs of one client."""

    def __init__(
        self, name: str, book: HistoryChecker, chance: Random, habits: DriverOptions
    ) -> None:
        self._name = name
        self._book = book
        self._chance = chance
        self._habits = habits
        self._made = 0

    def simple(self, queue: str, **facts: object) -> Draft:
        """A job of which nothing is said but where it goes."""
        return self._draft(JobHistory(token=self._token(), maker=self._name, queue=queue, **facts))  # type: ignore[arg-type]

    def any(self, queue: str = "") -> Draft:
        """A job of which anything is said."""
        chance, habits = self._chance, self._habits
        queue = queue or self.queue()
        says_fails = chance.random() < 0.6
        slip = JobHistory(
            token=self._token(),
            maker=self._name,
            queue=queue,
            priority=chance.choice([0, 0, 0, 0, -1, 1, 5]),
            ttr=self._often_not(0.7, habits.short_ttr, habits.long_ttr),
            ttl=self._often_not(0.95, habits.short_ttl),
            max_attempts=chance.choice([0, 0, 0, 0, 0, 1, 2, 3]),
            max_fails=chance.choice([0, 1, 2, 3]) if says_fails else FAILS_UNSAID,
            dead_queue=DEAD if chance.random() < 0.25 else "",
            blockers=self.blockers(),
            limit_key=chance.choice(LIMIT_KEYS)
            if queue == NARROW and chance.random() < 0.5
            else "",
            unique=self.uid() if self._once_in(3) else "",
        )
        if chance.random() < 0.1:
            soon = self._book.clock() + chance.random() * habits.longest_delay
            slip.run_at = round(soon * 1000) / 1000
        backoff = (1 + chance.randrange(200), 300) if self._once_in(8) else None
        return self._draft(slip, says_fails=says_fails, backoff_ms=backoff)

    def blockers(self) -> tuple[JobHistory, ...]:
        """Some that are there and will end, as far as anybody knows."""
        if self._chance.random() > 0.1:
            return ()
        known = [slip for slip in self._book.recent if slip.id and _is_quiet(slip)]
        return tuple(self._chance.sample(known, min(len(known), self._chance.randint(1, 2))))

    def uid(self) -> str:
        return str(UUID(int=self._chance.getrandbits(128), version=4))

    def queue(self) -> str:
        """One to push to. The narrow one is there once it is known to be narrow."""
        narrow = (NARROW,) if NARROW in self._book.limits.in_flight else ()
        queue: str = self._chance.choice((*QUEUES, *narrow))
        return queue

    def queues(self, most: int) -> list[str]:
        """Some to take from."""
        return self._chance.sample(EVERY_QUEUE, self._chance.randint(1, most))

    def known(self) -> JobHistory | None:
        """A job that was acknowledged not long ago, to be looked at."""
        known = [slip for slip in self._book.recent if slip.id and not slip.refused]
        return self._chance.choice(known) if known else None

    def may_be_sent_again(self, slip: JobHistory) -> bool:
        """Whether its uid is in use, or would be, had its push arrived."""
        return (
            slip.unique != ""
            and slip.ttl == float("inf")
            and not slip.may_be_deleted()
            and (slip.over == NEVER or slip.success)
            and self._book.clock() - slip.asked.time < LONGEST_RETRY
        )

    def _draft(
        self,
        slip: JobHistory,
        *,
        says_fails: bool = False,
        backoff_ms: tuple[int, int] | None = None,
    ) -> Draft:
        payload = payload_of(slip.token, self._habits.largest_payload)
        return Draft(slip, payload, says_fails, backoff_ms)

    def _token(self) -> str:
        self._made += 1
        return f"{self._name}.{self._made}"

    def _often_not(self, often: float, *seconds: float) -> float:
        return float("inf") if self._chance.random() < often else self._chance.choice(seconds)

    def _once_in(self, times: int) -> bool:
        return self._chance.randrange(times) == 0


def _is_quiet(slip: JobHistory) -> bool:
    return (
        slip.over == NEVER
        and slip.ttl == float("inf")
        and not slip.endings
        and not slip.may_be_dead()
        and not slip.refused
    )


def may_be_deleted(slip: JobHistory) -> bool:
    """Whether a client may: its uid is free then, and to send its push again would make another."""
    return bool(slip.id) and slip.over == NEVER and not slip.repeated and slip.queue != BOX
