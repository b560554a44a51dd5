"""How clients get to a server that is left in peace, at the end of a run."""

from __future__ import annotations

from typing import Protocol

from support.talk import ProtocolDriver


class DriverConnector(Protocol):
    def connect(self, dialect: str, talk: ProtocolDriver) -> None:
        """Connect this one."""

    def exchange(self, talk: ProtocolDriver, request: bytes) -> None:
        """Send its bytes, and pass it the replies, until the driver is idle."""

    def disconnect(self, talk: ProtocolDriver) -> None:
        """Close its connection."""
