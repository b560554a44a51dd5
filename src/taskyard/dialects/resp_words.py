"""The arguments of Taskyard's own words on the RESP listener, which may come in any order."""

from __future__ import annotations

from typing import Final

from taskyard.dialects.resp_values import SYNTAX, Refused, integer
from taskyard.names import NAME_RULE

MAX_SPAN_MS: Final = 100 * 365 * 86_400_000


class Words:
    """The arguments behind the fixed ones: words, most of them with a value."""

    def __init__(self, args: list[bytes], at: int, end: int = -1) -> None:
        self._args = args
        self._at = at
        self._end = len(args) if end < 0 else end

    def next(self) -> bytes:
        """The next word in upper case; b"" at the end."""
        if self._at >= self._end:
            return b""
        self._at += 1
        word = self._args[self._at - 1].upper()
        if not word:
            raise Refused(SYNTAX)
        return word

    def value(self) -> bytes:
        if self._at >= self._end:
            raise Refused(SYNTAX)
        self._at += 1
        return self._args[self._at - 1]

    def number(self, what: str, least: int, most: int) -> int:
        found = integer(self.value())
        if not least <= found <= most:
            raise Refused(f"ERR {what} must be between {least} and {most}")
        return found

    def text(self, what: str) -> str:
        try:
            return self.value().decode()
        except UnicodeDecodeError:
            raise Refused(f"ERR {what}: {NAME_RULE}") from None
