"""Records that are not about one job: batches, and what is rare enough to be read one by one."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import Final

import numpy as np

from taskyard.engine import records as r
from taskyard.engine.decode import Decoder
from taskyard.engine.errors import CorruptRecord
from taskyard.engine.side_records import BatchDone, SessionSet
from taskyard.journal.describe import describe, told
from taskyard.pipeline.records.found import Ints, Records
from taskyard.pipeline.records.layouts import JOB_KINDS
from taskyard.pipeline.records.values import read_values

# What has a column of its own, and so is left out of `details`.
_SHOWN: Final = ("seq", "time", "event", "dialect", "user", "holder", "queue", "consumer", "number")
_HEAD: Final = struct.Struct("<qqIq")  # owner, number, epoch, deadline of a batch


@dataclass(frozen=True)
class Batch:
    """The jobs of a batch that was leased: one row each beside that of the record."""

    index: int  # of its record
    ids: Ints
    attempts: Ints | None  # of records that say so
    queues: list[bytes]
    counts: Ints


def read_others(found: Records, fields: Ints) -> list[Batch]:
    """All that is not a record of one job; gives the batches among it."""
    batches: list[Batch] = []
    decoder = Decoder(False)
    others = ~JOB_KINDS[found.kinds]
    if not others.any():
        return batches
    others &= ~read_values(found, fields)
    for index in np.flatnonzero(others).tolist():
        if found.kinds[index] == r.BATCH:
            batches.append(_batch(found, index, int(fields[index])))
        else:
            _describe(found, index, decoder)
    return batches


def _describe(found: Records, index: int, decoder: Decoder) -> None:
    record = decoder.read(found.data, int(found.starts[index]), 0)
    if isinstance(record, SessionSet) and "details" in found.wanted:
        shown = told(found.salt(), record)
    else:
        shown = describe(record, False)
    queue = shown.get("queue")
    if isinstance(queue, str):
        found.patch("queue", index, queue)
    if isinstance(record, BatchDone):
        found.patch("consumer", index, record.consumer)
        _put_batch(found, index, record.number)
    elif isinstance(record, SessionSet):
        found.patch("reason", index, str(shown.pop("session_event")))
    if "details" in found.wanted:
        rest = {name: value for name, value in shown.items() if name not in _SHOWN}
        found.patch("details", index, json.dumps(rest, ensure_ascii=False))


def _put_batch(found: Records, index: int, number: int) -> None:
    if "batch" in found.wanted:
        found.put("batch", np.array([index]), np.array([number]))


def _batch(found: Records, index: int, at: int) -> Batch:
    fields = _Fields(found.data, at, int(found.ends[index]))
    consumer = fields.short()
    owner, number, epoch, deadline = _HEAD.unpack(fields.take(_HEAD.size))
    ids = fields.ids()
    counts = fields.ids()
    queues = [fields.short() for _ in range(len(counts))]
    if counts.sum() != len(ids):
        raise CorruptRecord(f"a batch at byte {at} has other jobs than its queues")
    attempts = fields.u32s(len(ids)) if found.versions[index] >= 2 else None
    if found.versions[index] >= 3:
        fields.short()  # whose the consumer is
    fields.finish()
    found.patch("consumer", index, consumer.decode(errors="backslashreplace"))
    found.patch("details", index, json.dumps({"owner": owner, "epoch": epoch}))
    _put_batch(found, index, number)
    if "deadline" in found.wanted:
        found.put_time("deadline", np.array([index]), np.array([deadline]))
    return Batch(index, ids, attempts, queues, counts)


class _Fields:
    """The fields of one record, with the ids of many jobs taken at once."""

    def __init__(self, data: bytes, at: int, end: int) -> None:
        self._data = data
        self._at = at
        self._end = end

    def take(self, size: int) -> bytes:
        at = self._at
        if at + size > self._end:
            raise CorruptRecord(f"a field reaches beyond the end of its record, at byte {at}")
        self._at = at + size
        return self._data[at : self._at]

    def short(self) -> bytes:
        return self.take(int.from_bytes(self.take(2), "little"))

    def ids(self) -> Ints:
        count = int.from_bytes(self.take(4), "little")
        return np.frombuffer(self.take(8 * count), "<i8")

    def u32s(self, count: int) -> Ints:
        return np.frombuffer(self.take(4 * count), "<u4").astype(np.int64)

    def finish(self) -> None:
        """What is left must be the blob that such records do not have."""
        if self.take(4) != bytes(4) or self._at != self._end:
            raise CorruptRecord(
                f"a record that ends at byte {self._end} is longer or shorter than what is in it"
            )
