"""Lanes: jobs in order, whatever comes and goes in between."""

from bisect import bisect_right, insort

import pytest
from engine.harness import property_settings
from hypothesis import given
from hypothesis import strategies as st
from support.model_invariants import check_lane

from taskyard.engine.model.job import Job, Policy
from taskyard.engine.model.queue import Queue
from taskyard.engine.structures.ordered import CHUNK_JOBS, OrderedJobs

QUEUE = Queue(0, "q", b"q", Policy())


def job_at(position: int, id: int) -> Job:
    job = Job(id, QUEUE, "task", QUEUE.policy, 0, 0, 0, 0, 0, 0, 0)
    job.order_key = position
    return job


def fill(lane: OrderedJobs, count: int) -> list[Job]:
    jobs = [job_at(number, number) for number in range(count)]
    for job in jobs:
        lane.insert(job)
    return jobs


def key(job: Job) -> tuple[int, int]:
    return job.order_key, job.id


def everything(lane: OrderedJobs) -> list[Job]:
    return lane.slice(0, lane.size)


def test_jobs_come_in_order_of_position_then_id() -> None:
    lane = OrderedJobs()
    later, first, second = job_at(2, 1), job_at(1, 2), job_at(1, 3)
    for job in (later, second, first):
        lane.insert(job)
    assert everything(lane) == [first, second, later]
    assert lane.first() is first
    assert lane.last() is later


def test_negative_positions_come_before_the_others() -> None:
    lane = OrderedJobs()
    jobs = [job_at(position, 1 + abs(position)) for position in (0, -1, 1, -2)]
    for job in jobs:
        lane.insert(job)
    assert [job.order_key for job in everything(lane)] == [-2, -1, 0, 1]


def test_a_job_that_is_not_there_cannot_be_removed() -> None:
    lane = OrderedJobs()
    fill(lane, 3)
    with pytest.raises((KeyError, IndexError)):
        lane.remove(job_at(1, 99))
    assert lane.size == 3


@pytest.mark.parametrize("position", [-1, 1, 2, 99])
def test_nor_from_one_that_jobs_have_left(position: int) -> None:
    lane = OrderedJobs()
    jobs = fill(lane, 4)
    lane.remove(jobs[0])
    with pytest.raises((KeyError, IndexError)):
        lane.remove(job_at(position, 99))
    assert everything(lane) == jobs[1:]
    assert lane.size == 3


def test_nothing_can_be_removed_from_an_empty_lane() -> None:
    with pytest.raises((KeyError, IndexError)):
        OrderedJobs().remove(job_at(0, 1))


@given(
    st.lists(
        st.tuples(
            st.sampled_from(("back", "front", "anywhere", "first", "last", "middle")),
            st.integers(-50, 50),
        ),
        max_size=60,
    )
)
@property_settings
def test_a_lane_is_a_sorted_list(steps: list[tuple[str, int]]) -> None:
    lane = OrderedJobs()
    model: list[Job] = []
    for id, (step, number) in enumerate(steps, 1):
        if step in ("back", "front", "anywhere"):
            ends = {"back": 1000 + id, "front": -1000 - id, "anywhere": number}
            job = job_at(ends[step], id)
            lane.insert(job)
            insort(model, job, key=key)
        elif model:
            place = {"first": 0, "last": -1, "middle": number % len(model)}[step]
            lane.remove(model.pop(place))
        assert everything(lane) == model
        start = abs(number)
        assert lane.slice(start, 3) == model[start : start + 3]
        after = bisect_right(model, (number, id), key=key)
        assert lane.jobs_after(number, id, 4) == model[after : after + 4]
        check_lane(lane)


@given(st.data())
@property_settings
def test_a_long_lane_is_a_sorted_list_too(data: st.DataObject) -> None:
    """Long enough for several chunks that split, shrink and vanish."""
    lane = OrderedJobs()
    model = fill(lane, CHUNK_JOBS * 3)
    for id in data.draw(st.lists(st.integers(-CHUNK_JOBS, CHUNK_JOBS * 4), max_size=8)):
        for offset in range(80):
            job = job_at(id, CHUNK_JOBS * 10 + len(model) + offset * 10_000)
            lane.insert(job)
            insort(model, job, key=key)
    for start in data.draw(st.lists(st.integers(0, CHUNK_JOBS * 3), max_size=3)):
        for job in model[start : start + CHUNK_JOBS + 5]:
            lane.remove(job)
        del model[start : start + CHUNK_JOBS + 5]
    check_lane(lane)
    assert everything(lane) == model
    for start in (0, len(model) // 3, len(model) // 2, len(model) - 2):
        assert lane.slice(max(start, 0), 700) == model[max(start, 0) : max(start, 0) + 700]


def test_pushing_to_the_front_again_and_again_splits_chunks() -> None:
    lane = OrderedJobs()
    for number in range(CHUNK_JOBS * 4):
        lane.insert(job_at(-number, number))
    check_lane(lane)
    assert [job.id for job in lane.slice(0, 3)] == [
        CHUNK_JOBS * 4 - 1,
        CHUNK_JOBS * 4 - 2,
        CHUNK_JOBS * 4 - 3,
    ]


def test_draining_leaves_no_chunks() -> None:
    lane = OrderedJobs()
    for job in fill(lane, CHUNK_JOBS * 2 + 1):
        lane.remove(job)
    assert lane.chunks == []
    assert lane.size == 0


@pytest.mark.parametrize("start", range(0, CHUNK_JOBS * 5, CHUNK_JOBS // 2 - 1))
def test_a_slice_of_a_long_lane_begins_anywhere(start: int) -> None:
    lane = OrderedJobs()
    jobs = fill(lane, CHUNK_JOBS * 5)
    assert lane.slice(start, 3) == jobs[start : start + 3]
    assert lane.slice(start, CHUNK_JOBS * 2) == jobs[start : start + CHUNK_JOBS * 2]


def test_a_slice_beyond_the_end_is_short_or_empty() -> None:
    lane = OrderedJobs()
    jobs = fill(lane, 5)
    assert lane.slice(3, 10) == jobs[3:]
    assert lane.slice(5, 10) == []
    assert lane.slice(0, 0) == []
    assert lane.slice(0, -1) == []


def test_a_walk_goes_on_where_it_was_although_jobs_leave() -> None:
    """The cursor names a place, not a job: it may have left, and others before it too."""
    lane = OrderedJobs()
    jobs = fill(lane, CHUNK_JOBS * 3)
    seen: list[Job] = []
    position, id = -1, 0
    while part := lane.jobs_after(position, id, 100):
        seen += part
        position, id = key(part[-1])
        for gone in (part[-1], part[0]):
            lane.remove(gone)
    assert seen == jobs


def test_a_walk_meets_what_joins_behind_it_and_not_what_joins_before() -> None:
    lane = OrderedJobs()
    fill(lane, 10)
    first = lane.jobs_after(-1, 0, 5)
    lane.insert(job_at(2, 50))
    lane.insert(job_at(99, 51))
    rest = lane.jobs_after(*key(first[-1]), 100)
    assert [job.id for job in rest] == [5, 6, 7, 8, 9, 51]


def test_a_walk_of_an_empty_lane_is_over_at_once() -> None:
    assert OrderedJobs().jobs_after(0, 0, 10) == []


@given(st.lists(st.integers(0, CHUNK_JOBS * 2), min_size=1, max_size=6), st.integers(1, CHUNK_JOBS))
@property_settings
def test_what_comes_before_those_that_leave_is_in_order_too(places: list[int], left: int) -> None:
    """The chunk that jobs leave from is turned round; it may grow too long, and be split."""
    lane = OrderedJobs()
    model = [job_at(2 * number, number) for number in range(CHUNK_JOBS * 2)]
    for job in model:
        lane.insert(job)
    for job in model[:left]:
        lane.remove(job)
    del model[:left]
    for number, place in enumerate(places):
        for offset in range(CHUNK_JOBS // 4):
            job = job_at(place, CHUNK_JOBS * 10 + number * CHUNK_JOBS + offset)
            lane.insert(job)
            insort(model, job, key=key)
        check_lane(lane)
    assert everything(lane) == model
    assert (lane.first(), lane.last()) == (model[0], model[-1])
    for start in (0, left, len(model) // 2, len(model) - 2):
        assert lane.slice(start, CHUNK_JOBS + 9) == model[start : start + CHUNK_JOBS + 9]
        behind = model[start]
        assert lane.jobs_after(behind.order_key, behind.id, 700) == model[start + 1 : start + 701]
    while model:
        lane.remove(model.pop(len(model) // 3))
    assert lane.size == 0
    check_lane(lane)
