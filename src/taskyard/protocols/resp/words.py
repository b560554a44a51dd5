"""The arguments of Taskyard's own commands on the RESP listener, which may be in any order."""

from __future__ import annotations

from typing import Final

from taskyard.protocols.resp.values import CommandError, parse_integer, printable
from taskyard.shared.misspelt import suggestion
from taskyard.shared.names import NAME_RULE

MAX_SPAN_MS: Final = 100 * 365 * 86_400_000


class OptionNames:
    """The options of one of Taskyard's own commands."""

    def __init__(self, command: str, words: tuple[str, ...]) -> None:
        self.command = command
        self._words = words

    def unknown_option(self, word: bytes) -> CommandError:
        shown = printable(word)
        question = suggestion(shown, self._words)
        known = ", ".join(self._words)
        return CommandError(f"ERR {self.command} has no word '{shown}'{question} It has {known}")


class OptionReader:
    """Reads the arguments behind the fixed ones: options, most of them with a value."""

    def __init__(self, known: OptionNames, args: list[bytes], at: int, end: int = -1) -> None:
        self._known = known
        self._option = b""  # the last one
        self._args = args
        self._at = at
        self._end = len(args) if end < 0 else end

    def next_option(self) -> bytes:
        """The next word in upper case; b"" at the end."""
        if self._at >= self._end:
            return b""
        self._at += 1
        word = self._args[self._at - 1].upper()
        if not word:
            raise self._known.unknown_option(word)
        self._option = word
        return word

    def unknown_option(self) -> CommandError:
        """Return the error for the last word: there is no such option; and which there are."""
        return self._known.unknown_option(self._args[self._at - 1])

    def next_value(self) -> bytes:
        if self._at >= self._end:
            raise CommandError(
                f"ERR {printable(self._option)} of {self._known.command}: a value is missing"
            )
        self._at += 1
        return self._args[self._at - 1]

    def next_number(self, what: str, least: int, most: int) -> int:
        found = parse_integer(self.next_value())
        if not least <= found <= most:
            raise CommandError(f"ERR {what} must be between {least} and {most}")
        return found

    def next_text(self, what: str) -> str:
        try:
            return self.next_value().decode()
        except UnicodeDecodeError:
            raise CommandError(f"ERR {what}: {NAME_RULE}") from None
