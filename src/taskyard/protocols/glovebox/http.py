"""What Glovebox says over plain HTTP: a queue's status, and the headers of a connection.

Not compiled: see msgspec.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from taskyard.engine.operations.facade import Engine
from taskyard.protocols.glovebox.types import MAX_U64
from taskyard.protocols.http.messages import Response


@dataclass(frozen=True, slots=True)
class ConnectOptions:
    """Options of a connection, from the headers of the upgrade."""

    binary: bool
    durable: bool
    reconnect_as: int | None


def parse_connect_headers(headers: dict[str, str]) -> ConnectOptions:
    """Parse the headers of the upgrade, whose names are in lower case here.

    An invalid id is treated as an unknown one: the client gets a new session, and sees so by the id
    in the hello.
    """
    id = headers.get("reconnect-as", "").strip()
    known = id.isascii() and id.isdigit() and len(id) <= 20 and int(id) <= MAX_U64
    return ConnectOptions(
        binary=_is_true(headers.get("binary", "")),
        durable=_is_true(headers.get("durable-session", "")),
        reconnect_as=int(id) if known else None,
    )


def _is_true(value: str) -> bool:
    return value.strip().lower() in ("1", "true")


def queue_status(engine: Engine, name: str) -> Response:
    """Shards are how others store a queue; here each has one, which is always open."""
    position = engine.records.end_position()  # it must not show what may still be lost
    utf8 = name.encode(errors="replace")
    queue = engine.queue(utf8)
    if queue is None:
        error = {
            "type": "Error",
            "name": name.encode(errors="replace").decode(),
            "code": "QueueNotFound",
            "message": "Named queue not found",
        }
        return Response(404, msgspec.json.encode(error), position=position)
    view = {
        "type": "Status",
        "length": 0 if queue.settings.paused else queue.ready.size,
        "readers_waiting": len(engine.waiters.get(utf8, ())),
        "shards_read_write": 1,
        "shards_read_only": 0,
        "shards_finished": 0,
    }
    return Response(200, msgspec.json.encode(view), position=position)
