"""Jobs for those who wait and would be their end: payloads are had before that."""

import pytest
from engine.harness import ORIGIN, OWNER, Bench

from taskyard.engine.model.events import FetchRequest, JobAssigned, PayloadNeeded, Waiter
from taskyard.engine.model.job import FOREVER, GONE, READY, SECOND, Job


class Cold:
    """Which payloads are in memory."""

    def __init__(self, bench: Bench) -> None:
        self.there: dict[int, bytes] = {}
        bench.engine.read_payload_if_cached = self.payload

    def payload(self, job: Job) -> bytes | None:
        return self.there.get(job.id)


@pytest.fixture
def cold(bench: Bench) -> Cold:
    return Cold(bench)


def line_up(bench: Bench, pop: bool = True, move_to: str = "") -> Waiter:
    take = FetchRequest([b"q"], OWNER, ORIGIN, pop=pop, move_to=move_to)
    return bench.engine.wait_for_job(take, FOREVER)


def asked(bench: Bench) -> PayloadNeeded:
    [effect] = bench.engine.drain_effects()
    assert isinstance(effect, PayloadNeeded)
    return effect


@pytest.mark.parametrize(("pop", "move_to"), [(True, ""), (False, "other")])
def test_a_payload_that_is_not_in_memory_is_asked_for(
    bench: Bench, cold: Cold, pop: bool, move_to: str
) -> None:
    waiter = line_up(bench, pop, move_to)
    job = bench.push("q")
    effect = asked(bench)
    assert (effect.waiter, effect.queue, effect.job) == (waiter, b"q", job)
    assert (job.state, job.queue.name) == (READY, "q")
    assert waiter.waiting
    bench.engine.on_payload_read(effect, b"read", bench.now)
    [given] = bench.engine.drain_effects()
    assert isinstance(given, JobAssigned)
    assert (given.waiter, given.job, given.waiter.payload) == (waiter, job, b"read")


def test_who_leases_needs_no_payload(bench: Bench, cold: Cold) -> None:
    waiter = line_up(bench, pop=False)
    bench.push("q")
    [given] = bench.engine.drain_effects()
    assert isinstance(given, JobAssigned)
    assert given.waiter is waiter


def test_a_payload_in_memory_is_given_with_the_job(bench: Bench, cold: Cold) -> None:
    waiter = line_up(bench)
    cold.there[1] = b"warm"
    job = bench.push("q")
    assert job.state == GONE
    assert waiter.payload == b"warm"


def test_it_is_asked_for_once(bench: Bench, cold: Cold) -> None:
    line_up(bench)
    bench.push("q")
    asked(bench)
    bench.push("q")
    assert bench.engine.drain_effects() == []


def test_a_job_that_has_come_to_the_front_meanwhile_goes_first(bench: Bench, cold: Cold) -> None:
    waiter = line_up(bench)
    cool = bench.push("q")
    effect = asked(bench)
    cold.there[2] = b"warm"
    warm = bench.push("q", priority=1)
    assert (warm.state, waiter.payload) == (GONE, b"warm")
    bench.engine.drain_effects()
    bench.engine.on_payload_read(effect, b"read", bench.now)
    assert bench.engine.drain_effects() == []
    assert cool.state == READY


def test_the_next_in_line_gets_what_was_read_for_one_who_left(bench: Bench, cold: Cold) -> None:
    first, second = line_up(bench), line_up(bench)
    job = bench.push("q")
    effect = asked(bench)
    bench.engine.stop_waiting(first)
    bench.engine.on_payload_read(effect, b"read", bench.now)
    assert (job.state, second.payload) == (GONE, b"read")


def test_the_next_in_line_asks_anew_if_it_could_not_be_read(bench: Bench, cold: Cold) -> None:
    first, second = line_up(bench), line_up(bench)
    job = bench.push("q")
    effect = asked(bench)
    bench.engine.stop_waiting(first)
    bench.engine.on_payload_read(effect, None, bench.now)
    again = asked(bench)
    assert (again.waiter, again.job, job.state) == (second, job, READY)


def test_a_job_that_is_not_ready_any_more_is_not_given(bench: Bench, cold: Cold) -> None:
    waiter = line_up(bench)
    bench.push("q")
    effect = asked(bench)
    bench.take("q")
    bench.engine.drain_effects()
    bench.engine.on_payload_read(effect, b"read", bench.now)
    assert bench.engine.drain_effects() == []
    assert waiter.waiting
    bench.now += SECOND
    bench.push("q")
    assert asked(bench).waiter is waiter
