"""A panel for each view of the lake, drawn as the view itself says."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any, Final

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from taskyard.pipeline.lake.snapshot import Lake
from taskyard.pipeline.report import figures as f
from taskyard.pipeline.report import text
from taskyard.pipeline.report.scope import ReportOptions, Scope, any_of
from taskyard.pipeline.views import VIEWS, Plot, View, ViewColumn, ask_duckdb

ROWS: Final = 200  # of a table
POINTS: Final = 5000  # of a drawing
NAMES: Final = 20  # rows of bars, or of a heat map
_TEXT: Final = 200


@dataclass(frozen=True)
class Panel:
    id: str
    title: str
    caption: str
    heads: list[str]
    rows: list[list[str]]
    numbers: int  # from which column on there are only numbers
    figure: f.Figure | None


def make_panels(
    lake: Lake, options: ReportOptions, scope: Scope, step: Callable[[], object]
) -> list[Panel]:
    """Ask all views about the days of the scope; `step` is called after each."""
    last = scope.until - timedelta(microseconds=1)
    panels: list[Panel] = []
    for name, view in VIEWS.items():
        rows = ask_duckdb(lake, name, {"since": scope.since.date(), "until": last.date()})
        if options.queues and "queue" in rows.schema.names:
            rows = rows.filter(pc.match_substring_regex(rows["queue"], any_of(options.queues)))
        panels += panels_of(view, rows)
        step()
    return panels


def panels_of(view: View, rows: Any) -> list[Panel]:
    """One, or one for each value of the column that the view has plots apart by."""
    facet = view.plot.facet if view.plot else ""
    values = pc.unique(rows[facet]).to_pylist() if facet else []
    if not values:
        return [_panel(view, f"view-{view.name}", view.title, rows)]
    return [
        _panel(
            view,
            f"view-{view.name}-{number}",
            f"{view.title}: {text.plain(value)}",
            rows.filter(pc.equal(rows[facet], value)),
        )
        for number, value in enumerate(values)
    ]


def _panel(view: View, id: str, title: str, rows: Any) -> Panel:
    columns = [view.columns.get(name) or ViewColumn(name, "", "") for name in rows.schema.names]
    units = [column.unit for column in columns]
    says = [view.about]
    if not len(rows):
        says.append("There are no rows.")
    elif len(rows) > ROWS:
        says.append(f"The table has the first {ROWS} of {text.count(len(rows))} rows.")
    figure, left_out = _draw_view(view, rows)
    return Panel(
        id,
        title,
        " ".join([*says, *left_out]),
        [_head(column) for column in columns],
        [
            [_cell(value, unit) for value, unit in zip(row.values(), units, strict=True)]
            for row in rows.slice(0, ROWS).to_pylist()
        ],
        max((place for place, unit in enumerate(units, 1) if not unit), default=1),
        figure,
    )


def _head(column: ViewColumn, told: tuple[str, ...] = ("", "s", "share")) -> str:
    """`told`: the units that stand at the values."""
    words = column.name.replace("_", " ")
    return words[:1].upper() + words[1:] + ("" if column.unit in told else f" ({column.unit})")


def _cell(value: Any, unit: str) -> str:
    match value:
        case None:
            return text.NONE
        case float() if not math.isfinite(value):
            return text.NONE
        case bool():
            return "yes" if value else "no"
        case datetime():
            return text.time(value)
        case date():
            return value.isoformat()
        case list():
            return ", ".join(_cell(each, "") for each in value)
        case str():
            return text.cut(text.plain(value), _TEXT)
    if unit == "s":
        return text.duration(value) if value >= 0 else f"-{text.duration(-value)}"
    if unit == "share":
        return text.share(value, 1)
    return text.count(value) if value == int(value) or abs(value) >= 1000 else f"{value:.3g}"


# Drawings


def _draw_view(view: View, rows: Any) -> tuple[f.Figure | None, list[str]]:
    """What is drawn, and what to say of it."""
    plot = view.plot
    if plot is None or plot.kind == "table" or not len(rows):
        return None, []
    column = view.columns[plot.value or plot.y]
    is_time = pa.types.is_temporal(rows[plot.x].type)
    by_name = {"heat": plot.y, "bar": "" if is_time else plot.x}.get(plot.kind, "")
    frame, says = _cut(rows, column.name, {plot.series: f.SERIES, by_name: NAMES})
    frame = frame.dropna(subset=[plot.x])
    if is_time:
        frame[plot.x] = [f"{each:%Y-%m-%d %H:%M}" for each in frame[plot.x]]
    across = {"type": "date"} if is_time else f.number_axis(plot.x.replace("_", " "))
    percent = {"tickformat": ".0%"} if column.unit == "share" else {}
    title = _head(column, ("", "share"))
    if plot.kind == "heat":
        return {**_draw_heatmap(plot, frame, percent), "layout": {"xaxis": across}}, says
    series = _series(plot, frame, title)
    if by_name:
        return _draw_lying_bars(plot, series, title), says
    draw = f.line if plot.kind == "line" else f.bars
    traces = [
        draw(name, list(part[plot.x]), _numbers(part[plot.y]), color)
        for name, color, part in series
    ]
    axes = {"xaxis": across, "yaxis": f.number_axis(title, **percent)}
    return {"data": traces, "layout": {**axes, "barmode": "stack"}}, says


def _cut(rows: Any, number: str, names: dict[str, int]) -> tuple[pd.DataFrame, list[str]]:
    """What is drawn of the rows, and what to say of the rest.

    `names`: of these columns, only so many values with the highest sums of the number.
    """
    frame = rows.to_pandas()
    frame[number] = frame[number].astype(float)
    says = []
    for column, most in names.items():
        if not column:
            continue
        frame[column] = frame[column].fillna(text.short(None)).astype(str)
        sums = frame.groupby(column)[number].sum()
        if len(sums) > most:
            frame = frame[frame[column].isin(sums.nlargest(most).index)]
            words = column.replace("_", " ")
            says.append(f"Drawn are the {most} highest of {text.count(len(sums))} by {words}.")
    if len(frame) > POINTS:
        says.append(f"Drawn are the first {text.count(POINTS)} of {text.count(len(frame))} points.")
    return frame[:POINTS], says


def _series(plot: Plot, frame: pd.DataFrame, title: str) -> list[tuple[str, str, pd.DataFrame]]:
    """Name, colour and rows of each."""
    if not plot.series:
        return [(title, "@series0", frame)]
    groups = list(frame.groupby(plot.series, sort=False))
    labels = text.labels(str(name) for name, _ in groups)
    return [
        (label, f"@series{number}", part)
        for number, (label, (_, part)) in enumerate(zip(labels, groups, strict=True))
    ]


def _draw_lying_bars(
    plot: Plot, series: list[tuple[str, str, pd.DataFrame]], title: str
) -> f.Figure:
    sums = [part.groupby(plot.x)[plot.y].sum() for _, _, part in series]
    names = list(pd.concat(sums, axis=1).sum(axis=1).sort_values(ascending=False).index)
    bars = [
        (label, color, _numbers(each.reindex(names)))
        for (label, color, _), each in zip(series, sums, strict=True)
    ]
    return f.lying(names, bars, title)


def _draw_heatmap(plot: Plot, frame: pd.DataFrame, percent: f.Figure) -> f.Figure:
    cells = frame.pivot_table(plot.value, plot.y, plot.x, dropna=False)
    z = [_numbers(row) for row in cells.to_numpy()]
    return f.heat(list(cells.index), list(cells.columns), z, colorbar=percent)


def _numbers(values: Any) -> list[float | None]:
    return [float(value) if math.isfinite(value) else None for value in values]
