"""What must hold whenever a job comes, and how many may be out or start: one rule at a time."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from support.drill.slip import NEVER, FetchAttempt, HistoryViolation, JobHistory, Lease, require


@dataclass(slots=True)
class CheckedLimits:
    """The limits that the server was given."""

    in_flight: dict[str, int] = field(default_factory=dict)  # by queue
    in_flight_of_key: dict[str, int] = field(default_factory=dict)  # by queue, for each limit key
    rate: dict[str, tuple[int, float]] = field(default_factory=dict)  # so many in so many seconds
    max_losses: int = 10  # leases lost that end a job that does not say it itself
    remembers: float = 600.0  # seconds for which the uid of a job that is gone is not given again
    slack: float = 1e-6  # by how much the server's clock and the checker's may differ
    late: float = 0.0  # by how much what is due may be late, as on a disk that was full


def check_alive(
    slip: JobHistory, take: FetchAttempt, queue: str, now: float, limits: CheckedLimits
) -> None:
    token, slack = slip.token, limits.slack
    require(not slip.over <= take.asked.tick, f"back: {token} came after it was over")
    require(not slip.deleted <= take.asked.tick, f"back: {token} came after it was deleted")
    if queue == slip.queue:  # what failed goes to its dead queue at once
        require(
            now + slack >= slip.run_at, f"too early: {token} came {slip.run_at - now} s too soon"
        )
    require(take.asked.time <= slip.dies_at() + slack + limits.late, f"{token} came after its ttl")
    if slip.max_attempts and not slip.returned:  # who gives it back does not end it
        sure = slip.sure_attempts(queue)
        require(sure < slip.max_attempts, f"{token} came more than {slip.max_attempts} times")


def check_place(slip: JobHistory, take: FetchAttempt, queue: str) -> None:
    token = slip.token
    if queue != slip.queue:
        require(queue == slip.dead_queue, f"{token} came from {queue}")
        require(slip.may_be_dead(), f"{token} came from {queue} without having failed")
        return
    require(
        not slip.dead_since <= take.asked.tick,
        f"back: {token} failed for good, and came from {queue}",
    )
    for blocker in slip.blockers:
        require(
            not fails(blocker, slip), f"{token} came, although {blocker.token} failed before it"
        )
        require(
            blocker.may_succeed() or blocker.may_have_failed(),
            f"{token} came before {blocker.token} was done",
        )


def fails(blocker: JobHistory, slip: JobHistory) -> bool:
    """Whether one has failed for sure, when the other was there for sure and waited for it."""
    return blocker.died_asked >= slip.there and not blocker.forgotten


def check_apart(
    slip: JobHistory, take: FetchAttempt, ttr: float, now: float, slack: float, *, sure: bool
) -> bool:
    """Nobody else can have it now. Whose connection ends may be the last one to know.

    False if it came to somebody else meanwhile: who was first is not known, and who has it.
    """
    alone = True
    for lease in slip.leases:
        if not lease.alive or lease.sure_until - slack <= now:
            continue
        later = take.asked.tick > lease.heard
        if not later and (take.bound or take.asked.time + ttr <= lease.heard_time + slack):
            lease.alive = alone = False
            continue
        if lease.bound and not sure and lease.consumer != take.consumer:
            lease.doubted = min(lease.doubted, take.asked.tick)
            alone = later
            continue
        raise HistoryViolation(
            f"held twice: {slip.token} is held by {lease.consumer}, and now by {take.consumer}"
        )
    return alone


def check_fails(slip: JobHistory, take: FetchAttempt, queue: str, count: int, tick: int) -> None:
    known = slip.place(queue).fails
    possible = known.possible + (slip.place(queue).hidden() if slip.loss_fails else 0)
    sure = known.sure(take.asked.tick)
    require(
        sure <= count <= possible,
        f"{slip.token} failed {count} times, but {sure} to {possible} times",
    )
    known.learn(count, tick)


class LimitGauge:
    """How many jobs of queues with limits are out, and when they were started."""

    def __init__(self, limits: CheckedLimits) -> None:
        self.limits = limits
        self._live: dict[str, list[Lease]] = defaultdict(list)
        self._starts: dict[str, list[tuple[float, float]]] = defaultdict(list)

    def on_lease(self, lease: Lease, now: float) -> None:
        queue = lease.queue
        if queue in self.limits.in_flight or queue in self.limits.in_flight_of_key:
            self._live[queue].append(lease)
            self._check(lease, now)

    def on_start(self, queue: str, take: FetchAttempt, now: float) -> None:
        if queue in self.limits.rate:
            self._starts[queue].append((take.asked.time, now))

    def on_crash(self) -> None:
        """Starts of the last instant may be forgotten, so they are not counted together with
        those that come."""
        self.check_rates()
        self._starts.clear()

    def check_rates(self) -> None:
        """Of all that were started in some time, no more than were allowed."""
        for queue, starts in self._starts.items():
            count, seconds = self.limits.rate[queue]
            _check_rate(queue, sorted(starts), count, seconds)

    def _check(self, lease: Lease, now: float) -> None:
        queue, key = lease.queue, lease.slip.limit_key
        live = [each for each in self._live[queue] if self._is_out(each, now)]
        self._live[queue] = [each for each in self._live[queue] if each.sure_until > now]
        most = self.limits.in_flight.get(queue, len(live))
        require(len(live) <= most, f"{queue} has {len(live)} jobs out, and may have {most}")
        of_key = self.limits.in_flight_of_key.get(queue)
        if of_key is not None and key:
            out = sum(each.slip.limit_key == key for each in live)
            require(out <= of_key, f"{key} of {queue} has {out} jobs out, and may have {of_key}")

    def _is_out(self, lease: Lease, now: float) -> bool:
        """For sure: the connection that one is bound to may have ended."""
        slip = lease.slip
        return (
            lease.alive
            and not lease.bound
            and lease.sure_until - self.limits.slack > now
            and slip.over == NEVER
            and not slip.may_be_expired()
            and lease in slip.leases
        )


def _check_rate(queue: str, starts: list[tuple[float, float]], count: int, seconds: float) -> None:
    for first, (begun, _) in enumerate(starts):
        heard: list[float] = sorted(end for _, end in starts[first : first + 4 * count])
        for number, end in enumerate(heard, start=1):
            allowed = count + (end - begun) * count / seconds + 1
            require(number <= allowed, f"{queue} has started {number} jobs in {end - begun} s")
