"""The journal of a running server: its segments over HTTP, and a reader for whom they are kept."""

from __future__ import annotations

import contextlib
import http.client
import json
import time
from types import TracebackType
from typing import Any, Final, Self

from taskyard.backup.source import Look, Wanted, from_base
from taskyard.cli.event_stream import Web
from taskyard.cli.failure import DENIED, REFUSED, UNREACHABLE, Failure
from taskyard.cli.session import Session, path
from taskyard.cli.units import seconds_of
from taskyard.client.errors import NotNow, Problem, Refused
from taskyard.journal.errors import JournalCorrupt, JournalError, JournalPassed
from taskyard.journal.frames import Content
from taskyard.journal.identity import identity_of
from taskyard.journal.segment import SEGMENT_HEADER, BadHeader, SegmentHeader, parse_header

READER: Final = "backup"
_LEASE: Final = 600.0  # seconds that segments are kept for a backup that was killed
_RENEWAL: Final = 60.0
_GONE: Final = (404, 410)


class ServerSource:
    """A context; at its end the reader is dropped."""

    def __init__(self, session: Session, given: str | None) -> None:
        self._session = session
        self._web = Web(session, given)
        self._timeout = seconds_of(session.arguments.timeout, "--timeout")
        self._connection: http.client.HTTPConnection | None = None
        self._asked_at: float | None = None
        self._kept = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._hang_up()
        if self._kept:
            # If it cannot be dropped, its lease lapses, and the next backup takes it over.
            with contextlib.suppress(Exception):
                self._session.api("DELETE", path("readers", READER))

    def look(self) -> Look:
        identity = identity_of(self._session.api("GET", "/journal/identity"))
        page = self._session.api("GET", "/journal")
        segments = [
            Wanted(each["base"], each["first_seq"], each["bytes"]) for each in page["segments"]
        ]
        if not segments:
            raise JournalError("the journal has no records yet, so there is nothing to back up")
        return Look(identity, from_base(segments, self._header(segments[-1])), page["durable_seq"])

    def _header(self, segment: Wanted) -> SegmentHeader:
        head = self.read(segment, 0, SEGMENT_HEADER)
        try:
            return parse_header(Content(head, len(head)))
        except BadHeader as error:
            raise JournalCorrupt(segment.name, 0, segment.first_seq, str(error)) from error

    def keep(self, look: Look) -> None:
        """A server that takes nothing any more drops nothing either, and is copied all the same."""
        now = time.monotonic()
        if self._asked_at is not None and now < self._asked_at + _RENEWAL:
            return
        self._asked_at = now
        body = {"next_seq": look.segments[0].first_seq, "lease": _LEASE}
        try:
            self._session.api("PUT", path("readers", READER), body)
        except NotNow:
            return
        except Refused as error:
            if not isinstance(error, Problem) or error.status < 500:
                raise
            return
        self._kept = True

    def read(self, wanted: Wanted, start: int, end: int) -> bytes:
        status, body = self._get(f"/api/v1/journal/segments/{wanted.base}?from={start}&to={end}")
        if status == 200:
            return body
        if status in _GONE:
            raise JournalPassed(wanted.name)
        detail = _detail(body) or f"the server answered {status}"
        raise Failure(f"{detail.rstrip('.')}.", DENIED if status in {401, 403} else REFUSED)

    def _get(self, where: str) -> tuple[int, bytes]:
        """Once more on a new connection: the server may have closed one that was idle."""
        for last in (False, True):
            try:
                return self._exchange(where)
            except (OSError, http.client.HTTPException) as error:
                self._hang_up()
                if last:
                    address = f"{self._web.host}:{self._web.port}"
                    sentence = f"{address} cannot be reached: {error}."
                    raise Failure(sentence, UNREACHABLE) from None
        raise AssertionError("the last try ends the loop")

    def _exchange(self, where: str) -> tuple[int, bytes]:
        if self._connection is None:
            self._connection = self._web.connect(self._timeout)
        self._connection.request("GET", where, headers=self._web.headers())
        answer = self._connection.getresponse()
        return answer.status, answer.read()

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _detail(body: bytes) -> str:
    try:
        problem: Any = json.loads(body)
        return str(problem.get("detail", ""))
    except (ValueError, AttributeError):
        return ""
