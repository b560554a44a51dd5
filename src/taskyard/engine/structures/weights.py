"""How many bytes of the journal are still needed, and where they are.

Whatever lives weighs at the place where it was written, about as much as it would take to write it
again. Compaction asks which parts of the oldest segment still have weight.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64, mypyc_attr

_BITS: Final = 20
ZONE: Final = 1 << _BITS  # positions are counted together in zones of this many bytes

# What one of each kind takes in the journal at most, beside its name, key or blob. Too little would
# make compaction write the same again and again to reach what cannot be reached.
QUEUE_WEIGHT: Final = 240
KEY_WEIGHT: Final = 32  # a limit key whose rate is remembered
VALUE_WEIGHT: Final = 64
SESSION_WEIGHT: Final = 96
LETTER_WEIGHT: Final = 40
CONSUMER_WEIGHT: Final = 96
HELD_WEIGHT: Final = 12  # each job of a consumer's batch
TOMBSTONE_WEIGHT: Final = 48
READER_WEIGHT: Final = 64
SCHEDULE_WEIGHT: Final = 192


@mypyc_attr(acyclic=True)
class Weights:
    __slots__ = ("_added", "_adding", "_first", "_taken", "_taking", "_zones", "loose", "total")

    def __init__(self) -> None:
        self.total: i64 = 0  # of what has a place
        self.loose: i64 = 0  # of what compaction finds without looking for its place
        self._zones: list[int] = []
        self._first: i64 = 0  # number of the first zone in the list
        # The zones that were added to and taken from last, and what of that the list does not have
        # yet: a number in a list is an object, and made anew each time.
        self._adding: i64 = -1
        self._added: i64 = 0
        self._taking: i64 = -1
        self._taken: i64 = 0

    def add(self, at: i64, weight: i64) -> None:
        self.total += weight
        zone = at >> _BITS
        if zone != self._adding:
            self._settle_added()
            self._adding = zone
        self._added += weight

    def sub(self, at: i64, weight: i64) -> None:
        self.total -= weight
        zone = at >> _BITS
        if zone != self._taking:
            self._settle()
            self._taking = zone
        self._taken += weight

    def _settle(self) -> None:
        """Have all of it in the list; what was added first, since it may be what was taken."""
        self._settle_added()
        if self._taken:
            self._zones[self._taking - self._first] -= self._taken
            self._taken = 0

    def _settle_added(self) -> None:
        if self._added:
            self._put(self._adding, self._added)
            self._added = 0

    def _put(self, number: i64, weight: i64) -> None:
        zones = self._zones
        zone = number - self._first
        if zone >= len(zones):
            if not zones:
                self._first += zone
                zone = 0
            while len(zones) <= zone:
                zones.append(0)
        elif zone < 0:
            self._zones = [0] * -zone + zones
            self._first += zone
            zones = self._zones
            zone = 0
        zones[zone] += weight

    def in_zone_of(self, at: i64) -> i64:
        """What weighs in the zone that the position is in."""
        self._settle()
        zone = (at >> _BITS) - self._first
        return self._zones[zone] if 0 <= zone < len(self._zones) else 0

    def forget_before(self, at: i64) -> None:
        """Nothing weighs in the zones that end at or before this position any more."""
        self._settle()
        count = min((at >> _BITS) - self._first, len(self._zones))
        if count > 0:
            del self._zones[:count]
            self._first += count
