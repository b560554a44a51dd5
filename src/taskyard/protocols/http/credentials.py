"""Who sends a request: from the Authorization header to a principal, by way of the gate; or from
the cookie of a session.

Only those who say who they are have to wait for the gate, and most of them only once.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import Final

from taskyard.access.gate import Asker, Gate, host_of
from taskyard.access.principal import Principal
from taskyard.access.sessions import Sessions
from taskyard.protocols.http.cookies import dropping, session_of
from taskyard.protocols.http.messages import Request, Response
from taskyard.protocols.http.problems import SESSION

# Nobody is asked there, and nobody has to wait: probes, and the files of the dashboard.
OPEN: Final = ("", "/healthz", "/readyz")
ASSETS: Final = "/assets/"

Later = Callable[[Principal | Response], None]


class Credentials:
    """A name and a password; or no name, and a token."""

    def __init__(self, name: str, secret: str) -> None:
        self.name = name
        self.secret = secret


class Unreadable(Exception):
    """The header is none that is understood here; the text does not repeat it."""


def credentials_of(header: str) -> Credentials:
    scheme, _, rest = header.partition(" ")
    rest = rest.strip(" ")
    if scheme.lower() == "bearer" and rest:
        return Credentials("", rest)
    if scheme.lower() != "basic":
        raise Unreadable("Log in with Basic and a password, or with Bearer and a token.")
    try:
        name, colon, secret = base64.b64decode(rest, validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        name, colon, secret = "", "", ""
    if not colon:
        raise Unreadable("Basic is followed by name:password, in UTF-8 and base64.")
    return Credentials(name, secret)


class Identification:
    """How a listener finds out who sends a request: an Identify (see messages.py)."""

    def __init__(
        self, gate: Gate, refusal: Callable[[str], Response], sessions: Sessions | None = None
    ) -> None:
        """`refusal` makes an answer of status 401 out of the reason."""
        self._gate = gate
        self._refusal = refusal
        self._sessions = sessions

    def identify(self, request: Request, later: Later) -> Principal | Response | None:
        gate = self._gate
        header = request.headers.get("authorization")
        if not gate.has_users or _is_open(request.path):
            return gate.stranger
        if header is None:
            return self._without_header(request)
        try:
            given = credentials_of(header)
        except Unreadable as error:
            return self._refusal(str(error))
        address = host_of(request.peer)
        known = gate.recall(address, given.name, given.secret)
        if known is not None:
            return known
        done = _Waiting(self._refusal, later).done
        gate.log_in(address, given.name, given.secret, done, asker_of(request))
        return None

    def _without_header(self, request: Request) -> Principal | Response:
        text = None if self._sessions is None else session_of(request)
        if text is not None:
            assert self._sessions is not None
            session = self._sessions.recall(text)
            if session is not None:
                return session.principal
            if request.path.rstrip("/") != SESSION:  # where one logs in, whatever one was
                refusal = self._refusal("The session has ended: log in again.")
                refusal.headers.append(dropping())
                return refusal
        gate = self._gate
        holder = gate.holder_of(request.certificate) if request.certificate else None
        return gate.stranger if holder is None else holder


def asker_of(request: Request) -> Asker:
    return Asker(request.connection, request.id)


def _is_open(path: str) -> bool:
    return path.rstrip("/") in OPEN or path.startswith(ASSETS)


class _Waiting:
    """A request that waits for the gate."""

    def __init__(self, refusal: Callable[[str], Response], later: Later) -> None:
        self._refusal = refusal
        self._later = later

    def done(self, principal: Principal | None) -> None:
        if principal is None:
            self._later(self._refusal("The name, the password or the token is wrong."))
        else:
            self._later(principal)
