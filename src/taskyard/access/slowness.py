"""How often each address was wrong of late, and how long it has to wait for that.

Addresses of IPv6 are counted by their networks of 64 bits: everybody has as many as they like in
their own.
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict, deque
from typing import Final, Generic, TypeVar

FIRST: Final = 250_000  # microseconds that the first wrong answer takes; each further one twice
LONGEST: Final = 8_000_000
QUIET: Final = 600_000_000  # after which it is forgotten
MOST: Final = 10_000  # addresses that are remembered
GUESSES: Final = 4  # different secrets for one name that may be mistakes
MOST_GUESSED: Final = 50_000  # names, each at its address, that are remembered

_DOUBLINGS: Final = 5  # from FIRST to LONGEST

T = TypeVar("T")


class Place(Generic[T]):
    """One address, and those who ask from there, one after the other."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.wrong = 0
        self.last = 0  # when it was wrong
        self.free_at = 0  # when it may ask again
        self.busy = False  # somebody from there is being looked at, or is next
        self.line: deque[T] = deque()

    def was_wrong(self, now: int) -> int:
        """Count it; gives the time of its answer."""
        self.wrong += 1
        self.last = now
        self.free_at = now + min(LONGEST, FIRST << min(self.wrong - 1, _DOUBLINGS))
        return self.free_at


class Places(Generic[T]):
    """Those that were heard of lately."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._places: OrderedDict[str, Place[T]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._places)

    def of(self, address: str, now: int) -> Place[T]:
        name = network_of(address)
        place = self._places.get(name)
        if place is None:
            self._make_room()
            place = Place(name)
            self._places[name] = place
        elif now >= place.last + QUIET:
            place.wrong = 0
        self._places.move_to_end(name)
        return place

    def _make_room(self) -> None:
        """Not by dropping one where somebody waits: their turns are kept there."""
        if len(self._places) < self._most:
            return
        for name, place in self._places.items():
            if not place.busy:
                del self._places[name]
                return


class Guesses:
    """Which names were tried with secrets that nobody knew, by address.

    What is known already is answered at once, what is not waits in line: to whoever tries many
    secrets, having to wait would be an answer. So a name that was tried often waits in any case.
    The keys and marks stand for names and secrets, and are not those.
    """

    def __init__(self, most: int = MOST_GUESSED) -> None:
        self._most = most
        self._guessed: OrderedDict[bytes, tuple[int, tuple[bytes, ...]]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._guessed)

    def are_many(self, key: bytes, now: int) -> bool:
        return len(self._marks(key, now)) >= GUESSES

    def add(self, key: bytes, mark: bytes, now: int) -> None:
        marks = self._marks(key, now)
        if mark not in marks and len(marks) < GUESSES:
            marks = (*marks, mark)
        if key not in self._guessed and len(self._guessed) >= self._most:
            self._guessed.popitem(last=False)
        self._guessed[key] = (now, marks)
        self._guessed.move_to_end(key)

    def was_right(self, key: bytes, mark: bytes) -> None:
        """It was no guess."""
        when, marks = self._guessed.get(key, (0, ()))
        if mark not in marks:
            return
        if len(marks) == 1:
            del self._guessed[key]
        else:
            self._guessed[key] = (when, tuple(each for each in marks if each != mark))

    def _marks(self, key: bytes, now: int) -> tuple[bytes, ...]:
        when, marks = self._guessed.get(key, (0, ()))
        return marks if now < when + QUIET else ()


def network_of(address: str) -> str:
    if ":" not in address:
        return address
    try:
        found = ipaddress.IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.IPv6Network((found, 64), strict=False))
