"""Checks the history of what clients of all protocols requested and what the server answered: can
it be true?

It knows no protocol and no broker. It is told of each request before it is sent, of each reply when
it is read, of connections that end, and of crashes, after which whatever had no reply may have
happened or not. What cannot be is an `HistoryViolation` at once, or at the end in `check`, when
everything was taken out of the server.

Lost is what was acknowledged, can be had from no queue, and was ended by nobody. Invented is what
nobody asked for, or what was refused.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from math import inf

from support.drill import checks
from support.drill.checks import CheckedLimits, LimitGauge
from support.drill.order import OrderChecker
from support.drill.owed import Kind, is_owed, unexplained
from support.drill.pushes import HistoryCounts, PushChecks
from support.drill.slip import (
    NEVER,
    Bundle,
    EndAttempt,
    EndKind,
    FetchAttempt,
    HistoryViolation,
    JobHistory,
    Lease,
    LeaseTerm,
    RequestTime,
    require,
)

__all__ = ["CheckedLimits", "HistoryChecker", "HistoryCounts", "HistoryViolation"]


class HistoryChecker(PushChecks):
    def __init__(
        self,
        clock: Callable[[], float],
        limits: CheckedLimits | None = None,
        *,
        sure_connections: bool = False,
    ) -> None:
        """`sure_connections`: the server never knows of a connection's end before its client."""
        super().__init__(clock, limits or CheckedLimits())
        self.draining = False  # all leases are over, and one client takes out what is there
        self._sure_connections = sure_connections
        self._open_fetches: dict[str, list[FetchAttempt]] = defaultdict(
            list
        )  # open ones, by consumer
        self._leases: dict[str, list[Lease]] = defaultdict(list)  # by consumer
        self._gone_consumers: set[str] = set()  # consumers, of this life
        self._lost_units: Counter[Kind] = Counter()  # units of takes without an answer
        self._order = OrderChecker()
        self._gauge = LimitGauge(self.limits)

    # Taking

    def before_fetch(
        self,
        consumer: str,
        queues: Iterable[str],
        *,
        count: int = 1,
        pops: bool = False,
        ttr: float = inf,
        default_ttr: float = inf,
        bound: bool = False,
        last_first: bool = False,
        weak: bool = False,
    ) -> FetchAttempt:
        """A request for jobs is about to be sent."""
        take = FetchAttempt(
            consumer=consumer,
            queues=tuple(queues),
            count=count,
            pops=pops,
            asked=self.ask(),
            ttr=ttr,
            default_ttr=default_ttr,
            bound=bound,
            last_first=last_first,
            weak=weak,
        )
        self._open_fetches[consumer].append(take)
        self._count_open(take, 1)
        return take

    def on_job_received(
        self,
        take: FetchAttempt,
        token: str,
        queue: str,
        *,
        id: str = "",
        uid: str = "",
        fails: int | None = None,
        payload_is_right: bool = True,
    ) -> Lease:
        """A job was received with the reply to a fetch."""
        slip = self.slips.get(token)
        if slip is None:
            raise HistoryViolation(f"invented: {token} was never pushed")
        require(payload_is_right, f"{token} came with another payload")
        require(not slip.refused, f"invented: {token} was refused")
        require(queue in take.queues, f"{token} came from {queue}, for {take.queues}")
        require(take.came < take.count, f"{token} is more than the {take.count} asked for")
        take.came += 1
        if take.came == take.count:  # it has nothing that is not known
            self._resolve_fetch(take)
        now = self.clock()
        self._facts.identify(slip, id, uid)
        checks.check_alive(slip, take, queue, now, self.limits)
        checks.check_place(slip, take, queue)
        alone = self._is_sole_holder(slip, take, now)
        if fails is not None:
            checks.check_fails(slip, take, queue, fails, self._facts.next())
        self._check_order(slip, take, queue)
        self._facts.believe(slip, take, queue)
        lease = self._record_lease(slip, take, queue, now)
        lease.alive = lease.alive and alone
        return lease

    def on_fetch_answered(self, take: FetchAttempt, *, late: bool = False) -> None:
        """All that comes with a take has come, if anything.

        `late`: so much so that leases may be over of which it was therefore not told.
        """
        self._open_fetches[take.consumer].remove(take)
        if late and not take.resolved:
            self._mark_fetch_lost(take)
        else:
            self._resolve_fetch(take)

    def before_extend(self, lease: Lease, ttr: float) -> LeaseTerm:
        """A request that a lease goes on for this long from now is about to be sent."""
        asked = self.ask()
        term = LeaseTerm(asked=asked, until=asked.time + ttr)
        lease.terms.append(term)
        return term

    def on_extended(self, term: LeaseTerm) -> None:
        """It was acknowledged."""
        self._facts.on_term_heard(term)
        self._facts.mark_durable(term.asked)

    def on_extend_refused(self, lease: Lease, term: LeaseTerm) -> None:
        """It was refused and did nothing."""
        lease.terms.remove(term)

    def on_connection_seen(self, consumer: str, asked: RequestTime, heartbeat: float = inf) -> None:
        """A reply shows that the connection was there when that was asked."""
        for lease in self._leases.get(consumer, ()):
            require(
                not (lease.bound and lease.alive and lease.doubted < asked.tick),
                f"held twice: {lease.slip.token} is held by {consumer}, and another got it",
            )

    def leases_of(self, consumer: str) -> list[Lease]:
        return list(self._leases.get(consumer, ()))

    def forget_lease(self, lease: Lease) -> None:
        """Its holder does not think of it any more."""
        held = self._leases.get(lease.consumer)
        if held and lease in held:
            held.remove(lease)

    def _is_sole_holder(self, slip: JobHistory, take: FetchAttempt, now: float) -> bool:
        if not self._facts.is_calm(slip, take.asked):
            return False
        slack = self.limits.slack
        return checks.check_apart(
            slip, take, take.ttr_of(slip), now, slack, sure=self._sure_connections
        )

    def _check_order(self, slip: JobHistory, take: FetchAttempt, queue: str) -> None:
        if self.draining:
            self._order.on_drained(slip, take, queue, self._facts.next())
        else:
            self._order.on_received(slip, take, queue, self._facts.next())

    def _record_lease(self, slip: JobHistory, take: FetchAttempt, queue: str, now: float) -> Lease:
        self.sum.handed_out += 1
        if slip.seen:
            self.sum.redelivered += 1
        place = slip.place(queue)
        place.seen += 1
        ttr = take.ttr_of(slip)
        term = LeaseTerm(asked=take.asked, until=take.asked.time + ttr)
        self._facts.on_term_heard(term)
        lease = Lease(
            slip=slip,
            consumer=take.consumer,
            queue=queue,
            heard=take.asked.tick if take.pops else self._facts.tick,
            heard_time=now,
            terms=[term],
            ttr=ttr,
            bound=take.bound,
            asked=take.asked,
        )
        self._gauge.on_start(queue, take, now)
        if take.pops:
            lease.alive = False
            self._facts.mark_over(slip, success=True)
            self._record_end(slip, take.asked, weak=take.weak)
            self.sum.finished += 1
            return lease
        # Who ends a job by its uid, and was answered first, may have ended this lease.
        lease.alive = slip.over == NEVER and self._facts.is_calm(slip, take.asked)
        if take.bound and slip.loss_fails:
            lease.hangs = True
            place.fails.possible += 1
        slip.leases.append(lease)
        self._leases[take.consumer].append(lease)
        self._gauge.on_lease(lease, now)
        return lease

    def _record_end(self, slip: JobHistory, asked: RequestTime, *, weak: bool) -> None:
        """It was answered that it is over; `weak`: which may not be on disk yet."""
        if weak:
            self._unsynced.over(slip)
        else:
            self._facts.mark_durable(asked)

    def _resolve_fetch(self, take: FetchAttempt) -> None:
        if not take.resolved:
            take.resolved = True
            self._count_open(take, -1)

    def _count_open(self, take: FetchAttempt, count: int) -> None:
        for queue in take.queues:
            tally = self._tallies[queue]
            if take.pops:
                tally.open_pops += count
            else:
                tally.open += count

    # Ending

    def before_end(
        self,
        slip: JobHistory,
        kind: EndKind,
        lease: Lease | None = None,
        data: bytes = b"",
        *,
        weak: bool = False,
    ) -> EndAttempt:
        """A request that may end a job, or its lease, is about to be sent."""
        held = lease is not None and lease.alive and lease in slip.leases
        ending = EndAttempt(
            slip=slip, kind=kind, asked=self.ask(), lease=lease, held=held, data=data
        )
        ending.weak = weak
        slip.endings.append(ending)
        slip.returned = slip.returned or kind is EndKind.RETURN
        if lease is not None:
            ending.dead = lease.queue == slip.dead_queue != ""
            ending.fenced = not self._open_fetches.get(lease.consumer)
            lease.alive = False
            self.forget_lease(lease)
        else:  # by anybody: whoever has it may lose it
            slip.stirred = ending.asked.tick
            for other in slip.leases:
                other.alive = False
        if kind in (EndKind.FAIL, EndKind.FINAL):
            self._facts.may_fail(ending, 1)
        if data:
            slip.results[data] = kind is EndKind.SUCCESS
        return ending

    def on_ended(self, ending: EndAttempt) -> None:
        """It was acknowledged."""
        slip, kind, tick = ending.slip, ending.kind, ending.asked.tick
        said = f"{slip.token} was {kind.value}"
        require(not slip.refused, f"invented: {said}, and was refused")
        require(not slip.deleted <= tick, f"back: {said} after it was deleted")
        require(kind is EndKind.DELETE or not slip.over <= tick, f"back: {said} after it was over")
        require(
            ending in slip.endings and not self._is_outdated(ending),
            f"{said} by one whose lease was over",
        )
        self._close_end_attempt(ending)
        self._facts.mark_present(slip)
        self._record_end(slip, ending.asked, weak=ending.weak)
        self._facts.end(ending)
        if kind in (EndKind.SUCCESS, EndKind.DELETE):
            self.sum.finished += 1

    def on_end_refused(self, ending: EndAttempt, *, still_held: bool) -> None:
        """It was refused and did nothing; `still_held`: for now, as on a full disk."""
        slip, lease = ending.slip, ending.lease
        self._close_end_attempt(ending, hangs=still_held)
        if ending.kind in (EndKind.FAIL, EndKind.FINAL):
            self._facts.may_fail(ending, -1)
        slip.results.pop(ending.data, None)
        if lease is None or not ending.held:
            return
        calm = self._facts.is_calm(slip, ending.asked) and lease in slip.leases
        calm = calm and all(other.fenced for other in slip.endings)
        if still_held:
            lease.alive = calm
            self._leases[lease.consumer].append(lease)
            return
        sure = (
            ending.asked.life == self._facts.life
            and self.clock() < lease.sure_until - self.limits.slack
            and slip.over == NEVER
            and not slip.may_be_deleted()
            and not slip.may_be_expired()
        )
        require(not (sure and calm), f"the holder of {slip.token} was not heeded")

    def _close_end_attempt(self, ending: EndAttempt, *, hangs: bool = False) -> None:
        """It has its answer, so the connection was there; nothing hangs by that any more."""
        slip, lease = ending.slip, ending.lease
        if ending in slip.endings:
            slip.endings.remove(ending)
        if lease is None:
            slip.stirred = self._facts.tick
        elif lease.hangs and not hangs:
            lease.hangs = False
            slip.place(lease.queue).fails.possible -= 1

    def _is_outdated(self, ending: EndAttempt) -> bool:
        """Whether somebody else has got the job for sure between the lease and its end."""
        lease = ending.lease
        if lease is None or not ending.fenced or ending.asked.life != self._facts.life:
            return False
        return any(
            other.asked.tick > lease.heard
            and other.heard < ending.asked.tick
            and other.asked.life == ending.asked.life
            for other in ending.slip.leases
        )

    # Together or not at all

    def before_bundle(
        self,
        pushes: list[JobHistory],
        endings: list[EndAttempt],
        asked: RequestTime,
        *,
        strict: bool = True,
    ) -> Bundle:
        return self._facts.bundle(
            Bundle(pushes=pushes, endings=endings, asked=asked, strict=strict)
        )

    def on_bundle_applied(self, bundle: Bundle, ids: Iterable[str] = ()) -> None:
        """It was acknowledged as a whole."""
        for slip, id in zip(bundle.pushes, ids, strict=False):
            self._facts.identify(slip, id)
        for slip in bundle.pushes:
            slip.open_pushes -= 1
            self._heard_of(slip)
        self._facts.on_bundle_applied(bundle)
        for ending in [each for each in bundle.endings if each in each.slip.endings]:
            self.on_ended(ending)
        self._facts.mark_durable(bundle.asked)

    def on_bundle_refused(
        self, bundle: Bundle, *, still_held: bool, over: Iterable[EndAttempt] = ()
    ) -> None:
        """It was refused as a whole; `over`: because these leases were not alive any more."""
        self._facts.on_bundle_refused(bundle)
        for slip in bundle.pushes:
            slip.open_pushes -= 1
        for ending in bundle.endings:
            if ending in ending.slip.endings:
                self.on_end_refused(ending, still_held=still_held and ending not in over)

    # What happens to connections and to the server

    def on_disconnect(self, consumer: str) -> None:
        """Its connection has ended, or may have: its requests may have been executed or not."""
        self._gone_consumers.add(consumer)
        for take in self._open_fetches.pop(consumer, []):
            self._mark_fetch_lost(take)
        for lease in self._leases.pop(consumer, []):
            if lease.bound:
                lease.alive = False

    def on_crash(self, *, forgets_from: float = inf) -> None:
        """The server is gone at once, and may have forgotten what it told from that time on."""
        self.sum.crashes += 1
        for consumer in list(self._open_fetches):
            for take in self._open_fetches.pop(consumer):
                self._mark_fetch_lost(take)
        self._unsynced.on_crash()
        self._order.check_suspects()
        self._gauge.on_crash()
        self._leases.clear()
        for slip in self.slips.values():
            if slip.leases:
                self._suspend_leases(slip)
                self._facts.forget_leases(slip, forgets_from)
            if forgets_from != inf:
                self._facts.forget(slip, forgets_from)
        for tally in self._tallies.values():
            tally.base, tally.base_pops, tally.first_lost = tally.lost, tally.lost_pops, NEVER
        self._gone_consumers.clear()
        self._facts.on_crash()

    def _suspend_leases(self, slip: JobHistory) -> None:
        """A crash is no failure of a job; only a client that had gone before may have failed its
        jobs.
        """
        for lease in slip.leases:
            if lease.hangs:
                if self._sure_connections and lease.consumer not in self._gone_consumers:
                    slip.place(lease.queue).fails.possible -= 1
                else:
                    slip.hung = True
            lease.hangs = False

    def _mark_fetch_lost(self, take: FetchAttempt) -> None:
        """It may have taken what nobody will tell of."""
        if take.resolved:
            return
        self._resolve_fetch(take)
        self._lost_units[frozenset(take.queues), take.pops] += take.count - take.came
        for queue in take.queues:
            tally = self._tallies[queue]
            tally.first_lost = min(tally.first_lost, take.asked.tick)
            if take.pops:
                tally.lost_pops += 1
            else:
                tally.lost += 1

    # The end

    def unfinished(self) -> list[JobHistory]:
        """Return those that must still come from a queue, unless a lost reply had them."""
        return [slip for slip in self.slips.values() if is_owed(slip)]

    def check(self) -> HistoryCounts:
        """Everything was taken out: is anything missing?"""
        for consumer in list(self._open_fetches):
            self.on_disconnect(consumer)
        self._order.check_suspects()
        self._gauge.check_rates()
        self._facts.check_bundles()
        owed = self.unfinished()
        lost = unexplained(owed, self._lost_units)
        require(not lost, f"lost: {[slip.token for slip in lost][:20]} of {len(owed)}")
        return self._count_outcomes()

    def _count_outcomes(self) -> HistoryCounts:
        for slip in self.slips.values():
            if slip.there == NEVER:
                continue
            self.sum.acknowledged += 1
            if slip.over != NEVER:
                continue
            if slip.may_be_expired():
                self.sum.expired += 1
            elif slip.may_be_dead():
                self.sum.dead += 1
            else:
                self.sum.unknown += 1
        return self.sum
