"""Keyed jobs: one queued item a key, with a score that is added to."""

import pytest
from engine.harness import NO_LIMIT, ORIGIN, START, Bench

from taskyard.engine.model.events import InvalidOption
from taskyard.engine.model.job import (
    BACKOFF_QUARTIC,
    DELAYED,
    MAX_PRIORITY,
    MIN_PRIORITY,
    READY,
    SECOND,
    Policy,
)


def update(bench: Bench, key: bytes, delta: int = 1) -> int:
    return bench.engine.update_keyed("q", key, delta, NO_LIMIT, ORIGIN, bench.now)


def order(bench: Bench) -> list[bytes]:
    """The payloads of the queue in delivery order."""
    jobs = [bench.engine.job(id) for id in bench.ids()]
    return [bench.read(job.payload_at, job.payload_size) for job in jobs]


def test_a_new_item_has_the_score_it_is_given(bench: Bench) -> None:
    assert update(bench, b"k", 5) == 5
    job = bench.engine.job(1)
    assert (job.priority, job.ensure_extras().key, job.name) == (5, b"k", "q")
    assert order(bench) == [b"k"]


def test_an_update_adds_to_the_score_of_the_queued_item(bench: Bench) -> None:
    update(bench, b"k", 5)
    assert update(bench, b"k", -7) == -2
    assert len(bench.ids()) == 1


def test_keys_belong_to_their_queue(bench: Bench) -> None:
    update(bench, b"k", 5)
    assert bench.engine.update_keyed("other", b"k", 1, NO_LIMIT, ORIGIN, bench.now) == 1


def test_the_highest_score_leaves_first(bench: Bench) -> None:
    for key, score in ((b"low", 1), (b"high", 9), (b"middle", 5)):
        update(bench, key, score)
    update(bench, b"low", 10)
    assert order(bench) == [b"low", b"high", b"middle"]


def test_an_update_moves_an_item_to_the_back_of_its_new_pool(bench: Bench) -> None:
    for key in (b"a", b"b", b"c"):
        update(bench, key, 5)
    update(bench, b"a", 1)
    update(bench, b"a", -1)
    assert order(bench) == [b"b", b"c", b"a"]


def test_an_update_by_nothing_moves_it_too(bench: Bench) -> None:
    update(bench, b"a", 5)
    update(bench, b"b", 5)
    update(bench, b"a", 0)
    assert order(bench) == [b"b", b"a"]


@pytest.mark.parametrize(
    ("score", "delta"),
    [
        (MAX_PRIORITY, 1),
        (MIN_PRIORITY, -1),
        (1, MAX_PRIORITY),
        (-2, MIN_PRIORITY),
        (0, 2**63),
        (0, -(2**100)),
    ],
)
def test_a_score_beyond_64_bits_is_refused_and_nothing_changes(
    bench: Bench, score: int, delta: int
) -> None:
    update(bench, b"k", score)
    bench.collect()
    with pytest.raises(InvalidOption):
        update(bench, b"k", delta)
    assert bench.collect() == []
    assert bench.engine.job(1).priority == score


@pytest.mark.parametrize("score", [2**63, -(2**63) - 1])
def test_a_new_item_has_64_bits_too(bench: Bench, score: int) -> None:
    with pytest.raises(InvalidOption):
        update(bench, b"k", score)
    assert bench.engine.queue(b"q") is None


def test_from_one_end_of_64_bits_to_the_other(bench: Bench) -> None:
    update(bench, b"k", MIN_PRIORITY)
    assert update(bench, b"k", 2**64 - 1) == MAX_PRIORITY


def test_a_key_of_a_leased_item_makes_a_new_item(bench: Bench) -> None:
    update(bench, b"k", 5)
    bench.take()
    assert update(bench, b"k", 1) == 1
    assert bench.ids() == [2]


def test_an_item_that_comes_back_has_its_key_again(bench: Bench) -> None:
    update(bench, b"k", 5)
    job = bench.take()
    bench.nack(job)
    assert update(bench, b"k", 1) == 6


def test_unless_another_has_it_meanwhile(bench: Bench) -> None:
    update(bench, b"k", 5)
    job = bench.take()
    update(bench, b"k", 1)
    bench.nack(job)
    assert job.ensure_extras().key is None
    assert update(bench, b"k", 1) == 2
    assert bench.ids() == [1, 2]


@pytest.mark.parametrize("taken", [True, False])
def test_a_dead_letter_that_lives_again_has_its_key_if_it_is_free(
    bench: Bench, taken: bool
) -> None:
    job = bench.push(key=b"k", policy=Policy())
    bench.engine.fail(job.id, b"", ORIGIN, bench.now)
    if taken:
        update(bench, b"k", 1)
    bench.engine.replay_dead_letter(job.id, ORIGIN, bench.now)
    assert job.ensure_extras().key == (None if taken else b"k")
    keys = bench.queue().keys
    assert keys is not None
    assert (keys[b"k"] is job) != taken


def test_a_popped_item_leaves_its_key_free(bench: Bench) -> None:
    update(bench, b"k", 5)
    bench.engine.pop(b"q", False, ORIGIN, bench.now)
    assert update(bench, b"k", 1) == 1
    assert bench.queue().keys is not None
    bench.engine.pop(b"q", False, ORIGIN, bench.now)
    assert bench.queue().keys is None


def test_a_delayed_item_is_queued_too(bench: Bench) -> None:
    job = bench.push(key=b"k", run_at=START + SECOND)
    assert update(bench, b"k", 3) == 3
    assert (job.state, job.priority) == (DELAYED, 3)
    bench.advance_clock(SECOND)
    assert update(bench, b"k", 1) == 4


def test_an_item_that_is_tried_again_later_is_queued_meanwhile(bench: Bench) -> None:
    job = bench.push(key=b"k", policy=Policy(max_fails=-1, backoff=BACKOFF_QUARTIC))
    bench.take()
    bench.nack(job)
    assert job.state == DELAYED
    assert update(bench, b"k", 2) == 2
    assert len(bench.queue().keys or {}) == 1


def test_a_blocked_item_is_queued_too(bench: Bench) -> None:
    blocker = bench.push("other")
    job = bench.push(key=b"k", blocked_by=[blocker.id])
    assert update(bench, b"k", 3) == 3
    bench.engine.complete(blocker.id, b"", ORIGIN, bench.now)
    assert (job.state, job.priority) == (READY, 3)
    assert update(bench, b"k", 1) == 4


@pytest.mark.parametrize("state", ["ready", "delayed", "blocked", "leased"])
def test_a_removed_item_leaves_its_key_free(bench: Bench, state: str) -> None:
    blocker = bench.push("other")
    job = bench.push(
        key=b"k",
        run_at=START + SECOND if state == "delayed" else 0,
        blocked_by=[blocker.id] if state == "blocked" else None,
    )
    if state == "leased":
        bench.take()
    bench.delete(job)
    assert bench.queue().keys is None
    assert update(bench, b"k", 1) == 1


def test_the_first_to_have_a_key_keeps_it(bench: Bench) -> None:
    first, second = bench.push(key=b"k"), bench.push(key=b"k")
    assert second.ensure_extras().key is None
    assert update(bench, b"k", 1) == 1
    assert (first.priority, second.priority) == (1, 0)


def test_equal_payloads_pushed_by_others_are_separate_jobs(bench: Bench) -> None:
    bench.push(payload=b"k")
    update(bench, b"k", 1)
    assert len(bench.ids()) == 2


def test_an_item_that_moves_leaves_its_key_behind(bench: Bench) -> None:
    update(bench, b"k", 5)
    bench.engine.move_job(1, "other", False, ORIGIN, bench.now)
    assert bench.engine.job(1).ensure_extras().key is None
    assert update(bench, b"k", 1) == 1


def test_who_waits_gets_a_new_item(bench: Bench) -> None:
    waiter = bench.wait()
    update(bench, b"k", 1)
    assert bench.effects() == [("assigned", waiter.number, 1)]


@pytest.mark.parametrize("key", [b"", b"k" * 65536])
def test_a_key_has_1_to_65535_bytes(bench: Bench, key: bytes) -> None:
    with pytest.raises(InvalidOption):
        update(bench, key)


def test_keys_survive_a_restart(bench: Bench) -> None:
    update(bench, b"k", 5)
    bench.restart()
    assert update(bench, b"k", 1) == 6
