"""What one task of a batch does: it has the jobs of some id ranges, from events to tables.

It reads the batch's event files itself, only the row groups that may have its jobs, and works on
a slice of its ranges at a time, so that what it computes with stays small.
"""

import io
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from taskyard.pipeline.lake.derive import COLUMNS, WORDS, derive
from taskyard.pipeline.lake.files import DataFile, TableWriter, read_files
from taskyard.pipeline.lake.gather import numbers
from taskyard.pipeline.lake.tables import ATTEMPTS, JOBS, MINUTE_STATE, OPEN_JOBS, RANGE_BITS

SLICE: Final = 600_000  # rows: three times as fast as three million at once


@dataclass
class Slice:
    """Neighbouring id ranges, and the open jobs' files of each."""

    ranges: list[int]
    kept: list[DataFile]


@dataclass
class Share:
    lake: Path
    step: int
    events: list[str]  # paths in the events table, in order of their records
    first_seq: int
    last_seq: int
    slices: list[Slice]


@dataclass
class Made:
    files: dict[str, list[DataFile]] = field(default_factory=dict)
    parts: bytes = b""  # of minutes, as an Arrow stream
    failures: list[dict[str, Any]] = field(default_factory=list)


def make(share: Share) -> Made:
    rows = _events(share)
    writers = {
        table.name: TableWriter(share.lake, table, share.step)
        for table in (JOBS, ATTEMPTS, OPEN_JOBS)
    }
    made = Made()
    parts = []
    ids = numbers(rows["job_id"], -1) >> RANGE_BITS
    for each in share.slices:
        inside = (ids >= each.ranges[0]) & (ids <= each.ranges[-1])
        wanted = np.flatnonzero(inside)
        its = rows if len(wanted) == len(ids) else rows.take(pa.array(wanted))
        derived = derive(its, read_files(share.lake, OPEN_JOBS, each.kept))
        writers["jobs"].write(derived.jobs)
        writers["attempts"].write(derived.attempts)
        writers["open_jobs"].write(derived.open_jobs)
        parts.append(derived.parts)
        made.failures += derived.failures
    made.files = {name: writer.close() for name, writer in writers.items()}
    made.parts = _stream(pa.concat_tables([MINUTE_STATE.schema.empty_table(), *parts]))
    return made


def _stream(table: Any) -> bytes:
    out = io.BytesIO()
    with pa.ipc.new_stream(out, table.schema) as stream:
        stream.write_table(table)
    return out.getvalue()


def _events(share: Share) -> Any:
    """The rows of this share's jobs, in the order of their records."""
    low = share.slices[0].ranges[0] << RANGE_BITS
    high = ((share.slices[-1].ranges[-1] + 1) << RANGE_BITS) - 1
    found = []
    for path in share.events:
        file = pq.ParquetFile(share.lake / "events" / path, read_dictionary=list(WORDS))
        groups = _groups(file.metadata, low, high, share.first_seq, share.last_seq)
        for group in groups:  # one at a time: twice as fast as all at once
            rows = file.read_row_group(group, columns=list(COLUMNS), use_threads=False)
            found.append(_inside(rows, low, high, share.first_seq, share.last_seq))
    return _ordered(pa.concat_tables(found).unify_dictionaries().combine_chunks())


def _groups(metadata: Any, low: int, high: int, first: int, last: int) -> list[int]:
    names = [metadata.schema.column(number).path for number in range(len(metadata.schema))]
    job, seq = names.index("job_id"), names.index("seq")
    return [
        number
        for number in range(metadata.num_row_groups)
        if _overlaps(metadata.row_group(number).column(job).statistics, low, high)
        and _overlaps(metadata.row_group(number).column(seq).statistics, first, last)
    ]


def _overlaps(stats: Any, low: int, high: int) -> bool:
    if stats is None or not stats.has_min_max:
        return stats is None or stats.null_count is None or bool(stats.num_values)
    return bool(stats.max >= low and stats.min <= high)


def _inside(rows: Any, low: int, high: int, first: int, last: int) -> Any:
    jobs, seqs = numbers(rows["job_id"], -1), numbers(rows["seq"], -1)
    inside = (jobs >= low) & (jobs <= high) & (seqs >= first) & (seqs <= last)
    return rows if inside.all() else rows.filter(pa.array(inside))


def _ordered(rows: Any) -> Any:
    """Files that were put together may have their records in another order."""
    seqs = numbers(rows["seq"], -1)
    if len(seqs) < 2 or (seqs[1:] >= seqs[:-1]).all():
        return rows
    return rows.take(pa.array(np.argsort(seqs, kind="stable")))


def share_out(
    ids: dict[int, int], kept: dict[int, list[DataFile]], shares: int
) -> list[list[Slice]]:
    """The touched id ranges in order, as up to so many shares of like size, each in slices."""
    total = sum(ids.values())
    found: list[list[Slice]] = [[] for _ in range(shares)]
    done = held = 0
    last = -1
    for each in sorted(ids):
        place = min((2 * done + ids[each]) * shares // (2 * total), shares - 1)
        mine = found[place]
        files = kept.get(each, [])
        if mine and place == last and held + ids[each] <= SLICE:
            mine[-1].ranges.append(each)
            mine[-1].kept += files
            held += ids[each]
        else:
            mine.append(Slice([each], list(files)))
            held = ids[each]
        done += ids[each]
        last = place
    return [each for each in found if each]
