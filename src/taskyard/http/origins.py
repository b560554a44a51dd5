"""Pages of other sites: what a browser does for them is not what its user has asked for.

The browser sends along what its user is known by, an address inside of a network or a password, so
that what a stranger's page asks for would be allowed.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from taskyard.http.messages import Request, Response
from taskyard.http.problems import problem

HARMLESS: Final = ("GET", "HEAD", "OPTIONS")  # change nothing, and other pages do not see answers


def is_of_other_site(headers: dict[str, str], allowed: frozenset[str]) -> bool:
    """Whether a page sends this that neither comes from here nor is allowed to."""
    origin = headers.get("origin")
    if origin is None or origin in allowed or "*" in allowed:
        return False
    try:
        return urlsplit(origin).netloc != headers.get("host")
    except ValueError:
        return True


def refusal_of_other_site(request: Request, allowed: frozenset[str]) -> Response | None:
    if request.method in HARMLESS or not is_of_other_site(request.headers, allowed):
        return None
    detail = f"Pages of {request.headers['origin']} may change nothing; the operator can allow it."
    return problem(403, detail)
