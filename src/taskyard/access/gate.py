"""Where clients say who they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

from taskyard.access.principal import ANONYMOUS, Principal


@dataclass(frozen=True, slots=True)
class Account:
    """A user, and what stands for the secrets that they are recognised by."""

    principal: Principal
    password: bytes = field(default=b"", repr=False)  # b"": they have none
    tokens: tuple[bytes, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class RequestRef:
    """How the log names the command by which somebody says who they are."""

    connection_number: int = 0
    request_id: str = ""


NO_REQUEST: Final = RequestRef()


class Authenticator(Protocol):
    """Recognises users. The answer may take a while, and takes longer after wrong ones."""

    @property
    def has_users(self) -> bool:
        """Whether there is anybody to be recognised as."""
        ...

    @property
    def anonymous(self) -> Principal:
        """What those may do who have not said who they are."""
        ...

    @property
    def user_count(self) -> int:
        """How many users there are."""
        ...

    @property
    def failed_logins(self) -> int:
        """How often a name, password or token was wrong."""
        ...

    @property
    def overload_refusals(self) -> int:
        """How often nobody had the time to look."""
        ...

    @property
    def max_connections_per_user(self) -> int:
        """Of one user; 0: any number."""
        ...

    def cached_login(self, address: str, name: str, secret: str) -> Principal | None:
        """Who that is, if it is right and takes no time to find out; None: `log_in` will tell.

        Asked before that, it spares those a round of the loop who log in with every request.
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
        """Ask with a password, or with a token if `name` is empty; None: it is wrong.

        `done` is called on the loop in a turn of its own, never from inside of this call.
        `address` is the client's host, without the port.
        """
        ...

    def find_by_certificate(self, certificate: str) -> Principal | None:
        """Whose TLS client certificate has this common name."""
        ...

    def account(self, name: str) -> Account | None:
        """The user of this name, as it is now."""
        ...


class OpenAuthenticator:
    """No users are configured: everybody may do everything."""

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
        raise NotImplementedError  # nobody asks where there are no users

    def find_by_certificate(self, certificate: str) -> Principal | None:
        return None

    def account(self, name: str) -> Account | None:
        return None


def authenticate_certificate(authenticator: Authenticator, certificate: str) -> Principal:
    """Who a client is that has said nothing yet, but may have shown a certificate."""
    holder = authenticator.find_by_certificate(certificate) if certificate else None
    return (
        authenticator.anonymous
        if holder is None or not may_connect(authenticator, holder)
        else holder
    )


def may_connect(authenticator: Authenticator, principal: Principal) -> bool:
    """Whether one more connection may be this user's."""
    most = authenticator.max_connections_per_user
    return not most or not principal.name or principal.connections < most


def host_of(peer: str) -> str:
    """The host of a client's address, which attempts to log in are counted by."""
    return peer.rpartition(":")[0]
