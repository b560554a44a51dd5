"""Arguments and results go through JSON and come back as what the annotations say."""

from __future__ import annotations

import enum
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.effort import effort

from taskyard.tasks.codec import (
    Codec,
    Envelope,
    arguments_key,
    encode_arguments,
    encode_result,
    read_envelope,
)
from taskyard.tasks.errors import BadArguments, BadResult
from taskyard.tasks.task import CurrentJob


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Point(NamedTuple):
    x: int
    y: int


class Size(msgspec.Struct):
    width: int
    height: int = 1


@dataclass
class Order:
    id: uuid.UUID
    price: Decimal
    colour: Colour
    at: datetime
    tags: set[str] = field(default_factory=set)
    sizes: list[Size] = field(default_factory=list)
    counts: dict[int, bytes] = field(default_factory=dict)


TEXT = st.text(st.characters(codec="utf-8"))
INTS = st.integers(-(2**63), 2**64 - 1)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
TIMES = st.datetimes(timezones=st.just(UTC))
DECIMALS = st.decimals(allow_nan=False, allow_infinity=False)
SIZES = st.builds(Size, INTS, INTS)
ORDERS = st.builds(
    Order,
    st.uuids(),
    DECIMALS,
    st.sampled_from(Colour),
    TIMES,
    st.sets(TEXT),
    st.lists(SIZES, max_size=3),
    st.dictionaries(INTS, st.binary(), max_size=3),
)


def everything(
    text: str,
    number: int,
    fraction: float,
    data: bytes,
    at: datetime,
    day: date,
    span: timedelta,
    order: Order,
    point: Point,
    path: Path,
    maybe: Size | None = None,
    *more: Decimal,
    **named: tuple[int, Colour],
) -> Order:
    return order


VALUES = st.tuples(
    TEXT,
    INTS,
    FLOATS,
    st.binary(),
    TIMES,
    st.dates(),
    st.timedeltas(timedelta(days=-10_000), timedelta(days=10_000)),
    ORDERS,
    st.builds(Point, INTS, INTS),
    st.builds(Path, st.text("abc/.", min_size=1)),
    st.none() | SIZES,
    DECIMALS,
    DECIMALS,
)
NAMED = st.dictionaries(
    st.from_regex(r"[a-z]{1,8}\d", fullmatch=True),
    st.tuples(INTS, st.sampled_from(Colour)),
    max_size=3,
)


def there_and_back(function: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[Any, Any]:
    codec = Codec(function, "task", CurrentJob)
    payload = encode_arguments(Envelope(args, kwargs))
    found, named = codec.decode_arguments(read_envelope(payload))
    return tuple(found), named


@settings(max_examples=effort(40, 12))
@given(VALUES, NAMED)
def test_arguments_come_back_as_they_were(values: tuple[Any, ...], named: dict[str, Any]) -> None:
    assert there_and_back(everything, *values, **named) == (values, named)


@given(ORDERS)
def test_results_come_back_as_they_were(order: Order) -> None:
    assert Codec(everything, "task", CurrentJob).decode_result(encode_result(order)) == order


JSON = st.recursive(
    st.none() | st.booleans() | INTS | FLOATS | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=10,
)


@given(JSON)
def test_without_annotations_it_is_what_json_has(value: Any) -> None:
    def plain(value, *, named): ...  # type: ignore[no-untyped-def]

    assert there_and_back(plain, value, named=value) == ((value,), {"named": value})


def number(value: int, other: str = "") -> int:
    return value


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        (b'{"args": ["one"], "kwargs": {}}', "argument 1 does not fit: Expected `int`, got `str`"),
        (b'{"args": [1, 2], "kwargs": {}}', "argument 2 does not fit: Expected `str`, got `int`"),
        (b'{"args": [], "kwargs": {"value": null}}', "argument 'value' does not fit"),
        (b'{"args": [], "kwargs": {}}', "missing a required argument: 'value'"),
        (b'{"args": [1, "", 3], "kwargs": {}}', "too many positional arguments"),
        (b'{"args": [1], "kwargs": {"value": 1}}', "multiple values for argument 'value'"),
        (b'{"args": [1], "kwargs": {"no": 1}}', "unexpected keyword argument 'no'"),
        (b'{"args": 1, "kwargs": {}}', "does not name arguments"),
        (b"17", "no JSON array or object"),
        (b"{", "no JSON array or object"),
        (b"\xff", "no JSON array or object"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(payload: bytes, said: str) -> None:
    codec = Codec(number, "task", CurrentJob)
    with pytest.raises(BadArguments, match=said):
        codec.decode_arguments(read_envelope(payload))


@pytest.mark.parametrize(
    ("payload", "args", "kwargs"),
    [
        (b'[1, "a"]', [1, "a"], {}),
        (b'{"value": 1}', [], {"value": 1}),
        (b'{"args": [1]}', [1], {}),
        (b'{"kwargs": {"value": 2}}', [], {"value": 2}),
    ],
)
def test_others_may_push_bare_arguments(
    payload: bytes, args: list[Any], kwargs: dict[str, Any]
) -> None:
    assert Codec(number, "task", CurrentJob).decode_arguments(read_envelope(payload)) == (
        args,
        kwargs,
    )


def test_a_payload_of_nothing_is_a_call_without_arguments() -> None:
    assert Codec(lambda: None, "task", CurrentJob).decode_arguments(read_envelope(b"")) == ([], {})


def test_what_has_no_json_is_refused() -> None:
    with pytest.raises(BadArguments, match="the arguments have no JSON: a lock"):
        encode_arguments(Envelope((threading.Lock(),), {}))
    with pytest.raises(BadResult, match="the result has no JSON"):
        encode_result(object())


def test_an_annotation_that_json_cannot_fit_is_refused_at_once() -> None:
    def two(value: Order | Size) -> None: ...

    with pytest.raises(TypeError, match="parameter 'value' of task 'two'"):
        Codec(two, "two", CurrentJob)


def test_a_type_that_only_python_knows_is_refused_at_once() -> None:
    def send(to: complex) -> None: ...
    def each(values: Iterator[int]) -> None: ...
    def optional(to: complex | None, other: complex = 1j) -> None: ...

    for function in (send, each):
        with pytest.raises(TypeError, match="JSON has nothing that is a "):
            Codec(function, "task", CurrentJob)
    Codec(optional, "task", CurrentJob).check_arguments([None], {})


def test_what_can_be_walked_through_comes_as_a_list() -> None:
    def each(values: Iterable[int], days: Iterable[date]) -> None: ...

    day = date(2026, 5, 1)
    args, _ = there_and_back(each, (1, 2), {day})
    assert args == ([1, 2], [day])
    with pytest.raises(BadArguments, match="Expected `int`, got `str`"):
        there_and_back(each, ["one"], [])


def test_a_result_that_does_not_fit_says_so() -> None:
    with pytest.raises(BadResult, match="Expected `int`, got `str`"):
        Codec(number, "task", CurrentJob).decode_result(b'"one"')


def test_the_current_job_is_given_by_the_worker() -> None:
    def task(value: int, job: CurrentJob | None = None) -> None: ...

    codec = Codec(task, "task", CurrentJob)
    assert codec.context_name == "job"
    codec.check_arguments((1,), {})
    with pytest.raises(BadArguments, match="'job' is given by the worker"):
        codec.check_arguments((1,), {"job": 1})


@given(st.dictionaries(TEXT, INTS), st.sets(TEXT))
def test_keys_do_not_depend_on_the_order_of_things(named: dict[str, int], some: set[str]) -> None:
    turned = dict(reversed(list(named.items())))
    assert arguments_key("task", [named, some], {}) == arguments_key(
        "task", [turned, set(some)], {}
    )
    assert arguments_key("task", [named, some], {}) != arguments_key("other", [named, some], {})
    assert arguments_key("task", [named, some], {}) != arguments_key("task", [named, some, 1], {})
