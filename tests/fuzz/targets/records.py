"""Records: what can be read is written the same again, and can be shown; all else is CorruptRecord.

An input is blocks, each of which is a record without the size that stands before it.
"""

from __future__ import annotations

import json

from engine.records.test_records import EXAMPLES, encode
from fuzz.inputs import as_blocks, blocks

from taskyard.engine.model.events import CorruptRecord
from taskyard.engine.records.decode import (
    SIZE_PREFIX_BYTES,
    Decoder,
    job_id_at,
    kind_at,
    record_size_at,
)
from taskyard.engine.records.describe import describe
from taskyard.engine.records.job_lifecycle import PUSH, REPLAY, Record
from taskyard.engine.records.log import RecordBuffer

ENCODED = [encode(record)[SIZE_PREFIX_BYTES:] for record in EXAMPLES]
SEEDS = [*(as_blocks([record]) for record in ENCODED), as_blocks(ENCODED[:6])]
BASE = 1000


def fuzz(data: bytes) -> None:
    decoder = Decoder(blobs=True)
    sizes_only = Decoder(blobs=False)
    for body in list(blocks(data))[:20]:
        encoded = len(body).to_bytes(SIZE_PREFIX_BYTES, "little") + body
        try:
            record = decoder.read(encoded, 0, BASE)
        except CorruptRecord:
            assert _is_corrupt(sizes_only, encoded)
            continue
        assert decoder.next_at == record_size_at(encoded, 0) == len(encoded)
        assert kind_at(encoded, 0) == record.kind()
        again = sizes_only.read(encoded, 0, BASE)
        assert (again.blob_at, again.blob_size) == (record.blob_at, record.blob_size)
        if PUSH <= record.kind() <= REPLAY:
            job_id_at(encoded, 0)
        _check_round_trip(record)
        for blobs in (False, True):
            json.dumps(describe(record, blobs))


def _is_corrupt(decoder: Decoder, encoded: bytes) -> bool:
    try:
        decoder.read(encoded, 0, BASE)
    except CorruptRecord:
        return True
    return False


def _check_round_trip(record: Record) -> None:
    """Bytes that say the same in another way settle down after being written once."""
    first = _written(record)
    second = _written(Decoder(blobs=True).read(first, 0, BASE))
    assert second == first


def _written(record: Record) -> bytes:
    log = RecordBuffer(1, BASE)
    log.append(record)
    return log.drain(0)
