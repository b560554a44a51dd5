"""Weights come and go in runs at one place: whenever somebody looks, all of it is counted."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.effort import effort

from taskyard.engine.structures.index import REGION_BYTES, LiveBytes

ZONES = 8

# Runs at few places; what is taken is one of those that were added, and most often the last.
zones = st.integers(0, ZONES - 1)
amounts = st.sampled_from((0, 1, 7, 1000, 2**40))
runs = st.integers(1, 3)
steps = st.one_of(
    st.tuples(st.just("add"), zones, amounts, runs),
    st.tuples(st.just("sub"), st.sampled_from((0, 0, 1, 2, 5)), st.just(0), runs),
    st.tuples(st.just("look"), st.integers(0, ZONES), st.just(0), st.just(1)),
    st.tuples(st.just("forget"), st.integers(0, ZONES + 2), st.just(0), st.just(1)),
)


class Plain:
    """The same with a number for each zone, and a list of what can be taken."""

    def __init__(self) -> None:
        self.weights = LiveBytes()
        self.wanted = Counter[int]()
        self.added: list[tuple[int, int]] = []

    def step(self, name: str, number: int, amount: int) -> None:
        if name == "add":
            at = number * REGION_BYTES + amount % REGION_BYTES
            self.weights.add(at, amount)
            self.wanted[number] += amount
            self.added.append((at, amount))
        elif name == "sub" and self.added:
            at, amount = self.added.pop(-1 - number % len(self.added))
            self.weights.subtract(at, amount)
            self.wanted[at // REGION_BYTES] -= amount
        elif name == "forget":
            live = [zone for zone, weight in self.wanted.items() if weight]
            first = min(live, default=number)
            self.weights.forget_before(min(number, first) * REGION_BYTES)
        elif name == "look":
            assert self.weights.bytes_in_region_of(number * REGION_BYTES) == self.wanted[number]
        assert self.weights.total == self.wanted.total()

    def check(self) -> None:
        found = [
            self.weights.bytes_in_region_of((zone + 1) * REGION_BYTES - 1)
            for zone in range(ZONES + 3)
        ]
        assert found == [self.wanted[zone] for zone in range(ZONES + 3)]


@given(st.lists(steps, max_size=40))
@settings(max_examples=effort(500, 150))
def test_zones_weigh_what_a_plain_dict_says(drawn: list[tuple[str, int, int, int]]) -> None:
    plain = Plain()
    for name, number, amount, times in drawn:
        for _ in range(times):
            plain.step(name, number, amount)
    plain.check()
    for _ in range(len(plain.added)):
        plain.step("sub", 0, 0)
    plain.check()
    assert plain.weights.total == 0


@pytest.mark.parametrize("taken", [0, 1, 2])
def test_what_was_just_added_can_be_taken_before_anybody_has_looked(taken: int) -> None:
    weights = LiveBytes()
    for zone in range(3):
        weights.add(zone * REGION_BYTES, 10)
    weights.subtract(taken * REGION_BYTES, 10)
    assert [weights.bytes_in_region_of(zone * REGION_BYTES) for zone in range(3)] == [
        0 if zone == taken else 10 for zone in range(3)
    ]


def test_what_is_taken_and_added_in_turn_at_two_places() -> None:
    """As of a queue whose jobs leave at one end of the journal and come at the other."""
    weights = LiveBytes()
    for number in range(100):
        weights.add(number, 5)
    for number in range(100):
        weights.add(3 * REGION_BYTES + number, 5)
        weights.subtract(number, 5)
    assert weights.bytes_in_region_of(0) == 0
    assert weights.bytes_in_region_of(3 * REGION_BYTES) == 500
    weights.forget_before(3 * REGION_BYTES)
    weights.subtract(3 * REGION_BYTES, 5)
    weights.add(3 * REGION_BYTES + 50, 2)
    assert weights.bytes_in_region_of(3 * REGION_BYTES) == weights.total == 497


def test_weight_before_all_that_was_forgotten_is_counted() -> None:
    """As when the base is moved, and a snapshot tells of what stands before it."""
    weights = LiveBytes()
    weights.add(5 * REGION_BYTES, 10)
    weights.subtract(5 * REGION_BYTES, 10)
    weights.forget_before(6 * REGION_BYTES)
    weights.add(5 * REGION_BYTES, 3)
    weights.add(2 * REGION_BYTES, 4)
    weights.subtract(5 * REGION_BYTES, 1)
    assert [weights.bytes_in_region_of(zone * REGION_BYTES) for zone in range(7)] == [
        0,
        0,
        4,
        0,
        0,
        2,
        0,
    ]


def test_what_is_added_and_taken_where_all_was_forgotten_is_counted() -> None:
    weights = LiveBytes()
    for _ in range(2):
        weights.add(3 * REGION_BYTES, 10)
        weights.subtract(3 * REGION_BYTES, 4)
        assert weights.bytes_in_region_of(3 * REGION_BYTES) == weights.total == 6
        weights.subtract(3 * REGION_BYTES, 6)
        weights.forget_before(8 * REGION_BYTES)
    weights.add(3 * REGION_BYTES, 10)
    weights.subtract(3 * REGION_BYTES, 4)
    weights.add(9 * REGION_BYTES, 1)
    assert [weights.bytes_in_region_of(zone * REGION_BYTES) for zone in (3, 8, 9)] == [6, 0, 1]
