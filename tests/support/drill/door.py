"""How clients get to a server that is left in peace, at the end of a run."""

from __future__ import annotations

from typing import Protocol

from support.talk import Talk


class Door(Protocol):
    def enter(self, dialect: str, talk: Talk) -> None:
        """Connect this one."""

    def ask(self, talk: Talk, request: bytes) -> None:
        """Carry it, and what comes back, until the talk is idle."""

    def leave(self, talk: Talk) -> None:
        """Close its connection."""
