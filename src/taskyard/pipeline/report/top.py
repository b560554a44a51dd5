"""The plots that rank: slow and failing names, dead letters, workers, and wait targets."""

from taskyard.pipeline.report import text
from taskyard.pipeline.report.data import Findings, Row, moment
from taskyard.pipeline.report.figure import (
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
    time_axis,
)
from taskyard.pipeline.report.time import bin_text


def slowest(found: Findings) -> Plot:
    rows = [row for row in found.slowest if row["run"]]
    raw = [row["name"] for row in rows]
    names = text.labels(raw)
    traces: list[Figure] = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": name,
            "y": names,
            "x": [drawn_seconds(row["run"][place]) for row in rows],
            "text": [text.duration(row["run"][place]) for row in rows],
            "hovertemplate": "%{y}: %{text}",
            "marker": {"color": f"@{name}", "size": 11},
        }
        for place, name in enumerate(("p50", "p95", "p99"))
    ]
    says = "No attempt ended in this time."
    if rows:
        most = max(rows, key=lambda row: row["busy"] or 0)
        says = (
            f"Slowest: {text.short(raw[0])}, p95 {text.duration(rows[0]['run'][1])}. Most work "
            f"in all: {text.short(most['name'])}, {text.duration(most['busy'])} of run time."
        )
    table = Table(
        ("Name", "p50", "p95", "p99", "Attempts", "Run time in all"),
        [
            (
                text.short(row["name"]),
                *(text.duration(value) for value in row["run"]),
                text.count(row["attempts"]),
                text.duration(row["busy"]),
            )
            for row in rows
        ],
    )
    made = bars(raw, names, traces, seconds_axis()) if rows else None
    return Plot("slowest", "Slowest task names (run time)", says, table, made)


def _counted(name: str, color: str, names: list[str], values: list[int]) -> Figure:
    """One colour of the bars that count something, one bar a name."""
    return {
        "type": "bar",
        "orientation": "h",
        "name": name,
        "y": names,
        "x": values,
        "marker": {"color": color},
        "hovertemplate": "%{y}: %{x:,}",
    }


def failing(found: Findings) -> Plot:
    rows = found.failing
    raw = [row["name"] for row in rows]
    names = text.labels(raw)
    traces = [
        _counted("Retried", "@amber", names, [row["failed"] - row["final"] for row in rows]),
        _counted("Failed for good", "@red", names, [row["final"] for row in rows]),
    ]
    says = "No attempt failed."
    if rows:
        says = (
            f"{text.short(raw[0])} failed most often: {text.count(rows[0]['failed'])} of "
            f"{text.count(rows[0]['attempts'])} attempts "
            f"({text.share(rows[0]['failed'], rows[0]['attempts'])})."
        )
    table = Table(
        ("Name", "Failed attempts", "Of all", "Retried", "Failed for good"),
        [
            (
                text.short(row["name"]),
                text.count(row["failed"]),
                text.share(row["failed"], row["attempts"]),
                text.count(row["failed"] - row["final"]),
                text.count(row["final"]),
            )
            for row in rows
        ],
    )
    made = bars(raw, names, traces, count_axis("failed attempts")) if rows else None
    return Plot("failing", "Most failing task names", says, table, made)


def dead_letters(found: Findings) -> Plot:
    rows = found.reasons
    raw = [row["why"] for row in rows]
    names = text.labels(raw)
    traces = [
        _counted("Still a dead letter", "@red", names, [row["still"] for row in rows]),
        _counted("Gone on since", "@others", names, [row["jobs"] - row["still"] for row in rows]),
    ]
    total = sum(row["jobs"] for row in rows)
    still = sum(row["still"] for row in rows)
    says = "No job failed for good."
    if rows:
        says = (
            f"{text.count(total)} jobs failed for good, {text.count(still)} of them are still "
            f"among the dead letters. Most often: {text.short(raw[0])} "
            f"({text.share(rows[0]['jobs'], total)})."
        )
    table = Table(
        ("Reason", "Jobs", "Still dead letters"),
        [
            (text.short(row["why"]), text.count(row["jobs"]), text.count(row["still"]))
            for row in rows
        ],
    )
    made = bars(raw, names, traces, count_axis("jobs")) if rows else None
    return Plot("dead", "Dead letters by reason", says, table, made)


def error_groups(found: Findings) -> Plot:
    """A table only: the words are what matters."""
    table = Table(
        ("Error", "Queue", "Name", "Jobs, for example", "Last seen (UTC)", "Count", "For good"),
        [
            (
                text.plain(row["message"] or row["error_class"]),
                text.short(row["queue"]),
                text.short(row["name"]),
                ", ".join(str(id) for id in (row["sample_jobs"] or [])[:3]),
                text.time(moment(row["last_seen"])),
                text.count(row["count"]),
                text.count(row["final"]),
            )
            for row in found.groups
        ],
        numbers=5,
    )
    says = (
        "Errors that look alike are one group; counts are of all the time that the lake knows."
        if found.groups
        else "No errors."
    )
    return Plot("errors", "Error groups", says, table)


def busy(found: Findings) -> Plot:
    """How many jobs were worked on at a time, on average over each bin."""
    scope = found.scope
    sums = [0.0] * scope.bins
    for (_, number), seconds in found.busy.items():
        if 0 <= number < scope.bins:
            sums[number] += seconds
    values = [each / scope.bin for each in sums]
    x = scope.starts()
    mean = sum(sums) / scope.seconds()
    says = (
        f"{text.count(found.worker_count)} workers; {mean:.1f} jobs were worked on at a time on "
        f"average, {max(values):.1f} in the busiest {bin_text(scope)}."
        if any(sums)
        else "No attempt ended in this time."
    )
    table = Table(
        ("From (UTC)", "Jobs at a time"),
        [(when, f"{value:.2f}") for when, value in zip(x, values, strict=True)],
    )
    trace = line(
        "Jobs at a time", x, [round(value, 3) for value in values], "@blue", fill="tozeroy"
    )
    trace["fillcolor"] = "@blueish"
    made = figure(
        [trace], height=240, xaxis=time_axis(), yaxis=count_axis("jobs at a time"), showlegend=False
    )
    return Plot("busy", "Work at a time", says, table, made if any(sums) else None)


def workers(found: Findings) -> Plot:
    scope = found.scope
    rows = found.workers
    raw = [row["worker"] for row in rows]
    names = text.labels(raw)
    values = [
        [round(found.busy.get((name, n), 0.0) / scope.bin, 4) for n in range(scope.bins)]
        for name in raw
    ]
    trace = {
        "type": "heatmap",
        "x": scope.starts(),
        "y": names,
        "z": values,
        "zmin": 0,
        "zmax": max(1.0, max((max(each) for each in values), default=1.0)),
        "hovertemplate": "%{y}<br>%{x}<br><b>%{z:.0%}</b> busy<extra></extra>",
        "colorscale": "@cool",
        "ygap": 2,
        "colorbar": {"thickness": 10, "outlinewidth": 0, "tickformat": ".0%"},
    }
    says = "No attempt ended in this time."
    if rows:
        most = max(rows, key=_utilisation)
        shown = "" if found.worker_count <= len(rows) else f" The {len(rows)} busiest are shown."
        says = (
            f"Busiest: {text.short(most['worker'])}, at work for {_utilisation(most):.0%} of the "
            f"time between its first and last job; more than 100 % is several jobs at a time."
            + shown
        )
    table = Table(
        ("Worker", "Busy", "Work in all", "Attempts", "Failed"),
        [
            (
                text.short(row["worker"]),
                f"{_utilisation(row):.0%}",
                text.duration(row["busy"]),
                text.count(row["attempts"]),
                text.share(row["failed"], row["attempts"]),
            )
            for row in rows
        ],
    )
    made = heat_figure(trace, raw, names, time_axis(showgrid=False)) if rows else None
    return Plot("workers", "Worker utilisation", says, table, made)


def _utilisation(row: Row) -> float:
    return float(row["busy"] or 0) / row["seen"] if row["seen"] else 0.0


def targets(found: Findings) -> Plot:
    scope = found.scope
    x = scope.starts()
    traces = []
    for number, each in enumerate(found.attainments[:12]):
        cells = [each.by_bin.get(n) for n in range(scope.bins)]
        name = f"{text.label(each.target.queue)} ≤ {text.duration(each.target.seconds)}"
        values = [round(cell[1] / cell[0], 4) if cell else None for cell in cells]
        traces.append(line(name, x, values, f"@series{number % 6}"))
    missed = sorted(
        (each for each in found.attainments if each.starts),
        key=lambda each: each.within / each.starts,
    )
    if not found.attainments:
        says = (
            "No targets were given: add them with --target QUEUE=TIME, such as --target mail=30s."
        )
    elif not missed:
        says = "No job of these queues was started."
    else:
        worst = missed[0]
        says = (
            f"Furthest from its target: {text.short(worst.target.queue)}, where "
            f"{text.share(worst.within, worst.starts)} of {text.count(worst.starts)} starts came "
            f"within {text.duration(worst.target.seconds)}."
        )
    table = Table(
        ("Queue", "Target", "Attained", "Starts", "Too late", "p95 wait"),
        [
            (
                text.short(each.target.queue),
                text.duration(each.target.seconds),
                text.share(each.within, each.starts),
                text.count(each.starts),
                text.count(each.starts - each.within),
                text.duration(each.p95),
            )
            for each in found.attainments
        ],
    )
    made = figure(
        traces,
        xaxis=time_axis(),
        yaxis=axis(tickformat=".0%", range=[0, 1.04], title={"text": "starts within target"}),
        hovermode="x unified",
    )
    return Plot("targets", "Attainment of wait targets", says, table, made if missed else None)
