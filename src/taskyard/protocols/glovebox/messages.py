"""Glovebox's JSON form. Not compiled: see msgspec."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta, Struct

from taskyard.protocols.glovebox import types as t

Level = Literal["ready", "write", "sync"]
Stage = Literal["ready", "write", "sync", "assign", "finish", "retry", "drop"]
Byte = Annotated[int, Meta(ge=0, le=255)]
U32 = Annotated[int, Meta(ge=0, le=t.MAX_U32)]
U64 = Annotated[int, Meta(ge=0)]  # msgspec has no limit beyond 63 bits: see _u64


class Post(Struct, tag_field="type", tag="post"):
    """null stands for an option that was left out, here and in the others."""

    queue: str
    message: str | list[Byte]
    priority: U32 | None = None
    label: U64 | None = None
    notify: list[Stage] | None = None


class Pop(Struct, tag_field="type", tag="pop"):
    queue: str
    timeout: float | None = None
    label: U64 | None = None
    sync: Level | None = None


class Fetch(Struct, tag_field="type", tag="fetch"):
    queue: str
    work_timeout: float
    block_timeout: float | None = None
    sync: Level | None = None
    label: U64 | None = None


class Finish(Struct, tag_field="type", tag="finish"):
    queue: str
    sequence: U64
    shard: U32 | None = None
    label: U64 | None = None
    response: Level | None = None


class Create(Struct, tag_field="type", tag="create"):
    queue: str
    label: U64 | None = None
    retries: U32 | None = None
    shard_max_entries: U64 | None = None
    shard_max_bytes: U64 | None = None


class _Labelled(Struct):
    label: U64 | None = None


class Message(Struct, tag_field="type", tag="message"):
    label: int
    shard: int
    sequence: int
    body: str | list[int]
    finished: bool


class Notice(Struct, tag_field="type", tag="notice"):
    label: int
    notice: str


class Hello(Struct, tag_field="type", tag="hello"):
    id: int


class NoMessage(Struct, tag_field="type", tag="nomessage"):
    label: int


class Error(Struct, tag_field="type", tag="error"):
    label: int
    code: str
    key: str


# A RecursionError is a document nested beyond all reason.
_MALFORMED: Final = (msgspec.MsgspecError, UnicodeError, RecursionError)
_decode: Final = msgspec.json.Decoder(Post | Pop | Fetch | Finish | Create).decode
_decode_label: Final = msgspec.json.Decoder(_Labelled).decode
_encode: Final = msgspec.json.Encoder().encode


def decode_request(text: bytes) -> t.Request:
    """The request that this text is; Malformed if it is none."""
    try:
        return _request(_decode(text))
    except _MALFORMED as error:
        raise t.Malformed(str(error), _label_of(text)) from error


def _request(said: Post | Pop | Fetch | Finish | Create) -> t.Request:
    label = 0 if said.label is None else _u64(said.label)
    said.queue.encode()  # a lone surrogate has no place in a name
    if isinstance(said, Post):
        message = said.message
        body = message.encode() if isinstance(message, str) else bytes(message)
        stages = 0
        for stage in said.notify or ():
            stages |= 1 << t.STAGE_NAMES.index(stage)
        return t.Post(said.queue, body, said.priority or 0, label, stages)
    if isinstance(said, Pop):
        return t.Pop(said.queue, _level(said.sync, t.NOT_SAID), said.timeout, label)
    if isinstance(said, Fetch):
        sync = _level(said.sync, t.READY)
        return t.Fetch(said.queue, said.block_timeout, said.work_timeout, sync, label)
    if isinstance(said, Finish):
        return t.Finish(
            said.queue,
            _u64(said.sequence),
            said.shard or 0,
            None if said.label is None else label,
            _level(said.response, t.NOT_SAID),
        )
    entries, size = said.shard_max_entries, said.shard_max_bytes
    return t.Create(
        said.queue,
        label,
        said.retries,
        None if entries is None else _u64(entries),
        None if size is None else _u64(size),
    )


def _level(name: Level | None, default: int) -> int:
    return default if name is None else t.LEVEL_NAMES.index(name)


def _u64(value: int) -> int:
    if value > t.MAX_U64:
        raise msgspec.ValidationError(f"Expected `int` <= {t.MAX_U64}")
    return value


def _label_of(text: bytes) -> int:
    """The label of a message that is otherwise bad, so that its sender can tell which it was."""
    try:
        return _u64(_decode_label(text).label or 0)
    except _MALFORMED:
        return 0


def encode_response(response: t.Response) -> bytes:
    if isinstance(response, t.Message):
        return _encode(
            Message(
                response.label,
                response.shard,
                response.sequence,
                _body(response.body),
                response.finished,
            )
        )
    if isinstance(response, t.Notice):
        return _encode(Notice(response.label, t.STAGE_NAMES[response.stage]))
    if isinstance(response, t.Hello):
        return _encode(Hello(response.id))
    if isinstance(response, t.NoMessage):
        return _encode(NoMessage(response.label))
    assert isinstance(response, t.Error)
    return _encode(Error(response.label, t.CODE_NAMES[response.code], response.key))


def _body(payload: bytes) -> str | list[int]:
    try:
        return payload.decode()
    except UnicodeDecodeError:
        return list(payload)
