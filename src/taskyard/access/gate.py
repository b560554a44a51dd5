"""Authentication: finds the user behind a name, password, token or certificate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

from taskyard.access.principal import ANONYMOUS, Principal


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
