"""How often each address was wrong of late, and how long it has to wait for that.

Addresses of IPv6 are counted by their networks of 64 bits: everybody has as many as they like in
their own.
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict, deque
from typing import Final, Generic, TypeVar

FIRST_DELAY_US: Final = (
    250_000  # microseconds that the first wrong answer takes; each further one twice
)
MAX_DELAY_US: Final = 8_000_000
FORGET_AFTER_US: Final = 600_000_000  # after which it is forgotten
MAX_ADDRESSES: Final = 10_000  # addresses that are remembered
MAX_MISTAKES: Final = 4  # different secrets for one name that may be mistakes
MAX_GUESSED_NAMES: Final = 50_000  # names, each at its address, that are remembered

_DOUBLINGS: Final = 5  # from FIRST to LONGEST

T = TypeVar("T")


class AddressThrottle(Generic[T]):
    """One address, and those who ask from there, one after the other."""

    def __init__(self, network: str) -> None:
        self.network = network
        self.failures = 0
        self.last_failure_at = 0  # when it was wrong
        self.retry_at = 0  # when it may ask again
        self.busy = False  # somebody from there is being looked at, or is next
        self.queue: deque[T] = deque()

    def record_failure(self, now: int) -> int:
        """Count it; gives the time of its answer."""
        self.failures += 1
        self.last_failure_at = now
        self.retry_at = now + min(
            MAX_DELAY_US, FIRST_DELAY_US << min(self.failures - 1, _DOUBLINGS)
        )
        return self.retry_at


class LoginThrottle(Generic[T]):
    """Those that were heard of lately."""

    def __init__(self, max_addresses: int = MAX_ADDRESSES) -> None:
        self._max_addresses = max_addresses
        self._addresses: OrderedDict[str, AddressThrottle[T]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._addresses)

    def for_address(self, address: str, now: int) -> AddressThrottle[T]:
        name = network_of(address)
        place = self._addresses.get(name)
        if place is None:
            self._evict_idle()
            place = AddressThrottle(name)
            self._addresses[name] = place
        elif now >= place.last_failure_at + FORGET_AFTER_US:
            place.failures = 0
        self._addresses.move_to_end(name)
        return place

    def _evict_idle(self) -> None:
        """Not by dropping one where somebody waits: their turns are kept there."""
        if len(self._addresses) < self._max_addresses:
            return
        for name, place in self._addresses.items():
            if not place.busy:
                del self._addresses[name]
                return


class GuessCounter:
    """Which names were tried with secrets that nobody knew, by address.

    What is known already is answered at once, what is not waits in line: to whoever tries many
    secrets, having to wait would be an answer. So a name that was tried often waits in any case.
    The keys and marks stand for names and secrets, and are not those.
    """

    def __init__(self, max_names: int = MAX_GUESSED_NAMES) -> None:
        self._max_names = max_names
        self._guessed: OrderedDict[bytes, tuple[int, tuple[bytes, ...]]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._guessed)

    def has_many(self, name_digest: bytes, now: int) -> bool:
        return len(self._recent_guesses(name_digest, now)) >= MAX_MISTAKES

    def record_guess(self, name_digest: bytes, digest: bytes, now: int) -> None:
        marks = self._recent_guesses(name_digest, now)
        if digest not in marks and len(marks) < MAX_MISTAKES:
            marks = (*marks, digest)
        if name_digest not in self._guessed and len(self._guessed) >= self._max_names:
            self._guessed.popitem(last=False)
        self._guessed[name_digest] = (now, marks)
        self._guessed.move_to_end(name_digest)

    def forget_guess(self, name_digest: bytes, digest: bytes) -> None:
        """It was no guess."""
        when, marks = self._guessed.get(name_digest, (0, ()))
        if digest not in marks:
            return
        if len(marks) == 1:
            del self._guessed[name_digest]
        else:
            self._guessed[name_digest] = (when, tuple(each for each in marks if each != digest))

    def _recent_guesses(self, name_digest: bytes, now: int) -> tuple[bytes, ...]:
        when, marks = self._guessed.get(name_digest, (0, ()))
        return marks if now < when + FORGET_AFTER_US else ()


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
