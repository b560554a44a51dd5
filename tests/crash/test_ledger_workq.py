"""The ledger of Workq itself: it accepts what may be, and finds what may not be."""

from collections.abc import Iterable
from typing import Any

import pytest
from support.ledger_workq import (
    COMPLETED,
    EXHAUSTED,
    FAILED,
    LEASED,
    NEW,
    PENDING,
    Entry,
    Floor,
    Ledger,
    Result,
)


class Clients:
    """What clients do, each request with its reply at once unless it says otherwise."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.now = 100.0

    def adding(self, id: str = "a", **fields: Any) -> Entry:
        given = {"maker": "client", "name": "q", "payload": b"ping", "ttr": 10.0, "ttl_ms": 1000}
        entry = Entry(id=id, **{**given, **fields})
        self.ledger.adding(entry)
        return entry

    def add(self, id: str = "a", **fields: Any) -> Entry:
        entry = self.adding(id, **fields)
        self.ledger.added(entry, self.ledger.ask(self.now))
        return entry

    def lease(self, id: str = "a", payload: bytes = b"ping", names: Iterable[str] = "q") -> Entry:
        asked = self.ledger.ask(self.now)
        self.ledger.leasing(list(names))
        return self.ledger.handed_out(asked, list(names), id, "q", payload, self.now)

    def complete(self, entry: Entry, data: bytes = b"pong") -> None:
        result, asked = self.ledger.completing(entry, data), self.ledger.ask(self.now)
        self.ledger.completed(entry, asked, result, entry.sure_leases)

    def fail(self, entry: Entry, data: bytes = b"error") -> None:
        result, asked = self.ledger.failing(entry, data), self.ledger.ask(self.now)
        self.ledger.failed(entry, asked, result, entry.sure_leases)

    def delete(self, entry: Entry) -> None:
        self.ledger.deleting(entry)
        self.ledger.deleted(entry, self.ledger.ask(self.now))

    def see_result(self, entry: Entry, success: bool, data: bytes) -> None:
        self.ledger.shown_result(entry, self.ledger.ask(self.now), Result(success, data))

    def see_none(self, entry: Entry) -> None:
        self.ledger.no_result(entry, self.ledger.ask(self.now))

    def miss(self, entry: Entry) -> None:
        self.ledger.not_found(entry, self.ledger.ask(self.now))

    def inspect(self, entry: Entry, state: int, attempts: int = 0, fails: int = 0) -> None:
        asked, floor = self.ledger.ask(self.now), Floor.of(entry)
        self.ledger.inspected(
            entry, asked, state=state, attempts=attempts, fails=fails, floor=floor
        )


@pytest.fixture
def clients() -> Clients:
    return Clients()


def test_a_job_that_was_added_leased_and_completed_is_in_order(clients: Clients) -> None:
    entry = clients.add()
    clients.lease()
    clients.complete(entry)
    clients.ledger.crashed()
    clients.see_result(entry, True, b"pong")
    clients.ledger.check()


def test_an_acknowledged_job_that_does_not_come_is_lost(clients: Clients) -> None:
    entry = clients.add()
    clients.ledger.crashed()
    with pytest.raises(AssertionError, match=r"lost: \['a'\]"):
        clients.ledger.check()
    with pytest.raises(AssertionError, match="a is lost"):
        clients.miss(entry)


def test_a_job_that_was_seen_is_as_good_as_acknowledged(clients: Clients) -> None:
    clients.adding("a")
    clients.lease("a")
    clients.inspect(clients.adding("b"), NEW)
    repeated = clients.adding("c")
    clients.ledger.adding_again(repeated)
    clients.ledger.duplicate_job(repeated)
    clients.ledger.crashed()
    with pytest.raises(AssertionError, match=r"lost: \['a', 'b', 'c'\]"):
        clients.ledger.check()


def test_what_had_no_answer_may_have_happened_or_not(clients: Clients) -> None:
    never = clients.adding("never")
    completing, failing, deleting = (clients.add(id) for id in ("c", "f", "d"))
    for id in ("c", "f", "d"):
        clients.lease(id)
    clients.ledger.completing(completing, b"one")
    clients.ledger.failing(failing, b"two")
    clients.ledger.deleting(deleting)
    clients.ledger.crashed()
    clients.miss(never)
    clients.miss(deleting)
    clients.see_result(completing, True, b"one")
    clients.inspect(failing, NEW)
    clients.lease("f")
    clients.complete(failing)
    clients.ledger.check()


def test_a_job_that_is_over_does_not_come_back(clients: Clients) -> None:
    clients.complete(clients.add("completed"))
    clients.fail(clients.add("failed"))
    clients.see_result(failed_twice(clients, "counted"), False, b"second")
    clients.delete(clients.add("deleted"))
    clients.ledger.crashed()
    for id in ("completed", "failed", "counted"):
        with pytest.raises(AssertionError, match="back after it was finished"):
            clients.lease(id)
    with pytest.raises(AssertionError, match="back after it was deleted"):
        clients.lease("deleted")


def failed_twice(clients: Clients, id: str) -> Entry:
    entry = clients.add(id, max_fails=2)
    clients.fail(entry, b"first")
    clients.inspect(entry, PENDING, fails=1)
    clients.fail(entry, b"second")
    return entry


def test_replies_that_cross_each_other_are_no_contradiction(clients: Clients) -> None:
    entry = clients.add()
    ledger = clients.ledger
    asked = ledger.ask(clients.now)
    ledger.leasing(["q"])
    clients.complete(entry)
    ledger.handed_out(asked, ["q"], "a", "q", b"ping", clients.now)


def test_nothing_is_invented(clients: Clients) -> None:
    with pytest.raises(AssertionError, match="never added"):
        clients.lease()
    clients.add()
    with pytest.raises(AssertionError, match="another payload"):
        clients.lease(payload=b"pong")
    with pytest.raises(AssertionError, match="came for"):
        clients.lease(names=["r"])
    refused = clients.adding("b")
    clients.ledger.refused(refused)
    with pytest.raises(AssertionError, match="refused"):
        clients.lease("b")
    with pytest.raises(AssertionError, match="nobody gave it"):
        clients.see_result(clients.add("c"), True, b"pong")
    with pytest.raises(AssertionError, match="without a reason"):
        clients.inspect(clients.add("d"), COMPLETED)


def test_a_job_is_added_once(clients: Clients) -> None:
    entry = clients.add()
    clients.ledger.adding_again(entry)
    with pytest.raises(AssertionError, match="added twice"):
        clients.ledger.added(entry, clients.ledger.ask(clients.now))
    with pytest.raises(AssertionError, match="called a duplicate"):
        clients.ledger.duplicate_job(clients.adding("b"))


def test_the_first_result_stays(clients: Clients) -> None:
    entry = clients.add()
    clients.complete(entry, b"first")
    with pytest.raises(AssertionError, match="had a result before"):
        clients.complete(entry, b"second")
    with pytest.raises(AssertionError, match="has the result"):
        clients.see_result(entry, True, b"second")
    with pytest.raises(AssertionError, match="is lost"):
        clients.see_none(entry)
    with pytest.raises(AssertionError, match="had a result, and has none"):
        clients.inspect(entry, LEASED)


def test_two_results_of_which_both_are_acknowledged_cannot_be(clients: Clients) -> None:
    entry, ledger = clients.add(), clients.ledger
    asked = ledger.ask(clients.now)
    one, other = ledger.completing(entry, b"one"), ledger.completing(entry, b"other")
    ledger.completed(entry, asked, one, 0)
    with pytest.raises(AssertionError, match="two results"):
        ledger.completed(entry, asked, other, 0)


def test_a_duplicate_result_shows_that_there_is_one(clients: Clients) -> None:
    entry, other, ledger = clients.add(), clients.add("b"), clients.ledger
    with pytest.raises(AssertionError, match="nobody gave it"):
        ledger.duplicate_result(other, ledger.completing(other, b"pong"))
    ledger.completing(entry, b"ping")
    ledger.duplicate_result(entry, ledger.completing(entry, b"pong"))
    with pytest.raises(AssertionError, match="back after it was finished"):
        clients.lease()
    with pytest.raises(AssertionError, match="nobody gave it"):
        clients.see_result(entry, True, b"pong")


def test_a_job_is_deleted_once(clients: Clients) -> None:
    entry, ledger = clients.add(), clients.ledger
    asked = ledger.ask(clients.now)
    clients.delete(entry)
    with pytest.raises(AssertionError, match="deleted twice"):
        ledger.deleted(entry, asked)
    with pytest.raises(AssertionError, match="is there"):
        clients.inspect(entry, NEW)
    with pytest.raises(AssertionError, match="deleted before"):
        clients.complete(entry)


def test_a_leased_job_is_not_leased_again_before_its_time_is_over(clients: Clients) -> None:
    clients.add()
    clients.lease()
    clients.now += 9.9
    with pytest.raises(AssertionError, match="while it was leased"):
        clients.lease()
    clients.now += 0.1
    clients.lease()
    clients.ledger.crashed()
    clients.lease()


def test_a_job_that_has_failed_may_be_leased_again(clients: Clients) -> None:
    entry = clients.add(max_fails=2)
    clients.lease()
    clients.ledger.failing(entry, b"error")
    clients.lease()


def test_a_fail_may_end_a_lease_before_that_is_heard_of(clients: Clients) -> None:
    entry, ledger = clients.add(max_fails=2), clients.ledger
    asked = ledger.ask(clients.now)
    ledger.leasing(["q"])
    clients.fail(entry)
    ledger.handed_out(asked, ["q"], "a", "q", b"ping", clients.now)
    clients.lease()
    with pytest.raises(AssertionError, match="while it was leased"):
        clients.lease()


def test_a_job_does_not_come_before_its_time(clients: Clients) -> None:
    clients.add(not_before=101.0)
    with pytest.raises(AssertionError, match="too early"):
        clients.lease()


def test_acknowledged_fails_count(clients: Clients) -> None:
    entry = clients.add(max_fails=3)
    clients.fail(entry)
    clients.ledger.crashed()
    with pytest.raises(AssertionError, match="failed 0 times, but 1 to 1"):
        clients.inspect(entry, PENDING, fails=0)
    with pytest.raises(AssertionError, match="failed 2 times, but 1 to 1"):
        clients.inspect(entry, PENDING, fails=2)
    with pytest.raises(AssertionError, match="nobody gave it"):
        clients.see_result(entry, False, b"error")


def test_attempts_count_until_a_crash(clients: Clients) -> None:
    entry = clients.add()
    clients.lease()
    with pytest.raises(AssertionError, match="leased 0 times, but 1 to 1"):
        clients.inspect(entry, LEASED, attempts=0)
    with pytest.raises(AssertionError, match="leased 2 times, but 1 to 1"):
        clients.inspect(entry, LEASED, attempts=2)
    clients.ledger.crashed()
    clients.inspect(entry, NEW, attempts=0)
    clients.ledger.leasing(["q"])
    clients.inspect(entry, LEASED, attempts=2)


def test_no_more_attempts_are_made_than_are_allowed(clients: Clients) -> None:
    clients.add(max_attempts=2)
    clients.lease()
    clients.now += 10
    clients.lease()
    clients.now += 10
    with pytest.raises(AssertionError, match="more than 2 x"):
        clients.lease()


def test_the_only_attempt_is_not_forgotten_in_a_crash(clients: Clients) -> None:
    clients.add("one", max_attempts=1)
    clients.lease("one")
    failed = clients.add("two", max_attempts=2, max_fails=9)
    clients.lease("two")
    clients.fail(failed)
    clients.ledger.crashed()
    with pytest.raises(AssertionError, match="more than 1 x"):
        clients.lease("one")
    clients.lease("two")
    with pytest.raises(AssertionError, match="more than 2 x"):
        clients.lease("two")


def test_only_a_job_that_has_used_up_its_attempts_is_exhausted(clients: Clients) -> None:
    plain, limited = clients.add("plain"), clients.add("limited", max_attempts=1)
    clients.lease("plain")
    clients.lease("limited")
    with pytest.raises(AssertionError, match="nobody gave it"):
        clients.see_result(plain, *EXHAUSTED)
    with pytest.raises(AssertionError, match="without a reason"):
        clients.inspect(plain, FAILED, attempts=1)
    clients.inspect(limited, FAILED, attempts=1)
    clients.see_result(limited, *EXHAUSTED)


def test_a_fail_of_the_last_attempt_is_final(clients: Clients) -> None:
    entry = clients.add(max_attempts=1, max_fails=5)
    clients.lease()
    clients.fail(entry)
    with pytest.raises(AssertionError, match="is lost"):
        clients.see_none(entry)


def test_a_run_is_gone_with_its_answer(clients: Clients) -> None:
    entry, ledger = clients.adding(momentary=True), clients.ledger
    clients.lease()
    asked = ledger.ask(clients.now)
    ledger.completing(entry, b"pong")
    with pytest.raises(AssertionError, match="nobody gave it"):
        ledger.ran(entry, Result(True, b"ping"), asked, gone=True)
    ledger.ran(entry, Result(True, b"pong"), asked, gone=True)
    clients.miss(entry)
    with pytest.raises(AssertionError, match="back after"):
        clients.lease()


@pytest.mark.parametrize(
    ("first", "second", "complaint"),
    [
        ({}, {}, "added later"),
        ({"priority": 1}, {"priority": 0}, "of priority 1 came after one of 0"),
    ],
)
def test_jobs_that_nobody_has_touched_are_drained_in_order(
    clients: Clients, first: dict[str, int], second: dict[str, int], complaint: str
) -> None:
    for entry in (clients.add("first", **first), clients.add("second", **second)):
        clients.inspect(entry, NEW)
    clients.ledger.draining = True
    clients.lease("second")
    with pytest.raises(AssertionError, match=complaint):
        clients.lease("first")
