"""Tombstones: uids are remembered for the window, and for little longer."""

import pytest
from engine.harness import START, property_settings
from hypothesis import given
from hypothesis import strategies as st
from support.graves import remembered_uids, uid_pairs

from taskyard.engine.model.job import SECOND
from taskyard.engine.structures.index import Tombstones

A, B, C = (bytes([letter]) * 16 for letter in b"abc")
PRODUCER = b"p" * 16
FINEST = SECOND // 10


def buried(tombstones: Tombstones) -> dict[int, list[tuple[bytes, int]]]:
    return {since: uid_pairs(grave) for since, grave in tombstones.buckets.items()}


def forget_due(tombstones: Tombstones, now: int) -> None:
    """As a tick does it: one grave after the other."""
    while 0 < tombstones.first_expiry() <= now:
        tombstones.forget_before(tombstones.first_expiry() - tombstones.window)


@pytest.mark.parametrize(
    ("window", "width"),
    [(1, FINEST), (20 * SECOND, FINEST), (600 * SECOND, 600 * SECOND // 4096)],
)
def test_a_grave_is_as_wide_as_the_window_is_long(window: int, width: int) -> None:
    assert Tombstones(window).bucket_width_us == width


def test_uids_of_one_stretch_of_time_share_a_grave() -> None:
    tombstones = Tombstones(20 * SECOND)
    tombstones.add(A, 1, PRODUCER, START, 10)
    tombstones.add(B, 2, PRODUCER, START + FINEST - 1, 11)
    tombstones.add(C, 3, PRODUCER, START + FINEST, 12)
    assert buried(tombstones) == {START: [(A, 1), (B, 2)], START + FINEST: [(C, 3)]}
    assert [grave.record_seq for grave in tombstones.buckets.values()] == [10, 12]
    assert tombstones.first_expiry() == START + FINEST + 20 * SECOND


def test_a_grave_is_given_up_when_its_last_uid_may_be() -> None:
    tombstones = Tombstones(20 * SECOND)
    tombstones.add(A, 1, PRODUCER, START, 1)
    tombstones.add(B, 2, PRODUCER, START + FINEST, 2)
    tombstones.forget_before(START + FINEST - 1)
    assert remembered_uids(tombstones) == {A: 1, B: 2}
    tombstones.forget_before(START + FINEST)
    assert remembered_uids(tombstones) == {B: 2}
    tombstones.add(C, 3, PRODUCER, START + 1, 3)  # that grave is a new one now
    assert buried(tombstones) == {START: [(C, 3)], START + FINEST: [(B, 2)]}
    tombstones.forget_before(START + SECOND)
    assert buried(tombstones) == {}
    assert remembered_uids(tombstones) == {}
    assert tombstones.first_expiry() == 0


def test_without_a_window_nothing_is_buried() -> None:
    tombstones = Tombstones(0)
    tombstones.add(A, 1, PRODUCER, START, 1)
    assert buried(tombstones) == {}
    assert remembered_uids(tombstones) == {}


def test_a_uid_that_is_carried_again_is_there_once() -> None:
    tombstones = Tombstones(SECOND)
    tombstones.add(A, 1, PRODUCER, START + 5, 1)
    tombstones.add(A, 1, PRODUCER, START, 9)
    assert buried(tombstones) == {START: [(A, 1)]}


def test_the_last_job_that_had_a_uid_counts_in_whatever_order_they_come() -> None:
    """A run that remembers none may use a uid twice; a snapshot may bring the older one later."""
    tombstones = Tombstones(SECOND)
    tombstones.add(A, 2, PRODUCER, START + FINEST, 1)
    tombstones.add(A, 1, PRODUCER, START, 2)
    assert remembered_uids(tombstones) == {A: 2}
    tombstones.add(A, 3, PRODUCER, START + 2 * FINEST, 3)
    tombstones.forget_before(START + 2 * FINEST)
    assert remembered_uids(tombstones) == {A: 3}


@given(
    st.lists(st.tuples(st.integers(0, 99), st.integers(0, 3 * SECOND)), max_size=30),
    st.sampled_from((1, FINEST, SECOND)),
    st.integers(0, 5 * SECOND),
)
@property_settings
def test_each_is_remembered_for_the_window_at_least_and_not_much_longer(
    burials: list[tuple[int, int]], window: int, later: int
) -> None:
    tombstones = Tombstones(window)
    times: dict[bytes, int] = {}
    for id, (number, after) in enumerate(burials, start=1):
        uid = number.to_bytes(16, "big")
        if uid not in times:
            times[uid] = after
            tombstones.add(uid, id, PRODUCER, START + after, id)
    forget_due(tombstones, START + later)
    for uid, after in times.items():
        if later < after + window:
            assert uid in tombstones.by_uid
        if later >= after + window + tombstones.bucket_width_us:
            assert uid not in tombstones.by_uid
    together = [uid for grave in tombstones.buckets.values() for uid in grave.uids]
    assert sorted(together) == sorted(tombstones.by_uid)
    assert list(tombstones.buckets) == sorted(tombstones.buckets)
