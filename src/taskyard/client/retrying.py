"""When a command is tried again: the server is away, cannot do it now, or has cut a wait short."""

from __future__ import annotations

import time
from typing import Generic, TypeVar

from taskyard.client.backoff import Backoff
from taskyard.client.commands import Call
from taskyard.client.errors import NotNow, Refused, Unavailable
from taskyard.client.wire import Reply

T = TypeVar("T")


class Patience:
    """For how long to try, and the pauses between."""

    def __init__(self, seconds: float, backoff: Backoff) -> None:
        self._seconds = seconds
        self._backoff = backoff
        self._delays = backoff.delays()
        self._until: float | None = None

    def pause(self, error: Unavailable) -> float:
        """Seconds to wait before the next try; the error if there shall be none."""
        if error.final:
            raise error
        now = time.monotonic()
        if self._until is None:  # it begins with the first failure, not with a long wait before
            self._until = now + self._seconds
        delay = next(self._delays)
        if now + delay >= self._until:
            raise error
        return delay

    def renew(self) -> None:
        """The server has done something since."""
        self._delays = self._backoff.delays()
        self._until = None


def not_now(reply: Refused) -> Unavailable:
    error = Unavailable(f"the server cannot do it now: {reply}")
    error.__cause__ = reply
    return error


class Tries(Generic[T]):
    """Of one command."""

    def __init__(self, call: Call[T], patience: float, backoff: Backoff) -> None:
        self.call = call
        self._whole = call
        self._patience = Patience(patience, backoff)
        self._began = time.monotonic()
        self._again = False

    def lost(self, error: Unavailable) -> float:
        """There is no reply: seconds until the next try, or the error if there shall be none."""
        if error.sent:
            if not self.call.repeat or (error.timed_out and not self.call.patient):
                raise error
            self._again = True
        pause = self._patience.pause(error)
        self.call = self._whole.after(time.monotonic() - self._began)
        return pause

    def put_off(self, reply: Reply) -> float | None:
        """Seconds until the next try, if this reply calls for one."""
        if isinstance(reply, NotNow):
            return self._patience.pause(not_now(reply))
        passed = time.monotonic() - self._began
        if not self._whole.wait or not self._whole.cut_short(reply, passed):
            return None
        self.call = self._whole.after(passed)
        self._patience.renew()
        return 0.05

    def read(self, reply: Reply) -> T:
        return self.call.read(reply, self._again)
