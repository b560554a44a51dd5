"""Bytes of a job as they are shown: JSON as JSON, text as text, anything else as a hex dump."""

import base64
import json
import math
from typing import Any, Final

_DUMPED: Final = 4096  # bytes of a hex dump
_PER_LINE: Final = 16


def content_of(data: bytes) -> dict[str, Any]:
    """The same form that the API gives: size, and one of json, text and base64."""
    shown: dict[str, Any] = {"size": len(data)}
    try:
        text = data.decode()
    except UnicodeDecodeError:
        shown["base64"] = base64.b64encode(data).decode()
        return shown
    try:
        shown["json"] = json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except (ValueError, RecursionError):
        shown["text"] = text
    return shown


def _refuse(word: str) -> float:
    raise ValueError(f"{word} is no JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError("too large to be shown as a number")
    return number


def in_one_line(content: dict[str, Any] | None) -> str:
    if content is None:
        return "-"
    if "json" in content:
        return json.dumps(content["json"], ensure_ascii=False)
    if "text" in content:
        return str(content["text"]) + ("…" if content.get("cut") else "")
    if "base64" in content:
        return base64.b64decode(content["base64"])[:64].hex(" ")
    return f"({content['size']} bytes that are no longer on disk)" if content["size"] else ""


def in_lines(content: dict[str, Any]) -> str:
    if "json" in content:
        return json.dumps(content["json"], ensure_ascii=False, indent=2)
    if "text" in content:
        return str(content["text"])
    if "base64" in content:
        return _dump(base64.b64decode(content["base64"]))
    return in_one_line(content)


def _dump(data: bytes) -> str:
    lines = []
    for at in range(0, min(len(data), _DUMPED), _PER_LINE):
        some = data[at : at + _PER_LINE]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in some)
        lines.append(f"{at:08x}  {some.hex(' '):<{_PER_LINE * 3 - 1}}  {text}")
    if len(data) > _DUMPED:
        lines.append(f"... and {len(data) - _DUMPED:,} bytes more: --json shows all")
    return "\n".join(lines)
