"""Jobs that would spoil things for others: each costs itself, and no more."""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections.abc import Iterator

import pytest
from support.sockets import HANG_GUARD
from support.waiting import wait_for
from toq.brokers import Running

import taskyard
from taskyard import App, TaskFailed
from taskyard.client.source import Job, Released, RetryLater
from taskyard.tasks.execution import decide_verdict
from taskyard.worker.pools import RunFailure

_numbers = itertools.count(1)


@pytest.fixture
def app(server: Running) -> Iterator[App]:
    with App(server.url, queue=f"poison-{next(_numbers)}") as found:
        yield found


def work(app: App) -> None:
    assert app.worker(burst=True, concurrency=1, prefetch=100).run()


@pytest.mark.parametrize("keep", [b"1e308", b"-1", b"1e-9"])
def test_a_payload_cannot_spoil_the_reports_of_others(app: App, keep: bytes) -> None:
    runs: list[int] = []

    @app.task
    def note(number: int = 0) -> int:
        runs.append(number)
        return number

    before = note.map(range(10))
    payload = b'{"args": [], "kwargs": {}, "keep": %b}' % keep
    app.client.push(app.queue, payload, name="note")
    after = note.map(range(10, 20))
    work(app)
    results = [handle.result(HANG_GUARD) for handle in (*before, *after)]
    assert results == list(range(20))
    assert sorted(runs) == [0, *range(20)]


@pytest.mark.parametrize("delay", [math.inf, math.nan, 1e300])
def test_a_pause_that_cannot_be_spoils_no_report(app: App, delay: float) -> None:
    @app.task(retry=1)
    def later() -> None:
        raise taskyard.TryAgain(delay=delay)

    @app.task(result_ttl=math.inf)
    def add(a: int, b: int) -> int:
        return a + b

    put_off = later.push()
    handle = add.push(1, 2)
    work(app)
    assert handle.result(HANG_GUARD) == 3
    info = put_off.info()
    assert info.state in ("delayed", "ready", "failed")  # ready: its pause is over
    assert info.fails == (2 if info.state == "failed" else 1)  # what is no number is no pause


def test_results_that_are_asked_for_in_disguise_end_the_job(app: App) -> None:
    @app.task
    def note(value: int) -> int:
        return value

    payload = rb'{"args": [1], "kwargs": {}, "results\u005fof": ["x"]}'
    pushed = app.client.push(app.queue, payload, name="note")
    work(app)
    with pytest.raises(TaskFailed, match="BadArguments: results_of"):
        note.handle(pushed.id).result(HANG_GUARD)


def test_the_last_word_of_a_task_is_no_lost_lease(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task
    def say(number: int, job: taskyard.CurrentJob | None = None) -> int:
        assert job is not None
        job.progress(1.0, "done")
        return number

    handles = say.map(range(50))
    work(app)
    assert [handle.result(HANG_GUARD) for handle in handles] == list(range(50))
    assert "was lost" not in caplog.text


def test_a_job_that_no_process_could_be_had_for_is_given_back() -> None:
    verdict = decide_verdict(Job("1-1-1", "q", b""), RunFailure("no process", begun=False))
    assert verdict == Released()
    assert decide_verdict(Job("1-1-1", "q", b""), RunFailure("why")) == RetryLater(b"why")


def test_the_leases_of_a_task_are_as_short_as_it_says(app: App) -> None:
    go_on = threading.Event()

    @app.task(ttr=1.0)
    def hold() -> None:
        assert go_on.wait(HANG_GUARD)

    handle = hold.push()
    worker = app.worker(lease=30.0, poll=0.01)
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        ends: set[float] = set()

        def extended_often() -> bool:
            lease = handle.info().lease
            if lease is not None and lease.deadline is not None:
                ends.add(lease.deadline.timestamp())
                assert lease.deadline.timestamp() < time.time() + 5
            return len(ends) > 4

        wait_for(extended_often)
        go_on.set()
        # Before the worker is stopped: if so short a lease was over it runs the task once more.
        assert handle.result(HANG_GUARD) is None
    finally:
        go_on.set()
        worker.stop()
        thread.join(HANG_GUARD)
