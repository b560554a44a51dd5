"""The fields of records, found for all records of a kind at once.

Numbers are arrays with a mask of those that are there; texts and blobs are where they stand in
the bytes, and are only copied when an Arrow array is made of them. Records that are rare are read
one by one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from taskyard.engine.model.events import CorruptRecord
from taskyard.engine.records import job_lifecycle as r
from taskyard.engine.records.decode import Decoder
from taskyard.engine.records.describe import describe, describe_masked
from taskyard.engine.records.entities import BatchDone, BatchRecord, SessionChange
from taskyard.pipeline.records.fields import TYPES

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

_LAST_TIME: Final = 253_402_300_799_999_999  # of the year 9999: what a date can say
_INT_MAX: Final = 0x7FFF_FFFF
_LONG_MAX: Final = 0x7FFF_FFFF_FFFF_FFFF
_MAX_BYTES: Final = 0x7FFF_0000  # Arrow's offsets are of 32 bits
_LONG: Final = pa.int64()
_DTYPES: Final = {pa.int32(): np.int32, pa.bool_(): np.bool_}
# What has a column of its own, and so is left out of `details`.
_SHOWN: Final = ("seq", "time", "event", "dialect", "user", "holder", "queue", "consumer", "number")
_SIMPLE: Final = r"^[ !#-\[\]-~]*$"  # a text that JSON has as it is
_MOMENT: Final = "%Y-%m-%dT%H:%M:%SZ"


class ColumnBuilder:
    """The bytes, where the records in them begin and end, and what is found in them.

    The jobs of a batch that was leased are records here as well, which are numbered from 1 on in
    `parts` and begin where that of the batch does.
    """

    def __init__(
        self,
        data: bytes,
        starts: Ints,
        seqs: Ints,
        wanted: Iterable[str],
        salt: Callable[[], bytes] = bytes,
    ) -> None:
        """`salt` is called where a session's id must not be shown: see `describe_masked` of
        describe.py.
        """
        size = len(data)
        if size > _MAX_BYTES:
            raise ValueError(f"{size} bytes are too many to be decoded at once")
        self.data = data
        self.wanted = set(wanted)
        self._salt = salt
        self._u8 = np.frombuffer(data, np.uint8)
        # One element a byte: a number can be read wherever it stands.
        self._u16 = np.ndarray((max(size - 1, 0),), "<u2", data, 0, (1,))
        self._u32 = np.ndarray((max(size - 3, 0),), "<u4", data, 0, (1,))
        self._i64 = np.ndarray((max(size - 7, 0),), "<i8", data, 0, (1,))
        self.numbers: dict[str, tuple[NDArray[Any], Flags]] = {}
        self.spans: dict[str, tuple[Ints, Ints]] = {}
        self.overrides: dict[str, dict[int, str]] = {}  # texts that do not stand in the bytes so
        self._decoder = Decoder(False)
        kinds = self._u8[starts + 4]
        batches = {index: self._batch(starts[index]) for index in np.flatnonzero(kinds == r.BATCH)}
        firsts = rows = np.arange(len(starts))  # the first row of each record; the record of each
        if batches:
            counts = np.ones(len(starts), np.int64)
            counts[list(batches)] += [len(batch.ids) for batch in batches.values()]
            firsts = np.cumsum(counts) - counts
            rows = np.repeat(rows, counts)
            starts, seqs, kinds = starts[rows], seqs[rows], kinds[rows]
        self.count = len(starts)
        self.starts, self.seqs, self.kinds = starts, seqs, kinds
        self.parts = np.arange(self.count) - firsts[rows]
        self.ends = starts + 4 + self.u32(starts)
        self._read()
        for index, batch in batches.items():
            self._put_batch(int(firsts[index]), batch)

    # Bytes

    def u8(self, at: Ints) -> Ints:
        return self._u8[at].astype(np.int64)

    def u16(self, at: Ints) -> Ints:
        return self._u16[at].astype(np.int64)

    def u32(self, at: Ints) -> Ints:
        return self._u32[at].astype(np.int64)

    def i64(self, at: Ints) -> Ints:
        return self._i64[at]

    # What is found

    def set_values(self, name: str, which: Ints, values: NDArray[Any]) -> None:
        """These records have this number, as the column can say it; a time of 0 is none."""
        if name not in self.wanted:
            return
        kind = TYPES.get(name, _LONG)
        if pa.types.is_timestamp(kind):
            known = values != 0
            if not known.all():
                which, values = which[known], values[known]
            values = np.clip(values, 0, _LAST_TIME)
        elif kind == pa.int32():
            values = np.minimum(values, _INT_MAX)  # nothing comes near to what it cannot say
        if name not in self.numbers:
            dtype = _DTYPES.get(kind, np.int64)
            self.numbers[name] = np.zeros(self.count, dtype), np.zeros(self.count, np.bool_)
        numbers, there = self.numbers[name]
        numbers[which] = values
        there[which] = True

    def set_bytes(self, name: str, which: Ints, at: Ints, sizes: Ints | int) -> None:
        """These records have a text there."""
        if name not in self.wanted:
            return
        if name not in self.spans:
            self.spans[name] = self.starts.copy(), np.full(self.count, -1, np.int64)
        places, lengths = self.spans[name]
        places[which] = at
        lengths[which] = sizes

    def override(self, name: str, which: Iterable[int], text: str) -> None:
        if name in self.wanted and text:
            self.overrides.setdefault(name, {}).update(dict.fromkeys(which, text))

    def binary(self, name: str, keep_empty: bool = False) -> Any:
        """The bytes of a column, in the order of the records; null where there are none."""
        if name not in self.spans or not self.count:
            return pa.nulls(self.count, pa.binary())
        at, sizes = self.spans[name]
        # An Arrow array over the bytes as they are: each field, and what is between two of them.
        # Taking every other element copies the fields out at the speed of C.
        bounds = np.empty(2 * self.count + 1, np.int32)
        bounds[0:-1:2] = at
        bounds[1::2] = at + np.maximum(sizes, 0)
        bounds[-1] = bounds[-2]
        buffers = [None, pa.py_buffer(bounds), pa.py_buffer(self.data)]
        pieces = pa.Array.from_buffers(pa.binary(), 2 * self.count, buffers)
        absent = sizes < 0 if keep_empty else sizes <= 0
        fields = np.arange(0, 2 * self.count, 2, dtype=np.int32)
        return pieces.take(pa.array(fields, mask=absent if absent.any() else None))

    # Reading

    def _read(self) -> None:
        """Time and origin, which all records have, and then the fields of each kind."""
        which = np.arange(self.count)
        self.set_values("event", which, np.where(self.parts > 0, r.LEASE, self.kinds))
        at = self._read_fields(_HEAD, which, self.starts + 6)
        if "details" in self.wanted:
            self.wanted.update(("value_key", "value_expiry", "value_keep", "value_size"))
        for kind in np.flatnonzero(np.bincount(self.kinds, minlength=256)).tolist():
            which = np.flatnonzero(self.kinds == kind)
            if kind in _LAYOUTS:
                self._read_kind(kind, which, at[which])
            elif kind != r.BATCH:
                for index in which.tolist():
                    self._describe(index)
        for kind in (r.VALUE, r.VALUE_GONE):
            if "details" in self.wanted and (self.kinds == kind).any():
                self._describe_values(kind, np.flatnonzero(self.kinds == kind))

    def _read_fields(self, fields: tuple[_Field, ...], which: Ints, at: Ints) -> Ints:
        """Note the fields of these records that are wanted; gives where they end."""
        flags, any_flags = at, 0
        for name, form, flag in fields:
            if form is _FLAGS:
                flags = self.u8(at)
                any_flags = int(np.bitwise_or.reduce(flags))
            if not flag:
                at = self._read_field(name, form, which, at)
            elif any_flags & flag:
                has = np.flatnonzero(flags & flag)
                at[has] = self._read_field(name, form, which[has], at[has])
        return at

    def _read_field(self, name: str, form: _Form, which: Ints, at: Ints) -> Ints:
        if form.number is not None:
            if name in self.wanted:
                self.set_values(name, which, form.number(self, at))
            return at + form.size
        sizes = form.length(self, at) if form.length is not None else 0
        self.set_bytes(name, which, at + form.size, sizes)
        ends: Ints = at + form.size + sizes
        return ends

    def _read_kind(self, kind: int, which: Ints, at: Ints) -> None:
        at = self._read_fields(_LAYOUTS[kind], which, at)
        blob = _BLOBS.get(kind, "")
        sizes = self.u32(at)
        wrong = at + 4 + sizes != self.ends[which]
        if wrong.any():
            start = self.starts[which[wrong.argmax()]]
            raise CorruptRecord(f"a record at byte {start} is longer or shorter than what is in it")
        self.set_values(f"{blob}_size", which, sizes)
        self.set_bytes(blob, which, at + 4, sizes)

    # What is rare

    def _describe(self, index: int) -> None:
        record = self._decoder.read(self.data, int(self.starts[index]), 0)
        if isinstance(record, SessionChange) and "details" in self.wanted:
            shown = describe_masked(self._salt(), record)
        else:
            shown = describe(record, False)
        self.override("queue", [index], str(shown.get("queue") or ""))
        if isinstance(record, BatchDone):
            self.override("consumer", [index], record.consumer)
            self.set_values("batch", np.array([index]), np.array([record.number]))
        elif isinstance(record, SessionChange):
            self.override("reason", [index], str(shown.pop("session_event")))
        rest = {name: value for name, value in shown.items() if name not in _SHOWN}
        self.override("details", [index], json.dumps(rest, ensure_ascii=False))

    def _batch(self, start: int) -> BatchRecord:
        batch = self._decoder.read(self.data, int(start), 0)
        assert isinstance(batch, BatchRecord)
        if sum(batch.counts) != len(batch.ids):
            raise CorruptRecord(f"a batch at byte {start} has other jobs than its queues")
        return batch

    def _put_batch(self, first: int, batch: BatchRecord) -> None:
        jobs = np.arange(first + 1, first + 1 + len(batch.ids))
        rows = np.arange(first, first + 1 + len(batch.ids))
        self.set_values("batch", rows, np.full(len(rows), batch.number))
        self.set_values("deadline", rows, np.full(len(rows), batch.deadline))
        self.override("consumer", rows.tolist(), batch.consumer)
        details = json.dumps({"owner": int(batch.owner), "epoch": int(batch.epoch)})
        self.override("details", [first], details)
        self.set_values("job_id", jobs, np.array(batch.ids, np.int64))
        attempts = np.array(batch.attempts, np.int64)
        self.set_values("attempt", jobs[attempts > 0], attempts[attempts > 0])
        for queue, some in zip(batch.queues, np.split(jobs, np.cumsum(batch.counts)), strict=False):
            self.override("queue", some.tolist(), queue.decode(errors="backslashreplace"))

    def _describe_values(self, kind: int, which: Ints) -> None:
        """Keyed values, of which toq has one for each result, described as `describe` does it.

        What is not simple enough for that is left to it.
        """
        keys = self.binary("value_key", keep_empty=True).take(pa.array(which))
        simple = pc.match_substring_regex(keys, _SIMPLE).to_numpy(zero_copy_only=False).copy()
        expiries, _ = self.numbers.get("value_expiry", (np.zeros(self.count, np.int64), None))
        simple &= (expiries[which] >= 0) & (expiries[which] <= _LAST_TIME)
        for index in which[~simple].tolist():
            self._describe(index)
        which = which[simple]
        parts = ['{"key": "', keys.filter(pa.array(simple)).cast(pa.string()), '"']
        if kind == r.VALUE:
            times = pa.array(expiries[which]).cast(TYPES["time"])
            moments = pc.binary_join_element_wise('"', pc.strftime(times, _MOMENT), '"', "")
            is_kept = pa.array(self.numbers["value_keep"][0][which] != 0)
            sizes = pa.array(self.numbers["value_size"][0][which]).cast(pa.string())
            has_expiry = pa.array(expiries[which] != 0)
            parts += [', "expires_at": ', pc.if_else(has_expiry, moments, "null")]
            parts += [', "keep": ', pc.if_else(is_kept, "true", "false"), ', "value_size": ', sizes]
        texts = pc.binary_join_element_wise(*parts, "}", "").to_pylist()
        self.overrides.setdefault("details", {}).update(zip(which.tolist(), texts, strict=True))


# Layouts: those of `put` in taskyard.engine.records.job_lifecycle and job_records


class _Form(NamedTuple):
    """How a field stands there: a number, or bytes behind their length."""

    size: int  # in bytes, of the number or the length
    number: Callable[[ColumnBuilder, Ints], NDArray[Any]] | None = None
    length: Callable[[ColumnBuilder, Ints], Ints | int] | None = None


class _Field(NamedTuple):
    column: str  # "": it is passed over
    form: _Form
    flag: int = 0  # of the record's flags that says that it is there; 0: it always is


def _word(kind: int) -> _Form:
    """A number that stands for a word; those of different kinds are kept apart."""
    return _Form(1, lambda found, at: found.u8(at) + 256 * kind)


def _u64(found: ColumnBuilder, at: Ints) -> Ints:
    numbers = found.i64(at)
    return np.where(numbers < 0, _LONG_MAX, numbers)


_U8: Final = _Form(1, ColumnBuilder.u8)
_U32: Final = _Form(4, ColumnBuilder.u32)
_I64: Final = _Form(8, ColumnBuilder.i64)
_U64: Final = _Form(8, _u64)
# Which fields there are. Where a column is made of it, the second bit is no field's.
_FLAGS: Final = _Form(1, lambda found, at: found.u8(at) & 2)
_TINY: Final = _Form(1, length=ColumnBuilder.u8)
_SHORT: Final = _Form(2, length=ColumnBuilder.u16)
_IDS: Final = _Form(4, length=lambda found, at: 8 * found.u32(at))
_UID: Final = _Form(0, length=lambda found, at: 16)

_HEAD: Final = (
    _Field("time", _I64),
    _Field("dialect", _U8),
    _Field("user", _TINY),
    _Field("holder", _TINY),
)
_JOB: Final = (_Field("job_id", _I64), _Field("queue", _SHORT))
_ATTEMPT: Final = (*_JOB, _Field("attempt", _U32))
_LAYOUTS: Final[dict[int, tuple[_Field, ...]]] = {
    r.PUSH: (
        *_JOB,
        _Field("", _FLAGS),
        _Field("content", _U8),
        _Field("priority", _I64),
        _Field("name", _SHORT),
        _Field("", _SHORT),  # the policy
        _Field("run_at", _I64, r.HAS_RUN_AT),
        _Field("uid", _UID, r.HAS_UID),
        _Field("key", _SHORT, r.HAS_KEY),
        _Field("ttl_ms", _U64, r.HAS_TTL),
        _Field("blocked_by", _IDS, r.HAS_BLOCKERS),
        _Field("", _Form(17), r.HAS_NOTIFY),
        _Field("limit_key", _SHORT, r.HAS_LIMIT_KEY),
    ),
    r.LEASE: (*_JOB, _Field("", _Form(13)), _Field("attempt", _U32), _Field("deadline", _I64)),
    r.FINISH: (
        *_ATTEMPT,
        _Field("reason", _word(r.FINISH)),
        _Field("", _FLAGS),
        _Field("uid", _UID, 1),
        _Field("", _I64, 2),  # until when it is kept
        _Field("", _UID, 4),  # the producer
    ),
    r.RETRY: (*_ATTEMPT, _Field("run_at", _I64), _Field("", _U8)),
    r.RELEASE: (*_ATTEMPT, _Field("reason", _word(r.RELEASE)), _Field("", _U8)),
    r.FAIL: (
        *_ATTEMPT,
        _Field("explicit", _U8),
        _Field("reason", _SHORT),
        _Field("to_queue", _SHORT),
    ),
    r.WAKE: _JOB,
    r.UNBLOCK: (*_JOB, _Field("blocker", _I64)),
    r.REMOVE: (
        *_JOB,
        _Field("reason", _word(r.REMOVE)),
        _Field("ended", _FLAGS),
        _Field("uid", _UID, 1),
        _Field("", _UID, 4),  # the producer
    ),
    r.MOVE: (*_JOB, _Field("to_queue", _SHORT), _Field("", _U8)),
    r.RESCORE: (*_JOB, _Field("priority", _I64)),
    r.EXTEND: (*_ATTEMPT, _Field("deadline", _I64)),
    r.REPLAY: (*_JOB, _Field("", _U8)),
    r.PROGRESS: (*_ATTEMPT, _Field("permille", _U32), _Field("message", _SHORT)),
    r.VALUE: (
        _Field("value_key", _SHORT),
        _Field("value_expiry", _I64),
        _Field("value_keep", _U8),
    ),
    r.VALUE_GONE: (_Field("value_key", _SHORT),),
}
_BLOBS: Final = {
    r.PUSH: "payload",
    r.FINISH: "result",
    r.RETRY: "error",
    r.FAIL: "error",
    r.VALUE: "value",
}
