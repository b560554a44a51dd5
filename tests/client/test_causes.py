"""Exceptions of tasks: how they are described, trimmed, and brought to another process."""

from __future__ import annotations

import asyncio
import pickle
import traceback
from typing import Any

import pytest

from taskyard.client.causes import (
    Cause,
    RemoteError,
    RemoteTraceback,
    describe_error,
    summarize_error,
    trim_traceback,
)
from taskyard.worker.coroutines import AsyncPool, run_coroutine, run_in_thread
from taskyard.worker.pools import failure_of


class Plain(Exception):
    pass


class Demanding(Exception):
    """Is not made of its `args`, as pickle assumes."""

    def __init__(self, code: int, *, why: str) -> None:
        super().__init__(f"{code}: {why}")


def fail(error: BaseException) -> None:
    raise error


async def fail_soon(error: BaseException) -> None:
    await asyncio.sleep(0)
    raise error


def functions_in(error: BaseException) -> list[str]:
    return [frame.name for frame in traceback.extract_tb(error.__traceback__)]


def inner(error: BaseException) -> BaseException:
    """Without the frame of the test, which stands before ours."""
    trace = error.__traceback__
    assert trace is not None
    return error.with_traceback(trace.tb_next)


def raised(error: BaseException) -> BaseException:
    try:
        fail(error)
    except BaseException as found:
        return found
    raise AssertionError


def test_frames_that_lead_to_the_function_are_left_out() -> None:
    with pytest.raises(Plain) as plain:
        asyncio.run(run_in_thread(lambda: fail(Plain("no"))))
    assert functions_in(trim_traceback(inner(plain.value))) == ["<lambda>", "fail"]


def test_frames_of_an_event_loop_are_left_out() -> None:
    with asyncio.Runner() as runner, pytest.raises(Plain) as plain:
        run_coroutine(fail_soon(Plain("no")), runner)
    assert functions_in(trim_traceback(inner(plain.value))) == ["fail_soon"]


def test_a_mistake_of_our_own_keeps_its_frames() -> None:
    pool: AsyncPool[Any] = AsyncPool(lambda job: fail_soon(Plain()), 1)
    with pytest.raises(AttributeError) as found:
        pool.submit()
    assert functions_in(trim_traceback(inner(found.value))) == ["submit"]


def test_an_error_is_described_by_a_line_and_its_traceback() -> None:
    told = describe_error(raised(ValueError("no such address")))
    assert told.startswith("ValueError: no such address\nTraceback (most recent call last):\n")
    assert told.endswith("ValueError: no such address\n")
    assert summarize_error(Plain("no")).endswith("test_causes.Plain: no")
    assert summarize_error(KeyError()) == "KeyError"


def test_a_crash_says_what_went_wrong_first() -> None:
    crash = failure_of(raised(ValueError("odd")), "its outcome cannot be sent back: ")
    assert crash.reason.startswith("its outcome cannot be sent back: ValueError: odd\nTraceback")
    assert crash.cause is not None
    assert isinstance(crash.cause.error, ValueError)


def test_in_another_process_it_is_the_same_exception_chained_to_its_traceback() -> None:
    there: Cause = pickle.loads(pickle.dumps(Cause(raised(Plain("no", 7)))))
    assert isinstance(there.error, Plain)
    assert there.error.args == ("no", 7)
    assert isinstance(there.error.__cause__, RemoteTraceback)
    assert "raise error" in there.error.__cause__.text
    assert "raise error" in "".join(traceback.format_exception(there.error))


def test_one_that_cannot_be_pickled_is_told_of_in_another() -> None:
    local = type("Local", (Exception,), {})
    for error, said in (
        (Demanding(7, why="odd"), "test_causes.Demanding: 7: odd"),
        (local("odd"), "Local: odd"),
        (Plain("x" * 70_000), "test_causes.Plain: xxx"),
    ):
        there: Cause = pickle.loads(pickle.dumps(Cause(raised(error))))
        assert type(there.error) is RemoteError
        assert said in str(there.error)
        assert isinstance(there.error.__cause__, RemoteTraceback)


def test_one_without_a_traceback_has_none_there_either() -> None:
    there: Cause = pickle.loads(pickle.dumps(Cause(Plain("no"))))
    assert isinstance(there.error, Plain)
    assert there.error.__cause__ is None
