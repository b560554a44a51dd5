"""The users of a server: the file that names them, their secrets, and how each is found.

User documentation of the file: docs/security.md.

    [users.mailer]
    password = "scrypt$n=32768,r=8,p=3$..."
    tokens = ["sha256$..."]
    certificate = "mailer.example.org"
    rules = [{ queues = ["mail", "mail.*"], allow = ["push", "inspect"] }]

    [users.ada]
    admin = true

    [anonymous]
    rules = [{ queues = ["public"], allow = ["push"] }]
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import secrets
import stat
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from taskyard.access.authenticator import Account
from taskyard.access.principal import ACTIONS, JOURNAL, Principal, Rule
from taskyard.shared.text import valid_name

MAX_SECRET: Final = 1024  # bytes of a password or token
MAX_MEMORY: Final = 1 << 28  # bytes that one check may take
TOKEN_PREFIX: Final = "ty_"  # noqa: S105 (so that those who search for lost secrets know it)

_SALT_BYTES: Final = 16
_KEY_BYTES: Final = 32
_TOKEN_BYTES: Final = 32
_PASSWORD_TEXT: Final = re.compile(
    r"scrypt\$n=([0-9]{1,8}),r=([0-9]{1,3}),p=([0-9]{1,3})\$((?:[0-9a-f]{2}){8,64})"
    r"\$((?:[0-9a-f]{2}){16,64})",
    re.ASCII,
)
_TOKEN_TEXT: Final = re.compile(r"sha256\$([0-9a-f]{64})", re.ASCII)

_USER_KEYS: Final = ("password", "tokens", "certificate", "admin", "rules")
_RULE_KEYS: Final = ("queues", "allow")
_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)  # needs no quotes in TOML
_FILE_HEADER: Final = "# Written by `taskyard user`, which does not keep comments.\n"


# Passwords and tokens, and the texts that are kept in their place
#
# A password is chosen by a person, so its hash is made slow. A token has 256 random bits: nobody
# can guess one, however quick its hash is.


@dataclass(frozen=True, slots=True)
class Cost:
    """How slow a password's hash is; one check takes 128 * n * r bytes."""

    n: int
    r: int
    p: int

    def problem(self) -> str:
        """Why it cannot be used; "": it can."""
        if self.n < 2 or self.n & (self.n - 1):
            return "n must be a power of two"
        if not self.r or not self.p:
            return "r and p must not be 0"
        if 128 * self.n * self.r > MAX_MEMORY:
            return f"128 * n * r must be at most {MAX_MEMORY}"
        return ""


DEFAULT_COST: Final = Cost(1 << 15, 8, 3)  # 32 MiB, and about 0.3 seconds


class PasswordHash:
    """What is kept of a password. Its repr shows nothing of that."""

    def __init__(self, cost: Cost, salt: bytes, key: bytes) -> None:
        self.cost = cost
        self._salt = salt
        self._key = key

    def matches(self, password: str) -> bool:
        """Slow, and equally slow for right and wrong ones."""
        found = _scrypt(password, self.cost, self._salt, len(self._key))
        return hmac.compare_digest(found, self._key)

    def text(self) -> str:
        cost = self.cost
        head = f"scrypt$n={cost.n},r={cost.r},p={cost.p}"
        return f"{head}${self._salt.hex()}${self._key.hex()}"


def hash_password(password: str, cost: Cost = DEFAULT_COST) -> PasswordHash:
    """Raises ValueError for what cannot be a password."""
    if not password:
        raise ValueError("a password must not be empty")
    if len(_bytes(password)) > MAX_SECRET:
        raise ValueError(f"a password must not be longer than {MAX_SECRET} bytes")
    salt = secrets.token_bytes(_SALT_BYTES)
    return PasswordHash(cost, salt, _scrypt(password, cost, salt, _KEY_BYTES))


def dummy_hash(cost: Cost) -> PasswordHash:
    """Return a hash that no password matches, and that takes as long to check."""
    return PasswordHash(cost, secrets.token_bytes(_SALT_BYTES), secrets.token_bytes(_KEY_BYTES))


def read_password_hash(text: str) -> PasswordHash:
    """From the text that is kept; raises ValueError, in which the text itself does not stand."""
    found = _PASSWORD_TEXT.fullmatch(text)
    if found is None:
        raise ValueError("is not a hash of the form scrypt$n=...,r=...,p=...$salt$key")
    cost = Cost(int(found[1]), int(found[2]), int(found[3]))
    if cost.problem():
        raise ValueError(f"is a hash that cannot be checked: {cost.problem()}")
    return PasswordHash(cost, bytes.fromhex(found[4]), bytes.fromhex(found[5]))


def new_token() -> str:
    return TOKEN_PREFIX + secrets.token_urlsafe(_TOKEN_BYTES)


def token_digest(token: str) -> bytes:
    return hashlib.sha256(_bytes(token)).digest()


def token_text(digest: bytes) -> str:
    return f"sha256${digest.hex()}"


def read_token_digest(text: str) -> bytes:
    """From the text that is kept; raises ValueError, in which the text itself does not stand."""
    found = _TOKEN_TEXT.fullmatch(text)
    if found is None:
        raise ValueError("is not a hash of the form sha256$ and 64 hexadecimal digits")
    return bytes.fromhex(found[1])


def credential_digest(key: bytes, name: str, secret: str) -> bytes:
    """Return a digest of a name and a secret, to compare them without storing them."""
    first = _bytes(name)
    size = len(first).to_bytes(8, "big")
    return hashlib.blake2b(size + first + _bytes(secret), key=key, digest_size=32).digest()


def _scrypt(password: str, cost: Cost, salt: bytes, size: int) -> bytes:
    memory = 2 * MAX_MEMORY  # OpenSSL's own limit is lower than what DEFAULT_COST takes
    return hashlib.scrypt(
        _bytes(password), salt=salt, n=cost.n, r=cost.r, p=cost.p, maxmem=memory, dklen=size
    )


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogatepass")  # whatever a client has sent


# The file of users


class UsersError(Exception):
    """The file cannot be used; the message is one sentence that names file and user."""


@dataclass(slots=True)
class User:
    name: str
    password: PasswordHash | None = field(default=None, repr=False)
    tokens: list[bytes] = field(default_factory=list, repr=False)  # digests
    certificate: str = ""  # common name of a TLS client certificate
    admin: bool = False  # may do everything
    rules: list[Rule] = field(default_factory=list)


@dataclass(slots=True)
class Users:
    """All that the file says."""

    users: dict[str, User] = field(default_factory=dict)
    anonymous: list[Rule] = field(default_factory=list)


def load_users(path: Path) -> Users:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsersError(f"{path}: cannot be read ({error.strerror}).") from error
    except UnicodeDecodeError as error:
        raise UsersError(f"{path}: is not UTF-8.") from error
    return parse_users(text, str(path))


def parse_users(text: str, file: str) -> Users:
    import tomllib

    try:
        found = tomllib.loads(text)
    except ValueError as error:  # a number of thousands of digits is not even a TOMLDecodeError
        raise UsersError(f"{file}: is not TOML ({error}).") from None
    except RecursionError:
        raise UsersError(f"{file}: is not TOML (it is nested too deeply).") from None
    try:
        users = _read(found)
        _check_unique(users)
    except ValueError as error:
        raise UsersError(f"{file}: {error}.") from None
    return users


def is_accessible_to_others(path: Path) -> bool:
    """Whether other users of this machine can read or change the file."""
    return bool(path.stat().st_mode & stat.S_IRWXO)


def save_users(path: Path, users: Users) -> None:
    """Save by renaming, so that readers always read a whole file; only its owner can read it.

    It keeps its owner, and a group that could read it still can: the server may be one of those.
    """
    path = path.resolve()  # what a link leads to is replaced, not the link
    before = path.stat() if path.exists() else None
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    try:
        with os.fdopen(os.open(draft, flags, 0o600), "w", encoding="utf-8") as file:
            file.write(format_users(users))
            if before is not None:
                if (before.st_uid, before.st_gid) != (os.geteuid(), os.getegid()):
                    os.fchown(file.fileno(), before.st_uid, before.st_gid)
                os.fchmod(file.fileno(), 0o600 | before.st_mode & stat.S_IRGRP)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def format_users(users: Users) -> str:
    parts = [_FILE_HEADER]
    for user in users.users.values():
        parts.append(f"\n[users.{_key(user.name)}]\n")
        if user.password is not None:
            parts.append(f"password = {_quote(user.password.text())}\n")
        if user.tokens:
            parts.append(f"tokens = {_list(token_text(digest) for digest in user.tokens)}\n")
        if user.certificate:
            parts.append(f"certificate = {_quote(user.certificate)}\n")
        if user.admin:
            parts.append("admin = true\n")
        parts.append(_format_rules(user.rules))
    if users.anonymous:
        parts.append(f"\n[anonymous]\n{_format_rules(users.anonymous)}")
    return "".join(parts)


def check_name(name: str) -> None:
    """HTTP cannot say a name that has a colon in it."""
    if not valid_name(name) or ":" in name:
        raise ValueError(
            "the name of a user must be 1 to 255 bytes of UTF-8 without spaces, control characters "
            "and colons"
        )


def make_rule(patterns: list[str], actions: list[str]) -> Rule:
    """Raises ValueError where it would not say what it seems to."""
    for pattern in patterns:
        if not valid_name(pattern):
            raise ValueError("queues must be names of queues, in which * stands for anything")
    for action in actions:
        if action not in ACTIONS:
            raise ValueError(f"allow must be some of {', '.join(ACTIONS)}, not {action!r}")
    if not patterns or not actions:
        raise ValueError(f"{'allow' if patterns else 'queues'} must not be empty")
    if JOURNAL in actions and "*" not in patterns:
        raise ValueError('the journal is of all queues: it can be allowed for queues = ["*"] only')
    return Rule(patterns, actions)


# Reading the file


def _read(found: dict[str, Any]) -> Users:
    _check_keys(found, ("users", "anonymous"), "at the top")
    users = Users()
    for name, table in _check_table(found.get("users", {}), "users").items():
        try:
            check_name(name)
            users.users[name] = _read_user(name, _check_table(table, "it"))
        except ValueError as error:
            raise ValueError(f"user {name!r}: {error}") from None
    try:
        anonymous = _check_table(found.get("anonymous", {}), "it")
        _check_keys(anonymous, ("rules",), "here")
        users.anonymous = _read_rules(anonymous)
    except ValueError as error:
        raise ValueError(f"anonymous: {error}") from None
    return users


def _read_user(name: str, table: dict[str, Any]) -> User:
    _check_keys(table, _USER_KEYS, "here")
    user = User(name, rules=_read_rules(table))
    password = table.get("password")
    if password is not None:
        user.password = _read_secret("password", password, read_password_hash)
    tokens = table.get("tokens", [])
    if not isinstance(tokens, list):
        raise ValueError("tokens must be an array")
    user.tokens = [_read_secret("one of the tokens", each, read_token_digest) for each in tokens]
    certificate = table.get("certificate", "")
    if not isinstance(certificate, str) or ("certificate" in table and not certificate):
        raise ValueError("certificate must be the common name of a certificate")
    user.certificate = certificate
    admin = table.get("admin", False)
    if not isinstance(admin, bool):
        raise ValueError("admin must be true or false")
    user.admin = admin
    return user


def _read_secret(what: str, value: object, read: Any) -> Any:
    if not isinstance(value, str):
        raise ValueError(f"{what} must be a string")
    try:
        return read(value)
    except ValueError as error:
        raise ValueError(f"{what} {error}") from None


def _read_rules(table: dict[str, Any]) -> list[Rule]:
    rules = table.get("rules", [])
    if not isinstance(rules, list):
        raise ValueError("rules must be an array of tables")
    read = []
    for number, rule in enumerate(rules, 1):
        try:
            fields = _check_table(rule, "it")
            _check_keys(fields, _RULE_KEYS, "here")
            read.append(make_rule(_read_strings(fields, "queues"), _read_strings(fields, "allow")))
        except ValueError as error:
            raise ValueError(f"rule {number}: {error}") from None
    return read


def _read_strings(table: dict[str, Any], key: str) -> list[str]:
    value = table.get(key)
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise ValueError(f"{key} must be an array of strings")
    return value


def _check_table(value: object, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{what} must be a table")
    return value


def _check_keys(table: dict[str, Any], known: Iterable[str], where: str) -> None:
    for key in table:
        if key not in known:
            raise ValueError(f"{key!r} is not known {where}: there are {', '.join(known)}")


def _check_unique(users: Users) -> None:
    """What one is recognised by must not be another's."""
    certificates: dict[str, str] = {}
    tokens: dict[bytes, str] = {}
    for user in users.users.values():
        if user.certificate:
            other = certificates.setdefault(user.certificate, user.name)
            if other != user.name:
                raise ValueError(f"user {user.name!r}: has the certificate of {other!r}")
        for digest in user.tokens:
            other = tokens.setdefault(digest, user.name)
            if other != user.name:
                raise ValueError(f"user {user.name!r}: has a token of {other!r}")


# Writing the file


def _format_rules(rules: list[Rule]) -> str:
    if not rules:
        return ""
    lines = [
        f"    {{ queues = {_list(rule.patterns)}, allow = {_list(_ordered_actions(rule))} }},\n"
        for rule in rules
    ]
    return f"rules = [\n{''.join(lines)}]\n"


def _ordered_actions(rule: Rule) -> list[str]:
    return [action for action in ACTIONS if action in rule.actions]


def _list(texts: Iterable[str]) -> str:
    return f"[{', '.join(_quote(text) for text in texts)}]"


def _key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else _quote(name)


def _quote(text: str) -> str:
    """JSON's strings are strings of TOML too, but for one control character."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


# The current users


class UserRegistry:
    """The current users, found by name, token or certificate.

    Principals stay the same objects while their users stay; their rules change in place.
    """

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
