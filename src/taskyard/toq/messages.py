"""Tasks and results, and their JSON: the fields of toq, by these names and in this order.

What other producers send is read leniently where its meaning is plain (fields left out, `road`
null as Go writes an empty one, fields that toq does not know), and refused where it is not.
"""

from __future__ import annotations

import random
import uuid
from dataclasses import dataclass
from typing import Any, Final

import msgspec

# States of a task.
QUEUED: Final = 0
RUNNING: Final = 1
SUCCEEDED: Final = 2
FAILED: Final = 3
RETRYING: Final = 4

# States of a result.
RESULT_FAILED: Final = 0
RESULT_SUCCEEDED: Final = 1


# What reading JSON that others wrote may raise; the last of them if it is nested too deeply.
_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


# Tasks


class NotATask(ValueError):
    """These bytes are not the JSON of a task; the text says why."""


def _new_id() -> str:
    return str(uuid.uuid4())


class Task(msgspec.Struct, kw_only=True):
    """What is to be done: the worker that is registered for `key` gets it."""

    id: str = msgspec.field(default_factory=_new_id)
    retry: bool = False  # whether it may be tried again
    max_retries: int = 0  # how many times
    tried: int = 0  # how many times it has been tried again
    road: list[str] = msgspec.field(default_factory=list)  # queues it was on, marks of retries
    state: int = QUEUED
    key: str
    args: str = ""  # JSON, in a string

    @classmethod
    def of(cls, key: str, *arguments: Any, max_retries: int = 0) -> Task:
        """A task with these values as its `args`, in a JSON array; retried if that is asked for."""
        return cls(
            key=key,
            args=msgspec.json.encode(arguments).decode(),
            retry=max_retries > 0,
            max_retries=max_retries,
        )

    def arguments(self) -> Any:
        """The value that `args` holds; ValueError if that is not JSON."""
        return _decode_value(self.args)

    def to_json(self) -> bytes:
        return msgspec.json.encode(self)

    @classmethod
    def from_json(cls, data: bytes) -> Task:
        """The task of a message, whoever sent it; NotATask if it is none."""
        try:
            read = _decode_task(data)
            if not data.isascii():
                data.decode()  # also what is passed on without being parsed
        except _UNREADABLE as error:
            raise NotATask(f"this is not a task of toq: {error}") from error
        return cls(
            id=read.id,
            retry=read.retry,
            max_retries=read.max_retries,
            tried=read.tried,
            road=read.road or [],
            state=read.state,
            key=read.key,
            args=read.args,
        )


def read_id(data: bytes) -> str:
    """The id in a message that is no task, if so much can be read of it; else ""."""
    try:
        fields = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
        return msgspec.json.decode(fields.get("id", b'""'), type=str)
    except _UNREADABLE:
        return ""


def encode_retry_state(data: bytes, task: Task) -> bytes:
    """The message of a task with its `tried`, `road` and `state` as they are now.

    All else stays as its producer wrote it, also the fields that toq does not know.
    """
    fields: dict[str, Any] = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    fields.update(tried=task.tried, road=task.road, state=task.state)
    return msgspec.json.encode(fields)


class _ReceivedTask(msgspec.Struct):
    """A task as others may write it. What is left out is as Go has it then: empty."""

    id: str = ""
    retry: bool = False
    max_retries: int = 0
    tried: int = 0
    road: list[str] | None = None
    state: int = QUEUED
    key: str = ""
    args: str = ""


_decode_task: Final = msgspec.json.Decoder(_ReceivedTask).decode


# Results


class Result(msgspec.Struct, kw_only=True):
    """The result of a task. A worker may leave out `task_id`."""

    task_id: str = ""
    wanna_retry: bool = False  # the worker asks for another try
    state: int = RESULT_SUCCEEDED
    message: str = ""
    result: str = ""  # JSON, in a string

    @classmethod
    def of(cls, value: Any) -> Result:
        """A success with this value; TypeError if it has no JSON."""
        try:
            return cls(result=msgspec.json.encode(value).decode())
        except (TypeError, ValueError, RecursionError) as error:
            raise TypeError(f"what the worker gave has no JSON: {error}") from error

    @property
    def succeeded(self) -> bool:
        return self.state == RESULT_SUCCEEDED

    def value(self) -> Any:
        """The value that `result` holds, None if it is empty; ValueError if that is not JSON."""
        return _decode_value(self.result) if self.result else None

    def to_json(self) -> bytes:
        return msgspec.json.encode(self)

    @classmethod
    def from_json(cls, data: bytes) -> Result:
        """ValueError if this is not the JSON of a result."""
        try:
            return _decode_result(data)
        except _UNREADABLE as error:
            raise ValueError(f"this is not a result of toq: {error}") from error


_decode_result: Final = msgspec.json.Decoder(Result).decode


def _decode_value(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except RecursionError as error:
        raise ValueError(f"this JSON is nested too deeply: {error}") from error


# Retries


@dataclass(frozen=True, slots=True)
class Countdown:
    """How long a task waits before it is tried again.

    `first` seconds before the first retry, `factor` times as long before each further one. `most`
    is the upper bound. `jitter` is the share of it all by which a pause may be shorter or longer,
    at random: tasks that failed together do not come back together.
    """

    first: float = 1.0
    factor: float = 2.0
    most: float = 300.0
    jitter: float = 0.1

    def __post_init__(self) -> None:
        if not (0 <= self.first <= self.most < float("inf")):
            raise ValueError("a countdown needs 0 <= first <= most, and an end")
        if not (1 <= self.factor < float("inf")):
            raise ValueError("a countdown needs a factor of 1 or more")
        if not (0 <= self.jitter <= 1):
            raise ValueError("a countdown needs a jitter from 0 to 1")

    def delay(self, retry: int) -> float:
        """The seconds before this retry, counted from 1."""
        try:
            pause = self.first * self.factor ** (retry - 1)
        except OverflowError:
            pause = self.most
        pause = min(pause, self.most)
        return min(pause * random.uniform(1 - self.jitter, 1 + self.jitter), self.most)
