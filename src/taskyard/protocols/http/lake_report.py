"""GET /lake/report: the last report of the lake, for clients that may see all queues.

It is a page with scripts of its own, so it is shown in a sandbox: to the browser it has no origin,
and can neither read anything of this server nor request it.
"""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Final

from taskyard.broker.seams import Scheduler
from taskyard.protocols.http.api.lake import no_lake_here
from taskyard.protocols.http.dashboard_files import Asset
from taskyard.protocols.http.dashboard_page import HTML, accepts_gzip, html_headers, matches_etag
from taskyard.protocols.http.messages import Exchange, Response, Route
from taskyard.protocols.http.problems import problem

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
