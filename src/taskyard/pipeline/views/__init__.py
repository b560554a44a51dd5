"""Questions that people ask of a lake, as SQL views that Spark and DuckDB both understand.

A view is a file `NAME.sql` in this directory. The comment it begins with is TOML: what the view
shows, its parameters and columns, and how to draw it. `:name` in the text is a parameter. What the
two engines call differently is in FUNCTIONS, and nowhere else.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from importlib.resources import files
from math import isfinite
from typing import TYPE_CHECKING, Final

from taskyard.pipeline.lake.errors import LakeError

if TYPE_CHECKING:
    import pyarrow as pa
    from duckdb import DuckDBPyConnection
    from pyspark.sql import DataFrame, SparkSession

    from taskyard.pipeline.lake.snapshot import Lake

Value = int | float | str | date

# Defined in a session before the views. Times are cut in UTC, whatever the session's zone is.
FUNCTIONS: Final = {
    "duckdb": """
        macro minute_of(t) as to_timestamp(epoch_us(t) // 60000000 * 60);
        macro hour_of(t) as to_timestamp(epoch_us(t) // 3600000000 * 3600);
        macro hour_of_day(t) as cast(epoch_us(t) // 3600000000 % 24 as integer);
        macro day_of(t) as date '1970-01-01' + cast(epoch_us(t) // 86400000000 as integer);
        macro start_of(day) as to_timestamp(epoch(day));
        macro seconds_between(a, b) as (epoch_us(b) - epoch_us(a)) / 1e6;
        macro sequence(a, b, step) as generate_series(a, b, step);
        macro explode(list) as unnest(list);
        macro replace_all(s, pattern, word) as regexp_replace(s, pattern, word, 'g')
    """,
    "spark": """
        function minute_of(t timestamp) returns timestamp
            return timestamp_seconds(unix_seconds(t) div 60 * 60);
        function hour_of(t timestamp) returns timestamp
            return timestamp_seconds(unix_seconds(t) div 3600 * 3600);
        function hour_of_day(t timestamp) returns int
            return unix_seconds(t) div 3600 % 24;
        function day_of(t timestamp) returns date
            return date_from_unix_date(cast(unix_seconds(t) div 86400 as int));
        function start_of(day date) returns timestamp
            return timestamp_seconds(cast(unix_date(day) as bigint) * 86400);
        function seconds_between(a timestamp, b timestamp) returns double
            return (unix_micros(b) - unix_micros(a)) / 1e6;
        function replace_all(s string, pattern string, word string) returns string
            return regexp_replace(s, pattern, word)
    """,
}


@dataclass(frozen=True, slots=True)
class ViewParameter:
    name: str
    default: Value
    about: str
    choices: tuple[str, ...] = ()  # of a text: a list of some of these, with commas

    def parse(self, given: Value) -> Value:
        """The value as this parameter's type. Raises LakeError."""
        text = str(given).strip()
        try:
            if isinstance(self.default, date):
                return date.fromisoformat(text)
            if isinstance(self.default, str):
                words = [word.strip() for word in text.split(",")]
                if not set(words) <= set(self.choices):
                    raise ValueError
                return ",".join(words)
            number = type(self.default)(text)
            if not isfinite(number) or number < 0:
                raise ValueError
            return number
        except ValueError:
            raise LakeError(f"{self.name} is {self._kind()}, not {text!r}") from None

    def _kind(self) -> str:
        if isinstance(self.default, date):
            return "a day, like 2026-07-31"
        if isinstance(self.default, str):
            return f"a list of {', '.join(self.choices)}"
        return "a number from 0" if isinstance(self.default, float) else "a whole number from 0"


@dataclass(frozen=True, slots=True)
class ViewColumn:
    name: str
    unit: str  # s, 1/s, jobs, ...; empty: a name, a time or a flag
    about: str


@dataclass(frozen=True, slots=True)
class Plot:
    """How to draw a view: `kind` is table, line, bar or heat (whose colour is `value`)."""

    kind: str
    x: str = ""
    y: str = ""
    series: str = ""
    value: str = ""
    facet: str = ""  # a column: one plot for each of its values
    parameters: Mapping[str, Value] = field(default_factory=dict)  # to ask with for the plot


@dataclass(frozen=True, slots=True)
class View:
    name: str
    title: str
    about: str
    parameters: Mapping[str, ViewParameter]
    columns: Mapping[str, ViewColumn]
    plot: Plot | None  # None: only other views are made of it
    uses: tuple[str, ...]
    sql: str

    def text(self, values: Mapping[str, Value]) -> str:
        """Its SQL with these values in the place of its parameters."""
        known = "|".join(self.parameters)
        return re.sub(rf":({known})\b", lambda found: _literal(values[found[1]]), self.sql)


_EVERYWHERE: Final = (
    ViewParameter("since", date(1970, 1, 1), "the first day that is looked at, in UTC"),
    ViewParameter("until", date(9999, 12, 31), "the last day"),
)


def _read(name: str, text: str) -> View:
    head, sql = text.removeprefix("/*").split("*/", 1)
    told = tomllib.loads(head)
    own = [ViewParameter(key, **how) for key, how in told.get("parameters", {}).items()]
    return View(
        name=name,
        title=told["title"],
        about=told["about"],
        parameters={each.name: each for each in (*own, *_EVERYWHERE)},
        columns={key: ViewColumn(key, *how) for key, how in told["columns"].items()},
        plot=Plot(**told["plot"]) if "plot" in told else None,
        uses=tuple(told.get("uses", ())),
        sql=sql.strip(),
    )


_NAMES: Final = (
    *("starts", "hours", "latency", "targets", "capacity", "staffing", "retry_storms", "errors"),
    *("flows", "cost", "unusual_hours", "forecast"),
)
_ALL: Final = {
    name: _read(name, (files(__name__) / f"{name}.sql").read_text("utf-8")) for name in _NAMES
}
VIEWS: Final = {name: view for name, view in _ALL.items() if view.plot is not None}


def create_views(
    engine: DuckDBPyConnection | SparkSession,
    parameters: Mapping[str, Value] | None = None,
    names: tuple[str, ...] = tuple(VIEWS),
) -> None:
    """Make these views temporary views of a session that has the lake's tables as views.

    A parameter counts for all of them that have it. Raises LakeError.
    """
    wanted = _with_used(names)
    values = _values(wanted, parameters or {})
    for function in FUNCTIONS["duckdb" if hasattr(engine, "register") else "spark"].split(";"):
        engine.sql(f"create or replace temporary {function}")
    for view in wanted:
        engine.sql(f"create or replace temporary view {view.name} as {view.text(values)}")


def ask_duckdb(lake: Lake, name: str, parameters: Mapping[str, Value] | None = None) -> pa.Table:
    """The rows of a view. Raises LakeError."""
    find_view(name)
    with lake.connect() as connection:
        create_views(connection, parameters, (name,))
        return connection.table(name).to_arrow_table()


def ask_spark(
    spark: SparkSession, lake: Lake, name: str, parameters: Mapping[str, Value] | None = None
) -> DataFrame:
    """The rows of a view; the lake's tables become views of the session. Raises LakeError."""
    find_view(name)
    lake.create_views(spark)
    create_views(spark, parameters, (name,))
    return spark.table(name)


def find_view(name: str) -> View:
    """Raises LakeError, with the names that there are."""
    view = _ALL.get(name)
    if view is None:
        raise LakeError(f"there is no view {name!r}; there are {', '.join(VIEWS)}")
    return view


def _with_used(names: tuple[str, ...]) -> list[View]:
    """These views, each behind those that it is made of."""
    found: dict[str, View] = {}
    for name in names:
        view = find_view(name)
        found.update({each.name: each for each in (*_with_used(view.uses), view)})
    return list(found.values())


def _values(views: list[View], given: Mapping[str, Value]) -> dict[str, Value]:
    known = {name: each for view in reversed(views) for name, each in view.parameters.items()}
    for name in given:
        if name not in known:
            raise LakeError(f"there is no parameter {name!r} here; there are {', '.join(known)}")
    return {
        name: each.parse(given[name]) if name in given else each.default
        for name, each in known.items()
    }


def _literal(value: Value) -> str:
    if isinstance(value, date):
        return f"date '{value}'"
    if isinstance(value, float):
        text = repr(value)
        return text if "e" in text else f"{text}e0"  # else it would be a decimal
    return str(value) if isinstance(value, int) else f"'{value}'"
