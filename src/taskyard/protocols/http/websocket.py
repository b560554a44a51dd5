"""WebSockets: a connection that has been HTTP so far continues in messages.

picows does the handshake, the frames and the control frames; this joins frames to messages, bounds
them, and keeps the connection's own transport in between, so that backpressure, counting and the
end of a connection are the same as for every other protocol.
"""

from __future__ import annotations

import asyncio
import logging
import re
from typing import Protocol

from picows import WSAutoPingStrategy, WSCloseCode, WSFrame, WSListener, WSMsgType, WSTransport
from picows.picows import WSProtocol  # type: ignore[attr-defined]

from taskyard.protocols.http.auth import is_cross_site
from taskyard.protocols.http.wire import ParsedRequest, Response, problem

PING_AFTER = 30.0  # seconds without input, after which a client gets a ping
PONG_WITHIN = 30.0
MAX_PARTS = 4096  # frames of one message
_BUFFER = 16_384
_LARGE = 262_144  # bytes of a frame for which picows has made its buffer larger than it has to stay
_KEY = re.compile(r"[A-Za-z0-9+/]{22}==", re.ASCII)

# What picows would log is logged by the message handler, in our own words.
_silent = logging.getLogger("taskyard.websocket")
_silent.setLevel(logging.CRITICAL + 1)

# Why a conversation ends that the client has broken off, or has not kept to the protocol in.
_END_REASONS = {
    WSCloseCode.MESSAGE_TOO_BIG: "a message was too large",
    WSCloseCode.POLICY_VIOLATION: f"a message had more than {MAX_PARTS} frames",
}


class MessageHandler(Protocol):
    """Receives complete messages."""

    def on_text(self, data: bytes) -> None: ...

    def on_binary(self, data: bytes) -> None: ...

    def on_pong(self, data: bytes) -> None: ...

    def on_close(self, reason: str) -> None:
        """Close the connection once all replies are sent.

        `reason` is what the client has done wrong, or empty if it has closed the WebSocket.
        """
        ...


class WebSocket(WSListener):
    """The reading side of one WebSocket: bytes in, messages out to its handler."""

    def __init__(self, transport: asyncio.Transport, limit: int) -> None:
        super().__init__()
        self._limit = limit
        self._handler: MessageHandler | None = None
        self._parts = bytearray()  # of a message in several frames
        self._part_count = 0
        self._since_frame = 0  # bytes since the last whole frame
        self._kind = WSMsgType.TEXT
        # What was read and not delivered yet. picows would swallow the handler's errors.
        self._received: list[tuple[WSMsgType, bytes]] = []
        self._ignores_frames = False  # a frame, so that those behind it do not count
        self._end_reason: str | None = None  # why the conversation has ended
        self._buffer_is_large = False  # picows has made its buffer larger
        self._request = b""
        self._transport = _PicowsTransport(transport)
        self._protocol = self._new_protocol()

    def _new_protocol(self) -> WSProtocol:
        protocol = WSProtocol(
            None,
            None,
            False,
            lambda _: self,
            _silent,
            True,
            None,
            True,
            PING_AFTER,
            PONG_WITHIN,
            WSAutoPingStrategy.PING_WHEN_IDLE,
            False,
            self._limit,
            None,
            _BUFFER,
        )
        protocol.connection_made(self._transport)
        return protocol

    def complete_handshake(self, incoming: ParsedRequest) -> None:
        """Say yes to a request that `refuse` had nothing against."""
        key = incoming.request.headers["sec-websocket-key"]
        # Browsers send more words, of which picows understands only these.
        head = [
            f"GET {incoming.raw_path} HTTP/1.1",
            "host: taskyard",
            "connection: upgrade",
            "upgrade: websocket",
            "sec-websocket-version: 13",
            f"sec-websocket-key: {key}",
        ]
        self._request = ("\r\n".join(head) + "\r\n\r\n").encode("latin-1")
        self.feed(self._request)

    def attach_handler(self, handler: MessageHandler, received: bytes) -> None:
        """Deliver messages from now on; `received` has already arrived."""
        self._handler = handler
        self._since_frame = 0
        if received:
            self.feed(received)

    def partial_message_bytes(self) -> int:
        return self._since_frame + len(self._parts) + self._part_count

    def feed(self, data: bytes) -> None:
        view = memoryview(data)
        while view and self._end_reason is None:
            room = self._protocol.get_buffer(len(view))
            count = min(len(room), len(view))
            room[:count] = view[:count]
            self._since_frame += count
            self._protocol.buffer_updated(count)
            view = view[count:]
            self._deliver_messages()
        if self._buffer_is_large and not self._since_frame and self._end_reason is None:
            self._buffer_is_large = False
            if self._handler is not None:
                self._release_buffer()

    def on_disconnect(self) -> None:
        self._handler = None
        self._protocol.connection_lost(None)

    def _deliver_messages(self) -> None:
        """Deliver the messages that were read, and close if the data behind them is invalid."""
        received, self._received = self._received, []
        speaker = self._handler
        for kind, payload in received:
            if speaker is None:
                return
            if kind == WSMsgType.TEXT:
                speaker.on_text(payload)
            elif kind == WSMsgType.BINARY:
                speaker.on_binary(payload)
            else:
                speaker.on_pong(payload)
            speaker = self._handler  # which may have gone meanwhile
        sent = self._protocol.transport.close_handshake
        if sent is None or self._end_reason is not None:
            return
        # picows would continue after invalid input: nothing more may get there.
        if sent.recv_then_sent:
            self._end_reason = ""
        else:
            self._end_reason = _END_REASONS.get(
                sent.sent.code, "a frame was not as the protocol has it"
            )
        if speaker is not None:
            speaker.on_close(self._end_reason)

    def _release_buffer(self) -> None:
        """Free the memory of a large frame: picows keeps a buffer of the largest."""
        self._protocol.connection_lost(None)
        self._transport.muted = True  # it believes that hands are shaken anew
        self._protocol = self._new_protocol()
        room = self._protocol.get_buffer(len(self._request))
        room[: len(self._request)] = self._request
        self._protocol.buffer_updated(len(self._request))
        self._transport.muted = False

    # From picows

    def is_user_specific_pong(self, frame: WSFrame) -> bool:
        """Pongs of keep-alive are empty; others are for the message handler."""
        if frame.msg_type != WSMsgType.PONG or frame.payload_size or _has_reserved_bits(frame):
            return False
        self._since_frame = frame.tail_size
        return True

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        if self._ignores_frames:
            return
        kind = frame.msg_type
        self._since_frame = frame.tail_size
        if _has_reserved_bits(frame):  # of extensions, and none was agreed on
            self._send_close(transport, WSCloseCode.PROTOCOL_ERROR)
        elif kind == WSMsgType.CLOSE:
            self._ignores_frames = True
            transport.send_close(frame.get_close_code(), frame.get_close_message())
        elif kind == WSMsgType.PING:
            transport.send_pong(frame.get_payload_as_bytes())
        elif kind == WSMsgType.PONG:
            self._received.append((kind, frame.get_payload_as_bytes()))
        else:
            self._add_frame(transport, frame)

    def _add_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        kind = frame.msg_type
        if (kind == WSMsgType.CONTINUATION) != bool(self._part_count):
            self._send_close(transport, WSCloseCode.PROTOCOL_ERROR)
            return
        if frame.payload_size > _LARGE:
            self._buffer_is_large = True
        if frame.fin and not self._part_count:
            self._received.append((kind, frame.get_payload_as_bytes()))
            return
        if not self._part_count:
            self._kind = kind
        self._part_count += 1
        if len(self._parts) + frame.payload_size > self._limit:
            self._send_close(transport, WSCloseCode.MESSAGE_TOO_BIG)
        elif self._part_count > MAX_PARTS:
            self._send_close(transport, WSCloseCode.POLICY_VIOLATION)
        else:
            self._parts += frame.get_payload_as_bytes()
            if frame.fin:
                self._received.append((self._kind, bytes(self._parts)))
                self._parts = bytearray()
                self._part_count = 0

    def _send_close(self, transport: WSTransport, code: WSCloseCode) -> None:
        self._ignores_frames = True
        transport.send_close(code)


class _PicowsTransport(asyncio.Transport):
    """The connection's transport as picows has it. When to close is up to the message handler,
    which may have something left to say.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__()
        self.muted = False
        self._transport = transport

    def get_extra_info(self, name: str, default: object = None) -> object:
        return self._transport.get_extra_info(name, default)

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self.muted and not self._transport.is_closing():  # uvloop would raise
            self._transport.write(data)

    def close(self) -> None:
        pass

    def abort(self) -> None:
        self._transport.abort()


def _has_reserved_bits(frame: WSFrame) -> bool:
    return frame.rsv1 or frame.rsv2 or frame.rsv3


def refuse_upgrade(incoming: ParsedRequest, allowed_origins: frozenset[str]) -> Response | None:
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
    if not is_cross_site(headers, allowed_origins):
        return None
    origin = headers.get("origin", "other sites")
    detail = f"Pages of {origin} may not connect; the operator can allow them."
    return problem(403, detail)
