"""Errors as application/problem+json (RFC 9457): a sentence that a person can act on."""

from __future__ import annotations

from http import HTTPStatus

import msgspec

from taskyard.protocols.http.cookies import session_of
from taskyard.protocols.http.messages import Request, Response

CONTENT_TYPE = "application/problem+json"
SESSION = "/api/v1/session"  # where a browser logs in
# What a 401 says of how to log in.
CHALLENGES = [
    ("www-authenticate", 'Basic realm="taskyard", charset="UTF-8"'),
    ("www-authenticate", 'Bearer realm="taskyard"'),
]


def login_required(detail: str) -> Response:
    """The answer to a client that has to log in first."""
    answer = problem(401, detail)
    answer.headers.extend(CHALLENGES)
    return answer


def without_prompt(request: Request, refusal: Response) -> Response:
    """The answer to a request of a page: for Basic a browser would ask for a password itself, while
    the page is about to show its own form.
    """
    headers = request.headers
    from_page = (
        session_of(request) is not None
        or "x-requested-with" in headers
        or headers.get("sec-fetch-dest") == "empty"
        or "text/event-stream" in headers.get("accept", "")
        or request.path.startswith(SESSION)
    )
    if from_page:
        refusal.headers = [each for each in refusal.headers if each != CHALLENGES[0]]
    return refusal


def problem(status: int, detail: str, **more: object) -> Response:
    body = {"title": HTTPStatus(status).phrase, "status": status, "detail": detail, **more}
    return Response(status, msgspec.json.encode(body), CONTENT_TYPE)


def no_route(request: Request, allowed: list[str]) -> Response:
    """No route has this path; or, if some methods are allowed, this method."""
    if not allowed:
        return problem(404, f"There is nothing at {request.path}.")
    names = ", ".join(allowed)
    answer = problem(405, f"{request.method} is not possible at {request.path}, only {names}.")
    answer.headers.append(("allow", names))
    return answer
