"""Jobs by id.

Ids are dense, so jobs sit in small pages: no boxed key and no hash slot per job, and nothing that
has to be resized in one go while it grows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from mypy_extensions import i64, mypyc_attr

from taskyard.engine.model.job import Job

_BITS: Final = 6  # 64 to a page: a lone survivor pins about half a kilobyte
_SIZE: Final = 1 << _BITS
_MASK: Final = _SIZE - 1


@mypyc_attr(acyclic=True)
class _Page:
    __slots__ = ("jobs", "used")

    def __init__(self) -> None:
        self.jobs: list[Job | None] = [None] * _SIZE
        self.used: i64 = 0


class JobIndex:
    __slots__ = ("_gone_from", "_gone_number", "_last", "_last_number", "_pages", "made", "size")

    def __init__(self) -> None:
        self.size: i64 = 0
        self.made: i64 = 0  # pages, so far
        self._pages: dict[int, _Page] = {}
        self._last: _Page | None = None  # the page that was touched last: pushes come in order
        self._last_number: i64 = -1
        self._gone_from: _Page | None = None  # and that of the last one removed: so do these
        self._gone_number: i64 = -1

    def get(self, id: i64) -> Job | None:
        page = self._page(id >> _BITS)
        return None if page is None else page.jobs[id & _MASK]

    def add(self, job: Job) -> None:
        number = job.id >> _BITS
        page = self._page(number)
        if page is None:
            page = _Page()
            self._pages[number] = page
            self.made += 1
            self._last = page
            self._last_number = number
        page.jobs[job.id & _MASK] = job
        page.used += 1
        self.size += 1

    def remove(self, id: i64) -> None:
        number = id >> _BITS
        page = self._gone_from if number == self._gone_number else self._pages.get(number)
        if page is None or page.jobs[id & _MASK] is None:
            raise KeyError(id)
        page.jobs[id & _MASK] = None
        page.used -= 1
        self.size -= 1
        if page.used:
            self._gone_from = page
            self._gone_number = number
            return
        del self._pages[number]
        self._gone_from = None
        self._gone_number = -1
        if number == self._last_number:
            self._last = None
            self._last_number = -1

    def __iter__(self) -> Iterator[Job]:
        for page in list(self._pages.values()):
            for job in page.jobs:
                if job is not None:
                    yield job

    def _page(self, number: i64) -> _Page | None:
        if number == self._last_number:
            return self._last
        page = self._pages.get(number)
        if page is not None:
            self._last = page
            self._last_number = number
        return page
