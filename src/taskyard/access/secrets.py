"""Passwords and tokens, and the texts that are kept in their place.

A password is chosen by a person, so its hash is made slow. A token has 256 random bits: nobody can
guess one, however quick its hash is.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass
from typing import Final

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
