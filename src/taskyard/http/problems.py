"""Errors as application/problem+json (RFC 9457): a sentence that a person can act on."""

from __future__ import annotations

from http import HTTPStatus

import msgspec

from taskyard.http.messages import Response

CONTENT_TYPE = "application/problem+json"
# What a 401 says of how to log in.
CHALLENGES = [
    ("www-authenticate", 'Basic realm="taskyard", charset="UTF-8"'),
    ("www-authenticate", 'Bearer realm="taskyard"'),
]


def problem(status: int, detail: str, **more: object) -> Response:
    body = {"title": HTTPStatus(status).phrase, "status": status, "detail": detail, **more}
    return Response(status, msgspec.json.encode(body), CONTENT_TYPE)
