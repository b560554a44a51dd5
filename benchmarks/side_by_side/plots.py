"""The plots of the page: jobs a second by server, and latency at the same rate."""

from typing import Final

from benchmarks import rig, svgplot
from benchmarks.side_by_side.plan import SMALL
from benchmarks.side_by_side.report import keeps_up
from benchmarks.side_by_side.results import Results
from benchmarks.side_by_side.shapes import shape_name

COLOURS: Final = {  # by whether it is Taskyard, and whether its jobs are finished after the take
    (True, True): svgplot.COLOURS[0],
    (True, False): svgplot.COLOURS[4],
    (False, True): svgplot.COLOURS[1],
    (False, False): svgplot.COLOURS[5],
}
KEY: Final = (
    ("Taskyard", COLOURS[True, True]),
    ("Taskyard, push and take only", COLOURS[True, False]),
    ("others", COLOURS[False, True]),
    ("others, push and take only", COLOURS[False, False]),
)
PERCENTILES: Final = ("p50", "p99", "p99.9")


def plots(results: Results) -> dict[str, str]:
    """By the name of the file; only those of which there is something to show."""
    found = {
        "side-by-side-sync.svg": throughput(
            results, "Jobs a second, flushed to disk", "sync", ("c1", "c50", "c500")
        ),
        "side-by-side-pipelined.svg": throughput(
            results, "Jobs a second, flushed to disk, pipelined", "sync", ("c50x100", "c1x100")
        ),
        "side-by-side-memory.svg": throughput(
            results, "Jobs a second, in memory only", "memory", ("c50", "c50x100")
        ),
        "side-by-side-latency.svg": latency(results),
    }
    return {name: chart.svg() for name, chart in found.items() if chart.panels}


def throughput(
    results: Results, title: str, durability: rig.Durability, shapes: tuple[str, ...]
) -> svgplot.RowChart:
    panels = []
    for shape in shapes:
        rows = bars(results, durability, shape)
        if rows:
            panels.append(svgplot.RowPanel(shape_name(shape), rows))
    return svgplot.RowChart(f"{title}; {SMALL} bytes", panels, KEY)


def bars(results: Results, durability: rig.Durability, shape: str) -> list[svgplot.Bar]:
    """The fastest at the top."""
    rows = []
    for subject in results.subjects:
        case = results.find("peak", subject.key, durability, shape, SMALL)
        if case is not None:
            colour = COLOURS[subject.is_taskyard, subject.has_finish]
            spread = (min(case.rates), max(case.rates))
            rows.append(svgplot.Bar(subject.label, case.rate, *spread, colour))
    return sorted(rows, key=lambda row: -row.value)


def latency(results: Results) -> svgplot.RowChart:
    rows = []
    for case in results.measured():
        if case.part == "offered":
            values = (
                case.median(lambda each: each.p50_us),
                case.median(lambda each: each.p99_us),
                case.median(lambda each: each.p999_us),
            )
            note = "" if keeps_up(results, case) else "has not kept up"
            label = results.subject(case.subject).label
            rows.append(svgplot.Dots(label, [max(value, 1.0) for value in values], note))
    title = f"Microseconds of a cycle at {results.offered_rate or 0:,.0f} jobs/s"
    panels = [svgplot.RowPanel("50 connections, flushed to disk", rows, log=True)] if rows else []
    key = tuple(zip(PERCENTILES, svgplot.COLOURS, strict=False))
    return svgplot.RowChart(title, panels, key)
