"""Tables for people: columns as wide as they need, cut to the width of a terminal."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TextIO

from taskyard.cli.progress import ProgressBar
from taskyard.cli.style import Style, columns_of, is_terminal
from taskyard.cli.text import cut, escape_unsafe, pad, width

_GAP: Final = "  "
_MEASURED_ROWS: Final = 1000  # rows that the widths of columns are taken from
_MIN_COLUMN_WIDTH: Final = 8  # what is left of a column that is cut


class Column(NamedTuple):
    title: str
    get: Callable[[Any], object]  # the text of a row; made safe here
    right: bool = False
    flexible: bool = False  # may be cut where a terminal is narrow
    style: Callable[[Any], str] | None = None  # its colour


def print_table(columns: Sequence[Column], rows: Iterable[Any], stream: TextIO) -> int:
    """Gives how many rows there were. Without any, nothing is printed."""
    style = Style(stream)
    cells = ((row, _texts(columns, row)) for row in rows)
    with ProgressBar("reading"):
        first = list(itertools.islice(cells, _MEASURED_ROWS))
    if not first:
        return 0
    widths = _widths(columns, [texts for _, texts in first])
    if is_terminal(stream):
        widths = _fit_widths(columns, widths, columns_of(stream))
        cells = ((row, _cut(texts, widths)) for row, texts in cells)
        first = [(row, _cut(texts, widths)) for row, texts in first]
    titles = [pad(cut(c.title, w), w, c.right) for c, w in zip(columns, widths, strict=True)]
    print(style.paint(_GAP.join(titles).rstrip(), "bold"), file=stream)
    count = 0
    for row, texts in itertools.chain(first, cells):
        print(_line(columns, row, texts, widths, style), file=stream)
        count += 1
    return count


def _texts(columns: Sequence[Column], row: Any) -> list[str]:
    return [escape_unsafe(str(column.get(row))) for column in columns]


def _cut(texts: list[str], widths: list[int]) -> list[str]:
    return [cut(text, wide) for text, wide in zip(texts, widths, strict=True)]


def _widths(columns: Sequence[Column], rows: list[list[str]]) -> list[int]:
    titles = [column.title for column in columns]
    return [max(map(width, each)) for each in zip(titles, *rows, strict=True)]


def _fit_widths(columns: Sequence[Column], widths: list[int], room: int) -> list[int]:
    """Takes from the widest of the columns that may be cut, as long as it does not fit."""
    fitted = list(widths)
    flexible = [index for index, column in enumerate(columns) if column.flexible]
    excess = sum(fitted) + len(_GAP) * (len(fitted) - 1) - max(room, 20)
    while excess > 0 and flexible:
        widest = max(flexible, key=lambda index: fitted[index])
        if fitted[widest] <= _MIN_COLUMN_WIDTH:
            break
        fitted[widest] -= 1
        excess -= 1
    return fitted


def _line(
    columns: Sequence[Column], row: Any, texts: list[str], widths: list[int], style: Style
) -> str:
    return _GAP.join(_painted(columns, row, texts, widths, style)).rstrip()


def _painted(
    columns: Sequence[Column], row: Any, texts: list[str], widths: list[int], style: Style
) -> Iterator[str]:
    last = len(columns) - 1
    for index, (column, text, wide) in enumerate(zip(columns, texts, widths, strict=True)):
        # The last column is not filled up: spaces at the end of a line are of no use.
        shown = text if index == last and not column.right else pad(text, wide, column.right)
        yield style.paint(shown, column.style(row) if column.style is not None else "")
