"""The screen of `taskyard top`: the model as lines of exactly the size of the screen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from taskyard.cli.style import Style
from taskyard.cli.text import cut, escape_unsafe, pad, width
from taskyard.cli.top_model import SORTS, QueueLine, TopModel, sparkline
from taskyard.cli.top_names import NameFigures, NameStatistics
from taskyard.cli.units import amount, size, span

MIN_COLUMNS: Final = 40
MIN_ROWS: Final = 8
_SPARK: Final = 12


@dataclass(slots=True)
class ScreenView:
    """What the user has chosen to see."""

    sort: str = SORTS[0]
    filter: str = ""
    typing: bool = False  # the filter
    paused: bool = False
    first: int = 0  # row of the queues


@dataclass(frozen=True, slots=True)
class Cell:
    title: str
    columns: int  # 0: what is left
    get: Callable[[Any], str]
    style: Callable[[Any], str] = lambda _: ""
    left: bool = False


def _many(number: float) -> str:
    return amount(number) if number else "·"


def _queue_cells(columns: int) -> list[Cell]:
    cells: list[Cell] = [
        Cell("QUEUE", 0, lambda line: line.name, _name_style, left=True),
        Cell("READY", 6, lambda line: _many(line.ready), lambda _: "green"),
        Cell("LEASED", 6, lambda line: _many(line.leased), lambda _: "cyan"),
        Cell("DELAY", 6, lambda line: _many(line.delayed + line.blocked), lambda _: "yellow"),
        Cell("DEAD", 5, lambda line: _many(line.dead), lambda _: "red"),
        Cell("PUSH/S", 6, lambda line: _many(line.pushed_rate)),
        Cell("DONE/S", 6, lambda line: _many(line.done_rate)),
        Cell("FAIL/S", 6, lambda line: _many(line.failed_rate), lambda _: "red"),
    ]
    if columns >= 80:
        wide = _SPARK + max(0, (columns - 100) // 2)
        cells.append(Cell("", wide, lambda line: sparkline(line.history, wide), lambda _: "blue"))
    return cells


def _name_style(line: QueueLine) -> str:
    return "yellow" if line.paused else "bold"


_LEASES: Final = (
    Cell("AGE", 6, lambda held: span(held["lease"]["age"])),
    Cell("JOB", 9, lambda held: str(held["id"])),
    Cell("QUEUE", 16, lambda held: held["queue"], left=True),
    Cell("NAME", 0, lambda held: held["name"], lambda _: "bold", left=True),
    Cell("TRY", 3, lambda held: str(held["lease"]["attempt"])),
    Cell("HOLDER", 24, lambda held: held["lease"]["holder"], lambda _: "dim", left=True),
)
_SLOWEST: Final = (
    Cell("SLOWEST", 0, lambda figures: figures.name, lambda _: "bold", left=True),
    Cell("MEAN", 6, lambda figures: span(figures.mean), lambda _: "yellow"),
    Cell("MOST", 6, lambda figures: span(figures.slowest)),
    Cell("SEEN", 5, lambda figures: amount(figures.timed)),
)
_FAILING: Final = (
    Cell("FAILING", 0, lambda figures: figures.name, lambda _: "bold", left=True),
    Cell("FAILED", 6, lambda figures: amount(figures.failed), lambda _: "red"),
    Cell("SHARE", 5, lambda figures: f"{figures.failure_rate:.0%}"),
)


def draw(
    model: TopModel, names: NameStatistics, view: ScreenView, columns: int, rows: int, style: Style
) -> list[str]:
    """So many rows, each at most so wide."""
    if columns < MIN_COLUMNS or rows < MIN_ROWS:
        text = cut(f"{MIN_COLUMNS} columns and {MIN_ROWS} rows are needed", columns)
        return [text, *[""] * (rows - 1)]
    if not model.sample_count:
        waiting = model.last_error or "looking at the server ..."
        body = [cut(escape_unsafe(waiting), columns)]
        return [*body, *[""] * (rows - 2), _footer(model, view, columns, style)]
    lines = _head(model, view, columns, style)
    for_queues, for_leases, for_names = _shares(rows - len(lines) - 1, model)
    lines += _queues(model, view, columns, for_queues, style)
    lines += _lease_lines(model, columns, for_leases, style)
    lines += _name_lines(model, names, columns, for_names, style)
    lines += [""] * (rows - 1 - len(lines))
    return [*lines[: rows - 1], _footer(model, view, columns, style)]


def _shares(rows: int, model: TopModel) -> tuple[int, int, int]:
    """How many rows each part gets, with its title and a blank row behind it."""
    for_names = max(0, min(7, rows // 4)) if rows >= 10 else 0
    wanted = len(model.leases) + 2
    for_leases = max(0, min(wanted, max(4, rows // 3))) if rows >= 8 else 0
    return rows - for_names - for_leases, for_leases, for_names


# The parts


def _head(model: TopModel, view: ScreenView, columns: int, style: Style) -> list[str]:
    server = model.server
    totals = [
        f"in {amount(model.total('pushed_rate'))}/s",
        f"out {amount(model.total('done_rate'))}/s",
        f"fail {amount(model.total('failed_rate'))}/s",
    ]
    about = _about(model) if server else ("the queues that you may see", "")
    accepting = not server or server["accepting"]
    state = "PAUSED VIEW" if view.paused else ("" if accepting else "REFUSES PUSHES")
    trouble = model.last_error or server.get("refusing") or ""
    return [
        style.paint(cut(escape_unsafe("  ".join([about[0], *totals])), columns), "bold"),
        cut(escape_unsafe(about[1]), columns),
        style.paint(cut(escape_unsafe(f"{state}  {trouble}".strip()), columns), "red", "bold"),
    ]


def _about(model: TopModel) -> tuple[str, str]:
    """The server, and its journal."""
    server = model.server
    journal = server["journal"]
    first = [
        f"taskyard {server['version']}",
        f"up {span(server['uptime'])}",
        f"{amount(server['jobs'])} jobs, {amount(server['queues'])} queues",
    ]
    second = [
        f"journal {size(journal['bytes'])}, {size(journal['live_bytes'])} live",
        f"{server['durability']} {span(model.flush)}" if model.flush else server["durability"],
        f"{amount(model.commit_rate)} commits/s",
        f"mem {size(server['memory']['resident'])}",
        f"clients {sum(server['connections'].values())}",
    ]
    return "  ".join(first), "  ".join(second)


def _queues(model: TopModel, view: ScreenView, columns: int, rows: int, style: Style) -> list[str]:
    found = model.queues(view.sort, view.filter)
    room = max(0, rows - 2)  # beside the titles and a blank row
    if len(found) > room:
        room = max(0, room - 1)
    view.first = max(0, min(view.first, len(found) - room))
    lines = _grid(_queue_cells(columns), found[view.first : view.first + room], columns, style)
    more = len(found) - view.first - room
    if more > 0:
        lines.append(style.paint(f"... and {more:,} more", "dim"))
    elif not found:
        lines.append(style.paint("no such queues" if view.filter else "no queues yet", "dim"))
    return _filled(lines, rows)


def _lease_lines(model: TopModel, columns: int, rows: int, style: Style) -> list[str]:
    if rows < 3:
        return [""] * rows
    cells = list(_LEASES if columns >= 80 else _LEASES[:5])
    room = rows - 2 if len(model.leases) <= rows - 2 else rows - 3
    lines = _grid(cells, model.leases[:room], columns, style)
    hidden = len(model.leases) - room
    if not model.leases:
        lines.append(style.paint("nothing is leased", "dim"))
    elif hidden > 0:
        more = "" if model.all_leases else "at least "
        lines.append(style.paint(f"... and {more}{hidden:,} more", "dim"))
    return _filled(lines, rows)


def _name_lines(
    model: TopModel, names: NameStatistics, columns: int, rows: int, style: Style
) -> list[str]:
    if rows < 2:
        return [""] * rows
    if model.no_names_reason:
        return _filled(
            [style.paint(cut(escape_unsafe(model.no_names_reason), columns), "dim")], rows
        )
    half = (columns - 2) // 2
    slow = _grid(_SLOWEST, names.slowest(rows - 1), half, style, filled=True)
    failing = _grid(_FAILING, names.most_failing(rows - 1), columns - half - 2, style)
    slow += [" " * half] * (rows - len(slow))
    failing += [""] * (rows - len(failing))
    return [f"{left}  {right}".rstrip() for left, right in zip(slow, failing, strict=True)]


def _footer(model: TopModel, view: ScreenView, columns: int, style: Style) -> str:
    if view.typing:
        return cut(f"/{escape_unsafe(view.filter)}_   Enter keeps it, Esc clears it", columns)
    kept = f" ({escape_unsafe(view.filter)})" if view.filter else ""
    text = f"q quit  s sort: {view.sort}  / filter{kept}  p {'go on' if view.paused else 'pause'}"
    return style.paint(pad(cut(f"{text}  arrows scroll", columns), columns), "reverse")


# Grids


def _grid(
    cells: Sequence[Cell],
    items: Sequence[QueueLine | NameFigures | dict[str, Any]],
    columns: int,
    style: Style,
    *,
    filled: bool = False,
) -> list[str]:
    """A title and a row for each item, in exactly so many columns."""
    fixed = sum(cell.columns + 1 for cell in cells if cell.columns)
    left_over = max(4, columns - fixed)
    widths = [cell.columns or left_over for cell in cells]
    titles = [_fit(cell.title, wide, cell.left) for cell, wide in zip(cells, widths, strict=True)]
    lines = [style.paint(_ended(" ".join(titles), columns, filled), "dim")]
    for item in items:
        parts = []
        for cell, wide in zip(cells, widths, strict=True):
            text = _fit(escape_unsafe(cell.get(item)), wide, cell.left)
            parts.append(style.paint(text, "dim" if text.strip() == "·" else cell.style(item)))
        line = " ".join(parts)
        lines.append(line if filled else line.rstrip())
    return lines


def _fit(text: str, wide: int, left: bool) -> str:
    return pad(cut(text, wide), wide, right=not left)


def _ended(text: str, columns: int, filled: bool) -> str:
    text = cut(text, columns)
    return text + " " * (columns - width(text)) if filled else text.rstrip()


def _filled(lines: list[str], rows: int) -> list[str]:
    return [*lines[:rows], *[""] * (rows - len(lines))]
