"""What the state is looked up by: jobs by id, tombstones by uid, live bytes by position."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from mypy_extensions import i64, mypyc_attr
from sortedcontainers import SortedDict

from taskyard.engine.model.job import Job

# Jobs

_PAGE_BITS: Final = 6  # 64 to a page: a lone survivor pins about half a kilobyte
_PAGE_JOBS: Final = 1 << _PAGE_BITS
_PAGE_MASK: Final = _PAGE_JOBS - 1


class JobIndex:
    """Jobs by id.

    Ids are dense, so jobs sit in small pages: no boxed key and no hash slot per job, and nothing
    that has to be resized in one go while it grows.
    """

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


@mypyc_attr(acyclic=True)
class _Page:
    __slots__ = ("jobs", "used")

    def __init__(self) -> None:
        self.jobs: list[Job | None] = [None] * _PAGE_JOBS
        self.used: i64 = 0


# Tombstones

_MIN_BUCKET_US: Final = 100_000  # microseconds of one bucket
_MAX_BUCKETS: Final = 4096  # about so many for the whole window, if that is longer


class Tombstones:
    """Uids of jobs that are gone, remembered for a while, because a producer may repeat its push.

    They are kept in buckets by the time at which they were added. So a time is enough to forget the
    oldest, in whatever order the records came back from the journal.
    """

    def __init__(self, window: i64) -> None:
        self.window = window  # how long each is remembered; 0: none is
        self.by_uid: dict[bytes, Tombstone] = {}
        self.bucket_width_us: i64 = max(i64(_MIN_BUCKET_US), window // _MAX_BUCKETS)
        self.buckets: SortedDict[int, TombstoneBucket] = SortedDict()
        self._current_bucket: TombstoneBucket | None = None  # the one that was used last

    def id_of(self, uid: bytes) -> i64:
        """The job that had this uid; 0: it is not remembered."""
        stone = self.by_uid.get(uid)
        if stone is None:
            return 0
        return stone.id

    def add(self, uid: bytes, id: i64, producer: bytes, time: i64, seq: i64) -> None:
        if not self.window or self.id_of(uid) >= id:
            return  # in another snapshot, or a later job has had it since
        since = time - time % self.bucket_width_us
        grave = self._current_bucket
        if grave is None or grave.since != since:
            grave = self.buckets.get(since)
            if grave is None:
                grave = TombstoneBucket(since)
                grave.record_seq = seq
                self.buckets[since] = grave
            self._current_bucket = grave
        stone = Tombstone(id, producer)
        self.by_uid[uid] = stone
        grave.uids.append(uid)
        grave.tombstones.append(stone)

    def first_expiry(self) -> i64:
        """Return when the oldest bucket may be dropped; 0: there is none."""
        if not self.buckets:
            return 0
        first: i64 = self.buckets.peekitem(0)[0]
        return first + self.bucket_width_us + self.window

    def forget_before(self, before: i64) -> None:
        """Drop the buckets that were closed before that time."""
        graves = self.buckets
        while graves:
            since, grave = graves.peekitem(0)
            if since + self.bucket_width_us > before:
                return
            del graves[since]
            if grave is self._current_bucket:
                self._current_bucket = None
            for index, uid in enumerate(grave.uids):
                # Another job may have had it since, in a run that remembered none.
                if self.by_uid.get(uid) is grave.tombstones[index]:
                    del self.by_uid[uid]


@mypyc_attr(acyclic=True)
class Tombstone:
    """What is remembered with a uid: its job, and the producer, see ProducerHashes."""

    __slots__ = ("id", "producer")

    def __init__(self, id: i64, producer: bytes) -> None:
        self.id = id
        self.producer = producer


@mypyc_attr(acyclic=True)
class TombstoneBucket:
    """The tombstones of one stretch of time."""

    __slots__ = ("record_seq", "since", "tombstones", "uids")

    def __init__(self, since: i64) -> None:
        self.since = since
        self.uids: list[bytes] = []
        self.tombstones: list[Tombstone] = []
        self.record_seq: i64 = 0  # the record of the first, or the snapshot of all of them


# Live bytes

_REGION_BITS: Final = 20
# positions are counted together in regions of this many bytes
REGION_BYTES: Final = 1 << _REGION_BITS

# What one of each kind takes in the journal at most, beside its name, key or blob. Too little would
# make compaction write the same again and again to reach what cannot be reached.
QUEUE_RECORD_BYTES: Final = 240
KEY_LIMIT_RECORD_BYTES: Final = 32  # a limit key whose rate is remembered
VALUE_RECORD_BYTES: Final = 64
SESSION_RECORD_BYTES: Final = 96
NOTICE_RECORD_BYTES: Final = 40
CONSUMER_RECORD_BYTES: Final = 96
BATCH_JOB_RECORD_BYTES: Final = 12  # each job of a consumer's batch
TOMBSTONE_RECORD_BYTES: Final = 48
READER_RECORD_BYTES: Final = 64
SCHEDULE_RECORD_BYTES: Final = 192


@mypyc_attr(acyclic=True)
class LiveBytes:
    """How many bytes of the journal are still live, and where they are.

    Everything alive counts at the position where it was written, with about as many bytes as its
    snapshot would take. Compaction asks which parts of the oldest segment still have live bytes.
    """

    __slots__ = (
        "_added",
        "_added_region",
        "_first_region",
        "_regions",
        "_removed",
        "_removed_region",
        "total",
        "unplaced",
    )

    def __init__(self) -> None:
        self.total: i64 = 0  # of what has a place
        self.unplaced: i64 = 0  # of what compaction finds without looking for its place
        self._regions: list[int] = []
        self._first_region: i64 = 0  # number of the first region in the list
        # The regions that were changed last, and what of that the list does not have yet: a number
        # in a list is an object, and made anew each time.
        self._added_region: i64 = -1
        self._added: i64 = 0
        self._removed_region: i64 = -1
        self._removed: i64 = 0

    def add(self, at: i64, weight: i64) -> None:
        self.total += weight
        zone = at >> _REGION_BITS
        if zone != self._added_region:
            self._flush_added()
            self._added_region = zone
        self._added += weight

    def subtract(self, at: i64, weight: i64) -> None:
        self.total -= weight
        zone = at >> _REGION_BITS
        if zone != self._removed_region:
            self._flush_pending()
            self._removed_region = zone
        self._removed += weight

    def _flush_pending(self) -> None:
        """Have all of it in the list; what was added first, since it may be what was taken."""
        self._flush_added()
        if self._removed:
            self._regions[self._removed_region - self._first_region] -= self._removed
            self._removed = 0

    def _flush_added(self) -> None:
        if self._added:
            self._add_to_region(self._added_region, self._added)
            self._added = 0

    def _add_to_region(self, number: i64, weight: i64) -> None:
        zones = self._regions
        zone = number - self._first_region
        if zone >= len(zones):
            if not zones:
                self._first_region += zone
                zone = 0
            while len(zones) <= zone:
                zones.append(0)
        elif zone < 0:
            self._regions = [0] * -zone + zones
            self._first_region += zone
            zones = self._regions
            zone = 0
        zones[zone] += weight

    def bytes_in_region_of(self, at: i64) -> i64:
        """Return the live bytes of the region that contains the position."""
        self._flush_pending()
        zone = (at >> _REGION_BITS) - self._first_region
        return self._regions[zone] if 0 <= zone < len(self._regions) else 0

    def forget_before(self, at: i64) -> None:
        """Drop the regions that end at or before this position."""
        self._flush_pending()
        count = min((at >> _REGION_BITS) - self._first_region, len(self._regions))
        if count > 0:
            del self._regions[:count]
            self._first_region += count
