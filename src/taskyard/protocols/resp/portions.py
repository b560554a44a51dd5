"""Work on long lists, a portion at a time, so that nobody else has to wait.

Payloads that are on disk only are read back on the way.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from taskyard.engine.model.errors import TaskyardError
from taskyard.engine.model.job import FOREVER, GONE, MIN_PRIORITY, READY, Job
from taskyard.engine.model.queue import Queue
from taskyard.protocols.resp.answers import Work
from taskyard.protocols.resp.connection import RespConnection
from taskyard.protocols.resp.values import array, bulk, number_reply

MAX_REPLY: Final = 64 * 1_048_576
PORTION: Final = 256


class PopMany(Work):
    """Pop jobs from one end, and answer with their payloads.

    A job is popped when its payload is at hand, since what is popped may be dropped from disk;
    and those of a portion are popped together, so that no crash comes between them.
    """

    def __init__(self, queue: Queue, count: i64, last: bool) -> None:
        self._name = queue.utf8
        self._left = count
        self._last = last
        self._parts: list[bytes] = []
        self._size: i64 = 0
        self._portion: list[Job] = []  # that will be popped next, unless others are quicker
        self._at: i64 = 0  # in it
        self._payloads: dict[int, bytes] = {}

    def step(self, connection: RespConnection) -> bool:
        if not self._portion:
            self._look_ahead(connection)
        if not self._gather(connection):
            return False
        self._pop(connection)
        if self._left:
            return False
        if self._parts:
            connection.reply(array(self._parts))
        else:
            connection.send_nothing(b"*-1\r\n")
        return True

    def _look_ahead(self, connection: RespConnection) -> None:
        queue = connection.engine.queue(self._name)
        if queue is None:
            return
        ready = queue.ready
        count = min(self._left, PORTION)
        jobs = ready.slice(max(ready.size - count, i64(0)) if self._last else i64(0), count)
        if self._last:
            jobs.reverse()
        size = self._size
        for job in jobs:
            if size >= MAX_REPLY:
                break
            size += job.payload_size
            self._portion.append(job)

    def _gather(self, connection: RespConnection) -> bool:
        """Have the payloads of the portion; False if one has to be read back first."""
        while self._at < len(self._portion):
            job = self._portion[self._at]
            payload = connection.broker.payload(job)
            if payload is not None:
                self._payloads[job.id] = payload
            elif job.state != GONE:
                connection.read_back(job.payload_at, job.payload_size, self._loaded)
                return False
            self._at += 1
        return True

    def _loaded(self, payload: bytes) -> None:
        self._payloads[self._portion[self._at].id] = payload
        self._at += 1

    def _pop(self, connection: RespConnection) -> None:
        while self._left:
            job = self._next(connection)
            if job is None or self._size >= MAX_REPLY:
                self._left = 0
                break
            payload = self._payloads.pop(job.id, None)
            if payload is None:
                break  # behind the portion, or it has just come: look again
            try:
                connection.engine.pop(self._name, self._last, connection.origin, connection.now)
            except TaskyardError:
                if not self._parts:
                    raise
                self._left = 0  # those that are popped are given all the same
                break
            self._parts.append(bulk(payload))
            self._size += len(payload)
            self._left -= 1
        self._portion = []
        self._payloads = {}
        self._at = 0

    def _next(self, connection: RespConnection) -> Job | None:
        return connection.engine.next_pop(self._name, self._last, connection.now)


class Gather(Work):
    """Answer with the payloads of jobs; some may have to be read back from disk first."""

    def __init__(self, jobs: list[Job]) -> None:
        self.jobs = jobs
        self._at: i64 = 0
        self._parts: list[bytes] = []
        self._connection: RespConnection | None = None

    def show(self, connection: RespConnection, job: Job, payload: bytes) -> bytes:
        """A job as it stands in the reply; b"": not at all."""
        return bulk(payload)

    def finish(self, connection: RespConnection, reply: bytes) -> None:
        connection.reply(reply)

    def step(self, connection: RespConnection) -> bool:
        jobs = self.jobs
        end = min(self._at + PORTION, len(jobs))
        while self._at < end:
            job = jobs[self._at]
            payload = connection.broker.payload(job)
            if payload is not None:
                self._add(connection, job, payload)
            elif job.state == GONE:  # it was taken meanwhile, and may be gone from disk as well
                self._at += 1
            else:
                self._connection = connection
                connection.read_back(job.payload_at, job.payload_size, self._loaded)
                return False
        if self._at < len(jobs):
            return False
        self.finish(connection, self.reply())
        return True

    def reply(self) -> bytes:
        return array(self._parts)

    def _loaded(self, payload: bytes) -> None:
        connection = self._connection
        assert connection is not None
        self._add(connection, self.jobs[self._at], payload)

    def _add(self, connection: RespConnection, job: Job, payload: bytes) -> None:
        shown = self.show(connection, job, payload)
        if shown:
            self._parts.append(shown)
        self._at += 1


class GatherOne(Gather):
    def step(self, connection: RespConnection) -> bool:
        job = self.jobs[0]
        if self._parts:
            connection.reply(self._parts[0])
            return True
        payload = connection.broker.payload(job)
        if payload is None:
            self._connection = connection
            connection.read_back(job.payload_at, job.payload_size, self._loaded)
            return False
        connection.send_bulk(payload)
        return True


class Remove(Work):
    """Finish ready jobs with exactly this payload, from the front, or from the back if negative.

    Linear in the distance it has to look. From the back it goes through the jobs that were there
    when it began; from the front it walks on from place to place.
    """

    def __init__(self, queue: Queue, payload: bytes, count: int) -> None:
        self._queue = queue
        self._payload = payload
        self._wanted: i64 = min(abs(count), FOREVER) or FOREVER
        self._removed: i64 = 0
        self._portion: list[Job] = []
        self._at: i64 = 0  # in the portion
        self._backwards = count < 0
        self._all: list[Job] = []
        if self._backwards:
            self._all = queue.ready.slice(0, queue.ready.size)
        self._priority: i64 = queue.ready.before_start()
        self._position: i64 = MIN_PRIORITY
        self._id: i64 = 0
        self._connection: RespConnection | None = None

    def step(self, connection: RespConnection) -> bool:
        if self._at == len(self._portion) and not self._next_portion():
            connection.reply(number_reply(self._removed))
            return True
        portion = self._portion
        while self._at < len(portion):
            job = portion[self._at]
            if job.payload_size != len(self._payload):
                self._at += 1
                continue
            payload = connection.broker.payload(job)
            if payload is None:
                self._connection = connection
                connection.read_back(job.payload_at, job.payload_size, self._loaded)
                return False
            self._compare(connection, job, payload)
        return False

    def _loaded(self, payload: bytes) -> None:
        connection = self._connection
        assert connection is not None
        self._compare(connection, self._portion[self._at], payload)

    def _compare(self, connection: RespConnection, job: Job, payload: bytes) -> None:
        self._at += 1
        if payload != self._payload or job.state != READY or job.queue is not self._queue:
            return
        connection.engine.take_out(job.id, connection.origin, connection.now)
        self._removed += 1
        if self._removed == self._wanted:
            self._wanted = 0
            self._at = len(self._portion)

    def _next_portion(self) -> bool:
        if not self._wanted:
            return False
        self._at = 0
        if self._backwards:
            self._portion = self._all[-PORTION:]
            self._portion.reverse()
            del self._all[-PORTION:]
        else:
            self._portion = self._queue.ready.after(
                self._priority, self._position, self._id, PORTION
            )
        if not self._portion:
            return False
        last = self._portion[-1]
        self._priority = last.priority
        self._position = last.position
        self._id = last.id
        return True
