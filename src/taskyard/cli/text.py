"""Texts of others on a terminal: nothing in them is obeyed, and each has a known width.

Names, payloads and errors come from whoever pushed a job. An escape sequence in one could rewrite
the screen or type for the user, and a mark of direction could show another text than there is.
"""

import re
import unicodedata
from typing import Final

# Control characters, what changes the direction of text, what is invisible, what ends a line, and
# halves of surrogate pairs.
_UNSAFE: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\ud800-\udfff\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)
_SHORT: Final = {"\n": "\\n", "\t": "\\t", "\r": "\\r", "\x1b": "\\e"}
ELLIPSIS: Final = "…"


def safe(text: str) -> str:
    """In one line, with what could act on a terminal spelled out."""
    if text.isascii() and text.isprintable():
        return text
    return _UNSAFE.sub(_spelled, text)


def safe_lines(text: str) -> list[str]:
    """The same, but its lines stay lines, and tabs are spaces."""
    return [safe(line.expandtabs(8)) for line in text.replace("\r\n", "\n").split("\n")]


def safe_json(text: str) -> str:
    """JSON in which no character acts on a terminal: inside of its texts they become escapes."""
    if text.isascii() and text.isprintable():
        return text
    return _UNSAFE.sub(_escaped, text)


def width(text: str) -> int:
    """How many columns of a terminal a safe text takes."""
    if text.isascii():
        return len(text)
    return sum(_width_of(char) for char in text)


def cut(text: str, most: int) -> str:
    """At most so wide; an ellipsis stands for what is left out."""
    if len(text) * 2 <= most or width(text) <= most:
        return text
    if most <= 0:
        return ""
    kept = []
    room = most - 1
    for char in text:
        room -= _width_of(char)
        if room < 0:
            break
        kept.append(char)
    return "".join(kept) + ELLIPSIS


def pad(text: str, to: int, right: bool = False) -> str:
    missing = " " * (to - width(text))
    return missing + text if right else text + missing


def _width_of(char: str) -> int:
    if char.isascii():
        return 1
    if unicodedata.combining(char) or unicodedata.category(char) in {"Mn", "Me", "Cf"}:
        return 0
    return 2 if unicodedata.east_asian_width(char) in {"W", "F"} else 1


def _spelled(match: re.Match[str]) -> str:
    char = match[0]
    code = ord(char)
    if char in _SHORT:
        return _SHORT[char]
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _escaped(match: re.Match[str]) -> str:
    char = match[0]
    if char == "\n":  # between values, where it is white space
        return char
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
