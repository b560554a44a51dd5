"""Logins of browsers: a cookie contains the user and until when the login is valid, and is signed
by the server.

The server keeps nothing of a session: it trusts a signed cookie. The user's secret is part of what
is signed, so that a session ends with it: with a password that is changed, with a token or a user
that is removed.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import logging
import os
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from taskyard.access.authenticator import NO_REQUEST, Authenticator, RequestRef
from taskyard.access.principal import Principal
from taskyard.access.users import token_digest
from taskyard.broker.interfaces import Clock

KEY_FILE: Final = "session.key"
KEY_SIZE: Final = 32
SECOND: Final = 1_000_000
_COOKIE_VERSION: Final = "1"  # of the text in a cookie; raised if it ever means something else
_COOKIE_PATTERN: Final = re.compile(
    r"1\.([A-Za-z0-9_-]{1,400})\.([0-9]{1,12})\.([A-Za-z0-9_-]{43})", re.ASCII
)

log = logging.getLogger("taskyard")


@dataclass(frozen=True, slots=True)
class BrowserSession:
    principal: Principal
    expires_at: int  # microseconds


class SessionKey:
    """What cookies are signed with: a file, so that they outlive a restart; made when needed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._key = b""

    def find(self) -> bytes:
        """Return the key; b"": there is none yet, so that nothing was ever signed."""
        if not self._key:
            try:
                found = self._path.read_bytes()
            except FileNotFoundError:
                return b""
            except OSError as error:
                log.warning("cannot read %s, so all browser sessions end: %s", KEY_FILE, error)
                found = b""
            self._key = found if len(found) == KEY_SIZE else self._create()
        return self._key

    def get_or_create(self) -> bytes:
        found = self.find()
        if not found:
            self._key = found = self._create()
        return found

    def _create(self) -> bytes:
        key = secrets.token_bytes(KEY_SIZE)
        draft = self._path.with_name(f".{KEY_FILE}.{os.getpid()}")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        try:
            draft.unlink(missing_ok=True)
            with os.fdopen(os.open(draft, flags, 0o600), "wb") as file:
                file.write(key)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(self._path)
        except OSError as error:
            log.warning("browser sessions will not outlive a restart: %s", error)
        return key


class BrowserSessions:
    def __init__(
        self, authenticator: Authenticator, key: SessionKey, clock: Clock, length_us: int
    ) -> None:
        """`length` is in microseconds."""
        self.authenticator: Final = authenticator
        self._key = key
        self._clock = clock
        self._length_us = length_us

    def log_in(
        self,
        address: str,
        name: str,
        secret: str,
        done: Callable[[str, BrowserSession | None], None],
        request: RequestRef = NO_REQUEST,
    ) -> None:
        """Authenticate like every login; the result has the text of a cookie too."""
        self.authenticator.log_in(
            address, name, secret, _PendingLogin(self, name, secret, done).on_result, request
        )

    def create_session(
        self, principal: Principal, name: str, secret: str
    ) -> tuple[str, BrowserSession] | None:
        """None: the user has another secret by now, or is gone."""
        account = self.authenticator.account(principal.name)
        if account is None:
            return None
        proof = account.password if name else token_digest(secret)
        if not name and proof not in account.tokens:
            return None
        end = (self._clock.now() + self._length_us) // SECOND
        signed = _sign(self._key.get_or_create(), principal.name, end, proof)
        encoded_name = _encode_base64(principal.name.encode())
        text = f"{_COOKIE_VERSION}.{encoded_name}.{end}.{_encode_base64(signed)}"
        return text, BrowserSession(principal, end * SECOND)

    def find_session(self, text: str) -> BrowserSession | None:
        """Return the session of this cookie, if it is valid."""
        found = _COOKIE_PATTERN.fullmatch(text)
        key = self._key.find()
        if found is None or not key:
            return None
        try:
            name = _decode_base64(found[1]).decode()
            signed = _decode_base64(found[3])
        except (binascii.Error, ValueError):
            return None
        end = int(found[2])
        account = self.authenticator.account(name)
        if account is None or self._clock.now() >= end * SECOND:
            return None
        for proof in (account.password, *account.tokens):
            if proof and hmac.compare_digest(_sign(key, name, end, proof), signed):
                return BrowserSession(account.principal, end * SECOND)
        return None


class _PendingLogin:
    """A login that waits for the authenticator."""

    def __init__(
        self,
        sessions: BrowserSessions,
        name: str,
        secret: str,
        done: Callable[[str, BrowserSession | None], None],
    ) -> None:
        self._sessions = sessions
        self._name = name
        self._secret = secret
        self._done = done

    def on_result(self, principal: Principal | None) -> None:
        begun = principal and self._sessions.create_session(principal, self._name, self._secret)
        if begun:
            self._done(*begun)
        else:
            self._done("", None)


def _sign(key: bytes, name: str, end: int, proof: bytes) -> bytes:
    parts = [b"taskyard session", name.encode(), b"%d" % end, proof]
    message = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
    return hmac.digest(key, message, "sha256")


def _encode_base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decode_base64(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
