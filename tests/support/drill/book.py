"""The book of what clients of all dialects asked a server for and were told by it: can it be true?

It knows no protocol and no broker. It is told of each request before it is sent, of each reply
when it is read, of connections that end, and of crashes, after which whatever had no reply may have
happened or not. What cannot be is an `Untrue` at once, or at the end in `check`, when everything
was taken out of the server.

Lost is what was acknowledged, can be had from no queue, and was ended by nobody. Invented is what
nobody asked for, or what was refused.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from math import inf

from support.drill import checks
from support.drill.checks import Gauge, Limits
from support.drill.order import Order
from support.drill.owed import Kind, is_owed, unexplained
from support.drill.pushes import Pushes, Sum
from support.drill.slip import (
    NEVER,
    Asked,
    Bundle,
    End,
    Ending,
    Lease,
    Slip,
    Take,
    Term,
    Untrue,
    require,
)

__all__ = ["Book", "Limits", "Sum", "Untrue"]


class Book(Pushes):
    def __init__(
        self,
        clock: Callable[[], float],
        limits: Limits | None = None,
        *,
        sure_connections: bool = False,
    ) -> None:
        """`sure_connections`: the server never knows of a connection's end before its client."""
        super().__init__(clock, limits or Limits())
        self.draining = False  # all leases are over, and one client takes out what is there
        self._sure = sure_connections
        self._takes: dict[str, list[Take]] = defaultdict(list)  # open ones, by consumer
        self._held: dict[str, list[Lease]] = defaultdict(list)  # by consumer
        self._left: set[str] = set()  # consumers, of this life
        self._lost: Counter[Kind] = Counter()  # units of takes without an answer
        self._order = Order()
        self._gauge = Gauge(self.limits)

    # Taking

    def taking(
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
    ) -> Take:
        """A request for jobs is about to be sent."""
        take = Take(
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
        self._takes[consumer].append(take)
        self._count_open(take, 1)
        return take

    def came(
        self,
        take: Take,
        token: str,
        queue: str,
        *,
        id: str = "",
        uid: str = "",
        fails: int | None = None,
        payload_is_right: bool = True,
    ) -> Lease:
        """A job came with the reply to a take."""
        slip = self.slips.get(token)
        if slip is None:
            raise Untrue(f"invented: {token} was never pushed")
        require(payload_is_right, f"{token} came with another payload")
        require(not slip.refused, f"invented: {token} was refused")
        require(queue in take.queues, f"{token} came from {queue}, for {take.queues}")
        require(take.came < take.count, f"{token} is more than the {take.count} asked for")
        take.came += 1
        if take.came == take.count:  # it has nothing that is not known
            self._resolve(take)
        now = self.clock()
        self._facts.identify(slip, id, uid)
        checks.check_alive(slip, take, queue, now, self.limits)
        checks.check_place(slip, take, queue)
        alone = self._is_alone(slip, take, now)
        if fails is not None:
            checks.check_fails(slip, take, queue, fails, self._facts.next())
        self._check_order(slip, take, queue)
        self._facts.believe(slip, take, queue)
        lease = self._hand_out(slip, take, queue, now)
        lease.alive = lease.alive and alone
        return lease

    def answered(self, take: Take, *, late: bool = False) -> None:
        """All that comes with a take has come, if anything.

        `late`: so much so that leases may be over of which it was therefore not told.
        """
        self._takes[take.consumer].remove(take)
        if late and not take.resolved:
            self._lose(take)
        else:
            self._resolve(take)

    def extending(self, lease: Lease, ttr: float) -> Term:
        """A request that a lease goes on for this long from now is about to be sent."""
        asked = self.ask()
        term = Term(asked=asked, until=asked.time + ttr)
        lease.terms.append(term)
        return term

    def extended(self, term: Term) -> None:
        """It was acknowledged."""
        self._facts.hear(term)
        self._facts.is_durable(term.asked)

    def not_extended(self, lease: Lease, term: Term) -> None:
        """It was refused and did nothing."""
        lease.terms.remove(term)

    def heard_from(self, consumer: str, asked: Asked, heartbeat: float = inf) -> None:
        """A reply shows that the connection was there when that was asked."""
        for lease in self._held.get(consumer, ()):
            require(
                not (lease.bound and lease.alive and lease.doubted < asked.tick),
                f"held twice: {lease.slip.token} is held by {consumer}, and another got it",
            )

    def held_by(self, consumer: str) -> list[Lease]:
        return list(self._held.get(consumer, ()))

    def let_go(self, lease: Lease) -> None:
        """Its holder does not think of it any more."""
        held = self._held.get(lease.consumer)
        if held and lease in held:
            held.remove(lease)

    def _is_alone(self, slip: Slip, take: Take, now: float) -> bool:
        if not self._facts.is_calm(slip, take.asked):
            return False
        slack = self.limits.slack
        return checks.check_apart(slip, take, take.ttr_of(slip), now, slack, sure=self._sure)

    def _check_order(self, slip: Slip, take: Take, queue: str) -> None:
        if self.draining:
            self._order.drained(slip, take, queue, self._facts.next())
        else:
            self._order.came(slip, take, queue, self._facts.next())

    def _hand_out(self, slip: Slip, take: Take, queue: str, now: float) -> Lease:
        self.sum.handed_out += 1
        if slip.seen:
            self.sum.redelivered += 1
        place = slip.place(queue)
        place.seen += 1
        ttr = take.ttr_of(slip)
        term = Term(asked=take.asked, until=take.asked.time + ttr)
        self._facts.hear(term)
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
        self._gauge.start(queue, take, now)
        if take.pops:
            lease.alive = False
            self._facts.is_over(slip, success=True)
            self._note(slip, take.asked, weak=take.weak)
            self.sum.finished += 1
            return lease
        # Who ends a job by its uid, and was answered first, may have ended this lease.
        lease.alive = slip.over == NEVER and self._facts.is_calm(slip, take.asked)
        if take.bound and slip.loss_fails:
            lease.hangs = True
            place.fails.possible += 1
        slip.leases.append(lease)
        self._held[take.consumer].append(lease)
        self._gauge.hand_out(lease, now)
        return lease

    def _note(self, slip: Slip, asked: Asked, *, weak: bool) -> None:
        """It was answered that it is over; `weak`: which may not be on disk yet."""
        if weak:
            self._weak.over(slip)
        else:
            self._facts.is_durable(asked)

    def _resolve(self, take: Take) -> None:
        if not take.resolved:
            take.resolved = True
            self._count_open(take, -1)

    def _count_open(self, take: Take, count: int) -> None:
        for queue in take.queues:
            tally = self._tallies[queue]
            if take.pops:
                tally.open_pops += count
            else:
                tally.open += count

    # Ending

    def ending(
        self,
        slip: Slip,
        kind: End,
        lease: Lease | None = None,
        data: bytes = b"",
        *,
        weak: bool = False,
    ) -> Ending:
        """A request that may end a job, or its lease, is about to be sent."""
        held = lease is not None and lease.alive and lease in slip.leases
        ending = Ending(slip=slip, kind=kind, asked=self.ask(), lease=lease, held=held, data=data)
        ending.weak = weak
        slip.endings.append(ending)
        slip.returned = slip.returned or kind is End.RETURN
        if lease is not None:
            ending.dead = lease.queue == slip.dead_queue != ""
            ending.fenced = not self._takes.get(lease.consumer)
            lease.alive = False
            self.let_go(lease)
        else:  # by anybody: whoever has it may lose it
            slip.stirred = ending.asked.tick
            for other in slip.leases:
                other.alive = False
        if kind in (End.FAIL, End.FINAL):
            self._facts.may_fail(ending, 1)
        if data:
            slip.results[data] = kind is End.SUCCESS
        return ending

    def ended(self, ending: Ending) -> None:
        """It was acknowledged."""
        slip, kind, tick = ending.slip, ending.kind, ending.asked.tick
        said = f"{slip.token} was {kind.value}"
        require(not slip.refused, f"invented: {said}, and was refused")
        require(not slip.deleted <= tick, f"back: {said} after it was deleted")
        require(kind is End.DELETE or not slip.over <= tick, f"back: {said} after it was over")
        require(
            ending in slip.endings and not self._is_outdated(ending),
            f"{said} by one whose lease was over",
        )
        self._close(ending)
        self._facts.is_there(slip)
        self._note(slip, ending.asked, weak=ending.weak)
        self._facts.end(ending)
        if kind in (End.SUCCESS, End.DELETE):
            self.sum.finished += 1

    def not_ended(self, ending: Ending, *, still_held: bool) -> None:
        """It was refused and did nothing; `still_held`: for now, as on a full disk."""
        slip, lease = ending.slip, ending.lease
        self._close(ending, hangs=still_held)
        if ending.kind in (End.FAIL, End.FINAL):
            self._facts.may_fail(ending, -1)
        slip.results.pop(ending.data, None)
        if lease is None or not ending.held:
            return
        calm = self._facts.is_calm(slip, ending.asked) and lease in slip.leases
        calm = calm and all(other.fenced for other in slip.endings)
        if still_held:
            lease.alive = calm
            self._held[lease.consumer].append(lease)
            return
        sure = (
            ending.asked.life == self._facts.life
            and self.clock() < lease.sure_until - self.limits.slack
            and slip.over == NEVER
            and not slip.may_be_deleted()
            and not slip.may_be_expired()
        )
        require(not (sure and calm), f"the holder of {slip.token} was not heeded")

    def _close(self, ending: Ending, *, hangs: bool = False) -> None:
        """It has its answer, so the connection was there; nothing hangs by that any more."""
        slip, lease = ending.slip, ending.lease
        if ending in slip.endings:
            slip.endings.remove(ending)
        if lease is None:
            slip.stirred = self._facts.tick
        elif lease.hangs and not hangs:
            lease.hangs = False
            slip.place(lease.queue).fails.possible -= 1

    def _is_outdated(self, ending: Ending) -> bool:
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

    def bundling(
        self, pushes: list[Slip], endings: list[Ending], asked: Asked, *, strict: bool = True
    ) -> Bundle:
        return self._facts.bundle(
            Bundle(pushes=pushes, endings=endings, asked=asked, strict=strict)
        )

    def bundled(self, bundle: Bundle, ids: Iterable[str] = ()) -> None:
        """It was acknowledged as a whole."""
        for slip, id in zip(bundle.pushes, ids, strict=False):
            self._facts.identify(slip, id)
        for slip in bundle.pushes:
            slip.open_pushes -= 1
            self._heard_of(slip)
        self._facts.happened(bundle)
        for ending in [each for each in bundle.endings if each in each.slip.endings]:
            self.ended(ending)
        self._facts.is_durable(bundle.asked)

    def not_bundled(self, bundle: Bundle, *, still_held: bool, over: Iterable[Ending] = ()) -> None:
        """It was refused as a whole; `over`: because these leases were not alive any more."""
        self._facts.did_not_happen(bundle)
        for slip in bundle.pushes:
            slip.open_pushes -= 1
        for ending in bundle.endings:
            if ending in ending.slip.endings:
                self.not_ended(ending, still_held=still_held and ending not in over)

    # What happens to connections and to the server

    def left(self, consumer: str) -> None:
        """Its connection has ended, or may have: what it asked for may have been done or not."""
        self._left.add(consumer)
        for take in self._takes.pop(consumer, []):
            self._lose(take)
        for lease in self._held.pop(consumer, []):
            if lease.bound:
                lease.alive = False

    def crashed(self, *, forgets_from: float = inf) -> None:
        """The server is gone at once, and may have forgotten what it told from that time on."""
        self.sum.crashes += 1
        for consumer in list(self._takes):
            for take in self._takes.pop(consumer):
                self._lose(take)
        self._weak.crashed()
        self._order.judge()
        self._gauge.crashed()
        self._held.clear()
        for slip in self.slips.values():
            if slip.leases:
                self._let_hang(slip)
                self._facts.forget_leases(slip, forgets_from)
            if forgets_from != inf:
                self._facts.forget(slip, forgets_from)
        for tally in self._tallies.values():
            tally.base, tally.base_pops, tally.first_lost = tally.lost, tally.lost_pops, NEVER
        self._left.clear()
        self._facts.crashed()

    def _let_hang(self, slip: Slip) -> None:
        """A crash is nobody's fault; only who had gone before may have failed what it held."""
        for lease in slip.leases:
            if lease.hangs:
                if self._sure and lease.consumer not in self._left:
                    slip.place(lease.queue).fails.possible -= 1
                else:
                    slip.hung = True
            lease.hangs = False

    def _lose(self, take: Take) -> None:
        """It may have taken what nobody will tell of."""
        if take.resolved:
            return
        self._resolve(take)
        self._lost[frozenset(take.queues), take.pops] += take.count - take.came
        for queue in take.queues:
            tally = self._tallies[queue]
            tally.first_lost = min(tally.first_lost, take.asked.tick)
            if take.pops:
                tally.lost_pops += 1
            else:
                tally.lost += 1

    # The end

    def unfinished(self) -> list[Slip]:
        """Those that must still come from a queue, unless a lost reply had them."""
        return [slip for slip in self.slips.values() if is_owed(slip)]

    def check(self) -> Sum:
        """Everything was taken out: is anything missing?"""
        for consumer in list(self._takes):
            self.left(consumer)
        self._order.judge()
        self._gauge.check_rates()
        self._facts.check_bundles()
        owed = self.unfinished()
        lost = unexplained(owed, self._lost)
        require(not lost, f"lost: {[slip.token for slip in lost][:20]} of {len(owed)}")
        return self._settle()

    def _settle(self) -> Sum:
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
