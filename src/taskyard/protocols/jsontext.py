"""JSON kept as text: white space removed, and payloads of other protocols made JSON."""

from __future__ import annotations

import base64
import re
from typing import Final

import msgspec

_STRING_OR_SPACE: Final = re.compile(rb'("(?:[^"\\]|\\.)*")|[ \t\r\n]+', re.DOTALL)
_TAB: Final = 9
_LF: Final = 10
_CR: Final = 13
_SPACE: Final = 32
_QUOTE: Final = 34
_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(msgspec.Raw).decode


def compact(text: bytes) -> bytes:
    """Valid JSON without the white space between its tokens; spelling and order stay."""
    if text and text[0] == _QUOTE and text[-1] == _QUOTE:
        return text  # one string, whose spaces are its own
    # By their numbers: bytes would be tried as numbers first, which costs an exception each.
    if _SPACE in text or _LF in text or _TAB in text or _CR in text:
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
