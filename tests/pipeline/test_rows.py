"""Records become rows of Arrow batches, just as a plain decoding says."""

import contextlib
from typing import Any

import pytest
from engine.harness import ORIGIN, Bench, machine_settings, property_settings
from engine.harness import decode as decode_records
from engine.job_rules import JobRules
from engine.lived_in import make_used_engine
from engine.records.test_records import EXAMPLES, encode, name_of, older
from hypothesis import given
from hypothesis import strategies as st
from pipeline.plain_rows import plain_rows

from taskyard.engine.model.events import CorruptRecord
from taskyard.engine.model.job import NewJob, Origin, Policy
from taskyard.engine.records import entities as s
from taskyard.engine.records import job_changes as j
from taskyard.engine.records import job_lifecycle as r
from taskyard.pipeline.records.decode import decode_frames
from taskyard.pipeline.records.fields import (
    ALL_COLUMNS,
    DEFAULT_COLUMNS,
    UnknownColumn,
    parse_columns,
    schema,
)

EVENTS = [record for record in EXAMPLES if record.kind() < r.FIRST_SNAPSHOT]


def rows(data: bytes, columns: tuple[str, ...] = ALL_COLUMNS) -> list[dict[str, Any]]:
    found = decode_frames(data, [(0, len(data), 1)], columns)
    found.validate(full=True)
    assert found.schema.equals(schema(columns))
    listed: list[dict[str, Any]] = found.to_pylist()
    return listed


def check(bench: Bench) -> None:
    """The rows of all frames at once are those of the plain way."""
    bench.collect()
    data = b"".join(bytes(bench.gap) + frame.data for frame in bench.frames)
    frames = []
    at = 0
    for frame in bench.frames:
        at += bench.gap
        frames.append((at, at + len(frame.data), frame.first))
        at += len(frame.data)
    found = decode_frames(data, frames, ALL_COLUMNS)
    found.validate(full=True)
    records = [
        record
        for frame in bench.frames
        for record in decode_records(frame.data, frame.base, frame.first)
    ]
    assert found.to_pylist() == plain_rows(records)


class RowsOfHistories(JobRules):
    def teardown(self) -> None:
        if hasattr(self, "bench"):
            check(self.bench)
        super().teardown()


TestRowsOfHistories = RowsOfHistories.TestCase
TestRowsOfHistories.settings = machine_settings(examples=40, steps=60)


def test_a_server_with_something_of_everything() -> None:
    check(make_used_engine())


def assert_alike(*given: r.Record) -> None:
    data = encode(*given)
    records = decode_records(data, 0)
    for seq, record in enumerate(records, start=1):
        record.seq = seq
    assert rows(data) == plain_rows(records)


@pytest.mark.parametrize("record", EVENTS, ids=name_of)
def test_every_kind_of_record(record: r.Record) -> None:
    assert_alike(record)


def test_all_kinds_of_records_in_one_batch() -> None:
    assert_alike(*EXAMPLES, *reversed(EXAMPLES))


def test_a_column_alone_is_the_same_as_with_all_others() -> None:
    data = encode(*EXAMPLES)
    whole = rows(data)
    for column in ALL_COLUMNS:
        assert rows(data, (column,)) == [{column: row[column]} for row in whole]


def test_only_the_numbers_that_are_wanted_come() -> None:
    data = encode(*[j.WakeRecord(1, ORIGIN, id, b"q") for id in range(10)])
    found = decode_frames(data, [(0, len(data), 100)], ("seq", "job_id"), 103, 105)
    assert found.to_pydict() == {"seq": [103, 104, 105], "job_id": [3, 4, 5]}
    assert decode_frames(data, [(0, len(data), 100)], ("seq",), 200).num_rows == 0


def test_nothing_gives_no_rows() -> None:
    assert decode_frames(b"", [(0, 0, 1)], ("seq",)).num_rows == 0
    assert decode_frames(b"", [], ALL_COLUMNS).schema.equals(schema(ALL_COLUMNS))


def a_batch(version: int) -> bytes:
    """Version 1 does not have the number of each job's attempt at the end, and only version 3 has
    the consumer's user."""
    user = "ada" if version == 3 else ""
    new = encode(
        s.BatchRecord(1, ORIGIN, "consumer", 9, 2, 3, 99, [7, 8], [b"q"], [2], [1, 4], user)
    )
    assert new[5] == max(version, 2)
    if version >= 2:
        return new
    fields = new[4:5] + b"\x01" + new[6:-12] + new[-4:]
    return len(fields).to_bytes(4, "little") + fields


@pytest.mark.parametrize(("version", "attempts"), [(1, [None, None]), (2, [1, 4]), (3, [1, 4])])
def test_a_batch_is_a_row_a_job_and_one_for_itself(version: int, attempts: list[int]) -> None:
    columns = ("seq", "part", "event", "job_id", "attempt", "queue", "batch", "consumer")
    wake = encode(j.WakeRecord(1, ORIGIN, 5, b"w"))
    assert [tuple(row.values()) for row in rows(wake + a_batch(version) + wake, columns)] == [
        (1, 0, "wake", 5, None, "w", None, None),
        (2, 0, "batch", None, None, None, 2, "consumer"),
        (2, 1, "lease", 7, attempts[0], "q", 2, "consumer"),
        (2, 2, "lease", 8, attempts[1], "q", 2, "consumer"),
        (3, 0, "wake", 5, None, "w", None, None),
    ]


def test_values_are_described_as_a_dump_does_it() -> None:
    keys = (b"toq:rst:1", b"", b'a"b', b"a\\b", b"\xff", "é".encode(), b"\n")
    expiries = (0, 1, 1_700_000_000_123_000, -5, 2**63 - 1)
    assert_alike(
        *(s.ValueSet(1, ORIGIN, key, at, False, b"value") for key in keys for at in expiries),
        *(s.ValueGone(2, ORIGIN, key) for key in keys),
        *(s.ValueSet(3, ORIGIN, key, at, True) for key in keys for at in expiries),
    )


def test_bytes_that_are_no_text_are_spelled_out() -> None:
    job = NewJob("q", "näme", b"\xff\x00", Policy(), key=b"\xffk")
    error = j.RetryRecord(1, ORIGIN, 7, b"\xfe", 3, 0, False, b"bad \xff")
    pushed, retried = rows(encode(r.PushRecord(1, ORIGIN, 7, b"\xffq", job), error))
    assert (pushed["queue"], pushed["key"], pushed["name"]) == ("\\xffq", "\\xffk", "näme")
    assert pushed["payload"] == b"\xff\x00"
    assert (retried["queue"], retried["error"]) == ("\\xfe", "bad \ufffd")


def test_a_text_of_ours_that_is_not_utf_8_is_damage() -> None:
    data = encode(j.ProgressRecord(1, ORIGIN, 7, b"q", 3, 10, "half")).replace(
        b"half", b"ha\xff\xff"
    )
    with pytest.raises(CorruptRecord, match="UTF-8"):
        rows(data)


@pytest.mark.parametrize("record", EVENTS, ids=name_of)
def test_a_record_that_was_cut_off_or_is_of_another_version_is_refused(record: r.Record) -> None:
    data = encode(record)
    for size in range(len(data)):
        damaged = [data[:size]] if size else []
        if size < len(data) - 4:
            told = size.to_bytes(4, "little")
            damaged += [told + data[4 : 4 + size], told + data[4:]]
        for each in damaged:
            with pytest.raises(CorruptRecord):
                rows(each)
    for version in (0, 9):
        with pytest.raises(CorruptRecord, match="version"):
            rows(older(data, version))


@pytest.mark.parametrize("kind", [0, 50, 63, 100, 255])
def test_an_unknown_kind_is_refused(kind: int) -> None:
    data = bytearray(encode(r.BootRecord(1, ORIGIN, 2, "1.0")))
    data[4] = kind
    with pytest.raises(CorruptRecord, match="unknown kind"):
        rows(bytes(data))


@given(st.sampled_from(EVENTS), st.data())
@property_settings
def test_damaged_bytes_are_read_or_refused_but_nothing_else(
    record: r.Record, data: st.DataObject
) -> None:
    damaged = bytearray(encode(record, record))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(damaged) - 1))
        damaged[at] = data.draw(st.integers(0, 255))
    with contextlib.suppress(CorruptRecord):
        rows(bytes(damaged))


def test_columns_are_named_by_an_option() -> None:
    assert parse_columns("seq, event") == ("seq", "event")
    assert parse_columns("+payload,result") == (*DEFAULT_COLUMNS, "payload", "result")
    assert parse_columns("") == DEFAULT_COLUMNS
    with pytest.raises(UnknownColumn, match="no column 'colour': there are seq, part"):
        parse_columns("seq,colour")


def test_origins_may_be_as_long_as_they_can_be() -> None:
    origin = Origin(200, "u" * 255, "é" * 127)
    (row,) = rows(encode(j.WakeRecord(1, origin, 1, b"q")))
    assert (row["dialect"], row["user"], row["holder"]) == ("200", "u" * 255, "é" * 127)
