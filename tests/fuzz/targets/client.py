"""Replies as the Python client reads them: what they say, or an error of its own kinds."""

from __future__ import annotations

import hiredis
from fuzz.inputs import Choices

from taskyard.client import api, commands
from taskyard.client.commands import INCOMPLETE, NewJob, Reply, create_reader
from taskyard.client.errors import ClientError, Duplicate
from taskyard.client.views import (
    ConsumerInfo,
    Content,
    DeadGroups,
    JobInfo,
    QueueInfo,
    ReaderInfo,
    ScheduleInfo,
    ServerInfo,
)

VIEWS = [JobInfo, QueueInfo, ServerInfo, ScheduleInfo, ReaderInfo, ConsumerInfo, DeadGroups]
NEW = NewJob("q", b"payload", uid="6ba7b810-9dad-11d1-80b4-00c04fd430c4")
CALLS = [
    commands.push(NEW),
    commands.push_all([NEW]),
    commands.fetch(["q"], 5, 1.0, None, False),
    commands.extend("ref", 5),
    commands.result(1, 0),
    commands.ping(),
    *(api.call("GET", "/x", into=view) for view in VIEWS),
    api.call("GET", "/x"),
]


def bulk(text: bytes) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(text), text)


TAKEN = (
    b"*1\r\n*9\r\n" + bulk(b"1.1.1") + b":1\r\n" + bulk(b"uid") + bulk(b"q") + bulk(b"n")
    + b":1\r\n:0\r\n:1700000000000\r\n" + bulk(b"payload")
)  # fmt: skip
SEEDS = [
    b"\0:7\r\n",
    b"\0-DUPLICATE 5 a job with this uid exists\r\n",
    b"\0-DUPLICATE 6 a job with this key exists\r\n",
    b"\1*1\r\n:9\r\n",
    b"\2" + TAKEN,
    b"\3:1700000000000\r\n",
    b"\4*5\r\n:1\r\n" + bulk(b"succeeded") + b":1\r\n" + bulk(b"1") + b"$-1\r\n",
    b"\5+PONG\r\n",
    b"\6*2\r\n:200\r\n"
    + bulk(b'{"id":1,"uid":"u","queue":"q","name":"n","state":"ready","payload":{"size":1}}'),
    b"\7*2\r\n:404\r\n"
    + bulk(b'{"type":"urn:taskyard:problem:queue-not-found","status":404,"detail":"no"}'),
    b"\5-NOAUTH log in\r\n",
]
WORDS = [b"*2\r\n", b":200\r\n", b"$-1\r\n", b"-STALE ", b"-DUPLICATE ", b"%1\r\n", b"_\r\n", b"#t"]


def fuzz(data: bytes) -> None:
    choices = Choices(data)
    call = choices.one_of(CALLS)
    sent = choices.rest()
    whole = _replies([sent])
    assert _shown(whole) == _shown(_replies([sent[:7], sent[7:]]))
    for reply in whole:
        try:
            found = call.read_reply(reply, False)
        except ClientError:
            continue
        if isinstance(found, JobInfo) and isinstance(found.payload, Content):
            str(found.payload)


def _replies(pieces: list[bytes]) -> list[Reply]:
    """Those that come before the bytes are no RESP."""
    parser = create_reader()
    found: list[Reply] = []
    for piece in pieces:
        try:
            parser.feed(piece)
            while (reply := parser.gets()) is not INCOMPLETE:
                found.append(reply)
                if isinstance(reply, Duplicate):
                    assert reply.job_id >= 0
        except (hiredis.ProtocolError, TypeError):  # the second for a map that has lists as keys
            break
    return found


def _shown(replies: list[Reply]) -> str:
    return repr(replies)
