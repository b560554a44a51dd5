"""Jobs by id.

Ids are dense, so jobs sit in small pages: no boxed key and no hash slot per job, and nothing that
has to be resized in one go while it grows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from mypy_extensions import i64, mypyc_attr

from taskyard.engine.model.job import Job

_PAGE_BITS: Final = 6  # 64 to a page: a lone survivor pins about half a kilobyte
_PAGE_JOBS: Final = 1 << _PAGE_BITS
_PAGE_MASK: Final = _PAGE_JOBS - 1


@mypyc_attr(acyclic=True)
class _Page:
    __slots__ = ("jobs", "used")

    def __init__(self) -> None:
        self.jobs: list[Job | None] = [None] * _PAGE_JOBS
        self.used: i64 = 0


class JobIndex:
    __slots__ = (
        "_last_page",
        "_last_page_number",
        "_pages",
        "_removed_page",
        "_removed_page_number",
        "pages_created",
        "size",
    )

    def __init__(self) -> None:
        self.size: i64 = 0
        self.pages_created: i64 = 0  # pages, so far
        self._pages: dict[int, _Page] = {}
        self._last_page: _Page | None = None  # the page that was used last: pushes are in order
        self._last_page_number: i64 = -1
        self._removed_page: _Page | None = None  # and that of the last one removed: so do these
        self._removed_page_number: i64 = -1

    def get(self, id: i64) -> Job | None:
        page = self._page(id >> _PAGE_BITS)
        return None if page is None else page.jobs[id & _PAGE_MASK]

    def add(self, job: Job) -> None:
        number = job.id >> _PAGE_BITS
        page = self._page(number)
        if page is None:
            page = _Page()
            self._pages[number] = page
            self.pages_created += 1
            self._last_page = page
            self._last_page_number = number
        page.jobs[job.id & _PAGE_MASK] = job
        page.used += 1
        self.size += 1

    def remove(self, id: i64) -> None:
        number = id >> _PAGE_BITS
        page = (
            self._removed_page if number == self._removed_page_number else self._pages.get(number)
        )
        if page is None or page.jobs[id & _PAGE_MASK] is None:
            raise KeyError(id)
        page.jobs[id & _PAGE_MASK] = None
        page.used -= 1
        self.size -= 1
        if page.used:
            self._removed_page = page
            self._removed_page_number = number
            return
        del self._pages[number]
        self._removed_page = None
        self._removed_page_number = -1
        if number == self._last_page_number:
            self._last_page = None
            self._last_page_number = -1

    def __iter__(self) -> Iterator[Job]:
        for page in list(self._pages.values()):
            for job in page.jobs:
                if job is not None:
                    yield job

    def _page(self, number: i64) -> _Page | None:
        if number == self._last_page_number:
            return self._last_page
        page = self._pages.get(number)
        if page is not None:
            self._last_page = page
            self._last_page_number = number
        return page
