"""What a client of Glovebox remembers while it is away: its session, posts, and what it holds."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

from support.drill.slip import JobHistory, Lease, RequestTime

FORGOTTEN_AFTER = 3600.0  # seconds that a client may be away
ONCE = ("ready", "write", "sync", "finish", "drop")


@dataclass(eq=False, slots=True)
class Hold:
    sequence: int
    lease: Lease


@dataclass(eq=False, slots=True)
class Posted:
    """A message that was posted, and the stages that were told of it."""

    slip: JobHistory
    asked: RequestTime
    notify: tuple[str, ...]
    arrived: bool = False  # that it is there was told
    told: set[str] = field(default_factory=set)
    told_here: set[str] = field(default_factory=set)  # over the present connection


@dataclass(eq=False, slots=True)
class Session:
    durable: bool
    id: int = 0  # once it was greeted
    label: int = 0  # the last one it has used
    posts: dict[int, Posted] = field(default_factory=dict)
    holds: list[Hold] = field(default_factory=list)
    left_at: float = inf  # on the server's clock

    def next_label(self) -> int:
        self.label += 1
        return self.label

    def hold(self, sequence: int, lease: Lease) -> None:
        """It has only the last lease of a message, whatever it had before."""
        self.holds = [hold for hold in self.holds if hold.sequence != sequence]
        self.holds.append(Hold(sequence, lease))

    def must_be_known(self, now: float) -> bool:
        return self.id != 0 and self.durable and now - self.left_at < FORGOTTEN_AFTER / 2

    def unheard(self) -> list[str]:
        """Messages that are finished, of which it has not been told so."""
        return [
            posted.slip.token
            for posted in self.posts.values()
            if "finish" in posted.notify and "finish" not in posted.told and posted.slip.success
        ]
