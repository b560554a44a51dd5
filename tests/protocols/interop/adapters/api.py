"""The JSON API as the conformance suite speaks it: a connection for each request, as `curl` has.

Jobs are pushed and looked at here; they are taken in other protocols.
"""

import base64
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, ClassVar, TypeVar, cast
from urllib.parse import quote

import msgspec
from protocols.interop.adapters.base import (
    Adapter,
    BadName,
    Can,
    Counts,
    Duplicate,
    Handle,
    NotFound,
    Options,
    Result,
    Taken,
    UidTaken,
    View,
)
from support.wire import BytePeer

T = TypeVar("T")

NO_CONTENT = 204
PAGE = 100
STATES = {
    "blocked": "waiting",
    "delayed": "waiting",
    "ready": "waiting",
    "leased": "leased",
    "succeeded": "succeeded",
    "failed": "failed",
}
REFUSALS: dict[str, type[Exception]] = {
    "job-not-found": NotFound,
    "queue-not-found": NotFound,
    "uid-taken": UidTaken,
}


class Content(msgspec.Struct):
    """Bytes as the API shows them; what is JSON stays as it is spelt."""

    size: int
    json: msgspec.Raw = msgspec.Raw()
    text: str | None = None
    base64: str | None = None

    def data(self) -> bytes:
        """What is shown of them, which is all but the white space around JSON."""
        data = bytes(self.json)
        if self.text is not None:
            data = self.text.encode()
        elif self.base64 is not None:
            data = base64.b64decode(self.base64)
        assert len(data) == self.size or bytes(self.json), "the bytes are not there any more"
        return data

    def is_of(self, data: bytes) -> bool:
        shown = data.strip(b" \t\r\n") if bytes(self.json) else data
        return self.size == len(data) and self.data() == shown


class Job(msgspec.Struct):
    id: int
    uid: str
    queue: str
    state: str
    attempts: int
    fails: int
    payload: Content
    result: Content | None
    error: Content | None


read_job = msgspec.json.Decoder(Job).decode


class ApiAdapter(Adapter):
    dialect = "api"
    can: ClassVar = frozenset(
        {
            Can.PUSH,
            Can.PRIORITY,
            Can.DELAY,
            Can.TTL,
            Can.TTR,
            Can.MAX_FAILS,
            Can.MAX_ATTEMPTS,
            Can.DEAD_QUEUE,
            Can.BLOCKED_BY,
            Can.UID,
            Can.NAME,
            Can.ANY_BYTES,
            Can.ANY_NAME,
            Can.DELETE,
            Can.LOOK,
            Can.RESULT,
            Can.COUNT_READY,
            Can.COUNT_DELAYED,
            Can.COUNT_LEASED,
            Can.LIST_QUEUES,
        }
    )
    result_outlives_job = False
    loss_is_failure = False
    default_fails = 4
    max_losses = 10
    shows_json = False

    @classmethod
    def pause_after_fail(cls, fails: int) -> int:
        return 0

    def reconnect(self) -> None:
        """There is nothing to keep between two requests."""

    def disconnect(self) -> None:
        """Nor to close."""

    def keep_alive(self) -> None:
        """Nor to keep alive."""

    def push(self, queue: str, payload: bytes, options: Options) -> str:
        message = spelt(payload)
        # The pauses of its default have jitter: see tests/protocols/test_retries.py.
        message["backoff"] = "none"
        for name, value in (
            ("name", options.name),
            ("priority", options.priority),
            ("ttl", options.ttl),
            ("ttr", options.ttr),
            ("max_fails", options.fails),
            ("max_attempts", options.attempts),
            ("dead_queue", options.dead_queue),
            ("uid", options.uid),
        ):
            if value is not None:
                message[name] = value
        if options.run_at is not None:
            message["run_at"] = datetime.fromtimestamp(options.run_at, UTC).isoformat()
        if options.blocked_by:
            message["blocked_by"] = list(options.blocked_by)
        told = self._ask("POST", f"queues/{quote(queue, safe='')}/jobs", as_dict, message)
        if told["duplicate"]:
            raise Duplicate(told["uid"])
        uid: str = told["uid"]
        return uid

    def counts(self, queue: str) -> Counts:
        counts = self._ask("GET", f"queues/{quote(queue, safe='')}", as_dict)["counts"]
        return {
            "ready": counts["ready"],
            "delayed": counts["delayed"] + counts["blocked"],
            "leased": counts["leased"],
        }

    def queues(self) -> list[str]:
        names: list[str] = []
        cursor = ""
        while True:
            page = self._ask("GET", f"queues?limit={PAGE}{cursor}", as_dict)
            names += [queue["name"] for queue in page["queues"]]
            if page["next"] is None:
                return names
            cursor = f"&cursor={quote(page['next'])}"

    def learn(self, handle: Handle) -> None:
        told = self._job(handle.number)
        assert not handle.uid or handle.uid == told.uid
        handle.uid = told.uid

    def look(self, handle: Handle) -> View:
        told = self._job(handle.number)
        assert told == self._job(handle.uid)
        assert (told.id, told.uid) == (handle.number, handle.uid)
        assert told.payload.is_of(handle.payload)
        return View(STATES[told.state], told.attempts, told.fails, told.queue)

    def delete(self, handle: Handle) -> None:
        self._ask("DELETE", f"jobs/{handle.uid}", bytes)

    def ask_result(self, handle: Handle, wait: float) -> None:
        assert not wait, "the API does not wait"
        self._asked = handle

    def result(self) -> Result:
        told = self._job(self._asked.uid)
        shown = told.result if told.state == "succeeded" else told.error
        return Result(told.state == "succeeded", b"" if shown is None else shown.data())

    # What is for takers

    def ask(self, queue: str, wait: float) -> None:
        raise NotImplementedError(self.dialect)

    def arrived(self) -> Taken:
        raise NotImplementedError(self.dialect)

    def came_to_nothing(self) -> None:
        raise NotImplementedError(self.dialect)

    def finish(self, taken: Taken, result: bytes = b"") -> None:
        raise NotImplementedError(self.dialect)

    def fail(self, taken: Taken, error: bytes = b"") -> None:
        raise NotImplementedError(self.dialect)

    # HTTP

    def _job(self, which: int | str) -> Job:
        told = self._ask("GET", f"jobs/{which}", read_job)
        if told.state == "gone":
            raise NotFound(str(which))
        return told

    def _ask(self, method: str, path: str, read: Callable[[bytes], T], value: object = None) -> T:
        body = b"" if value is None else msgspec.json.encode(value)
        head = f"{method} /api/v1/{path} HTTP/1.1\r\nhost: taskyard\r\nconnection: close\r\n"
        head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        peer = cast("BytePeer", self._connect(self.dialect))
        peer.send(head.encode() + body)
        status, answer = self._answer(peer)
        peer.close()
        if status >= 400:
            self._refused(as_dict(answer))
        return read(answer)

    def _answer(self, peer: BytePeer) -> tuple[int, bytes]:
        status = int(peer.read_line().split(b" ")[1])
        size = 0
        while (line := peer.read_line()) != b"\r\n":
            name, _, value = line.partition(b":")
            if name == b"content-length":
                size = int(value)
        assert size or status == NO_CONTENT
        return status, peer.read_exactly(size)

    def _refused(self, problem: dict[str, Any]) -> None:
        kind = problem["type"].rpartition(":")[2]
        if kind == "invalid-value" and problem.get("field") == "queue":
            raise BadName(problem["detail"])
        raise REFUSALS.get(kind, AssertionError)(problem["detail"])


def as_dict(data: bytes) -> dict[str, Any]:
    return msgspec.json.decode(data, type=dict[str, Any])


def spelt(payload: bytes) -> dict[str, object]:
    """The field that a payload goes into: each of the three is used for what only it can say."""
    if not payload:
        return {}
    if is_compact_json(payload):
        return {"payload": msgspec.Raw(payload)}
    try:
        return {"text": payload.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(payload).decode()}


def is_compact_json(payload: bytes) -> bool:
    """JSON without white space between its tokens, which the API would take out."""
    try:
        return msgspec.json.format(payload, indent=-1) == payload and bool(payload.decode())
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return False
