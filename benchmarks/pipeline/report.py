"""The parts that were measured as a table of bars, a page and a plot."""

import re
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from benchmarks import readings, rig, svgplot

Parts = dict[str, dict[str, Any]]
MILLION: Final = 1_000_000
BAR_EVENTS: Final = 10 * MILLION
FLAT: Final = 1.15  # how much more an event may cost than in the smallest journal

FULL: Final = """ In the rows `all`, as many jobs are
asked for as can be done, so that the two sides have different work: they are held to no bar."""

INTRODUCTION: Final = """\
What Taskyard's [data pipeline](../pipeline.md) does on one machine: journals into tables, data
frames into queues and out of them, and what all that costs the server.
[What is measured, and how](../benchmarks.md#pipeline-the-data-pipeline)."""

TABLES: Final = """\
## From the journal to finished tables

Without Spark's start, which took {start:.1f} s. The largest begin in a fresh process, 1 M then find
it warm. The plot has the rate of each batch, against what the lake has by then.

"""

REBUILD: Final = """\
## Rebuild beside DuckDB

`jobs`, `attempts` and `queue_minutes` out of {events:,} `events`, in turns, from the same files.
DuckDB runs [this SQL](../../benchmarks/pipeline/rebuild.sql), which knows the rules that these
events need; the rebuild knows all of them, and makes `open_jobs` and `failures` too. Rows and sums
of columns came out the same: {counts}.

"""

SMALL: Final = """\
## Small batches

Batches of {records:,} records: what a batch costs, however few records it has.

"""

QUEUES: Final = """\
## Sink and queue source

{jobs:,} jobs of {payload} bytes out of a DataFrame into a server that flushes all of it, and back
in batches of {batch:,}: leased, read and acknowledged.

"""

BROKER: Final = """\
## What the lake costs the server

Processor time of the server's own process for push, take and finish at a fixed rate, with
`serve --lake` and without, in turns of {seconds:g} s on fresh servers. All share the same cores.
A ratio below 1 does not say that the lake gives anything: what a job costs may depend on how many
come at a time and how idle the cores are, and why it is below 1 was not found out. The times of a
cycle say what else the lake costs.{full}

"""


@dataclass(frozen=True)
class Bar:
    """What is wanted, and what was found, of one thing."""

    name: str
    unit: str
    wanted: float
    is_most: bool  # it is to be at most that; else at least
    values: Sequence[float]
    digits: int = 0

    @property
    def found(self) -> float:
        return statistics.median(self.values)

    @property
    def is_reached(self) -> bool:
        return self.found <= self.wanted if self.is_most else self.found >= self.wanted

    def cells(self) -> list[str]:
        way = "at most" if self.is_most else "at least"
        return [
            self.name,
            f"{way} {self._shown(self.wanted)} {self.unit}".rstrip(),
            f"{self._shown(self.found)}",
            f"{self._shown(min(self.values))} - {self._shown(max(self.values))}",
            str(len(self.values)),
            "reached" if self.is_reached else "**missed**",
        ]

    def _shown(self, value: float) -> str:
        return f"{value:,.{self.digits}f}"


def all_bars(parts: Parts) -> list[Bar]:
    found: list[Bar] = []
    if "tables" in parts:
        found += _table_bars(parts["tables"])
    if "rebuild" in parts:
        ratios = [turn["ratio"] for turn in parts["rebuild"]["rounds"]]
        found.append(Bar("warm rebuild to DuckDB's", "times its time", 4, True, ratios, 2))
        if "tables" in parts:
            cost = _duckdb_cpu(parts["rebuild"])
            shares = [each / cost for each in cpu_costs(parts["tables"])]
            name = "processor time of an event into tables, to DuckDB's from `events`"
            found.append(Bar(name, "times", 1.2, True, shares, 2))
    if "queues" in parts:
        rounds = parts["queues"]["rounds"]
        sink = [turn["sink_per_second"] for turn in rounds]
        source = [turn["source_per_second"] for turn in rounds]
        found.append(Bar("sink", "jobs/s", 50_000, False, sink))
        found.append(Bar("queue source", "jobs/s", 50_000, False, source))
    if "broker" in parts:
        found += _broker_bars(parts["broker"])
    return found


def _table_bars(part: dict[str, Any]) -> list[Bar]:
    turns = [turn for turn in part["rounds"] if _size(turn["runs"][0]) == BAR_EVENTS]
    first = [turn["runs"][0] for turn in turns]
    rates = [run["events"] / run["seconds"] for run in first]
    started = [
        run["events"] / (run["seconds"] + turn["start_seconds"])
        for run, turn in zip(first, turns, strict=True)
    ]
    name = f"{millions(BAR_EVENTS)} events into tables"
    bars = []
    if turns:
        bars = [
            Bar(name, "events/s", 150_000, False, rates),
            Bar(f"{name}, with the start of Spark", "events/s", 150_000, False, started),
        ]
    costs = costs_by_size(part)
    least = min(costs)
    for size in sorted(costs)[1:]:
        ratio = statistics.median(costs[size]) / statistics.median(costs[least])
        what = f"cost of an event, {millions(size)} to {millions(least)}"
        bars.append(Bar(what, "times", FLAT, True, [ratio], 2))
    return bars


def costs_by_size(part: dict[str, Any]) -> dict[int, list[float]]:
    """Microseconds an event, by how many there are, in whole millions."""
    found: dict[int, list[float]] = {}
    for turn in part["rounds"]:
        for run in turn["runs"]:
            found.setdefault(_size(run), []).append(run["seconds"] / run["events"] * 1e6)
    return found


def cpu_costs(part: dict[str, Any]) -> list[float]:
    """Microseconds of processor time an event, in the largest journals."""
    runs = [turn["runs"][0] for turn in part["rounds"]]
    return [run["cpu_seconds"] / run["events"] * 1e6 for run in runs]


def _duckdb_cpu(part: dict[str, Any]) -> float:
    seconds = statistics.median(turn["duckdb_cpu"] for turn in part["rounds"])
    return float(seconds / part["events"] * 1e6)


def _size(run: dict[str, Any]) -> int:
    return round(int(run["events"]) / MILLION) * MILLION


def _broker_bars(part: dict[str, Any]) -> list[Bar]:
    return [
        Bar(
            f"server's processor time a job with the lake, at {rate:,.0f} jobs/s",
            "times",
            1.1,
            True,
            [turn["ratio"] for turn in turns],
            3,
        )
        for rate, turns in by_rate(part).items()
        if rate
    ]


def by_rate(part: dict[str, Any]) -> dict[float, list[dict[str, Any]]]:
    found: dict[float, list[dict[str, Any]]] = {}
    for turn in part["rounds"]:
        found.setdefault(turn["rate"], []).append(turn)
    return found


def millions(events: float) -> str:
    return f"{round(events / MILLION)} M"


def bars(parts: Parts) -> str:
    header = ["", "bar", "median", "least - most", "rounds", ""]
    return rig.markdown_table(header, [bar.cells() for bar in all_bars(parts)])


def page(parts: Parts, plot_name: str) -> str:
    """A page of its own, with everything that a reader needs to judge the figures."""
    found = ["# The data pipeline", INTRODUCTION, about(parts), bars(parts)]
    for part, describe in _SECTIONS.items():
        if part in parts:
            found.append(describe(parts[part]))
            if part == "tables":
                found.append(f"![Events a second]({plot_name})")
    found += ["## Commands", commands(parts)]
    return "\n\n".join(found) + "\n"


def about(parts: Parts) -> str:
    """Of the part that was measured last; the machine is the same for all, or it is no page."""
    last = list(parts.values())[-1]
    versions = ", ".join(f"{name} {each}" for name, each in last["versions"].items())
    return (
        f"{readings.describe_machine(last['machine'])}.\n{versions}.\n"
        f"Taskyard {last['form']}; Spark and DuckDB on {last['cores']} cores; medians of rounds."
    )


def commands(parts: Parts) -> str:
    rows = [
        [name, f"`{_without_places(part['command'])}`", f"{part['took_seconds'] / 60:.1f}"]
        for name, part in parts.items()
    ]
    return rig.markdown_table(["part", "command", "minutes"], rows)


def _without_places(command: str) -> str:
    """Where somebody has put the files says nothing to others."""
    return re.sub(r" --(dir|out)[ =]\S+", "", command)


def tables_section(part: dict[str, Any]) -> str:
    rows = []
    for size, costs in sorted(costs_by_size(part).items()):
        rates = [1e6 / cost for cost in costs]
        rows.append(
            [
                millions(size),
                f"{statistics.median(costs):.2f}",
                f"{statistics.median(rates):,.0f}",
                f"{min(rates):,.0f} - {max(rates):,.0f}",
                str(len(rates)),
            ]
        )
    start = statistics.median(turn["start_seconds"] for turn in part["rounds"])
    header = ["events", "µs an event", "events/s", "least - most", "rounds"]
    return TABLES.format(start=start) + rig.markdown_table(header, rows)


def small_section(part: dict[str, Any]) -> str:
    rows = []
    for number, turn in enumerate(part["rounds"], 1):
        batches = len(turn["batches"])
        each = (turn["seconds"] / batches, turn["cpu_seconds"] / batches)
        rows.append([str(number), str(batches), *(f"{value:.2f}" for value in each)])
    header = ["round", "batches", "s a batch", "processor s a batch"]
    return SMALL.format_map(part) + rig.markdown_table(header, rows)


def rebuild_section(part: dict[str, Any]) -> str:
    rows = [
        [str(number), f"{turn['ours']:.1f}", f"{turn['duckdb']:.1f}", f"{turn['ratio']:.2f}"]
        for number, turn in enumerate(part["rounds"], 1)
    ]
    counts = ", ".join(f"{rows:,} {name}" for name, rows in part["compared"].items())
    header = ["round", "rebuild s", "DuckDB s", "ratio"]
    text = REBUILD.format(events=part["events"], counts=counts)
    return text + rig.markdown_table(header, rows)


def queues_section(part: dict[str, Any]) -> str:
    rows = [
        [str(number), f"{turn['sink_per_second']:,.0f}", f"{turn['source_per_second']:,.0f}"]
        for number, turn in enumerate(part["rounds"], 1)
    ]
    return QUEUES.format_map(part) + rig.markdown_table(
        ["round", "sink jobs/s", "source jobs/s"], rows
    )


def broker_section(part: dict[str, Any]) -> str:
    rows = [
        [f"{rate:,.0f}" if rate else "all", kind, *_broker_cells([turn[kind] for turn in turns])]
        for rate, turns in by_rate(part).items()
        for kind in ("without", "with")
    ]
    header = ["jobs/s asked", "lake", "jobs/s", "µs a job", "least - most"]
    header += ["cycle p50 ms", "p99 ms", "lake's cores", "its records"]
    full = FULL if 0 in by_rate(part) else ""
    return BROKER.format(seconds=part["seconds"], full=full) + rig.markdown_table(header, rows)


def _broker_cells(turns: list[dict[str, Any]]) -> list[str]:
    def median(name: str) -> float:
        return float(statistics.median(turn[name] for turn in turns))

    costs = [turn["cpu_us"] for turn in turns]
    return [
        f"{median('jobs_per_second'):,.0f}",
        f"{median('cpu_us'):.1f}",
        f"{min(costs):.1f} - {max(costs):.1f}",
        f"{median('cycle_p50_us') / 1000:.1f}",
        f"{median('cycle_p99_us') / 1000:.1f}",
        f"{median('lake_cores'):.2f}",
        f"{median('records_read'):,.0f}",
    ]


_SECTIONS: Final[dict[str, Callable[[dict[str, Any]], str]]] = {
    "tables": tables_section,
    "small": small_section,
    "rebuild": rebuild_section,
    "queues": queues_section,
    "broker": broker_section,
}


def plot(parts: Parts) -> str:
    """The rate of each batch against the events that are in the lake then."""
    lines = []
    for number, turn in enumerate(parts.get("tables", {"rounds": []})["rounds"], 1):
        for run in turn["runs"]:
            xs, ys = rates(run["batches"])
            if len(xs) > 1:
                name = f"{millions(run['events'])}, round {number}"
                lines.append(svgplot.Line(name, xs, ys))
    panel = svgplot.Panel("Into tables", "events/s", lines, height=260, level=150_000)
    return svgplot.Chart("Journal to finished tables", "events in the lake", [panel]).svg()


def rates(batches: Sequence[Sequence[float]]) -> tuple[list[float], list[float | None]]:
    xs: list[float] = []
    ys: list[float | None] = []
    total = last = 0.0
    for records, at in batches:
        total += records
        xs.append(total)
        ys.append(records / (at - last))
        last = at
    return xs, ys
