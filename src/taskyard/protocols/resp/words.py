"""The arguments of Taskyard's own words on the RESP listener, which may come in any order."""

from __future__ import annotations

from typing import Final

from taskyard.protocols.resp.values import Refused, integer, shown
from taskyard.shared.misspelt import or_rather
from taskyard.shared.names import NAME_RULE

MAX_SPAN_MS: Final = 100 * 365 * 86_400_000


class Spoken:
    """A command of ours, and the words that it knows."""

    def __init__(self, command: str, words: tuple[str, ...]) -> None:
        self.command = command
        self._words = words

    def unknown(self, word: bytes) -> Refused:
        told = shown(word)
        question = or_rather(told, self._words)
        known = ", ".join(self._words)
        return Refused(f"ERR {self.command} has no word '{told}'{question} It has {known}")


class Words:
    """The arguments behind the fixed ones: words, most of them with a value."""

    def __init__(self, spoken: Spoken, args: list[bytes], at: int, end: int = -1) -> None:
        self._spoken = spoken
        self._word = b""  # the last one
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
            raise self._spoken.unknown(word)
        self._word = word
        return word

    def unknown(self) -> Refused:
        """What to say of the last word: that there is no such one, and which there are."""
        return self._spoken.unknown(self._args[self._at - 1])

    def value(self) -> bytes:
        if self._at >= self._end:
            raise Refused(f"ERR {shown(self._word)} of {self._spoken.command}: a value is missing")
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
