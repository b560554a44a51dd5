"""What a report shows, asked of the lake's tables with Spark SQL: only small results come here."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from taskyard.pipeline.lake import minutes
from taskyard.pipeline.lake.snapshot import Lake
from taskyard.pipeline.report import queries as q
from taskyard.pipeline.report.scope import SHOWN_QUEUES, Options, Scope, Target, any_of, make_scope

Row = dict[str, Any]
Key = tuple[str | None, int]  # a queue (None: all others) and a bin

STEPS: Final = 14  # how often `step` is called
TOP_NAMES: Final = 12
TOP_WORKERS: Final = 15
_STOPPED: Final = 600  # seconds; what is shorter may be chance
_MIN_STARTS: Final = 20  # of a queue that can be called the worst


@dataclass
class Flow:
    """What happened in one queue, or in all others, within one bin."""

    arrivals: int = 0
    starts: int = 0
    finishes: int = 0
    failures: int = 0
    retries: int = 0


@dataclass
class Latency:
    attempts: int = 0
    failed: int = 0  # attempts that were retried or failed for good
    wait: tuple[float, float, float] | None = None  # p50, p95, p99
    run: tuple[float, float, float] | None = None


@dataclass
class Storm:
    queue: str
    first: int  # bins
    last: int
    retries: int
    starts: int
    error_class: str | None = None


@dataclass
class Stop:
    """Jobs of a queue waited and none ended."""

    queue: str
    since: datetime
    until: datetime
    depth: int


@dataclass
class Attainment:
    target: Target
    starts: int = 0
    within: int = 0
    p95: float | None = None
    by_bin: dict[int, tuple[int, int]] = field(default_factory=dict)  # starts, within


@dataclass
class Findings:
    scope: Scope
    options: Options
    last_time: datetime | None  # how far the lake goes
    is_open: bool = False  # the last bin is plotted as far as the lake goes: more of it may come
    queues: list[Row] = field(default_factory=list)  # totals of the shown ones
    all_queues: Row = field(default_factory=dict)
    flows: dict[Key, Flow] = field(default_factory=dict)
    depth: dict[str | None, list[int]] = field(default_factory=dict)
    overall: Latency = field(default_factory=Latency)
    by_queue: dict[str | None, Latency] = field(default_factory=dict)
    by_bin: dict[int, Latency] = field(default_factory=dict)
    by_both: dict[Key, Latency] = field(default_factory=dict)
    worst: Row | None = None
    outcomes: dict[str, int] = field(default_factory=dict)
    reasons: list[Row] = field(default_factory=list)
    open_states: dict[str, int] = field(default_factory=dict)
    slowest: list[Row] = field(default_factory=list)
    failing: list[Row] = field(default_factory=list)
    storms: list[Storm] = field(default_factory=list)
    stops: list[Stop] = field(default_factory=list)
    groups: list[Row] = field(default_factory=list)
    workers: list[Row] = field(default_factory=list)
    worker_count: int = 0
    busy: dict[Key, float] = field(default_factory=dict)  # by worker: seconds in the bin
    attainments: list[Attainment] = field(default_factory=list)
    week: dict[tuple[int, int], int] = field(default_factory=dict)  # Monday is day 0


def gather(
    spark: SparkSession, lake: Lake, options: Options, step: Callable[[], object]
) -> Findings:
    """`step` is called after each of STEPS questions."""
    return _Gathering(spark, lake, options, step).run()


class _Gathering:
    def __init__(
        self, spark: SparkSession, lake: Lake, options: Options, step: Callable[[], object]
    ) -> None:
        self.spark = spark
        self.lake = lake
        self.options = options
        self.step = step
        self.open_minute = _open_minute(lake)

    def run(self) -> Findings:
        self.scope = self._scope()
        self.step()
        last = self.lake.watermark.last_time
        self.found = Findings(self.scope, self.options, last)
        if last is not None:
            self.found.is_open = (
                self.scope.start_of(self.scope.bins - 1)
                <= last
                < (self.scope.start_of(self.scope.bins))
            )
        self.found.attainments = [Attainment(target) for target in self.options.targets]
        self._queues()
        self.step()
        self._views()
        there = bool(self.scope.queues)
        for ask in (
            self._flows,
            self._depth,
            self._latency,
            self._worst,
            self._ends,
            self._names,
            self._storms,
            self._stops,
            self._groups,
            self._workers,
            self._targets,
            self._week,
        ):
            if there:
                ask()
            self.step()
        return self.found

    # The scope

    def _scope(self) -> Scope:
        """What was asked for; where nothing was, from the first to the last thing that is there."""
        since, until = self.options.since, self.options.until
        if since is None or until is None:
            first, last = self._extent()
            since = since or first
            until = until or last + timedelta(microseconds=1)
        return make_scope(since, until)

    def _extent(self) -> tuple[datetime, datetime]:
        minutes = self._of("queue_minutes")
        times = [
            minutes.select(f.col("minute").alias("a"), f.col("minute").alias("b")),
            self._of("attempts").select(f.coalesce("started_at", "ended_at"), "ended_at"),
            self._of("jobs").select(f.coalesce("started_at", "finished_at"), "finished_at"),
            self._of("open_jobs").select(f.coalesce("began_at", "last_time"), "last_time"),
        ]
        union = times[0]
        for each in times[1:]:
            union = union.union(each)
        row = union.select(
            f.unix_micros(f.min("a")).alias("first"), f.unix_micros(f.max("b")).alias("last")
        ).collect()[0]
        if row["first"] is None:
            end = self.lake.watermark.last_time or datetime.now(UTC)
            return end - timedelta(minutes=1), end
        return moment(row["first"]), moment(row["last"])

    def _of(self, table: str) -> DataFrame:
        frame = self.lake.frame(self.spark, table)
        if table == "queue_minutes" and self.open_minute is not None:
            # What was shown of it before its end may be less than what is known by now.
            first = self.open_minute["minute"][0].as_py()
            last = self.spark.createDataFrame(self.open_minute, frame.schema)
            frame = frame.where(f.col("minute") < f.lit(first)).unionByName(last)
        if self.options.queues:
            frame = frame.where(f.col("queue").rlike(any_of(self.options.queues)))
        return frame

    def _within(self, time: str) -> Column:
        """Of a table by date; the date alone tells Spark which files to leave out."""
        since, until = self.scope.since, self.scope.until
        return (
            (f.col("date") >= f.lit(since.date()))
            & (f.col("date") <= f.lit(until.date()))
            & (f.col(time) >= f.lit(since))
            & (f.col(time) < f.lit(until))
        )

    def _bin(self, time: str) -> Column:
        size = self.scope.bin * 1_000_000
        first = self.scope.first * 1_000_000
        return f.floor((f.unix_micros(f.col(time)) - f.lit(first)) / f.lit(size)).cast("long")

    def _label(self) -> Column:
        return f.when(f.col("queue").isin(list(self.scope.queues)), f.col("queue"))

    def _queues(self) -> None:
        """The busiest queues get a line each; jobs may wait where nothing happened."""
        self._of("queue_minutes").where(self._minute_within()).createOrReplaceTempView("r_minutes")
        self._of("jobs").where(self._within("finished_at")).createOrReplaceTempView("r_jobs")
        self._of("open_jobs").createOrReplaceTempView("r_open")
        busiest = self._ask(q.QUEUES, limit=SHOWN_QUEUES)
        total = self._ask(q.QUEUE_COUNT)[0]["queues"]
        names = tuple(row["queue"] for row in busiest)
        self.scope = replace(self.scope, queues=names, others=total - len(names))
        self.found.scope = self.scope
        self.found.queues = busiest
        self.found.all_queues = self._ask(q.TOTALS)[0]

    def _minute_within(self) -> Column:
        """Minutes that overlap the span."""
        since = self.scope.since.replace(second=0, microsecond=0)
        return (
            (f.col("date") >= f.lit(since.date()))
            & (f.col("minute") >= f.lit(since))
            & (f.col("minute") < f.lit(self.scope.until))
        )

    def _views(self) -> None:
        """What the questions of report_queries.py are asked of."""
        label = self._label()
        self._of("queue_minutes").where(self._minute_within()).select(
            "*", label.alias("label"), self._bin("minute").alias("bin")
        ).createOrReplaceTempView("r_minutes")
        self._of("queue_minutes").where(f.col("minute") < f.lit(self.scope.until)).select(
            "queue",
            label.alias("label"),
            "minute",
            "depth",
            f.greatest(self._bin("minute"), f.lit(-1).cast("long")).alias("bin"),
        ).createOrReplaceTempView("r_levels")
        self._of("attempts").where(self._within("ended_at")).select(
            "*",
            label.alias("label"),
            self._bin("ended_at").alias("bin"),
            f.greatest(self._bin("started_at"), f.lit(0).cast("long")).alias("first_bin"),
        ).createOrReplaceTempView("r_attempts")
        self._of("failures").where(
            (f.col("last_seen") >= f.lit(self.scope.since))
            & (f.col("first_seen") < f.lit(self.scope.until))
        ).createOrReplaceTempView("r_failures")

    def _ask(self, query: str, **values: object) -> list[Row]:
        return [row.asDict() for row in self.spark.sql(query, args=values or None).collect()]

    # The questions

    def _flows(self) -> None:
        for row in self._ask(q.FLOWS):
            key = row.pop("label"), row.pop("bin")
            self.found.flows[key] = Flow(**row)

    def _depth(self) -> None:
        levels = {name: [0] * (self.scope.bins + 1) for name in self.scope.labels()}
        extra = {name: [0] * (self.scope.bins + 1) for name in self.scope.labels()}
        for row in self._ask(q.DEPTH):
            if row["label"] in levels:
                levels[row["label"]][row["bin"] + 1] += row["change"]
                extra[row["label"]][row["bin"] + 1] += row["above"]
        for name, changes in levels.items():
            level = changes[0]
            found = self.found.depth[name] = []
            for change, above in zip(changes[1:], extra[name][1:], strict=True):
                level += change
                found.append(level + above)

    def _latency(self) -> None:
        found = self.found
        for row in self._ask(q.LATENCY):
            latency = Latency(
                row["attempts"], row["failed"], _three(row["wait"]), _three(row["run"])
            )
            match row["over"]:
                case 0:
                    found.by_both[row["label"], row["bin"]] = latency
                case 1:
                    found.by_queue[row["label"]] = latency
                case 2:
                    found.by_bin[row["bin"]] = latency
                case _:
                    found.overall = latency

    def _worst(self) -> None:
        rows = self._ask(q.WORST, enough=_MIN_STARTS)
        self.found.worst = rows[0] if rows else None

    def _ends(self) -> None:
        self.found.outcomes = {row["outcome"]: row["jobs"] for row in self._ask(q.OUTCOMES)}
        self.found.reasons = self._ask(q.REASONS)
        self.found.open_states = {row["state"]: row["jobs"] for row in self._ask(q.OPEN)}

    def _names(self) -> None:
        self.found.slowest = self._ask(q.SLOWEST, limit=TOP_NAMES)
        self.found.failing = self._ask(q.FAILING, limit=TOP_NAMES)

    def _storms(self) -> None:
        storms = merge_storms(self._ask(q.STORMS, bins=self.scope.bins))[:TOP_NAMES]
        if storms:
            names = sorted({storm.queue for storm in storms})
            errors = self.spark.sql(q.STORM_ERRORS).where(f.col("queue").isin(names)).collect()
            for storm in storms:
                counts: dict[str, int] = {}
                for row in errors:
                    if row["queue"] == storm.queue and storm.first <= row["bin"] <= storm.last:
                        name = row["error_class"]
                        counts[name] = counts.get(name, 0) + row["retries"]
                storm.error_class = max(counts, key=lambda name: counts[name], default=None)
        self.found.storms = storms

    def _stops(self) -> None:
        """Jobs that are not yet due wait too; after a stop some had waited long to be started."""
        for row in self._ask(q.STOPS, least=_STOPPED):
            since, until = moment(row["since"] * 1_000_000), moment(row["until"] * 1_000_000)
            label = row["queue"] if row["queue"] in self.scope.queues else None
            number = (row["until"] - self.scope.first) // self.scope.bin
            after = [self.found.by_both.get((label, number + more)) for more in (0, 1)]
            longest = max((each.wait[2] for each in after if each and each.wait), default=0.0)
            if longest >= (until - since).total_seconds() / 2:
                self.found.stops.append(Stop(row["queue"], since, until, row["depth"]))

    def _groups(self) -> None:
        self.found.groups = self._ask(q.GROUPS, limit=20)

    def _workers(self) -> None:
        found = self.found
        found.workers = self._ask(q.WORKERS, limit=TOP_WORKERS)
        found.worker_count = self._ask(q.WORKER_COUNT)[0]["workers"]
        shown = [row["worker"] for row in found.workers]
        size = self.scope.bin * 1_000_000
        first = self.scope.first * 1_000_000
        self.spark.table("r_attempts").select(
            f.when(f.col("worker").isin(shown), f.col("worker")).alias("worker"),
            "started_at",
            "ended_at",
            f.explode(f.sequence("first_bin", "bin")).alias("bin"),
        ).createOrReplaceTempView("r_busy")
        for row in self._ask(q.BUSY, first=first, size=size):
            found.busy[row["worker"], row["bin"]] = row["busy"]

    def _targets(self) -> None:
        targets = self.options.targets
        if not targets:
            return
        number, limit = f.lit(None).cast("int"), f.lit(None).cast("double")
        for index in reversed(range(len(targets))):  # the first that fits counts
            fit = f.col("queue").rlike(any_of([targets[index].queue]))
            number = f.when(fit, f.lit(index)).otherwise(number)
            limit = f.when(fit, f.lit(targets[index].seconds)).otherwise(limit)
        self.spark.table("r_attempts").select(
            "wait_seconds", "bin", number.alias("target"), limit.alias("limit")
        ).createOrReplaceTempView("r_targets")
        for row in self._ask(q.TARGETS):
            found = self.found.attainments[row["target"]]
            if row["over"]:
                found.starts, found.within, found.p95 = row["starts"], row["within"], row["p95"]
            else:
                found.by_bin[row["bin"]] = (row["starts"], row["within"])

    def _week(self) -> None:
        for row in self._ask(q.WEEK):
            self.found.week[row["day"], row["hour"]] = row["arrivals"]


def _open_minute(lake: Lake) -> pa.Table | None:
    """The minute that was not over when the lake's last record came, as far as it goes."""
    state = lake.arrow("minute_state")
    numbers = [each for each in state["minute"].to_pylist() if each is not None]
    if not numbers:
        return None
    closed, _ = minutes.close(state, int(max(numbers).timestamp()) // 60 + 1)
    return closed


def merge_storms(rows: list[Row]) -> list[Storm]:
    """Neighbouring bins of one queue are one storm; the worst comes first."""
    storms: list[Storm] = []
    for row in sorted(rows, key=lambda row: (row["queue"], row["bin"])):
        last = storms[-1] if storms else None
        if last is not None and last.queue == row["queue"] and row["bin"] <= last.last + 1:
            last.last = row["bin"]
            last.retries += row["retries"]
            last.starts += row["starts"]
        else:
            storms.append(
                Storm(row["queue"], row["bin"], row["bin"], row["retries"], row["starts"])
            )
    return sorted(storms, key=lambda storm: -storm.retries)


def moment(micros: int) -> datetime:
    return datetime.fromtimestamp(0, UTC) + timedelta(microseconds=micros)


def _three(values: list[float] | None) -> tuple[float, float, float] | None:
    return (values[0], values[1], values[2]) if values else None
