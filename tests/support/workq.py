"""Workq as a test writes and reads it: commands as bytes, replies as bytes or as records."""

from datetime import UTC, datetime
from itertools import count

from support.wire import Peer

OK = b"+OK\r\n"
TIMEOUT = b"-TIMEOUT\r\n"
NOT_FOUND = b"-NOT-FOUND\r\n"

MAX_PAYLOAD = 1 << 20
MAX_TTR = 86_400_000
MAX_TTL = (1 << 64) - 1
MAX_WAIT = 86_400_000

NEW, COMPLETED, FAILED, PENDING, LEASED = b"0", b"1", b"2", b"3", b"4"

JOB_KEYS = [
    "name",
    "ttr",
    "ttl",
    "payload-size",
    "payload",
    "max-attempts",
    "attempts",
    "max-fails",
    "fails",
    "priority",
    "state",
    "created",
]

Record = tuple[bytes, dict[str, bytes]]

_numbers = count(1)


def new_id() -> bytes:
    """An id that no other test of the process has used."""
    return b"6ba7b810-9dad-41d1-80b4-%012x" % next(_numbers)


def new_name() -> bytes:
    """A name that no other test of the process has used."""
    return b"job-%d" % next(_numbers)


# Errors that more than one module looks for

UNKNOWN = b"-CLIENT-ERROR Unknown command\r\n"
INVALID_ARGS = b"-CLIENT-ERROR Invalid command args\r\n"
INVALID_FLAGS = b"-CLIENT-ERROR Invalid command flags\r\n"
INVALID_ID = b"-CLIENT-ERROR Invalid ID\r\n"
INVALID_NAME = b"-CLIENT-ERROR Invalid Name\r\n"
PAYLOAD_SIZE = b"-CLIENT-ERROR Invalid payload size\r\n"
RESULT_SIZE = b"-CLIENT-ERROR Invalid result size\r\n"
LINE_ENDING = b"-CLIENT-ERROR Invalid line ending\r\n"
DUPLICATE_JOB = b"-CLIENT-ERROR Duplicate job\r\n"
ID_TAKEN = b"-CLIENT-ERROR ID taken\r\n"
DUPLICATE_RESULT = b"-CLIENT-ERROR Duplicate result\r\n"


# Commands


def add(
    id: bytes,
    name: bytes = b"ping",
    payload: bytes = b"ping",
    *,
    ttr: int = 1000,
    ttl: int = 60_000,
    flags: bytes = b"",
) -> bytes:
    line = b"add %b %b %d %d %d" % (id, name, ttr, ttl, len(payload))
    return _with_payload(line, flags, payload)


def schedule(
    id: bytes,
    name: bytes = b"ping",
    payload: bytes = b"ping",
    *,
    time: bytes,
    ttr: int = 1000,
    ttl: int = 60_000,
    flags: bytes = b"",
) -> bytes:
    line = b"schedule %b %b %d %d %b %d" % (id, name, ttr, ttl, time, len(payload))
    return _with_payload(line, flags, payload)


def run(
    id: bytes,
    name: bytes = b"ping",
    payload: bytes = b"ping",
    *,
    ttr: int = 1000,
    wait: int = 60_000,
    flags: bytes = b"",
) -> bytes:
    line = b"run %b %b %d %d %d" % (id, name, ttr, wait, len(payload))
    return _with_payload(line, flags, payload)


def complete(id: bytes, result: bytes = b"pong") -> bytes:
    return _with_payload(b"complete %b %d" % (id, len(result)), b"", result)


def fail(id: bytes, result: bytes = b"pong") -> bytes:
    return _with_payload(b"fail %b %d" % (id, len(result)), b"", result)


def lease(*names: bytes, wait: int = 0) -> bytes:
    return b"lease %b %d\r\n" % (b" ".join(names), wait)


def result(id: bytes, wait: int = 0) -> bytes:
    return b"result %b %d\r\n" % (id, wait)


def delete(id: bytes) -> bytes:
    return b"delete %b\r\n" % id


def _with_payload(line: bytes, flags: bytes, payload: bytes) -> bytes:
    return line + (b" " + flags if flags else b"") + b"\r\n" + payload + b"\r\n"


# Replies


def client_error(text: str) -> bytes:
    return b"-CLIENT-ERROR %b\r\n" % text.encode()


def leased(id: bytes, name: bytes = b"ping", payload: bytes = b"ping") -> bytes:
    """What a worker gets."""
    return b"+OK 1\r\n%b %b %d\r\n%b\r\n" % (id, name, len(payload), payload)


def succeeded(id: bytes, outcome: bytes = b"pong") -> bytes:
    """What `result` and `run` answer after a complete."""
    return b"+OK 1\r\n%b 1 %d\r\n%b\r\n" % (id, len(outcome), outcome)


def failed(id: bytes, outcome: bytes = b"pong") -> bytes:
    """What `result` and `run` answer after a final fail."""
    return b"+OK 1\r\n%b 0 %d\r\n%b\r\n" % (id, len(outcome), outcome)


def read_text(peer: Peer) -> bytes:
    """The next line, without the CRLF that must end it."""
    line = peer.read_line()
    assert line.endswith(b"\r\n"), line
    return line[:-2]


def read_bytes(peer: Peer, size: int) -> bytes:
    """The next `size` bytes and the CRLF behind them, whatever is in them."""
    data = b""
    while len(data) < size + 2:
        data += peer.read_line()
    assert len(data) == size + 2, data
    assert data.endswith(b"\r\n"), data
    return data[:-2]


def read_records(peer: Peer) -> list[Record]:
    """The reply to an inspect: what is named, and its keys in their order."""
    status, _, many = read_text(peer).partition(b" ")
    assert status == b"+OK", status
    return [_read_record(peer) for _ in range(int(many))]


def _read_record(peer: Peer) -> Record:
    label, keys = read_text(peer).split(b" ")
    values: dict[str, bytes] = {}
    for _ in range(int(keys)):
        line = peer.read_line()
        key, _, value = line.partition(b" ")
        if key == b"payload":  # raw, so that it may hold line ends
            size = int(values["payload-size"])
            while len(value) < size + 2:
                value += peer.read_line()
            assert len(value) == size + 2, value
        assert value.endswith(b"\r\n"), line
        values[key.decode()] = value[:-2]
    assert len(values) == int(keys), values
    return label, values


def read_reply(peer: Peer) -> bytes:
    """The next whole reply, of whatever kind; gives its first line."""
    first = read_text(peer)
    status, _, many = first.partition(b" ")
    if status == b"+OK" and many:
        for _ in range(int(many)):
            _skip_record(peer)
        return first
    assert first in (b"+OK", b"-TIMEOUT", b"-NOT-FOUND") or (
        status in (b"-CLIENT-ERROR", b"-SERVER-ERROR") and many
    ), first
    return first


def _skip_record(peer: Peer) -> None:
    head = read_text(peer).split(b" ")
    if len(head) == 3:  # a leased job or a result
        read_bytes(peer, int(head[2]))
        return
    size = 0
    for _ in range(int(head[1])):
        line = peer.read_line()
        if line.startswith(b"payload-size "):
            size = int(line[13:])
        elif line.startswith(b"payload "):
            while len(line) < 8 + size + 2:
                line += peer.read_line()
        assert line.endswith(b"\r\n"), line


# Looking at a server


def expect_in_step(peer: Peer) -> None:
    """The next command is answered in its place, and nothing else is."""
    peer.send(b"in-step?\r\n")
    peer.expect(UNKNOWN)
    peer.expect_nothing()


def inspect(peer: Peer, what: bytes) -> list[Record]:
    peer.send(b"inspect %b\r\n" % what)
    return read_records(peer)


def job(peer: Peer, id: bytes) -> dict[str, bytes]:
    """The keys of one job, which must be there."""
    [(label, keys)] = inspect(peer, b"job " + id)
    assert label == id
    return keys


def state(peer: Peer, id: bytes) -> bytes:
    return job(peer, id)["state"]


def is_there(peer: Peer, id: bytes) -> bool:
    """Whether the server knows a job of this id."""
    peer.send(b"inspect job %b\r\n" % id)
    first = read_reply(peer)
    assert first in (b"+OK 1", b"-NOT-FOUND"), first
    return first == b"+OK 1"


def lengths(peer: Peer, name: bytes) -> tuple[int, int]:
    """(ready-len, scheduled-len) of a queue."""
    [(label, keys)] = inspect(peer, b"queue " + name)
    assert label == name
    assert list(keys) == ["ready-len", "scheduled-len"]
    return int(keys["ready-len"]), int(keys["scheduled-len"])


def server(peer: Peer) -> dict[str, bytes]:
    [(label, keys)] = inspect(peer, b"server")
    assert label == b"server"
    return keys


def rfc3339(seconds: float) -> bytes:
    """A moment as `schedule` takes it, with microseconds."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ").encode()
