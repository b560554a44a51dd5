"""What clients of the RESP listener were told of jobs they share: each is unique by its payload.

A job that was acknowledged comes until it is popped, done or has failed for good; then never again.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Entry:
    payload: bytes
    retried: bool  # a fail is not final
    acknowledged: bool = False
    over: str = ""  # how it ended, as a client was told
    maybe_over: bool = False  # a request that may have ended it was never answered
    fails: int = 0
    maybe_fails: int = 0


class Ledger:
    def __init__(self) -> None:
        self.entries: dict[bytes, Entry] = {}
        self._made = 0
        self._open_pops = 0  # jobs that unanswered requests may have popped, at crashes so far
        self.drained: set[bytes] = set()

    def new(self, size: int, *, retried: bool) -> Entry:
        self._made += 1
        payload = b"%d:" % self._made + b"x" * size
        entry = Entry(payload, retried)
        self.entries[payload] = entry
        return entry

    def came(self, payload: bytes) -> Entry:
        """A client was given this job."""
        entry = self.entries.get(payload)
        assert entry is not None, f"{payload[:20]!r} was never pushed"
        assert not entry.over, f"{payload[:20]!r} came back after it was {entry.over}"
        entry.acknowledged = True  # it was there, and stays
        return entry

    def popped(self, payload: bytes) -> None:
        self.came(payload).over = "popped"

    def taken(self, payload: bytes, fails: int) -> Entry:
        entry = self.came(payload)
        most = entry.fails + entry.maybe_fails
        assert entry.fails <= fails <= most, f"{fails} fails, but {entry.fails} to {most} were told"
        return entry

    def lost_sight(self, pops: int) -> None:
        """Requests that may have popped so many jobs will not be answered any more."""
        self._open_pops += pops

    def check(self) -> None:
        """Everything was drained: nothing that was promised is missing."""
        missing = [
            entry.payload[:20]
            for entry in self.entries.values()
            if entry.acknowledged and not entry.over and not entry.maybe_over
        ]
        assert len(missing) <= self._open_pops, f"lost: {missing}, {self._open_pops} may be popped"
