"""A gate with users that a test has made up; a secret is the name with `-secret` behind it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from taskyard.access.authenticator import NO_REQUEST, Account, RequestRef
from taskyard.access.principal import Principal


class FixedAuthenticator:
    def __init__(
        self, users: Mapping[str, Principal], stranger: Principal | None = None, most: int = 0
    ) -> None:
        self._most = most
        self._users = users
        self._stranger = stranger or Principal()
        self.asked: list[tuple[str, str]] = []  # by address and name
        self._waiting: list[Callable[[], None]] = []

    @property
    def has_users(self) -> bool:
        return True

    @property
    def anonymous(self) -> Principal:
        return self._stranger

    @property
    def max_connections_per_user(self) -> int:
        return self._most

    @property
    def user_count(self) -> int:
        return len(self._users)

    @property
    def failed_logins(self) -> int:
        return 0

    @property
    def overload_refusals(self) -> int:
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
        self.asked.append((address, name))
        known = name or secret.removesuffix("-secret")
        user = self._users.get(known) if secret == f"{known}-secret" else None
        self._waiting.append(lambda: done(user))

    def answer(self) -> None:
        """Tell those who have asked so far."""
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            each()

    def find_by_certificate(self, certificate: str) -> Principal | None:
        return self._users.get(certificate)

    def account(self, name: str) -> Account | None:
        user = self._users.get(name)
        return None if user is None else Account(user, f"{name}-secret".encode())
