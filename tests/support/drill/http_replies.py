"""Answers of an HTTP server taken apart, as far as these clients need it. No I/O."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

BODILESS = (101, 204)


@dataclass(frozen=True, slots=True)
class HttpReply:
    status: int
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class HttpReader:
    """Bytes in, answers out. After an upgrade, what follows is in `rest`."""

    def __init__(self) -> None:
        self.rest = b""

    def feed(self, data: bytes) -> None:
        self.rest += data

    def next(self) -> HttpReply | None:
        """The next answer, once it is whole."""
        head, end, _ = self.rest.partition(b"\r\n\r\n")
        if not end:
            return None
        first, *lines = head.decode("latin-1").split("\r\n")
        version, status = first.split(" ")[:2]
        assert version == "HTTP/1.1", first
        fields = {
            name.lower(): value.strip() for name, _, value in (f.partition(":") for f in lines)
        }
        assert "transfer-encoding" not in fields, first
        size = 0 if int(status) in BODILESS else int(fields["content-length"])
        start = len(head) + 4
        if len(self.rest) < start + size:
            return None
        body, self.rest = self.rest[start : start + size], self.rest[start + size :]
        return HttpReply(int(status), body)


def http_request(method: str, path: str, body: bytes = b"", content_type: str = "") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1"]
    if content_type:
        lines += [f"Content-Type: {content_type}", f"Content-Length: {len(body)}"]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + body
