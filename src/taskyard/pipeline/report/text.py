"""Numbers, times and names as a report writes them, safe wherever they stand."""

import html
import json
import unicodedata
from collections.abc import Iterable
from datetime import datetime
from typing import Final

DASH: Final = "\N{EN DASH}"
NONE: Final = DASH
_LONG: Final = 40
_LABEL: Final = 28
_HIDDEN: Final = ("Cc", "Cf", "Cs", "Zl", "Zp")


def count(number: float) -> str:
    return f"{number:,.0f}".replace(",", "\u202f")


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
        return f"{start:%Y-%m-%d %H:%M}{DASH}{end:%H:%M}"
    return f"{time(start)} {DASH} {time(end)}"


def plain(text: str) -> str:
    """One line with nothing invisible in it, and nothing that turns its direction."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        f"\\u{ord(each):04x}" if unicodedata.category(each) in _HIDDEN else each for each in text
    )


def short(name: str | None) -> str:
    if name is None:
        return "(no name)"
    return cut(plain(name), _LONG)


def cut(name: str, size: int) -> str:
    return name if len(name) <= size else name[: size - 1] + "…"


def escape(text: str) -> str:
    return html.escape(text, quote=True)


def label(name: str | None) -> str:
    """A name inside a plot, whose texts are a kind of HTML."""
    return escape(cut(short(name), _LABEL))


def labels(names: Iterable[str | None]) -> list[str]:
    """Labels that differ where the names do, since a plot knows its rows by them."""
    made: list[str] = []
    for name in names:
        text = label(name)
        number = 2
        while text in made:
            text = f"{label(name)} ({number})"
            number += 1
        made.append(text)
    return made


def embed(value: object) -> str:
    """JSON inside a script element: nothing in it can end the element or begin another."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
