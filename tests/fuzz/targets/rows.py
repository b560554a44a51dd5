"""Records as rows of Arrow: what the journal's own decoder reads is read the same many at a time.

An input is blocks, each of which is a record without the size that stands before it.
"""

from __future__ import annotations

from typing import Any

from engine.records.test_records import EXAMPLES, encode
from fuzz.inputs import as_blocks, blocks

from taskyard.engine.model.events import CorruptRecord
from taskyard.engine.records.decode import SIZE_PREFIX_BYTES, Decoder
from taskyard.engine.records.describe import describe
from taskyard.engine.records.job_lifecycle import FIRST_SNAPSHOT, Record
from taskyard.pipeline.records.decode import decode_frames
from taskyard.pipeline.records.fields import ALL_COLUMNS

EVENTS = [record for record in EXAMPLES if record.kind() < FIRST_SNAPSHOT]
ENCODED = [encode(record)[SIZE_PREFIX_BYTES:] for record in EVENTS]
SEEDS = [*(as_blocks([record]) for record in ENCODED), as_blocks(ENCODED[:8])]
SAME = {"seq": "seq", "event": "event", "job_id": "id", "name": "name", "dialect": "dialect"}


def fuzz(data: bytes) -> None:
    bodies = list(blocks(data))[:20]
    encoded = b"".join(len(body).to_bytes(SIZE_PREFIX_BYTES, "little") + body for body in bodies)
    records = _records(encoded)
    try:
        rows = decode_frames(encoded, [(0, len(encoded), 1)], ALL_COLUMNS)
    except CorruptRecord:
        assert records is None
        return
    if records is not None:
        _check(rows, [record for record in records if record.kind() < FIRST_SNAPSHOT])


def _records(encoded: bytes) -> list[Record] | None:
    """None if one of them makes no sense."""
    decoder = Decoder(blobs=True)
    found: list[Record] = []
    at = 0
    try:
        while at < len(encoded):
            record = decoder.read(encoded, at, 0)
            record.seq = len(found) + 1
            found.append(record)
            at = decoder.next_at
    except CorruptRecord:
        return None
    return found


def _check(rows: Any, records: list[Record]) -> None:
    first = [row for row in rows.to_pylist() if not row["part"]]
    assert len(first) == len(records)
    for row, record in zip(first, records, strict=True):
        shown = describe(record, False)
        for column, name in SAME.items():
            if row[column] is not None and name in shown:
                assert row[column] == shown[name], column
