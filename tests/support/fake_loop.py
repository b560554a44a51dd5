"""Time and an event loop that a test moves on by itself."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import count

from mypy_extensions import i64

from taskyard.broker.interfaces import Clock

START = 1_700_000_000_250_000  # not a whole second, so that rounding shows


class FakeClock(Clock):
    def __init__(self) -> None:
        self.time = START

    def now(self) -> i64:
        return self.time


class Alarm:
    def __init__(self, call: Callable[[], None]) -> None:
        self.call = call
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Blocking:
    """Work that runs off the loop, and who is told of its end."""

    def __init__(
        self, work: Callable[[], None], done: Callable[[BaseException | None], None]
    ) -> None:
        self._work = work
        self._done = done

    def run(self) -> Callable[[], None]:
        """Do it; gives the call that tells of it on the loop."""
        failure: OSError | None = None
        try:
            self._work()
        except OSError as error:
            failure = error
        return partial(self._done, failure)


class FakeScheduler:
    """Calls in order, alarms by time; blocking work is done at once, its end told later.

    With `slow` set, blocking work stays in `blocking` until the test lets it happen.
    """

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self._soon: deque[Callable[[], None]] = deque()
        self._alarms: list[tuple[int, int, Alarm]] = []
        self._numbers = count()
        self.slow = False
        self.blocking: deque[Blocking] = deque()

    def call_soon(self, call: Callable[[], None]) -> None:
        self._soon.append(call)

    def call_at(self, when: int, call: Callable[[], None]) -> Alarm:
        alarm = Alarm(call)
        heapq.heappush(self._alarms, (when, next(self._numbers), alarm))
        return alarm

    def call_after_us(self, delay: int, call: Callable[[], None]) -> Alarm:
        return self.call_at(self._clock.time + delay, call)

    def run_blocking(
        self, work: Callable[[], None], done: Callable[[BaseException | None], None]
    ) -> None:
        self.blocking.append(Blocking(work, done))
        if not self.slow:
            self.finish_blocking()

    def flush_file(self, file: int, done: Callable[[int, int], None]) -> bool:
        return False

    def finish_blocking(self) -> None:
        """The oldest blocking work is done; whoever waits for it hears so when the loop runs."""
        self._soon.append(self.blocking.popleft().run())

    def is_waiting(self) -> bool:
        """Whether anything is planned for later."""
        return any(not alarm.cancelled for _, _, alarm in self._alarms)

    def step(self) -> bool:
        """Run one thing that is due now; false if there is none."""
        if self._soon:
            self._soon.popleft()()
            return True
        while self._alarms and self._alarms[0][0] <= self._clock.time:
            alarm = heapq.heappop(self._alarms)[2]
            if not alarm.cancelled:
                alarm.call()
                return True
        return False

    def settle(self) -> None:
        """Run everything that is due now."""
        while self.step():
            pass

    def advance(self, microseconds: int) -> None:
        """Let time pass, stopping at each alarm on the way."""
        end = self._clock.time + microseconds
        self.settle()
        while self._alarms and self._alarms[0][0] <= end:
            self._clock.time = max(self._clock.time, self._alarms[0][0])
            self.settle()
        self._clock.time = end
        self.settle()
