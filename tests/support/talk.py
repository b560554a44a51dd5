"""A client that talks at random, whatever it speaks: what those who carry its bytes see of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class ProtocolDriver(Protocol):
    def request(self) -> bytes:
        """The next one, whatever comes to its mind."""

    def receive(self, data: bytes) -> None:
        """Bytes of replies, split anywhere."""

    def is_idle(self) -> bool:
        """Whether every request has its reply."""

    def leave(self) -> None:
        """It is about to go away, with no request open."""


MakeDriver = Callable[[str], ProtocolDriver]
"""Makes a client of this name."""
