"""What becomes of a failed job whose push said nothing of failures."""

import pytest
from engine.harness import Bench
from hypothesis import given
from hypothesis import strategies as st

from taskyard.engine.model.job import (
    BACKOFF_DEFAULT,
    BACKOFF_EXPONENTIAL,
    BACKOFF_NONE,
    DELAYED,
    FAILED,
    READY,
    SECOND,
    Policy,
    default_policy,
)
from taskyard.engine.model.queue import QueueSettings
from taskyard.engine.operations.finish import final_failure_number

DEFAULT = default_policy(10)


def test_it_has_three_retries_each_after_a_longer_pause(bench: Bench) -> None:
    job = bench.push(policy=DEFAULT)
    for longest in (1, 2, 4):
        bench.take()
        bench.nack(job)
        assert job.state == DELAYED
        assert longest * SECOND // 2 <= job.order_key - bench.now <= longest * SECOND
        bench.advance_clock(longest * SECOND)
    bench.take()
    bench.nack(job)
    assert (job.state, job.fails) == (FAILED, 4)


@given(
    seed=st.integers(0, 2**32),
    retries=st.integers(-1, 40),
    base=st.integers(0, 10 * SECOND),
    cap=st.integers(0, 100 * SECOND),
    said=st.booleans(),
)
def test_every_pause_is_between_half_and_all_of_what_it_is_by_the_rules(
    seed: int, retries: int, base: int, cap: int, said: bool
) -> None:
    bench = Bench(seed=seed)
    job = bench.push(policy=DEFAULT)
    if said:
        bench.configure("q", QueueSettings(
            retries=retries, backoff=BACKOFF_EXPONENTIAL, backoff_base=base, backoff_cap=cap
        ))  # fmt: skip
        first, most, tries = base or SECOND, cap, (3 if retries < 0 else retries) + 1
    else:
        first, most, tries = SECOND, 300 * SECOND, 4
    for fails in range(1, tries):
        longest = first * 2 ** (fails - 1)
        if most:
            longest = min(longest, most)
        bench.take()
        bench.nack(job)
        pause = job.order_key - bench.now if job.state == DELAYED else 0
        assert longest // 2 <= pause <= longest
        bench.advance_clock(pause)
    bench.take()
    bench.nack(job)
    assert job.state == FAILED


def test_a_pause_is_recorded_so_that_a_restart_chooses_nothing_anew(bench: Bench) -> None:
    jobs = [bench.push(policy=DEFAULT) for _ in range(20)]
    for _ in jobs:
        bench.take()
    for job in jobs:
        bench.nack(job)
    assert len({job.order_key for job in jobs}) > 10
    due = [job.order_key for job in jobs]
    bench.collect()
    state = bench.rebuild()
    found = [state.live_job(job.id) for job in jobs]
    assert [job.order_key for job in found if job is not None] == due


@pytest.mark.parametrize(
    ("policy", "settings", "final"),
    [
        (DEFAULT, QueueSettings(), 4),
        (DEFAULT, QueueSettings(retries=0), 1),
        (DEFAULT, QueueSettings(retries=7), 8),
        (Policy(max_fails=2), QueueSettings(retries=7), 2),
        (Policy(max_fails=-1), QueueSettings(retries=7), -1),
        # As journals have it from before there was a default, and lists and items to this day.
        (Policy(), QueueSettings(), 0),
        (Policy(), QueueSettings(retries=7), 8),
    ],
)
def test_which_failure_is_final(
    bench: Bench, policy: Policy, settings: QueueSettings, final: int
) -> None:
    job = bench.push(policy=policy)
    bench.configure("q", settings)
    assert final_failure_number(job) == final


def test_a_queue_may_say_that_there_is_no_pause(bench: Bench) -> None:
    job = bench.push(policy=Policy(max_fails=-1, backoff=BACKOFF_DEFAULT))
    bench.configure("q", QueueSettings(backoff=BACKOFF_NONE))
    bench.take()
    bench.nack(job)
    assert (job.state, job.fails) == (READY, 1)


def test_what_was_pushed_without_a_pause_before_there_was_a_default_has_none(bench: Bench) -> None:
    job = bench.push(policy=Policy(max_fails=21))
    bench.take()
    bench.nack(job)
    assert (job.state, job.fails) == (READY, 1)
