"""Rows of Arrow to commands, and commands through a connection that is lost: without Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import hiredis
import pyarrow as pa
import pytest
from support.simulated import SimulatedYard

from taskyard.client.errors import Refused, refusal
from taskyard.engine.job import default_policy
from taskyard.pipeline.records.json_text import json_object
from taskyard.pipeline.spark.job_columns import JobColumns
from taskyard.pipeline.spark.row_commands import RowCommands, RowError, RowUids
from taskyard.pipeline.spark.row_feed import Refusal, RowFeed

UID = "6e6fe2ea-0d1e-4b4b-8e9c-0a7c5c3e2f10"


def test_a_row_is_a_json_object_with_all_of_its_columns() -> None:
    row = {
        "whole": 3,
        "real": 2.0,
        "none": float("nan"),
        "yes": True,
        "text": 'a "b" \\ \n\t\x01 é',
        "bytes": b"\x00\xff",
        "day": date(2026, 1, 2),
        "time": datetime(2026, 1, 2, 3, 4, 5, 6, UTC),
        "span": timedelta(seconds=1, milliseconds=500),
        "money": Decimal("1.50"),
        "list": [[1, None], []],
        "inner": {"a": "x", "b": [{"c": 1}]},
        "missing": None,
    }
    kinds: list[tuple[str, Any]] = [("map", pa.map_(pa.string(), pa.float64()))]
    table = pa.Table.from_pylist([row]).append_column(
        pa.field(*kinds[0]), pa.array([[('k"', 1.5)]], kinds[0][1])
    )
    [text] = json_object(table.schema.names, table.to_batches()[0].columns, 1).to_pylist()
    assert json.loads(text) == {
        "whole": 3,
        "real": 2.0,
        "none": None,
        "yes": True,
        "text": 'a "b" \\ \n\t\x01 é',
        "bytes": "AP8=",
        "day": "2026-01-02",
        "time": "2026-01-02T03:04:05.000006Z",
        "span": 1.5,
        "money": 1.5,
        "list": [[1, None], []],
        "inner": {"a": "x", "b": [{"c": 1}]},
        "missing": None,
        "map": {'k"': 1.5},
    }
    assert '"real":2.0' in text


def test_nested_values_of_a_slice_are_those_of_its_own_rows() -> None:
    rows = [{"l": [1, 2], "s": {"x": 1}}, {"l": None, "s": None}, {"l": [3], "s": {"x": None}}]
    batch = pa.Table.from_pylist(rows).to_batches()[0].slice(1)
    texts = json_object(["l", "s"], batch.columns, 2).to_pylist()
    assert [json.loads(text) for text in texts] == rows[1:]


def test_what_is_null_is_not_said() -> None:
    columns = {
        "payload": pa.array([b"a", None]),
        "queue": pa.array(["mail", None]),
        "priority": pa.array([7, None], pa.int32()),
        "run_at": pa.array([1_700_000_000_000_001, None], pa.timestamp("us", "Europe/Berlin")),
        "uid": pa.array([UID.upper(), UID]),
        "ttl": pa.array([0.0004, None]),
        "delay": pa.array([timedelta(seconds=2), None], pa.duration("us")),
        "key": pa.array([b"k", None]),
    }
    commands = _commands(columns, queue="rest")
    assert _words(commands[0]) == [
        b"JOB.PUSH", b"mail", b"a", b"UID", UID.encode(), b"PRIORITY", b"7", b"IN", b"2000",
        b"AT", b"1700000000001", b"TTL", b"1", b"KEY", b"k",
    ]  # fmt: skip
    assert _words(commands[1]) == [b"JOB.PUSH", b"rest", b"", b"UID", UID.encode()]


def test_a_row_that_says_nothing_of_failures_has_the_retries_of_every_push_of_ours() -> None:
    yard = SimulatedYard()
    peer = yard.connect("resp")
    peer.send(_commands({"payload": pa.array([b"a"]), "uid": pa.array([UID])}, queue="q")[0])
    peer.expect(b":1\r\n")
    assert yard.engine.job(1).policy.same(default_policy(yard.max_losses))


@pytest.mark.parametrize(
    ("column", "values", "reason"),
    [
        ("queue", pa.array(["ok", "no good"]), "without spaces"),
        ("queue", pa.array(["ok", None]), "the option queue is not given"),
        ("name", pa.array(["ok", ""]), "without spaces"),
        ("uid", pa.array([UID, "17"]), "not a UUID"),
        ("uid", pa.array([b"x" * 16, b"x"]), "16 bytes"),
        ("ttl", pa.array([1.0, -1.0]), "0 or more"),
        ("ttr", pa.array([1.0, float("nan")]), "0 or more"),
        ("ttr", pa.array([1, 86_401]), "at most 86400 seconds"),
        ("key", pa.array([b"k", b""]), "1 to 65535 bytes"),
        ("limit_key", pa.array(["k", "k" * 256]), "1 to 255 bytes"),
    ],
)
def test_an_error_names_column_and_row(column: str, values: Any, reason: str) -> None:
    queue = "" if column == "queue" else "mail"
    with pytest.raises(RowError) as raised:
        _commands({"payload": pa.array([b"a", b"b"]), column: values}, queue=queue)
    assert f"column {column}, row 1 of partition 5:" in str(raised.value)
    assert reason in str(raised.value)


def test_uids_are_those_of_place_and_content() -> None:
    def uids(payloads: list[bytes], query: str = "q", batch: int = 0) -> list[bytes]:
        columns = JobColumns(["payload"], 0, {}, "mail")
        made = RowCommands(columns, RowUids(query, batch, 5), 5)
        rows = pa.record_batch({"payload": pa.array(payloads)})
        return [_words(one)[4] for one in made.make(rows.slice(0, 1)) + made.make(rows.slice(1))]

    first = uids([b"a", b"a"])
    assert first == uids([b"a", b"a"])
    assert (
        len({*first, *uids([b"b", b"b"]), *uids([b"a"] * 2, "r"), *uids([b"a"] * 2, "q", 1)}) == 8
    )
    assert {UUID(one.decode()).version for one in first} == {8}


def test_without_a_query_every_row_needs_a_uid() -> None:
    made = RowCommands(JobColumns(["payload", "uid"], 0, {"uid": 1}, "mail"), None, 5)
    batch = pa.record_batch({"payload": ["a", "b"], "uid": [UID, None]})
    assert len(made.make(batch.slice(0, 1))) == 1
    with pytest.raises(RowError, match=r"row 1 of partition 5 has no uid.*queryId"):
        made.make(batch.slice(1))


class TestFeed:
    def test_only_what_has_no_answer_is_sent_again(self) -> None:
        feed = RowFeed(iter([[b"1", b"2", b"3"], [b"4"]]), lambda _: None)
        assert feed.next() == b"123"
        feed.take([11])
        assert feed.next() == b"4"
        feed.rewind()
        assert feed.next() == b"23"
        assert feed.next() == b"4"
        assert feed.next() == b""
        feed.take([12, 13, 14])
        assert feed.done
        assert feed.answered == 4

    def test_what_the_server_cannot_do_now_is_sent_again(self) -> None:
        feed = RowFeed(iter([[b"1", b"2", b"3"]]), lambda _: None)
        feed.next()
        feed.take([11, refusal("OOM queue is full"), 13])
        assert feed.done
        assert feed.held_up() is not None
        feed.rewind()
        assert feed.next() == b"2"
        assert feed.next() == b""
        feed.take([12])
        assert feed.held_up() is None
        assert feed.done
        assert feed.answered == 3

    def test_a_refusal_ends_it_and_names_its_row(self) -> None:
        feed = RowFeed(iter([[b"1", b"2"], [b"3"]]), lambda _: None)
        feed.next()
        feed.take([11, Refused("ERR no")])
        assert feed.next() == b""
        assert feed.done
        with pytest.raises(Refusal) as raised:
            feed.finish()
        assert raised.value.row == 1

    def test_what_was_sent_is_read_to_its_end_when_rows_break(self) -> None:
        def rows() -> Iterator[list[bytes]]:
            yield [b"1"]
            raise RowError("row 1")

        feed = RowFeed(rows(), lambda _: None)
        assert feed.next() == b"1"
        assert feed.next() == b""
        waits = not feed.done
        feed.take([11])
        assert waits
        assert feed.done
        with pytest.raises(RowError):
            feed.finish()


def _commands(columns: dict[str, Any], queue: str) -> list[bytes]:
    names = list(columns)
    places = {name: at for at, name in enumerate(names) if name != "payload"}
    job_columns = JobColumns(names, names.index("payload"), places, queue)
    return RowCommands(job_columns, RowUids("q", 0, 5), 5).make(pa.record_batch(columns))


def _words(command: bytes) -> list[bytes]:
    reader = hiredis.Reader()
    reader.feed(command)
    words: object = reader.gets()
    assert isinstance(words, list)
    left: object = reader.gets()
    assert left is False  # that was all of it
    return words
