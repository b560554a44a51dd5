"""The public id of a job as text: a UUID in its canonical form."""

from __future__ import annotations

from binascii import hexlify, unhexlify
from typing import Final

_DASH: Final = 45


def parse_uid(text: bytes) -> bytes | None:
    """The 16 bytes of a UUID, in either case; None if it is none."""
    if (
        len(text) != 36
        or text[8] != _DASH
        or text[13] != _DASH
        or text[18] != _DASH
        or text[23] != _DASH
    ):
        return None
    digits = text.replace(b"-", b"")
    if len(digits) != 32:
        return None
    try:
        return unhexlify(digits)
    except ValueError:
        return None


def show_uid(uid: bytes) -> bytes:
    text = hexlify(uid)
    return b"-".join([text[:8], text[8:12], text[12:16], text[16:20], text[20:]])
