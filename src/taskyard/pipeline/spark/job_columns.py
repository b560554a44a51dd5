"""Which columns of a data frame say what about the jobs that its rows are to be, or to end.

This is settled before anything is pushed, on the driver: a column of a type that cannot be is an
error of the write, not of a task.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from taskyard.client.commands import NewJob, Word, push_words
from taskyard.pipeline.spark.options import OptionError, SourceOptions
from taskyard.shared.text import NAME_RULE, valid_name

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

WHOLE_ROW: Final = "*"
_TEXTS: Final = ("string",)
_BYTES: Final = ("string", "binary")
_WHOLE: Final = ("tinyint", "smallint", "int", "bigint")
_SPANS: Final = (*_WHOLE, "float", "double", "decimal", "interval")
COLUMNS: Final[dict[str, tuple[str, ...]]] = {
    "queue": _TEXTS,
    "name": _TEXTS,
    "priority": _WHOLE,
    "run_at": ("timestamp",),
    "uid": _BYTES,
    "ttl": _SPANS,
    "ttr": _SPANS,
    "delay": _SPANS,
    "key": _BYTES,
    "limit_key": _TEXTS,
}
"""What a row may say, and the types of columns that can say it."""

_FIXED: Final = ("queue", "name", "priority", "ttl", "ttr", "delay", "limit_key")
_POLICY: Final = ("retries", "backoff", "attempts", "deadQueue")
KNOWN: Final = (
    *("url", "mode", "payload", "queryId", "txnVersion"),
    *_FIXED,
    *_POLICY,
    *(f"{name.replace('_', '')}Column" for name in COLUMNS),
)
# The names that Spark's users know from other sinks, for the same.
ALIASES: Final = {"topic": "queue", "path": "queue", "txnappid": "queryid"}
_NO_JSON: Final = ("variant", "interval", "geometry", "geography")


@dataclass(frozen=True, slots=True)
class JobColumns:
    """Crosses to the executors. Columns are given by their places."""

    names: Sequence[str]
    """Of all columns."""
    payload: int | None
    """None: the whole row is the payload."""
    places: dict[str, int]
    queue: str = ""
    """Where the jobs go whose row does not say; none if empty."""
    words: Sequence[Word] = field(default=())
    """Of JOB.PUSH, which hold for all jobs whose row says nothing else."""


def job_columns(schema: StructType, options: SourceOptions) -> JobColumns:
    """OptionError with what is wrong, if such rows cannot be jobs."""
    names = schema.names
    places: dict[str, int] = {}
    for what, types in COLUMNS.items():
        at = _place(what, names, options)
        if at is None:
            continue
        kind = schema.fields[at].dataType
        if _word(kind) not in types:
            raise OptionError(_wrong_type(what, names[at], kind, types))
        places[what] = at
    if "uid" in places and "ref" in names and options.text("uidColumn") is None:
        raise OptionError(
            "these rows are jobs that were read from queues, and a server that knows their uids "
            'takes no second job with one: .option("uidColumn", "") makes new jobs of them, '
            '.option("uidColumn", "uid") copies them to another server'
        )
    payload = _payload(schema, options)
    return JobColumns(names, payload, places, _queue(places, options), _words(options))


def _place(what: str, names: Sequence[str], options: SourceOptions) -> int | None:
    option = f"{what.replace('_', '')}Column"
    column = options.text(option)
    if column is None:
        return _find(what, names)
    if not column:
        return None
    at = _find(column, names)
    if at is None:
        raise OptionError(f"{option}: there is no column {column}, only {', '.join(names)}")
    return at


def _find(column: str, names: Sequence[str]) -> int | None:
    """As Spark does it, in either case; an exact match goes first."""
    if column in names:
        return list(names).index(column)
    found = [at for at, name in enumerate(names) if name.lower() == column.lower()]
    return found[0] if found else None


def _word(kind: DataType) -> str:
    """The first word of what SQL calls it: decimal of decimal(10,2)."""
    return kind.simpleString().partition("(")[0].partition("<")[0].partition(" ")[0]


def _wrong_type(what: str, column: str, kind: DataType, types: Sequence[str]) -> str:
    hint = ""
    if _word(kind) == "timestamp_ntz":
        hint = " It has no time zone: cast it to timestamp."
    return (
        f"column {column} is a {kind.simpleString()}, and {what} must be one of "
        f"{', '.join(types)}.{hint} If the column does not mean the {what} of a job, say so: "
        f'.option("{what.replace("_", "")}Column", "")'
    )


def _payload(schema: StructType, options: SourceOptions) -> int | None:
    column = options.text("payload")
    wanted = list(schema.fields)
    at: int | None = None
    if column != WHOLE_ROW:
        at = _find(column or "payload", schema.names)
        if at is None:
            raise OptionError(
                f"there is no column {column or 'payload'}, only {', '.join(schema.names)}: name "
                'the one that is the payload, .option("payload", ...), or "*" for the whole row '
                "as JSON"
            )
        wanted = [schema.fields[at]]
    for one in wanted:
        if _word(one.dataType) in _NO_JSON and "interval day" not in one.dataType.simpleString():
            raise OptionError(
                f"column {one.name} is a {one.dataType.simpleString()}, of which no JSON can be "
                "made: leave it out, or cast it"
            )
    return at


def _queue(places: dict[str, int], options: SourceOptions) -> str:
    queue = options.text("queue")
    if queue is None:
        if "queue" not in places:
            raise OptionError(
                'where to? .option("queue", NAME), or a column queue with the queue of each row'
            )
        return ""
    if not valid_name(queue):
        raise OptionError(f"queue {queue!r}: {NAME_RULE}")
    return queue


def _words(options: SourceOptions) -> Sequence[Word]:
    name, dead = options.text("name"), options.text("deadQueue")
    for option, value in (("name", name), ("deadQueue", dead)):
        if value is not None and not valid_name(value):
            raise OptionError(f"{option} {value!r}: {NAME_RULE}")
    limit_key = options.text("limit_key")
    return push_words(
        NewJob(
            "",
            name=name,
            priority=options.number("priority", -(2**63), 2**63 - 1) or 0,
            delay=options.seconds("delay"),
            ttr=options.seconds("ttr"),
            ttl=options.seconds("ttl"),
            retries=options.number("retries", -1, 2**32 - 2),
            backoff=options.seconds("backoff"),
            attempts=options.number("attempts", 0, 2**32 - 1),
            dead_queue=dead,
            limit_key=limit_key,
        )
    )


OUTCOMES: Final = ("succeeded", "retried", "failed", "released")
_OF_OUTCOMES: Final = ("ref", "error", "outcome")


def outcome_columns(schema: StructType) -> Sequence[str]:
    """Their names; OptionError if rows of this kind are no outcomes."""
    names: Sequence[str] = schema.names
    if "ref" not in names:
        raise OptionError("mode results needs the column ref, as the stream of jobs gave it")
    for one in schema.fields:
        if one.name not in (*_OF_OUTCOMES, "result"):
            raise OptionError(
                f"mode results has no use for column {one.name}, only for ref, result, error and "
                "outcome"
            )
        if one.name in _OF_OUTCOMES and one.dataType.simpleString() != "string":
            raise OptionError(f"column {one.name} is a {one.dataType.simpleString()}, not a string")
    return names
