"""The leases that a client keeps alive: when to extend which, and which were lost.

The table neither waits nor sends. Time is monotonic; the server's clock is known from its answers,
since that of this machine may be another.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from taskyard.client.errors import Refused
from taskyard.client.source import Job

MIN_DURATION_S: Final = 1.0  # seconds that a lease is extended by
_MAX_DURATION_S: Final = 86_400.0
_DEFAULT_DURATION_S: Final = 60.0  # how long a lease lasts if neither says
_RETRY_S: Final = 1.0  # until the next try, when the server could not be reached
_TOLERANCE: Final = 0.2  # a lease may be so much of its span longer or shorter than it should be


class TrackedLease:
    """One lease."""

    __slots__ = ("duration", "duration_set", "ends_at", "extend_at", "finishing", "job")

    def __init__(self, job: Job, span: float, due: float, until: float) -> None:
        self.job = job
        self.duration = span  # how long it lasts from each extension
        self.extend_at = due  # when to extend it
        self.ends_at = until  # when it ends
        self.duration_set = False  # its holder has said how long it lasts
        self.finishing = False  # its end is being sent to the server


class LeaseTable:
    """The leases of one client. Not for several threads at once."""

    def __init__(self) -> None:
        self._leases: dict[str, TrackedLease] = {}
        self._clock_offset: float | None = None  # the server's clock minus our monotonic one

    def __len__(self) -> int:
        return len(self._leases)

    def add(self, jobs: Iterable[Job], requested_duration: float | None, now: float) -> None:
        """Add jobs that were just fetched; `requested_duration` is how long their leases were to
        last.
        """
        for job in jobs:
            if not job.deadline:
                continue  # it has no end
            if self._clock_offset is None:
                # The first one is extended at once, which shows the server's time.
                span = _clamp_duration(min(job.lease, requested_duration or _DEFAULT_DURATION_S))
                held = TrackedLease(job, span, now, now + min(job.lease, span))
            else:
                left = job.deadline - (now + self._clock_offset)
                span = _clamp_duration(left)
                held = TrackedLease(job, span, now + min(left, span) / 3, now + left)
            self._leases[job.ref] = held

    def start_finish(self, job: Job) -> float:
        """Note that the end is being sent; returns when the lease is over, 0 if not known."""
        held = self._leases.get(job.ref)
        if held is None:
            return 0.0
        held.finishing = True
        return held.ends_at if self._clock_offset is not None else 0.0

    def abort_finish(self, job: Job) -> None:
        """Note that the end could not be sent."""
        if held := self._leases.get(job.ref):
            held.finishing = False

    def finish(self, job: Job) -> None:
        self._leases.pop(job.ref, None)

    def clear(self) -> None:
        self._leases.clear()

    def next_due(self) -> float | None:
        return min((held.extend_at for held in self._leases.values()), default=None)

    def collect_due(self, now: float) -> list[tuple[TrackedLease, float]]:
        """Return those to extend now, with the seconds; they are due again a while later."""
        found = [held for held in self._leases.values() if held.extend_at <= now]
        for held in found:
            held.extend_at = now + held.duration / 3
        return [(held, held.duration) for held in found]

    def on_extended(
        self, held: TrackedLease, seconds: float, answer: float | Refused, now: float
    ) -> Job | None:
        """What the server said; gives the job if its lease turns out to be lost."""
        if self._leases.get(held.job.ref) is not held:
            return None  # it has ended meanwhile
        if isinstance(answer, Refused):
            if held.finishing:
                return None
            del self._leases[held.job.ref]
            held.job.lose()
            return held.job
        first = self._clock_offset is None
        self._clock_offset = answer - seconds - now
        held.ends_at = now + seconds
        if held.duration != seconds:
            held.extend_at = now  # its holder has chosen another while this one was being sent
        if first:
            self._correct_by_server_clock(now)
        return None

    def on_unreachable(self, held: TrackedLease, now: float) -> None:
        """Note that the server could not be reached."""
        held.extend_at = min(held.extend_at, now + min(_RETRY_S, held.duration / 3))

    def set_duration(self, job: Job, seconds: float) -> None:
        """Note that its holder is about to request another end.

        From now on it is extended by so much; and if an extension by another duration is being
        sent, which may reach the server as the last, its answer makes it due again: see
        `on_extended`.
        """
        if held := self._leases.get(job.ref):
            held.duration = _clamp_duration(seconds)
            held.duration_set = True

    def on_duration_set(self, job: Job, seconds: float, deadline: float, now: float) -> None:
        """The server has answered when the lease that was requested ends."""
        self._clock_offset = deadline - seconds - now
        if held := self._leases.get(job.ref):
            held.ends_at = now + seconds
            held.extend_at = min(held.extend_at, now + seconds / 3)

    def _correct_by_server_clock(self, now: float) -> None:
        """The clock of the server is known now: those that were reckoned by ours may be wrong."""
        assert self._clock_offset is not None
        for held in self._leases.values():
            if held.duration_set:
                continue
            left = held.job.deadline - (now + self._clock_offset)
            span = _clamp_duration(left)
            held.ends_at = min(held.ends_at, now + left)
            if abs(span - held.duration) > _TOLERANCE * span:
                held.duration = span
                held.extend_at = now
            else:
                held.extend_at = min(held.extend_at, now + span / 3)


def _clamp_duration(seconds: float) -> float:
    return min(max(seconds, MIN_DURATION_S), _MAX_DURATION_S)
