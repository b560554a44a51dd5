"""Payloads and results of tasks: arguments that fit the function, or an error that says so."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
from fuzz.inputs import Choices

from taskyard.tasks.codec import (
    Codec,
    arguments_key,
    encode_arguments,
    encode_result,
    may_need_results,
    read_envelope,
)
from taskyard.tasks.errors import BadArguments, BadResult
from taskyard.tasks.task import CurrentJob


class Order(msgspec.Struct):
    id: int
    items: list[str] = []


def plain(a, b=2, *rest, c=3, **named):  # type: ignore[no-untyped-def]
    return a


def typed(when: datetime, order: Order, /, where: Path | None = None) -> dict[str, Decimal]:
    return {}


def listed(context: CurrentJob, ids: list[UUID], *counts: int, share: float = 0.5) -> list[Order]:
    return []


def loose(value: Any, flag: bool = False, **sizes: int) -> Any:
    return value


CODECS = [
    Codec(function, function.__name__, CurrentJob) for function in (plain, typed, listed, loose)
]
SEEDS = [
    b'\0{"args":[1,2,3],"kwargs":{"c":4,"d":[]}}',
    b'\1{"args":["2030-01-31T08:00:00Z",{"id":1,"items":["x"]}],"kwargs":{"where":"/tmp"}}',
    b'\2[["6ba7b810-9dad-11d1-80b4-00c04fd430c4"],5,6]',
    b'\3{"value":1.5,"flag":true,"x":3}',
    b'\3{"args":[],"kwargs":{},"results_of":["u"],"join":true,"keep":1.5,"pauses":[1,2]}',
    b'\1{"a":"1.50","b":"NaN"}',
]
WORDS = [b'"args":', b'"kwargs":', b'"results_of":', b'"join":', b'"pauses":', b"null", b"1e400"]


def fuzz(data: bytes) -> None:
    choices = Choices(data)
    codec = choices.one_of(CODECS)
    payload = choices.rest()
    may_need_results(payload)
    _check_arguments(codec, payload)
    try:
        found = codec.decode_result(payload)
    except BadResult:
        return
    again = encode_result(found)
    if payload:  # a result that is not there is none, whatever it should be
        assert encode_result(codec.decode_result(again)) == again


def _check_arguments(codec: Codec, payload: bytes) -> None:
    try:
        envelope = read_envelope(payload)
    except BadArguments:
        return
    encoded = encode_arguments(envelope)
    assert encode_arguments(read_envelope(encoded)) == encoded
    arguments_key("task", envelope.args, envelope.kwargs)
    try:
        args, kwargs = codec.decode_arguments(envelope)
    except BadArguments as error:
        assert str(error)
        return
    codec.check_arguments(args, kwargs)
