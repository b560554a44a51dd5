"""Texts on a terminal: what they are cut and padded to. What is in them is made safe before."""

import unicodedata
from typing import Final

from taskyard.shared.escaping import escape_unsafe, escape_unsafe_json, escape_unsafe_lines

__all__ = [
    "ELLIPSIS",
    "cut",
    "escape_unsafe",
    "escape_unsafe_json",
    "escape_unsafe_lines",
    "pad",
    "width",
]

ELLIPSIS: Final = "…"


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
