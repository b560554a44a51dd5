"""The part of the history checker that is about pushes: the requests, and which of them took
effect.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf

from support.drill.checks import CheckedLimits
from support.drill.facts import Facts
from support.drill.looks import InspectionChecks
from support.drill.slip import NEVER, JobHistory, OpenFetches, RequestTime, require
from support.drill.weak import UnsyncedReplies


@dataclass(slots=True)
class HistoryCounts:
    """The results of a run."""

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


class PushChecks(InspectionChecks):
    def __init__(self, clock: Callable[[], float], limits: CheckedLimits) -> None:
        super().__init__(Facts(clock))
        self.clock = clock  # the server's
        self.limits = limits
        self.slips: dict[str, JobHistory] = {}  # by token
        self.recent: deque[JobHistory] = deque(maxlen=50)
        self.sum = HistoryCounts()
        self._unsynced = UnsyncedReplies(self._facts)
        self._uniques: dict[str, JobHistory] = {}  # the last job that was asked for under each
        self._tallies: dict[str, OpenFetches] = defaultdict(OpenFetches)  # by queue

    def ask(self) -> RequestTime:
        return self._facts.ask()

    def before_push(self, slip: JobHistory, asked: RequestTime) -> None:
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

    def on_pushed(self, slip: JobHistory, asked: RequestTime, id: str = "") -> None:
        """A push was acknowledged: as new."""
        slip.open_pushes -= 1
        if slip.repeated and slip.there <= asked.tick:
            require(self._may_be_forgotten(slip), f"{slip.token} was pushed a second time")
        self._facts.identify(slip, id)
        self._heard_of(slip)
        if not slip.repeated:
            self._facts.mark_durable(asked)

    def ready(self, slip: JobHistory) -> None:
        """It is said to be there, as long as the server does not crash."""
        if slip.there == NEVER:
            self._facts.mark_present(slip)
            self._unsynced.pushed(slip)

    def on_push_refused(self, slip: JobHistory) -> None:
        """It was answered with an error, so it has not happened."""
        slip.open_pushes -= 1
        if not slip.repeated:
            slip.refused = True
            self.sum.refused += 1

    def on_push_repeated(self, slip: JobHistory, asked: RequestTime) -> None:
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

    def _heard_of(self, slip: JobHistory) -> None:
        now = self.clock()
        slip.heard_at = now if slip.heard_at == inf else max(slip.heard_at, now)
        self._facts.mark_present(slip)

    def _may_be_forgotten(self, slip: JobHistory) -> bool:
        """Whether its uid may be free again."""
        if slip.may_be_deleted() or slip.may_be_expired():
            return True
        return slip.over != NEVER and self.clock() >= slip.over_time + self.limits.remembers

    def _give_places(self, slip: JobHistory) -> None:
        for place, queue in ((slip.home, slip.queue), (slip.grave, slip.dead_queue)):
            if queue:
                place.queue = queue
                place.tally = self._tallies[queue]
                # What was sent in this life may arrive at any time, also from who has gone.
                place.base = place.tally.base
                place.base_pops = place.tally.base_pops
