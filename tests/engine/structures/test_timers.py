"""Timers: the earliest first, moved and cancelled at will."""

from random import Random

from engine.harness import property_settings
from hypothesis import given
from hypothesis import strategies as st
from support.model_invariants import check_heap

from taskyard.engine.structures.timers import Timer, Timers


def drain(timers: Timers) -> list[int]:
    """Take the first one out until there is none."""
    found = []
    while (timer := timers.first()) is not None:
        found.append(timer.deadline)
        timers.cancel(timer)
        check_heap(timers)
    return found


def test_no_timer_is_first_of_none() -> None:
    assert Timers().first() is None


def test_timers_come_in_order_of_their_deadlines() -> None:
    timers = Timers()
    for deadline in (5, 1, 4, 1, 3):
        timers.set(Timer(0, None), deadline)
    assert drain(timers) == [1, 1, 3, 4, 5]


def test_a_timer_that_is_set_again_moves_and_is_there_once() -> None:
    timers = Timers()
    first, second = Timer(0, None), Timer(0, None)
    timers.set(first, 10)
    timers.set(second, 20)
    timers.set(first, 30)
    assert timers.first() is second
    timers.set(first, 5)
    assert timers.first() is first
    assert len(timers.heap) == 2


def test_a_cancelled_timer_leaves_nothing_behind() -> None:
    timers = Timers()
    all_of_them = [Timer(0, None) for _ in range(1000)]
    for deadline, timer in enumerate(all_of_them):
        timers.set(timer, deadline)
    for timer in all_of_them[1:]:
        timers.cancel(timer)
    assert timers.heap == all_of_them[:1]


def test_cancelling_twice_is_harmless() -> None:
    timers = Timers()
    timer, other = Timer(0, None), Timer(0, None)
    timers.set(other, 1)
    timers.cancel(timer)
    timers.set(timer, 2)
    timers.cancel(timer)
    timers.cancel(timer)
    assert timers.heap == [other]


@given(st.lists(st.tuples(st.integers(0, 30), st.none() | st.integers(0, 40)), max_size=120))
@property_settings
def test_the_first_timer_is_the_earliest(steps: list[tuple[int, int | None]]) -> None:
    timers = Timers()
    known = [Timer(0, None) for _ in range(31)]
    model: dict[int, int] = {}
    for number, deadline in steps:
        if deadline is None:
            timers.cancel(known[number])
            model.pop(number, None)
        else:
            timers.set(known[number], deadline)
            model[number] = deadline
        check_heap(timers)
        first = timers.first()
        assert (None if first is None else first.deadline) == min(model.values(), default=None)
    assert drain(timers) == sorted(model.values())


def test_hundreds_that_are_set_moved_and_cancelled_stay_in_order() -> None:
    """Levels deep enough that a parent, a child or the last of several is mistaken for another."""
    dice = Random(1)
    timers = Timers()
    known = [Timer(0, None) for _ in range(400)]
    for timer in known:
        timers.set(timer, dice.randrange(1000))
        check_heap(timers)
    for _ in range(400):
        timers.set(dice.choice(known), dice.randrange(1000))
        timers.cancel(dice.choice(known))
        check_heap(timers)
    left = [timer for timer in known if timer.slot >= 0]
    assert len(left) == len(timers.heap)
    assert drain(timers) == sorted(timer.deadline for timer in left)
