"""When a command is tried again: the server is away, cannot do it now, or has cut a wait short."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from taskyard.client.commands import Call, Reply
from taskyard.client.errors import NotNow, Refused, Unavailable

T = TypeVar("T")


class CallRetry(Generic[T]):
    """Of one command."""

    def __init__(self, call: Call[T], patience: float, backoff: Backoff) -> None:
        self.call = call
        self._original_call = call
        self._budget = RetryBudget(patience, backoff)
        self._started_at = time.monotonic()
        self._was_sent = False

    def pause_after_loss(self, error: Unavailable) -> float:
        """Return the seconds until the next try; or raise the error if there is to be none."""
        if error.sent:
            if not self.call.repeatable or (error.timed_out and not self.call.repeat_after_timeout):
                raise error
            self._was_sent = True
        pause = self._budget.next_pause(error)
        self.call = self._original_call.with_remaining_wait(time.monotonic() - self._started_at)
        return pause

    def pause_after_reply(self, reply: Reply) -> float | None:
        """Seconds until the next try, if this reply calls for one."""
        if isinstance(reply, NotNow):
            return self._budget.next_pause(not_now_error(reply))
        passed = time.monotonic() - self._started_at
        if not self._original_call.wait or not self._original_call.was_cut_short(reply, passed):
            return None
        self.call = self._original_call.with_remaining_wait(passed)
        self._budget.reset()
        return 0.05

    def read_reply(self, reply: Reply) -> T:
        return self.call.read_reply(reply, self._was_sent)


class RetryBudget:
    """For how long to try, and the pauses between."""

    def __init__(self, seconds: float, backoff: Backoff) -> None:
        self._seconds = seconds
        self._backoff = backoff
        self._delays = backoff.delays()
        self._give_up_at: float | None = None

    def next_pause(self, error: Unavailable) -> float:
        """Seconds to wait before the next try; the error if there shall be none."""
        if error.final:
            raise error
        now = time.monotonic()
        if (
            self._give_up_at is None
        ):  # it begins with the first failure, not with a long wait before
            self._give_up_at = now + self._seconds
        delay = next(self._delays)
        if now + delay >= self._give_up_at:
            raise error
        return delay

    def reset(self) -> None:
        """The server has done something since."""
        self._delays = self._backoff.delays()
        self._give_up_at = None


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses that double from `first` to `most` seconds.

    Each is cut by up to a half at random, so that the clients of a restarted server do not all
    connect at the same moment.
    """

    first: float = 0.05
    most: float = 5.0

    def delays(self) -> Iterator[float]:
        delay = self.first
        while True:
            yield delay * (0.5 + os.urandom(1)[0] / 512)
            delay = min(delay * 2, self.most)


def not_now_error(reply: Refused) -> Unavailable:
    error = Unavailable(f"the server cannot do it now: {reply}")
    error.__cause__ = reply
    return error
