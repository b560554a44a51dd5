"""Queues by the minute: parts that tasks make of their jobs, and minutes that are made of parts.

A part of a minute can be added to others of the same minute: counts, the waits and runs
themselves, and who worked. So a minute may come in any number of batches and tasks.
"""

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from taskyard.pipeline.lake.tables import COUNTS, MINUTE_STATE, PERCENTS, QUEUE_MINUTES, TIME

MINUTE: Final = 60_000_000
_KEYS: Final = ["queue", "minute"]
_LEVELS: Final = COUNTS[-2:]
_QUANTILES: Final = tuple(percent / 100 for percent in PERCENTS)
_SECONDS: Final = ("waits", "runs")
# MINUTE_STATE with a column for each number: `minute` is null in a queue's level.
STATE: Final = pa.schema(
    [
        *[MINUTE_STATE.schema.field(name) for name in _KEYS],
        *[pa.field(name, pa.int64()) for name in COUNTS],
        *[pa.field(name, pa.list_(pa.float64())) for name in _SECONDS],
        MINUTE_STATE.schema.field("workers"),
    ]
)
_LEVEL: Final = pa.schema([STATE.field(name) for name in ("queue", *_LEVELS)])
# What parts have besides counts, and what it is made of.
_LISTS: Final = {
    "waits": ("wait", "list"),
    "runs": ("run", "list"),
    "workers": ("worker", "distinct"),
}


def parts(tables: list[Any]) -> Any:
    """The parts of minutes that the entries in these tables are.

    An entry is something that happened in a queue: `queue`, `minute`, what it adds to some of the
    COUNTS, and a `wait`, a `run` and a `worker` if there is one.
    """
    made = [STATE.empty_table()]
    for entries in tables:
        there = entries.schema.names
        found = _grouped(entries, {name: (name, "sum") for name in COUNTS if name in there})
        for name, (column, how) in _LISTS.items():
            if column in there:
                known = entries.select([*_KEYS, column]).drop_null()
                listed = _grouped(known, {name: (column, how)})
                row_of = {key: row for row, key in enumerate(_keys(listed))}
                rows = pa.array([row_of.get(key) for key in _keys(found)], pa.int64())
                found = found.append_column(name, listed[name].take(rows))
        made.append(found)
    return pa.concat_tables(made, promote_options="default")


def _grouped(entries: Any, wanted: dict[str, tuple[str, str]]) -> Any:
    """Rows of the state with these columns, and what of the entries each is made of."""
    schema = pa.schema([STATE.field(name) for name in (*_KEYS, *wanted)])
    if not len(entries):  # grouping no rows by a dictionary, pyarrow ends the process
        return schema.empty_table()
    found = entries.group_by(_KEYS, use_threads=False).aggregate(list(wanted.values()))
    names = [f"{column}_{how}" for column, how in wanted.values()]
    return found.select([*_KEYS, *names]).rename_columns([*_KEYS, *wanted]).cast(schema)


def _keys(state: Any) -> Iterator[tuple[str, int]]:
    minutes = state["minute"].cast(pa.int64()).to_pylist()
    return zip(state["queue"].to_pylist(), minutes, strict=True)


def unpacked(stored: Any) -> Any:
    """The state as it can be computed with."""
    rows = []
    for row in stored.to_pylist():
        names = COUNTS if row["minute"] else _LEVELS
        seconds = {name: np.frombuffer(row[name] or b"", np.float64) for name in _SECONDS}
        rows.append({**row, **dict(zip(names, row["counts"], strict=True)), **seconds})
    return pa.Table.from_pylist(rows, schema=STATE)


def packed(state: Any) -> Any:
    """The state as MINUTE_STATE has it."""
    columns = {name: state[name] for name in (*_KEYS, "workers")}
    columns["counts"] = [
        [row[name] or 0 for name in (COUNTS if row["minute"] else _LEVELS)]
        for row in state.select(["minute", *COUNTS]).to_pylist()
    ]
    for name in _SECONDS:
        columns[name] = [None if one is None else one.tobytes() for one in state[name].to_pandas()]
    return pa.table(columns, schema=MINUTE_STATE.schema)


def close_minutes(state: Any, limit: int) -> tuple[Any, Any]:
    """The minutes before minute number `limit`, and the state that is left of them."""
    over = pc.less(state["minute"], pa.scalar(limit * MINUTE).cast(TIME))
    final = state.filter(over)
    if not len(final):
        return QUEUE_MINUTES.schema.empty_table(), state
    sums = _grouped(final, {name: (name, "sum") for name in COUNTS})
    sums = sums.sort_by([(name, "ascending") for name in _KEYS])
    closed = sums.to_pandas().fillna(0).astype(dict.fromkeys(COUNTS, "int64"))
    before = state.filter(state["minute"].is_null()).select(["queue", *_LEVELS]).to_pandas()
    before = before.set_index("queue").astype("int64")
    for name in _LEVELS:  # changes become levels
        known = closed["queue"].map(before[name]).fillna(0).astype("int64")
        closed[name] = closed.groupby("queue")[name].cumsum() + known
    row_of = {key: row for row, key in enumerate(_keys(sums))}
    number = np.array([row_of[key] for key in _keys(final)])
    for what in ("wait", "run"):
        seconds = _values(final[f"{what}s"], number)
        found = seconds.quantile(list(_QUANTILES)).unstack().reindex(columns=_QUANTILES)
        for quantile, percent in zip(_QUANTILES, PERCENTS, strict=True):
            closed[f"{what}_p{percent}"] = found[quantile]
    closed["workers"] = _values(final["workers"], number).nunique()
    closed["workers"] = closed["workers"].fillna(0).astype("int64")
    closed["date"] = closed["minute"].dt.date
    after = closed.groupby("queue")[[*_LEVELS]].last().combine_first(before)
    left = after[after.any(axis=1)].astype("int64").reset_index()
    kept = [
        state.filter(pc.invert(over)),
        pa.Table.from_pandas(left, _LEVEL, preserve_index=False),
    ]
    return (
        pa.Table.from_pandas(closed, QUEUE_MINUTES.schema, preserve_index=False),
        pa.concat_tables(kept, promote_options="default"),
    )


def _values(lists: Any, number: Any) -> Any:
    """What is in all lists, grouped by the numbers that the lists have."""
    lists = lists.combine_chunks()
    owner = number[pc.list_parent_indices(lists).to_numpy()]
    return lists.flatten().to_pandas().groupby(owner)
