"""Rows of Arrow to the commands that push them as jobs.

A batch of rows is looked at as a whole before any command of it is made: one value that cannot be
is an error that names column and row, and nothing of its batch is sent. What is done once a row
here is what the rate of the sink hangs on: about two microseconds.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from taskyard.client.wire import Word
from taskyard.names import NAME_RULE, valid_name
from taskyard.pipeline.records.json_text import json_object, json_text
from taskyard.pipeline.spark.job_columns import JobColumns

_UUID: Final = "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"
_MOST_KEPT: Final = 10_000  # values whose words are remembered
_MOST_KEY: Final = 65_535
_MOST_LIMIT_KEY: Final = 255
_DAY_MS: Final = 86_400_000
_CENTURY_MS: Final = 3_153_600_000_000


class RowError(ValueError):
    """A row cannot be a job."""


class RowUids:
    """Uids for rows that bring none: the same for the same row in the same place.

    What is in the row counts as well as its place. So a plan that gives its rows in another order
    when it is run again may push a row twice, but never takes a row for another one and drops it.
    """

    def __init__(self, query: str, batch: int, partition: int) -> None:
        beginning = f"{query}\0{batch}\0{partition}\0".encode()
        self._begun = hashlib.blake2b(beginning, digest_size=16, person=b"taskyard row")

    def uid(self, row: int, *said: bytes) -> bytes:
        """In the form of a UUID of version 8, which is for everyone's own ways to make them."""
        digest = self._begun.copy()
        digest.update(b"%d\0%b" % (row, b"\0".join(said)))
        text = digest.hexdigest()
        return f"{text[:8]}-{text[8:12]}-8{text[13:16]}-a{text[17:20]}-{text[20:]}".encode()


class RowCommands:
    """For one partition."""

    def __init__(self, columns: JobColumns, uids: RowUids | None, partition: int) -> None:
        """`uids`: None if every row has to bring its own."""
        self._columns = columns
        self._uids = uids
        self._partition = partition
        self._rows = 0
        self._fixed = bulks(columns.words)
        self._fixed_count = len(columns.words)
        self._words: list[tuple[str, _Memo]] = [
            (what, _Memo(make)) for what, make in _WORDS.items() if what in columns.places
        ]
        self._queues = _Memo(_queue)

    def make(self, batch: Any) -> list[bytes]:
        """A command for each row; RowError if there is one that cannot be."""
        rows = batch.num_rows
        queues = self._queue_words(batch)
        payloads = self._payloads(batch)
        said = [self._said(what, memo, batch) for what, memo in self._words]
        tails, counts = self._tails(said, rows)
        uids = self._uid_texts(batch, queues, payloads, tails)
        self._rows += rows
        return [
            b"*%d\r\n$8\r\nJOB.PUSH\r\n%b$%d\r\n%b\r\n$3\r\nUID\r\n$36\r\n%b\r\n%b"
            % (count, queue, len(payload), payload, uid, tail)
            for count, queue, payload, uid, tail in zip(
                counts, queues, payloads, uids, tails, strict=True
            )
        ]

    def place(self, row: int) -> str:
        """How a row of this partition is called in an error."""
        return f"row {row} of partition {self._partition}"

    def _queue_words(self, batch: Any) -> list[bytes]:
        default = self._columns.queue
        at = self._columns.places.get("queue")
        if at is None:
            return [self._queues.get(default)] * batch.num_rows
        column = batch.column(at)
        if column.null_count and not default:
            row = column.is_null().to_pylist().index(True)
            raise self._error("queue", row, "null", "no queue, and the option queue is not given")
        return self._each("queue", self._queues, [one or default for one in column.to_pylist()])

    def _payloads(self, batch: Any) -> list[bytes]:
        at = self._columns.payload
        if at is None:
            text = json_object(list(self._columns.names), batch.columns, batch.num_rows)
            return _bytes(text)
        column = batch.column(at)
        if is_text(column.type) or is_bytes(column.type):
            return _bytes(column)
        return _bytes(pc.if_else(column.is_valid(), json_text(column), ""))

    def _said(self, what: str, memo: _Memo, batch: Any) -> list[bytes]:
        column = batch.column(self._columns.places[what])
        if pa.types.is_timestamp(column.type):
            # Down to milliseconds, but never to a time before the one that was meant.
            micros = column.cast(pa.timestamp("us", "UTC")).cast(pa.int64())
            values = [None if one is None else -(-one // 1000) for one in micros.to_pylist()]
        elif pa.types.is_duration(column.type):
            values = [None if one is None else one.total_seconds() for one in column.to_pylist()]
        else:
            values = column.to_pylist()
        return self._each(what, memo, values)

    def _each(self, what: str, memo: _Memo, values: list[Any]) -> list[bytes]:
        get = memo.get
        try:
            return [b"" if one is None else get(one) for one in values]
        except ValueError as error:
            row = next(at for at, one in enumerate(values) if one is not None and memo.fails(one))
            raise self._error(what, row, repr(values[row]), str(error)) from None

    def _tails(self, said: list[list[bytes]], rows: int) -> tuple[list[bytes], list[int]]:
        """What stands behind the uid, and how many words the whole command has."""
        count = 5 + self._fixed_count
        if not said:
            return [self._fixed] * rows, [count] * rows
        fixed = self._fixed
        tails = [fixed + b"".join(parts) for parts in zip(*said, strict=True)]
        counts = [count + 2 * sum(map(bool, parts)) for parts in zip(*said, strict=True)]
        return tails, counts

    def _uid_texts(
        self, batch: Any, queues: list[bytes], payloads: list[bytes], tails: list[bytes]
    ) -> list[bytes]:
        given = self._given_uids(batch)
        if given is None:
            given = [None] * batch.num_rows
        elif None not in given:
            return [one for one in given if one is not None]
        uids = self._uids
        if uids is None:
            raise RowError(
                f"{self.place(self._rows + given.index(None))} has no uid, and Spark does not say "
                "of which query it is, so that none can be derived: give every row a uid, or the "
                'query a name, .option("queryId", ...)'
            )
        first = self._rows
        return [
            uids.uid(first + at, queues[at], payloads[at], tails[at]) if one is None else one
            for at, one in enumerate(given)
        ]

    def _given_uids(self, batch: Any) -> list[bytes | None] | None:
        at = self._columns.places.get("uid")
        if at is None:
            return None
        column = batch.column(at)
        if not is_text(column.type):
            return self._binary_uids(column.to_pylist())
        good = pc.match_substring_regex(column, _UUID)
        if pc.any(pc.invert(good)).as_py():
            row = good.to_pylist().index(False)
            raise self._error("uid", row, repr(column[row].as_py()), "not a UUID")
        return [None if one is None else one.encode() for one in pc.utf8_lower(column).to_pylist()]

    def _binary_uids(self, values: list[bytes | None]) -> list[bytes | None]:
        found: list[bytes | None] = []
        for at, value in enumerate(values):
            if value is None:
                found.append(None)
                continue
            if len(value) != 16:
                raise self._error("uid", at, repr(value[:32]), "a UUID has 16 bytes")
            text = value.hex()
            found.append(
                f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}".encode()
            )
        return found

    def _error(self, what: str, row: int, value: str, reason: str) -> RowError:
        column = self._columns.names[self._columns.places[what]]
        return RowError(
            f"column {column}, {self.place(self._rows + row)}: {value:.100} cannot be the {what} "
            f"of a job: {reason}"
        )


class _Memo:
    """Values that come again and again have their words made once."""

    def __init__(self, make: Callable[[Any], bytes]) -> None:
        self._make = make
        self._made: dict[Any, bytes] = {}

    def get(self, value: Any) -> bytes:
        found = self._made.get(value)
        if found is None:
            found = self._make(value)
            if len(self._made) < _MOST_KEPT:
                self._made[value] = found
        return found

    def fails(self, value: Any) -> bool:
        try:
            self._make(value)
        except ValueError:
            return True
        return False


def bulk(word: Word) -> bytes:
    data = word if isinstance(word, bytes) else str(word).encode()
    return b"$%d\r\n%b\r\n" % (len(data), data)


def bulks(words: Sequence[Word]) -> bytes:
    return b"".join(map(bulk, words))


def is_text(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def is_bytes(kind: Any) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _bytes(column: Any) -> list[bytes]:
    """What is null is empty."""
    found: list[bytes] = column.cast(pa.binary()).fill_null(b"").to_pylist()
    return found


def _queue(value: str) -> bytes:
    if not valid_name(value):
        raise ValueError(f"it {NAME_RULE}")
    return bulk(value)


def _name(value: str) -> bytes:
    if not valid_name(value):
        raise ValueError(f"it {NAME_RULE}")
    return bulks(["NAME", value])


def _priority(value: int) -> bytes:
    return bulks(["PRIORITY", value])


def _run_at(value: int) -> bytes:
    return bulks(["AT", max(value, 0)])


def _span(word: str, most: int) -> Callable[[Any], bytes]:
    def make(value: Any) -> bytes:
        seconds = float(value)
        if not 0 <= seconds < math.inf:
            raise ValueError("a number of seconds, 0 or more, is wanted")
        wanted = round(seconds * 1000) or (1 if seconds else 0)
        if wanted > most:
            raise ValueError(f"at most {most // 1000} seconds are possible")
        return bulks([word, wanted])

    return make


def _key(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    if not 1 <= len(data) <= _MOST_KEY:
        raise ValueError(f"it must be 1 to {_MOST_KEY} bytes")
    return bulks(["KEY", data])


def _limit_key(value: str) -> bytes:
    if not 1 <= len(value.encode()) <= _MOST_LIMIT_KEY:
        raise ValueError(f"it must be 1 to {_MOST_LIMIT_KEY} bytes")
    return bulks(["LIMIT", value])


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
