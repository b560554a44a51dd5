"""Sessions of browsers: log in, show the current user, log out. Open to every client."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta

from taskyard.access.gate import host_of
from taskyard.access.principal import ACTIONS, INSPECT, Principal
from taskyard.access.sessions import BrowserSession, BrowserSessions
from taskyard.protocols.http.api.problems import (
    NO_USERS,
    UNAUTHENTICATED,
    ApiProblem,
    invalid_value,
)
from taskyard.protocols.http.api.views import moment
from taskyard.protocols.http.call import JSON, ApiCall, Operation
from taskyard.protocols.http.cookies import expired_session_cookie, session_cookie, session_of
from taskyard.protocols.http.credentials import request_ref_of
from taskyard.protocols.http.problems import SESSION
from taskyard.shared.api_messages import Message, Time

Secret = Annotated[str, Meta(min_length=1, max_length=1024)]
NO_STORE: Final = ("cache-control", "no-store")


class Login(Message):
    """A name and a password, or a token."""

    user: Annotated[str, Meta(min_length=1, max_length=255)] | None = None
    password: Secret | None = None
    token: Secret | None = None


class PermissionsView(Message):
    push: bool
    take: bool
    inspect: bool
    admin: bool
    journal: bool


class SessionView(Message):
    user: Annotated[str, Meta(description="Who asks; null: nobody in particular.")] | None
    users: Annotated[bool, Meta(description="The server has users.")]
    needs_login: Annotated[bool, Meta(description="Nothing can be seen before one has logged in.")]
    until: Annotated[Time, Meta(description="The session's end; null: there is none.")] | None
    may: Annotated[PermissionsView, Meta(description="On all queues, and the server.")]
    may_somewhere: Annotated[PermissionsView, Meta(description="On some queue at least.")]


class SessionOperations:
    def __init__(self, sessions: BrowserSessions | None, *, secure: bool = False) -> None:
        """None: there are no users. `secure`: all connections are encrypted."""
        self._sessions = sessions
        self._secure = secure

    def operations(self) -> list[Operation]:
        one = {200: ("Who asks, and what they may do.", SessionView)}
        return [
            Operation(
                method="GET",
                pattern=SESSION,
                name="getSession",
                summary="Who asks, and what they may do",
                action=INSPECT,
                run=self._show,
                answers=one,
                reads_state=False,
                for_everybody=True,
            ),
            Operation(
                method="POST",
                pattern=SESSION,
                name="logIn",
                summary="Log in with a browser, which is given a cookie",
                action=INSPECT,
                run=self._log_in,
                bodies={JSON: Login},
                answers=one,
                problems=(NO_USERS,),
                reads_state=False,
                for_everybody=True,
            ),
            Operation(
                method="DELETE",
                pattern=SESSION,
                name="logOut",
                summary="Have the browser forget its cookie",
                action=INSPECT,
                run=self._log_out,
                answers={204: ("It is forgotten.", None)},
                reads_state=False,
                for_everybody=True,
            ),
        ]

    def _show(self, call: ApiCall) -> None:
        headers = [NO_STORE]
        session = None
        text = session_of(call.request)
        if text is not None and "authorization" not in call.request.headers:
            session = self._sessions and self._sessions.find_session(text)
            if not session:
                headers.append(expired_session_cookie())
        view = self._view(call.request.principal, session or None)
        call.send_json(200, view, headers)

    def _log_in(self, call: ApiCall) -> None:
        given = call.body(Login)
        sessions = self._sessions
        if sessions is None:
            raise ApiProblem(NO_USERS, "Nobody has to log in here: everybody may do everything.")
        name, secret = _credentials(given)
        address = host_of(call.request.peer)

        def done(text: str, session: BrowserSession | None) -> None:
            if session is None:
                detail = "The name, the password or the token is wrong."
                call.refuse(ApiProblem(UNAUTHENTICATED, detail))
                return
            length = (session.expires_at - call.broker.clock.now()) // 1_000_000
            cookie = session_cookie(text, length, secure=self._secure or _is_encrypted(call))
            view = self._view(session.principal, session)
            call.send_json(200, view, [NO_STORE, cookie])

        sessions.log_in(address, name, secret, done, request_ref_of(call.request))

    def _log_out(self, call: ApiCall) -> None:
        call.send_json(204, None, [NO_STORE, expired_session_cookie()])

    def _view(self, principal: Principal, session: BrowserSession | None) -> SessionView:
        has_users = self._sessions is not None
        somewhere = {action: principal.may_on_any_queue(action) for action in ACTIONS}
        return SessionView(
            user=principal.name or None,
            users=has_users,
            needs_login=not principal.name and not somewhere[INSPECT],
            until=None if session is None else moment(session.expires_at),
            may=PermissionsView(**{action: principal.may(action, "") for action in ACTIONS}),
            may_somewhere=PermissionsView(**somewhere),
        )


def _credentials(given: Login) -> tuple[str, str]:
    """A name and a password, or no name and a token."""
    if given.token is not None:
        if given.user is not None or given.password is not None:
            raise invalid_value("token", "Give a token, or a user and a password.")
        return "", given.token
    if given.user is None:
        raise invalid_value("user", "Give a user and a password, or a token.")
    if given.password is None:
        raise invalid_value("password", "Give the password of this user, or a token alone.")
    return given.user, given.password


def _is_encrypted(call: ApiCall) -> bool:
    """Whether the browser speaks TLS, to a proxy perhaps: it says so itself."""
    return call.request.headers.get("origin", "").startswith("https://")
