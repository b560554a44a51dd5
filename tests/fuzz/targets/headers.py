"""Headers and events of HTTP: who asks, from where, for what; and the events that a client reads.

The first byte says which of them it is.
"""

from __future__ import annotations

import http.client
import io
from collections.abc import Callable
from typing import Any, cast

from taskyard.cli.event_stream import EventStream, HttpEndpoint
from taskyard.protocols.glovebox.messages import parse_connect_headers
from taskyard.protocols.http.auth import (
    InvalidAuthorization,
    cross_site_refusal,
    is_cross_site,
    parse_authorization,
    unknown_host_refusal,
)
from taskyard.protocols.http.cookies import session_of
from taskyard.protocols.http.monitoring.events import InvalidEventQuery, parse_event_query
from taskyard.protocols.http.wire import Request

NOTHING: frozenset[str] = frozenset()


def authorization(data: bytes) -> None:
    try:
        found = parse_authorization(data.decode("latin-1"))
    except InvalidAuthorization:
        return
    assert ":" not in found.name


def cookies(data: bytes) -> None:
    found = session_of(_request(cookie=data))
    assert found is None or ";" not in found


def origins(data: bytes) -> None:
    origin, _, host = data.partition(b"\n")
    request = _request(origin=origin, host=host)
    other = is_cross_site(request.headers, NOTHING)
    refusal = cross_site_refusal(request, NOTHING)
    assert (refusal is not None) == other
    unknown_host_refusal(request, NOTHING)


def sessions(data: bytes) -> None:
    binary, _, rest = data.partition(b"\n")
    durable, _, id = rest.partition(b"\n")
    found = parse_connect_headers(
        {
            "binary": binary.decode("latin-1"),
            "durable-session": durable.decode("latin-1"),
            "reconnect-as": id.decode("latin-1"),
        }
    )
    assert found.reconnect_as is None or 0 <= found.reconnect_as < 1 << 64


def event_places(data: bytes) -> None:
    place, _, rest = data.partition(b"\n")
    queue, _, rest = rest.partition(b"\n")
    kinds, _, until = rest.partition(b"\n")
    query = {"queue": _text(queue), "event": _text(kinds), "until": _text(until)}
    request = Request("GET", "/", query, {})
    request.headers["last-event-id"] = place.decode("latin-1")
    try:
        asked = parse_event_query(request, "ab" * 16, 100)
    except InvalidEventQuery:
        return
    assert 0 <= asked.next_seq <= 101
    assert asked.last_seq >= 0


def event_streams(data: bytes) -> None:
    """Of a server that may send anything."""
    stream = EventStream(cast("HttpEndpoint", None), persistent=False)
    try:
        for event in stream._parse_events(cast("http.client.HTTPResponse", io.BytesIO(data))):
            assert isinstance(event.kind, str)
    except ValueError:
        return  # the stream is connected anew


def _text(data: bytes) -> str:
    return data.decode(errors="replace")


def _request(**headers: bytes) -> Request:
    said: dict[str, Any] = {name: value.decode("latin-1") for name, value in headers.items()}
    return Request("POST", "/", {}, said)


READERS: list[Callable[[bytes], None]] = [
    authorization,
    cookies,
    origins,
    sessions,
    event_places,
    event_streams,
]
SEEDS = [
    b"\0Basic YTpi",
    b"\0Bearer token",
    b"\1a=b; taskyard_session=x; c",
    b"\2http://localhost:8080\nlocalhost:8080",
    b"\2https://[::1\n[::1]:80",
    b"\2null\n192.168.0.1.",
    b"\3true\n1\n18446744073709551615",
    b"\4" + b"ab" * 16 + b":7\nmail\npush,finish",
    b"\x0499\n\n",
    b"\x0499\nmail\npush\n100",
    b"\x0499\n\n\nnow",
    b'\5id: a:1\nevent: push\ndata: {"a":1}\n\n: ping\n\nretry: 5\ndata: [\ndata: 1]\n\n',
]
WORDS = [b"data: ", b"event: ", b"id: ", b"\n\n", b"Basic ", b"http://"]


def fuzz(data: bytes) -> None:
    if data:
        READERS[data[0] % len(READERS)](data[1:])
