"""Work on long lists in chunks, so that other connections do not wait.

They read payloads that are on disk only.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from taskyard.engine.model.errors import TaskyardError
from taskyard.engine.model.job import FOREVER, GONE, MIN_PRIORITY, READY, Job
from taskyard.engine.model.queue import Queue
from taskyard.protocols.resp.answers import ChunkedCommand
from taskyard.protocols.resp.connection import RespConnection
from taskyard.protocols.resp.values import array, bulk, number_reply

MAX_REPLY: Final = 64 * 1_048_576
CHUNK_JOBS: Final = 256


class PopMany(ChunkedCommand):
    """Pops jobs from one end, and answers with their payloads.

    A job is popped when its payload is at hand, because the payload of a popped job may be removed
    from disk; and those of a chunk are popped together, so that no crash separates them.
    """

    def __init__(self, queue: Queue, count: i64, last: bool) -> None:
        self._name = queue.utf8
        self._left = count
        self._last = last
        self._parts: list[bytes] = []
        self._size: i64 = 0
        self._chunk: list[Job] = []  # that will be popped next, unless others are quicker
        self._at: i64 = 0  # in it
        self._payloads: dict[int, bytes] = {}

    def run_chunk(self, connection: RespConnection) -> bool:
        if not self._chunk:
            self._select_chunk(connection)
        if not self._load_payloads(connection):
            return False
        self._pop_chunk(connection)
        if self._left:
            return False
        if self._parts:
            connection.reply(array(self._parts))
        else:
            connection.send_nil(b"*-1\r\n")
        return True

    def _select_chunk(self, connection: RespConnection) -> None:
        queue = connection.engine.queue(self._name)
        if queue is None:
            return
        ready = queue.ready
        count = min(self._left, CHUNK_JOBS)
        jobs = ready.slice(max(ready.size - count, i64(0)) if self._last else i64(0), count)
        if self._last:
            jobs.reverse()
        size = self._size
        for job in jobs:
            if size >= MAX_REPLY:
                break
            size += job.payload_size
            self._chunk.append(job)

    def _load_payloads(self, connection: RespConnection) -> bool:
        """Get the payloads of the chunk; False if one has to be read from disk first."""
        while self._at < len(self._chunk):
            job = self._chunk[self._at]
            payload = connection.broker.cached_payload(job)
            if payload is not None:
                self._payloads[job.id] = payload
            elif job.state != GONE:
                connection.read_for_command(job.payload_at, job.payload_size, self._on_payload_read)
                return False
            self._at += 1
        return True

    def _on_payload_read(self, payload: bytes) -> None:
        self._payloads[self._chunk[self._at].id] = payload
        self._at += 1

    def _pop_chunk(self, connection: RespConnection) -> None:
        while self._left:
            job = self._next_job(connection)
            if job is None or self._size >= MAX_REPLY:
                self._left = 0
                break
            payload = self._payloads.pop(job.id, None)
            if payload is None:
                break  # behind the chunk, or it has just been pushed: scan again
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
        self._chunk = []
        self._payloads = {}
        self._at = 0

    def _next_job(self, connection: RespConnection) -> Job | None:
        return connection.engine.next_pop(self._name, self._last, connection.now)


class PayloadListReader(ChunkedCommand):
    """Answer with the payloads of jobs; some may have to be read back from disk first."""

    def __init__(self, jobs: list[Job]) -> None:
        self.jobs = jobs
        self._at: i64 = 0
        self._parts: list[bytes] = []
        self._connection: RespConnection | None = None

    def encode_job(self, connection: RespConnection, job: Job, payload: bytes) -> bytes:
        """A job as it stands in the reply; b"": not at all."""
        return bulk(payload)

    def send_reply(self, connection: RespConnection, reply: bytes) -> None:
        connection.reply(reply)

    def run_chunk(self, connection: RespConnection) -> bool:
        jobs = self.jobs
        end = min(self._at + CHUNK_JOBS, len(jobs))
        while self._at < end:
            job = jobs[self._at]
            payload = connection.broker.cached_payload(job)
            if payload is not None:
                self._add_job(connection, job, payload)
            elif job.state == GONE:  # it was taken meanwhile, and may be gone from disk as well
                self._at += 1
            else:
                self._connection = connection
                connection.read_for_command(job.payload_at, job.payload_size, self._on_payload_read)
                return False
        if self._at < len(jobs):
            return False
        self.send_reply(connection, self.encode_reply())
        return True

    def encode_reply(self) -> bytes:
        return array(self._parts)

    def _on_payload_read(self, payload: bytes) -> None:
        connection = self._connection
        assert connection is not None
        self._add_job(connection, self.jobs[self._at], payload)

    def _add_job(self, connection: RespConnection, job: Job, payload: bytes) -> None:
        shown = self.encode_job(connection, job, payload)
        if shown:
            self._parts.append(shown)
        self._at += 1


class SinglePayloadReader(PayloadListReader):
    def run_chunk(self, connection: RespConnection) -> bool:
        job = self.jobs[0]
        if self._parts:
            connection.reply(self._parts[0])
            return True
        payload = connection.broker.cached_payload(job)
        if payload is None:
            self._connection = connection
            connection.read_for_command(job.payload_at, job.payload_size, self._on_payload_read)
            return False
        connection.send_bulk(payload)
        return True


class RemoveByPayload(ChunkedCommand):
    """Finishes ready jobs with exactly this payload, from the front, or from the back if negative.

    Linear in the distance that it has to scan. From the back it goes through the jobs that were
    there when it began; from the front it continues behind the last job.
    """

    def __init__(self, queue: Queue, payload: bytes, count: int) -> None:
        self._queue = queue
        self._payload = payload
        self._wanted: i64 = min(abs(count), FOREVER) or FOREVER
        self._removed: i64 = 0
        self._chunk: list[Job] = []
        self._at: i64 = 0  # in the chunk
        self._backwards = count < 0
        self._all: list[Job] = []
        if self._backwards:
            self._all = queue.ready.slice(0, queue.ready.size)
        self._priority: i64 = queue.ready.walk_start_priority()
        self._position: i64 = MIN_PRIORITY
        self._id: i64 = 0
        self._connection: RespConnection | None = None

    def run_chunk(self, connection: RespConnection) -> bool:
        if self._at == len(self._chunk) and not self._load_next_chunk():
            connection.reply(number_reply(self._removed))
            return True
        portion = self._chunk
        while self._at < len(portion):
            job = portion[self._at]
            if job.payload_size != len(self._payload):
                self._at += 1
                continue
            payload = connection.broker.cached_payload(job)
            if payload is None:
                self._connection = connection
                connection.read_for_command(job.payload_at, job.payload_size, self._on_payload_read)
                return False
            self._remove_if_equal(connection, job, payload)
        return False

    def _on_payload_read(self, payload: bytes) -> None:
        connection = self._connection
        assert connection is not None
        self._remove_if_equal(connection, self._chunk[self._at], payload)

    def _remove_if_equal(self, connection: RespConnection, job: Job, payload: bytes) -> None:
        self._at += 1
        if payload != self._payload or job.state != READY or job.queue is not self._queue:
            return
        connection.engine.remove_from_list(job.id, connection.origin, connection.now)
        self._removed += 1
        if self._removed == self._wanted:
            self._wanted = 0
            self._at = len(self._chunk)

    def _load_next_chunk(self) -> bool:
        if not self._wanted:
            return False
        self._at = 0
        if self._backwards:
            self._chunk = self._all[-CHUNK_JOBS:]
            self._chunk.reverse()
            del self._all[-CHUNK_JOBS:]
        else:
            self._chunk = self._queue.ready.jobs_after(
                self._priority, self._position, self._id, CHUNK_JOBS
            )
        if not self._chunk:
            return False
        last = self._chunk[-1]
        self._priority = last.priority
        self._position = last.order_key
        self._id = last.id
        return True
