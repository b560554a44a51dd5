"""Plain drivers of all protocols that push, fetch and finish. No I/O.

Those of one protocol push into a queue of its name; payloads are texts in JSON, which every
protocol can carry.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any
from uuid import UUID

from simulation.frames import Frames, handshake, masked
from simulation.tally import JobNote, JobTally
from support.replies_resp import Failure, Incomplete, command
from support.replies_resp import ReplyReader as RespReader
from support.replies_workq import Reply, Shape
from support.replies_workq import ReplyReader as WorkqReader

QUEUES = ("masenko", "workq", "resp", "glovebox", "api")
# A connection that is lost fails what it holds, and only these jobs bear that any number of times.
FOR_MASENKO = ("masenko",)
SCHEDULED = "scheduled"
TTR_MS = 5000
TTL_MS = 86_400_000
RETRIES = 1_000_000
NO_HEARTBEAT = b'ERR {"msg":"no heartbeat"}'


class PlainDriver:
    """What all have in common: pushes, and now and then something else."""

    dialect = ""

    def __init__(self, tally: JobTally, chance: Random, name: str, largest: int) -> None:
        self.name = name
        self.tally = tally
        self.chance = chance
        self._largest = largest
        self._made = 0
        self.held: list[tuple[JobNote, Any]] = []  # what it has, and how to name it
        self.open: deque[Any] = deque()  # what becomes of the replies to come
        self.pops: list[str] = []  # queues that requests without a reply may have popped from

    def request(self) -> bytes:
        chance = self.chance
        if self.held and chance.random() < 0.6:
            return self.finish(*self.held.pop(chance.randrange(len(self.held))))
        return self.push(self.new()) if chance.random() < 0.5 else self.take()

    def new(self) -> JobNote:
        self._made += 1
        token = f"{self.name}.{self._made}"
        pad = "x" * self.chance.choice((0, 10, self.chance.randrange(self._largest)))
        note = JobNote(token, self.dialect, f"{token} {pad}")
        self.tally.before_push(note)
        return note

    def push(self, note: JobNote) -> bytes:
        raise NotImplementedError

    def take(self) -> bytes:
        return self.push(self.new())

    def finish(self, note: JobNote, key: Any) -> bytes:
        raise NotImplementedError

    def is_idle(self) -> bool:
        return not self.open

    def leave(self) -> None:
        self.held.clear()

    def lost(self) -> None:
        """Its connection has ended, whatever was open."""
        for queue in self.pops:
            self.tally.lost_pops(queue, 1)
        self.pops.clear()
        self.open.clear()

    def answer_push(self, note: JobNote, done: bool) -> None:
        if done:
            self.tally.on_pushed(note)
        else:
            self.tally.on_push_refused(note)

    def answer_finish(self, note: JobNote, done: bool) -> None:
        if done:
            self.tally.on_ended(note)
        else:
            self.tally.on_end_refused(note)


class MasenkoDriver(PlainDriver):
    dialect = "masenko"

    def __init__(self, tally: JobTally, chance: Random, name: str, largest: int) -> None:
        super().__init__(tally, chance, name, largest)
        self._unread = b""

    def receive(self, data: bytes) -> None:
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            verb, _, text = line.decode().partition(" ")
            if line == NO_HEARTBEAT:
                continue  # an answer to nothing: the connection is about to be closed
            assert self.open, f"{self.name} got {line!r} for nothing"
            self.open.popleft()(verb, json.loads(text))

    def push(self, note: JobNote) -> bytes:
        self.open.append(lambda verb, _: self.answer_push(note, verb == "OK"))
        fields = {"name": "n", "queue": note.queue, "retry": RETRIES, "payload": note.payload}
        return self._line("PUSH", fields)

    def take(self) -> bytes:
        asked = self.tally.tick()

        def taken(verb: str, body: dict[str, Any]) -> None:
            if verb == "OK":
                note = self.tally.on_job_received(body["payload"], FOR_MASENKO, asked)
                self.held.append((note, body["id"]))

        self.open.append(taken)
        return self._line("FETCH", {"queues": list(FOR_MASENKO), "timeout": "50ms"})

    def finish(self, note: JobNote, key: Any) -> bytes:
        self.tally.before_end(note)
        self.open.append(lambda verb, _: self.answer_finish(note, verb == "OK"))
        return self._line("ACK", {"id": key})

    def _line(self, verb: str, fields: dict[str, Any]) -> bytes:
        return f"{verb} {json.dumps(fields)}\n".encode()


class WorkqDriver(PlainDriver):
    dialect = "workq"

    def __init__(self, tally: JobTally, chance: Random, name: str, largest: int) -> None:
        super().__init__(tally, chance, name, largest)
        self._replies = WorkqReader()

    def receive(self, data: bytes) -> None:
        self._replies.feed(data)
        while self.open:
            shape, heard = self.open[0]
            reply = self._replies.next(shape)
            if reply is None:
                return
            self.open.popleft()
            heard(reply)
        assert self._replies.is_empty(), "a reply to nothing"

    def push(self, note: JobNote) -> bytes:
        uid = UUID(int=self.chance.getrandbits(128))
        note.expires = self.tally.clock() + TTL_MS / 1000 - 60
        data = json.dumps(note.payload).encode()
        self._ask(Shape.NOTHING, lambda reply: self.answer_push(note, not reply.error))
        head = f"add {uid} {note.queue} {TTR_MS} {TTL_MS} {len(data)} -max-attempts=0 -max-fails=0"
        return head.encode() + b"\r\n" + data + b"\r\n"

    def take(self) -> bytes:
        asked = self.tally.tick()

        def taken(reply: Reply) -> None:
            if not reply.error:
                note = self.tally.on_job_received(json.loads(reply.data), QUEUES, asked)
                self.held.append((note, reply.words[0]))

        self._ask(Shape.BLOCK, taken)
        return f"lease {' '.join(QUEUES)} {self.chance.choice((0, 50))}\r\n".encode()

    def finish(self, note: JobNote, key: Any) -> bytes:
        self.tally.before_end(note)
        self._ask(Shape.NOTHING, lambda reply: self.answer_finish(note, not reply.error))
        return f"complete {key} 2\r\nok\r\n".encode()

    def _ask(self, shape: Shape, heard: Callable[[Reply], None]) -> None:
        self.open.append((shape, heard))


class RespDriver(PlainDriver):
    dialect = "resp"

    def __init__(self, tally: JobTally, chance: Random, name: str, largest: int) -> None:
        super().__init__(tally, chance, name, largest)
        self._replies = RespReader()
        self.empty = False  # the last pop found nothing

    def receive(self, data: bytes) -> None:
        self._replies.feed(data)
        while self.open:
            try:
                reply = self._replies.next()
            except Incomplete:
                return
            self.open.popleft()(reply)
        assert self._replies.is_empty(), "a reply to nothing"

    def push(self, note: JobNote) -> bytes:
        self.open.append(lambda reply: self.answer_push(note, not isinstance(reply, Failure)))
        data = json.dumps(note.payload).encode()
        return command(self.chance.choice(("RPUSH", "LPUSH")), note.queue, data)

    def take(self) -> bytes:
        queue = self.chance.choice(QUEUES)
        return self.pop(queue, 1) if self.chance.random() < 0.4 else self._lease()

    def pop(self, queue: str, count: int) -> bytes:
        asked = self.tally.tick()
        self.pops += [queue] * count

        def popped(reply: Any) -> None:
            for _ in range(count):
                self.pops.remove(queue)
            self.empty = not reply
            if isinstance(reply, list):
                for data in reply:
                    self.tally.on_ended(
                        self.tally.on_job_received(json.loads(data), (queue,), asked)
                    )

        self.open.append(popped)
        return command("LPOP", queue, count)

    def _lease(self) -> bytes:
        asked = self.tally.tick()

        def taken(reply: Any) -> None:
            if isinstance(reply, list):
                for job in reply:
                    note = self.tally.on_job_received(json.loads(job[8]), QUEUES, asked)
                    self.held.append((note, job[0]))

        self.open.append(taken)
        words = ("WAIT", 50, "TTR", TTR_MS, "COUNT", 2)
        return command("JOB.TAKE", len(QUEUES), *QUEUES, *words)

    def finish(self, note: JobNote, key: Any) -> bytes:
        self.tally.before_end(note)
        self.open.append(lambda reply: self.answer_finish(note, reply == "OK"))
        return command("JOB.DONE", key)


class ApiDriver(PlainDriver):
    """Only pushes."""

    dialect = "api"

    def __init__(self, tally: JobTally, chance: Random, name: str, largest: int) -> None:
        super().__init__(tally, chance, name, largest)
        self._unread = b""

    def receive(self, data: bytes) -> None:
        self._unread += data
        while True:
            head, end, rest = self._unread.partition(b"\r\n\r\n")
            if not end:
                return
            lines = head.decode("latin-1").split("\r\n")
            fields = dict(line.lower().split(": ", 1) for line in lines[1:])
            size = int(fields["content-length"])
            if len(rest) < size:
                return
            self._unread = rest[size:]
            assert self.open, f"{self.name} got {head!r} for nothing"
            self.open.popleft()(int(lines[0].split(" ")[1]))

    def push(self, note: JobNote) -> bytes:
        self.open.append(lambda status: self.answer_push(note, status in (200, 201)))
        return self._request("POST", f"queues/{note.queue}/jobs", {"payload": note.payload})

    def take(self) -> bytes:
        """It takes none, but looks at things, and sees to what the server keeps beside jobs."""

        def heard(status: int) -> None:
            assert status in (200, 201, 503, 507), status

        self.open.append(heard)
        chance = self.chance
        if chance.random() < 0.3:
            return self._request(*chance.choice(self._settings()))
        path = chance.choice(("/api/v1/queues", "/api/v1/jobs?limit=5", "/metrics"))
        return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()

    def _settings(self) -> list[tuple[str, str, dict[str, Any]]]:
        """Nobody takes what schedules push."""
        chance = self.chance
        schedule = {"every": chance.choice((1, 5)), "queue": SCHEDULED, "payload": self.name}
        limits = {"max_jobs": chance.choice((5, 50)), "concurrency": chance.choice((1, 9))}
        return [
            ("PUT", f"schedules/s{chance.randrange(3)}", schedule),
            ("PUT", f"queues/{SCHEDULED}", limits),
            ("PUT", f"readers/r{chance.randrange(2)}", {"lease": chance.choice((1, 30))}),
        ]

    def _request(self, method: str, path: str, fields: dict[str, Any]) -> bytes:
        body = json.dumps(fields).encode()
        head = (
            f"{method} /api/v1/{path} HTTP/1.1\r\nHost: localhost\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body


class GloveboxDriver(PlainDriver):
    dialect = "glovebox"

    def __init__(self, tally: JobTally, chance: Random, name: str, largest: int) -> None:
        super().__init__(tally, chance, name, largest)
        self._frames = Frames()
        self._said = b""  # what it has to say by itself
        self._began = False
        self._labels: dict[int, Callable[[dict[str, Any]], None]] = {}
        self._next = 0

    def is_idle(self) -> bool:
        return not self._labels

    def lost(self) -> None:
        super().lost()
        self._labels.clear()

    def answer(self) -> bytes:
        said, self._said = self._said, b""
        return said

    def receive(self, data: bytes) -> None:
        for opcode, payload in self._frames.feed(data):
            if opcode == 9:
                self._said += masked(10, payload, self.chance)
            elif opcode == 1:
                self._hear(json.loads(payload))

    def _hear(self, told: dict[str, Any]) -> None:
        if told["type"] == "hello":
            return
        heard = self._labels.pop(told["label"], None)
        assert heard is not None, f"{self.name} got {told} for nothing"
        heard(told)

    def _ask(self, heard: Callable[[dict[str, Any]], None], **fields: object) -> bytes:
        first = b"" if self._began else handshake(self.chance)
        if not self._began:
            self._began = True
            first += self._create()
        self._next += 1
        self._labels[self._next] = heard
        return first + masked(1, json.dumps({**fields, "label": self._next}).encode(), self.chance)

    def _create(self) -> bytes:
        self._next += 1
        self._labels[self._next] = lambda _: None  # it may be there
        fields = {"type": "create", "queue": self.dialect, "retries": RETRIES, "label": self._next}
        return masked(1, json.dumps(fields).encode(), self.chance)

    def push(self, note: JobNote) -> bytes:
        def heard(told: dict[str, Any]) -> None:
            self.answer_push(note, told["type"] == "notice")

        message = json.dumps(note.payload)
        return self._ask(heard, type="post", queue=note.queue, message=message, notify=["sync"])

    def take(self) -> bytes:
        asked = self.tally.tick()

        def heard(told: dict[str, Any]) -> None:
            if told["type"] == "message":
                note = self.tally.on_job_received(json.loads(told["body"]), (self.dialect,), asked)
                self.held.append((note, told["sequence"]))

        return self._ask(
            heard, type="fetch", queue=self.dialect, work_timeout=TTR_MS / 1000, sync="sync"
        )

    def finish(self, note: JobNote, key: Any) -> bytes:
        self.tally.before_end(note)

        def heard(told: dict[str, Any]) -> None:
            self.answer_finish(note, told["type"] == "notice")

        return self._ask(
            heard, type="finish", queue=self.dialect, sequence=key, shard=0, response="sync"
        )


DRIVERS = (MasenkoDriver, WorkqDriver, RespDriver, GloveboxDriver, ApiDriver)
