"""Checks what a client is shown of a job without fetching it: can that be true?"""

from __future__ import annotations

from support.drill.facts import Facts
from support.drill.slip import NEVER, JobHistory, RequestTime, require

DROPPED = b"connection lost"  # the server's own word, where that is a failure


class InspectionChecks:
    def __init__(self, facts: Facts) -> None:
        self._facts = facts

    def on_result_shown(
        self, slip: JobHistory, asked: RequestTime, data: bytes | None, *, success: bool
    ) -> None:
        """Somebody was shown how it has ended; empty data: it was given none; None: not shown."""
        require(not slip.refused, f"invented: the result of {slip.token}, which was refused")
        require(not slip.deleted <= asked.tick, f"back: {slip.token} was deleted, and has a result")
        # What is shown of a failure is its result, or the last error, as the protocol has it.
        result = None if data is None else (success, data if success else b"")
        same = slip.result is None or result in (None, slip.result)
        require(same, f"{slip.token} has another result than before")
        if data:
            dropped = data == DROPPED and not success and slip.may_be_dropped()
            require(
                dropped or slip.results.get(data) == success,
                f"{slip.token} has a result that nobody gave it: {data!r}",
            )
        self._facts.mark_present(slip)
        if not success:
            require(
                slip.may_have_failed() or slip.over != NEVER,
                f"{slip.token} has failed, with nobody who failed it",
            )
            if slip.dead_queue:
                return  # it may still be had from there
        else:
            known_success = slip.may_succeed() or slip.over != NEVER
            require(known_success, f"{slip.token} has succeeded, with nobody who finished it")
        slip.result = result or slip.result
        self._facts.mark_over(slip, success=success)

    def on_no_result(self, slip: JobHistory, asked: RequestTime) -> None:
        """A client was answered that it has not ended."""
        require(not slip.over <= asked.tick, f"back: {slip.token} was over, and is not")

    def on_not_found(self, slip: JobHistory, asked: RequestTime) -> None:
        """A client was answered that there is no such job."""
        if not slip.there <= asked.tick or slip.may_be_deleted() or slip.may_be_expired():
            return
        if slip.over != NEVER:
            kept = slip.keeps_result and slip.success and not slip.doubtful
            require(not kept, f"lost: the result of {slip.token}")
            return
        gone = slip.may_succeed() or slip.may_be_gone()
        require(gone, f"lost: {slip.token}")

    def on_gone(self, slip: JobHistory) -> None:
        """A client was answered that a temporary job is gone."""
        self._facts.mark_over(slip, success=False)

    def on_inspected(
        self, slip: JobHistory, asked: RequestTime, *, attempts: int, fails: int, ended: bool | None
    ) -> None:
        """Somebody was shown a job; `ended`: that it has, and if with success."""
        require(not slip.refused, f"invented: {slip.token} was refused, and is there")
        require(not slip.deleted <= asked.tick, f"back: {slip.token} was deleted, and is there")
        self._facts.mark_present(slip)
        if ended is None:
            self.on_no_result(slip, asked)
        elif ended or not slip.dead_queue:
            truth = slip.may_succeed() if ended else slip.may_have_failed()
            require(truth or slip.over != NEVER, f"{slip.token} has ended without a reason")
            self._facts.mark_over(slip, success=ended)
        if slip.dead_queue and slip.may_be_dead():
            return  # where its counts began anew
        home = slip.home
        most = home.seen + home.hidden() + home.pops()
        least = sum(lease.heard < asked.tick for lease in slip.leases)
        require(
            least <= attempts <= most,
            f"{slip.token} was leased {attempts} times, but {least} to {most} times",
        )
        least, most = home.fails.sure(asked.tick), home.fails.possible
        most += home.hidden() if slip.loss_fails else 0
        require(
            least <= fails <= most,
            f"{slip.token} failed {fails} times, but {least} to {most} times",
        )

    def has_ended(self, slip: JobHistory) -> None:
        """A client was answered that it has ended, and not how."""
        success, failure = slip.may_succeed(), slip.may_have_failed()
        require(
            success or failure or slip.over != NEVER,
            f"{slip.token} has ended, with nobody who did that",
        )
        self._facts.mark_present(slip)
        if success != failure and not slip.dead_queue:
            self._facts.mark_over(slip, success=success)
