"""JSON kept as text: white space taken out, and payloads of other dialects made JSON."""

from __future__ import annotations

import base64
import re
from typing import Final

import msgspec

_STRING_OR_SPACE: Final = re.compile(rb'("(?:[^"\\]|\\.)*")|[ \t\r\n]+', re.DOTALL)
_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(msgspec.Raw).decode


def compact(text: bytes) -> bytes:
    """Valid JSON without the white space between its tokens; spelling and order stay."""
    if b" " in text or b"\n" in text or b"\t" in text or b"\r" in text:
        return _STRING_OR_SPACE.sub(rb"\1", text)
    return text


def as_json(payload: bytes) -> bytes:
    """Any payload as one JSON value: JSON as it is, text as a string, else base64 in an object."""
    if not payload:
        return b'""'
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return _encode({"base64": base64.b64encode(payload).decode()})
    try:
        return compact(bytes(_decode(payload)))
    except (msgspec.MsgspecError, RecursionError):
        return _encode(text)
