"""The leases that a client keeps alive: when to extend which, and which were lost.

The book neither waits nor sends. Time is monotonic; the server's clock is known from its answers,
since that of this machine may be another.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from taskyard.client.errors import Refused
from taskyard.client.source import Job

LEAST: Final = 1.0  # seconds that a lease is extended by
_MOST: Final = 86_400.0
_GUESS: Final = 60.0  # how long a lease lasts if neither says
_SOON: Final = 1.0  # until the next try, when the server could not be asked
_OFF: Final = 0.2  # a lease may be so much of its span longer or shorter than it should be


class Held:
    """One lease."""

    __slots__ = ("chosen", "due", "ending", "job", "span", "until")

    def __init__(self, job: Job, span: float, due: float, until: float) -> None:
        self.job = job
        self.span = span  # how long it lasts from each extension
        self.due = due  # when to extend it
        self.until = until  # when it ends
        self.chosen = False  # its holder has said how long it lasts
        self.ending = False  # the server is being told that it is over


class Book:
    """Of one client. Not for several threads at once."""

    def __init__(self) -> None:
        self._held: dict[str, Held] = {}
        self._offset: float | None = None  # the server's clock minus our monotonic one

    def __len__(self) -> int:
        return len(self._held)

    def add(self, jobs: Iterable[Job], wanted: float | None, now: float) -> None:
        """Jobs that were just taken; `wanted` is how long their leases were to last."""
        for job in jobs:
            if not job.deadline:
                continue  # it has no end
            if self._offset is None:
                # The first one is extended at once, which tells what time the server has.
                span = _bounded(min(job.lease, wanted or _GUESS))
                held = Held(job, span, now, now + min(job.lease, span))
            else:
                left = job.deadline - (now + self._offset)
                span = _bounded(left)
                held = Held(job, span, now + min(left, span) / 3, now + left)
            self._held[job.ref] = held

    def begin_end(self, job: Job) -> float:
        """The server is being told of the end; gives when the lease is over, 0 if not known."""
        held = self._held.get(job.ref)
        if held is None:
            return 0.0
        held.ending = True
        return held.until if self._offset is not None else 0.0

    def give_up_end(self, job: Job) -> None:
        """It could not be told."""
        if held := self._held.get(job.ref):
            held.ending = False

    def end(self, job: Job) -> None:
        self._held.pop(job.ref, None)

    def clear(self) -> None:
        self._held.clear()

    def next_due(self) -> float | None:
        return min((held.due for held in self._held.values()), default=None)

    def due(self, now: float) -> list[tuple[Held, float]]:
        """Those to extend now, with the seconds; they come again a while later."""
        found = [held for held in self._held.values() if held.due <= now]
        for held in found:
            held.due = now + held.span / 3
        return [(held, held.span) for held in found]

    def extended(
        self, held: Held, seconds: float, answer: float | Refused, now: float
    ) -> Job | None:
        """What the server said; gives the job if its lease turns out to be lost."""
        if self._held.get(held.job.ref) is not held:
            return None  # it has ended meanwhile
        if isinstance(answer, Refused):
            if held.ending:
                return None
            del self._held[held.job.ref]
            held.job.lose()
            return held.job
        first = self._offset is None
        self._offset = answer - seconds - now
        held.until = now + seconds
        if held.span != seconds:
            held.due = now  # its holder has chosen another while this one was on its way
        if first:
            self._correct(now)
        return None

    def unreached(self, held: Held, now: float) -> None:
        """The server could not be asked."""
        held.due = min(held.due, now + min(_SOON, held.span / 3))

    def choose_span(self, job: Job, seconds: float) -> None:
        """Its holder is about to ask for another end. From now on it is extended by so much; and
        if an extension by another span is on its way, which may come to the server as the last,
        its answer makes it due again: see `extended`.
        """
        if held := self._held.get(job.ref):
            held.span = _bounded(seconds)
            held.chosen = True

    def chosen(self, job: Job, seconds: float, deadline: float, now: float) -> None:
        """The server has said when the lease that was asked for ends."""
        self._offset = deadline - seconds - now
        if held := self._held.get(job.ref):
            held.until = now + seconds
            held.due = min(held.due, now + seconds / 3)

    def _correct(self, now: float) -> None:
        """The clock of the server is known now: those that were reckoned by ours may be wrong."""
        assert self._offset is not None
        for held in self._held.values():
            if held.chosen:
                continue
            left = held.job.deadline - (now + self._offset)
            span = _bounded(left)
            held.until = min(held.until, now + left)
            if abs(span - held.span) > _OFF * span:
                held.span = span
                held.due = now
            else:
                held.due = min(held.due, now + span / 3)


def _bounded(seconds: float) -> float:
    return min(max(seconds, LEAST), _MOST)
