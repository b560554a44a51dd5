"""Tasks and results of toq: read leniently, or refused; and nothing of a message gets lost."""

from __future__ import annotations

import contextlib

import msgspec

from taskyard.toq.messages import NotATask, Result, Task, encode_retry_state, read_id

SEEDS = [
    Task(id="i", key="k", args="[1,2]", retry=True, max_retries=3, road=["a"]).to_json(),
    b'{"id":"i","key":"k","args":"","road":null,"more":{"x":[1.50]},"state":4}',
    Result(task_id="i", result='{"a":1}', message="m", wanna_retry=True).to_json(),
    b'{"id":5,"key":1}',
    b"[]",
]
WORDS = [
    b'"id":',
    b'"key":',
    b'"args":',
    b'"road":',
    b'"tried":',
    b"null",
    b"\\ud800",
    b'"result":',
]


def fuzz(data: bytes) -> None:
    assert isinstance(read_id(data), str)
    _check_task(data)
    try:
        result = Result.from_json(data)
    except ValueError:
        return
    assert Result.from_json(result.to_json()) == result
    with contextlib.suppress(ValueError):
        result.value()


def _check_task(data: bytes) -> None:
    try:
        task = Task.from_json(data)
    except NotATask:
        return
    assert Task.from_json(task.to_json()) == task
    with contextlib.suppress(ValueError):
        task.arguments()
    task.tried += 1
    task.road = [*task.road, "again"]
    moved = encode_retry_state(data, task)
    assert Task.from_json(moved) == task
    before = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    after = msgspec.json.decode(moved, type=dict[str, msgspec.Raw])
    for name, value in before.items():
        if name not in ("tried", "road", "state"):
            assert bytes(after[name]) == bytes(value)
