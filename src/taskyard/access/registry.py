"""The current users, found by name, token or certificate."""

from __future__ import annotations

import secrets
from typing import Final

from taskyard.access.gate import Account
from taskyard.access.principal import Principal
from taskyard.access.secrets import (
    DEFAULT_COST,
    PasswordHash,
    credential_digest,
    dummy_hash,
    token_digest,
)
from taskyard.access.users import User, Users


class UserRegistry:
    """Principals stay the same objects while their users stay; their rules change in place."""

    def __init__(self, users: Users) -> None:
        self.anonymous: Final = Principal()
        self._key = secrets.token_bytes(32)
        self._principals: dict[str, Principal] = {}
        self._accounts: dict[str, Account] = {}
        self._passwords: dict[str, PasswordHash] = {}
        self._tokens: dict[bytes, Principal] = {}
        self._certificates: dict[str, Principal] = {}
        self._dummy_hashes: list[PasswordHash] = []
        self.replace_users(users)

    @property
    def user_count(self) -> int:
        return len(self._principals)

    def replace_users(self, users: Users) -> None:
        """Replace the users. Those that are no longer among them lose all permissions, and do not
        get them back with a later user of the same name: that one has to log in again.
        """
        before, self._principals = self._principals, {}
        self._accounts = {}
        self._passwords = {}
        self._tokens = {}
        self._certificates = {}
        for user in users.users.values():
            known = before.pop(user.name) if user.name in before else Principal(user.name)
            self._add(user, known)
        for gone in before.values():
            gone.set_rules([], False)
        self.anonymous.set_rules(users.anonymous, False)
        # As many of each cost as there are, so that the time does not show whether a name is known.
        costs = [known.cost for known in self._passwords.values()] or [DEFAULT_COST]
        self._dummy_hashes = [dummy_hash(cost) for cost in costs]

    def _add(self, user: User, principal: Principal) -> None:
        principal.set_rules(user.rules, user.admin)
        self._principals[user.name] = principal
        password = b"" if user.password is None else user.password.text().encode()
        self._accounts[user.name] = Account(principal, password, tuple(user.tokens))
        if user.password is not None:
            self._passwords[user.name] = user.password
        for digest in user.tokens:
            self._tokens[digest] = principal
        if user.certificate:
            self._certificates[user.certificate] = principal

    def by_name(self, name: str) -> Principal | None:
        return self._principals.get(name)

    def account(self, name: str) -> Account | None:
        return self._accounts.get(name)

    def by_certificate(self, common_name: str) -> Principal | None:
        return self._certificates.get(common_name)

    def by_token(self, token: str) -> Principal | None:
        # The time of the lookup depends on the digest, from which the token cannot be found.
        return self._tokens.get(token_digest(token))

    def password_of(self, name: str) -> PasswordHash:
        """For a name without a user or a password, return a hash that no password matches."""
        known = self._passwords.get(name)
        if known is not None:
            return known
        # Always the same one for a name, as it would be if it were a user's.
        number = int.from_bytes(credential_digest(self._key, name, "")[:8], "big")
        return self._dummy_hashes[number % len(self._dummy_hashes)]
