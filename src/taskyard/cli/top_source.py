"""The figures of `taskyard top`: samples from the API, and the event stream.

Rates come from the counters of queues, so that they cost the same however busy a server is. Slow
and failing names come from events; when those are too many, only a part of each second is read.
"""

from __future__ import annotations

import threading
import time
from datetime import datetime
from typing import Any, Final

from taskyard.cli.event_stream import EventStream, HttpEndpoint, ServerEvent
from taskyard.cli.failure import CommandFailed
from taskyard.cli.session import PAGE_ITEMS, Context, path
from taskyard.cli.top_model import ServerSample
from taskyard.cli.top_names import KINDS, MAX_UNNAMED, NameStatistics
from taskyard.client.errors import Denied, Refused
from taskyard.shared.exit_codes import UNREACHABLE

MAX_QUEUES: Final = 10_000
MAX_LEASES: Final = 2_000
MAX_EVENTS_PER_SECOND: Final = 1_000  # what is read of the stream: about 3% of a processor
_MAX_NAME_LOOKUPS: Final = 20  # jobs whose names are requested one by one, for each sample
_FLUSH_INTERVAL_S: Final = 10.0  # seconds between two requests of the page of metrics


class TopSource:
    """`look` is called by one thread; the events come in another."""

    def __init__(self, session: Context, http: str | None) -> None:
        self.names = NameStatistics()
        self.lock = threading.Lock()  # of `names`
        self._session = session
        self._http = http
        self._endpoint: HttpEndpoint | None = None
        self._stream: EventStream | None = None
        self._closed = threading.Event()
        self._no_names = ""
        self._mean_flush_s: float | None = None
        self._flushes = (0.0, 0.0)  # how many, and seconds
        self._flush_at = 0.0

    def start(self) -> None:
        """Begin to listen; raises nothing, as all else works without."""
        try:
            self._endpoint = HttpEndpoint(self._session, self._http)
        except CommandFailed as failure:
            self._no_names = f"no figures by name: {failure}"
            return
        threading.Thread(target=self._listen, daemon=True).start()

    def close(self) -> None:
        self._closed.set()
        if self._stream is not None:
            self._stream.close()

    def sample(self) -> ServerSample:
        session = self._session
        server = self._server()
        queues = list(session.pages("/queues", "queues", MAX_QUEUES))
        at = time.monotonic()
        leases = list(session.pages("/leases", "leases", MAX_LEASES))
        self._learn_names(leases)
        self._sample_flushes(at)
        return ServerSample(
            at=at,
            server=server,
            queues=queues,
            leases=leases,
            all_leases=len(leases) < MAX_LEASES,
            flush=self._mean_flush_s,
            no_names_reason=self._no_names,
        )

    def _server(self) -> dict[str, Any]:
        """Empty for users that may see some queues only."""
        try:
            found: dict[str, Any] = self._session.api("GET", "/server")
        except Denied:
            return {}
        return found

    # Names

    def _learn_names(self, leases: list[dict[str, Any]]) -> None:
        with self.lock:
            for held in leases:
                since = datetime.fromisoformat(held["lease"]["since"]).timestamp()
                self.names.set_name(held["id"], held["name"], since)
            wanted = set(self.names.unnamed())
        if not wanted:
            return
        found = self._find_ended_names(wanted)
        with self.lock:
            for id, name in found.items():
                self.names.set_name(id, name)
            self.names.count_named()

    def _find_ended_names(self, wanted: set[int]) -> dict[int, str]:
        """Find names of jobs that have ended; a few that are not there are requested one by one."""
        limit = min(PAGE_ITEMS, max(100, 2 * min(len(wanted), MAX_UNNAMED)))
        page = self._session.api("GET", "/finished", limit=limit)
        found = {job["id"]: job["name"] for job in page["jobs"]}
        for id in sorted(wanted - found.keys(), reverse=True)[:_MAX_NAME_LOOKUPS]:
            try:
                found[id] = self._session.api("GET", path("jobs", id))["name"]
            except Refused:
                continue  # forgotten already
        return found

    def _listen(self) -> None:
        assert self._endpoint is not None
        while not self._closed.is_set():
            with EventStream(self._endpoint) as self._stream:
                try:
                    rest = self._read_events(self._stream)
                except CommandFailed as failure:
                    if failure.code != UNREACHABLE:
                        self._no_names = f"no figures by name: {failure}"
                        return
                    rest = 1.0  # it may be back then
            self._closed.wait(rest)

    def _read_events(self, stream: EventStream) -> float:
        """Read until there are too many in a second; return what is left of it then."""
        begun, count = time.monotonic(), 0
        for event in stream.events(event=",".join(KINDS)):
            self._on_event(event)
            now = time.monotonic()
            if now - begun >= 1:
                begun, count = now, 0
            count += 1
            if count >= MAX_EVENTS_PER_SECOND:
                return max(0.0, 1 - (now - begun))
        return 0.0

    def _on_event(self, event: ServerEvent) -> None:
        with self.lock:
            self.names.add_event(event.kind, event.data)

    # The disk

    def _sample_flushes(self, now: float) -> None:
        if self._endpoint is None or now - self._flush_at < _FLUSH_INTERVAL_S:
            return
        self._flush_at = now
        figures = _flush_figures(self._endpoint)
        if figures is None:
            return
        count, seconds = figures[0] - self._flushes[0], figures[1] - self._flushes[1]
        self._flushes = figures
        if count > 0:
            self._mean_flush_s = seconds / count


def _flush_figures(web: HttpEndpoint) -> tuple[float, float] | None:
    """How many flushes there were, and how long they took together."""
    connection = web.connect(5.0)
    found: dict[bytes, float] = {}
    try:
        connection.request("GET", "/metrics", headers=web.headers())
        answer = connection.getresponse()
        # They stand before the queues, of which there may be many.
        while len(found) < 2 and (line := answer.readline()):
            name, _, value = line.partition(b" ")
            if name in {b"taskyard_flush_seconds_sum", b"taskyard_flush_seconds_count"}:
                found[name] = float(value)
    except (OSError, ValueError):
        return None
    finally:
        connection.close()
    if len(found) < 2:
        return None
    return found[b"taskyard_flush_seconds_count"], found[b"taskyard_flush_seconds_sum"]
