"""The only cookie: it has the session of a browser that has logged in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from taskyard.protocols.http.wire import Request


NAME: Final = "taskyard_session"
# Scripts do not see it, and no page of another site has the browser send it.
_ATTRIBUTES: Final = "Path=/; HttpOnly; SameSite=Strict"


def session_of(request: Request) -> str | None:
    """What the request's cookie says; None: it has none."""
    for part in request.headers.get("cookie", "").split(";"):
        name, equals, value = part.strip().partition("=")
        if equals and name == NAME:
            return value
    return None


def session_cookie(text: str, seconds: int, *, secure: bool) -> tuple[str, str]:
    """The header that has a browser keep a session."""
    last = "; Secure" if secure else ""
    return ("set-cookie", f"{NAME}={text}; Max-Age={seconds}; {_ATTRIBUTES}{last}")


def expired_session_cookie() -> tuple[str, str]:
    """The header that has it forget the one it has."""
    return ("set-cookie", f"{NAME}=; Max-Age=0; {_ATTRIBUTES}")
