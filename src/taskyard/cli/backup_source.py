"""The journal of a running server: its segments over HTTP, and a reader for whom they are kept."""

from __future__ import annotations

import contextlib
import http.client
import json
import time
from types import TracebackType
from typing import Any, Final, Self

from taskyard.backup.backup import BackupExtent, SegmentRange, segments_for_replay
from taskyard.cli.event_stream import HttpEndpoint
from taskyard.cli.failure import CommandFailed
from taskyard.cli.session import Context, path
from taskyard.cli.units import seconds_of
from taskyard.client.errors import NotNow, Problem, Refused
from taskyard.journal.errors import JournalCorrupt, JournalError, SegmentRemoved
from taskyard.journal.format import (
    SEGMENT_HEADER_BYTES,
    BadHeader,
    SegmentBytes,
    SegmentHeader,
    parse_header,
)
from taskyard.journal.identity import parse_identity
from taskyard.shared.exit_codes import DENIED, REFUSED, UNREACHABLE

READER: Final = "backup"
_LEASE: Final = 600.0  # seconds that segments are kept for a backup that was killed
_RENEWAL: Final = 60.0
_GONE_STATUS: Final = (404, 410)


class ServerSource:
    """A context; at its end the reader is removed."""

    def __init__(self, session: Context, given: str | None) -> None:
        self._session = session
        self._endpoint = HttpEndpoint(session, given)
        self._timeout = seconds_of(session.arguments.timeout, "--timeout")
        self._connection: http.client.HTTPConnection | None = None
        self._renewed_at: float | None = None
        self._kept = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close_connection()
        if self._kept:
            # If it cannot be removed, its lease lapses, and the next backup takes it over.
            with contextlib.suppress(Exception):
                self._session.api("DELETE", path("readers", READER))

    def read_extent(self) -> BackupExtent:
        identity = parse_identity(self._session.api("GET", "/journal/identity"))
        page = self._session.api("GET", "/journal")
        segments = [
            SegmentRange(each["base"], each["first_seq"], each["bytes"])
            for each in page["segments"]
        ]
        if not segments:
            raise JournalError("the journal has no records yet, so there is nothing to back up")
        return BackupExtent(
            identity, segments_for_replay(segments, self._header(segments[-1])), page["durable_seq"]
        )

    def _header(self, segment: SegmentRange) -> SegmentHeader:
        head = self.read_bytes(segment, 0, SEGMENT_HEADER_BYTES)
        try:
            return parse_header(SegmentBytes(head, len(head)))
        except BadHeader as error:
            raise JournalCorrupt(segment.name, 0, segment.first_seq, str(error)) from error

    def retain_extent(self, extent: BackupExtent) -> None:
        """A server that takes nothing any more drops nothing either, and is copied all the same."""
        now = time.monotonic()
        if self._renewed_at is not None and now < self._renewed_at + _RENEWAL:
            return
        self._renewed_at = now
        body = {"next_seq": extent.segments[0].first_seq, "lease": _LEASE}
        try:
            self._session.api("PUT", path("readers", READER), body)
        except NotNow:
            return
        except Refused as error:
            if not isinstance(error, Problem) or error.status < 500:
                raise
            return
        self._kept = True

    def read_bytes(self, segment: SegmentRange, start: int, end: int) -> bytes:
        status, body = self._get_bytes(
            f"/api/v1/journal/segments/{segment.base}?from={start}&to={end}"
        )
        if status == 200:
            return body
        if status in _GONE_STATUS:
            raise SegmentRemoved(segment.name)
        detail = _detail(body) or f"the server answered {status}"
        raise CommandFailed(f"{detail.rstrip('.')}.", DENIED if status in {401, 403} else REFUSED)

    def _get_bytes(self, where: str) -> tuple[int, bytes]:
        """Once more on a new connection: the server may have closed one that was idle."""
        for last in (False, True):
            try:
                return self._exchange(where)
            except (OSError, http.client.HTTPException) as error:
                self._close_connection()
                if last:
                    address = f"{self._endpoint.host}:{self._endpoint.port}"
                    sentence = f"{address} cannot be reached: {error}."
                    raise CommandFailed(sentence, UNREACHABLE) from None
        raise AssertionError("the last try ends the loop")

    def _exchange(self, where: str) -> tuple[int, bytes]:
        if self._connection is None:
            self._connection = self._endpoint.connect(self._timeout)
        self._connection.request("GET", where, headers=self._endpoint.headers())
        answer = self._connection.getresponse()
        return answer.status, answer.read()

    def _close_connection(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _detail(body: bytes) -> str:
    try:
        problem: Any = json.loads(body)
        return str(problem.get("detail", ""))
    except (ValueError, AttributeError):
        return ""
