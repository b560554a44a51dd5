"""The columns of an event: their names, their Arrow types, and which of them somebody wants.

Spark takes Arrow batches only if types and order are exactly those of the schema it was told.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa

_TIME: Final = pa.timestamp("us", tz="UTC")
_IDS: Final = pa.list_(pa.field("element", pa.int64()))

TYPES: Final[dict[str, Any]] = {
    "seq": pa.int64(),
    "part": pa.int32(),
    "time": _TIME,
    "event": pa.string(),
    "job_id": pa.int64(),
    "uid": pa.string(),
    "queue": pa.string(),
    "name": pa.string(),
    "dialect": pa.string(),
    "user": pa.string(),
    "holder": pa.string(),
    "attempt": pa.int32(),
    "priority": pa.int64(),
    "content": pa.string(),
    "payload_size": pa.int64(),
    "result_size": pa.int64(),
    "error_size": pa.int64(),
    "error": pa.string(),
    "reason": pa.string(),
    "explicit": pa.bool_(),
    "ended": pa.bool_(),
    "run_at": _TIME,
    "deadline": _TIME,
    "blocked_by": _IDS,
    "blocker": pa.int64(),
    "to_queue": pa.string(),
    "key": pa.string(),
    "limit_key": pa.string(),
    "ttl_ms": pa.int64(),
    "permille": pa.int32(),
    "message": pa.string(),
    "consumer": pa.string(),
    "batch": pa.int64(),
    "details": pa.string(),
    "payload": pa.binary(),
    "result": pa.binary(),
}
ALL_COLUMNS: Final = tuple(TYPES)
BLOB_COLUMNS: Final = ("payload", "result")
DEFAULT_COLUMNS: Final = tuple(name for name in TYPES if name not in BLOB_COLUMNS)


class UnknownColumn(ValueError):
    """Somebody asks for a column that events do not have."""

    def __init__(self, name: str) -> None:
        super().__init__(f"events have no column {name!r}: there are {', '.join(ALL_COLUMNS)}")
        self.name = name


def schema(columns: Iterable[str] = DEFAULT_COLUMNS) -> Any:
    """The Arrow schema of these columns, in this order."""
    return pa.schema([pa.field(name, TYPES[_known(name)]) for name in columns])


def parse_columns(text: str) -> tuple[str, ...]:
    """The columns that an option names: a list of all that are wanted, or `+` and those beside
    the default ones."""
    text = text.strip()
    more = text.startswith("+")
    names = [name.strip() for name in text.removeprefix("+").split(",")]
    wanted = [_known(name) for name in names if name]
    if more:
        return tuple(dict.fromkeys((*DEFAULT_COLUMNS, *wanted)))
    return tuple(dict.fromkeys(wanted)) or DEFAULT_COLUMNS


def _known(name: str) -> str:
    if name not in TYPES:
        raise UnknownColumn(name)
    return name
