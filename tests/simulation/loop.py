"""The event loop of a simulated process: rounds in which time stands still.

It is an asyncio loop as far as the server's code asks for one, and the broker's scheduler. What
runs in threads is done at some moment while it lasts, and its end is told later.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, cast

from simulation.agenda import SECOND, Call

from taskyard.broker.offloop import ThreadSync

if TYPE_CHECKING:
    from simulation.machine import Machine

ROUND = 20  # microseconds that a round takes
TIMER_SLACK = 1500  # as of AsyncioScheduler


class Alarm:
    __slots__ = ("call", "cancelled")

    def __init__(self, call: Call) -> None:
        self.call = call
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class ReadyHandler(Protocol):
    """Something that came from outside and waits for the next round."""

    def on_ready(self) -> None: ...


class NoTask:
    """A task that does nothing: see `Loop.create_task`."""

    def done(self) -> bool:
        return True

    def cancel(self) -> None: ...


class Loop:
    """Rounds, and of asyncio's loops what the server asks for."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._soon: deque[Call] = deque()
        self._alarms: list[tuple[int, int, Alarm]] = []
        self._alarm_number = 0
        self._ready: deque[ReadyHandler] = deque()
        self._wake_at = -1  # an event of the agenda is set for that
        self.alive = True
        self.clock: Callable[[], int] = machine.wall  # the broker's, once there is one

    # Rounds

    def round(self) -> None:
        """Timers that are due, what came from outside, and what was to be called soon."""
        machine = self._machine
        now = machine.monotonic()
        alarms = self._alarms
        soon = self._soon
        while alarms and alarms[0][0] <= now:
            alarm = heapq.heappop(alarms)[2]
            if not alarm.cancelled:
                soon.append(alarm.call)
        ready, self._ready = self._ready, deque()
        for one in ready:
            one.on_ready()
        for _ in range(len(soon)):
            if not soon:
                return  # the process has ended itself
            soon.popleft()()

    def arrived(self, one: ReadyHandler) -> None:
        self._ready.append(one)
        self.wake()

    def wake(self) -> None:
        """There is something to do now."""
        if self.alive:
            self._wake(self._machine.free_at())

    def _wake(self, when: int) -> None:
        if self._wake_at < 0 or when < self._wake_at:
            self._wake_at = when
            self._machine.agenda.at(when, partial(self._run, when))

    def _run(self, when: int) -> None:
        if not self.alive or when != self._wake_at:
            return
        machine = self._machine
        free = machine.free_at()
        if free > when:  # it was stopped meanwhile
            self._wake_at = -1
            self._wake(free)
            return
        self._wake_at = -1
        machine.in_round(self.round)
        self._run_round()

    def _run_round(self) -> None:
        if not self.alive:
            return
        if self._soon or self._ready:
            self._wake(self._machine.free_at())
        else:
            self.plan()

    def plan(self) -> None:
        """Wake up for the first timer."""
        alarms = self._alarms
        while alarms and alarms[0][2].cancelled:
            heapq.heappop(alarms)
        if alarms:
            self._wake(max(self._machine.when(alarms[0][0]), self._machine.free_at()))

    def die(self) -> None:
        self.alive = False
        self._soon.clear()
        self._alarms.clear()
        self._ready.clear()

    # As asyncio's loop

    def time(self) -> float:
        return self._machine.monotonic() / SECOND

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Any = None) -> Any:
        alarm = Alarm(lambda: None)
        alarm.call = partial(_unless_cancelled, alarm, partial(_call, callback, args))
        self._soon.append(alarm.call)
        self.wake()
        return alarm

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> Any:
        when = self._machine.monotonic() + max(0, round(delay * SECOND))
        return self._set_alarm(when, partial(_call, callback, args))

    def _set_alarm(self, when: int, call: Call) -> Alarm:
        alarm = Alarm(call)
        self._alarm_number += 1
        heapq.heappush(self._alarms, (when, self._alarm_number, alarm))
        if not self._machine.rounding:
            self.plan()
        return alarm

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=cast(Any, self))

    def create_task(self, coro: Coroutine[Any, Any, Any], **_: Any) -> Any:
        """Only the keep-alive of WebSockets comes here, which reads the real clock: not done."""
        coro.close()
        return NoTask()

    def get_debug(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Futures that are left behind when a process is killed."""


def _call(callback: Callable[..., object], args: tuple[Any, ...]) -> None:
    callback(*args)


def _unless_cancelled(alarm: Alarm, call: Call) -> None:
    if not alarm.cancelled:
        call()


class ThreadTiming:
    """How long work off the loop takes."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def duration(self) -> int:
        return self._machine.slowness() + self._machine.chance.randrange(20, 400)


class Scheduler:
    """The broker's scheduler on such a loop."""

    def __init__(self, machine: Machine, loop: Loop) -> None:
        self._machine = machine
        self._loop = loop
        self._threads = ThreadTiming(machine)
        self._errands: list[_BlockingOperation] = []  # not done yet

    def call_soon(self, call: Call) -> None:
        loop = self._loop
        loop._soon.append(call)
        if not self._machine.rounding:
            loop.wake()

    def call_at(self, when: int, call: Call) -> Alarm:
        delay = max(0, when - self._loop.clock())
        due = self._machine.monotonic() + (delay + TIMER_SLACK if delay else 0)
        return self._loop._set_alarm(due, call)

    def call_after_us(self, delay: int, call: Call) -> Alarm:
        return self._loop._set_alarm(self._machine.monotonic() + delay, call)

    def run_blocking(self, work: Call, done: Callable[[BaseException | None], None]) -> None:
        machine = self._machine
        chance = machine.chance
        begins = machine.free_at()
        lasts = self._threads.duration()
        syncs = isinstance(getattr(work, "__self__", None), ThreadSync)
        errand = _BlockingOperation(machine, self._loop, work, done, syncs, self._errands)
        self._errands.append(errand)
        happens = begins + chance.randrange(lasts)
        machine.agenda.at(happens, errand.complete)
        machine.agenda.at(begins + lasts, errand.deliver_result)

    def flush_file(self, file: int, done: Callable[[int, int], None]) -> bool:
        return False

    def close(self) -> None:
        """Wait for what was asked for."""
        for errand in list(self._errands):
            errand.complete()


class _BlockingOperation:
    """Work in a thread."""

    def __init__(
        self,
        machine: Machine,
        loop: Loop,
        work: Call,
        done: Callable[[BaseException | None], None],
        syncs: bool,
        errands: list[_BlockingOperation],
    ) -> None:
        self._machine = machine
        self._loop = loop
        self._work = work
        self._done = done
        self._error: OSError | None = None
        self._syncs = syncs
        self._safe = machine.written_at
        self._errands = errands
        self._over = False

    def complete(self) -> None:
        if self._loop.alive and not self._over:
            self._over = True
            self._errands.remove(self)
            self._machine.off_loop(self._do)

    def _do(self) -> None:
        try:
            self._work()
        except OSError as error:
            self._error = error
        else:
            if self._syncs:
                self._machine.synced_at = self._safe

    def deliver_result(self) -> None:
        self._loop.arrived(self)

    def on_ready(self) -> None:
        self._done(self._error)
