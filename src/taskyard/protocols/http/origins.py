"""Pages of other sites: what a browser does for them is not what its user has requested.

The browser sends along what its user is known by, an address inside of a network or a password, so
that requests of an attacker's page would be allowed. Where an address is enough, a site can also
give its own name to this machine (DNS rebinding): to the browser its page then comes from here.
"""

from __future__ import annotations

import ipaddress
from typing import Final
from urllib.parse import urlsplit

from taskyard.protocols.http.messages import Request, Response
from taskyard.protocols.http.problems import problem

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
