"""The ready index: delivery order over priorities."""

from random import Random

from engine.harness import property_settings
from hypothesis import given
from hypothesis import strategies as st
from support.model_invariants import check_ready

from taskyard.engine.model.job import MAX_PRIORITY, MIN_PRIORITY, Job, Policy
from taskyard.engine.model.queue import Queue
from taskyard.engine.structures.ordered import PriorityQueue

QUEUE = Queue(0, "q", b"q", Policy())


def job_with(priority: int, position: int) -> Job:
    job = Job(position + 1, QUEUE, "task", QUEUE.policy, priority, 0, 0, 0, 0, 0, 0)
    job.order_key = position
    return job


def add_all(ready: PriorityQueue, *priorities: int) -> list[Job]:
    jobs = [job_with(priority, place) for place, priority in enumerate(priorities)]
    for job in jobs:
        ready.add(job)
    return jobs


def everything(ready: PriorityQueue) -> list[Job]:
    return ready.slice(0, ready.size)


def order(job: Job) -> tuple[int, int]:
    return -job.priority, job.order_key


def test_an_empty_index_has_neither_end() -> None:
    ready = PriorityQueue()
    assert ready.first() is None
    assert ready.last() is None
    assert ready.priority_count() == 0
    assert everything(ready) == []


def test_the_highest_priority_comes_first_then_the_oldest() -> None:
    ready = PriorityQueue()
    low, high, second = add_all(ready, 0, 5, 5)
    assert everything(ready) == [high, second, low]
    assert ready.first() is high
    assert ready.last() is low


def test_the_extremes_of_64_bits_are_in_order() -> None:
    ready = PriorityQueue()
    priorities = (0, MIN_PRIORITY, MAX_PRIORITY, -1, 1, MIN_PRIORITY + 1, MAX_PRIORITY - 1)
    add_all(ready, *priorities)
    assert [job.priority for job in everything(ready)] == sorted(priorities, reverse=True)
    last, first = ready.last(), ready.first()
    assert (last.priority if last else 0) == MIN_PRIORITY
    assert (first.priority if first else 0) == MAX_PRIORITY
    assert ready.jobs_after(MIN_PRIORITY, 99, 99, 10) == []
    assert len(ready.jobs_after(MIN_PRIORITY + 1, 99, 99, 10)) == 1


def test_one_priority_needs_no_index_over_priorities() -> None:
    ready = PriorityQueue()
    jobs = add_all(ready, 7, 7, 7)
    assert ready.sorted_priorities is None
    assert ready.priority_count() == 1
    other = job_with(3, 9)
    ready.add(other)
    assert ready.priority_count() == 2
    ready.remove(other)
    assert ready.sorted_priorities is None
    assert everything(ready) == jobs


def test_pools_count_the_priorities_that_have_jobs() -> None:
    ready = PriorityQueue()
    jobs = add_all(ready, 1, 2, 2, 3)
    assert ready.priority_count() == 3
    ready.remove(jobs[1])
    assert ready.priority_count() == 3
    ready.remove(jobs[2])
    assert ready.priority_count() == 2


def test_an_emptied_index_takes_any_priority_next() -> None:
    ready = PriorityQueue()
    (job,) = add_all(ready, 5)
    ready.remove(job)
    (other,) = add_all(ready, -5)
    assert ready.first() is other
    check_ready(ready)


def test_many_rescorings_leave_nothing_behind() -> None:
    ready = PriorityQueue()
    jobs = add_all(ready, *range(20))
    random = Random(1)
    for position in range(100, 20_100):
        job = random.choice(jobs)
        ready.remove(job)
        job.priority = random.randrange(-1000, 1000)
        job.order_key = position
        ready.add(job)
    check_ready(ready)
    assert len(ready.by_priority) <= 20
    assert everything(ready) == sorted(jobs, key=order)
    for job in jobs:
        ready.remove(job)
    check_ready(ready)
    assert len(ready.by_priority) == 1


@given(
    st.lists(
        st.tuples(
            st.sampled_from(("add", "add", "first", "last", "middle", "rescore")),
            st.sampled_from((-1, 0, 0, 1, MAX_PRIORITY, MIN_PRIORITY)),
            st.integers(0, 20),
        ),
        max_size=50,
    )
)
@property_settings
def test_delivery_order_is_by_priority_then_position(steps: list[tuple[str, int, int]]) -> None:
    ready = PriorityQueue()
    model: list[Job] = []
    for position, (step, priority, number) in enumerate(steps):
        if step == "add":
            job = job_with(priority, position)
            ready.add(job)
            model.append(job)
        elif model:
            place = {"first": 0, "last": -1}.get(step, number % len(model))
            job = model.pop(place)
            ready.remove(job)
            if step == "rescore":
                job.priority = priority
                job.order_key = position
                ready.add(job)
                model.append(job)
        model.sort(key=order)
        check_ready(ready)
        assert everything(ready) == model
        assert ready.first() is (model[0] if model else None)
        assert ready.last() is (model[-1] if model else None)
        assert ready.slice(number, 3) == model[number : number + 3]
        place_of = -priority, number, number + 1
        behind = [job for job in model if (*order(job), job.id) > place_of]
        assert ready.jobs_after(priority, number, number + 1, 3) == behind[:3]


def test_a_walk_over_priorities_meets_each_job_once_although_jobs_leave() -> None:
    ready = PriorityQueue()
    jobs = sorted(add_all(ready, *[place % 7 for place in range(200)]), key=order)
    seen: list[Job] = []
    priority, position, id = ready.walk_start_priority(), MIN_PRIORITY, 0
    while part := ready.jobs_after(priority, position, id, 9):
        seen += part
        priority, position, id = part[-1].priority, part[-1].order_key, part[-1].id
        ready.remove(part[-1])
    assert seen == jobs
