"""What the client says and what it must hear, as the bytes of each.

A talk is a list of steps that each connection goes through again and again: it sends the requests
of a step in one write and waits for the answer to each.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from taskyard.protocols.glovebox import bincode
from taskyard.protocols.glovebox.types import (
    UNSPECIFIED,
    WAIT_SYNCED,
    Create,
    FetchedMessage,
    GloveboxRequest,
    GloveboxResponse,
    Notice,
    Pop,
    Post,
)

QUEUE: Final = "bench"
TEXT: Final = 1
BINARY: Final = 2
STAGES: Final = {"ready": 0, "sync": 2}
KEY: Final = b"\x5a\xa5\x3c\xc3"
"""Masks every frame: a client has to, and what it masks with changes nothing for the server."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What an answer begins and ends with; between them stands what cannot be known before."""

    start: bytes
    end: bytes = b""

    def fits(self, payload: bytes) -> bool:
        if self.end:
            return payload.startswith(self.start) and payload.endswith(self.end)
        return payload == self.start


@dataclass(frozen=True, slots=True)
class Step:
    requests: bytes
    answers: tuple[Answer, ...]


@dataclass(frozen=True, slots=True)
class Talk:
    """One of those that can be measured; `window` requests are on their way at a time."""

    path: str
    steps: tuple[Step, ...]
    window: int
    headers: tuple[tuple[str, str], ...] = ()
    opening: tuple[Step, ...] = ()
    """Said once, on one connection, before all others come."""
    greeted: bool = False
    """The server speaks first."""


def client_frame(opcode: int, payload: bytes) -> bytes:
    size = len(payload)
    if size < 126:
        head = bytes((0x80 | opcode, 0x80 | size))
    else:
        assert size <= 0xFFFF
        head = bytes((0x80 | opcode, 0x80 | 126)) + size.to_bytes(2, "big")
    return head + KEY + bytes(byte ^ KEY[n % 4] for n, byte in enumerate(payload))


def echo(payload: int, window: int, greeted: bool = False) -> Talk:
    message = b"x" * payload
    step = Step(client_frame(BINARY, message) * window, (Answer(message),) * window)
    return Talk("/echo", (step,), window, greeted=greeted)


def post(payload: int, window: int, binary: bool) -> Talk:
    """Posts alone, each noticed as soon as it is taken in."""
    return glovebox((posts(payload, window, binary, "ready"),), window, binary)


def cycle(payload: int, window: int, binary: bool) -> Talk:
    """Posts, each noticed when it is on disk, and as many pops."""
    steps = posts(payload, window, binary, "sync"), pops(payload, window, binary)
    return glovebox(steps, window, binary)


TALKS: Final[dict[str, Callable[[int, int], Talk]]] = {
    "echo": echo,
    "echo-greeted": lambda payload, window: echo(payload, window, greeted=True),
    "post-json": lambda payload, window: post(payload, window, False),
    "post-bincode": lambda payload, window: post(payload, window, True),
    "cycle-json": lambda payload, window: cycle(payload, window, False),
    "cycle-bincode": lambda payload, window: cycle(payload, window, True),
}


def glovebox(steps: tuple[Step, ...], window: int, binary: bool) -> Talk:
    create = said(Create(QUEUE), binary)
    opening = Step(create, (exactly(Notice(0, STAGES["ready"]), binary),))
    headers = (("Binary", "1"),) if binary else ()
    return Talk("/connect/", steps, window, headers, (opening,), greeted=True)


def posts(payload: int, window: int, binary: bool, stage: str) -> Step:
    requests, answers = b"", []
    for label in range(window):
        bits = 1 << STAGES[stage]
        requests += said(Post(QUEUE, b"x" * payload, label=label, stages=bits), binary)
        answers.append(exactly(Notice(label, STAGES[stage]), binary))
    return Step(requests, tuple(answers))


def pops(payload: int, window: int, binary: bool) -> Step:
    requests, answers = b"", []
    for label in range(window):
        # bincode has no way to leave the level out.
        level = WAIT_SYNCED if binary else UNSPECIFIED
        requests += said(Pop(QUEUE, sync=level, label=label), binary)
        answers.append(message(label, payload, binary))
    return Step(requests, tuple(answers))


def said(request: GloveboxRequest, binary: bool) -> bytes:
    if binary:
        return client_frame(BINARY, bincode.encode_request(request))
    fields: dict[str, object] = {"queue": request.queue, "label": request.label}
    if isinstance(request, Post):
        fields |= {"type": "post", "message": request.message.decode()}
        fields["notify"] = [name for name, n in STAGES.items() if request.stages >> n & 1]
    elif isinstance(request, Pop):
        fields["type"] = "pop"
    else:
        fields["type"] = "create"
    return client_frame(TEXT, compact(fields))


def exactly(notice: Notice, binary: bool) -> Answer:
    return Answer(heard(notice, binary))


def message(label: int, payload: int, binary: bool) -> Answer:
    """A message that was popped; its sequence number is the server's affair."""
    body = b"x" * payload
    if binary:
        whole = heard(FetchedMessage(label, 0, 0, body, finished=True), binary)
        start = len(whole) - 1 - payload - 8 - 8
        return Answer(whole[:start], whole[start + 8 :])
    start_text = f'{{"type":"message","label":{label},"shard":0,"sequence":'
    return Answer(start_text.encode(), b',"body":"' + body + b'","finished":true}')


def heard(response: GloveboxResponse, binary: bool) -> bytes:
    if binary:
        return bincode.encode_response(response)
    assert isinstance(response, Notice)
    names = {number: name for name, number in STAGES.items()}
    return compact({"type": "notice", "label": response.label, "notice": names[response.stage]})


def compact(fields: dict[str, object]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()
