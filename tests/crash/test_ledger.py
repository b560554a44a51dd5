"""The ledger itself: it accepts what may be, and finds what may not be."""

import pytest
from support.ledger import Entry, Ledger


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


def pushed(ledger: Ledger, token: str, id: int, *, retries: int = 0, dead: str = "") -> Entry:
    """An acknowledged push into the queue q."""
    entry = ledger.pushing(token, "q", retries=retries, dead_queue=dead)
    ledger.pushed(entry, id)
    return entry


def hand_out(ledger: Ledger, entry: Entry, *, queue: str = "q", fails: int = 0) -> None:
    ledger.handed_out("worker", entry.token, entry.id or 99, queue, fails, now=100)


def finish(ledger: Ledger, entry: Entry) -> None:
    ledger.finishing(entry)
    ledger.finished(entry)


def fail(ledger: Ledger, entry: Entry) -> None:
    ledger.failed(ledger.failing(entry))


def test_a_job_that_was_pushed_taken_and_finished_is_in_order(ledger: Ledger) -> None:
    entry = pushed(ledger, "a", 1)
    hand_out(ledger, entry)
    finish(ledger, entry)
    ledger.check()


def test_an_acknowledged_job_that_does_not_come_is_lost(ledger: Ledger) -> None:
    pushed(ledger, "a", 1)
    ledger.crashed()
    with pytest.raises(AssertionError, match=r"lost: \['a'\]"):
        ledger.check()


def test_a_job_that_was_handed_out_is_as_good_as_acknowledged(ledger: Ledger) -> None:
    entry = ledger.pushing("a", "q", retries=0)
    hand_out(ledger, entry)
    ledger.crashed()
    with pytest.raises(AssertionError, match="lost"):
        ledger.check()


def test_what_had_no_answer_may_have_happened_or_not(ledger: Ledger) -> None:
    ledger.pushing("never came", "q", retries=0)
    came = ledger.pushing("came", "q", retries=0)
    finishing = pushed(ledger, "finishing", 3)
    hand_out(ledger, finishing)
    ledger.finishing(finishing)
    ledger.crashed()
    hand_out(ledger, came)
    finish(ledger, came)
    ledger.check()
    hand_out(ledger, finishing)
    finish(ledger, finishing)
    ledger.check()


def test_a_finished_job_does_not_come_back(ledger: Ledger) -> None:
    entry = pushed(ledger, "a", 1)
    hand_out(ledger, entry)
    finish(ledger, entry)
    ledger.crashed()
    with pytest.raises(AssertionError, match="back after it was finished"):
        hand_out(ledger, entry)


def test_a_job_is_held_by_one_at_a_time_until_a_crash(ledger: Ledger) -> None:
    entry = pushed(ledger, "a", 1)
    hand_out(ledger, entry)
    with pytest.raises(AssertionError, match="held by worker"):
        hand_out(ledger, entry)
    ledger.crashed()
    hand_out(ledger, entry)


def test_nothing_is_invented(ledger: Ledger) -> None:
    with pytest.raises(AssertionError, match="never pushed"):
        ledger.handed_out("worker", "a", 1, "q", 0, now=100)
    refused = ledger.pushing("b", "q", retries=0)
    ledger.refused(refused)
    with pytest.raises(AssertionError, match="refused"):
        hand_out(ledger, refused)


def test_an_id_is_of_one_job_and_a_job_has_one_id(ledger: Ledger) -> None:
    entry = pushed(ledger, "a", 1)
    with pytest.raises(AssertionError, match="is the id of a and of b"):
        pushed(ledger, "b", 1)
    with pytest.raises(AssertionError, match="had id 1, and now has 2"):
        ledger.handed_out("worker", entry.token, 2, "q", 0, now=100)


def test_a_job_does_not_come_before_its_time(ledger: Ledger) -> None:
    entry = ledger.pushing("a", "q", retries=0, not_before=101)
    with pytest.raises(AssertionError, match="too early"):
        hand_out(ledger, entry)


def test_a_job_does_not_come_before_its_blocker_is_done(ledger: Ledger) -> None:
    first = pushed(ledger, "a", 1)
    second = ledger.pushing("b", "q", retries=0, blockers=[first])
    ledger.pushed(second, 2)
    with pytest.raises(AssertionError, match="before a was done"):
        hand_out(ledger, second)
    hand_out(ledger, first)
    finish(ledger, first)
    hand_out(ledger, second)


def test_that_a_job_comes_shows_that_its_blocker_is_done(ledger: Ledger) -> None:
    first = pushed(ledger, "a", 1)
    second = ledger.pushing("b", "q", retries=0, blockers=[first])
    hand_out(ledger, first)
    ledger.finishing(first)
    ledger.handed_out("other", second.token, 2, "q", 0, now=100)
    ledger.crashed()
    with pytest.raises(AssertionError, match="back after it was finished"):
        hand_out(ledger, first)


def test_acknowledged_failures_count(ledger: Ledger) -> None:
    entry = pushed(ledger, "a", 1, retries=1)
    hand_out(ledger, entry)
    fail(ledger, entry)
    with pytest.raises(AssertionError, match="failed 0 times, but 1 to 1"):
        hand_out(ledger, entry, fails=0)
    entry.holder = ""
    hand_out(ledger, entry, fails=1)
    fail(ledger, entry)
    ledger.check()
    with pytest.raises(AssertionError, match="back after it failed for good"):
        hand_out(ledger, entry, fails=2)


def test_a_job_goes_to_its_dead_queue_when_it_has_failed_and_not_before(ledger: Ledger) -> None:
    entry = pushed(ledger, "a", 1, dead="dead")
    with pytest.raises(AssertionError, match="without having failed"):
        hand_out(ledger, entry, queue="dead")
    hand_out(ledger, entry)
    fail(ledger, entry)
    with pytest.raises(AssertionError, match="failed for good, and came from q"):
        hand_out(ledger, entry)
    hand_out(ledger, entry, queue="dead")


def test_what_a_client_takes_with_it_counts_as_failed(ledger: Ledger) -> None:
    entry = pushed(ledger, "a", 1, retries=1)
    hand_out(ledger, entry)
    ledger.leaving("worker")
    hand_out(ledger, entry, fails=1)


def test_a_transaction_is_there_as_a_whole(ledger: Ledger) -> None:
    first, second = (ledger.pushing(token, "q", retries=0) for token in "ab")
    ledger.transacting([first, second], [])
    ledger.crashed()
    hand_out(ledger, first)
    finish(ledger, first)
    with pytest.raises(AssertionError, match=r"lost: \['b'\]"):
        ledger.check()


def test_the_finishes_of_a_transaction_go_with_its_pushes(ledger: Ledger) -> None:
    old = pushed(ledger, "old", 1)
    hand_out(ledger, old)
    new = ledger.pushing("new", "q", retries=0)
    ledger.transacting([new], [old])
    ledger.crashed()
    hand_out(ledger, new)
    with pytest.raises(AssertionError, match="old is back after it was finished"):
        ledger.handed_out("other", "old", 1, "q", 0, now=100)


def test_the_pushes_of_a_transaction_go_with_its_finishes(ledger: Ledger) -> None:
    old = pushed(ledger, "old", 1)
    hand_out(ledger, old)
    new = ledger.pushing("new", "q", retries=0)
    ledger.transacting([new], [old])
    ledger.crashed()
    with pytest.raises(AssertionError, match="half of a transaction"):
        ledger.check()
    hand_out(ledger, old)
    with pytest.raises(AssertionError, match="of a transaction that did not happen"):
        ledger.handed_out("other", "new", 2, "q", 0, now=100)


def test_jobs_that_were_never_handed_out_are_drained_in_order(ledger: Ledger) -> None:
    first, second = pushed(ledger, "a", 1), pushed(ledger, "b", 2)
    ledger.draining = True
    hand_out(ledger, second)
    with pytest.raises(AssertionError, match="a with id 1 came after 2"):
        hand_out(ledger, first)
