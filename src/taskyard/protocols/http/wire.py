"""Responses as bytes."""

from __future__ import annotations

from http import HTTPStatus

from taskyard.protocols.http.messages import Response

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"
BODYLESS = (204, 304)
# What every answer has that does not say otherwise: no cache keeps it, and no browser takes it for
# something else than it is.
NO_STORE = "cache-control: no-store"
NO_SNIFF = "x-content-type-options: nosniff"
_DEFAULT_HEADERS = f"{NO_STORE}\r\n{NO_SNIFF}"
# Under TLS: for a year, browsers come back with TLS only.
ONLY_TLS = "strict-transport-security: max-age=31536000"


def encode(
    response: Response,
    *,
    keep_alive: bool,
    head_only: bool,
    request_id: str = "",
    secure: bool = False,
) -> bytes:
    lines = [_status_line(response.status)]
    if response.status not in BODYLESS:
        lines.append(f"content-type: {response.content_type}")
        lines.append(f"content-length: {len(response.body)}")
    headers = response.headers
    if not headers:
        lines.append(_DEFAULT_HEADERS)
    else:
        lines.extend([f"{name}: {value}" for name, value in headers])
        names = [name for name, _ in headers]
        if "cache-control" not in names:
            lines.append(NO_STORE)
        if "x-content-type-options" not in names:
            lines.append(NO_SNIFF)
    if secure:
        lines.append(ONLY_TLS)
    if request_id:
        lines.append(f"x-request-id: {request_id}")
    if not keep_alive:
        lines.append("connection: close")
    head = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
    return head if head_only or response.status in BODYLESS else head + response.body


def encode_stream_head(content_type: str, request_id: str = "", secure: bool = False) -> bytes:
    """The head of a response in chunks, which no cache and no proxy should hold back."""
    lines = [
        _status_line(200),
        f"content-type: {content_type}",
        NO_STORE,
        NO_SNIFF,
        "x-accel-buffering: no",
        "transfer-encoding: chunked",
    ]
    if secure:
        lines.append(ONLY_TLS)
    if request_id:
        lines.append(f"x-request-id: {request_id}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def encode_chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _status_line(status: int) -> str:
    return f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"
