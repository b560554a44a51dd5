"""What clients of all protocols were answered about their jobs, in the plainest form: is everything
there?

A job is owed from the moment a client was answered about it until its end may have happened. It
must not come back once its end was answered, and no job may come that was not pushed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from math import inf


class HistoryViolation(AssertionError):
    """The server has said or done what it must not."""


@dataclass(slots=True)
class JobNote:
    """One job, by the token that its payload carries."""

    token: str
    queue: str
    payload: str
    expires: float = inf  # by the server's clock
    told_at: float = inf  # that it is there
    refused: bool = False
    ends: int = 0  # requests that may have ended it
    over_tick: float = inf  # its end was told
    over_at: float = inf
    comes: int = 0


class JobTally:
    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.notes: dict[str, JobNote] = {}
        self.counts: Counter[str] = Counter()
        self._tick = 0
        self._lost_pops: Counter[str] = Counter()  # by queue, pops whose reply never came

    def tick(self) -> int:
        self._tick += 1
        return self._tick

    # Pushes

    def before_push(self, note: JobNote) -> None:
        self.notes[note.token] = note
        self.counts["asked"] += 1

    def on_pushed(self, note: JobNote) -> None:
        note.told_at = min(note.told_at, self.clock())
        self.counts["acknowledged"] += 1

    def on_push_refused(self, note: JobNote) -> None:
        note.refused = True
        self.counts["refused"] += 1

    # Jobs that come

    def on_job_received(self, payload: str, queues: tuple[str, ...], asked: int) -> JobNote:
        """The reply to a request that was sent at the tick `asked`."""
        note = self.notes.get(payload.partition(" ")[0])
        if note is None:
            raise HistoryViolation(f"invented: {payload[:60]!r}")
        _require(note.payload == payload, f"{note.token} came with another payload")
        _require(note.queue in queues, f"{note.token} of {note.queue} came from {queues}")
        _require(not note.refused, f"invented: {note.token} was refused")
        _require(note.over_tick > asked, f"{note.token} is back after its end was acknowledged")
        note.told_at = min(note.told_at, self.clock())
        note.comes += 1
        if note.comes > 1:
            self.counts["redelivered"] += 1
        return note

    def before_end(self, note: JobNote) -> None:
        note.ends += 1

    def on_end_refused(self, note: JobNote) -> None:
        note.ends -= 1

    def on_ended(self, note: JobNote) -> None:
        note.over_tick = min(note.over_tick, self.tick())
        note.over_at = min(note.over_at, self.clock())
        self.counts["finished"] += 1

    def lost_pops(self, queue: str, count: int) -> None:
        self._lost_pops[queue] += count

    # The end of a server, and of everything

    def on_crash(self, safe: float) -> None:
        """Whatever was told later than that may have been forgotten."""
        self.counts["crashes"] += 1
        for note in self.notes.values():
            if note.told_at >= safe:
                note.told_at = inf
            if safe <= note.over_at < inf:
                note.over_tick = note.over_at = inf
                note.ends += 1

    def check(self) -> None:
        """Everything was taken out."""
        now = self.clock()
        missing: dict[str, list[str]] = {}
        for note in self.notes.values():
            is_owed = note.told_at < inf and not note.ends and note.over_at == inf
            if is_owed and note.expires > now:
                missing.setdefault(note.queue, []).append(note.token)
        for queue, tokens in missing.items():
            may_be_popped = self._lost_pops[queue]
            _require(
                len(tokens) <= may_be_popped,
                f"lost from {queue}: {tokens[:10]}, {may_be_popped} may have been popped",
            )
        self.counts.setdefault("lost", 0)
        self.counts.setdefault("invented", 0)


def _require(truth: bool, otherwise: str) -> None:
    if not truth:
        raise HistoryViolation(otherwise)
