"""Texts of others in a log or on a terminal: nothing in them takes effect.

Names, payloads and errors are written by clients. A control character in one could rewrite the
screen or type for the user, and a mark of direction could show another text than there is.
"""

import re
from typing import Final

# Control characters (C0, DEL and C1), what changes the direction of text, what is invisible, what
# ends a line, and halves of surrogate pairs.
_UNSAFE: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\ud800-\udfff\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)
_SHORT: Final = {"\n": "\\n", "\t": "\\t", "\r": "\\r", "\x1b": "\\e"}


def escape_unsafe(text: str) -> str:
    """In one line, with what could act on a terminal spelled out."""
    if text.isascii() and text.isprintable():
        return text
    return _UNSAFE.sub(_escape_character, text)


def escape_unsafe_lines(text: str) -> list[str]:
    """The same, but its lines stay lines, and tabs are spaces."""
    return [escape_unsafe(line.expandtabs(8)) for line in text.replace("\r\n", "\n").split("\n")]


def escape_unsafe_json(text: str) -> str:
    """JSON in which no character acts on a terminal: inside of its texts they become escapes."""
    if text.isascii() and text.isprintable():
        return text
    return _UNSAFE.sub(_escape_json_character, text)


def _escape_character(match: re.Match[str]) -> str:
    char = match[0]
    code = ord(char)
    if char in _SHORT:
        return _SHORT[char]
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _escape_json_character(match: re.Match[str]) -> str:
    char = match[0]
    if char == "\n":  # between values, where it is white space
        return char
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
