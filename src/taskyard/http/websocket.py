"""WebSockets: a connection that has been HTTP so far goes on in messages.

picows does the handshake, the frames and the control frames; this puts messages together, bounds
them, and keeps the connection's own transport in between, so that back-pressure, counting and the
end of a connection are the same as for every other dialect.
"""

from __future__ import annotations

import asyncio
import logging
import re
from typing import Protocol

from picows import WSAutoPingStrategy, WSCloseCode, WSFrame, WSListener, WSMsgType, WSTransport
from picows.picows import WSProtocol  # type: ignore[attr-defined]

from taskyard.http.messages import Response
from taskyard.http.origins import is_of_other_site
from taskyard.http.parser import Incoming
from taskyard.http.problems import problem

PING_AFTER = 30.0  # seconds without a word, after which a client is asked whether it is there
PONG_WITHIN = 30.0
_BUFFER = 16_384
_KEY = re.compile(r"[A-Za-z0-9+/]{22}==", re.ASCII)

# Not the server's log: it would tell of every connection.
_quiet = logging.getLogger("taskyard.websocket")
_quiet.setLevel(logging.ERROR)


class Speaker(Protocol):
    """Who hears the messages that come, each of them whole."""

    def text(self, data: bytes) -> None: ...

    def data(self, data: bytes) -> None: ...

    def pong(self, data: bytes) -> None: ...

    def hang_up(self, lingers: bool) -> None:
        """Close the connection once all that was said is out."""
        ...


class WebSocket(WSListener):
    """The reading side of one WebSocket: bytes in, messages out to its speaker."""

    def __init__(self, transport: asyncio.Transport, limit: int) -> None:
        super().__init__()
        self._limit = limit
        self._speaker: Speaker | None = None
        self._parts: list[bytes] = []  # of a message that comes in several frames
        self._size = 0
        self._since_frame = 0  # bytes that have come since the last whole frame, or before it
        self._kind = WSMsgType.TEXT
        self._protocol = WSProtocol(
            None,
            None,
            False,
            lambda _: self,
            _quiet,
            True,
            None,
            True,
            PING_AFTER,
            PONG_WITHIN,
            WSAutoPingStrategy.PING_WHEN_IDLE,
            True,
            limit,
            None,
            _BUFFER,
        )
        self._protocol.connection_made(transport)

    def shake_hands(self, incoming: Incoming) -> None:
        """Say yes to a request that `refuse` had nothing against."""
        key = incoming.request.headers["sec-websocket-key"]
        # Browsers ask in more words, of which picows understands only these.
        head = [
            f"GET {incoming.raw_path} HTTP/1.1",
            "host: taskyard",
            "connection: upgrade",
            "upgrade: websocket",
            "sec-websocket-version: 13",
            f"sec-websocket-key: {key}",
        ]
        self.feed(("\r\n".join(head) + "\r\n\r\n").encode("latin-1"))

    def begin(self, speaker: Speaker, rest: bytes) -> None:
        """From now on messages are heard; `rest` has already come."""
        self._speaker = speaker
        self._since_frame = 0
        if rest:
            self.feed(rest)

    def begun(self) -> int:
        return self._since_frame + (self._size if self._parts else 0)

    def feed(self, data: bytes) -> None:
        self._since_frame += len(data)
        view = memoryview(data)
        while view:
            room = self._protocol.get_buffer(len(view))
            count = min(len(room), len(view))
            room[:count] = view[:count]
            self._protocol.buffer_updated(count)
            view = view[count:]

    def lost(self) -> None:
        self._speaker = None
        self._protocol.connection_lost(None)

    # From picows

    def is_user_specific_pong(self, frame: WSFrame) -> bool:
        """Those of keep-alive are empty; others are for the speaker."""
        return frame.msg_type == WSMsgType.PONG and not frame.get_payload_as_bytes()

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        kind = frame.msg_type
        self._since_frame = 0
        if kind == WSMsgType.CLOSE:
            transport.send_close(frame.get_close_code(), frame.get_close_message())
            self._hang_up(False)
        elif kind == WSMsgType.PONG:
            if self._speaker is not None:
                self._speaker.pong(frame.get_payload_as_bytes())
        elif kind in (WSMsgType.TEXT, WSMsgType.BINARY, WSMsgType.CONTINUATION):
            self._take(transport, frame)

    def _take(self, transport: WSTransport, frame: WSFrame) -> None:
        kind = frame.msg_type
        if (kind == WSMsgType.CONTINUATION) != bool(self._parts):
            self._end(transport, WSCloseCode.PROTOCOL_ERROR)
            return
        payload = frame.get_payload_as_bytes()
        if frame.fin and not self._parts:
            self._tell(kind, payload)
            return
        if not self._parts:
            self._kind = kind
            self._size = 0
        self._parts.append(payload)
        self._size += len(payload)
        if self._size > self._limit:
            self._end(transport, WSCloseCode.MESSAGE_TOO_BIG)
        elif frame.fin:
            parts, self._parts = self._parts, []
            self._tell(self._kind, b"".join(parts))

    def _tell(self, kind: WSMsgType, payload: bytes) -> None:
        speaker = self._speaker
        if speaker is None:
            return
        if kind == WSMsgType.TEXT:
            speaker.text(payload)
        else:
            speaker.data(payload)

    def _end(self, transport: WSTransport, code: WSCloseCode) -> None:
        transport.send_close(code)
        self._hang_up(True)

    def _hang_up(self, lingers: bool) -> None:
        if self._speaker is not None:
            self._speaker.hang_up(lingers)


def refuse(incoming: Incoming, allowed_origins: frozenset[str]) -> Response | None:
    """What is wrong with a request for a WebSocket, if anything is."""
    headers = incoming.request.headers
    if incoming.request.method != "GET" or headers.get("upgrade", "").lower() != "websocket":
        return problem(400, "This address is for WebSockets: ask with GET and an upgrade to one.")
    if headers.get("sec-websocket-version") != "13":
        answer = problem(426, "Only version 13 of the WebSocket protocol is spoken here.")
        answer.headers.append(("sec-websocket-version", "13"))
        return answer
    if _KEY.fullmatch(headers.get("sec-websocket-key", "")) is None:
        return problem(400, "Sec-WebSocket-Key must be 16 bytes in base64.")
    if not is_of_other_site(headers, allowed_origins):
        return None
    origin = headers.get("origin", "other sites")
    detail = f"Pages of {origin} may not connect; the operator can allow them."
    return problem(403, detail)
