"""Recognises input of another protocol at a port that does not speak it.

A browser sends HTTP requests for whatever page it shows, to any port of its own machine, and a TLS
handshake where the page says so; a proxy may be set up for the wrong port. The first lines of those
are no commands, but what an attacker's page has put behind or into them may be.
"""

from __future__ import annotations

import re
from typing import Final

NOT_HTTP: Final = "this port does not speak HTTP"
NOT_TLS: Final = "this port does not speak TLS"
NOT_RESP: Final = "this port does not speak RESP"
NOT_PROXY: Final = "this port does not take the PROXY protocol"

_HANDSHAKE: Final = 0x16  # the first byte of a TLS connection, and of no command
_METHOD: Final = re.compile(rb"[A-Za-z-]{1,32}")
_VERSION: Final = re.compile(rb"HTTP/[0-9](\.[0-9])?")
_ARRAY: Final = re.compile(rb"\*[0-9]{1,9}")


def looks_like_tls(data: bytes) -> bool:
    """Whether a connection that begins with this is encrypted."""
    return len(data) > 0 and data[0] == _HANDSHAKE


def wrong_protocol_error(words: list[bytes]) -> str:
    """Which protocol a line that is no command belongs to: what to say of it; "": none that is
    known. No command of ours begins in one of these ways."""
    if not words:
        return ""
    first = words[0]
    if first[:5].upper() in (b"POST", b"HOST:") or looks_like_http(words):
        return NOT_HTTP
    return NOT_PROXY if first == b"PROXY" else ""


def wrong_protocol_or_resp_error(words: list[bytes]) -> str:
    """The same for protocols whose commands are lines: each line of a RESP array would be a
    command.
    """
    error = wrong_protocol_error(words)
    if not error and words and _ARRAY.fullmatch(words[0]) is not None:
        return NOT_RESP
    return error


def looks_like_http(words: list[bytes]) -> bool:
    """Whether it is the first line of a request, as GET / HTTP/1.1 or PRI * HTTP/2.0."""
    return (
        len(words) == 3
        and _VERSION.fullmatch(words[2]) is not None
        and _METHOD.fullmatch(words[0]) is not None
    )
