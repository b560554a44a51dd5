"""What a report shows: only small results of questions that DuckDB answers come here."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from taskyard.pipeline.lake.snapshot import Lake, Watermark
from taskyard.pipeline.report.scope import ReportOptions, Scope, any_of, make_scope

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

Row = dict[str, Any]
Grid = dict[str | None, list[Any]]  # by label: a value for each bin

SHOWN_QUEUES: Final = 12
PERCENTILES: Final = ("p50", "p95", "p99")
_FLOW: Final = ("arrivals", "starts", "finishes", "failures", "retries")
_NO_TIMES: Final = {f"{what}_{name}": None for what in ("wait", "run") for name in PERCENTILES}


@dataclass
class ReportData:
    """`None` as a label is all queues without a line of their own."""

    rows: dict[str, list[Row]]  # by the question that they are the answer to
    options: ReportOptions
    scope: Scope
    watermark: Watermark
    is_open: bool  # the last bin is plotted as far as the lake goes: more of it may come
    queues: list[Row]  # each with its times, and with `name`: what to call it
    total: Row
    flows: list[Row]  # of each bin, over all queues
    depth: Grid
    retries: Grid
    overall: Row  # times of all attempts
    by_bin: list[Row]
    by_both: dict[tuple[str | None, int], Row]
    outcomes: dict[str, int]
    open_states: dict[str, int]
    stops: list[Row]
    busy: Grid  # by worker: jobs at a time
    targets: list[Row]
    week: list[list[float | None]]  # by day (the first is Monday) and hour: arrivals in an hour

    @property
    def labels(self) -> list[str | None]:
        return [row["label"] for row in self.queues]

    @property
    def queue_count(self) -> int:
        return sum(row["queues"] for row in self.queues)

    @property
    def depth_of_all(self) -> list[int]:
        return _sums(self.depth.values(), self.scope.bins)

    @property
    def busy_of_all(self) -> list[float]:
        return _sums(self.busy.values(), self.scope.bins)

    @property
    def busiest_hour(self) -> Row | None:
        """Of the week."""
        hours = [
            {"arrivals": value, "day": day, "hour": hour}
            for day, values in enumerate(self.week)
            for hour, value in enumerate(values)
            if value
        ]
        return max(hours, key=lambda hour: hour["arrivals"], default=None)

    def longest(self, what: str) -> list[Row]:
        """Of each queue: when the wait, or the run, was longest."""
        column = f"{what}_p95"
        nothing: Row = {column: None, "bin": None}
        found: dict[str | None, Row] = dict.fromkeys(self.labels, nothing)
        for (label, _), row in sorted(self.by_both.items(), key=lambda item: item[0][1]):
            if row[column] is not None and row[column] >= (found[label][column] or 0):
                found[label] = row
        return [{**found[row["label"]], "name": row["name"]} for row in self.queues]

    @property
    def is_growing(self) -> bool:
        """A backlog that is at its highest at the end is not going away by itself."""
        depths = self.depth_of_all
        last = depths[-1]
        return last >= max(100, 0.9 * max(depths), 2 * depths[len(depths) // 2])


def _sums(columns: Any, length: int) -> list[Any]:
    return [sum(values) for values in zip(*columns, strict=True)] or [0] * length


def _read_questions() -> dict[str, str]:
    """The parts of questions.sql by name."""
    written = files(__package__).joinpath("questions.sql").read_text("utf-8")
    _, *parts = re.split(r"^-- :(\w+)\n", written, flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


QUESTIONS: Final = _read_questions()
_SETUP: Final = [QUESTIONS.pop(name) for name in ("macros", "extent", "views")]


def gather_report_data(
    lake: Lake, options: ReportOptions, step: Callable[[], object]
) -> ReportData:
    """Query the lake; `step` is called after each of the QUESTIONS."""
    with lake.connect() as connection:
        return _ReportQuery(lake, options, connection).run(step)


class _ReportQuery:
    def __init__(self, lake: Lake, options: ReportOptions, connection: DuckDBPyConnection) -> None:
        self._watermark = lake.watermark
        self._options = options
        self._connection = connection

    def run(self, step: Callable[[], object]) -> ReportData:
        self._scope = self._prepare()
        found = {}
        for name, question in QUESTIONS.items():
            found[name] = self._run_question(question)
            step()
        return self._make_report_data(found)

    def _prepare(self) -> Scope:
        macros, extent, views = _SETUP
        targets = self._options.targets
        self._connection.execute(macros)
        self._set(pattern=any_of(self._options.queues) if self._options.queues else None)
        scope = self._make_scope(self._run_question(extent)[0])
        self._set(since=scope.since, until=scope.until, bins=scope.bins, shown=[])
        self._set(first=scope.first * 1_000_000, size=scope.bin * 1_000_000)
        columns = {
            "number": pa.array(range(len(targets)), pa.int64()),
            "pattern": pa.array([any_of([each.queue]) for each in targets], pa.string()),
            "seconds": pa.array([each.seconds for each in targets], pa.float64()),
        }
        self._connection.register("r_targets", pa.table(columns))
        self._connection.execute(views)
        busiest = self._run_question(f"SELECT queue FROM r_queues WHERE place <= {SHOWN_QUEUES}")
        self._set(shown=[row["queue"] for row in busiest])
        return scope

    def _make_scope(self, extent: Row) -> Scope:
        """What was asked for; where nothing was, from the first to the last thing there is."""
        end = extent["last"] or self._watermark.last_time or datetime.now(UTC)
        since = self._options.since or extent["first"] or end - timedelta(minutes=1)
        return make_scope(since, self._options.until or end + timedelta(microseconds=1))

    def _set(self, **values: object) -> None:
        for name, value in values.items():
            self._connection.execute(f"SET VARIABLE {name} = $value", {"value": value})

    def _run_question(self, question: str) -> list[Row]:
        rows = self._connection.sql(question).to_arrow_table().to_pylist()
        return [_with_times(row) for row in rows]

    def _make_report_data(self, found: dict[str, list[Row]]) -> ReportData:
        scope, last = self._scope, self._watermark.last_time
        queues = found["queues"]
        labels = [row["label"] for row in queues]
        change = _grid(found["depth"], labels, range(-1, scope.bins), "change")
        above = _grid(found["depth"], labels, range(-1, scope.bins), "above")
        flows = {row["bin"]: row for row in found["flows"]}
        by_label = {row["label"]: row for row in found["times_by_queue"]}
        by_bin = {row["bin"]: row for row in found["times_by_bin"]}
        by_both = {(row["label"], row["bin"]): row for row in found["times_by_both"]}
        for row in queues:
            name = row["label"] or others_text(row["queues"])
            row.update({"name": name, **_NO_TIMES, **by_label.get(row["label"], {})})
        return ReportData(
            rows=found,
            options=self._options,
            scope=scope,
            watermark=self._watermark,
            is_open=last is not None
            and scope.start_of(scope.bins - 1) <= last < scope.start_of(scope.bins),
            queues=queues,
            total={name: sum(row[name] for row in queues) for name in _FLOW},
            flows=[flows.get(number, dict.fromkeys(_FLOW, 0)) for number in range(scope.bins)],
            depth={
                label: list(map(sum, zip(accumulate(change[label]), above[label], strict=True)))[1:]
                for label in labels
            },
            retries=_grid(found["retries"], labels, range(scope.bins)),
            overall=found["times"][0],
            by_bin=[by_bin.get(number, _NO_TIMES) for number in range(scope.bins)],
            by_both=by_both,
            outcomes={row["outcome"]: row["jobs"] for row in found["outcomes"]},
            open_states={row["state"]: row["jobs"] for row in found["open_states"]},
            stops=[stop for stop in found["stops"] if _has_waiting_jobs(stop, by_both)],
            busy=_grid(found["busy"], {row["label"] for row in found["busy"]}, range(scope.bins)),
            targets=self._attainments(found["targets"]),
            week=self._per_hour(found["week"]),
        )

    def _attainments(self, rows: list[Row]) -> list[Row]:
        cells = {(row["number"], row["bin"]): row for row in rows}
        nothing = {"starts": 0, "within": 0, "p95": None}
        return [
            {
                **total,
                "target": target,
                "share": total["within"] / total["starts"] if total["starts"] else None,
                "by_bin": [cells.get((number, each)) for each in range(self._scope.bins)],
            }
            for number, target in enumerate(self._options.targets)
            for total in [cells.get((number, None), nothing)]
        ]

    def _per_hour(self, rows: list[Row]) -> list[list[float | None]]:
        """Divided by how often each hour of the week was, so that half weeks do not mislead."""
        often = self._scope.hours_of_week()
        arrivals = {(row["day"], row["hour"]): row["arrivals"] for row in rows}
        return [
            [
                arrivals.get((day, hour), 0) / often[day, hour] if often[day, hour] else None
                for hour in range(24)
            ]
            for day in range(7)
        ]


def _with_times(row: Row) -> Row:
    """Percentiles as columns of their own."""
    for what in ("wait", "run"):
        if what in row:
            values = row.pop(what) or [None] * 3
            names = [f"{what}_{name}" for name in PERCENTILES]
            row |= dict(zip(names, values, strict=True))
    return row


def _grid(rows: list[Row], labels: Any, bins: range, value: str = "value") -> Grid:
    cells = {(row["label"], row["bin"]): row[value] for row in rows}
    return {label: [cells.get((label, number), 0) for number in bins] for label in labels}


def _has_waiting_jobs(stop: Row, by_both: dict[tuple[str | None, int], Row]) -> bool:
    """Jobs that are not yet due wait too; after a stop some had waited long to be started."""
    after = [by_both.get((stop["label"], stop["bin"] + more), _NO_TIMES) for more in (0, 1)]
    longest = max(each["wait_p99"] or 0.0 for each in after)
    return bool(longest >= stop["seconds"] / 2)


def others_text(count: int) -> str:
    return f"({count:,} other queue{'s' if count > 1 else ''})".replace(",", "\u202f")
