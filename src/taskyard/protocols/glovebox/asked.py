"""A pop or fetch of a Glovebox client that waits, and its timeout."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from mypy_extensions import i64

from taskyard.engine.model.errors import InvalidOption
from taskyard.engine.model.job import SECOND

if TYPE_CHECKING:
    from taskyard.protocols.glovebox.connection import GloveboxConnection

MAX_SECONDS: Final = 366 * 86_400


class PendingFetch:
    """A pop or fetch, until it is answered."""

    __slots__ = ("is_pop", "label", "option", "sync", "timeout")

    def __init__(self, label: int, sync: i64, pop: bool) -> None:
        self.label = label
        self.sync = sync
        self.is_pop = pop
        self.timeout: i64 = 0  # how long it may wait, in microseconds
        self.option = ""  # as it calls that


def microseconds(option: str, seconds: float) -> i64:
    """A time that a client has sent, which may be any float; 0 only if it is."""
    if not 0 <= seconds <= MAX_SECONDS:  # NaN is not either
        raise InvalidOption(option, f"must be 0 to {MAX_SECONDS} seconds")
    whole = round(seconds * SECOND)
    return whole if whole or not seconds else 1


class WebSocketReader(Protocol):
    """The reading side of a WebSocket."""

    def feed(self, data: bytes) -> None: ...

    def partial_message_bytes(self) -> int:
        """Bytes of a message whose end has not arrived, as far as that is known."""
        ...

    def on_disconnect(self) -> None: ...


class MessageDelivery:
    """Delivers a message when its payload has been read from disk."""

    def __init__(
        self,
        connection: GloveboxConnection,
        pending: PendingFetch,
        id: i64,
        level: i64,
        position: i64,
    ) -> None:
        self._connection = connection
        self._pending = pending
        self._id = id
        self._level = level
        self._position = position

    def on_payload_read(self, payload: bytes | None) -> None:
        self.send(payload)
        self._connection.on_payload_read()

    def send(self, payload: bytes | None) -> None:
        self._connection.send_message(self._pending, self._id, payload, self._level, self._position)
