"""Names that are misspelt or from other libraries, and values that nothing can be made of."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest

import taskyard
from taskyard import App, BadArguments, chain, group

app = App(inline=True)


@app.task
def add(a: int, b: int) -> int:
    return a + b


ANY: Any = add


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"retires": 3}, "there is no task option 'retires' (did you mean retry?)"),
        ({"quue": "mail"}, "there is no task option 'quue' (did you mean queue?)"),
        ({"max_retries": 3}, "there is no task option 'max_retries' (it is retry=3 here, with"),
        ({"time_limit": 3}, "there is no task option 'time_limit' (it is timeout here)"),
        ({"zzz": 3}, "there is no task option 'zzz'"),
        ({"retry": "3"}, "retry must be a number of tries or a taskyard.Retry, not '3'"),
        ({"timeout": "30s"}, "timeout must be a number of seconds, not '30s'"),
    ],
)
def test_a_task_option_that_there_is_not(options: dict[str, Any], said: str) -> None:
    def declare_app() -> object:
        return App(**options).task(add.function)

    for declare in (
        lambda: app.task(**options)(add.function),
        lambda: add.with_options(**options),
        declare_app,
    ):
        with pytest.raises(TypeError) as found:
            declare()
        assert str(found.value).startswith(said)


@pytest.mark.parametrize(
    ("attempt", "said"),
    [
        (
            lambda: ANY.delay(1, 2),
            "'PlainTask' object has no attribute 'delay': push it with push(",
        ),
        (lambda: ANY.apply_async((1, 2)), "'apply_async': push it with push(...), or push_in(sec"),
        (lambda: ANY.s(1, 2).delay(), "'Signature' object has no attribute 'delay': push() pushes"),
        (lambda: ANY.pusch(1, 2), "has no attribute 'pusch' (did you mean push?)"),
        (lambda: ANY.push(1, 2).get(timeout=3), "no attribute 'get': result(wait=seconds) gives"),
        (lambda: ANY.push(1, 2).status, "'Handle' object has no attribute 'status': info().state"),
        (lambda: ANY.push(1, 2).resutl(), "has no attribute 'resutl' (did you mean result?)"),
        (lambda: ANY.push(1, 2).frobnicate, "has no attribute 'frobnicate'"),
        (lambda: group([ANY.s(1, 2)]).push().get(), "'get': results(wait=seconds) gives"),  # type: ignore[attr-defined]
    ],
)
def test_a_name_of_another_library(attempt: Callable[[], object], said: str) -> None:
    with pytest.raises(AttributeError) as found:
        attempt()
    assert said in str(found.value)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"countdown": 5}, "; push_in(seconds, ...) pushes it for later"),
        ({"eta": 5}, "; push_at(time, ...) pushes it for later"),
    ],
)
def test_a_word_of_another_library_in_a_push(words: dict[str, Any], said: str) -> None:
    with pytest.raises(BadArguments) as found:
        ANY.push(1, 2, **words)
    assert str(found.value).endswith(said)
    assert "got an unexpected keyword argument" in str(found.value)


def test_an_argument_of_that_name_is_one() -> None:
    @app.task
    def launch(countdown: int) -> int:
        return countdown

    assert launch.push(countdown=3).result() == 3


def test_what_is_asked_for_beneath_is_as_before() -> None:
    assert not hasattr(add, "__wrapped_by__")
    assert copy.copy(add.options) == add.options
    assert add.with_options(priority=3).options.priority == 3
    assert chain(add.s(1, 2), add.s(3)).push().result() == 6
    bare: Any = object.__new__(type(add))
    with pytest.raises(AttributeError, match="__getstate_of_ours__"):
        _ = bare.__getstate_of_ours__
    assert pickle.loads(pickle.dumps(taskyard.TaskFailed("a", "1", "b"))).job == "1"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"retires": 3}, "there is no push option 'retires' (did you mean retries?)"),
        ({"countdown": 3}, "there is no push option 'countdown' (it is delay here)"),
        ({"eta": 3}, "there is no push option 'eta' (it is run_at here)"),
        ({"delay": "5m"}, "'5m' is no duration: a number of seconds or a timedelta is wanted"),
        ({"run_at": "noon"}, "run_at cannot be 'noon': a datetime or seconds since 1970 are wa"),
        ({"retries": "3"}, "retries must be a whole number, not '3'"),
    ],
)
def test_a_push_option_that_there_is_not(options: dict[str, Any], said: str) -> None:
    with taskyard.Client("taskyard://127.0.0.1:1?patience=0") as client:
        for push in (
            lambda: client.push("mail", b"x", **options),
            lambda: client.push_many("mail", [b"x"], **options),
        ):
            with pytest.raises(TypeError) as found:
                push()
            assert str(found.value).startswith(said)


def test_settings_and_schedules_of_the_client() -> None:
    with taskyard.Client("taskyard://127.0.0.1:1?patience=0") as client:
        wrong: Any = {"concurency": 3}
        with pytest.raises(
            TypeError, match=r"no setting of queues 'concurency' \(did you mean con"
        ):
            client.configure("mail", **wrong)
        wrong = {"evry": 3}
        with pytest.raises(TypeError, match=r"no schedule option 'evry' \(did you mean every"):
            client.set_schedule("nightly", "mail", **wrong)


def test_a_schedule_wants_seconds() -> None:
    with pytest.raises(TypeError, match="every must be a number of seconds, not '30s'"):
        app.periodic(every="30s")(add)  # type: ignore[arg-type]
