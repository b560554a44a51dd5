"""The event loop behind the broker's seam: never early, never on the wrong thread."""

import asyncio
import ctypes
import threading
import time
from collections.abc import Awaitable, Callable
from functools import partial

import pytest
import uvloop

from taskyard.broker.interfaces import AnchoredClock
from taskyard.server.runtime import AsyncioScheduler

Scene = Callable[[AsyncioScheduler, AnchoredClock], Awaitable[None]]


def play(scene: Scene) -> None:
    async def run() -> None:
        clock = AnchoredClock()
        scheduler = AsyncioScheduler(asyncio.get_running_loop(), clock)
        try:
            await scene(scheduler, clock)
        finally:
            scheduler.close()

    uvloop.run(run())


def test_an_alarm_never_rings_early() -> None:
    async def scene(scheduler: AsyncioScheduler, clock: AnchoredClock) -> None:
        early: list[int] = []
        rung = asyncio.Event()
        left = 200

        def ring(when: int) -> None:
            nonlocal left
            left -= 1
            if clock.now() < when:
                early.append(when - clock.now())
            if not left:
                rung.set()

        for number in range(left):
            when = clock.now() + number * 397
            scheduler.call_at(when, partial(ring, when))
        await rung.wait()
        assert not early

    play(scene)


def test_an_alarm_for_the_past_rings_at_once() -> None:
    async def scene(scheduler: AsyncioScheduler, clock: AnchoredClock) -> None:
        rung = asyncio.Event()
        scheduler.call_at(0, rung.set)
        await rung.wait()

    play(scene)


def test_an_alarm_can_be_cancelled_and_may_be_centuries_away() -> None:
    async def scene(scheduler: AsyncioScheduler, clock: AnchoredClock) -> None:
        rung = asyncio.Event()
        scheduler.call_at(2**62, rung.set)
        alarm = scheduler.call_at(clock.now(), rung.set)
        alarm.cancel()
        passed = asyncio.Event()
        scheduler.call_at(clock.now() + 5000, passed.set)
        await passed.wait()
        assert not rung.is_set()

    play(scene)


@pytest.mark.parametrize("error", [None, OSError("broken")])
def test_blocking_work_runs_in_a_thread_and_is_told_of_on_the_loop(error: OSError | None) -> None:
    async def scene(scheduler: AsyncioScheduler, _: AnchoredClock) -> None:
        told: asyncio.Future[tuple[str, BaseException | None]] = asyncio.Future()
        threads: list[str] = []

        def work() -> None:
            threads.append(threading.current_thread().name)
            if error is not None:
                raise error

        def done(failure: BaseException | None) -> None:
            told.set_result((threading.current_thread().name, failure))

        scheduler.run_blocking(work, done)
        assert await told == (threading.current_thread().name, error)
        assert threads != [threading.current_thread().name]

    play(scene)


def test_the_end_waits_for_blocking_work() -> None:
    done = threading.Event()

    async def scene(scheduler: AsyncioScheduler, _: AnchoredClock) -> None:
        begun = threading.Event()
        go_on = threading.Event()

        def work() -> None:
            begun.set()
            go_on.wait()
            done.set()

        scheduler.run_blocking(work, lambda _: None)
        begun.wait()
        go_on.set()

    play(scene)
    assert done.is_set()


def test_a_fine_alarm_rings_once_and_not_early() -> None:
    async def scene(scheduler: AsyncioScheduler, _: AnchoredClock) -> None:
        rung: asyncio.Queue[int] = asyncio.Queue()
        for delay in (0, 1, 300, 2_000):
            began = time.monotonic_ns()
            scheduler.call_after_us(delay, lambda: rung.put_nowait(time.monotonic_ns()))
            assert (await rung.get() - began) // 1000 >= delay
        assert rung.empty()

    play(scene)


def test_a_fine_alarm_takes_the_place_of_the_one_before_and_can_be_cancelled() -> None:
    async def scene(scheduler: AsyncioScheduler, clock: AnchoredClock) -> None:
        rung: list[str] = []
        passed = asyncio.Event()
        scheduler.call_after_us(100, lambda: rung.append("replaced"))
        scheduler.call_after_us(200, lambda: rung.append("cancelled")).cancel()
        scheduler.call_at(clock.now() + 5_000, passed.set)
        await passed.wait()
        scheduler.call_after_us(100, lambda: rung.append("replaced"))
        last = asyncio.Event()
        scheduler.call_after_us(150, last.set)
        await last.wait()
        assert not rung

    play(scene)


def test_a_fine_alarm_that_has_rung_unheard_can_be_set_anew() -> None:
    async def scene(scheduler: AsyncioScheduler, _: AnchoredClock) -> None:
        rung: list[str] = []
        scheduler.call_after_us(1, lambda: rung.append("first"))
        until = time.monotonic_ns() + 1_000_000
        while time.monotonic_ns() < until:
            pass  # the loop does not look at it meanwhile
        last = asyncio.Event()
        scheduler.call_after_us(1_000, last.set)
        await last.wait()
        assert not rung

    play(scene)


def test_without_the_kernels_timers_the_loops_own_has_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def none(name: None) -> None:
        raise OSError("no such library")

    monkeypatch.setattr(ctypes, "CDLL", none)
    test_a_fine_alarm_rings_once_and_not_early()
    test_a_fine_alarm_takes_the_place_of_the_one_before_and_can_be_cancelled()
