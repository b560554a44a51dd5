"""The history checker of the drills finds what a server must not do, and nothing that it may do."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import pytest
from support.drill.book import CheckedLimits, HistoryChecker, HistoryViolation
from support.drill.slip import EndKind, FetchAttempt, JobHistory, Lease


class Desk:
    """A book with a clock, and short ways to write into it."""

    def __init__(
        self, *, limits: CheckedLimits | None = None, sure_connections: bool = False
    ) -> None:
        self.now = 1000.0
        self.book = HistoryChecker(lambda: self.now, limits, sure_connections=sure_connections)

    def push(
        self, token: str, *, maker: str = "m", queue: str = "q", **facts: object
    ) -> JobHistory:
        """A push without an answer."""
        slip = JobHistory(token=token, maker=maker, queue=queue, **facts)  # type: ignore[arg-type]
        self.book.before_push(slip, self.book.ask())
        return slip

    def pushed(self, token: str, id: str = "", **facts: object) -> JobHistory:
        slip = self.push(token, **facts)  # type: ignore[arg-type]
        self.book.on_pushed(slip, slip.asked, id)
        return slip

    def take(self, consumer: str = "c", *queues: str, **terms: object) -> FetchAttempt:
        """A take without an answer."""
        return self.book.before_fetch(consumer, queues or ("q",), **terms)  # type: ignore[arg-type]

    def took(
        self, slip: JobHistory, consumer: str = "c", *, queue: str = "", **terms: object
    ) -> Lease:
        fails = terms.pop("fails", None)
        take = self.take(consumer, queue or slip.queue, **terms)
        assert fails is None or isinstance(fails, int)
        lease = self.came(take, slip, queue=queue, fails=fails)
        self.book.on_fetch_answered(take)
        return lease

    def came(
        self, take: FetchAttempt, slip: JobHistory, *, queue: str = "", fails: int | None = None
    ) -> Lease:
        return self.book.on_job_received(take, slip.token, queue or slip.queue, fails=fails)

    def ended(
        self, slip: JobHistory, kind: EndKind, lease: Lease | None = None, data: bytes = b""
    ) -> None:
        self.book.on_ended(self.book.before_end(slip, kind, lease, data))

    def refused(self, slip: JobHistory, kind: EndKind, lease: Lease) -> None:
        self.book.on_end_refused(self.book.before_end(slip, kind, lease), still_held=False)

    def done(self, *slips: JobHistory) -> None:
        for slip in slips:
            self.ended(slip, EndKind.SUCCESS, self.took(slip))


@pytest.fixture
def desk() -> Desk:
    return Desk()


def finds(what: str) -> pytest.RaisesExc[HistoryViolation]:
    return pytest.RaisesExc(HistoryViolation, match=what)


# Lost and invented


def test_what_was_pushed_and_finished_is_fine(desk: Desk) -> None:
    desk.done(desk.pushed("a"), desk.pushed("b"))
    assert (desk.book.check().finished, desk.book.sum.acknowledged) == (2, 2)


def test_what_was_acknowledged_and_never_comes_is_lost(desk: Desk) -> None:
    desk.done(desk.pushed("a"))
    desk.pushed("b")
    with finds(r"lost: \['b'\] of 1"):
        desk.book.check()


def test_what_had_no_answer_may_have_happened_or_not(desk: Desk) -> None:
    desk.push("a")
    came = desk.push("b")
    desk.book.on_crash()
    desk.done(came)
    desk.book.check()


def test_what_was_shown_once_cannot_be_lost_any_more(desk: Desk) -> None:
    slip = desk.push("a", max_fails=0)
    desk.took(slip)
    desk.book.on_crash()
    with finds("lost"):
        desk.book.check()


def test_what_nobody_pushed_is_invented(desk: Desk) -> None:
    with finds("invented: z was never pushed"):
        desk.book.on_job_received(desk.take(), "z", "q")


def test_what_was_refused_is_invented(desk: Desk) -> None:
    slip = desk.push("a")
    desk.book.on_push_refused(slip)
    with finds("invented: a was refused"):
        desk.took(slip)


def test_a_job_has_one_id_and_an_id_one_job(desk: Desk) -> None:
    slip = desk.pushed("a", "1")
    with finds("1 is the id of a and of b"):
        desk.pushed("b", "1")
    with finds("a had id 1, and now has 2"):
        desk.book.on_job_received(desk.take(), slip.token, "q", id="2")


def test_another_payload_is_found(desk: Desk) -> None:
    desk.pushed("a")
    with finds("another payload"):
        desk.book.on_job_received(desk.take(), "a", "q", payload_is_right=False)


def test_a_lost_pop_explains_as_many_as_it_asked_for(desk: Desk) -> None:
    desk.pushed("a")
    desk.pushed("b", queue="r")
    desk.take("c", "q", "r", pops=True)
    desk.take("c", "q", pops=True)
    desk.book.on_disconnect("c")
    desk.book.check()  # the first has b, the second a
    desk.pushed("d", queue="r")
    with finds("lost"):
        desk.book.check()


def test_a_lost_take_explains_only_who_may_not_be_lost_so_often(desk: Desk) -> None:
    desk.pushed("a", max_attempts=1)
    desk.take("c")
    desk.book.on_disconnect("c")
    desk.book.check()
    desk.pushed("b")
    with finds(r"lost: \['b'\]"):
        desk.book.check()


# Back after the end


def test_what_comes_after_its_finish_was_answered_is_back(desk: Desk) -> None:
    slip = desk.pushed("a")
    desk.done(slip)
    with finds("back: a came after it was over"):
        desk.took(slip)


def test_what_comes_after_a_crash_with_its_finish_answered_is_back(desk: Desk) -> None:
    slip = desk.pushed("a")
    desk.done(slip)
    desk.book.on_crash()
    with finds("back"):
        desk.took(slip)


def test_a_finish_without_an_answer_may_be_undone_by_a_crash(desk: Desk) -> None:
    slip = desk.pushed("a")
    desk.book.before_end(slip, EndKind.SUCCESS, desk.took(slip))
    desk.book.on_crash()
    desk.done(slip)
    desk.book.check()


def test_a_take_that_was_asked_before_the_end_may_tell_of_the_job_later(desk: Desk) -> None:
    slip = desk.pushed("a", ttr=1.0)
    slow = desk.take("slow")
    desk.now += 2.0
    desk.done(slip)
    desk.came(slow, slip)


def test_what_was_popped_is_over(desk: Desk) -> None:
    slip = desk.pushed("a")
    desk.took(slip, pops=True)
    with finds("back"):
        desk.took(slip, pops=True)


def test_what_was_deleted_is_not_there_any_more(desk: Desk) -> None:
    slip = desk.pushed("a")
    desk.ended(slip, EndKind.DELETE)
    desk.book.on_not_found(slip, desk.book.ask())
    with finds("back: a was deleted after it was deleted"):
        desk.ended(slip, EndKind.DELETE)


def test_what_may_be_forgotten_may_come_back(desk: Desk) -> None:
    old = desk.pushed("old")
    desk.done(old)
    desk.now += 10
    new = desk.pushed("new")
    desk.done(new)
    desk.book.on_crash(forgets_from=1005.0)
    desk.took(new)
    with finds("back: old"):
        desk.took(old)


# Leases


def test_two_cannot_hold_a_job_at_a_time(desk: Desk) -> None:
    slip = desk.pushed("a", ttr=10.0)
    desk.took(slip, "one")
    desk.now += 9.9
    with finds("held twice: a is held by one, and now by two"):
        desk.took(slip, "two")


def test_one_comes_after_the_other(desk: Desk) -> None:
    slip = desk.pushed("a", ttr=10.0)
    desk.took(slip, "one")
    desk.now += 10.1
    desk.took(slip, "two")
    assert desk.book.sum.redelivered == 1


def test_replies_to_takes_may_cross_each_other(desk: Desk) -> None:
    slip = desk.pushed("a", ttr=1.0)
    first = desk.take("first")
    desk.now += 1.5
    desk.took(slip, "second")
    desk.came(first, slip)  # whose lease was over before the other began


def test_who_fails_a_job_by_its_uid_ends_the_lease_of_its_holder(desk: Desk) -> None:
    slip = desk.pushed("a", max_fails=3)
    lease = desk.took(slip, "one")
    ending = desk.book.before_end(slip, EndKind.SUCCESS, lease)
    desk.ended(slip, EndKind.FAIL)
    desk.book.on_end_refused(ending, still_held=False)
    desk.took(slip, "two")


def test_a_holder_must_be_heeded(desk: Desk) -> None:
    slip = desk.pushed("a", ttr=10.0)
    lease = desk.took(slip)
    with finds("the holder of a was not heeded"):
        desk.refused(slip, EndKind.SUCCESS, lease)


def test_a_holder_whose_time_is_over_may_be_refused(desk: Desk) -> None:
    slip = desk.pushed("a", ttr=10.0)
    lease = desk.took(slip)
    desk.now += 11
    desk.refused(slip, EndKind.SUCCESS, lease)


def test_a_holder_must_be_heeded_for_as_long_as_it_was_told_last(desk: Desk) -> None:
    slip = desk.pushed("a", ttr=10.0)
    lease = desk.took(slip)
    desk.book.on_extended(desk.book.before_extend(lease, 1.0))
    desk.book.on_extended(desk.book.before_extend(lease, 30.0))
    desk.now += 20
    with finds("the holder of a was not heeded"):
        desk.refused(slip, EndKind.SUCCESS, lease)


def test_an_extension_that_was_refused_changes_nothing(desk: Desk) -> None:
    slip = desk.pushed("a", ttr=10.0)
    lease = desk.took(slip)
    desk.book.on_extend_refused(lease, desk.book.before_extend(lease, 1.0))
    desk.now += 5
    with finds("the holder of a was not heeded"):
        desk.refused(slip, EndKind.SUCCESS, lease)


def test_of_extensions_that_crossed_each_other_any_may_be_the_last(desk: Desk) -> None:
    slip = desk.pushed("a", ttr=10.0)
    lease = desk.took(slip)
    longer = desk.book.before_extend(lease, 30.0)
    desk.book.on_extended(desk.book.before_extend(lease, 1.0))
    desk.book.on_extended(longer)
    desk.now += 2
    desk.refused(slip, EndKind.SUCCESS, lease)


def test_an_extension_without_an_answer_may_come_at_any_time(desk: Desk) -> None:
    slip = desk.pushed("a", ttr=10.0)
    lease = desk.took(slip)
    desk.book.before_extend(lease, 1.0)
    desk.book.on_extended(desk.book.before_extend(lease, 30.0))
    desk.now += 2
    desk.refused(slip, EndKind.SUCCESS, lease)


def test_an_extension_may_be_forgotten_in_a_crash(desk: Desk) -> None:
    slip = desk.pushed("a", ttr=10.0)
    lease = desk.took(slip, "one")
    desk.now += 1
    desk.book.on_extended(desk.book.before_extend(lease, 30.0))
    desk.book.on_crash(forgets_from=desk.now)
    desk.now += 15
    desk.took(slip, "two")


def test_a_holder_that_was_replaced_must_be_refused(desk: Desk) -> None:
    slip = desk.pushed("a", ttr=10.0, max_fails=0)
    lease = desk.took(slip, "one")
    desk.now += 11
    desk.took(slip, "two")
    with finds("by one whose lease was over"):
        desk.ended(slip, EndKind.FAIL, lease)


def test_a_lease_that_is_sure_to_be_on_disk_survives_a_crash(desk: Desk) -> None:
    slip = desk.pushed("a", ttr=10.0)
    desk.took(slip, "one")
    desk.pushed("later")
    desk.book.on_crash()
    with finds("held twice"):
        desk.took(slip, "two")


def test_a_lease_of_the_last_instant_may_be_forgotten(desk: Desk) -> None:
    slip = desk.pushed("a", ttr=10.0)
    desk.took(slip, "one")
    desk.book.on_crash()
    desk.took(slip, "two")


def test_the_end_of_a_connection_may_be_known_to_the_server_first(desk: Desk) -> None:
    slip = desk.pushed("a", max_fails=0, loss_fails=True)
    desk.took(slip, "one", bound=True)
    before = desk.book.ask()
    desk.took(slip, "two", bound=True, fails=1)
    desk.book.on_connection_seen("one", before)
    desk.book.on_disconnect("one")


def test_who_is_still_answered_has_not_lost_its_connection(desk: Desk) -> None:
    slip = desk.pushed("a", max_fails=0, loss_fails=True)
    desk.took(slip, "one", bound=True)
    desk.took(slip, "two", bound=True)
    with finds("held twice: a is held by one, and another got it"):
        desk.book.on_connection_seen("one", desk.book.ask())


def test_where_connections_are_sure_nobody_else_can_have_it() -> None:
    desk = Desk(sure_connections=True)
    slip = desk.pushed("a", max_fails=0, loss_fails=True)
    desk.took(slip, "one", bound=True)
    with finds("held twice"):
        desk.took(slip, "two", bound=True)


# Attempts and failures


@pytest.mark.parametrize("crash", [False, True])
def test_a_job_comes_no_more_often_than_it_may(desk: Desk, crash: bool) -> None:
    slip = desk.pushed("a", ttr=1.0, max_attempts=2)
    for _ in range(2):
        desk.took(slip)
        desk.now += 2
    desk.pushed("later")
    if crash:
        desk.book.on_crash()
    with finds("a came more than 2 times"):
        desk.took(slip)


def test_an_attempt_of_the_last_instant_may_be_forgotten_unless_it_is_the_only_one(
    desk: Desk,
) -> None:
    often, once = desk.pushed("often", max_attempts=2), desk.pushed("once", max_attempts=1)
    desk.took(often)
    desk.took(once)
    desk.book.on_crash()
    desk.took(often)
    with finds("once came more than 1 times"):
        desk.took(once)


def test_as_many_failures_are_shown_as_there_were(desk: Desk) -> None:
    slip = desk.pushed("a", max_fails=3)
    desk.ended(slip, EndKind.FAIL, desk.took(slip, fails=0))
    lease = desk.took(slip, fails=1)
    desk.ended(slip, EndKind.FAIL, lease)
    with finds("a failed 1 times, but 2 to 2 times"):
        desk.took(slip, fails=1)


def test_a_lost_connection_is_a_failure_where_the_job_says_so(desk: Desk) -> None:
    slip = desk.pushed("a", max_fails=3, loss_fails=True)
    desk.took(slip, "one", bound=True)
    desk.book.on_disconnect("one")
    desk.took(slip, "two", fails=1)
    other = desk.pushed("b", max_fails=3)
    desk.took(other, "three", bound=True)
    desk.book.on_disconnect("three")
    with finds("b failed 1 times, but 0 to 0 times"):
        desk.took(other, "four", fails=1)


def test_a_crash_is_no_failure() -> None:
    desk = Desk(sure_connections=True)
    slip = desk.pushed("a", max_fails=3, loss_fails=True)
    desk.took(slip, "one", bound=True)
    desk.book.on_crash()
    with finds("a failed 1 times, but 0 to 0 times"):
        desk.took(slip, "two", fails=1)


def test_what_has_failed_for_good_does_not_come_back(desk: Desk) -> None:
    slip = desk.pushed("a", max_fails=2)
    for _ in range(2):
        desk.ended(slip, EndKind.FAIL, desk.took(slip))
    desk.book.check()
    with finds("back"):
        desk.took(slip)


def test_what_has_failures_left_is_not_gone(desk: Desk) -> None:
    slip = desk.pushed("a", max_fails=2)
    desk.ended(slip, EndKind.FAIL, desk.took(slip))
    with finds("lost"):
        desk.book.check()


def test_a_job_goes_to_its_dead_queue_when_it_has_failed(desk: Desk) -> None:
    slip = desk.pushed("a", dead_queue="dead")
    desk.ended(slip, EndKind.FAIL, desk.took(slip))
    lease = desk.took(slip, queue="dead", fails=0)
    with finds("back: a failed for good, and came from q"):
        desk.took(slip)
    desk.ended(slip, EndKind.SUCCESS, lease)
    desk.book.check()


def test_a_job_does_not_go_to_its_dead_queue_before(desk: Desk) -> None:
    slip = desk.pushed("a", dead_queue="dead")
    with finds("a came from dead without having failed"):
        desk.took(slip, queue="dead")


def test_a_job_in_its_dead_queue_is_owed(desk: Desk) -> None:
    slip = desk.pushed("a", dead_queue="dead")
    desk.ended(slip, EndKind.FAIL, desk.took(slip))
    with finds("lost"):
        desk.book.check()


def test_a_job_whose_holders_die_too_often_is_dead() -> None:
    desk = Desk(limits=CheckedLimits(max_losses=2))
    slip = desk.pushed("a", ttr=1.0)
    desk.took(slip)
    desk.now += 2
    with finds("lost"):
        desk.book.check()
    desk.took(slip)
    desk.now += 2
    assert desk.book.check().dead == 1


# Time


def test_a_job_does_not_come_before_its_time(desk: Desk) -> None:
    slip = desk.pushed("a", run_at=1005.0)
    with finds("too early: a"):
        desk.took(slip)
    desk.now = 1005.0
    desk.done(slip)


def test_a_job_does_not_come_after_its_ttl(desk: Desk) -> None:
    slip = desk.pushed("a", ttl=5.0)
    desk.now += 6
    assert desk.book.check().expired == 1
    with finds("a came after its ttl"):
        desk.took(slip)


def test_a_job_is_there_until_its_ttl(desk: Desk) -> None:
    slip = desk.pushed("a", ttl=5.0)
    desk.now += 4
    with finds("lost: a"):
        desk.book.on_not_found(slip, desk.book.ask())


# Order


def test_jobs_come_in_the_order_of_their_pushes(desk: Desk) -> None:
    first, second = desk.pushed("first", maker="m"), desk.pushed("second", maker="n")
    desk.took(first)
    desk.took(second)
    desk.book.on_crash()


@pytest.mark.parametrize("maker", ["m", "n"])
def test_a_job_that_comes_behind_a_later_one_is_out_of_order(desk: Desk, maker: str) -> None:
    first, second = desk.pushed("first"), desk.pushed("second", maker=maker)
    desk.took(second)
    desk.took(first)
    with finds("out of order: first came to c after second"):
        desk.book.on_crash()


def test_pushes_that_crossed_each_other_have_no_order(desk: Desk) -> None:
    first, second = desk.push("first"), desk.push("second", maker="n")
    desk.took(second)
    desk.took(first)
    desk.book.on_crash()


def other_has_had_it(desk: Desk, take: FetchAttempt, slip: JobHistory) -> None:
    desk.came(take, slip)
    desk.book.on_fetch_answered(take)


def other_is_lost(desk: Desk, take: FetchAttempt, slip: JobHistory) -> None:
    desk.book.on_disconnect(take.consumer)


@pytest.mark.parametrize("then", [other_has_had_it, other_is_lost])
def test_somebody_else_may_have_had_it_first(
    desk: Desk, then: Callable[[Desk, FetchAttempt, JobHistory], None]
) -> None:
    first, second = desk.pushed("first", ttr=1.0), desk.pushed("second")
    other = desk.take("other")
    desk.took(second)
    desk.now += 2.0
    desk.took(first)
    then(desk, other, first)
    desk.book.on_crash()


def test_what_is_drained_comes_by_priority_and_in_order(desk: Desk) -> None:
    low, high = desk.pushed("low"), desk.pushed("high", priority=1)
    desk.book.draining = True
    desk.done(low)
    with finds("out of order: high of priority 1 came after low"):
        desk.done(high)


# Jobs that wait for others


def test_a_job_comes_when_its_blocker_is_done(desk: Desk) -> None:
    blocker = desk.pushed("blocker")
    slip = desk.pushed("a", blockers=(blocker,))
    with finds("a came before blocker was done"):
        desk.took(slip)
    desk.done(blocker)
    desk.done(slip)
    desk.book.check()


def test_that_a_job_comes_shows_that_its_blocker_is_done(desk: Desk) -> None:
    blocker = desk.pushed("blocker")
    slip = desk.pushed("a", blockers=(blocker,))
    desk.book.before_end(blocker, EndKind.SUCCESS, desk.took(blocker))
    desk.took(slip)
    desk.book.on_crash()
    with finds("back: blocker"):
        desk.took(blocker)


@pytest.mark.parametrize("kind", [EndKind.FAIL, EndKind.DELETE, EndKind.FINAL])
def test_a_blocker_that_fails_fails_those_behind_it(desk: Desk, kind: EndKind) -> None:
    blocker = desk.pushed("blocker")
    slip = desk.pushed("a", blockers=(blocker,))
    last = desk.pushed("b", blockers=(slip,), dead_queue="dead")
    lease = None if kind is EndKind.DELETE else desk.took(blocker)
    desk.ended(blocker, kind, lease)
    with finds("a came, although blocker failed before it"):
        desk.took(slip)
    desk.ended(last, EndKind.SUCCESS, desk.took(last, queue="dead"))
    desk.book.check()


@pytest.mark.parametrize("kind", [EndKind.DELETE, EndKind.FINAL])
def test_a_failure_that_may_be_forgotten_may_have_failed_those_behind_it(
    desk: Desk, kind: EndKind
) -> None:
    blocker = desk.pushed("blocker", max_fails=3, dead_queue="dead")
    desk.pushed("a", blockers=(blocker,))
    lease = None if kind is EndKind.DELETE else desk.took(blocker)
    desk.now += 10
    desk.ended(blocker, kind, lease)
    desk.book.on_crash(forgets_from=1005.0)
    if kind is EndKind.FINAL:
        desk.ended(blocker, EndKind.SUCCESS, desk.took(blocker, queue="dead"))
    desk.book.check()


def test_a_blocker_that_had_failed_before_blocks_nobody(desk: Desk) -> None:
    blocker = desk.pushed("blocker")
    desk.ended(blocker, EndKind.FAIL, desk.took(blocker))
    desk.done(desk.pushed("a", blockers=(blocker,)))
    desk.book.check()


def test_a_job_behind_one_that_is_done_is_owed(desk: Desk) -> None:
    blocker = desk.pushed("blocker")
    desk.pushed("a", blockers=(blocker,))
    desk.done(blocker)
    with finds(r"lost: \['a'\]"):
        desk.book.check()


# Uniqueness and results


def test_a_repeated_push_is_no_second_job(desk: Desk) -> None:
    slip = desk.pushed("a", unique="u")
    again = desk.book.ask()
    desk.book.before_push(slip, again)
    desk.book.on_push_repeated(slip, again)
    again = desk.book.ask()
    desk.book.before_push(slip, again)
    with finds("a was pushed a second time"):
        desk.book.on_pushed(slip, again)


def test_a_push_without_an_answer_may_be_new_when_it_is_repeated(desk: Desk) -> None:
    slip = desk.push("a", unique="u")
    desk.book.on_crash()
    again = desk.book.ask()
    desk.book.before_push(slip, again)
    desk.book.on_pushed(slip, again)
    desk.done(slip)
    desk.book.check()


def test_what_is_new_is_no_duplicate(desk: Desk) -> None:
    slip = desk.push("a", unique="u")
    with finds("a is new, and was called a duplicate"):
        desk.book.on_push_repeated(slip, slip.asked)


def test_the_first_result_counts(desk: Desk) -> None:
    slip = desk.pushed("a")
    desk.ended(slip, EndKind.SUCCESS, None, b"one")
    with finds("nobody gave it"):
        desk.book.on_result_shown(slip, desk.book.ask(), b"two", success=True)
    desk.book.on_result_shown(slip, desk.book.ask(), b"one", success=True)


@pytest.mark.parametrize("crash", [False, True])
def test_a_lost_connection_is_shown_as_the_error_of_the_job(desk: Desk, crash: bool) -> None:
    slip = desk.pushed("a", loss_fails=True)
    desk.took(slip, "one", bound=True)
    desk.book.on_disconnect("one")
    if crash:
        desk.book.on_crash()
    desk.book.on_result_shown(slip, desk.book.ask(), b"connection lost", success=False)


def test_a_connection_that_was_there_until_the_end_was_not_lost(desk: Desk) -> None:
    slip = desk.pushed("a", loss_fails=True)
    lease = desk.took(slip, "one", bound=True)
    desk.ended(slip, EndKind.FAIL, lease, b"error")
    desk.book.on_disconnect("one")
    with finds("nobody gave it"):
        desk.book.on_result_shown(slip, desk.book.ask(), b"connection lost", success=False)


def test_a_result_does_not_change(desk: Desk) -> None:
    slip = desk.pushed("a")
    for data in (b"one", b"two"):
        desk.book.before_end(slip, EndKind.SUCCESS, None, data)
    desk.book.on_result_shown(slip, desk.book.ask(), b"one", success=True)
    with finds("another result than before"):
        desk.book.on_result_shown(slip, desk.book.ask(), b"two", success=True)


def test_a_result_is_kept_until_the_ttl(desk: Desk) -> None:
    slip = desk.pushed("a", ttl=5.0, keeps_result=True)
    desk.ended(slip, EndKind.SUCCESS, None, b"one")
    with finds("lost: the result of a"):
        desk.book.on_not_found(slip, desk.book.ask())
    desk.now += 6
    desk.book.on_not_found(slip, desk.book.ask())


def test_nobody_has_succeeded_by_itself(desk: Desk) -> None:
    slip = desk.pushed("a")
    with finds("a has succeeded, with nobody who finished it"):
        desk.book.on_result_shown(slip, desk.book.ask(), b"", success=True)


# Limits


def limited() -> Desk:
    limits = CheckedLimits(in_flight={"q": 2}, in_flight_of_key={"q": 1}, rate={"q": (3, 1.0)})
    return Desk(limits=limits)


def test_no_more_are_out_than_may_be() -> None:
    desk = limited()
    first, *others = [desk.pushed(token, ttr=10.0, max_fails=0) for token in "abc"]
    lease = desk.took(first)
    desk.took(others[0])
    desk.ended(first, EndKind.FAIL, lease)
    desk.took(others[1])
    with finds("q has 3 jobs out, and may have 2"):
        desk.took(first)


def test_no_more_of_a_key_are_out_than_may_be() -> None:
    desk = limited()
    first, second = [desk.pushed(token, ttr=10.0, limit_key="k") for token in "ab"]
    desk.took(first)
    with finds("k of q has 2 jobs out, and may have 1"):
        desk.took(second)


@pytest.mark.parametrize(("pause", "fine"), [(0.01, False), (0.4, True)])
def test_no_more_are_started_than_the_rate_allows(pause: float, fine: bool) -> None:
    desk = limited()
    for number in range(12):
        desk.took(desk.pushed(f"{number}"), pops=True)
        desk.now += pause
    if fine:
        desk.book.check()
    else:
        with finds("q has started 5 jobs"):
            desk.book.check()


# Together or not at all


def test_a_transaction_without_an_answer_is_there_as_a_whole(desk: Desk) -> None:
    held = desk.pushed("held")
    lease = desk.took(held)
    pushes = [desk.push("a"), desk.push("b")]
    ending = desk.book.before_end(held, EndKind.SUCCESS, lease)
    desk.book.before_bundle(pushes, [ending], desk.book.ask())
    desk.book.on_crash()
    desk.done(pushes[0])
    with finds("back: held"):
        desk.took(held)
    with finds(r"lost: \['b'\]"):
        desk.book.check()


def test_a_transaction_of_which_nothing_is_there_is_fine(desk: Desk) -> None:
    held = desk.pushed("held")
    ending = desk.book.before_end(held, EndKind.SUCCESS, desk.took(held))
    desk.book.before_bundle([desk.push("a")], [ending], desk.book.ask())
    desk.book.on_crash()
    desk.done(held)
    desk.book.check()


def test_half_of_a_transaction_is_found(desk: Desk) -> None:
    held = desk.pushed("held")
    ending = desk.book.before_end(held, EndKind.SUCCESS, desk.took(held))
    pushed = desk.push("a")
    desk.book.before_bundle([pushed], [ending], desk.book.ask())
    desk.book.on_crash()
    desk.done(held)
    with finds("invented: a was refused"):
        desk.took(pushed)


def test_a_finish_without_its_pushes_is_half_of_a_transaction(desk: Desk) -> None:
    held = desk.pushed("held", max_fails=0)
    ending = desk.book.before_end(held, EndKind.SUCCESS, desk.took(held))
    desk.book.before_bundle([desk.push("a", max_fails=0)], [ending], desk.book.ask())
    desk.book.on_crash()
    with finds("half of a transaction"):
        desk.book.check()


def test_a_transaction_that_was_forgotten_is_forgotten_as_a_whole(desk: Desk) -> None:
    pushes = [desk.push("a"), desk.push("b")]
    desk.book.on_bundle_applied(desk.book.before_bundle(pushes, [], desk.book.ask()), ["1", "2"])
    desk.book.on_crash(forgets_from=0.0)
    desk.book.check()
    desk.done(pushes[1])
    with finds(r"lost: \['a'\]"):
        desk.book.check()


def test_an_endless_time_is_no_time() -> None:
    assert JobHistory(token="a", maker="m", queue="q").dies_at() == inf
