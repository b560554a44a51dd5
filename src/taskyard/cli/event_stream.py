"""The server's live events: server-sent events over HTTP, gone on with after a lost connection."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import socket
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import urlencode, urlsplit

from taskyard.cli.failure import CommandFailed
from taskyard.cli.session import Context
from taskyard.client.url import Address
from taskyard.shared.exit_codes import DENIED, REFUSED, UNREACHABLE, USAGE

_RETRY_PAUSES_S: Final = (0.2, 1.0, 2.0, 5.0)  # seconds before each further try to connect
SILENCE_S: Final = 45.0  # seconds without even a sign of life, which is sent every 15


@dataclass(frozen=True, slots=True)
class ServerEvent:
    id: str
    kind: str
    data: dict[str, Any]


class HttpEndpoint:
    """Where the server speaks HTTP, and the user to log in as."""

    def __init__(self, session: Context, given: str | None = None) -> None:
        self._address = Address.parse(session.url)
        if given is None:
            self.host, self.port, self._tls = self._address.host, *_listener(session)
        else:
            parts = urlsplit(given)
            if parts.scheme not in {"http", "https"} or not parts.hostname:
                raise CommandFailed(
                    f"--http must be like http://localhost:8080, not {given!r}.", USAGE
                )
            self._tls = parts.scheme == "https"
            self.host = parts.hostname
            self.port = parts.port or (443 if self._tls else 80)

    def connect(self, timeout: float) -> http.client.HTTPConnection:
        if not self._tls:
            return http.client.HTTPConnection(self.host, self.port, timeout=timeout)
        context = self._address.create_tls_context() or ssl.create_default_context()
        return http.client.HTTPSConnection(self.host, self.port, timeout=timeout, context=context)

    def headers(self) -> dict[str, str]:
        address = self._address
        if address.user:
            pair = base64.b64encode(f"{address.user}:{address.password}".encode()).decode()
            return {"Authorization": f"Basic {pair}"}
        return {"Authorization": f"Bearer {address.password}"} if address.password else {}


def _listener(session: Context) -> tuple[int, bool]:
    listener = session.api("GET", "/listeners")["listeners"].get("http")
    if listener is None:
        raise CommandFailed("the server does not listen for HTTP, and this comes by that only.")
    return int(listener["port"]), bool(listener["tls"])


class EventStream:
    """A context. `close`, from any thread, ends what runs in it."""

    def __init__(self, web: HttpEndpoint, *, persistent: bool = True) -> None:
        """`persistent`: connects again when the connection is lost."""
        self.last_id = ""
        self._web = web
        self._persistent = persistent
        self._was_connected = False
        self._closed = threading.Event()
        self._socket: socket.socket | None = None
        self._open_connections: list[http.client.HTTPConnection | http.client.HTTPResponse] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
        self._disconnect()

    def events(self, **query: str) -> Iterator[ServerEvent]:
        """Return the requested events; the parameters are those of docs/events.md."""
        tries = 0
        while not self._closed.is_set():
            try:
                for event in self._connect_and_read(query):
                    tries = 0
                    yield event
                if not self._persistent:
                    self._raise_unreachable("has ended before all was told")
            except TimeoutError:
                if not self._persistent:
                    self._raise_unreachable(f"has told nothing for {SILENCE_S:g} seconds")
            except (OSError, http.client.HTTPException, ValueError) as error:
                # A server that was never reached is not waited for.
                known = self._persistent and self._was_connected
                if not known and not self._closed.is_set():
                    self._raise_unreachable(f"cannot be reached: {error}")
            self._disconnect()
            self._closed.wait(_RETRY_PAUSES_S[min(tries, len(_RETRY_PAUSES_S) - 1)])
            tries += 1

    def _raise_unreachable(self, of: str) -> None:
        where = f"http://{self._web.host}:{self._web.port}"
        raise CommandFailed(f"{where} {of}.", UNREACHABLE) from None

    def close(self) -> None:
        self._closed.set()
        connected = self._socket
        if connected is not None:
            with contextlib.suppress(OSError):  # it was lost already
                connected.shutdown(socket.SHUT_RDWR)

    def _disconnect(self) -> None:
        self._socket = None
        while self._open_connections:
            self._open_connections.pop().close()

    def _connect_and_read(self, query: dict[str, str]) -> Iterator[ServerEvent]:
        connection = self._web.connect(SILENCE_S)
        self._open_connections.append(connection)
        connection.connect()
        self._socket = connection.sock
        headers = self._web.headers()
        if self.last_id:
            headers["Last-Event-ID"] = self.last_id
        tail = f"?{urlencode(query)}" if query else ""
        connection.request("GET", f"/api/v1/events{tail}", headers=headers)
        answer = connection.getresponse()
        self._open_connections.append(answer)
        if answer.status != 200:
            _raise_refused(answer)
        self._was_connected = True
        yield from self._parse_events(answer)

    def _parse_events(self, answer: http.client.HTTPResponse) -> Iterator[ServerEvent]:
        kind, data = "", b""
        while line := answer.readline():
            line = line.rstrip(b"\r\n")
            field, _, value = line.partition(b":")
            value = value.removeprefix(b" ")
            if field == b"data":
                data += value
            elif field == b"event":
                kind = value.decode()
            elif field == b"id":
                self.last_id = value.decode()
            elif not line:
                if data:
                    yield ServerEvent(self.last_id, kind, json.loads(data))
                kind, data = "", b""


def _raise_refused(answer: http.client.HTTPResponse) -> None:
    """Raises a Failure, or returns if it may be otherwise later."""
    try:
        detail = str(json.loads(answer.read(1 << 16)).get("detail", ""))
    except (ValueError, AttributeError):
        detail = ""
    detail = detail or f"{answer.status} {answer.reason}"
    if answer.status in {401, 403}:
        raise CommandFailed(f"{detail.rstrip('.')}: log in as one who may inspect this.", DENIED)
    if answer.status < 500:
        raise CommandFailed(f"{detail.rstrip('.')}.", REFUSED)
    raise OSError(detail)
