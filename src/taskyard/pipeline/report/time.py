"""The plots over time: throughput, depth, latency, storms, and the hours of the week."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from taskyard.pipeline.report import text
from taskyard.pipeline.report.data import Findings, Flow, Latency
from taskyard.pipeline.report.figure import (
    SERIES,
    Figure,
    Plot,
    Table,
    axis,
    bars,
    count_axis,
    drawn_seconds,
    figure,
    heat_figure,
    line,
    seconds_axis,
    seconds_heat,
    time_axis,
)
from taskyard.pipeline.report.scope import DAY, HOUR, MINUTE, Scope

DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_FLOWS: Final = (("arrivals", "Arrived", "@blue"), ("finishes", "Finished", "@teal"))
_PERCENTS: Final = (("p99", 2), ("p95", 1), ("p50", 0))


def bin_text(scope: Scope) -> str:
    for size, one in ((7 * DAY, "week"), (DAY, "day"), (HOUR, "hour"), (MINUTE, "minute")):
        if scope.bin % size == 0:
            number = scope.bin // size
            return one if number == 1 else f"{number} {one}s"
    return text.duration(scope.bin)


def a_bin(scope: Scope) -> str:
    """As in: within a minute, within 15 minutes."""
    name = bin_text(scope)
    if not name[0].isalpha():
        return name
    return f"an {name}" if name.startswith("h") else f"a {name}"


def label_text(scope: Scope, name: str | None) -> str:
    if name is not None:
        return text.short(name)
    return f"({text.count(scope.others)} other queue{'s' if scope.others > 1 else ''})"


def row_names(scope: Scope) -> list[str | None]:
    """The rows of plots that have one for each shown queue."""
    return [name if name is not None else label_text(scope, None) for name in scope.labels()]


def flow_of_all(found: Findings) -> list[Flow]:
    sums = [Flow() for _ in range(found.scope.bins)]
    for (_, number), flow in found.flows.items():
        if 0 <= number < len(sums):
            total = sums[number]
            total.arrivals += flow.arrivals
            total.starts += flow.starts
            total.finishes += flow.finishes
            total.failures += flow.failures
            total.retries += flow.retries
    return sums


def depth_of_all(found: Findings) -> list[int]:
    return [sum(values) for values in zip(*found.depth.values(), strict=True)] or [
        0
    ] * found.scope.bins


def as_far_as(found: Findings) -> str:
    """A sentence, behind others, on a last point that more may come of."""
    if not found.is_open or found.last_time is None:
        return ""
    return (
        f" The last point is not over: it goes as far as the lake, to {found.last_time:%H:%M:%S}."
    )


def mark_open(found: Findings, made: Figure) -> Figure:
    """A dotted line and a word at the last point, if more may come of its piece of time."""
    if found.is_open:
        at = found.scope.starts()[-1]
        made["layout"]["shapes"] = [
            {
                "type": "line",
                "x0": at,
                "x1": at,
                "yref": "paper",
                "y0": 0,
                "y1": 1,
                "line": {"color": "@others", "width": 1, "dash": "dot"},
            }
        ]
        made["layout"]["annotations"] = [
            {
                "x": at,
                "yref": "paper",
                "y": 1,
                "xanchor": "right",
                "yanchor": "top",
                "showarrow": False,
                "text": "not over yet",
                "font": {"color": "@others", "size": 11},
            }
        ]
    return made


def throughput(found: Findings) -> Plot:
    scope = found.scope
    flows = flow_of_all(found)
    x = scope.starts()
    traces = [
        line(name, x, [getattr(flow, field) for flow in flows], color)
        for field, name, color in (*_FLOWS, ("failures", "Failed for good", "@red"))
    ]
    each = bin_text(scope)
    busiest = max(range(scope.bins), key=lambda number: flows[number].arrivals)
    total = found.all_queues
    says = (
        f"{text.count(total['arrivals'])} jobs arrived and {text.count(total['finishes'])} "
        f"finished, {text.count(total['failures'])} failed for good. Most arrived at "
        f"{text.time(scope.start_of(busiest))}: {text.count(flows[busiest].arrivals)} in "
        f"{a_bin(scope)}."
    )
    if not total["arrivals"] + total["finishes"] + total["failures"]:
        says = "Nothing happened in this time."
    table = Table(
        ("From (UTC)", "Arrived", "Started", "Finished", "Failed for good", "Retried"),
        [
            (
                when,
                *map(
                    text.count,
                    (flow.arrivals, flow.starts, flow.finishes, flow.failures, flow.retries),
                ),
            )
            for when, flow in zip(x, flows, strict=True)
        ],
    )
    made = figure(
        traces, xaxis=time_axis(), yaxis=count_axis(f"jobs per {each}"), hovermode="x unified"
    )
    return Plot("throughput", "Throughput", says + as_far_as(found), table, mark_open(found, made))


def _stacked(found: Findings, values: dict[str | None, list[int]]) -> list[tuple[str, list[int]]]:
    """The first few series by name, and the sum of all the rest."""
    scope = found.scope
    order = sorted(scope.queues, key=lambda name: -sum(values[name]))
    shown = [name for name in order[:SERIES] if any(values[name])]
    rest = [name for name in scope.labels() if name not in shown]
    count = len(scope.queues) + scope.others - len(shown)
    series = [(text.short(name), values[name]) for name in shown]
    sums = [sum(column) for column in zip(*(values[name] for name in rest), strict=True)]
    if any(sums):
        series.append((f"({text.count(count)} other queue{'s' if count > 1 else ''})", sums))
    return series


def depth(found: Findings) -> Plot:
    scope = found.scope
    x = scope.starts()
    series = _stacked(found, found.depth)
    traces = [
        line(text.escape(name), x, values, _color(name, number), stackgroup="all")
        for number, (name, values) in enumerate(series)
    ]
    totals = depth_of_all(found)
    peak = max(range(len(totals)), key=lambda number: totals[number])
    says = (
        f"Up to {text.count(totals[peak])} jobs waited around "
        f"{text.time(scope.start_of(peak))}; {text.count(totals[-1])} at the end. "
        f"Each point is the most that waited within {a_bin(scope)}."
        if any(totals)
        else "No job waited at the end of any minute."
    )
    table = Table(
        ("From (UTC)", "All", *(name for name, _ in series)),
        [
            (when, text.count(total), *(text.count(values[number]) for _, values in series))
            for number, (when, total) in enumerate(zip(x, totals, strict=True))
        ],
    )
    made = figure(
        traces, xaxis=time_axis(), yaxis=count_axis("jobs waiting"), hovermode="x unified"
    )
    return Plot(
        "depth", "Depth: jobs that wait", says + as_far_as(found), table, mark_open(found, made)
    )


def _color(name: str, number: int) -> str:
    return "@others" if name.startswith("(") and number else f"@series{number}"


def latency(found: Findings, what: str) -> Plot:
    """`what` is wait or run."""
    scope = found.scope
    x = scope.starts()
    rows = [_times(found.by_bin.get(number), what) for number in range(scope.bins)]
    traces = [
        line(name, x, [drawn_seconds(row[place] if row else None) for row in rows], f"@{name}")
        for name, place in _PERCENTS
    ]
    for trace in traces:
        place = dict(_PERCENTS)[trace["name"]]
        trace["text"] = [text.duration(row[place] if row else None) for row in rows]
        trace["hovertemplate"] = "%{text}"
    whole = _times(found.overall, what)
    doing = "waited" if what == "wait" else "ran"
    says = (
        f"Half of all attempts {doing} at most {text.duration(whole[0])}, 95 % at most "
        f"{text.duration(whole[1])}, 99 % at most {text.duration(whole[2])}."
        if whole
        else "No attempt ended in this time."
    )
    table = Table(
        ("From (UTC)", "p50", "p95", "p99"),
        [
            (when, *(text.duration(value) for value in row))
            for when, row in zip(x, rows, strict=True)
            if row
        ],
    )
    title = "Wait: from ready to start" if what == "wait" else "Run: from start to end"
    made = figure(traces, xaxis=time_axis(), yaxis=seconds_axis(), hovermode="x unified")
    return Plot(what, title, says, table, made if whole else None)


def _times(found: Latency | None, what: str) -> tuple[float, float, float] | None:
    if found is None:
        return None
    return found.wait if what == "wait" else found.run


def queue_latency(found: Findings, what: str) -> Plot:
    scope = found.scope
    labels = [name for name in scope.labels() if _times(found.by_queue.get(name), what)]
    rows = [name if name is not None else label_text(scope, None) for name in labels]
    names = text.labels(rows)
    values = [_times(found.by_queue[name], what) or (0, 0, 0) for name in labels]
    traces: list[Figure] = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": name,
            "y": names,
            "x": [drawn_seconds(each[place]) for each in values],
            "text": [text.duration(each[place]) for each in values],
            "hovertemplate": "%{y}: %{text}",
            "marker": {"color": f"@{name}", "size": 11},
        }
        for name, place in reversed(_PERCENTS)
    ]
    order = sorted(zip(values, rows, strict=True), key=lambda pair: -pair[0][1])
    doing = "wait" if what == "wait" else "run"
    says = (
        f"Longest {doing} at p95: {order[0][1]} with {text.duration(order[0][0][1])}."
        if order
        else "No attempt ended in this time."
    )
    table = Table(
        ("Queue", "p50", "p95", "p99"),
        [
            (text.short(row), *(text.duration(value) for value in each))
            for row, each in zip(rows, values, strict=True)
        ],
    )
    made = bars(rows, names, traces, seconds_axis()) if labels else None
    return Plot(f"{what}-queues", f"{doing.capitalize()} by queue", says, table, made)


def latency_heat(found: Findings, what: str) -> Plot:
    scope = found.scope
    rows = row_names(scope)
    names = text.labels(rows)
    values: list[list[float | None]] = []
    for name in scope.labels():
        cells = [_times(found.by_both.get((name, n)), what) for n in range(scope.bins)]
        values.append([cell[1] if cell else None for cell in cells])
    worst = max(
        (
            (value, row, n)
            for row, each in enumerate(values)
            for n, value in enumerate(each)
            if value
        ),
        default=None,
    )
    says = "No attempt ended in this time."
    if worst is not None:
        says = (
            f"Longest: {text.short(rows[worst[1]])} at "
            f"{text.time(scope.start_of(worst[2]))}, p95 {text.duration(worst[0])}."
        )
    doing = "wait" if what == "wait" else "run"
    table = Table(
        ("Queue", "Worst from (UTC)", "p95 then"),
        [_worst_cell(scope, row, each) for row, each in zip(rows, values, strict=True)],
        numbers=2,
    )
    scale = "@warm" if what == "wait" else "@cool"
    made = seconds_heat(rows, names, scope.starts(), values, scale)
    title = f"When the {doing} was long (p95)"
    return Plot(f"{what}-heat", title, says, table, made if worst else None)


def _worst_cell(
    scope: Scope, row: str | None, values: Sequence[float | None]
) -> tuple[str, str, str]:
    known = [(value, number) for number, value in enumerate(values) if value is not None]
    if not known:
        return text.short(row), text.NONE, text.NONE
    value, number = max(known)
    return text.short(row), text.time(scope.start_of(number)), text.duration(value)


def storms(found: Findings) -> Plot:
    scope = found.scope
    x = scope.starts()
    values = {
        name: [found.flows.get((name, n), Flow()).retries for n in range(scope.bins)]
        for name in scope.labels()
    }
    series = _stacked(found, values)
    traces: list[Figure] = [
        {
            "type": "bar",
            "name": text.escape(name),
            "x": x,
            "y": each,
            "marker": {"color": _color(name, number)},
        }
        for number, (name, each) in enumerate(series)
    ]
    total = found.all_queues["retries"]
    says = f"{text.count(total)} retries, no storm among them."
    if found.storms:
        first = found.storms[0]
        says = (
            f"{text.count(total)} retries. The worst storm: {text.short(first.queue)}, "
            f"{text.span(scope.start_of(first.first), scope.start_of(first.last + 1))}, "
            f"{text.count(first.retries)} retries"
            + (f", mostly {text.short(first.error_class)}." if first.error_class else ".")
        )
    table = Table(
        ("Queue", "When (UTC)", "Mostly", "Retries", "Starts"),
        [
            (
                text.short(storm.queue),
                text.span(scope.start_of(storm.first), scope.start_of(storm.last + 1)),
                text.short(storm.error_class) if storm.error_class else text.NONE,
                text.count(storm.retries),
                text.count(storm.starts),
            )
            for storm in found.storms
        ],
        numbers=3,
    )
    made = figure(
        traces,
        xaxis=time_axis(),
        yaxis=count_axis(f"retries per {bin_text(scope)}"),
        barmode="stack",
        bargap=0.05,
        hovermode="x unified",
    )
    return Plot("storms", "Retry storms", says, table, mark_open(found, made) if total else None)


def week(found: Findings) -> Plot:
    """Divided by how often each hour of the week was, so that half weeks do not mislead."""
    often = hours_of_week(found.scope)
    values = [
        [
            found.week.get((day, hour), 0) / often[day, hour] if often.get((day, hour)) else None
            for hour in range(24)
        ]
        for day in range(7)
    ]
    best = max(
        (
            (value, day, hour)
            for day, row in enumerate(values)
            for hour, value in enumerate(row)
            if value
        ),
        default=None,
    )
    says = "No job arrived in this time."
    if best is not None:
        says = (
            f"Most jobs arrive on {DAYS[best[1]]}s from {best[2]}:00 to {best[2] + 1}:00 UTC: "
            f"{text.count(best[0])} an hour."
        )
    trace = {
        "type": "heatmap",
        "x": [f"{hour:02}" for hour in range(24)],
        "y": list(DAYS),
        "z": values,
        "hovertemplate": "%{y} %{x}:00 UTC<br><b>%{z:,.0f}</b> an hour<extra></extra>",
        "colorscale": "@cool",
        "xgap": 1,
        "ygap": 1,
        "colorbar": {"thickness": 10, "outlinewidth": 0},
    }
    made = heat_figure(trace, DAYS, list(DAYS), axis(type="category", showgrid=False))
    made["narrow"] = [day[:3] for day in DAYS]
    table = Table(
        ("Hour (UTC)", *DAYS),
        [
            (
                f"{hour:02}:00",
                *(
                    text.NONE if (value := values[day][hour]) is None else text.count(value)
                    for day in range(7)
                ),
            )
            for hour in range(24)
        ],
    )
    return Plot("week", "Arrivals by hour of the week", says, table, made if best else None)


def hours_of_week(scope: Scope) -> dict[tuple[int, int], int]:
    """How often each hour of the week is within the span."""
    often: dict[tuple[int, int], int] = {}
    first = int(scope.since.timestamp()) // HOUR
    last = -(-int(scope.until.timestamp()) // HOUR)
    whole, rest = divmod(last - first, 168)
    for number in range(168):
        at = datetime.fromtimestamp((first + number) * HOUR, UTC)
        often[at.weekday(), at.hour] = whole + (number < rest)
    return often
