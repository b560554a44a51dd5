"""Workq as the conformance suite speaks it: lines of text with sized payloads behind them."""

import uuid
from datetime import UTC, datetime
from typing import ClassVar

from protocols.interop.adapters.base import (
    Adapter,
    AlreadyEnded,
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

STATES = {0: "waiting", 1: "succeeded", 2: "failed", 3: "waiting", 4: "leased"}
REFUSALS: dict[bytes, type[Exception]] = {
    b"-NOT-FOUND": NotFound,
    b"-CLIENT-ERROR Duplicate job": Duplicate,
    b"-CLIENT-ERROR ID taken": UidTaken,
    b"-CLIENT-ERROR Duplicate result": AlreadyEnded,
    b"-CLIENT-ERROR Invalid Name": BadName,
}
A_MINUTE = 60.0
AN_HOUR = 3600.0
PAGE = 100


class WorkqAdapter(Adapter):
    dialect = "workq"
    can: ClassVar = frozenset(
        {
            Can.PUSH,
            Can.TAKE,
            Can.PRIORITY,
            Can.DELAY,
            Can.TTL,
            Can.TTR,
            Can.MAX_FAILS,
            Can.MAX_ATTEMPTS,
            Can.UID,
            Can.ANY_BYTES,
            Can.WAIT,
            Can.FAIL,
            Can.FAIL_WITH_ERROR,
            Can.FINISH_WITH_RESULT,
            Can.TIMED_LEASE,
            Can.FINISH_ANY,
            Can.DELETE,
            Can.LOOK,
            Can.RESULT,
            Can.AWAIT_RESULT,
            Can.COUNT_READY,
            Can.COUNT_DELAYED,
            Can.LIST_QUEUES,
        }
    )
    result_outlives_job = True
    loss_is_failure = False
    default_fails = 1
    max_losses = 0
    shows_json = False

    @classmethod
    def pause_after_fail(cls, fails: int) -> int:
        return 0

    def keep_alive(self) -> None:
        """Nothing is asked of a silent client."""

    def push(self, queue: str, payload: bytes, options: Options) -> str:
        uid = options.uid or str(uuid.uuid4())
        ttr = A_MINUTE if options.ttr is None else options.ttr
        ttl = AN_HOUR if options.ttl is None else options.ttl
        words = ["add", uid, queue, milliseconds(ttr), milliseconds(ttl)]
        if options.run_at is not None:
            words[0] = "schedule"
            moment = datetime.fromtimestamp(options.run_at, UTC).replace(tzinfo=None)
            words.append(moment.isoformat() + "Z")
        words.append(str(len(payload)))
        if options.priority is not None:
            words.append(f"-priority={options.priority}")
        if options.attempts is not None:
            words.append(f"-max-attempts={options.attempts}")
        if options.fails is not None:
            words.append(f"-max-fails={options.fails}")
        self._send(words, payload)
        self._expect_ok()
        return uid

    def ask(self, queue: str, wait: float) -> None:
        self._send(["lease", queue, milliseconds(wait)])
        self.waiting = True

    def arrived(self) -> Taken:
        self._expect_ok(1)
        self.waiting = False
        uid, queue, size = self._words()
        return Taken(queue, self._block(int(size)), name=queue, uid=uid)

    def came_to_nothing(self) -> None:
        self.peer.expect(b"-TIMEOUT\r\n")
        self.waiting = False

    def finish(self, taken: Taken, result: bytes = b"") -> None:
        self._end("complete", self._uid(taken.uid), result)

    def fail(self, taken: Taken, error: bytes = b"") -> None:
        self._end("fail", self._uid(taken.uid), error)

    def counts(self, queue: str) -> Counts:
        self._send(["inspect", "queue", queue])
        self._expect_ok(1)
        name, keys = self._words()
        assert (name, keys) == (queue, "2")
        told = dict(self._words() for _ in range(2))
        return {"ready": int(told["ready-len"]), "delayed": int(told["scheduled-len"])}

    def queues(self) -> list[str]:
        names: list[str] = []
        while page := self._queues_from(len(names)):
            names += page
        return names

    def learn(self, handle: Handle) -> None:
        for listing in ("jobs", "scheduled-jobs"):
            try:
                self._send(["inspect", listing, handle.queue, "0", str(PAGE)])
                found = self._inspected()
            except (NotFound, BadName):
                continue
            for uid, told in found:
                if told["payload"] == handle.payload:
                    assert not handle.uid or handle.uid == uid
                    handle.uid = uid

    def look(self, handle: Handle) -> View:
        self._send(["inspect", "job", self._uid(handle.uid)])
        [(uid, told)] = self._inspected()
        assert uid == handle.uid
        assert told["payload"] == handle.payload
        return View(
            STATES[int(told["state"])],
            int(told["attempts"]),
            int(told["fails"]),
            told["name"].decode(),
        )

    def finish_any(self, handle: Handle, result: bytes = b"") -> None:
        self._end("complete", self._uid(handle.uid), result)

    def fail_any(self, handle: Handle, error: bytes = b"") -> None:
        self._end("fail", self._uid(handle.uid), error)

    def delete(self, handle: Handle) -> None:
        self._send(["delete", self._uid(handle.uid)])
        self._expect_ok()

    def ask_result(self, handle: Handle, wait: float) -> None:
        self._send(["result", self._uid(handle.uid), milliseconds(wait)])
        self.waiting = True

    def result(self) -> Result:
        self.waiting = False
        self._expect_ok(1)
        _, success, size = self._words()
        assert success in {"0", "1"}
        return Result(success == "1", self._block(int(size)))

    def _end(self, command: str, uid: str, data: bytes) -> None:
        self._send([command, uid, str(len(data))], data)
        self._expect_ok()

    def _queues_from(self, offset: int) -> list[str]:
        self._send(["inspect", "queues", str(offset), str(PAGE)])
        names = []
        for _ in range(self._read_count()):
            name, keys = self._words()
            names.append(name)
            for _ in range(int(keys)):
                self._words()
        return names

    def _inspected(self) -> list[tuple[str, dict[str, bytes]]]:
        """The jobs of an answer to `inspect`, with their keys."""
        found = []
        for _ in range(self._read_count()):
            uid, keys = self._words()
            told: dict[str, bytes] = {}
            for _ in range(int(keys)):
                key, _, value = self.peer.read_line().partition(b" ")
                if key == b"payload":  # any bytes, so its size tells where it ends
                    value = self._more(value, int(told["payload-size"]))
                told[key.decode()] = value.removesuffix(b"\r\n")
            found.append((uid, told))
        return found

    def _send(self, words: list[str], data: bytes | None = None) -> None:
        self.peer.send(" ".join(words).encode() + b"\r\n")
        if data is not None:
            self.peer.send(data + b"\r\n")

    def _status(self) -> bytes:
        line = self.peer.read_line()
        assert line.endswith(b"\r\n"), line
        status = line[:-2]
        if status in REFUSALS:
            raise REFUSALS[status](status.decode())
        assert status.startswith(b"+OK"), status
        return status

    def _expect_ok(self, count: int | None = None) -> None:
        status = self._status()
        assert status == (b"+OK" if count is None else b"+OK %d" % count)

    def _read_count(self) -> int:
        return int(self._status().removeprefix(b"+OK "))

    def _words(self) -> list[str]:
        line = self.peer.read_line()
        assert line.endswith(b"\r\n"), line
        return line[:-2].decode().split(" ")

    def _block(self, size: int) -> bytes:
        return self._more(b"", size).removesuffix(b"\r\n")

    def _more(self, begun: bytes, size: int) -> bytes:
        """A block of this many bytes with its end, of which some lines have been read."""
        while len(begun) < size + 2:
            begun += self.peer.read_line()
        assert len(begun) == size + 2, begun
        assert begun.endswith(b"\r\n"), begun
        return begun

    def _uid(self, uid: str | None) -> str:
        assert uid, "the uid of this job is not known here"
        return uid


def milliseconds(seconds: float) -> str:
    return str(round(seconds * 1000))
