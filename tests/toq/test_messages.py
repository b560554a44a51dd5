"""The JSON of tasks and results, ours and that of others."""

from __future__ import annotations

import contextlib
import json
import uuid
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.effort import effort

from taskyard.client.source import Job
from taskyard.toq import RETRYING, NotATask, Result, Task
from taskyard.toq.consumer import read_running_task
from taskyard.toq.messages import encode_retry_state, read_id


def test_a_task_has_the_fields_of_toq_in_their_order() -> None:
    task = Task(id="1", key="add", args='{"x":"ä"}', retry=True, max_retries=3, road=["a"])
    assert (
        task.to_json()
        == (
            '{"id":"1","retry":true,"max_retries":3,"tried":0,"road":["a"],"state":0,'
            '"key":"add","args":"{\\"x\\":\\"ä\\"}"}'
        ).encode()
    )


def test_a_result_has_the_fields_of_toq_in_their_order() -> None:
    result = Result(task_id="1", state=0, message="why", wanna_retry=True)
    assert result.to_json() == (
        b'{"task_id":"1","wanna_retry":true,"state":0,"message":"why","result":""}'
    )
    assert Result.from_json(result.to_json()) == result


def test_a_task_is_read_back_as_it_was_written() -> None:
    task = Task.of("add", 1, {"deep": [None]}, max_retries=2)
    assert Task.from_json(task.to_json()) == task
    assert task.arguments() == [1, {"deep": [None]}]
    assert (task.retry, task.max_retries) == (True, 2)


def test_a_task_has_an_id_of_its_own() -> None:
    ids = {Task(key="a").id for _ in range(3)}
    assert len(ids) == 3
    assert all(str(uuid.UUID(one)) == one for one in ids)


def test_what_others_leave_out_is_empty_and_what_they_add_is_ignored() -> None:
    task = Task.from_json(b' {"road": null, "key":"a", "priority": 9, "args":"[]"}\n')
    assert task == Task(id="", key="a", args="[]")
    assert Task.from_json(b"{}").key == ""


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"", "Input data was truncated"),
        (b"task", "JSON is malformed"),
        (b"\xff", "JSON is malformed"),
        (b'{"id":"\xff"}', "utf-8"),
        (b"[1]", "Expected `object`, got `array`"),
        (b'{"key":null}', r"Expected `str`, got `null` - at `\$.key`"),
        (b'{"args":{"x":1}}', r"Expected `str`, got `object` - at `\$.args`"),
        (b'{"tried":"1"}', r"Expected `int`, got `str` - at `\$.tried`"),
        (b'{"road":[1]}', r"Expected `str`, got `int` - at `\$.road\[0\]`"),
    ],
)
def test_what_is_no_task_is_refused_with_the_reason(message: bytes, reason: str) -> None:
    with pytest.raises(NotATask, match=f"this is not a task of toq: .*{reason}"):
        Task.from_json(message)


@settings(max_examples=effort(50, 20))
@given(st.binary() | st.text().map(str.encode))
def test_any_bytes_are_a_task_or_refused(message: bytes) -> None:
    with contextlib.suppress(NotATask):
        Task.from_json(message)
    assert isinstance(read_id(message), str)


_FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "id": st.text(),
        "retry": st.booleans(),
        "max_retries": st.integers(-5, 2**31),
        "tried": st.integers(0, 2**31),
        "road": st.none() | st.lists(st.text()),
        "state": st.integers(0, 4),
        "key": st.text(),
        "args": st.text(),
        "more": st.recursive(
            st.none() | st.floats(allow_nan=False, allow_infinity=False), st.lists
        ),
    },
)


@settings(max_examples=effort(50, 20))
@given(_FIELDS, st.integers(0, 3))
def test_a_task_of_any_producer_survives_its_retries(fields: dict[str, Any], fails: int) -> None:
    message = json.dumps(fields).encode()
    counted = read_running_task(Job(ref="1", queue="q", payload=message, fails=fails))
    assert counted.tried == fields.get("tried", 0) + fails
    counted.state = RETRYING
    rewritten = encode_retry_state(message, counted)
    kept = {name: value for name, value in json.loads(rewritten).items() if name in fields}
    for name in ("tried", "road", "state"):
        kept.pop(name, None)
    assert all(json.dumps(value) == json.dumps(fields[name]) for name, value in kept.items())
    assert Task.from_json(rewritten) == counted


def test_what_is_nested_too_deeply_is_refused() -> None:
    deep = b'{"id":"1","more":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    with pytest.raises(NotATask):
        Task.from_json(deep)
    assert read_id(deep) == ""


@pytest.mark.parametrize(
    ("message", "found"),
    [(b'{"id":"1","key":2}', "1"), (b'{"id":1}', ""), (b"{}", ""), (b"[]", ""), (b"\xff", "")],
)
def test_the_id_of_what_is_no_task(message: bytes, found: str) -> None:
    assert read_id(message) == found


def test_progress_leaves_all_else_as_it_was_written() -> None:
    message = b'{"trace":{"a":1.50},"tried":0,"id":"1","key":"a"}'
    task = Task.from_json(message)
    task.tried, task.road, task.state = 1, ["q", "retry_time_1"], 4
    assert encode_retry_state(message, task) == (
        b'{"trace":{"a":1.50},"tried":1,"id":"1","key":"a","road":["q","retry_time_1"],"state":4}'
    )


def test_a_task_is_the_same_whether_its_broker_counts_fails_or_its_message_does() -> None:
    pushed = Task(id="1", key="a", retry=True, max_retries=5, road=["before"]).to_json()
    counted = read_running_task(Job(ref="1", queue="q", payload=pushed, fails=2))
    fields = json.loads(pushed)
    fields.update(tried=2, road=["before", "q", "retry_time_1", "retry_time_2"], state=4)
    rewritten = read_running_task(Job(ref="1", queue="q", payload=json.dumps(fields).encode()))
    assert counted == rewritten
    assert counted.road == fields["road"]
    assert (counted.state, counted.tried) == (1, 2)


def test_a_value_has_no_result_if_it_has_no_json() -> None:
    assert Result.of({"a": 1}).value() == {"a": 1}
    assert Result().value() is None
    with pytest.raises(TypeError, match="has no JSON"):
        Result.of(object())
    endless: list[object] = []
    endless.append(endless)
    with pytest.raises(TypeError, match="has no JSON"):
        Result.of(endless)
