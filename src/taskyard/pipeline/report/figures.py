"""The plots of a report as Plotly reads them, but for what all plots of a kind have in common.

The page's script adds that, and the colours of the reader's theme: names of colours begin with @.
`names` are the rows of a plot that has one for each name, `narrow` the same where there is little
room; `seconds` is the axis, or the colour (z), that is a time; `open` says that the last point is
not over.
"""

import math
from collections.abc import Sequence
from typing import Any, Final

from taskyard.pipeline.report import text
from taskyard.pipeline.report.data import PERCENTILES, Grid, ReportData, Row, others_text

Figure = dict[str, Any]
Names = Sequence[str | None]
Values = Sequence[float | None]

DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
SERIES: Final = 6  # lines that can be told apart by colour
_SHORTEST: Final = 0.001  # seconds: the scale is logarithmic


def make_figures(found: ReportData) -> dict[str, Figure]:
    """By the id of the plot; those that have something to show."""
    made = {"throughput": _throughput(found), "depth": _depth(found)}
    if found.total["retries"]:
        made["storms"] = _storms(found)
    for what in ("wait", "run"):
        if found.overall[f"{what}_p50"] is not None:
            made |= _latency(found, what)
    if any(row["starts"] for row in found.targets):
        made["targets"] = _targets(found)
    if found.rows["slowest"]:
        made["slowest"] = _dots(found.rows["slowest"], "run")
    if found.rows["failing"]:
        made["failing"] = _failing(found)
    if found.rows["reasons"]:
        made["dead"] = _dead(found)
    if any(found.busy_of_all):
        values = [round(value, 3) for value in found.busy_of_all]
        area = line("Jobs at a time", found.scope.starts, values, "@blue")
        area |= {"fill": "tozeroy", "fillcolor": "@blueish"}
        made["busy"] = _over_time(found, [area], "jobs at a time", showlegend=False)
    if found.rows["workers"]:
        made["workers"] = _workers(found)
    if found.busiest_hour:
        made["week"] = _week(found)
    return made


# The parts


def line(name: str, x: Sequence[Any], y: Sequence[Any], color: str) -> Figure:
    is_short = sum(value is not None for value in y) < 3
    return {
        "type": "scatter",
        # More than one value for a place makes no line.
        "mode": "markers" if len(set(x)) < len(x) else "lines+markers" if is_short else "lines",
        "name": name,
        "x": x,
        "y": y,
        "line": {"color": color},
    }


def bars(name: str, x: Sequence[Any], y: Sequence[Any], color: str) -> Figure:
    """One colour of bars; `x` are labels if they lie."""
    return {"type": "bar", "name": name, "x": x, "y": y, "marker": {"color": color}}


def by_name(names: Names, traces: list[Figure], **more: Any) -> Figure:
    """One row a name, the first at the top."""
    return {"data": traces, "names": text.labels(names), "narrow": text.narrow(names), **more}


def lying(names: Names, series: Sequence[tuple[str, str, Values]], title: str) -> Figure:
    """Bars, one row a name: names, colours and values of the series."""
    labels = text.labels(names)
    traces = [
        {**bars(name, values, labels, color), "orientation": "h"} for name, color, values in series
    ]
    return by_name(names, traces, layout={"xaxis": number_axis(title), "barmode": "stack"})


def heat(names: Names, x: Sequence[Any], z: Sequence[Values], **more: Any) -> Figure:
    trace = {"type": "heatmap", "x": x, "y": text.labels(names), "z": z, "colorscale": "@cool"}
    return by_name(names, [{**trace, **more}])


def number_axis(title: str, **more: Any) -> Figure:
    return {"title": {"text": title}, "rangemode": "tozero", **more}


def stacked(found: ReportData, values: Grid) -> list[tuple[str, list[Any]]]:
    """The first few series by name, and the sum of all the rest."""
    named = [label for label in found.labels if label is not None]
    order = sorted(named, key=lambda label: -sum(values[label]))
    shown = [label for label in order[:SERIES] if any(values[label])]
    series = [(text.short(label), values[label]) for label in shown]
    rest = [values[label] for label in found.labels if label not in shown]
    sums = [sum(column) for column in zip(*rest, strict=True)]
    if any(sums):
        series.append((others_text(found.queue_count - len(shown)), sums))
    return series


def _with_colors(series: list[tuple[str, list[Any]]]) -> list[tuple[str, list[Any], str]]:
    return [
        (text.label(name), values, "@others" if number == SERIES else f"@series{number}")
        for number, (name, values) in enumerate(series)
    ]


def _over_time(found: ReportData, traces: list[Figure], title: str, **layout: Any) -> Figure:
    made = {"xaxis": {"type": "date"}, "yaxis": number_axis(title), "hovermode": "x unified"}
    return {"data": traces, "layout": {**made, **layout}}


def _drawn(values: Values) -> list[float | None]:
    return [None if value is None else max(value, _SHORTEST) for value in values]


# The plots


def _throughput(found: ReportData) -> Figure:
    names = (("arrivals", "Arrived", "@blue"), ("finishes", "Finished", "@teal"))
    traces = [
        line(name, found.scope.starts, [flow[field] for flow in found.flows], color)
        for field, name, color in (*names, ("failures", "Failed for good", "@red"))
    ]
    made = _over_time(found, traces, f"jobs per {found.scope.bin_text}")
    return {**made, "open": found.is_open}


def _depth(found: ReportData) -> Figure:
    traces = []
    for name, values, color in _with_colors(stacked(found, found.depth)):
        trace = line(name, found.scope.starts, values, color)
        traces.append({**trace, "line": {"color": color, "width": 0.5}, "stackgroup": "all"})
    return {**_over_time(found, traces, "jobs waiting"), "open": found.is_open}


def _storms(found: ReportData) -> Figure:
    traces = [
        bars(name, found.scope.starts, values, color)
        for name, values, color in _with_colors(stacked(found, found.retries))
    ]
    title = f"retries per {found.scope.bin_text}"
    made = _over_time(found, traces, title, barmode="stack", bargap=0.05)
    return {**made, "open": found.is_open}


def _targets(found: ReportData) -> Figure:
    traces = []
    for number, row in enumerate(found.targets[: 2 * SERIES]):
        queue, seconds = row["target"]
        name = f"{text.label(queue)} ≤ {text.duration(seconds)}"
        cells = row["by_bin"]
        shares = [round(each["within"] / each["starts"], 4) if each else None for each in cells]
        traces.append(line(name, found.scope.starts, shares, f"@series{number % SERIES}"))
    axis = number_axis("starts within target", tickformat=".0%", range=[0, 1.04])
    return _over_time(found, traces, "", yaxis=axis)


def _latency(found: ReportData, what: str) -> dict[str, Figure]:
    """Over time, by queue, and both."""
    lines = []
    for name in reversed(PERCENTILES):
        values = [row[f"{what}_{name}"] for row in found.by_bin]
        texts = [text.duration(value) for value in values]
        trace = line(name, found.scope.starts, _drawn(values), f"@{name}")
        lines.append({**trace, "text": texts, "hovertemplate": "%{text}"})
    ran = [row for row in found.queues if row[f"{what}_p95"] is not None]
    cells = [
        [
            found.by_both.get((label, each), {}).get(f"{what}_p95")
            for each in range(found.scope.bins)
        ]
        for label in found.labels
    ]
    heat_map = heat(
        [row["name"] for row in found.queues],
        found.scope.starts,
        [[None if each is None else math.log10(each) for each in _drawn(row)] for row in cells],
        text=[[text.duration(value) for value in row] for row in cells],
        hovertemplate="%{y}<br>%{x}<br><b>%{text}</b><extra></extra>",
        colorscale="@warm" if what == "wait" else "@cool",
    )
    return {
        what: {**_over_time(found, lines, ""), "seconds": "y"},
        f"{what}-queues": _dots(ran, what),
        f"{what}-heat": {**heat_map, "seconds": "z"},
    }


def _dots(rows: list[Row], what: str) -> Figure:
    names = [row["name"] for row in rows]
    traces = []
    for name in PERCENTILES:
        values = [row[f"{what}_{name}"] for row in rows]
        trace = line(name, _drawn(values), text.labels(names), f"@{name}")
        texts = [text.duration(value) for value in values]
        more = {"mode": "markers", "text": texts, "hovertemplate": "%{y}: %{text}"}
        traces.append({**trace, **more, "marker": {"color": f"@{name}", "size": 11}})
    return by_name(names, traces, seconds="x")


def _failing(found: ReportData) -> Figure:
    retried = [row["failed"] - row["final"] for row in found.rows["failing"]]
    final = [row["final"] for row in found.rows["failing"]]
    series = (("Retried", "@amber", retried), ("Failed for good", "@red", final))
    return lying([row["name"] for row in found.rows["failing"]], series, "failed attempts")


def _dead(found: ReportData) -> Figure:
    still = [row["still"] for row in found.rows["reasons"]]
    gone = [row["jobs"] - row["still"] for row in found.rows["reasons"]]
    series = (("Still a dead letter", "@red", still), ("Gone on since", "@others", gone))
    return lying([row["why"] for row in found.rows["reasons"]], series, "jobs")


def _workers(found: ReportData) -> Figure:
    names = [row["worker"] for row in found.rows["workers"]]
    z = [[round(value, 4) for value in found.busy.get(name, [])] for name in names]
    return heat(
        names,
        found.scope.starts,
        z,
        hovertemplate="%{y}<br>%{x}<br><b>%{z:.0%}</b> busy<extra></extra>",
        zmin=0,
        zmax=max([1.0, *(max(row, default=0) for row in z)]),
        colorbar={"tickformat": ".0%"},
    )


def _week(found: ReportData) -> Figure:
    hours = [f"{hour:02}" for hour in range(24)]
    hover = "%{y} %{x}:00 UTC<br><b>%{z:,.0f}</b> an hour<extra></extra>"
    made = heat(DAYS, hours, found.week, hovertemplate=hover)
    return {**made, "layout": {"xaxis": {"type": "category"}}, "narrow": [day[:3] for day in DAYS]}
