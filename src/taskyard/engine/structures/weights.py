"""How many bytes of the journal are still live, and where they are.

Everything alive counts at the position where it was written, with about as many bytes as its
snapshot would take. Compaction asks which parts of the oldest segment still have live bytes.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64, mypyc_attr

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
