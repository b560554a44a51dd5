"""What replies make sure of jobs, from when on, and what a crash leaves of that."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from support.drill.slip import (
    NEVER,
    Bundle,
    EndAttempt,
    EndKind,
    FetchAttempt,
    JobHistory,
    LeaseTerm,
    RequestTime,
    require,
)


class Facts:
    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.tick = 0
        self.life = 0
        self._durable = 0  # the last tick whose request is on disk, with all that was heard before
        self._ids: dict[str, JobHistory] = {}
        self._uids: dict[str, JobHistory] = {}
        self._bundles: list[Bundle] = []

    def ask(self) -> RequestTime:
        self.tick += 1
        return RequestTime(self.tick, self.clock(), self.life)

    def next(self) -> int:
        """The tick of the first request that is made from now on."""
        return self.tick + 1

    # Of one job

    def on_term_heard(self, term: LeaseTerm) -> None:
        term.heard, term.heard_time = self.next(), self.clock()

    def identify(self, slip: JobHistory, id: str, uid: str = "") -> None:
        if id:
            require(slip.id in ("", id), f"{slip.token} had id {slip.id}, and now has {id}")
            known = self._ids.setdefault(id, slip)
            require(known is slip, f"{id} is the id of {known.token} and of {slip.token}")
            slip.id = id
        if uid:
            require(slip.uid in ("", uid), f"{slip.token} had uid {slip.uid}, and now has {uid}")
            known = self._uids.setdefault(uid, slip)
            require(known is slip, f"{uid} is the uid of {known.token} and of {slip.token}")
            slip.uid = uid

    def mark_present(self, slip: JobHistory) -> None:
        if slip.there == NEVER:
            slip.there = self.next()
            slip.there_time = self.clock()

    def mark_over(self, slip: JobHistory, *, success: bool) -> None:
        if slip.over == NEVER:
            slip.over = self.next()
            slip.over_time = self.clock()
            slip.success = success
            slip.doubtful = False
            for lease in slip.leases:
                lease.alive = False

    def mark_dead(self, slip: JobHistory, asked: int) -> None:
        """It has failed for good in its own queue, and not before that was asked for."""
        slip.died_asked = max(slip.died_asked, asked)
        slip.dead_since = min(slip.dead_since, self.next())
        if not slip.dead_queue:
            self.mark_over(slip, success=False)

    def mark_durable(self, asked: RequestTime) -> None:
        if asked.life == self.life:
            self._durable = max(self._durable, asked.tick)

    def must_last(self, tick: int) -> bool:
        """Whether what was heard at that tick is on disk, since something later is."""
        return tick < self._durable

    def is_calm(self, slip: JobHistory, asked: RequestTime) -> bool:
        """Whether nobody but its holder can have ended a lease since that was asked."""
        return slip.stirred < asked.tick and not any(
            ending.lease is None and ending.asked.life == self.life for ending in slip.endings
        )

    def may_fail(self, ending: EndAttempt, count: int) -> None:
        """Whoever has no lease does not know where the job is."""
        slip = ending.slip
        if ending.lease is None or not ending.dead:
            slip.home.fails.possible += count
        if slip.dead_queue and (ending.lease is None or ending.dead):
            slip.grave.fails.possible += count

    def end(self, ending: EndAttempt) -> None:
        """What an acknowledged ending makes sure."""
        slip, kind = ending.slip, ending.kind
        if kind is EndKind.SUCCESS:
            self.mark_over(slip, success=True)
        elif kind is EndKind.DELETE:
            if slip.over == NEVER and not slip.may_succeed() and not slip.may_be_dead():
                slip.died_asked = max(slip.died_asked, ending.asked.tick)
            slip.deleted = min(slip.deleted, self.next())
            self.mark_over(slip, success=False)
        elif kind is EndKind.FINAL:
            self._fail_for_good(ending)
        elif kind is EndKind.FAIL:
            self._fail(ending)

    def _fail(self, ending: EndAttempt) -> None:
        slip, asked = ending.slip, ending.asked.tick
        if ending.lease is None and slip.dead_queue:
            return  # it may have been in either queue
        place = slip.grave if ending.dead else slip.home
        place.fails.acknowledge(asked, self.next())
        attempts = sum(lease.queue == place.queue and lease.heard < asked for lease in slip.leases)
        if 0 < slip.max_fails <= place.fails.sure() or 0 < slip.max_attempts <= attempts:
            self._fail_for_good(ending)

    def _fail_for_good(self, ending: EndAttempt) -> None:
        if ending.dead:
            self.mark_over(ending.slip, success=False)
        else:
            self.mark_dead(ending.slip, ending.asked.tick)

    def believe(self, slip: JobHistory, take: FetchAttempt, queue: str) -> None:
        """What made the job ready has been shown with it, so it cannot be undone any more."""
        self.mark_present(slip)
        bundle = slip.bundle
        if bundle is not None and bundle.applied is not True:
            self.on_bundle_applied(bundle)
        if queue != slip.queue:
            slip.dead_since = min(slip.dead_since, self.next())
        else:
            for blocker in slip.blockers:
                if not _may_not_block(blocker):
                    self.mark_over(blocker, success=True)
        slip.doubtful = False
        for ending in slip.endings.copy():
            if self._cannot_happen(ending, take):
                self._withdraw(ending)

    def _cannot_happen(self, ending: EndAttempt, take: FetchAttempt) -> bool:
        """Whether that the job came shows that an ending without an answer does nothing more."""
        if ending.asked.life < take.asked.life:
            return True
        if ending.kind in (EndKind.FAIL, EndKind.FINAL, EndKind.RETURN):
            return False  # it may be what made it come
        return ending.lease is not None and ending.asked.tick < take.asked.tick

    def _withdraw(self, ending: EndAttempt) -> None:
        ending.slip.endings.remove(ending)
        bundle = ending.bundle
        finishes = ending.kind in (EndKind.SUCCESS, EndKind.DELETE)
        if bundle is not None and bundle.strict and finishes:
            self.on_bundle_refused(bundle)

    # Bundles

    def bundle(self, bundle: Bundle) -> Bundle:
        for slip in bundle.pushes:
            slip.bundle = bundle
        for ending in bundle.endings:
            ending.bundle = bundle
        self._bundles.append(bundle)
        return bundle

    def on_bundle_applied(self, bundle: Bundle) -> None:
        require(
            bundle.applied is not False,
            f"half of a transaction: {[slip.token for slip in bundle.pushes]} should not be there",
        )
        if bundle.applied is None:
            self._bundles.remove(bundle)
            bundle.known_time = self.clock()
        bundle.applied = True
        for slip in bundle.pushes:
            self.mark_present(slip)
        for ending in bundle.endings:
            if bundle.strict and ending in ending.slip.endings and ending.kind is EndKind.SUCCESS:
                self.mark_over(ending.slip, success=True)

    def on_bundle_refused(self, bundle: Bundle) -> None:
        require(bundle.applied is not True, "half of a transaction has happened")
        if bundle.applied is None:
            self._bundles.remove(bundle)
        bundle.applied = False
        for slip in bundle.pushes:
            require(slip.there == NEVER, f"half of a transaction: {slip.token} is there")
            slip.refused = True

    def check_bundles(self) -> None:
        """Where no push of one was seen, its endings have not happened either."""
        for bundle in self._bundles:
            if not bundle.strict or not bundle.pushes or any(map(_may_be_away, bundle.pushes)):
                continue
            gone = [
                ending.slip.token
                for ending in bundle.endings
                if ending.kind is EndKind.SUCCESS
                and ending.slip.endings == [ending]
                and ending.slip.over == NEVER
                and not ending.slip.doubtful
                and not _may_be_away(ending.slip)
            ]
            require(not gone, f"half of a transaction: {gone} finished, the pushes are missing")

    # Crashes

    def on_crash(self) -> None:
        self.life += 1
        self.tick += 1

    def forget_leases(self, slip: JobHistory, forgets_from: float) -> None:
        """Nobody waits until a lease is on disk; one that is bound to a connection ends with it."""
        kept = []
        for lease in slip.leases:
            if lease.heard_time >= forgets_from:
                continue  # of an earlier life too: a start may be cut off before its first sync
            lives = lease.asked.life == self.life
            if lives and lease.heard >= self._durable and slip.max_attempts != 1:
                continue
            if lease.bound:
                lease.alive = False
            for term in lease.terms:
                if term.heard_time >= forgets_from:
                    term.heard = NEVER  # as if it had no answer
            kept.append(lease)
        slip.leases = kept

    def forget(self, slip: JobHistory, forgets_from: float) -> None:
        """Whatever was heard since may not have happened."""
        if slip.there != NEVER and slip.there_time >= forgets_from:
            slip.there, slip.there_time, slip.heard_at = NEVER, inf, inf
            for known, name in ((self._ids, slip.id), (self._uids, slip.uid)):
                if known.get(name) is slip:
                    del known[name]
            slip.id = slip.uid = ""
            slip.open_pushes += 1  # as if it had no answer
            slip.forgotten = True
        if slip.over != NEVER and slip.over_time >= forgets_from:
            slip.over, slip.over_time = NEVER, inf
            slip.deleted = NEVER
            slip.success = False
            slip.result = None
            slip.doubtful = True
        bundle = slip.bundle
        if bundle is not None and bundle.applied and bundle.known_time >= forgets_from:
            bundle.applied = None
            self._bundles.append(bundle)
        for place in (slip.home, slip.grave):
            place.fails.forget()
        slip.may_have_died = slip.may_have_died or slip.dead_since != NEVER
        slip.dead_since, slip.died_asked = NEVER, -1


def _may_not_block(slip: JobHistory) -> bool:
    """Whether it may have been gone before those were pushed that named it."""
    return slip.forgotten or slip.may_be_gone() or slip.may_be_deleted() or slip.may_be_expired()


def _may_be_away(slip: JobHistory) -> bool:
    """Whether it may have come and gone with nobody to tell."""
    return (
        slip.may_be_gone()
        or slip.may_be_deleted()
        or slip.may_be_expired()
        or slip.home.pops() > 0
        or (slip.dead_queue != "" and slip.grave.pops() > 0)
    )
