"""Colours, if the output is a terminal and they are not switched off."""

import os
from typing import Final, TextIO

_CODES: Final = {
    "bold": "1",
    "dim": "2",
    "reverse": "7",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "blue": "34",
    "magenta": "35",
    "cyan": "36",
}
STATES: Final = {
    "ready": "green",
    "leased": "cyan",
    "delayed": "yellow",
    "blocked": "magenta",
    "succeeded": "green",
    "failed": "red",
    "gone": "dim",
}


def is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty()
    except ValueError:  # it is closed
        return False


def columns_of(stream: TextIO) -> int:
    """Return the terminal's width; some terminals report 0 if they do not know it."""
    return os.get_terminal_size(stream.fileno()).columns or 80


class Style:
    def __init__(self, stream: TextIO) -> None:
        self.coloured = (
            is_terminal(stream)
            and not os.environ.get("NO_COLOR")
            and os.environ.get("TERM", "") != "dumb"
        )

    def paint(self, text: str, *looks: str) -> str:
        codes = ";".join(_CODES[look] for look in looks if look)
        if not self.coloured or not codes or not text:
            return text
        return f"\x1b[{codes}m{text}\x1b[0m"
