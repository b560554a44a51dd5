"""Glovebox's binary form: the layout of bincode 1.x, little endian with fixed widths.

Strict: a message is exactly the bytes of its fields, or it is refused. Nothing is allocated on the
word of a length before the bytes are known to be there. Both directions of both kinds are here, so
that a client can be built from it and everything can be tried round trip.
"""

from __future__ import annotations

import struct
from typing import Final

from mypy_extensions import i64

from taskyard.protocols.glovebox.types import (
    BAD_REQUEST,
    CODE_NAMES,
    LEVEL_NAMES,
    PERMISSION_DENIED,
    STAGE_NAMES,
    UNSPECIFIED,
    Create,
    Error,
    Fetch,
    FetchedMessage,
    Finish,
    GloveboxRequest,
    GloveboxResponse,
    Hello,
    MalformedMessage,
    NoMessage,
    Notice,
    Pop,
    Post,
)

_POST: Final = 0
_FETCH: Final = 1
_FINISH: Final = 2
_POP: Final = 3
_CREATE: Final = 4

_MESSAGE: Final = 0
_NOTICE: Final = 1
_HELLO: Final = 2
_NO_MESSAGE: Final = 3
_ERROR: Final = 4

_F32: Final = struct.Struct("<f")


def decode_request(data: bytes) -> GloveboxRequest:
    """Decode a request; MalformedMessage if the bytes are none."""
    fields = _FieldReader(data)
    fields.variant(1, "version")
    kind = fields.variant(5, "request")
    queue = fields.text()
    request: GloveboxRequest
    if kind == _POST:
        message = fields.data()
        request = Post(queue, message, fields.u32(), fields.u64(), fields.stages())
    elif kind == _FETCH:
        block_timeout = fields.optional_f32()
        request = Fetch(queue, block_timeout, fields.f32(), fields.level(), fields.u64())
    elif kind == _FINISH:
        sequence = fields.u64()
        shard = fields.u32()
        label = fields.optional_u64()
        response = fields.level() if fields.read_flag() else UNSPECIFIED
        request = Finish(queue, sequence, shard, label, response)
    elif kind == _POP:
        sync = fields.level()
        timeout = fields.optional_f32()
        request = Pop(queue, sync, timeout, fields.u64())
    else:
        label_there = fields.u64()
        retries = fields.u32() if fields.read_flag() else None
        entries = fields.optional_u64()
        request = Create(queue, label_there, retries, entries, fields.optional_u64())
    fields.expect_end()
    return request


def encode_request(request: GloveboxRequest) -> bytes:
    queue = _text(request.queue)
    if isinstance(request, Post):
        stages = [n for n in range(len(STAGE_NAMES)) if request.stages >> n & 1]
        return b"".join(
            [
                _encode_header(_POST),
                queue,
                _bytes(request.message),
                _u32(request.priority),
                _u64(request.label),
                _u64(len(stages)),
                *[_u32(stage) for stage in stages],
            ]
        )
    if isinstance(request, Fetch):
        return b"".join(
            [
                _encode_header(_FETCH),
                queue,
                _optional_f32(request.block_timeout),
                _F32.pack(request.work_timeout),
                _u32(request.sync),
                _u64(request.label),
            ]
        )
    if isinstance(request, Finish):
        return b"".join(
            [
                _encode_header(_FINISH),
                queue,
                _u64(request.sequence),
                _u32(request.shard),
                _optional_u64(request.label if request.has_label else None),
                b"\0" if request.response == UNSPECIFIED else b"\1" + _u32(request.response),
            ]
        )
    if isinstance(request, Pop):
        return b"".join(
            [
                _encode_header(_POP),
                queue,
                _u32(request.sync),
                _optional_f32(request.timeout),
                _u64(request.label),
            ]
        )
    assert isinstance(request, Create)
    retries = request.retries
    return b"".join(
        [
            _encode_header(_CREATE),
            queue,
            _u64(request.label),
            b"\0" if retries is None else b"\1" + _u32(retries),
            _optional_u64(request.shard_max_entries),
            _optional_u64(request.shard_max_bytes),
        ]
    )


def decode_response(data: bytes) -> GloveboxResponse:
    """Decode a response; MalformedMessage if the bytes are none."""
    fields = _FieldReader(data)
    fields.variant(1, "version")
    kind = fields.variant(5, "response")
    number = fields.u64()
    response: GloveboxResponse
    if kind == _MESSAGE:
        shard = fields.u32()
        sequence = fields.u64()
        body = fields.data()
        response = FetchedMessage(number, shard, sequence, body, fields.read_flag())
    elif kind == _NOTICE:
        response = Notice(number, fields.variant(len(STAGE_NAMES), "stage"))
    elif kind == _HELLO:
        response = Hello(number)
    elif kind == _NO_MESSAGE:
        response = NoMessage(number)
    else:
        code = fields.variant(PERMISSION_DENIED + 1, "code")
        response = Error(number, code, fields.text())
    fields.expect_end()
    return response


def encode_response(response: GloveboxResponse) -> bytes:
    if isinstance(response, FetchedMessage):
        return b"".join(
            [
                _encode_header(_MESSAGE),
                _u64(response.label),
                _u32(response.shard),
                _u64(response.sequence),
                _bytes(response.body),
                b"\1" if response.finished else b"\0",
            ]
        )
    if isinstance(response, Notice):
        return _encode_header(_NOTICE) + _u64(response.label) + _u32(response.stage)
    if isinstance(response, Hello):
        return _encode_header(_HELLO) + _u64(response.id)
    if isinstance(response, NoMessage):
        return _encode_header(_NO_MESSAGE) + _u64(response.label)
    assert isinstance(response, Error)
    code = response.code
    key = response.key
    if code >= BAD_REQUEST:  # there are three codes in this form, so the key has the rest
        key = f"{CODE_NAMES[code]}:{key}"
        code = PERMISSION_DENIED
    return _encode_header(_ERROR) + _u64(response.label) + _u32(code) + _text(key)


class _FieldReader:
    """The fields of a message, one after the other."""

    __slots__ = ("_at", "_data", "_size")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._size: i64 = len(data)
        self._at: i64 = 0

    def read(self, size: int) -> bytes:
        at = self._at
        if size > self._remaining_bytes():
            raise MalformedMessage("ends too early")
        end = at + i64(size)
        self._at = end
        return self._data[at:end]

    def _remaining_bytes(self) -> int:
        """An int of any size, since it is compared with numbers that a client may make up."""
        return self._size - self._at

    def expect_end(self) -> None:
        if self._at != self._size:
            raise MalformedMessage("goes on behind its end")

    def u32(self) -> int:
        return int.from_bytes(self.read(4), "little")

    def u64(self) -> int:
        return int.from_bytes(self.read(8), "little")

    def f32(self) -> float:
        value: float = _F32.unpack(self.read(4))[0]
        return value

    def data(self) -> bytes:
        return self.read(self.u64())

    def text(self) -> str:
        try:
            return self.data().decode()
        except UnicodeDecodeError as error:
            raise MalformedMessage("a string that is not UTF-8") from error

    def read_flag(self) -> bool:
        """The first byte of an option, or a boolean: both are 0 or 1 and nothing else."""
        tag = self.read(1)[0]
        if tag > 1:
            raise MalformedMessage("a byte that must be 0 or 1 is neither")
        return tag == 1

    def optional_u64(self) -> int | None:
        return self.u64() if self.read_flag() else None

    def optional_f32(self) -> float | None:
        return self.f32() if self.read_flag() else None

    def variant(self, count: int, what: str) -> int:
        index = self.u32()
        if index >= count:
            raise MalformedMessage(f"unknown {what}")
        return index

    def level(self) -> int:
        return self.variant(len(LEVEL_NAMES), "durability")

    def stages(self) -> int:
        count = self.u64()
        if count * 4 > self._remaining_bytes():
            raise MalformedMessage("ends too early")
        bits = 0
        for _ in range(count):
            bits |= 1 << self.variant(len(STAGE_NAMES), "stage")
        return bits


def _encode_header(variant: int) -> bytes:
    return _u32(0) + _u32(variant)


def _u32(value: int) -> bytes:
    return value.to_bytes(4, "little")


def _u64(value: int) -> bytes:
    return value.to_bytes(8, "little")


def _bytes(value: bytes) -> bytes:
    return _u64(len(value)) + value


def _text(value: str) -> bytes:
    return _bytes(value.encode())


def _optional_u64(value: int | None) -> bytes:
    return b"\0" if value is None else b"\1" + _u64(value)


def _optional_f32(value: float | None) -> bytes:
    return b"\0" if value is None else b"\1" + _F32.pack(value)
