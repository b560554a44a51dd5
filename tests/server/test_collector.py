"""Beside many jobs, what has survived a collection is left alone; beside few it is not."""

import gc
from collections.abc import Iterator

import pytest
from support.simulated import SimulatedServer

from taskyard.server.runtime import GcTuner


class Jobs:
    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> int:
        return self.count


@pytest.fixture
def jobs() -> Jobs:
    """How many jobs the collector is told of that is at work during the test."""
    return Jobs()


@pytest.fixture(autouse=True)
def collector(jobs: Jobs) -> Iterator[GcTuner]:
    thresholds = gc.get_threshold()
    gc.unfreeze()
    collector = GcTuner(jobs)
    collector.start()
    yield collector
    collector.stop()
    gc.unfreeze()
    gc.set_threshold(*thresholds)


def test_with_few_jobs_everything_is_looked_at(jobs: Jobs) -> None:
    jobs.count = 99_999
    gc.collect(0)
    assert gc.get_freeze_count() == 0


def test_with_many_jobs_what_has_survived_is_left_alone(jobs: Jobs) -> None:
    jobs.count = 100_000
    lists: list[list[int]] = [[] for _ in range(10_000)]
    assert gc.get_freeze_count() > 5_000
    assert len(lists) == 10_000


def test_garbage_in_cycles_is_still_found_with_many_jobs(jobs: Jobs) -> None:
    jobs.count = 100_000
    gc.collect()
    cycle: list[object] = []
    cycle.append(cycle)
    del cycle
    assert gc.collect() > 0


def test_lists_that_come_as_others_go_are_not_left_to_add_up(
    jobs: Jobs, collector: GcTuner
) -> None:
    """Python counts only how many more were made than dropped, and sees nothing to do."""
    jobs.count = 100_000
    old: list[list[int]] = [[] for _ in range(10_000)]
    gc.collect(0)
    young: list[list[int]] = []
    while old:
        old.pop()
        young.append([])
    assert len(gc.get_objects(0)) > 5_000
    collector.on_growth()
    assert len(gc.get_objects(0)) < 1_000


def test_with_few_jobs_there_is_nothing_to_tend(jobs: Jobs, collector: GcTuner) -> None:
    jobs.count = 99_999
    young = [[] for _ in range(100)]  # type: ignore[var-annotated]
    collector.on_growth()
    there = {id(each) for each in gc.get_objects(0)}
    assert {id(each) for each in young} <= there


def test_with_few_jobs_again_everything_is_looked_at_again(jobs: Jobs) -> None:
    jobs.count = 100_000
    gc.collect(0)
    jobs.count = 50_000
    gc.collect(0)
    assert gc.get_freeze_count() > 0
    jobs.count = 49_999
    gc.collect(0)
    assert gc.get_freeze_count() == 0


def test_after_its_end_the_collector_is_left_to_itself(jobs: Jobs) -> None:
    before = len(gc.callbacks)
    other = GcTuner(jobs)
    other.start()
    other.stop()
    other.stop()
    assert len(gc.callbacks) == before


def test_a_connection_leaves_nothing_for_the_collector() -> None:
    yard = SimulatedServer()

    def visit() -> None:
        peer = yard.connect()
        peer.send(b'PUSH {"name":"a"}\nFETCH\nFETCH {"timeout":"3s"}\n')
        peer.close()
        yard.advance(50)

    visit()
    gc.collect()
    for _ in range(10):
        visit()
    assert gc.collect() == 0
