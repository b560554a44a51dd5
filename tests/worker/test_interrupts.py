"""Runs that are ended from outside: by time limits, or since their lease was lost."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import queue
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from support.sockets import HANG_GUARD, POLL_INTERVAL
from support.waiting import wait_for

from taskyard.client.source import Job
from taskyard.worker import coroutines
from taskyard.worker.coroutines import (
    AsyncPool,
    Interruptible,
    run_coroutine,
    run_in_thread,
)
from taskyard.worker.pools import (
    NEVER,
    Cancelled,
    Pool,
    RunFailure,
    SoftTimeLimit,
    ThreadPool,
    ThreadSlot,
    TimeLimits,
    TimeLimitWatcher,
)
from taskyard.worker.processes import ProcessPool

SOON = 0.03


def job(text: str) -> Job:
    return Job(ref=text, queue="q", payload=text.encode())


def spin(seen: Callable[[str], None] = lambda text: None) -> str:
    """Until something is raised, or for long."""
    deadline = time.monotonic() + HANG_GUARD
    try:
        while time.monotonic() < deadline:
            time.sleep(POLL_INTERVAL)
    except (SoftTimeLimit, Cancelled) as reason:
        seen(type(reason).__name__)
        return type(reason).__name__
    return "in vain"


def run(one: Job) -> str:
    match one.payload.decode().split()[0]:
        case "spin":
            return spin()
        case "stubborn":
            return f"{spin()} {spin()}"
        case "async":
            with asyncio.Runner() as runner:
                return run_coroutine(sleep(), runner)
    return one.payload.decode()


async def sleep() -> str:
    try:
        await asyncio.sleep(HANG_GUARD)
    except (SoftTimeLimit, Cancelled) as reason:
        return type(reason).__name__
    return "in vain"


async def run_async(one: Job) -> str:
    match one.payload.decode().split()[0]:
        case "spin":
            return await run_in_thread(spin)
        case "stubborn":
            return f"{await sleep()} {await sleep()}"
        case "async":
            return await sleep()
    return one.payload.decode()


def limits(one: Job) -> TimeLimits:
    words = one.payload.decode().split()
    if "soft" in words:
        return TimeLimits(SOON)
    if "hard" in words:
        return TimeLimits(hard=SOON)
    return TimeLimits()


class Reports:
    def __init__(self, pool: Pool[Any]) -> None:
        self.pool = pool
        self._all: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        pool.start(lambda one, outcome: self._all.put((one.ref, outcome)))

    def next(self) -> tuple[str, Any]:
        return self._all.get(timeout=HANG_GUARD)

    def outcome(self, text: str) -> Any:
        self.pool.submit(job(text))
        ref, outcome = self.next()
        assert ref == text
        return outcome


def is_early(outcome: Any) -> bool:
    """Whether its time was over before the run had come to where it heeds that."""
    return isinstance(outcome, RunFailure) and outcome.reason.endswith(
        f"{SoftTimeLimit.__name__}\n"
    )


def heeded(run: Callable[[], Any]) -> Any:
    """What comes of a run that has come there in time, which others may not."""
    deadline = time.monotonic() + HANG_GUARD
    while is_early(outcome := run()):
        assert time.monotonic() < deadline
    return outcome


POOLS: dict[str, Callable[[], Pool[Any]]] = {
    "threads": lambda: ThreadPool(run, 1, limits),
    "processes": lambda: ProcessPool(run, 1, limits),
    "coroutines": lambda: AsyncPool(run_async, 1, limits),
}


@pytest.fixture(params=list(POOLS))
def reports(request: pytest.FixtureRequest) -> Reports:
    return Reports(POOLS[request.param]())


def test_a_soft_limit_is_raised_in_the_run(reports: Reports) -> None:
    assert heeded(lambda: reports.outcome("spin soft")) == "SoftTimeLimit"
    assert heeded(lambda: reports.outcome("async soft")) == "SoftTimeLimit"
    assert reports.outcome("more") == "more"
    reports.pool.close()


def test_a_limit_that_is_over_before_the_process_has_begun_is_told_then() -> None:
    reports = Reports(POOLS["processes"]())
    assert reports.outcome("more") == "more"
    (process,) = multiprocessing.active_children()
    assert process.pid is not None
    pid = process.pid

    def run_late() -> Any:
        os.kill(pid, signal.SIGSTOP)
        reports.pool.submit(job("spin soft"))
        wait_for(lambda: is_interrupted(reports.pool))
        os.kill(pid, signal.SIGCONT)
        ref, outcome = reports.next()
        assert ref == "spin soft"
        return outcome

    assert heeded(run_late) == "SoftTimeLimit"
    assert reports.outcome("more") == "more"
    reports.pool.close()


def is_interrupted(pool: Pool[Any]) -> bool:
    """Whether the only job of a pool of processes has been told of its limit."""
    assert isinstance(pool, ProcessPool)
    (place,) = pool._threads
    return place.job is not None and place.soft_at == NEVER


def test_a_hard_limit_ends_the_run_and_the_pool_goes_on(reports: Reports) -> None:
    for text in ("stubborn hard", "async hard"):
        outcome = reports.outcome(text)
        assert outcome == RunFailure("it was still running after its time limit of 0.03 seconds")
    assert reports.outcome("more") == "more"
    reports.pool.close()


@pytest.mark.parametrize("text", ["spin", "async"])
def test_a_run_can_be_cancelled(reports: Reports, text: str) -> None:
    one = job(text)
    reports.pool.submit(one)
    found: list[Any] = []
    # When it has begun nobody outside can know: so again and again, which does no harm.
    deadline = time.monotonic() + HANG_GUARD
    while not found:
        assert time.monotonic() < deadline
        reports.pool.cancel(one)
        try:
            found.append(reports._all.get(timeout=POLL_INTERVAL))
        except queue.Empty:
            continue
    assert found[0][0] == text
    assert found[0][1] == "Cancelled" or isinstance(found[0][1], RunFailure)
    assert reports.outcome("more") == "more"
    reports.pool.close()


def test_a_job_in_line_can_be_cancelled() -> None:
    go_on = threading.Event()
    begun: list[str] = []

    def hold(one: Job) -> str:
        begun.append(one.ref)
        assert go_on.wait(HANG_GUARD)
        return "done"

    reports = Reports(ThreadPool(hold, 1))
    waiting = job("waiting")
    reports.pool.submit(job("running"), waiting)
    reports.pool.cancel(waiting)
    go_on.set()
    assert reports.next() == ("running", "done")
    assert reports.next() == ("waiting", RunFailure("it was cancelled before it began"))
    assert begun == ["running"]
    reports.pool.close()


def test_an_interruption_never_hits_the_next_run() -> None:
    """Limits so short that many of them come just when the run ends."""
    outcomes: list[Any] = []

    def brief(one: Job) -> str:
        deadline = time.monotonic() + 0.0005
        while time.monotonic() < deadline:
            pass
        return "done"

    def some(one: Job) -> TimeLimits:
        return TimeLimits(0.0005) if one.ref.startswith("limited") else TimeLimits()

    reports = Reports(ThreadPool(brief, 1, some))
    for number in range(200):
        reports.pool.submit(job(f"limited-{number}"), job(f"free-{number}"))
    for _ in range(400):
        ref, outcome = reports.next()
        if ref.startswith("free"):
            outcomes.append(outcome)
        else:
            assert outcome == "done" or "SoftTimeLimit" in outcome.reason
    assert outcomes == ["done"] * 200
    reports.pool.close()


def test_what_was_not_raised_in_time_is_taken_back() -> None:
    place = ThreadSlot(lambda *_: None)
    place.attach_thread()
    one = job("one")
    place.begin_run(one, TimeLimits())
    with place.lock:
        place._interrupt_sent = True  # as an interruption does that comes from another thread
    place.end_run()
    assert not place._interrupt_sent
    assert not place.cancel_run(one)


def test_a_watch_looks_when_the_first_is_due() -> None:
    looked: queue.SimpleQueue[float] = queue.SimpleQueue()

    class Looked(ThreadSlot):
        def enforce_limits(self, now: float) -> float:
            looked.put(now)
            return NEVER

    watch = TimeLimitWatcher(lambda: [Looked(lambda *_: None)])
    far, near = time.monotonic() + 3600, time.monotonic() + SOON
    watch.check_at(far)
    watch.check_at(near)
    assert looked.get(timeout=HANG_GUARD) >= near
    watch.close()


def test_a_coroutine_that_was_interrupted_is_not_cancelled() -> None:
    """So that it can use asyncio.timeout and the like while it tidies up."""

    async def tidy(one: Job) -> str:
        try:
            await asyncio.sleep(HANG_GUARD)
        except SoftTimeLimit:
            task = asyncio.current_task()
            assert task is not None
            assert task.cancelling() == 0
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(SOON):
                    await asyncio.sleep(HANG_GUARD)
            return "tidied up"
        return "in vain"

    reports = Reports(AsyncPool(tidy, 1, limits))
    assert reports.outcome("x soft") == "tidied up"
    reports.pool.close()


def test_a_plain_function_beside_the_loop_is_told_when_its_time_is_over() -> None:
    seen: queue.SimpleQueue[str] = queue.SimpleQueue()

    async def beside(one: Job) -> str:
        return await run_in_thread(lambda: spin(seen.put))

    reports = Reports(AsyncPool(beside, 1, limits))
    deadline = time.monotonic() + HANG_GUARD
    told = ""
    while not told:  # again if the thread of one had not begun when its time was over
        assert time.monotonic() < deadline
        assert isinstance(reports.outcome("x hard"), RunFailure)
        with contextlib.suppress(queue.Empty):
            told = seen.get(timeout=1)
    assert told == "Cancelled"
    reports.pool.close()


@pytest.mark.parametrize("reason", [SoftTimeLimit, Cancelled])
def test_what_comes_before_the_thread_beside_the_loop_has_begun_is_not_lost(
    reason: type[SoftTimeLimit] | type[Cancelled],
) -> None:
    busy: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
    called: list[bool] = []

    async def main() -> None:
        coroutines._idle_threads.append(busy)
        run = Interruptible(run_in_thread(lambda: called.append(True)))

        async def wait() -> None:
            await run

        waiting = asyncio.create_task(wait())
        await asyncio.sleep(0)
        begin = busy.get_nowait()
        run.interrupt(reason)
        await asyncio.sleep(0)
        await asyncio.to_thread(begin)
        await waiting

    with pytest.raises(reason):
        asyncio.run(main())
    assert not called


class Unlucky(ThreadSlot):
    """What comes from outside comes just when an exception of the job is being caught."""

    times = 0

    def end_run_uninterrupted(self) -> None:
        self.times += 1
        if self.times == 1:
            raise SoftTimeLimit
        super().end_run_uninterrupted()


def test_a_run_that_is_interrupted_while_it_fails_is_reported() -> None:
    class UnluckyPool(ThreadPool[str]):
        def _create_slot(self, number: int) -> ThreadSlot:
            return Unlucky(lambda place, job, why: None)

    def fail(one: Job) -> str:
        if one.ref == "fails":
            raise ValueError("why")
        return one.ref

    reports: queue.SimpleQueue[tuple[str, str | RunFailure]] = queue.SimpleQueue()
    pool = UnluckyPool(fail, 1)
    pool.start(lambda one, outcome: reports.put((one.ref, outcome)))
    pool.submit(job("fails"), job("next"))
    ref, outcome = reports.get(timeout=HANG_GUARD)
    assert ref == "fails"
    assert isinstance(outcome, RunFailure)
    assert "ValueError: why" in outcome.reason
    assert reports.get(timeout=HANG_GUARD) == ("next", "next")
    pool.close()


@pytest.mark.parametrize("reason", [SoftTimeLimit, Cancelled])
def test_what_comes_before_a_coroutine_has_begun_is_not_lost(
    reason: type[SoftTimeLimit] | type[Cancelled],
) -> None:
    begun: list[bool] = []

    async def work() -> None:
        begun.append(True)

    async def main() -> None:
        run = Interruptible(work())
        run.interrupt(reason)
        await run

    with pytest.raises(reason):
        asyncio.run(main())
    assert not begun


def test_two_interruptions_at_once_are_one() -> None:
    async def work() -> str:
        try:
            await asyncio.sleep(HANG_GUARD)
        except Cancelled:
            task = asyncio.current_task()
            assert task is not None
            return f"cancelled, {task.cancelling()} times by others"
        return "in vain"

    async def main() -> str:
        run = Interruptible(work())
        loop = asyncio.get_running_loop()
        loop.call_soon(run.interrupt, SoftTimeLimit)
        loop.call_soon(run.interrupt, Cancelled)
        return await run

    assert asyncio.run(main()) == "cancelled, 0 times by others"
