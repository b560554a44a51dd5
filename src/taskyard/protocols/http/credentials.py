"""Authentication of requests: from the Authorization header to a principal; or from the cookie of a
session.

Only clients that send credentials have to wait for the authenticator, and most of them only once.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import Final

from taskyard.access.gate import Authenticator, RequestRef, host_of
from taskyard.access.principal import Principal
from taskyard.access.sessions import BrowserSessions
from taskyard.protocols.http.cookies import expired_session_cookie, session_of
from taskyard.protocols.http.messages import Request, Response
from taskyard.protocols.http.problems import SESSION

# Paths without authentication: probes, and the files of the dashboard.
PUBLIC_PATHS: Final = ("", "/healthz", "/readyz")
ASSETS: Final = "/assets/"

OnIdentified = Callable[[Principal | Response], None]


class Credentials:
    """A name and a password; or no name, and a token."""

    def __init__(self, name: str, secret: str) -> None:
        self.name = name
        self.secret = secret


class InvalidAuthorization(Exception):
    """The header is none that is understood here; the text does not repeat it."""


def parse_authorization(header: str) -> Credentials:
    scheme, _, rest = header.partition(" ")
    rest = rest.strip(" ")
    if scheme.lower() == "bearer" and rest:
        return Credentials("", rest)
    if scheme.lower() != "basic":
        raise InvalidAuthorization("Log in with Basic and a password, or with Bearer and a token.")
    try:
        name, colon, secret = base64.b64decode(rest, validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        name, colon, secret = "", "", ""
    if not colon:
        raise InvalidAuthorization("Basic is followed by name:password, in UTF-8 and base64.")
    return Credentials(name, secret)


class RequestIdentifier:
    """Authenticates the requests of a listener: an Identify (see messages.py)."""

    def __init__(
        self,
        authenticator: Authenticator,
        refusal: Callable[[str], Response],
        sessions: BrowserSessions | None = None,
    ) -> None:
        """`refusal` makes an answer of status 401 out of the reason."""
        self._authenticator = authenticator
        self._refusal = refusal
        self._sessions = sessions

    def identify(
        self, request: Request, on_identified: OnIdentified
    ) -> Principal | Response | None:
        gate = self._authenticator
        header = request.headers.get("authorization")
        if not gate.has_users or _is_public(request.path):
            return gate.anonymous
        if header is None:
            return self._without_header(request)
        try:
            given = parse_authorization(header)
        except InvalidAuthorization as error:
            return self._refusal(str(error))
        address = host_of(request.peer)
        known = gate.cached_login(address, given.name, given.secret)
        if known is not None:
            return known
        done = _RequestLogin(self._refusal, on_identified).on_login
        gate.log_in(address, given.name, given.secret, done, request_ref_of(request))
        return None

    def _without_header(self, request: Request) -> Principal | Response:
        text = None if self._sessions is None else session_of(request)
        if text is not None:
            assert self._sessions is not None
            session = self._sessions.find_session(text)
            if session is not None:
                return session.principal
            if request.path.rstrip("/") != SESSION:  # where one logs in, whatever one was
                refusal = self._refusal("The session has ended: log in again.")
                refusal.headers.append(expired_session_cookie())
                return refusal
        gate = self._authenticator
        holder = gate.find_by_certificate(request.certificate) if request.certificate else None
        return gate.anonymous if holder is None else holder


def request_ref_of(request: Request) -> RequestRef:
    return RequestRef(request.connection, request.id)


def _is_public(path: str) -> bool:
    return path.rstrip("/") in PUBLIC_PATHS or path.startswith(ASSETS)


class _RequestLogin:
    """A request that waits for the authenticator."""

    def __init__(self, refusal: Callable[[str], Response], on_identified: OnIdentified) -> None:
        self._refusal = refusal
        self._on_identified = on_identified

    def on_login(self, principal: Principal | None) -> None:
        if principal is None:
            self._on_identified(self._refusal("The name, the password or the token is wrong."))
        else:
            self._on_identified(principal)
