"""What a wire test does with a server: send bytes, expect bytes, restart it, move its clock.

Two servers stand behind these classes: a real process on real sockets, and one inside the test
with a fake clock. Nothing here knows the broker's code.
"""

import json
import re
from typing import Any, Protocol


class Peer(Protocol):
    """One client connection. A method that does not get what it expects raises AssertionError."""

    def send(self, data: bytes) -> None: ...

    def expect(self, data: bytes) -> None:
        """The next bytes received are exactly these."""

    def expect_nothing(self) -> None:
        """Nothing was received beyond what has been read."""

    def expect_closed(self) -> None:
        """The server closed this connection, and nothing was received beyond what has been read."""

    def read_line(self) -> bytes:
        """The next line with its newline, for replies whose value is not fixed."""

    def close(self) -> None:
        """The client goes away without a word."""


class BytePeer(Peer, Protocol):
    """A client of a protocol whose answers tell their own length."""

    def read_exactly(self, size: int) -> bytes:
        """The next so many bytes received."""


class MessagePeer(Peer, Protocol):
    """A client of a protocol that sends and gets whole messages of JSON."""

    def send_json(self, **fields: object) -> None: ...

    def next(self) -> dict[str, Any]:
        """The next message received."""


class Wire(Protocol):
    """A server that clients can connect to."""

    def connect(self, dialect: str = "masenko") -> Peer: ...

    def restart(self) -> None:
        """Stop the server and start it again on the same data; all peers are gone."""


class SimulatedWire(Wire, Protocol):
    """A server whose time stands still until the test moves it."""

    def now(self) -> float:
        """The fake wall clock, in seconds since the epoch."""

    def advance(self, seconds: float) -> None:
        """Move the clock, and let everything happen that is due by then."""


def exchange(peer: Peer, sent: bytes, received: bytes) -> None:
    """Send one request and expect exactly this answer."""
    peer.send(sent)
    peer.expect(received)


def error_of(line: bytes) -> str:
    """The text of an ERR line, whose JSON must hold that text and nothing else."""
    verb, _, body = line.partition(b" ")
    assert verb == b"ERR", line
    assert line.endswith(b"}\n"), line
    reply = json.loads(body.decode("utf-8"))
    assert list(reply) == ["msg"], line
    text = reply["msg"]
    assert isinstance(text, str), line
    return text


def queue_counts(peer: Peer) -> dict[str, tuple[int, int, int]]:
    """What INFO tells: (ready, delayed, to_ack) of every queue, in the order of the reply."""
    peer.send(b"INFO\n")
    verb, _, body = peer.read_line().partition(b" ")
    assert verb == b"OK", verb
    return {
        queue["name"]: (queue["ready"], queue["delayed"], queue["to_ack"])
        for queue in json.loads(body)["queues"]
    }


def is_no_stray(data: bytes) -> bool:
    """Whether nothing in it can be taken for another protocol, which closes a connection."""
    text = data.upper()
    marks = (b"POST", b"HOST:", b"HTTP/", b"PROXY")
    return (
        not data.startswith(b"\x16")
        and not any(mark in text for mark in marks)
        and re.search(rb"\*[0-9]", data) is None
    )
