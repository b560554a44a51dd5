"""The part of the book that is about pushes: what was asked for, and what of it is there."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf

from support.drill.checks import Limits
from support.drill.facts import Facts
from support.drill.looks import Looks
from support.drill.slip import NEVER, Asked, Slip, Tally, require
from support.drill.weak import Weak


@dataclass(slots=True)
class Sum:
    """What a run has come to."""

    asked: int = 0  # jobs
    acknowledged: int = 0
    refused: int = 0
    handed_out: int = 0
    redelivered: int = 0
    finished: int = 0  # acknowledged as done, popped or deleted
    dead: int = 0  # may be among the dead letters
    expired: int = 0  # by their ttl
    unknown: int = 0  # ended perhaps, with nobody to tell
    crashes: int = 0
    notes: Counter[str] = field(default_factory=Counter)


class Pushes(Looks):
    def __init__(self, clock: Callable[[], float], limits: Limits) -> None:
        super().__init__(Facts(clock))
        self.clock = clock  # the server's
        self.limits = limits
        self.slips: dict[str, Slip] = {}  # by token
        self.recent: deque[Slip] = deque(maxlen=50)
        self.sum = Sum()
        self._weak = Weak(self._facts)
        self._uniques: dict[str, Slip] = {}  # the last job that was asked for under each
        self._tallies: dict[str, Tally] = defaultdict(Tally)  # by queue

    def ask(self) -> Asked:
        return self._facts.ask()

    def pushing(self, slip: Slip, asked: Asked) -> None:
        """A push is about to be sent."""
        slip.open_pushes += 1
        slip.first_time = min(slip.first_time, asked.time)
        known = self.slips.get(slip.token)
        if known is not None:
            require(known is slip, f"{slip.token} is the token of two jobs")
            slip.repeated = True
            slip.refused = False
            return
        slip.number = len(self.slips)
        slip.asked = asked
        slip.clock = self.clock
        if slip.max_losses < 0:
            slip.max_losses = self.limits.max_losses
        self._give_places(slip)
        self.slips[slip.token] = slip
        self.recent.append(slip)
        self.sum.asked += 1
        if slip.unique:
            self._uniques[slip.unique] = slip

    def pushed(self, slip: Slip, asked: Asked, id: str = "") -> None:
        """A push was acknowledged: as new."""
        slip.open_pushes -= 1
        if slip.repeated and slip.there <= asked.tick:
            require(self._may_be_forgotten(slip), f"{slip.token} was pushed a second time")
        self._facts.identify(slip, id)
        self._heard_of(slip)
        if not slip.repeated:
            self._facts.is_durable(asked)

    def ready(self, slip: Slip) -> None:
        """It is said to be there, as long as the server does not crash."""
        if slip.there == NEVER:
            self._facts.is_there(slip)
            self._weak.pushed(slip)

    def push_refused(self, slip: Slip) -> None:
        """It was answered with an error, so it has not happened."""
        slip.open_pushes -= 1
        if not slip.repeated:
            slip.refused = True
            self.sum.refused += 1

    def push_repeated(self, slip: Slip, asked: Asked) -> None:
        """It was answered that its uid or key is taken."""
        slip.open_pushes -= 1
        first = self._uniques.get(slip.unique)
        require(
            slip.repeated or (first is not None and first is not slip),
            f"{slip.token} is new, and was called a duplicate",
        )
        if slip.repeated:
            self._heard_of(slip)
        else:
            slip.refused = True

    def _heard_of(self, slip: Slip) -> None:
        now = self.clock()
        slip.heard_at = now if slip.heard_at == inf else max(slip.heard_at, now)
        self._facts.is_there(slip)

    def _may_be_forgotten(self, slip: Slip) -> bool:
        """Whether its uid may be free again."""
        if slip.may_be_deleted() or slip.may_be_expired():
            return True
        return slip.over != NEVER and self.clock() >= slip.over_time + self.limits.remembers

    def _give_places(self, slip: Slip) -> None:
        for place, queue in ((slip.home, slip.queue), (slip.grave, slip.dead_queue)):
            if queue:
                place.queue = queue
                place.tally = self._tallies[queue]
                # What was sent in this life may arrive at any time, also from who has gone.
                place.base = place.tally.base
                place.base_pops = place.tally.base_pops
