"""Counts the recent login failures of each address, and how long it has to wait for them.

IPv6 addresses are counted by their networks of 64 bits: everyone has any number of addresses in
their own.
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict, deque
from typing import Final, Generic, TypeVar

# microseconds that the first wrong answer takes; each further one twice
FIRST_DELAY_US: Final = 250_000
MAX_DELAY_US: Final = 8_000_000
FORGET_AFTER_US: Final = 600_000_000  # after which it is forgotten
MAX_ADDRESSES: Final = 10_000  # addresses that are remembered
MAX_MISTAKES: Final = 4  # different secrets for one name that may be mistakes
MAX_GUESSED_NAMES: Final = 50_000  # names, each at its address, that are remembered

_DOUBLINGS: Final = 5  # from FIRST to LONGEST

T = TypeVar("T")


class AddressThrottle(Generic[T]):
    """The failures of one address, and its logins, which run one after the other."""

    def __init__(self, network: str) -> None:
        self.network = network
        self.failures = 0
        self.last_failure_at = 0  # when it was wrong
        self.retry_at = 0  # when it may try again
        self.busy = False  # a login from there is being checked, or is next
        self.queue: deque[T] = deque()

    def record_failure(self, now: int) -> int:
        """Count a failure; return the time of its answer."""
        self.failures += 1
        self.last_failure_at = now
        self.retry_at = now + min(
            MAX_DELAY_US, FIRST_DELAY_US << min(self.failures - 1, _DOUBLINGS)
        )
        return self.retry_at


class LoginThrottle(Generic[T]):
    """The addresses with recent logins."""

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
        """Drop one address; not one with logins that wait, since they are kept there."""
        if len(self._addresses) < self._max_addresses:
            return
        for name, place in self._addresses.items():
            if not place.busy:
                del self._addresses[name]
                return


class GuessCounter:
    """Counts the wrong secrets tried for a name, by address.

    A cached login is answered at once, any other is queued: to a client that tries many secrets,
    that delay would be an answer. So a name with many guesses is queued in any case. The digests
    stand for names and secrets, and do not contain them.
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
