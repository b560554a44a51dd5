"""A Glovebox client over a real WebSocket that shares no code with the server: it has its own
JSON and its own bincode, each written out by hand."""

from __future__ import annotations

import json
import struct
from contextlib import closing
from http.client import HTTPConnection
from itertools import count
from typing import Any, Self

from support.process import ServerProcess
from support.sockets import HANG_GUARD
from support.websocket_client import connect
from websockets.sync.client import ClientConnection

STAGES = ("ready", "write", "sync", "assign", "finish", "retry", "drop")
LEVELS = STAGES[:3]
CODES = ("NoObject", "ObjectAlreadyExists", "PermissionDenied")
NOWHERE = "no-such-queue"

_probes = count(1 << 40)
_queues = count(1)

Fields = dict[str, Any]


class Talker:
    """`binary`: which encoding it asks for, and uses itself unless told otherwise.

    Responses come as a dictionary with the names of JSON, and with bodies as bytes.
    """

    def __init__(self, address: tuple[str, int], binary: bool, **headers: str) -> None:
        self.binary = binary
        self.sends_binary = binary
        asked = {"Binary": "true" if binary else "false", **headers}
        host, port = address
        self.socket: ClientConnection = connect(
            f"ws://{host}:{port}/connect/", additional_headers=asked, max_size=None, legacy=True
        )
        try:
            self.hello = self.hear()
        except BaseException:  # the server goes: nobody else has the socket to close it
            self.socket.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def vanish(self) -> None:
        """Go away without a word."""
        self.socket.close_socket()

    @property
    def id(self) -> int:
        id = self.hello["id"]
        assert isinstance(id, int)
        return id

    # What it says; a field that is None is left out

    def say(self, kind: str, **fields: Any) -> None:
        if self.sends_binary:
            self.socket.send(encode(kind, fields))
            return
        given = {name: value for name, value in fields.items() if value is not None}
        if isinstance(given.get("message"), bytes):
            given["message"] = list(given["message"])
        self.socket.send(json.dumps({"type": kind, **given}))

    def create(self, queue: str, **fields: Any) -> None:
        """Make a queue, and hear that it is there."""
        self.say("create", queue=queue, label=99, **fields)
        assert self.hear() == {"type": "notice", "label": 99, "notice": "ready"}

    def put(self, queue: str, *messages: bytes) -> None:
        """Post messages that are known to have arrived."""
        for message in messages:
            self.say("post", queue=queue, message=message, label=98, notify=["ready"])
            assert self.hear() == {"type": "notice", "label": 98, "notice": "ready"}

    def fetched(self, queue: str, **fields: Any) -> Fields:
        """A message that is there, or on its way on another connection."""
        usual = {"queue": queue, "block_timeout": HANG_GUARD, "work_timeout": 60, "label": 97}
        self.say("fetch", **{**usual, **fields})
        return self.message()

    # What it hears

    def hear(self) -> Fields:
        received = self.socket.recv(HANG_GUARD)
        assert isinstance(received, bytes) == self.binary, "the other encoding"
        if isinstance(received, bytes):
            return decode(received)
        fields: Fields = json.loads(received)
        if "body" in fields:
            body = fields["body"]
            fields["body"] = body.encode() if isinstance(body, str) else bytes(body)
        return fields

    def message(self) -> Fields:
        fields = self.hear()
        assert fields["type"] == "message", fields
        return fields

    def hears(self, **fields: Any) -> None:
        told = self.hear()
        assert told == fields

    def hears_stages(self, label: int, *stages: str) -> None:
        for stage in stages:
            self.hears(type="notice", label=label, notice=stage)

    def hears_error(self, label: int, code: str, key: str) -> None:
        self.hears(type="error", label=label, code=code, key=key)

    def hears_nothing(self) -> None:
        """What it asks now is answered, and nothing has come before that."""
        label = next(_probes)
        self.say("pop", queue=NOWHERE, label=label)
        self.hears_error(label, "NoObject", NOWHERE)


# bincode, little endian and of full width


def encode(kind: str, fields: Fields) -> bytes:
    number = ("post", "fetch", "finish", "pop", "create").index(kind)
    head = struct.pack("<II", 0, number) + _bytes(fields["queue"].encode())
    label = struct.pack("<Q", fields.get("label") or 0)
    if kind == "post":
        message = fields["message"]
        body = _bytes(message.encode() if isinstance(message, str) else message)
        stages = [struct.pack("<I", STAGES.index(stage)) for stage in fields.get("notify") or ()]
        listed = struct.pack("<Q", len(stages)) + b"".join(stages)
        return head + body + struct.pack("<I", fields.get("priority") or 0) + label + listed
    if kind == "fetch":
        level = struct.pack("<I", LEVELS.index(fields.get("sync") or "ready"))
        wait = _option("<f", fields.get("block_timeout"))
        return head + wait + struct.pack("<f", fields["work_timeout"]) + level + label
    if kind == "finish":
        response = fields.get("response")
        level = _option("<I", None if response is None else LEVELS.index(response))
        place = struct.pack("<QI", fields["sequence"], fields["shard"])
        return head + place + _option("<Q", fields.get("label")) + level
    if kind == "pop":
        level = struct.pack("<I", LEVELS.index(fields.get("sync") or "sync"))
        return head + level + _option("<f", fields.get("timeout")) + label
    shards = [_option("<Q", fields.get(f"shard_max_{of}")) for of in ("entries", "bytes")]
    return head + label + _option("<I", fields.get("retries")) + b"".join(shards)


def _bytes(data: bytes) -> bytes:
    return struct.pack("<Q", len(data)) + data


def _option(form: str, value: float | None) -> bytes:
    return b"\0" if value is None else b"\1" + struct.pack(form, value)


def decode(data: bytes) -> Fields:
    version, kind = struct.unpack_from("<II", data)
    assert version == 0
    rest = data[8:]
    if kind == 0:
        label, shard, sequence, size = struct.unpack_from("<QIQQ", rest)
        body, (finished,) = rest[28 : 28 + size], rest[28 + size :]
        assert finished in {0, 1}
        place = {"shard": shard, "sequence": sequence}
        return {"type": "message", "label": label, **place, "body": body, "finished": finished == 1}
    if kind == 1:
        label, stage = struct.unpack("<QI", rest)
        return {"type": "notice", "label": label, "notice": STAGES[stage]}
    if kind == 4:
        label, code, size = struct.unpack_from("<QIQ", rest)
        assert len(rest) == 20 + size
        return {"type": "error", "label": label, "code": CODES[code], "key": rest[20:].decode()}
    (number,) = struct.unpack("<Q", rest)
    return {"type": "hello", "id": number} if kind == 2 else {"type": "nomessage", "label": number}


def new_queue() -> str:
    """A name that no other test of the process has used."""
    return f"queue-{next(_queues)}"


def get(server: ServerProcess, path: str) -> Any:
    with closing(HTTPConnection(*server.address("http"), timeout=HANG_GUARD)) as connection:
        connection.request("GET", path)
        return json.loads(connection.getresponse().read())


def dead_letters(server: ServerProcess, queue: str) -> list[Fields]:
    """What the API shows of the messages that were dropped."""
    jobs: list[Fields] = get(server, f"/api/v1/queues/{queue}/dead/jobs")["jobs"]
    return jobs
