"""Plots as SVG, written by hand: lines over a common x axis, or rows of bars and of dots.

    chart = Chart("Soak", "seconds", [Panel("disk", "MiB", [Line("total", xs, ys)])])
    path.write_text(chart.svg())
    rows = RowChart("Jobs a second", [RowPanel("one by one", [Bar("ours", 900.0, 850.0, 940.0)])])

A y of None is a gap. Knows nothing of what is plotted.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final
from xml.sax.saxutils import escape

# Told apart also by those who see few colours (Okabe and Ito).
COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#444444")
INK: Final = "#333333"
GRID: Final = "#e4e4e4"
PAPER: Final = "#fdfdfc"

WIDTH: Final = 1000
LEFT: Final = 74
RIGHT: Final = 176  # the legend's
TOP: Final = 74
GAP: Final = 46
BOTTOM: Final = 52
CHARACTER: Final = 6.2  # width of one of the small letters, about
ROW: Final = 24
ROW_NAMES: Final = 200  # room for the names of rows


@dataclass(frozen=True, slots=True)
class Line:
    name: str
    xs: Sequence[float]
    ys: Sequence[float | None]
    colour: str = ""
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class Panel:
    title: str
    unit: str
    lines: Sequence[Line]
    log: bool = False
    height: int = 200
    level: float | None = None
    """A bar to be seen, as a dotted line."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A place on the x axis: where something with a name begins, or only a moment."""

    x: float
    name: str = ""


@dataclass(frozen=True, slots=True)
class Chart:
    title: str
    x_unit: str
    panels: Sequence[Panel]
    marks: Sequence[Mark] = field(default=())

    def svg(self) -> str:
        height = TOP + sum(panel.height + GAP for panel in self.panels) - GAP + BOTTOM
        size = f'width="{WIDTH}" height="{height}"'
        font = 'font-family="system-ui, sans-serif" font-size="11"'
        view = f'viewBox="0 0 {WIDTH} {height}"'
        out = [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} {view} {font} fill="{INK}">',
            f'<rect {size} fill="{PAPER}"/>',
            text(LEFT, 22, self.title, size=15, weight="bold"),
        ]
        x_axis = self._x_axis()
        top = TOP
        for panel in self.panels:
            out += draw_panel(panel, x_axis, self.marks, top)
            top += panel.height + GAP
        out += self._mark_names(x_axis)
        out.append(text((LEFT + WIDTH - RIGHT) / 2, height - 14, self.x_unit, anchor="middle"))
        return "\n".join([*out, "</svg>"]) + "\n"

    def _x_axis(self) -> "Axis":
        xs = [x for panel in self.panels for line in panel.lines for x in line.xs]
        return linear_axis(min(xs, default=0.0), max(xs, default=1.0), LEFT, WIDTH - RIGHT, 8)

    def _mark_names(self, x_axis: "Axis") -> list[str]:
        """Above the first panel, on two rows where they would run into each other."""
        out: list[str] = []
        ends = [0.0, 0.0]
        for mark in self.marks:
            if not mark.name:
                continue
            x = x_axis.place(mark.x)
            row = 0 if ends[0] <= x else 1
            if ends[row] > x:
                continue
            out.append(text(x + 2, TOP - 32 + 12 * row, mark.name, size=10, colour="#777777"))
            ends[row] = x + 8 + CHARACTER * len(mark.name)
        return out


@dataclass(frozen=True, slots=True)
class Bar:
    """One row: a value as a bar, with the spread of it as a line across its end."""

    name: str
    value: float
    least: float
    most: float
    colour: str = COLOURS[0]


@dataclass(frozen=True, slots=True)
class Dots:
    """One row: several values of the same kind, each a dot with the colour of its place."""

    name: str
    values: Sequence[float]
    note: str = ""


@dataclass(frozen=True, slots=True)
class RowPanel:
    """Rows below each other on an axis of their own."""

    title: str
    rows: Sequence[Bar | Dots]
    log: bool = False

    @property
    def height(self) -> float:
        return 2 * ROW + ROW * len(self.rows) + 24

    def reach(self) -> tuple[float, float]:
        values = [value for row in self.rows for value in _values(row)]
        return min(values, default=1.0), max(values, default=1.0)


@dataclass(frozen=True, slots=True)
class RowChart:
    title: str
    panels: Sequence[RowPanel]
    key: Sequence[tuple[str, str]] = field(default=())
    """Names and colours, below the title."""

    def svg(self) -> str:
        height = TOP + sum(panel.height for panel in self.panels)
        size = f'width="{WIDTH}" height="{height:.0f}"'
        font = 'font-family="system-ui, sans-serif" font-size="12"'
        view = f'viewBox="0 0 {WIDTH} {height:.0f}"'
        out = [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} {view} {font} fill="{INK}">',
            f'<rect {size} fill="{PAPER}"/>',
            text(14, 26, self.title, size=15, weight="bold"),
        ]
        x = 14.0
        for name, colour in self.key:
            out += [_dot(x + 5, 46, colour), text(x + 16, 50, name)]
            x += 40 + 1.2 * CHARACTER * len(name)
        top: float = TOP
        for panel in self.panels:
            out += draw_rows(panel, top)
            top += panel.height
        return "\n".join([*out, "</svg>"]) + "\n"


def draw_rows(panel: RowPanel, top: float) -> list[str]:
    low, high = panel.reach()
    begin, end = ROW_NAMES, WIDTH - 110
    axis = log_axis(low, high, begin, end) if panel.log else linear_axis(0.0, high, begin, end, 8)
    first = top + ROW
    bottom = first + ROW * len(panel.rows)
    out = [text(14, top + 8, panel.title, weight="bold")]
    for tick in axis.ticks:
        x = axis.place(tick)
        out.append(rule(x, first - 6, x, bottom, GRID))
        out.append(text(x, bottom + 16, number(tick), anchor="middle"))
    for index, row in enumerate(panel.rows):
        middle = first + ROW * index + ROW / 2
        out.append(text(begin - 8, middle + 4, row.name, anchor="end"))
        out += _bar(row, axis, middle) if isinstance(row, Bar) else _dots(row, axis, middle)
    return out


def _values(row: Bar | Dots) -> list[float]:
    return [row.value, row.most] if isinstance(row, Bar) else list(row.values)


def _bar(row: Bar, axis: "Axis", middle: float) -> list[str]:
    end, height = axis.place(row.value), ROW - 8
    box = f'x="{axis.begin:.1f}" y="{middle - height / 2:.1f}" height="{height}"'
    return [
        f'<rect {box} width="{max(end - axis.begin, 1):.1f}" fill="{row.colour}"/>',
        rule(axis.place(row.least), middle, axis.place(row.most), middle, INK, width=2),
        text(axis.place(row.most) + 8, middle + 4, f"{row.value:,.0f}"),
    ]


def _dots(row: Dots, axis: "Axis", middle: float) -> list[str]:
    places = [axis.place(value) for value in row.values]
    out = [rule(min(places), middle, max(places), middle, "#b8b8b8", width=3)]
    out += [_dot(x, middle, COLOURS[index]) for index, x in enumerate(places)]
    return [*out, text(max(places) + 10, middle + 4, row.note, colour="#777777")]


def _dot(x: float, y: float, colour: str) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{colour}"/>'


@dataclass(frozen=True, slots=True)
class Axis:
    low: float
    high: float
    begin: float  # pixels
    end: float
    ticks: Sequence[float]
    log: bool = False

    def place(self, value: float) -> float:
        low, high, at = self.low, self.high, min(max(value, self.low), self.high)
        if self.log:
            low, high, at = math.log10(low), math.log10(high), math.log10(at)
        return self.begin + (at - low) / (high - low) * (self.end - self.begin)


def linear_axis(low: float, high: float, begin: float, end: float, count: int) -> Axis:
    """With about `count` round ticks; the last is at or above `high` on a y axis."""
    if high <= low:
        high = low + 1
    step = round_up((high - low) / count)
    first = math.ceil(low / step - 1e-9)
    ticks = [number * step for number in range(first, math.floor(high / step + 1e-9) + 1)]
    return Axis(low, high, begin, end, ticks)


def y_axis(panel: Panel, top: float) -> Axis:
    values = [y for line in panel.lines for y in line.ys if y is not None]
    if panel.level is not None:
        values.append(panel.level)
    bottom = top + panel.height
    if panel.log:
        above_zero = [value for value in values if value > 0]
        return log_axis(min(above_zero, default=1.0), max(above_zero, default=10.0), bottom, top)
    most = max(values, default=1.0) or 1.0
    step = round_up(most / 5)
    return linear_axis(0.0, math.ceil(most / step - 1e-9) * step, bottom, top, 5)


def log_axis(least: float, most: float, begin: float, end: float) -> Axis:
    low = round_down(least)
    high = max(round_up(most), 10 * low)
    powers = range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)
    return Axis(low, high, begin, end, [10.0**power for power in powers], log=True)


def round_up(value: float) -> float:
    """The next of 1, 2, 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(value))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= value * 0.999)


def round_down(value: float) -> float:
    return 1 / round_up(1 / value)


def draw_panel(panel: Panel, x_axis: Axis, marks: Sequence[Mark], top: float) -> list[str]:
    axis, bottom = y_axis(panel, top), top + panel.height
    out = (
        [text(LEFT, top - 6, f"{panel.title}, {panel.unit}", weight="bold")] if panel.title else []
    )
    for tick in axis.ticks:
        y = axis.place(tick)
        out.append(rule(LEFT, y, WIDTH - RIGHT, y, GRID))
        out.append(text(LEFT - 6, y + 4, number(tick), anchor="end"))
    for tick in x_axis.ticks:
        x = x_axis.place(tick)
        out.append(rule(x, bottom, x, bottom + 4, INK))
        out.append(text(x, bottom + 16, number(tick), anchor="middle"))
    for mark in marks:
        x = x_axis.place(mark.x)
        colour = "#b8b8b8" if mark.name else "#e08080"
        out.append(rule(x, top, x, bottom, colour, dash="" if mark.name else "2 3"))
    if panel.level is not None:
        y = axis.place(panel.level)
        out.append(rule(LEFT, y, WIDTH - RIGHT, y, "#aa3333", dash="2 4"))
    out.append(rule(LEFT, top, LEFT, bottom, INK))
    out.append(rule(LEFT, bottom, WIDTH - RIGHT, bottom, INK))
    for index, line in enumerate(panel.lines):
        colour = line.colour or COLOURS[index % len(COLOURS)]
        dash = "6 4" if line.dashed else ""
        out += draw_line(line, x_axis, axis, colour, dash)
        y = top + 8 + 17 * index
        out.append(rule(WIDTH - RIGHT + 12, y, WIDTH - RIGHT + 34, y, colour, dash, width=2))
        out.append(text(WIDTH - RIGHT + 40, y + 4, line.name))
    return out


def draw_line(line: Line, x_axis: Axis, y_axis: Axis, colour: str, dash: str) -> list[str]:
    parts: list[list[str]] = [[]]
    for x, y in zip(line.xs, line.ys, strict=True):
        if y is None:
            parts.append([])
        else:
            parts[-1].append(f"{x_axis.place(x):.1f},{y_axis.place(y):.1f}")
    style = f'fill="none" stroke="{colour}" stroke-width="1.5" stroke-linejoin="round"'
    style += f' stroke-dasharray="{dash}"' if dash else ""
    return [f'<polyline points="{" ".join(part)}" {style}/>' for part in parts if len(part) > 1]


def number(value: float) -> str:
    """As short as it can be: 0.1, 20, 1,500, 40k."""
    if abs(value) >= 10_000:
        return f"{value / 1000:,.10g}k" if abs(value) < 1e6 else f"{value / 1e6:,.10g}M"
    return f"{value:,.10g}" if value == 0 or abs(value) >= 0.001 else f"{value:.0e}"


def rule(
    x1: float, y1: float, x2: float, y2: float, colour: str, dash: str = "", width: float = 1
) -> str:
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" '
        f'stroke="{colour}" stroke-width="{width:g}"{dashes}/>'
    )


def text(
    x: float,
    y: float,
    content: str,
    *,
    anchor: str = "start",
    size: int = 0,
    weight: str = "",
    colour: str = "",
) -> str:
    more = f' text-anchor="{anchor}"' if anchor != "start" else ""
    more += f' font-size="{size}"' if size else ""
    more += f' font-weight="{weight}"' if weight else ""
    more += f' fill="{colour}"' if colour else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{more}>{escape(content)}</text>'
