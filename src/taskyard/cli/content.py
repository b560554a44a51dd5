"""Bytes of a job as they are shown: JSON as JSON, text as text, anything else as a hex dump."""

import base64
import json
import math
from typing import Any, Final

_MAX_DUMP_BYTES: Final = 4096  # bytes of a hex dump
_BYTES_PER_LINE: Final = 16


def content_from_bytes(data: bytes) -> dict[str, Any]:
    """The same form that the API gives: size, and one of json, text and base64."""
    shown: dict[str, Any] = {"size": len(data)}
    try:
        text = data.decode()
    except UnicodeDecodeError:
        shown["base64"] = base64.b64encode(data).decode()
        return shown
    try:
        shown["json"] = json.loads(
            text, parse_constant=_reject_constant, parse_float=_finite_number
        )
    except (ValueError, RecursionError):
        shown["text"] = text
    return shown


def _reject_constant(word: str) -> float:
    raise ValueError(f"{word} is no JSON")


def _finite_number(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError("too large to be shown as a number")
    return number


def format_in_one_line(content: dict[str, Any] | None) -> str:
    if content is None:
        return "-"
    if "json" in content:
        return json.dumps(content["json"], ensure_ascii=False)
    if "text" in content:
        return str(content["text"]) + ("…" if content.get("cut") else "")
    if "base64" in content:
        return base64.b64decode(content["base64"])[:64].hex(" ")
    return f"({content['size']} bytes that are no longer on disk)" if content["size"] else ""


def format_lines(content: dict[str, Any]) -> str:
    if "json" in content:
        return json.dumps(content["json"], ensure_ascii=False, indent=2)
    if "text" in content:
        return str(content["text"])
    if "base64" in content:
        return _hex_dump(base64.b64decode(content["base64"]))
    return format_in_one_line(content)


def _hex_dump(data: bytes) -> str:
    lines = []
    for at in range(0, min(len(data), _MAX_DUMP_BYTES), _BYTES_PER_LINE):
        some = data[at : at + _BYTES_PER_LINE]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in some)
        lines.append(f"{at:08x}  {some.hex(' '):<{_BYTES_PER_LINE * 3 - 1}}  {text}")
    if len(data) > _MAX_DUMP_BYTES:
        lines.append(f"... and {len(data) - _MAX_DUMP_BYTES:,} bytes more: --json shows all")
    return "\n".join(lines)
