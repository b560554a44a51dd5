"""A server that does not answer: for how long that goes on, and how long it may."""

import time
from collections.abc import Callable
from typing import Final

from taskyard.pipeline.web import ServerUnreachable

PATIENCE: Final = 600.0  # seconds; a server that is started again and reads its journal takes less
_PAUSE: Final = 2.0  # seconds between two looks, each of which tries for a while by itself


class Outage:
    """From the first call that nobody answered to the next one that somebody does."""

    def __init__(self, patience: float, say: Callable[[str], None]) -> None:
        self._patience = patience
        self._say = say
        self._since: float | None = None

    def met(self, error: ServerUnreachable) -> float:
        """Nobody has answered. Gives the seconds to wait; raises it once that was for too long."""
        now = time.monotonic()
        if self._since is None:
            self._since = now
            self._say(f"{error}; waiting for it, for up to {self._patience:.0f} s")
        left = self._since + self._patience - now
        if left <= 0:
            raise ServerUnreachable(
                f"{error}; the lake has waited for {self._patience:.0f} s, and goes on where it is "
                "when it is run again"
            ) from error
        return min(_PAUSE, left)

    def over(self) -> None:
        """Somebody has answered."""
        if self._since is not None:
            self._say(f"the server answers again, after {time.monotonic() - self._since:.0f} s")
            self._since = None
