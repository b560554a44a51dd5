"""Authentication: finds the user behind a name, password, token or certificate."""

from __future__ import annotations

import ipaddress
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Generic, Protocol, TypeVar

from taskyard.access.principal import ANONYMOUS, Principal

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Account:
    """A user, and what their secrets are checked against."""

    principal: Principal
    password: bytes = field(default=b"", repr=False)  # b"": they have none
    tokens: tuple[bytes, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class RequestRef:
    """How the log names the command that logs in."""

    connection_number: int = 0
    request_id: str = ""


NO_REQUEST: Final = RequestRef()


class Authenticator(Protocol):
    """Authenticates users. A check may take a while, and takes longer after failures."""

    @property
    def has_users(self) -> bool:
        """Whether there are users."""
        ...

    @property
    def anonymous(self) -> Principal:
        """The permissions of clients that have not logged in."""
        ...

    @property
    def user_count(self) -> int:
        """How many users there are."""
        ...

    @property
    def failed_logins(self) -> int:
        """How many logins had a wrong name, password or token."""
        ...

    @property
    def overload_refusals(self) -> int:
        """How many logins were refused because too many checks were waiting."""
        ...

    @property
    def max_connections_per_user(self) -> int:
        """Of one user; 0: any number."""
        ...

    def cached_login(self, address: str, name: str, secret: str) -> Principal | None:
        """Return the user if this login is cached; None: call `log_in`.

        This spares clients that log in with every request a round of the loop.
        """
        ...

    def log_in(
        self,
        address: str,
        name: str,
        secret: str,
        done: Callable[[Principal | None], None],
        request: RequestRef = NO_REQUEST,
    ) -> None:
        """Check a password, or a token if `name` is empty; the result is None if it is wrong.

        `done` is called on the loop in a turn of its own, never from within this call. `address` is
        the client's host, without the port.
        """
        ...

    def find_by_certificate(self, certificate: str) -> Principal | None:
        """Return the user whose TLS client certificate has this common name."""
        ...

    def account(self, name: str) -> Account | None:
        """The user of this name, as it is now."""
        ...


class OpenAuthenticator:
    """No users are configured: every client has full access."""

    @property
    def has_users(self) -> bool:
        return False

    @property
    def anonymous(self) -> Principal:
        return ANONYMOUS

    @property
    def user_count(self) -> int:
        return 0

    @property
    def failed_logins(self) -> int:
        return 0

    @property
    def overload_refusals(self) -> int:
        return 0

    @property
    def max_connections_per_user(self) -> int:
        return 0

    def cached_login(self, address: str, name: str, secret: str) -> Principal | None:
        return None

    def log_in(
        self,
        address: str,
        name: str,
        secret: str,
        done: Callable[[Principal | None], None],
        request: RequestRef = NO_REQUEST,
    ) -> None:
        raise NotImplementedError  # not called where there are no users

    def find_by_certificate(self, certificate: str) -> Principal | None:
        return None

    def account(self, name: str) -> Account | None:
        return None


def authenticate_certificate(authenticator: Authenticator, certificate: str) -> Principal:
    """Return the principal of a client that has not logged in, but may have shown a certificate."""
    holder = authenticator.find_by_certificate(certificate) if certificate else None
    return (
        authenticator.anonymous
        if holder is None or not may_connect(authenticator, holder)
        else holder
    )


def may_connect(authenticator: Authenticator, principal: Principal) -> bool:
    """Whether this user may have one more connection."""
    most = authenticator.max_connections_per_user
    return not most or not principal.name or principal.connections < most


def host_of(peer: str) -> str:
    """The host of a client's address, by which login attempts are counted."""
    return peer.rpartition(":")[0]


# Counts the recent login failures of each address, and how long it has to wait for them

# microseconds that the first wrong answer takes; each further one twice
FIRST_DELAY_US: Final = 250_000
MAX_DELAY_US: Final = 8_000_000
FORGET_AFTER_US: Final = 600_000_000  # after which it is forgotten
MAX_ADDRESSES: Final = 10_000  # addresses that are remembered
MAX_MISTAKES: Final = 4  # different secrets for one name that may be mistakes
MAX_GUESSED_NAMES: Final = 50_000  # names, each at its address, that are remembered

_DOUBLINGS: Final = 5  # from FIRST to LONGEST


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
