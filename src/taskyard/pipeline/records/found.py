"""What was found in the records of a journal, as arrays with one place a record.

Numbers are arrays with a mask of those that are there; texts and blobs are where they stand in
the bytes, and are only copied when an Arrow array is made of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from taskyard.engine.errors import CorruptRecord

Ints = NDArray[np.int64]

_LAST_TIME: Final = 253_402_300_799_999_999  # of the year 9999: what a date can say
_INT_MAX: Final = 0x7FFF_FFFF
_MAX_BYTES: Final = 0x7FFF_0000  # Arrow's offsets are of 32 bits


class Records:
    """The bytes, and where the records in them begin and end."""

    def __init__(
        self,
        data: bytes,
        starts: Ints,
        seqs: Ints,
        wanted: frozenset[str],
        salt: Callable[[], bytes] = bytes,
    ) -> None:
        """`salt` is asked where a session's id must not be shown: see `told` of describe.py."""
        if len(data) > _MAX_BYTES:
            raise ValueError(f"{len(data)} bytes are too many to be decoded at once")
        size = len(data)
        self.data = data
        self.wanted = wanted
        self.salt = salt
        self.count = len(starts)
        self.starts = starts
        self.seqs = seqs
        self._u8 = np.frombuffer(data, np.uint8)
        # One element a byte: a number can be read wherever it stands.
        self._u16 = np.ndarray((max(size - 1, 0),), "<u2", data, 0, (1,))
        self._u32 = np.ndarray((max(size - 3, 0),), "<u4", data, 0, (1,))
        self._i64 = np.ndarray((max(size - 7, 0),), "<i8", data, 0, (1,))
        self.ends = starts + 4 + self.u32(starts)
        self.kinds = self._u8[starts + 4]
        self.versions = self._u8[starts + 5]
        self.numbers: dict[str, tuple[NDArray[Any], NDArray[np.bool_]]] = {}
        self.spans: dict[str, tuple[Ints, Ints]] = {}
        self.patches: dict[str, dict[int, str]] = {}  # texts that do not stand in the bytes so

    # Reading

    def u8(self, at: Ints) -> Ints:
        return self._u8[at].astype(np.int64)

    def u16(self, at: Ints) -> Ints:
        return self._u16[at].astype(np.int64)

    def u32(self, at: Ints) -> Ints:
        return self._u32[at].astype(np.int64)

    def i64(self, at: Ints) -> Ints:
        return self._i64[at]

    def bytes_at(self, at: Ints, size: int) -> NDArray[np.uint8]:
        """A row of `size` bytes for each place."""
        rows: NDArray[np.uint8] = self._u8[at[:, None] + np.arange(size)]
        return rows

    # Keeping

    def put(self, name: str, which: Ints, values: NDArray[Any], dtype: Any = np.int64) -> None:
        """These records have this number."""
        column = self.numbers.get(name)
        if column is None:
            column = np.zeros(self.count, dtype), np.zeros(self.count, np.bool_)
            self.numbers[name] = column
        column[0][which] = values
        column[1][which] = True

    def put_int(self, name: str, which: Ints, values: Ints) -> None:
        """The same of a column of 32 bits; nothing comes near to what they cannot say."""
        self.put(name, which, np.minimum(values, _INT_MAX), np.int32)

    def put_time(self, name: str, which: Ints, values: Ints) -> None:
        """The same of times, of which 0 is none."""
        there = values != 0
        if not there.all():
            which, values = which[there], values[there]
        self.put(name, which, datable(values))

    def put_span(self, name: str, which: Ints, at: Ints, sizes: Ints) -> None:
        """These records have a text there."""
        span = self.spans.get(name)
        if span is None:
            span = self.starts.copy(), np.full(self.count, -1, np.int64)
            self.spans[name] = span
        span[0][which] = at
        span[1][which] = sizes

    def patch(self, name: str, index: int, text: str) -> None:
        if name in self.wanted and text:
            self.patches.setdefault(name, {})[index] = text

    def check_ends(self, which: Ints, at: Ints) -> None:
        """All fields must end exactly where their record does."""
        wrong = at != self.ends[which]
        if wrong.any():
            start = self.starts[which[wrong.argmax()]]
            raise CorruptRecord(f"a record at byte {start} is longer or shorter than what is in it")

    # As Arrow arrays

    def binary(self, name: str, keep_empty: bool = False) -> Any:
        """The bytes of a column, in the order of the records; null where there are none."""
        span = self.spans.get(name)
        if span is None or not self.count:
            return pa.nulls(self.count, pa.binary())
        at, sizes = span
        # An Arrow array over the bytes as they are: each field, and what is between two of them.
        # Taking every other element copies the fields out at the speed of C.
        bounds = np.empty(2 * self.count + 1, np.int32)
        bounds[0:-1:2] = at
        bounds[1::2] = at + np.maximum(sizes, 0)
        bounds[-1] = bounds[-2]
        pieces = pa.Array.from_buffers(
            pa.binary(),
            2 * self.count,
            [None, pa.py_buffer(bounds), pa.py_buffer(self.data)],
        )
        absent = sizes < 0 if keep_empty else sizes <= 0
        fields = np.arange(0, 2 * self.count, 2, dtype=np.int32)
        return pieces.take(pa.array(fields, mask=absent if absent.any() else None))

    def text(self, name: str, errors: str = "backslashreplace") -> Any:
        """A column of texts; `errors` says what becomes of what is not UTF-8."""
        found = self.binary(name)
        try:
            texts = found.cast(pa.string())
        except pa.ArrowInvalid:
            texts = pa.array(_decoded(found.to_pylist(), name, errors), pa.string())
        return self.patched(name, texts)

    def patched(self, name: str, texts: Any) -> Any:
        patches = self.patches.get(name)
        if not patches:
            return texts
        mask = np.zeros(self.count, np.bool_)
        mask[list(patches)] = True
        ordered = pa.array([patches[index] for index in sorted(patches)], pa.string())
        return pc.replace_with_mask(texts, pa.array(mask), ordered)


def datable(times: Ints) -> Ints:
    """Times that dates of all kinds can say."""
    return np.clip(times, 0, _LAST_TIME)


def array_of(kind: Any, values: NDArray[Any], there: NDArray[np.bool_] | None) -> Any:
    """An Arrow array of numbers or times, null where `there` says so."""
    bitmap = None
    if there is not None and not there.all():
        bitmap = pa.py_buffer(np.packbits(there, bitorder="little"))
    count = len(values)
    if pa.types.is_boolean(kind):
        values = np.packbits(values.astype(np.bool_), bitorder="little")
    return pa.Array.from_buffers(kind, count, [bitmap, pa.py_buffer(values)])


def _decoded(values: list[bytes | None], name: str, errors: str) -> list[str | None]:
    try:
        return [None if value is None else value.decode(errors=errors) for value in values]
    except UnicodeDecodeError as error:
        raise CorruptRecord(f"a text of the column {name} is not UTF-8") from error
