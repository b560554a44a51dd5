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
class Asker:
    """How the log names the command by which somebody says who they are."""

    connection: int = 0
    request: str = ""


NOBODY: Final = Asker()


class Gate(Protocol):
    """Recognises users. The answer may take a while, and takes longer after wrong ones."""

    @property
    def has_users(self) -> bool:
        """Whether there is anybody to be recognised as."""
        ...

    @property
    def stranger(self) -> Principal:
        """What those may do who have not said who they are."""
        ...

    @property
    def count(self) -> int:
        """How many users there are."""
        ...

    @property
    def wrong(self) -> int:
        """How often a name, password or token was wrong."""
        ...

    @property
    def turned_away(self) -> int:
        """How often nobody had the time to look."""
        ...

    @property
    def most_connections(self) -> int:
        """Of one user; 0: any number."""
        ...

    def recall(self, address: str, name: str, secret: str) -> Principal | None:
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
        asker: Asker = NOBODY,
    ) -> None:
        """Ask with a password, or with a token if `name` is empty; None: it is wrong.

        `done` is called on the loop in a turn of its own, never from inside of this call.
        `address` is the client's host, without the port.
        """
        ...

    def holder_of(self, certificate: str) -> Principal | None:
        """Whose TLS client certificate has this common name."""
        ...

    def account(self, name: str) -> Account | None:
        """The user of this name, as it is now."""
        ...


class OpenGate:
    """No users are configured: everybody may do everything."""

    @property
    def has_users(self) -> bool:
        return False

    @property
    def stranger(self) -> Principal:
        return ANONYMOUS

    @property
    def count(self) -> int:
        return 0

    @property
    def wrong(self) -> int:
        return 0

    @property
    def turned_away(self) -> int:
        return 0

    @property
    def most_connections(self) -> int:
        return 0

    def recall(self, address: str, name: str, secret: str) -> Principal | None:
        return None

    def log_in(
        self,
        address: str,
        name: str,
        secret: str,
        done: Callable[[Principal | None], None],
        asker: Asker = NOBODY,
    ) -> None:
        raise NotImplementedError  # nobody asks where there are no users

    def holder_of(self, certificate: str) -> Principal | None:
        return None

    def account(self, name: str) -> Account | None:
        return None


def at_the_gate(gate: Gate, certificate: str) -> Principal:
    """Who a client is that has said nothing yet, but may have shown a certificate."""
    holder = gate.holder_of(certificate) if certificate else None
    return gate.stranger if holder is None or not has_room(gate, holder) else holder


def has_room(gate: Gate, principal: Principal) -> bool:
    """Whether one more connection may be this user's."""
    most = gate.most_connections
    return not most or not principal.name or principal.connections < most


def host_of(peer: str) -> str:
    """The host of a client's address, which attempts to log in are counted by."""
    return peer.rpartition(":")[0]
