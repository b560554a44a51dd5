"""The reader of the journal that the server keeps for its lake: commits, leases, lag."""

from support.retaining import SEGMENT, RetainingYard

from taskyard.engine.model.state import NamedReader
from taskyard.journal.retention import RetentionLimits
from taskyard.server.lake_supervisor import JournalReaderLease, LagTracker

HOUR = 3_600


def follower(yard: RetainingYard) -> JournalReaderLease:
    result = JournalReaderLease("lake", yard.broker, yard.scheduler)
    result.start()
    yard.advance(3)
    return result


def reader(yard: RetainingYard) -> NamedReader:
    return yard.engine.state.readers["lake"]


def durable(yard: RetainingYard) -> int:
    return int(yard.journal.durable_seq)


def test_all_there_is_is_kept_until_it_was_reached() -> None:
    yard = RetainingYard()
    lake = follower(yard)
    yard.work(5 * SEGMENT)
    assert yard.first_seq() == 1
    assert yard.retained() > 3 * SEGMENT
    lake.on_progress(durable(yard) + 1)
    yard.advance(3)
    yard.work(SEGMENT)
    assert yard.retained() < 2 * SEGMENT


def test_the_operators_limit_goes_before_the_lake() -> None:
    yard = RetainingYard(RetentionLimits(2 * SEGMENT))
    follower(yard)
    yard.work(8 * SEGMENT)
    assert yard.retained() <= 2 * SEGMENT


def test_one_that_begins_late_has_missed_nothing() -> None:
    yard = RetainingYard()
    yard.work(5 * SEGMENT)
    assert yard.first_seq() > 1
    lake = follower(yard)
    assert lake.next_seq() == yard.first_seq()
    assert yard.journal.missed_records(reader(yard).next_seq) == 0


def test_its_own_commits_are_no_reason_for_more_of_them() -> None:
    yard = RetainingYard()
    lake = follower(yard)
    yard.push()
    for _ in range(20):
        lake.on_progress(durable(yard) + 1)  # as quick as can be, also with the records of commits
        yard.advance(3)
    assert durable(yard) <= 5
    assert reader(yard).next_seq >= 4
    assert lake.lag() == (0, 0)


def test_a_tail_that_nobody_writes_after_is_shown_to_be_durable() -> None:
    """Files tell with a record that those before it are durable."""
    yard = RetainingYard()
    lake = follower(yard)
    yard.push()
    last = durable(yard)
    assert yard.read(1)[-1] < last
    yard.advance(5)
    seen = yard.read(1)[-1]
    assert seen >= last
    lake.on_progress(seen + 1)
    records = durable(yard)
    yard.advance(60)
    assert durable(yard) == records
    assert lake.lag() == (0, 0)


def test_the_lag_is_the_age_of_the_first_record_that_is_missing() -> None:
    yard = RetainingYard()
    lake = follower(yard)
    lake.on_progress(durable(yard) + 1)
    yard.advance(HOUR)
    yard.push()
    first = durable(yard)
    yard.advance(100)
    yard.push()
    records, seconds = lake.lag()
    assert records >= 2
    assert 98 <= seconds <= 101
    lake.on_progress(first + 1)
    assert lake.lag()[1] <= 101
    lake.on_progress(durable(yard) + 1)
    assert lake.lag() == (0, 0)


def test_after_a_restart_it_is_where_it_was() -> None:
    yard = RetainingYard()
    lake = follower(yard)
    yard.work(SEGMENT)
    reached = durable(yard) + 1
    lake.on_progress(reached)
    lake.stop()
    yard.advance(1)
    yard.restart()
    assert follower(yard).next_seq() == reached


def test_a_lake_that_begins_anew_is_kept_what_there_is() -> None:
    yard = RetainingYard()
    lake = follower(yard)
    yard.work(3 * SEGMENT)
    lake.on_progress(durable(yard) + 1)
    yard.advance(3)
    first = yard.first_seq()
    lake.on_progress(first)
    assert reader(yard).next_seq == first
    yard.work(5 * SEGMENT)
    assert yard.first_seq() == first


def test_its_lease_is_renewed_while_the_lake_says_nothing() -> None:
    yard = RetainingYard(RetentionLimits(age=10 * HOUR * 1_000_000))
    follower(yard)
    for _ in range(30):
        yard.advance(HOUR)
        assert reader(yard).lease_until > yard.clock.now() + 4 * HOUR * 1_000_000
    assert durable(yard) < 12


def test_a_full_disk_is_tried_again() -> None:
    yard = RetainingYard()
    yard.engine.journal_space.push_refusal = "the disk is full"
    lake = follower(yard)
    assert "lake" not in yard.engine.state.readers
    assert lake.next_seq() == 1
    yard.engine.journal_space.push_refusal = ""
    yard.advance(5)
    assert "lake" in yard.engine.state.readers


def test_notes_are_bounded_and_stay_true() -> None:
    marks = LagTracker()
    for number in range(1, 100_001):
        marks.add_sample(number * 1_000_000, number)
    assert len(marks._seqs) <= 4097
    now = 100_000_000_000
    for number in (2, 1_000, 50_000, 99_000):
        assert 0 <= now - number * 1_000_000 - marks.age_us(number, 100_000, now) <= 64_000_000
    marks.drop_samples_before(100_000)
    marks.add_sample(now + 1_000_000, 100_001)
    assert marks.age_us(100_001, 100_001, now + 5_000_000) == 4_000_000
