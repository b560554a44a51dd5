"""Rows of Arrow to commands: a JOB.PUSH for a row that is a job, a JOB.DONE, JOB.FAIL or JOB.RETURN
for one that is an outcome.

A batch of rows is looked at as a whole before any command of it is sent: one value that cannot be
is an error that names column and row, and nothing of its batch is sent. What is done once a row
here is what the rate of the sink hangs on: about two microseconds.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import lru_cache
from itertools import pairwise, repeat
from typing import Any, Final, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from taskyard.client.commands import Word, encode_commands
from taskyard.client.feeding import encode_bulk_strings
from taskyard.pipeline.spark.job_columns import OUTCOMES, JobColumns
from taskyard.shared.text import NAME_RULE, valid_name

_UUID: Final = re.compile("[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_MAX_KEY_BYTES: Final = 65_535
_MAX_LIMIT_KEY_BYTES: Final = 255
_DAY_MS: Final = 86_400_000
_CENTURY_MS: Final = 3_153_600_000_000
_json: Final = msgspec.json.encode
T = TypeVar("T")


class RowError(ValueError):
    """A row cannot be a job, or an outcome."""


class JobCommands:
    """For the rows of one partition.

    A row that brings no uid gets one that is the same for the same row in the same place. What is
    in the row counts as well as its place. So a plan that gives its rows in another order when it
    is run again may push a row twice, but never takes a row for another one and drops it.
    """

    def __init__(self, columns: JobColumns, partition: int, query: str | None, batch: int) -> None:
        """`query`: None if every row has to bring its own uid."""
        self._columns = columns
        self._partition = partition
        self._rows = 0
        self._fixed = encode_bulk_strings(columns.words)
        self._place: Any = None
        if query is not None:
            place = f"{query}\0{batch}\0{partition}\0".encode()
            self._place = hashlib.blake2b(place, digest_size=16, person=b"taskyard row")

    def make(self, batch: Any) -> list[bytes]:
        """A command for each row; RowError if there is one that cannot be."""
        places = self._columns.places
        queues, payloads = self._queues(batch), self._payloads(batch)
        uids = self._words("uid", _uid, batch) if "uid" in places else repeat(b"", batch.num_rows)
        options = [
            self._words(what, make, batch) for what, make in _WORDS.items() if what in places
        ]
        said = zip(*options, strict=True) if options else repeat((), batch.num_rows)
        least = 5 + len(self._columns.words)
        commands: list[bytes] = []
        rows = enumerate(zip(queues, payloads, uids, said, strict=True), self._rows)
        for row, (queue, payload, given, words) in rows:
            tail = self._fixed + b"".join(words) if words else self._fixed
            count = least + 2 * (len(words) - words.count(b""))
            uid = given or self._derived_uid(row, queue, payload, tail)
            commands.append(
                b"*%d\r\n$8\r\nJOB.PUSH\r\n%b$%d\r\n%b\r\n$3\r\nUID\r\n$36\r\n%b\r\n%b"
                % (count, queue, len(payload), payload, uid, tail)
            )
        self._rows += batch.num_rows
        return commands

    def _queues(self, batch: Any) -> list[bytes]:
        default, at = self._columns.queue, self._columns.places.get("queue")
        if at is None:
            return [_queue(default)] * batch.num_rows
        names = batch.column(at).to_pylist()
        if not default and None in names:
            reason = "no queue, and the option queue is not given"
            raise self._error("queue", names.index(None), "null", reason)
        return self._each("queue", _queue, [one or default for one in names])

    def _payloads(self, batch: Any) -> list[bytes]:
        at = self._columns.payload
        if at is None:
            return json_objects(self._columns.names, batch.columns, batch.num_rows)
        return [one or b"" for one in as_bytes(batch.column(at))]

    def _words(self, what: str, make: Callable[[Any], bytes], batch: Any) -> list[bytes]:
        """What is null is not said, and has none."""
        column = batch.column(self._columns.places[what])
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp("us", "UTC")).cast(pa.int64())
        return self._each(what, make, column.to_pylist())

    def _each(self, what: str, make: Callable[[Any], bytes], values: list[Any]) -> list[bytes]:
        words: list[bytes] = []
        try:
            for value in values:
                words.append(b"" if value is None else make(value))  # noqa: PERF401 (they tell the row)
        except ValueError as error:
            row = len(words)
            raise self._error(what, row, repr(values[row]), str(error)) from None
        return words

    def _derived_uid(self, row: int, queue: bytes, payload: bytes, tail: bytes) -> bytes:
        """In the form of a UUID of version 8, which is for everyone's own ways to make them."""
        if self._place is None:
            raise RowError(
                f"row {row} of partition {self._partition} has no uid, and Spark does not "
                "say of which query it is, so that none can be derived: give every row a uid, or "
                'the query a name, .option("queryId", ...)'
            )
        digest = self._place.copy()
        digest.update(b"%d\0%b\0%b\0%b" % (row, queue, payload, tail))
        text = digest.hexdigest()
        return f"{text[:8]}-{text[8:12]}-8{text[13:16]}-a{text[17:20]}-{text[20:]}".encode()

    def _error(self, what: str, row: int, value: str, reason: str) -> RowError:
        column = self._columns.names[self._columns.places[what]]
        return RowError(
            f"column {column}, row {self._rows + row} of partition {self._partition}: {value:.100} "
            f"cannot be the {what} of a job: {reason}"
        )


class OutcomeCommands:
    """For the rows of one partition: they end jobs that a stream has read."""

    def __init__(self, names: Sequence[str], partition: int) -> None:
        self._names = names
        self._partition = partition
        self._rows = 0

    def make(self, batch: Any) -> list[bytes]:
        columns = [self._column(batch, name) for name in ("ref", "error", "outcome", "result")]
        rows = enumerate(zip(*columns, strict=True), self._rows)
        self._rows += batch.num_rows
        return [encode_commands([self._words(row, *values)]) for row, values in rows]

    def _column(self, batch: Any, name: str) -> list[bytes | None]:
        if name not in self._names:
            return [None] * int(batch.num_rows)
        return as_bytes(batch.column(self._names.index(name)))

    def _words(
        self,
        row: int,
        ref: bytes | None,
        error: bytes | None,
        outcome: bytes | None,
        result: bytes | None,
    ) -> Sequence[Word]:
        """Without an outcome, a row with an error has failed, and another one has not."""
        place = f"row {row} of partition {self._partition}"
        if ref is None:
            raise RowError(f"column ref, {place}: there is none")
        if outcome is None:
            outcome = b"succeeded" if error is None else b"retried"
        match outcome:
            case b"succeeded":
                return ("JOB.DONE", ref) if result is None else ("JOB.DONE", ref, result)
            case b"retried":
                return ("JOB.FAIL", ref, error or b"")
            case b"failed":
                return ("JOB.FAIL", ref, error or b"", "FINAL")
            case b"released":
                return ("JOB.RETURN", ref)
        raise RowError(
            f"column outcome, {place}: {outcome.decode()!r:.100} is none of {', '.join(OUTCOMES)}"
        )


def as_bytes(column: Any) -> list[bytes | None]:
    """Text and bytes as they are, every other type as JSON; None for null."""
    kind, types = column.type, pa.types
    if types.is_string(kind) or types.is_large_string(kind) or types.is_binary(kind):
        column = column.cast(pa.binary())
    elif not types.is_large_binary(kind):
        return _or_null(json_texts(column), column, None)
    found: list[bytes | None] = column.to_pylist()
    return found


def json_texts(array: Any) -> list[bytes]:
    """A text for each value. It is made of those of its parts, for dicts and lists would keep the
    garbage collector busy: they cost three times as much.
    """
    kind, types = array.type, pa.types
    if types.is_struct(kind):
        texts = json_objects(kind.names, array.flatten(), len(array))
    elif types.is_map(kind):
        names = map(_json_name, json_texts(array.keys))
        entries = [b"%b:%b" % pair for pair in zip(names, json_texts(array.items), strict=True)]
        texts = [b"{%b}" % part for part in _parts(array, entries)]
    elif types.is_list(kind) or types.is_large_list(kind):
        texts = [b"[%b]" % part for part in _parts(array, json_texts(array.values))]
    elif types.is_decimal(kind):
        texts = array.cast(pa.string()).cast(pa.binary()).to_pylist()
    else:
        return list(map(_json, _plain(array).to_pylist()))
    return _or_null(texts, array, b"null")


def json_objects(names: Sequence[str], columns: Sequence[Any], rows: int) -> list[bytes]:
    """One for each row, with all of the names in it."""
    fields = [_json(name).replace(b"%", b"%%") + b":%b" for name in names]
    template = b"{" + b",".join(fields) + b"}"
    values = zip(*map(json_texts, columns), strict=True) if columns else repeat((), rows)
    return [template % row for row in values]


def _parts(array: Any, texts: list[bytes]) -> list[bytes]:
    """Those of each list or map, with commas between them."""
    ends = array.offsets.to_pylist()
    return [b",".join(texts[start:end]) for start, end in pairwise(ends)]


def _or_null(texts: list[bytes], array: Any, null: T) -> list[bytes | T]:
    """With `null` where the array has none."""
    valid = array.is_valid().to_pylist() if array.null_count else repeat(True, len(texts))
    return [one if is_valid else null for one, is_valid in zip(texts, valid, strict=True)]


def _plain(array: Any) -> Any:
    kind, types = array.type, pa.types
    if types.is_timestamp(kind):
        in_utc = array.cast(pa.timestamp("us", "UTC")) if kind.tz else array
        # Without the zone, which would make the texts take four times as long.
        text = pc.replace_substring(in_utc.cast(pa.timestamp("us")).cast(pa.string()), " ", "T")
        return pc.binary_join_element_wise(text, "Z", "") if kind.tz else text
    if types.is_duration(kind):
        seconds = array.cast(pa.duration("us")).cast(pa.int64()).cast(pa.float64())
        return pc.divide(seconds, 1e6)
    if types.is_date(kind) or types.is_time(kind):
        return array.cast(pa.string())
    if types.is_float32(kind):  # 0.1 is to stay 0.1, not 0.10000000149011612
        return array.cast(pa.string()).cast(pa.float64())
    return array


def _json_name(key: bytes) -> bytes:
    """The names of a JSON object are texts, whatever the keys of a map are."""
    return key if key.startswith(b'"') else _json(key.decode())


# Values of most columns come again and again.
_cached: Final = lru_cache(10_000)


@_cached
def _queue(value: str) -> bytes:
    return encode_bulk_strings([_checked(value)])


@_cached
def _name(value: str) -> bytes:
    return encode_bulk_strings(["NAME", _checked(value)])


def _checked(name: str) -> str:
    if not valid_name(name):
        raise ValueError(f"it {NAME_RULE}")
    return name


def _uid(value: str | bytes) -> bytes:
    if isinstance(value, str):
        if _UUID.fullmatch(value) is None:
            raise ValueError("not a UUID")
        return value.lower().encode()
    if len(value) != 16:
        raise ValueError("a UUID has 16 bytes")
    text = value.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}".encode()


@_cached
def _priority(value: int) -> bytes:
    return encode_bulk_strings(["PRIORITY", value])


@_cached
def _run_at(micros: int) -> bytes:
    # Down to milliseconds, but never to a time before the one that was meant.
    return encode_bulk_strings(["AT", max(-(-micros // 1000), 0)])


def _span(word: str, most: int) -> Callable[[Any], bytes]:
    @_cached
    def make(value: Any) -> bytes:
        seconds = value.total_seconds() if isinstance(value, timedelta) else float(value)
        if not 0 <= seconds < math.inf:
            raise ValueError("a number of seconds, 0 or more, is wanted")
        wanted = round(seconds * 1000) or (1 if seconds else 0)
        if wanted > most:
            raise ValueError(f"at most {most // 1000} seconds are possible")
        return encode_bulk_strings([word, wanted])

    return make


def _key(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    if not 1 <= len(data) <= _MAX_KEY_BYTES:
        raise ValueError(f"it must be 1 to {_MAX_KEY_BYTES} bytes")
    return encode_bulk_strings(["KEY", data])


@_cached
def _limit_key(value: str) -> bytes:
    if not 1 <= len(value.encode()) <= _MAX_LIMIT_KEY_BYTES:
        raise ValueError(f"it must be 1 to {_MAX_LIMIT_KEY_BYTES} bytes")
    return encode_bulk_strings(["LIMIT", value])


_WORDS: Final[dict[str, Callable[[Any], bytes]]] = {
    "name": _name,
    "priority": _priority,
    "delay": _span("IN", _CENTURY_MS),
    # Behind the delay: of the two, the last one counts.
    "run_at": _run_at,
    "ttr": _span("TTR", _DAY_MS),
    "ttl": _span("TTL", _CENTURY_MS),
    "key": _key,
    "limit_key": _limit_key,
}
