"""How names of queues and tasks are spelled in Masenko's answers."""

from __future__ import annotations

from typing import Final

from taskyard.engine.model.job import Job
from taskyard.engine.model.queue import Queue
from taskyard.protocols.masenko.messages import encode_json

_CACHE_SIZE: Final = 4096
_QUOTE: Final = 34
_BACKSLASH: Final = 92


class NameCache:
    """Caches the names of the last delivered job, and of tasks."""

    def __init__(self) -> None:
        self._tasks: dict[str, bytes] = {}
        self._last_queue = b""
        self._last_task = ""
        self._last_fields = b""

    def name_fields(self, job: Job) -> bytes:
        """What an answer says of a job's queue and name: most are as the one before."""
        queue = job.queue
        if queue.utf8 is not self._last_queue or job.name != self._last_task:
            parts = [
                b',"queue":',
                self._encode_queue(queue),
                b',"name":',
                self._encode_task(job.name),
            ]
            self._last_fields = b"".join(parts)
            self._last_queue = queue.utf8
            self._last_task = job.name
        return self._last_fields

    def _encode_queue(self, queue: Queue) -> bytes:
        """As a JSON string. There may be more of them than can be remembered, and nearly all are
        spelled as they are."""
        utf8 = queue.utf8
        if _QUOTE in utf8 or _BACKSLASH in utf8:
            return self._encode_task(queue.name)
        return b'"' + utf8 + b'"'

    def _encode_task(self, name: str) -> bytes:
        known = self._tasks.get(name)
        if known is None:
            known = encode_json(name)
            if len(self._tasks) >= _CACHE_SIZE:
                self._tasks.clear()
            self._tasks[name] = known
        return known
