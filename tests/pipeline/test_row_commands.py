"""Rows of Arrow to commands, and commands through a connection that is lost: without Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import hiredis
import pyarrow as pa
import pytest
from support.simulated import SimulatedServer

from taskyard.client.errors import Duplicate, Refused, refusal_from_reply
from taskyard.client.feeding import CommandFeed
from taskyard.engine.model.job import default_policy
from taskyard.pipeline.spark.job_columns import JobColumns
from taskyard.pipeline.spark.row_commands import JobCommands, OutcomeCommands, RowError

UID = "6e6fe2ea-0d1e-4b4b-8e9c-0a7c5c3e2f10"


def test_a_row_is_a_json_object_with_all_of_its_columns() -> None:
    """Also with those of the types of Spark: see test_sink."""
    row = {
        "whole": 3,
        "real": 2.0,
        "endless": float("-inf"),
        "yes": True,
        "text": 'a "b" \\ \n\t\x01 é',
        "hour": time(3, 4, 5, 6),
        "time": datetime(2026, 1, 2, 3, 4, 5, 6, ZoneInfo("Europe/Berlin")),
        "list": [[1, None], []],
        "inner": {"a": "x", "b": [{"c": date(1, 1, 1)}]},
    }
    columns: dict[str, Any] = {name: pa.array([value]) for name, value in row.items()} | {
        "far": pa.array([253_402_300_800_000_000], pa.timestamp("us", "UTC")),
        "map": pa.array([[('k"', 1.5)]], pa.map_(pa.string(), pa.float64())),
        "days": pa.array([[(date(2026, 1, 2), 1)]], pa.map_(pa.date32(), pa.int8())),
    }
    [text] = _json(columns)
    assert json.loads(text) == {
        "whole": 3,
        "real": 2.0,
        "endless": None,
        "yes": True,
        "text": 'a "b" \\ \n\t\x01 é',
        "hour": "03:04:05.000006",
        "time": "2026-01-02T02:04:05.000006Z",
        "list": [[1, None], []],
        "inner": {"a": "x", "b": [{"c": "0001-01-01"}]},
        "far": "10000-01-01T00:00:00.000000Z",
        "map": {'k"': 1.5},
        "days": {"2026-01-02": 1},
    }
    assert b'"real":2.0' in text


def test_nested_values_of_a_slice_are_those_of_its_own_rows() -> None:
    rows: list[dict[str, Any]] = [
        {"l": [1, 2], "s": {"x": 1}, "m": [("a", 1)]},
        {"l": None, "s": None, "m": None},
        {"l": [3], "s": {"x": None}, "m": [("b", 2), ("c", None)]},
    ]
    kinds = {"l": pa.list_(pa.int8()), "s": pa.struct({"x": pa.int8()})}
    kinds["m"] = pa.map_(pa.string(), pa.int8())
    columns = {
        name: pa.array([row[name] for row in rows], kind)[1:] for name, kind in kinds.items()
    }
    assert [json.loads(text) for text in _json(columns)] == [
        {"l": None, "s": None, "m": None},
        {"l": [3], "s": {"x": None}, "m": {"b": 2, "c": None}},
    ]


def test_a_payload_that_is_no_text_is_json() -> None:
    for column, payloads in (
        (pa.array([[1, 2], None]), [b"[1,2]", b""]),
        (pa.array([float("nan"), 1.0]), [b"null", b"1.0"]),
        (pa.array(["a", None], pa.large_string()), [b"a", b""]),
    ):
        columns = {"payload": column, "uid": pa.array([UID] * 2)}
        assert [_words(one)[2] for one in _commands(columns, queue="q")] == payloads


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
    yard = SimulatedServer()
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
        made = JobCommands(JobColumns(["payload"], 0, {}, "mail"), 5, query, batch)
        rows = pa.record_batch({"payload": pa.array(payloads)})
        return [_words(one)[4] for one in made.make(rows.slice(0, 1)) + made.make(rows.slice(1))]

    first = uids([b"a", b"a"])
    # A query that goes on with another version of this program finds its jobs again.
    assert first == [
        b"cd16fc60-91fc-8be9-a959-5e6230714181",
        b"d7d4ec29-c9d8-889a-ad7a-05bda98a7a63",
    ]
    assert (
        len({*first, *uids([b"b", b"b"]), *uids([b"a"] * 2, "r"), *uids([b"a"] * 2, "q", 1)}) == 8
    )
    assert {UUID(one.decode()).version for one in first} == {8}


def test_without_a_query_every_row_needs_a_uid() -> None:
    made = JobCommands(JobColumns(["payload", "uid"], 0, {"uid": 1}, "mail"), 5, None, 0)
    batch = pa.record_batch({"payload": ["a", "b"], "uid": [UID, None]})
    assert len(made.make(batch.slice(0, 1))) == 1
    with pytest.raises(RowError, match=r"row 1 of partition 5 has no uid.*queryId"):
        made.make(batch.slice(1))


def test_outcomes_end_jobs() -> None:
    made = OutcomeCommands(["ref", "error", "outcome", "result"], 5)
    rows = [
        ("1-1", None, None, None),
        ("1-2", None, None, ""),
        ("1-3", "bad", None, "x"),
        ("1-4", None, "retried", None),
        ("1-5", "bad", "failed", None),
        ("1-6", None, "released", None),
        ("1-7", "bad", "succeeded", None),
    ]
    columns = dict(zip(("ref", "error", "outcome", "result"), zip(*rows, strict=True), strict=True))
    commands = made.make(pa.record_batch({name: pa.array(one) for name, one in columns.items()}))
    assert [_words(one) for one in commands] == [
        [b"JOB.DONE", b"1-1"],
        [b"JOB.DONE", b"1-2", b""],
        [b"JOB.FAIL", b"1-3", b"bad"],
        [b"JOB.FAIL", b"1-4", b""],
        [b"JOB.FAIL", b"1-5", b"bad", b"FINAL"],
        [b"JOB.RETURN", b"1-6"],
        [b"JOB.DONE", b"1-7"],
    ]


@pytest.mark.parametrize(
    ("ref", "outcome", "reason"),
    [
        ("1-2", "lost", "column outcome, row 2 of partition 5: 'lost' is none of succeeded, retr"),
        (None, "failed", "column ref, row 2 of partition 5: there is none"),
    ],
)
def test_an_outcome_that_cannot_be_is_named(ref: str | None, outcome: str, reason: str) -> None:
    made = OutcomeCommands(["ref", "outcome"], 5)
    made.make(pa.record_batch({"ref": ["1-0"], "outcome": ["failed"]}))
    refs, outcomes = pa.array(["1-1", ref]), pa.array(["failed", outcome])
    with pytest.raises(RowError) as raised:
        made.make(pa.record_batch({"ref": refs, "outcome": outcomes}))
    assert reason in str(raised.value)


class TestFeed:
    def test_only_what_has_no_answer_is_sent_again(self) -> None:
        feed = CommandFeed(iter([[b"1", b"2", b"3"], [b"4"]]), _refused)
        assert feed.next_commands() == b"123"
        feed.on_replies([11])
        assert feed.next_commands() == b"4"
        feed.resend_unanswered()
        assert feed.next_commands() == b"234"
        assert feed.next_commands() == b""
        feed.on_replies([12, 13, 14])
        assert feed.done
        assert feed.answered == 4

    def test_what_the_server_cannot_do_now_is_sent_again(self) -> None:
        feed = CommandFeed(iter([[b"1", b"2", b"3"]]), _refused)
        feed.next_commands()
        feed.on_replies([11, refusal_from_reply("OOM queue is full"), 13])
        assert feed.done
        assert feed.transient_error() is not None
        feed.resend_unanswered()
        assert feed.next_commands() == b"2"
        assert feed.next_commands() == b""
        feed.on_replies([12])
        assert feed.transient_error() is None
        assert feed.done
        assert feed.answered == 3

    def test_what_was_done_before_is_answered_too(self) -> None:
        feed = CommandFeed(iter([[b"1", b"2"]]), _refused)
        feed.next_commands()
        feed.on_replies([refusal_from_reply("DUPLICATE 7 it has this uid"), b"delayed"])
        assert feed.next_commands() == b""
        assert feed.done
        assert (feed.answered, feed.error) == (2, None)

    def test_only_so_much_is_on_its_way(self) -> None:
        batch = [b"x"] * 10_000
        feed = CommandFeed(iter([batch, batch, batch]), _refused)
        sent = sum(len(chunk) for chunk in iter(feed.next_commands, b""))
        assert 10_000 < sent < 20_000
        assert feed.next_commands() == b""
        feed.on_replies([1] * 5_000)
        assert feed.next_commands() != b""
        large = CommandFeed(iter([[b"x" * 3_000_000] * 10]), _refused)
        assert len(b"".join(iter(large.next_commands, b""))) == 9_000_000

    def test_a_refusal_ends_it_and_names_its_row(self) -> None:
        feed = CommandFeed(iter([[b"1", b"2"], [b"3"]]), _refused)
        feed.next_commands()
        feed.on_replies([11, Refused("ERR no")])
        assert feed.next_commands() == b""
        assert feed.done
        assert str(feed.error) == "row 1: ERR no"

    def test_what_was_sent_is_read_to_its_end_when_rows_break(self) -> None:
        def rows() -> Iterator[list[bytes]]:
            yield [b"1"]
            raise RowError("row 1")

        feed = CommandFeed(rows(), _refused)
        assert feed.next_commands() == b"1"
        assert feed.next_commands() == b""
        waits = not feed.done
        feed.on_replies([11])
        assert waits
        assert feed.done
        assert isinstance(feed.error, RowError)


def _commands(columns: dict[str, Any], queue: str) -> list[bytes]:
    names = list(columns)
    places = {name: at for at, name in enumerate(names) if name != "payload"}
    job_columns = JobColumns(names, names.index("payload"), places, queue)
    return JobCommands(job_columns, 5, "q", 0).make(pa.record_batch(columns))


def _json(columns: dict[str, Any]) -> list[bytes]:
    """The payloads of rows that are pushed whole."""
    made = JobCommands(JobColumns(list(columns), None, {}, "q"), 5, "q", 0)
    return [_words(one)[2] for one in made.make(pa.record_batch(columns))]


def _words(command: bytes) -> list[bytes]:
    reader = hiredis.Reader()
    reader.feed(command)
    words: object = reader.gets()
    assert isinstance(words, list)
    left: object = reader.gets()
    assert left is False  # that was all of it
    return words


def _refused(row: int, reason: Refused) -> Exception | None:
    return None if isinstance(reason, Duplicate) else ValueError(f"row {row}: {reason}")
