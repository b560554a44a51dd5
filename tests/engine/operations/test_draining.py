"""Queues, and servers, that become empty: nothing is pushed, all else goes on."""

import pytest
from engine.harness import NO_LIMIT, ORIGIN, OWNER, Bench

from taskyard.engine.model.events import Draining, TransactionStepRefused
from taskyard.engine.model.job import SECOND, NewJob, Policy
from taskyard.engine.model.queue import QueueSettings
from taskyard.engine.operations.push import TransactionStep


@pytest.fixture
def drained(bench: Bench) -> Bench:
    """Two jobs in a queue that is drained."""
    bench.push()
    bench.push()
    bench.configure(settings=QueueSettings(draining=True))
    return bench


def test_a_drained_queue_takes_no_pushes(drained: Bench) -> None:
    with pytest.raises(Draining, match="queue q is being drained"):
        drained.push()
    assert drained.push("other").id == 3


def test_what_it_has_is_handed_out_finished_and_tried_again(drained: Bench) -> None:
    drained.ack(drained.take())
    drained.nack(drained.take())
    drained.ack(drained.take())
    assert drained.queue().is_empty()


def test_a_transaction_is_refused_as_a_whole(drained: Bench) -> None:
    held = drained.take()
    steps = [
        TransactionStep(NewJob("other", "task", b"", NO_LIMIT)),
        TransactionStep(NewJob("q", "task", b"", NO_LIMIT)),
        TransactionStep(None, held.id),
    ]
    with pytest.raises(TransactionStepRefused) as refusal:
        drained.engine.transact(steps, OWNER, ORIGIN, drained.now)
    assert (refusal.value.index, type(refusal.value.cause)) == (1, Draining)
    assert drained.engine.queue(b"other") is None
    assert held.lease is not None


def test_it_is_remembered(drained: Bench) -> None:
    drained.restart()
    with pytest.raises(Draining):
        drained.push()
    drained.configure(settings=QueueSettings())
    drained.push()


def test_an_item_that_is_there_gets_another_score_and_a_new_one_is_refused(bench: Bench) -> None:
    engine = bench.engine
    engine.update_keyed("q", b"k", 1, NO_LIMIT, ORIGIN, bench.now)
    bench.configure(settings=QueueSettings(draining=True))
    assert engine.update_keyed("q", b"k", 4, NO_LIMIT, ORIGIN, bench.now) == 5
    with pytest.raises(Draining):
        engine.update_keyed("q", b"other", 1, NO_LIMIT, ORIGIN, bench.now)


def test_a_drained_server_takes_no_pushes_at_all(bench: Bench) -> None:
    delayed = bench.push(run_at=bench.now + SECOND)
    failing = bench.push(policy=Policy(dead_queue="dead"))
    bench.engine.set_draining(True)
    with pytest.raises(Draining, match="the server is being drained"):
        bench.push("new")
    assert bench.engine.queue(b"new") is None
    bench.nack(bench.take())
    assert bench.take("dead") is failing
    bench.advance_clock(SECOND)
    bench.ack(bench.take())
    assert bench.engine.state.live_job(delayed.id) is None
    bench.engine.set_draining(False)
    bench.push("new")


def test_a_server_that_is_started_again_takes_pushes(bench: Bench) -> None:
    bench.engine.set_draining(True)
    bench.restart()
    bench.push()
