"""The pages in HTML: the dashboard's own files, and the last report of the lake.

No path of a request ever becomes a path on the disk: the dashboard's files are read into memory
once, so what is served is what there was at the start, and each has a route of its own.
"""

from __future__ import annotations

import gzip
import hashlib
from collections import deque
from functools import partial
from pathlib import Path
from typing import Final

from taskyard import dashboard
from taskyard.broker.interfaces import Scheduler
from taskyard.protocols.http.api.server import no_lake_here
from taskyard.protocols.http.wire import Exchange, Request, Response, Route, problem

STATIC: Final = Path(dashboard.__file__).parent / "static"
INDEX: Final = "index.html"
# What scripts/vendor brings, and the page cannot do without.
VENDORED: Final = (
    "vendor/htm/htm.mjs",
    "vendor/preact/hooks.mjs",
    "vendor/preact/preact.mjs",
    "vendor/uplot/uPlot.esm.js",
    "vendor/uplot/uPlot.min.css",
)
# By the end of its name; a file that ends in no other way is not served.
KINDS: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    "LICENSE": "text/plain; charset=utf-8",
}
MAX_COMPRESSED_RATIO: Final = 0.9  # of its size, at most, that a compressed form has to have

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

PLAIN_HEADERS: Final = [
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-resource-policy", "same-origin"),
]

REPORT_POLICY: Final = "; ".join(
    [
        "sandbox allow-scripts allow-downloads",
        "default-src 'none'",
        "script-src 'unsafe-inline'",
        "style-src 'unsafe-inline'",
        "img-src data: blob:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ]
)
NONE_YET: Final = (
    "There is no report yet: have one written with POST /api/v1/lake/report, or with "
    "`taskyard lake report`."
)
_PAGE: Final = """<!doctype html>
<html lang="en">
<title>Taskyard: no report</title>
<h1>No report</h1>
<p>{text}</p>
<p><a href="/">The dashboard</a></p>
</html>
"""


# GET / and /assets/...: the dashboard's files, for every client. They contain nothing about jobs.


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


# The files in memory


def read_assets(directory: Path = STATIC) -> dict[str, Asset]:
    """By their paths below the directory."""
    found: dict[str, Asset] = {}
    for path in sorted(directory.rglob("*")):
        kind = kind_of(path.name)
        if kind is not None and path.is_file():
            found[path.relative_to(directory).as_posix()] = Asset(path.read_bytes(), kind)
    return found


class Asset:
    """One file, and its compressed form, which is made at the first request for it."""

    def __init__(self, content: bytes, kind: str) -> None:
        self.content = content
        self.kind = kind
        self.digest = hashlib.sha256(content).hexdigest()[:32]
        self._gzip: bytes | None = None

    def compressed(self) -> bytes | None:
        """None: it would not be smaller by much."""
        if self._gzip is None:
            packed = gzip.compress(self.content, 6, mtime=0)
            self._gzip = packed if len(packed) <= len(self.content) * MAX_COMPRESSED_RATIO else b""
        return self._gzip or None


def kind_of(name: str) -> str | None:
    return next((kind for end, kind in KINDS.items() if name.endswith(end)), None)


# GET /lake/report, for clients that may see all queues. The report is a page with scripts of its
# own, so it is shown in a sandbox: to the browser it has no origin, and can neither read anything
# of this server nor request it.


class LakeReportPage:
    def __init__(self, scheduler: Scheduler, path: Path | None) -> None:
        """None: the server runs no lake."""
        self._scheduler = scheduler
        self._path = path
        self._queue: deque[_ReportRead] = deque()
        self._current: _ReportRead | None = None

    def routes(self) -> list[Route]:
        return [Route("GET", "/lake/report", self._show)]

    def _show(self, exchange: Exchange) -> None:
        if self._path is None:
            exchange.reply(_absent(exchange, no_lake_here().detail))
            return
        self._queue.append(_ReportRead(self, self._path, exchange))
        self._read_next()

    def _read_next(self) -> None:
        """One at a time: it is large, and few threads have to do for all of the server."""
        if self._current is None and self._queue:
            self._current = self._queue.popleft()
            self._scheduler.run_blocking(self._current.read_file, self._current.done)

    def on_read_done(self) -> None:
        self._current = None
        self._read_next()


class _ReportRead:
    def __init__(self, page: LakeReportPage, path: Path, exchange: Exchange) -> None:
        self._page = page
        self._path = path
        self._exchange = exchange
        self._answer = Response(500)

    def read_file(self) -> None:
        """Off the loop."""
        request = self._exchange.request
        found = self._path.stat()
        packs = accepts_gzip(request)
        tag = f'"{found.st_mtime_ns:x}-{found.st_size:x}{"-gzip" if packs else ""}"'
        headers = [
            ("etag", tag),
            ("cache-control", "no-cache"),
            ("vary", "accept-encoding"),
            *html_headers(REPORT_POLICY),
        ]
        if matches_etag(request, tag):
            self._answer = Response(304, b"", HTML, headers)
            return
        asset = Asset(self._path.read_bytes(), HTML)
        packed = asset.compressed() if packs else None
        if packed is not None:
            headers.append(("content-encoding", "gzip"))
        self._answer = Response(200, packed or asset.content, HTML, headers)

    def done(self, error: BaseException | None) -> None:
        if isinstance(error, FileNotFoundError):
            self._answer = _absent(self._exchange, NONE_YET)
        elif error is not None:
            reason = getattr(error, "strerror", None) or type(error).__name__
            self._answer = problem(503, f"The report cannot be read: {reason}.")
        self._exchange.reply(self._answer)
        self._page.on_read_done()


def _absent(exchange: Exchange, text: str) -> Response:
    """In the form that the client understands."""
    if "text/html" not in exchange.request.headers.get("accept", ""):
        return problem(404, text)
    return Response(404, _PAGE.format(text=text).encode(), HTML, html_headers())
