"""What is kept for readers: never less than they want, within the limits, and to the moment."""

from hypothesis import given
from hypothesis import strategies as st

from taskyard.engine.model.job import FOREVER
from taskyard.engine.model.state import NamedReader
from taskyard.journal.retention import (
    RetainedSegments,
    RetentionLimits,
    RetentionPlan,
    plan_retention,
)


def reader(next_seq: int, lease_until: int) -> NamedReader:
    made = NamedReader("r")
    made.next_seq = next_seq
    made.lease_until = lease_until
    return made


@st.composite
def spans(draw: st.DrawFn) -> RetainedSegments:
    """Some segments; an empty one begins with the same record as the next."""
    count = draw(st.integers(1, 6))
    base = draw(st.integers(0, 50))
    seq = draw(st.integers(1, 50))
    created = draw(st.integers(0, 50))
    bases, seqs, times = [], [], []
    for _ in range(count):
        bases.append(base)
        seqs.append(seq)
        times.append(created)
        base += draw(st.integers(1, 30))
        seq += draw(st.integers(0, 30))
        created += draw(st.integers(0, 30))
    return RetainedSegments(bases, seqs, times)


READERS = st.lists(st.builds(reader, st.integers(1, 250), st.integers(0, 300)), max_size=4)
LIMITS = st.builds(RetentionLimits, st.integers(0, 200), st.integers(0, 300))


def slow_judge(
    readers: list[NamedReader], spans: RetainedSegments, limits: RetentionLimits, now: int
) -> int:
    """The same said segment by segment."""
    base = spans.bases[-1]
    kept = base
    for index in reversed(range(len(spans.bases) - 1)):
        wanted = any(
            each.lease_until > now and each.next_seq < spans.first_seqs[index + 1]
            for each in readers
        )
        old = spans.created[index + 1] + limits.age <= now
        if not wanted or old or base - spans.bases[index] > limits.size:
            break
        kept = spans.bases[index]
    return kept


def verdict(
    readers: list[NamedReader], spans: RetainedSegments, limits: RetentionLimits, now: int
) -> RetentionPlan:
    return plan_retention(readers, spans, limits, now)


@given(readers=READERS, spans=spans(), limits=LIMITS, now=st.integers(0, 400))
def test_what_is_kept_is_what_is_wanted_within_the_limits(
    readers: list[NamedReader], spans: RetainedSegments, limits: RetentionLimits, now: int
) -> None:
    found = verdict(readers, spans, limits, now)
    assert found.first_kept == slow_judge(readers, spans, limits, now)
    assert found.first_kept in spans.bases
    assert found.recheck_at > now


@given(readers=READERS, spans=spans(), limits=LIMITS, now=st.integers(0, 400))
def test_nothing_changes_before_the_time_that_is_told(
    readers: list[NamedReader], spans: RetainedSegments, limits: RetentionLimits, now: int
) -> None:
    found = verdict(readers, spans, limits, now)
    for later in range(now, min(found.recheck_at, 700)):
        assert slow_judge(readers, spans, limits, later) == found.first_kept


def test_without_readers_nothing_is_kept() -> None:
    found = verdict([], RetainedSegments([0, 10, 20], [1, 5, 9], [0, 1, 2]), RetentionLimits(), 3)
    assert (found.first_kept, found.recheck_at) == (20, FOREVER)


def test_the_segment_with_the_next_record_is_kept() -> None:
    three = RetainedSegments([0, 10, 20], [1, 5, 9], [0, 1, 2])
    kept = [
        verdict([reader(seq, 100)], three, RetentionLimits(), 3).first_kept
        for seq in (1, 4, 5, 8, 9, 50)
    ]
    assert kept == [0, 0, 10, 10, 20, 20]


def test_of_several_times_the_first_is_told() -> None:
    three = RetainedSegments([0, 10, 20], [1, 5, 9], [0, 30, 60])
    both = [reader(1, 100), reader(7, 50)]
    assert verdict(both, three, RetentionLimits(age=1000), 3).recheck_at == 50
    assert verdict(both, three, RetentionLimits(age=5), 3).recheck_at == 35
