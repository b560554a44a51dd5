"""The parts that all plots of a report are made of: figures as Plotly reads them, and their words.

Colours are names that begin with @; the page puts in those of the reader's theme.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from taskyard.pipeline.report import text

Figure = dict[str, Any]

# Times are drawn on a logarithmic scale, from a millisecond on.
SHORTEST: Final = 0.001
_TICKS: Final = (0.001, 0.01, 0.1, 1, 10, 60, 600, 3600, 21_600, 86_400, 604_800)
_NARROW: Final = 16
SERIES: Final = 6  # lines that can be told apart by colour


@dataclass
class Table:
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: int = 1  # the columns from this one on are numbers


@dataclass
class Plot:
    id: str
    title: str
    says: str  # what there is to see, in words
    table: Table
    figure: Figure | None = None  # None: nothing to draw


@dataclass
class Section:
    id: str
    title: str
    about: str
    plots: list[Plot] = field(default_factory=list)


def figure(traces: list[Figure], height: int = 300, **layout: Any) -> Figure:
    made = {
        "height": height,
        "margin": {"l": 8, "r": 8, "t": 36, "b": 8},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": "system-ui, sans-serif", "size": 12, "color": "@ink"},
        "hoverlabel": {
            "bgcolor": "@surface",
            "bordercolor": "@grid",
            "font": {"color": "@ink"},
            "namelength": -1,
        },
        "legend": {
            "orientation": "h",
            "x": 0,
            "y": 1.02,
            "yanchor": "bottom",
            "traceorder": "normal",
        },
        "xaxis": axis(),
        "yaxis": axis(),
    }
    return {"data": traces, "layout": {**made, **layout}}


def axis(**more: Any) -> Figure:
    return {
        "gridcolor": "@grid",
        "linecolor": "@grid",
        "zerolinecolor": "@grid",
        "automargin": True,
        **more,
    }


def time_axis(**more: Any) -> Figure:
    return axis(type="date", **more)


def count_axis(title: str) -> Figure:
    return axis(title={"text": title}, rangemode="tozero")


def seconds_axis(**more: Any) -> Figure:
    ticks = list(_TICKS)
    texts = [text.duration(each) for each in ticks]
    return axis(type="log", tickvals=ticks, ticktext=texts, minor={"nticks": 0}, **more)


def names_axis(names: Sequence[str]) -> Figure:
    """One row a name (that is made safe already), the first at the top."""
    return axis(
        type="category",
        categoryorder="array",
        categoryarray=list(names),
        autorange="reversed",
        tickvals=list(names),
        ticktext=list(names),
    )


def narrow(names: Sequence[str | None]) -> list[str]:
    """The same rows where there is little room."""
    return [text.escape(text.cut(text.short(name), _NARROW)) for name in names]


def line(name: str, x: list[str], y: Sequence[float | None], color: str, **more: Any) -> Figure:
    few = sum(value is not None for value in y) < 3
    return {
        "type": "scatter",
        "mode": "lines+markers" if few else "lines",
        "name": name,
        "x": x,
        "y": list(y),
        "line": {"color": color, "width": 0.5 if "stackgroup" in more else 2},
        **more,
    }


def drawn_seconds(value: float | None) -> float | None:
    return None if value is None else max(value, SHORTEST)


def seconds_heat(
    rows: Sequence[str | None],
    names: list[str],
    x: list[str],
    values: Sequence[Sequence[float | None]],
    scale: str,
) -> Figure:
    """A heat map of times, by the power of ten."""
    z = [
        [None if value is None else math.log10(max(value, SHORTEST)) for value in each]
        for each in values
    ]
    known = [value for each in z for value in each if value is not None]
    low, high = (min(known), max(known)) if known else (0.0, 1.0)
    ticks = [each for each in _TICKS if low - 0.5 <= math.log10(each) <= high + 0.5]
    trace = {
        "type": "heatmap",
        "x": x,
        "y": names,
        "z": z,
        "text": [[text.duration(value) for value in each] for each in values],
        "hovertemplate": "%{y}<br>%{x}<br><b>%{text}</b><extra></extra>",
        "colorscale": scale,
        "zmin": low,
        "zmax": max(high, low + 0.1),
        "ygap": 2,
        "colorbar": {
            "thickness": 10,
            "outlinewidth": 0,
            "tickvals": [math.log10(each) for each in ticks],
            "ticktext": [text.duration(each) for each in ticks],
        },
    }
    return heat_figure(trace, rows, names, time_axis(showgrid=False))


def heat_figure(
    trace: Figure, rows: Sequence[str | None], names: list[str], xaxis: Figure
) -> Figure:
    made = figure(
        [trace],
        height=70 + 26 * max(2, len(names)),
        xaxis=xaxis,
        yaxis={**names_axis(names), "showgrid": False},
        margin={"l": 8, "r": 8, "t": 8, "b": 8},
    )
    made["narrow"] = narrow(rows)
    return made


def bars(
    rows: Sequence[str | None], names: list[str], traces: list[Figure], xaxis: Figure
) -> Figure:
    """Horizontal bars or marks, one row a name."""
    made = figure(
        traces,
        height=90 + 28 * max(2, len(names)),
        xaxis=xaxis,
        yaxis=names_axis(names),
        barmode="stack",
    )
    made["narrow"] = narrow(rows)
    return made
