"""Glovebox's JSON form. Not compiled: see msgspec."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta, Struct

from taskyard.engine.operations.facade import Engine
from taskyard.protocols.glovebox import types as t
from taskyard.protocols.glovebox.types import MAX_U64
from taskyard.protocols.http.wire import Response

Level = Literal["ready", "write", "sync"]
Stage = Literal["ready", "write", "sync", "assign", "finish", "retry", "drop"]
Byte = Annotated[int, Meta(ge=0, le=255)]
U32 = Annotated[int, Meta(ge=0, le=t.MAX_U32)]
U64 = Annotated[int, Meta(ge=0)]  # msgspec has no limit beyond 63 bits: see _u64


class JsonPost(Struct, tag_field="type", tag="post"):
    """null stands for an option that was left out, here and in the others."""

    queue: str
    message: str | list[Byte]
    priority: U32 | None = None
    label: U64 | None = None
    notify: list[Stage] | None = None


class JsonPop(Struct, tag_field="type", tag="pop"):
    queue: str
    timeout: float | None = None
    label: U64 | None = None
    sync: Level | None = None


class JsonFetch(Struct, tag_field="type", tag="fetch"):
    queue: str
    work_timeout: float
    block_timeout: float | None = None
    sync: Level | None = None
    label: U64 | None = None


class JsonFinish(Struct, tag_field="type", tag="finish"):
    queue: str
    sequence: U64
    shard: U32 | None = None
    label: U64 | None = None
    response: Level | None = None


class JsonCreate(Struct, tag_field="type", tag="create"):
    queue: str
    label: U64 | None = None
    retries: U32 | None = None
    shard_max_entries: U64 | None = None
    shard_max_bytes: U64 | None = None


class _JsonLabel(Struct):
    label: U64 | None = None


class JsonMessage(Struct, tag_field="type", tag="message"):
    label: int
    shard: int
    sequence: int
    body: str | list[int]
    finished: bool


class JsonNotice(Struct, tag_field="type", tag="notice"):
    label: int
    notice: str


class JsonHello(Struct, tag_field="type", tag="hello"):
    id: int


class JsonNoMessage(Struct, tag_field="type", tag="nomessage"):
    label: int


class JsonError(Struct, tag_field="type", tag="error"):
    label: int
    code: str
    key: str


# A RecursionError is a document nested beyond all reason.
_MALFORMED: Final = (msgspec.MsgspecError, UnicodeError, RecursionError)
_decode: Final = msgspec.json.Decoder(
    JsonPost | JsonPop | JsonFetch | JsonFinish | JsonCreate
).decode
_decode_label: Final = msgspec.json.Decoder(_JsonLabel).decode
_encode: Final = msgspec.json.Encoder().encode


def decode_request(text: bytes) -> t.GloveboxRequest:
    """Decode a request; MalformedMessage if the text is none."""
    try:
        return _to_request(_decode(text))
    except _MALFORMED as error:
        raise t.MalformedMessage(str(error), _label_of(text)) from error


def _to_request(
    request: JsonPost | JsonPop | JsonFetch | JsonFinish | JsonCreate,
) -> t.GloveboxRequest:
    label = 0 if request.label is None else _u64(request.label)
    request.queue.encode()  # a lone surrogate has no place in a name
    if isinstance(request, JsonPost):
        message = request.message
        body = message.encode() if isinstance(message, str) else bytes(message)
        stages = 0
        for stage in request.notify or ():
            stages |= 1 << t.STAGE_NAMES.index(stage)
        return t.Post(request.queue, body, request.priority or 0, label, stages)
    if isinstance(request, JsonPop):
        return t.Pop(request.queue, _level(request.sync, t.UNSPECIFIED), request.timeout, label)
    if isinstance(request, JsonFetch):
        sync = _level(request.sync, t.READY)
        return t.Fetch(request.queue, request.block_timeout, request.work_timeout, sync, label)
    if isinstance(request, JsonFinish):
        return t.Finish(
            request.queue,
            _u64(request.sequence),
            request.shard or 0,
            None if request.label is None else label,
            _level(request.response, t.UNSPECIFIED),
        )
    entries, size = request.shard_max_entries, request.shard_max_bytes
    return t.Create(
        request.queue,
        label,
        request.retries,
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
    """Return the label of a message that is otherwise bad, so that its sender can tell which it
    was.
    """
    try:
        return _u64(_decode_label(text).label or 0)
    except _MALFORMED:
        return 0


def encode_response(response: t.GloveboxResponse) -> bytes:
    if isinstance(response, t.FetchedMessage):
        return _encode(
            JsonMessage(
                response.label,
                response.shard,
                response.sequence,
                _body(response.body),
                response.finished,
            )
        )
    if isinstance(response, t.Notice):
        return _encode(JsonNotice(response.label, t.STAGE_NAMES[response.stage]))
    if isinstance(response, t.Hello):
        return _encode(JsonHello(response.id))
    if isinstance(response, t.NoMessage):
        return _encode(JsonNoMessage(response.label))
    assert isinstance(response, t.Error)
    return _encode(JsonError(response.label, t.CODE_NAMES[response.code], response.key))


def _body(payload: bytes) -> str | list[int]:
    try:
        return payload.decode()
    except UnicodeDecodeError:
        return list(payload)


# What Glovebox says over plain HTTP: a queue's status, and the headers of a connection


@dataclass(frozen=True, slots=True)
class ConnectOptions:
    """Options of a connection, from the headers of the upgrade."""

    binary: bool
    durable: bool
    reconnect_as: int | None


def parse_connect_headers(headers: dict[str, str]) -> ConnectOptions:
    """Parse the headers of the upgrade, whose names are in lower case here.

    An invalid id is treated as an unknown one: the client gets a new session, and sees so by the id
    in the hello.
    """
    id = headers.get("reconnect-as", "").strip()
    known = id.isascii() and id.isdigit() and len(id) <= 20 and int(id) <= MAX_U64
    return ConnectOptions(
        binary=_is_true(headers.get("binary", "")),
        durable=_is_true(headers.get("durable-session", "")),
        reconnect_as=int(id) if known else None,
    )


def _is_true(value: str) -> bool:
    return value.strip().lower() in ("1", "true")


def queue_status(engine: Engine, name: str) -> Response:
    """Shards are how others store a queue; here each has one, which is always open."""
    position = engine.records.end_position()  # it must not show what may still be lost
    utf8 = name.encode(errors="replace")
    queue = engine.queue(utf8)
    if queue is None:
        error = {
            "type": "Error",
            "name": name.encode(errors="replace").decode(),
            "code": "QueueNotFound",
            "message": "Named queue not found",
        }
        return Response(404, msgspec.json.encode(error), position=position)
    view = {
        "type": "Status",
        "length": 0 if queue.settings.paused else queue.ready.size,
        "readers_waiting": len(engine.waiters.get(utf8, ())),
        "shards_read_write": 1,
        "shards_read_only": 0,
        "shards_finished": 0,
    }
    return Response(200, msgspec.json.encode(view), position=position)
