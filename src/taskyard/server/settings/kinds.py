"""The kinds of value a setting can have: how each is read from a text or from TOML, and shown.

A kind refuses a value with a ValueError that reads on after the name of the setting.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from taskyard.shared.text import (
    format_duration,
    format_size,
    parse_duration,
    parse_size,
    valid_name,
)

T = TypeVar("T")

_TOML_NAMES = {
    bool: "a boolean",
    int: "an integer",
    float: "a float",
    str: "a string",
    list: "an array",
    dict: "a table",
}


@dataclass(frozen=True)
class QueueTable:
    """A pattern of names and what is set for them: by the names of QueueSettings."""

    pattern: str
    settings: tuple[tuple[str, int], ...]


@dataclass(frozen=True, kw_only=True)
class SettingKind(Generic[T]):
    metavar: str  # the placeholder in --help
    expected: str  # the end of the sentence "must be ..."
    parse: Callable[[str], T]  # raises ValueError
    show: Callable[[T], str]  # the text that parse reads back
    toml: tuple[type, ...] = (str,)  # an integer is read as the text of its digits
    limits: tuple[T, T] | None = None
    value_without_argument: str | None = None  # what the flag stands for when no value follows it

    def from_text(self, text: str) -> T:
        try:
            value = self.parse(text)
        except ValueError as error:
            raise ValueError(f"must be {self.expected}, not {text!r}") from error
        if not self._within_limits(value):
            raise ValueError(f"must be {self.range()}, not {text}")
        return value

    def from_toml(self, value: object) -> T:
        # A TOML boolean is an int to Python, so the type itself is compared.
        if type(value) not in self.toml:
            name = _TOML_NAMES.get(type(value), "a date or time")
            raise ValueError(f"must be {self.expected}, not {name}")
        return self.from_text(str(value))

    def range(self) -> str:
        """Return the limits as a text, or nothing where there are none."""
        if self.limits is None:
            return ""
        low, high = self.limits
        return f"from {self.show(low)} to {self.show(high)}"

    def _within_limits(self, value: T) -> bool:
        if self.limits is None or not isinstance(value, int):
            return True
        low, high = self.limits
        assert isinstance(low, int)
        assert isinstance(high, int)
        return low <= value <= high


def duration(low: str, high: str) -> SettingKind[int]:
    """Microseconds, written as Go does it."""
    return SettingKind(
        metavar="DURATION",
        expected="a duration such as 45s or 1m30s",
        parse=parse_duration,
        show=_show_duration,
        limits=(parse_duration(low), parse_duration(high)),
    )


def duration_or_off(low: str, high: str) -> SettingKind[int | None]:
    """The same, or "off" (None)."""
    return SettingKind(
        metavar="DURATION",
        expected='a duration such as 45s or 1m30s, or "off"',
        parse=lambda text: None if text == "off" else parse_duration(text),
        show=lambda value: "off" if value is None else _show_duration(value),
        limits=(parse_duration(low), parse_duration(high)),
    )


def size(low: str, high: str) -> SettingKind[int]:
    """Bytes."""
    return SettingKind(
        metavar="SIZE",
        expected="a size such as 64MiB or 4096",
        parse=parse_size,
        show=format_size,
        toml=(str, int),
        limits=(parse_size(low), parse_size(high)),
    )


def integer(low: int, high: int) -> SettingKind[int]:
    return SettingKind(
        metavar="NUMBER",
        expected="a whole number",
        parse=_parse_integer,
        show=str,
        toml=(int,),
        limits=(low, high),
    )


def number_or(word: str, low: int, high: int) -> SettingKind[int | None]:
    """A whole number, or the word (None) that leaves it to the server."""
    return SettingKind(
        metavar="NUMBER",
        expected=f'a whole number or "{word}"',
        parse=lambda text: None if text == word else _parse_integer(text),
        show=lambda value: word if value is None else str(value),
        toml=(str, int),
        limits=(low, high),
    )


class _NumberAutoOff(SettingKind[int | None]):
    def _within_limits(self, value: int | None) -> bool:
        return value == 0 or super()._within_limits(value)


def number_auto_or_off(low: int, high: int) -> SettingKind[int | None]:
    """A whole number, "auto" (None), or "off" (0)."""

    def parse(text: str) -> int | None:
        if text in ("auto", "off"):
            return None if text == "auto" else 0
        number = _parse_integer(text)
        if not number:
            raise ValueError(text)
        return number

    def show(value: int | None) -> str:
        return "auto" if value is None else str(value) if value else "off"

    return _NumberAutoOff(
        metavar="NUMBER",
        expected='a whole number, "auto" or "off"',
        parse=parse,
        show=show,
        toml=(str, int),
        limits=(low, high),
    )


def size_or_off(low: str, high: str) -> SettingKind[int | None]:
    """Bytes, or "off" (None)."""
    return SettingKind(
        metavar="SIZE",
        expected='a size such as 64MiB or 4096, or "off"',
        parse=lambda text: None if text == "off" else parse_size(text),
        show=lambda value: "off" if value is None else format_size(value),
        toml=(str, int),
        limits=(parse_size(low), parse_size(high)),
    )


def port() -> SettingKind[int | None]:
    """A TCP port, 0 for any free one, or "off" (None) for no listener at all."""
    return SettingKind(
        metavar="PORT",
        expected='a port or "off"',
        parse=lambda text: None if text == "off" else _parse_integer(text),
        show=lambda value: "off" if value is None else str(value),
        toml=(str, int),
        limits=(0, 65535),
    )


def percent(low: int, high: int) -> SettingKind[int | None]:
    """A whole number of percent, or "off" (None)."""
    return SettingKind(
        metavar="PERCENT",
        expected='a whole number of percent or "off"',
        parse=lambda text: None if text == "off" else _parse_integer(text),
        show=lambda value: "off" if value is None else str(value),
        toml=(str, int),
        limits=(low, high),
    )


def switch() -> SettingKind[bool]:
    """On or off; a boolean in TOML."""
    return SettingKind(
        metavar="on|off",
        expected="on or off",
        parse=_parse_switch,
        show=lambda value: "on" if value else "off",
        toml=(str, bool),
        value_without_argument="on",
    )


def words() -> SettingKind[tuple[str, ...]]:
    """Any number of them, separated by commas."""
    return SettingKind(
        metavar="WORD,...",
        expected="words separated by commas",
        parse=_parse_words,
        show=",".join,
    )


def host() -> SettingKind[str]:
    return SettingKind(
        metavar="HOST", expected="a host name or address", parse=_parse_host, show=str
    )


def word(expected: str) -> SettingKind[str]:
    """A text without spaces."""
    return SettingKind(metavar="WORD", expected=expected, parse=_parse_host, show=str)


def queue() -> SettingKind[str]:
    return SettingKind(metavar="QUEUE", expected="a queue's name", parse=_parse_queue, show=str)


def path() -> SettingKind[Path]:
    return SettingKind(metavar="PATH", expected="a path", parse=_parse_path, show=str)


def optional_path() -> SettingKind[Path | None]:
    """A path, or None for the empty text."""
    return SettingKind(
        metavar="PATH",
        expected="a path",
        parse=lambda text: _parse_path(text) if text else None,
        show=lambda value: "" if value is None else str(value),
    )


def optional_location() -> SettingKind[str | None]:
    """A path or a URI, or None for the empty text."""
    return SettingKind(
        metavar="PATH|URI",
        expected="a path or a URI",
        parse=lambda text: _parse_location(text) if text else None,
        show=lambda value: value or "",
    )


def choice(*names: str) -> SettingKind[str]:
    def parse(text: str) -> str:
        if text not in names:
            raise ValueError(text)
        return text

    return SettingKind(
        metavar="|".join(names), expected=f"one of {', '.join(names)}", parse=parse, show=str
    )


def _show_duration(us: int) -> str:
    # Without zero minutes and seconds: 168h, not 168h0m0s.
    text = format_duration(us)
    text = text.removesuffix("0s") if text.endswith("m0s") else text
    return text.removesuffix("0m") if text.endswith("h0m") else text


def _parse_integer(text: str) -> int:
    digits = text.removeprefix("-")
    # int() would take spaces, underscores and the digits of other scripts.
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 19):
        raise ValueError(text)
    return int(text)


def _parse_words(text: str) -> tuple[str, ...]:
    words = tuple(word.strip() for word in text.split(","))
    if words == ("",):
        return ()
    if not all(word and word.isprintable() and " " not in word for word in words):
        raise ValueError(text)
    return words


def _parse_switch(text: str) -> bool:
    known = {"on": True, "true": True, "off": False, "false": False}
    value = known.get(text.lower())
    if value is None:
        raise ValueError(text)
    return value


def _parse_host(text: str) -> str:
    if not text or " " in text or not text.isprintable():
        raise ValueError(text)
    return text


def _parse_queue(text: str) -> str:
    if not valid_name(text):
        raise ValueError(text)
    return text


def _parse_location(text: str) -> str:
    return text if "://" in text else str(_parse_path(text))


def _parse_path(text: str) -> Path:
    if not text or "\0" in text:
        raise ValueError(text)
    return Path(text)
