"""Jobs by id, in pages that come and go."""

import pytest
from engine.harness import property_settings
from hypothesis import given
from hypothesis import strategies as st

from taskyard.engine.model.job import Job, Policy
from taskyard.engine.model.queue import Queue
from taskyard.engine.structures.index import JobIndex

QUEUE = Queue(0, "q", b"q", Policy())


def job_of(id: int) -> Job:
    return Job(id, QUEUE, "task", QUEUE.policy, 0, 0, 0, 0, 0, 0, 0)


@pytest.mark.parametrize("id", [0, 1, 63, 64, 10**12, -1, -64, 2**63 - 1, -(2**63)])
def test_an_unknown_id_gives_nothing(id: int) -> None:
    index = JobIndex()
    assert index.get(id) is None
    index.add(job_of(1))
    assert index.get(id) is (index.get(1) if id == 1 else None)


def test_removing_an_unknown_id_is_an_error_and_changes_nothing() -> None:
    index = JobIndex()
    job = job_of(5)
    index.add(job)
    for id in (6, 500):
        with pytest.raises(KeyError):
            index.remove(id)
    assert index.size == 1
    assert index.get(5) is job


def test_a_page_that_was_emptied_can_be_used_again() -> None:
    index = JobIndex()
    index.add(job_of(1))
    index.remove(1)
    assert index.get(1) is None
    job = job_of(2)
    index.add(job)
    assert index.get(2) is job
    assert list(index) == [job]


def test_it_is_known_how_many_pages_were_made() -> None:
    index = JobIndex()
    for id in range(1, 129):
        index.add(job_of(id))
    assert index.pages_created == 3
    for id in range(1, 129):
        index.remove(id)
    index.add(job_of(1))
    assert index.pages_created == 4


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 300)), max_size=80))
@property_settings
def test_the_index_is_a_dict(steps: list[tuple[bool, int]]) -> None:
    index = JobIndex()
    model: dict[int, Job] = {}
    for add, id in steps:
        if add and id not in model:
            model[id] = job_of(id)
            index.add(model[id])
        elif not add and id in model:
            index.remove(id)
            del model[id]
        assert index.size == len(model)
        assert index.get(id) is model.get(id)
    assert sorted(job.id for job in index) == sorted(model)
    assert all(index.get(id) is model.get(id) for id in range(301))


def test_pages_without_jobs_are_given_back() -> None:
    """Ids only grow: what kept a page for each of them would grow for ever."""
    index = JobIndex()
    for id in range(1, 1001):
        index.add(job_of(id))
        if id > 10:
            index.remove(id - 10)
    assert index.size == 10
    assert len(index._pages) <= 2
