"""GET / and /assets/...: the dashboard's own files, for every client. They contain nothing about
jobs.

Each file has a route of its own, so that no path of a request ever becomes a path on the disk.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from taskyard.protocols.http.dashboard_files import INDEX, VENDORED, Asset, read_assets
from taskyard.protocols.http.messages import Exchange, Request, Response, Route

ASSETS: Final = "/assets/"
# Nothing but our own files, no inline code, no frame around it. What a payload holds is text.
POLICY: Final = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "font-src 'none'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ]
)
HTML: Final = "text/html; charset=utf-8"
INCOMPLETE: Final = """<!doctype html>
<html lang="en">
<title>Taskyard: the dashboard is not complete</title>
<h1>The dashboard is not complete</h1>
<p>This server runs, but files that its dashboard needs are missing:</p>
<ul>
{missing}
</ul>
<p>In a checkout, <code>scripts/vendor</code> downloads the libraries from the npm registry (or from
the one that <code>TASKYARD_NPM_REGISTRY</code> names); <code>make run</code> does that too. In an
installed package, install it again from a machine that reaches the registry. Then restart the
server.</p>
<p>Everything else is there: the API is described at
<a href="/api/v1/openapi.json">/api/v1/openapi.json</a>, metrics are at
<a href="/metrics">/metrics</a>.</p>
</html>
"""


class DashboardPage:
    def __init__(self, assets: dict[str, Asset] | None = None) -> None:
        self._assets = read_assets() if assets is None else assets
        self.missing = [name for name in (INDEX, *VENDORED) if name not in self._assets]

    def routes(self) -> list[Route]:
        routes = [
            Route("GET", ASSETS + name, partial(_serve, asset))
            for name, asset in self._assets.items()
            if name != INDEX
        ]
        return [*routes, Route("GET", "/", self._show)]

    def _show(self, exchange: Exchange) -> None:
        if self.missing:
            exchange.reply(_incomplete(self.missing))
        else:
            _serve(self._assets[INDEX], exchange)


def html_headers(policy: str = POLICY) -> list[tuple[str, str]]:
    """What every answer in HTML has."""
    return [("content-security-policy", policy), *PLAIN_HEADERS]


PLAIN_HEADERS: Final = [
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-resource-policy", "same-origin"),
]


def _serve(asset: Asset, exchange: Exchange) -> None:
    request = exchange.request
    packed = asset.compressed() if accepts_gzip(request) else None
    tag = f'"{asset.digest}"' if packed is None else f'"{asset.digest}-gzip"'
    headers = [
        ("etag", tag),
        ("cache-control", "no-cache"),  # cached, but checked each time
        ("vary", "accept-encoding"),
        *(html_headers() if asset.kind == HTML else PLAIN_HEADERS),
    ]
    if matches_etag(request, tag):
        exchange.reply(Response(304, b"", asset.kind, headers))
        return
    if packed is not None:
        headers.append(("content-encoding", "gzip"))
    exchange.reply(Response(200, asset.content if packed is None else packed, asset.kind, headers))


def accepts_gzip(request: Request) -> bool:
    """Whether it is named with a weight that is not 0, or is not named where everything else is."""
    weights: dict[str, bool] = {}
    for part in request.headers.get("accept-encoding", "").split(","):
        name, _, options = part.partition(";")
        weights[name.strip().lower()] = not _is_zero(options)
    return weights.get("gzip", weights.get("*", False))


def _is_zero(options: str) -> bool:
    name, _, weight = options.strip().partition("=")
    try:
        return name.strip().lower() == "q" and float(weight) == 0
    except ValueError:
        return True  # what cannot be read is no consent


def matches_etag(request: Request, tag: str) -> bool:
    """Whether the client has this already."""
    named = request.headers.get("if-none-match", "")
    return named.strip() == "*" or tag in [
        each.strip().removeprefix("W/") for each in named.split(",")
    ]


def _incomplete(missing: list[str]) -> Response:
    items = "\n".join(f"<li><code>{name}</code></li>" for name in missing)
    headers = [("cache-control", "no-store"), *html_headers()]
    return Response(503, INCOMPLETE.format(missing=items).encode(), HTML, headers)
