"""First in, first out."""

from collections import deque

import pytest
from engine.harness import property_settings
from hypothesis import given
from hypothesis import strategies as st

from taskyard.engine.structures.ordered import Fifo


def test_nothing_can_be_taken_from_an_empty_one() -> None:
    fifo: Fifo[int] = Fifo()
    assert fifo.is_empty()
    with pytest.raises(IndexError):
        fifo.pop_oldest()


@given(st.lists(st.booleans(), max_size=60))
@property_settings
def test_it_is_a_deque(steps: list[bool]) -> None:
    fifo: Fifo[int] = Fifo()
    model: deque[int] = deque()
    for number, adds in enumerate(steps):
        if adds:
            fifo.add(number)
            model.append(number)
        elif model:
            assert fifo.pop_oldest() == model.popleft()
        assert list(fifo) == list(model)
        assert list(reversed(fifo)) == list(reversed(model))
        assert (len(fifo), fifo.is_empty()) == (len(model), not model)
