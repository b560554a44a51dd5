"""Queues by the minute: parts that tasks make of their jobs, and minutes that are made of parts.

A part of a minute can be added to others of the same minute: counts, the waits and runs
themselves, and who worked. So a minute may come in any number of batches and tasks.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from taskyard.pipeline.lake.lives import Flags, Ints
from taskyard.pipeline.lake.tables import COUNTS, MINUTE_STATE, PERCENTS, QUEUE_MINUTES, TIME

MINUTE: Final = 60_000_000
_LEVELS: Final = COUNTS.index("depth")


@dataclass
class Entries:
    """Things that happened in queues: one entry each."""

    queue: Ints  # index of its name
    minute: Ints
    counts: dict[str, Ints]


@dataclass
class Values:
    """Numbers or names that belong to an entry's queue and minute."""

    queue: Ints
    minute: Ints
    values: NDArray[Any]


def parts(names: Any, entries: Entries, waits: Values, runs: Values, workers: Values) -> Any:
    """The parts of minutes that these entries are; `workers` are indexes of `names` too."""
    if not len(entries.queue):
        return MINUTE_STATE.schema.empty_table()
    keys = _Keys(entries)
    group, uniques = pd.factorize(keys.of(entries.queue, entries.minute))
    index = pd.Index(uniques)
    counts = np.zeros((len(uniques), len(COUNTS)), np.int64)
    for number, name in enumerate(COUNTS):
        if name in entries.counts:
            counts[:, number] = _sums(group, entries.counts[name], len(uniques))
    return pa.table(
        {
            "queue": names.take(pa.array(keys.queue(uniques))),
            "minute": pa.array(keys.minute(uniques) * MINUTE).view(TIME),
            "counts": _lists(counts),
            "waits": _blobs(
                index.get_indexer(keys.of(waits.queue, waits.minute)), waits, len(index)
            ),
            "runs": _blobs(index.get_indexer(keys.of(runs.queue, runs.minute)), runs, len(index)),
            "workers": _distinct(
                index.get_indexer(keys.of(workers.queue, workers.minute)),
                workers,
                names,
                len(index),
            ),
        },
        schema=MINUTE_STATE.schema,
    )


class _Keys:
    """A queue and a minute as one number."""

    def __init__(self, entries: Entries) -> None:
        self._first = int(entries.minute.min())
        self._span = int(entries.minute.max()) - self._first + 1

    def of(self, queue: Ints, minute: Ints) -> Ints:
        return queue * self._span + (minute - self._first)

    def queue(self, keys: Ints) -> Ints:
        return keys // self._span

    def minute(self, keys: Ints) -> Ints:
        return keys % self._span + self._first


def _sums(group: Ints, amounts: Ints, count: int) -> Ints:
    there = amounts != 0
    sums = np.bincount(group[there], amounts[there].astype(np.float64), count)
    return np.rint(sums).astype(np.int64)


def _lists(counts: Ints) -> Any:
    rows, columns = counts.shape
    bounds = pa.array(np.arange(0, rows * columns + 1, columns, dtype=np.int32))
    kind = MINUTE_STATE.schema.field("counts").type
    return pa.ListArray.from_arrays(bounds, pa.array(counts.ravel()), type=kind)


def _blobs(group: Ints, values: Values, count: int) -> Any:
    order = np.argsort(group, kind="stable")
    bounds = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(group, minlength=count), out=bounds[1:])
    data = values.values[order].astype(np.float64).tobytes()
    buffers = [None, pa.py_buffer(bounds * 8), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_binary(), count, buffers).cast(pa.binary())


def _distinct(group: Ints, workers: Values, names: Any, count: int) -> Any:
    pairs = np.unique(group * max(len(names), 1) + workers.values)
    bounds = np.zeros(count + 1, np.int32)
    np.cumsum(np.bincount(pairs // max(len(names), 1), minlength=count), out=bounds[1:])
    who = names.take(pa.array(pairs % max(len(names), 1)))
    kind = MINUTE_STATE.schema.field("workers").type
    return pa.ListArray.from_arrays(pa.array(bounds), who, type=kind)


def close(state: Any, limit: int) -> tuple[Any, Any]:
    """The minutes before minute number `limit`, and the state that is left of them."""
    minute = state["minute"].combine_chunks()
    numbers = minute.view(pa.int64()).fill_null(-1).to_numpy() // MINUTE
    level = minute.is_null().to_numpy(zero_copy_only=False)
    final = ~level & (numbers < limit)
    if not final.any():
        return QUEUE_MINUTES.schema.empty_table(), state
    closed, levels = _Closing(state.filter(pa.array(final)), state.filter(pa.array(level))).run()
    return closed, pa.concat_tables([levels, state.filter(pa.array(~level & ~final))])


class _Closing:
    def __init__(self, parts_table: Any, levels: Any) -> None:
        self._parts = parts_table
        both = pa.concat_arrays(
            [*_chunks(levels["queue"]), *_chunks(parts_table["queue"])]
        ).dictionary_encode()
        self._names = both.dictionary
        codes = both.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        self._levels = np.zeros((len(self._names), 2), np.int64)
        if levels.num_rows:
            known = _matrix(levels["counts"], 2)
            self._levels[codes[: levels.num_rows]] = known
        self._queue = codes[levels.num_rows :]
        minute = parts_table["minute"].combine_chunks().view(pa.int64())
        self._minute = minute.to_numpy(zero_copy_only=False) // MINUTE

    def run(self) -> tuple[Any, Any]:
        span = int(self._minute.max()) + 1
        keys, group = np.unique(self._queue * span + self._minute, return_inverse=True)
        counts = np.zeros((len(keys), len(COUNTS)), np.int64)
        np.add.at(counts, group, _matrix(self._parts["counts"], len(COUNTS)))
        queue = keys // span
        self._add_up(queue, counts)
        minute = keys % span * MINUTE
        columns: dict[str, Any] = {
            "queue": self._names.take(pa.array(queue)),
            "minute": pa.array(minute).view(TIME),
            **{name: pa.array(counts[:, number]) for number, name in enumerate(COUNTS)},
            **_percentiles("wait", group, self._parts["waits"], len(keys)),
            **_percentiles("run", group, self._parts["runs"], len(keys)),
            "workers": pa.array(_distinct_counts(group, self._parts["workers"], len(keys))),
            "date": pa.array((minute // (1440 * MINUTE)).astype(np.int32)).view(pa.date32()),
        }
        schema = QUEUE_MINUTES.schema
        return pa.table([columns[name] for name in schema.names], schema=schema), self._left()

    def _add_up(self, queue: Ints, counts: Ints) -> None:
        """Changes become levels: rows are in order of queue and minute."""
        starts = np.flatnonzero(np.r_[True, queue[1:] != queue[:-1]])
        for offset in range(2):
            changes = counts[:, _LEVELS + offset]
            total = np.cumsum(changes)
            before = (total - changes)[starts]
            lengths = np.diff(np.r_[starts, len(queue)])
            counts[:, _LEVELS + offset] = (
                total - np.repeat(before, lengths) + self._levels[queue, offset]
            )
        ends = np.r_[starts[1:] - 1, len(queue) - 1]
        self._levels[queue[ends]] = counts[ends, _LEVELS : _LEVELS + 2]

    def _left(self) -> Any:
        """Levels of the queues that are not empty."""
        full = np.flatnonzero(self._levels.any(axis=1))
        count = len(full)
        return pa.table(
            {
                "queue": self._names.take(pa.array(full)),
                "minute": pa.nulls(count, TIME),
                "counts": _lists(self._levels[full]),
                "waits": pa.nulls(count, pa.binary()),
                "runs": pa.nulls(count, pa.binary()),
                "workers": pa.nulls(count, MINUTE_STATE.schema.field("workers").type),
            },
            schema=MINUTE_STATE.schema,
        )


def _chunks(column: Any) -> list[Any]:
    return column.chunks or [pa.array([], column.type)]


def _matrix(column: Any, width: int) -> Ints:
    flat = column.combine_chunks().flatten().to_numpy(zero_copy_only=False)
    found: Ints = flat.reshape(-1, width)
    return found


def _percentiles(name: str, group: Ints, blobs: Any, count: int) -> dict[str, Any]:
    """Exact ones, between the two nearest values."""
    pieces = [np.frombuffer(blob, np.float64) for blob in blobs.to_pylist()]
    values = np.concatenate(pieces) if pieces else np.zeros(0)
    owner = np.repeat(group, [len(piece) for piece in pieces])
    values = values[np.lexsort((values, owner))]
    amounts = np.bincount(owner, minlength=count)
    begins = np.cumsum(amounts) - amounts
    there: Flags = amounts > 0
    found: dict[str, Any] = {}
    for percent in PERCENTS:
        place = np.where(there, amounts - 1, 0) * percent / 100
        low = place.astype(np.int64)
        high = np.minimum(low + 1, np.maximum(amounts - 1, 0))
        result = np.zeros(count)
        below, above = values[(begins + low)[there]], values[(begins + high)[there]]
        result[there] = below + (above - below) * (place - low)[there]
        found[f"{name}_p{percent}"] = pa.array(result, mask=~there)
    return found


def _distinct_counts(group: Ints, lists: Any, count: int) -> Ints:
    array = lists.combine_chunks()
    owner = np.repeat(group, array.value_lengths().to_numpy(zero_copy_only=False))
    names = array.flatten().dictionary_encode()
    codes = names.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    width = max(len(names.dictionary), 1)
    pairs = np.unique(owner * width + codes)
    return np.bincount(pairs // width, minlength=count).astype(np.int64)
