"""Authentication of requests: from the Authorization header to a principal; or from the cookie of a
session.

Only clients that send credentials have to wait for the authenticator, and most of them only once.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
from collections.abc import Callable, Iterable
from typing import Final
from urllib.parse import urlsplit

from taskyard.access.authenticator import Authenticator, RequestRef, host_of
from taskyard.access.principal import Allow, Denied, Principal
from taskyard.access.sessions import BrowserSessions
from taskyard.protocols.http.api.problems import DENIED, UNAUTHENTICATED, ApiProblem
from taskyard.protocols.http.cookies import expired_session_cookie, session_of
from taskyard.protocols.http.wire import (
    SESSION,
    Exchange,
    Handler,
    Request,
    Response,
    Route,
    problem,
)

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


# Pages of other sites: what a browser does for them is not what its user has requested

OTHER_SITES: Final = ("cross-site", "same-site")
SAFE_METHODS: Final = (
    "GET",
    "HEAD",
    "OPTIONS",
)  # change nothing, and other pages do not see answers


def is_cross_site(headers: dict[str, str], allowed: frozenset[str]) -> bool:
    """Whether a page sends this that is neither from here nor allowed to."""
    origin = headers.get("origin")
    if origin is None and headers.get("sec-fetch-site") in OTHER_SITES:
        return "*" not in allowed  # browsers that do not say which page still say that it is one
    if origin is None or origin in allowed or "*" in allowed:
        return False
    try:
        return urlsplit(origin).netloc != headers.get("host")
    except ValueError:
        return True


def cross_site_refusal(request: Request, allowed: frozenset[str]) -> Response | None:
    if request.method in SAFE_METHODS or not is_cross_site(request.headers, allowed):
        return None
    origin = request.headers.get("origin", "other sites")
    detail = f"Pages of {origin} may change nothing; the operator can allow it."
    return problem(403, detail)


def unknown_host_refusal(request: Request, allowed: frozenset[str]) -> Response | None:
    """Refuse unknown host names where every client of this machine has full access."""
    host = request.headers.get("host", "")
    if _is_local_name(host) or "*" in allowed:
        return None
    if any(origin.partition("//")[2] == host for origin in allowed):
        return None
    detail = (
        f"This server has no users and knows no host {host}: ask for localhost, or have the "
        "operator name the origin with --http-origins."
    )
    return problem(421, detail)


def _is_local_name(host: str) -> bool:
    """Whether no other site can have this name: an address, or one without a domain."""
    try:
        name = (urlsplit(f"//{host}").hostname or "").removesuffix(".")
    except ValueError:
        return False
    if "." not in name or name.endswith(".localhost"):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


# Permission for what is answered over plain HTTP


def problem_of_denial(denied: Denied, principal: Principal) -> ApiProblem:
    detail = str(denied)
    detail = f"{detail[:1].upper()}{detail[1:]}" or "You are not allowed to do that"
    kind = DENIED if principal.name else UNAUTHENTICATED
    return ApiProblem(kind, detail if detail.endswith(".") else f"{detail}.")


def unauthenticated(detail: str) -> Response:
    """The answer to wrong credentials."""
    return ApiProblem(UNAUTHENTICATED, detail).response(0)


def permission_refusal(
    allow: Allow, principal: Principal, action: str, queues: Iterable[str]
) -> Response | None:
    """Return the answer to a client that may not do this to all of these; None: it may."""
    try:
        for queue in queues:
            allow(principal, action, queue)
    except Denied as denied:
        return problem_of_denial(denied, principal).response(0)
    return None


def deny_without_permissions(principal: Principal) -> Response | None:
    """The answer to a client without permissions, before the requested action is known."""
    if not principal.has_no_permissions():
        return None
    who = f"user {principal.name}" if principal.name else "who has not logged in"
    return problem_of_denial(Denied(f"{who} has no permissions"), principal).response(0)


def require_permission(allow: Allow, action: str, route: Route) -> Route:
    """Return the route, for clients that may do this to the queue in its path, or to the server."""
    return Route(route.method, route.pattern, _PermissionGuard(allow, action, route.handler).handle)


class _PermissionGuard:
    def __init__(self, allow: Allow, action: str, handler: Handler) -> None:
        self._allow = allow
        self._action = action
        self._handler = handler

    def handle(self, exchange: Exchange) -> None:
        request = exchange.request
        queue = request.params.get("queue", "")
        refused = permission_refusal(self._allow, request.principal, self._action, [queue])
        if refused is None:
            self._handler(exchange)
        else:
            exchange.reply(refused)
