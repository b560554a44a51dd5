"""Jobs in order: the structure behind every state of every queue.

A lane holds jobs by (position, id) in chunks of a few hundred. Taking from either end, appending,
removing, and finding one's way by key or by index are O(log n) or a short move of memory. A plain
list would move megabytes, a linked list could not resume a walk at a job that has left meanwhile.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64, mypyc_attr

from taskyard.engine.job import Job

CHUNK: Final = 512


@mypyc_attr(acyclic=True)
class Lane:
    __slots__ = ("chunks", "priority", "size")

    def __init__(self, priority: i64 = 0) -> None:
        self.priority = priority  # of a ready lane; others do not use it
        self.chunks: list[list[Job]] = []
        self.size: i64 = 0

    def first(self) -> Job:
        return self.chunks[0][0]

    def last(self) -> Job:
        return self.chunks[-1][-1]

    def insert(self, job: Job) -> None:
        """Put `job` where its position says; the ends are the quick cases."""
        chunks = self.chunks
        self.size += 1
        if not chunks:
            chunks.append([job])
            return
        tail = chunks[-1]
        end = tail[-1]
        if end.position < job.position or (end.position == job.position and end.id < job.id):
            if len(tail) < CHUNK:
                tail.append(job)
            else:
                chunks.append([job])
            return
        at = self._chunk_of(job.position, job.id)
        chunk = chunks[at]
        chunk.insert(_find(chunk, job.position, job.id), job)
        if len(chunk) > CHUNK:
            half = CHUNK // 2
            chunks.insert(at + 1, chunk[half:])
            del chunk[half:]

    def remove(self, job: Job) -> None:
        chunks = self.chunks
        at: i64 = 0
        chunk = chunks[0]
        if chunk[0] is job:  # in order of arrival, as most jobs leave
            chunk.pop(0)
        else:
            at = self._chunk_of(job.position, job.id)
            chunk = chunks[at]
            index = _find(chunk, job.position, job.id)
            if chunk[index] is not job:
                raise KeyError(job.id)
            chunk.pop(index)
        if not chunk:
            chunks.pop(at)
        self.size -= 1

    def after(self, position: i64, id: i64, limit: i64) -> list[Job]:
        """Up to `limit` jobs that come after (position, id), whether or not that one is here."""
        found: list[Job] = []
        chunks = self.chunks
        if not chunks:
            return found
        at = self._chunk_of(position, id + 1)
        index = _find(chunks[at], position, id + 1)
        return self._collect(at, index, limit)

    def slice(self, start: i64, limit: i64) -> list[Job]:
        """Up to `limit` jobs from the `start`-th on, walking chunks from the nearer end."""
        chunks = self.chunks
        if start >= self.size or limit <= 0:
            return []
        at: i64 = 0
        if start <= self.size // 2:
            while start >= len(chunks[at]):
                start -= len(chunks[at])
                at += 1
        else:
            at = len(chunks) - 1
            before = self.size - len(chunks[at])
            while before > start:
                at -= 1
                before -= len(chunks[at])
            start -= before
        return self._collect(at, start, limit)

    def _collect(self, at: i64, index: i64, limit: i64) -> list[Job]:
        found: list[Job] = []
        chunks = self.chunks
        while at < len(chunks):
            chunk = chunks[at]
            if len(chunk) - index >= limit:
                found.extend(chunk[index : index + limit])
                break
            part = chunk[index:]
            found.extend(part)
            limit -= len(part)
            index = 0
            at += 1
        return found

    def _chunk_of(self, position: i64, id: i64) -> i64:
        """The first chunk that ends at or after the key, else the last one."""
        chunks = self.chunks
        low: i64 = 0
        high: i64 = len(chunks) - 1
        while low < high:
            middle = (low + high) // 2
            end = chunks[middle][-1]
            if end.position < position or (end.position == position and end.id < id):
                low = middle + 1
            else:
                high = middle
        return low


def _find(chunk: list[Job], position: i64, id: i64) -> i64:
    """Index of the first job at or after the key."""
    low: i64 = 0
    high: i64 = len(chunk)
    while low < high:
        middle = (low + high) // 2
        job = chunk[middle]
        if job.position < position or (job.position == position and job.id < id):
            low = middle + 1
        else:
            high = middle
    return low
