"""Numbers, times and names as a report writes them: the filters of its page."""

import unicodedata
from collections.abc import Iterable
from datetime import datetime
from typing import Final

from markupsafe import Markup, escape

NONE: Final = "\N{EN DASH}"
_LONG: Final = 40
_LABEL: Final = 28
_NARROW: Final = 16
_HIDDEN: Final = ("Cc", "Cf", "Cs", "Zl", "Zp")


def count(number: float | None) -> str:
    return NONE if number is None else f"{number:,.0f}".replace(",", "\u202f")


def share(part: float, whole: float) -> str:
    """A percentage; never one that says none or all when that is not so."""
    if not whole:
        return NONE
    percent = 100 * part / whole
    if 0 < percent < 0.1:
        return "<0.1 %"
    if 99.9 < percent < 100:
        return ">99.9 %"
    return f"{percent:.1f} %".replace(".0 %", " %")


def duration(seconds: float | None) -> str:
    if seconds is None:
        return NONE
    if seconds < 0.001:
        return "<1 ms" if seconds else "0 s"
    if seconds < 1:
        return f"{seconds * 1000:.3g} ms" if seconds < 0.0995 else f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.3g} s"
    whole = round(seconds)
    for size, unit, small, below in ((86_400, "d", 3600, "h"), (3600, "h", 60, "min")):
        if whole >= size:
            rest = whole % size // small
            return f"{whole // size} {unit}" + (f" {rest} {below}" if rest else "")
    rest = whole % 60
    return f"{whole // 60} min" + (f" {rest} s" if rest and whole < 600 else "")


def time(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M}"


def span(start: datetime, end: datetime) -> str:
    if start.date() == end.date():
        return f"{time(start)}{NONE}{end:%H:%M}"
    return f"{time(start)} {NONE} {time(end)}"


def plain(text: object) -> str:
    """One line with nothing invisible in it, and nothing that turns its direction."""
    return "".join(
        f"\\u{ord(each):04x}" if unicodedata.category(each) in _HIDDEN else each
        for each in str(text)
    )


def cut(text: str, size: int) -> str:
    return text if len(text) <= size else text[: size - 1] + "…"


def short(name: str | None) -> str:
    return "(no name)" if name is None else cut(plain(name), _LONG)


def name(text: str | None) -> Markup:
    """A name on the page, whose direction must not turn what stands beside it."""
    return Markup("<bdi>{}</bdi>").format(short(text))


def label(name: str | None, size: int = _LABEL) -> str:
    """A name inside a plot, whose texts are a kind of HTML."""
    return str(escape(cut(short(name), size)))


def labels(names: Iterable[str | None]) -> list[str]:
    """Labels that differ where the names do, since a plot knows its rows by them."""
    made: dict[str, None] = {}
    for name in names:
        text = label(name)
        number = 2
        while text in made:
            text = f"{label(name)} ({number})"
            number += 1
        made[text] = None
    return list(made)


def narrow(names: Iterable[str | None]) -> list[str]:
    """The same rows where there is little room."""
    return [label(name, _NARROW) for name in names]
