"""A journal behind a server's HTTP listener, and the readers that are registered there."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import time
from itertools import chain, repeat
from typing import Any, Final
from urllib.parse import SplitResult, quote, unquote, urlsplit

from taskyard.client.url import TLS_FILES, load_tls_context, read_options
from taskyard.journal.errors import JournalError, RecordsRemoved, SegmentRemoved
from taskyard.journal.format import SegmentBytes, next_frame, segment_name
from taskyard.pipeline.journal import (
    PATIENCE,
    FrameMark,
    JournalContents,
    Piece,
    SegmentInfo,
    newest_marks,
    salt_of,
)

LEASE: Final = 86_400.0  # seconds that records are kept for a reader that says nothing
_TIMEOUT: Final = 60.0
_PAUSES: Final = (0.1, 0.2, 0.5, 1.0, 2.0, 4.0, 8.0)  # seconds between tries, the last one again
_BUSY: Final = (429, 502, 503, 504)
_GONE: Final = (404, 410)
_WINDOW: Final = 256 << 10  # in which a frame is searched
_COMMIT_PAUSE: Final = 5.0  # seconds between commits of a few records
_COMMIT_RECORDS: Final = 100_000  # records that are committed together
_OWN_RECORDS: Final = 1  # the record of the commit itself is no progress


class ServerUnreachable(JournalError):
    """No answer, however often it was tried."""


class ServerRefused(JournalError):
    """The server said no, and why."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(f"the server refused ({status}): {reason}")
        self.status = status


class ServerHttpClient:
    """One connection to a server, kept open and made again when it breaks."""

    def __init__(self, url: str, token: str | None = None, patience: float = PATIENCE) -> None:
        """`patience`: seconds for which a server that cannot be reached is asked again."""
        self._connection: http.client.HTTPConnection | None = None
        parts, port = _parse_url(url)
        self._arguments = url, token, patience
        self._host = parts.hostname or ""
        self._secure = parts.scheme == "https"
        self._port = port or (443 if self._secure else 80)
        needed = None if self._secure else "https"
        self._files = read_options(_without_credentials(url), parts.query, needed, TLS_FILES)
        self._patience = patience
        self._headers = {"Accept": "application/json", **_credentials(parts, token)}

    def __reduce__(self) -> tuple[type[ServerHttpClient], tuple[str, str | None, float]]:
        return ServerHttpClient, self._arguments

    def __del__(self) -> None:
        self.close()  # ranges live as long as their tasks, which alone know of it

    @property
    def address(self) -> str:
        """Without credentials, for people to read."""
        return f"{'https' if self._secure else 'http'}://{self._host}:{self._port}"

    def call_json(self, method: str, path: str, body: object = None) -> Any:
        """The answer to a call of the API."""
        answer = self.call_bytes(method, path, body)
        try:
            return json.loads(answer or b"null")
        except ValueError:
            reason = f"{self.address} does not answer like a server of Taskyard"
            raise ServerUnreachable(reason) from None

    def call_bytes(self, method: str, path: str, body: object = None) -> bytes:
        give_up_at = time.monotonic() + self._patience
        for pause in chain(_PAUSES, repeat(_PAUSES[-1])):
            is_last = time.monotonic() >= give_up_at
            try:
                status, answer = self._exchange(method, path, body)
                if status < 300:
                    return answer
                if is_last or status not in _BUSY:
                    raise ServerRefused(status, _error_text(answer))
            except (OSError, http.client.HTTPException) as error:
                self.close()
                if is_last or isinstance(error, ssl.SSLCertVerificationError):
                    raise ServerUnreachable(f"no answer from {self.address}: {error}") from error
            time.sleep(min(pause, max(give_up_at - time.monotonic(), 0)))
        raise AssertionError("the last try ends the loop")

    def _exchange(self, method: str, path: str, body: object) -> tuple[int, bytes]:
        connection = self._connection
        if connection is None:
            connection = self._connection = self._connect()
        headers = dict(self._headers)
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        connection.request(method, path, data, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()

    def _connect(self) -> http.client.HTTPConnection:
        if not self._secure:
            return http.client.HTTPConnection(self._host, self._port, timeout=_TIMEOUT)
        context = load_tls_context(*(self._files.get(name, "") for name in TLS_FILES))
        return http.client.HTTPSConnection(
            self._host, self._port, timeout=_TIMEOUT, context=context
        )

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class HttpJournal:
    """Keeps what the answers say of where records stand, so that little is read twice."""

    def __init__(self, url: str, token: str | None = None, patience: float = PATIENCE) -> None:
        self._arguments = url, token, patience
        self.http = ServerHttpClient(url, token, patience)
        self._marks: list[FrameMark] = []

    def __reduce__(self) -> tuple[type[HttpJournal], tuple[str, str | None, float]]:
        return HttpJournal, self._arguments

    def contents(self, from_seq: int = 0) -> JournalContents:
        answer = self.http.call_json("GET", f"/api/v1/journal?from={from_seq}")
        segments = tuple(
            SegmentInfo(each["base"], each["first_seq"], each["last_seq"], each["bytes"])
            for each in answer["segments"]
        )
        durable = answer["durable_seq"]
        if segments and segments[-1].last_seq == durable >= segments[-1].first_seq:
            # Where the durable bytes end, the next record will begin.
            self._remember_marks([FrameMark(durable + 1, segments[-1].base, segments[-1].bytes)])
        return JournalContents(
            self,
            answer["timeline"],
            answer["first_seq"],
            durable,
            segments,
            tuple((each["timeline"], each["last_seq"]) for each in answer["earlier"]),
            tuple(self._marks),
        )

    def _remember_marks(self, marks: list[FrameMark]) -> None:
        self._marks = newest_marks([*self._marks, *marks])

    def fetch(self, base: int, start: int, end: int) -> bytes:
        parts: list[bytes] = []
        while start < end:
            try:
                path = f"/api/v1/journal/segments/{base}?from={start}&to={end}"
                part = self.http.call_bytes("GET", path)
            except ServerRefused as error:
                if error.status in _GONE:
                    raise SegmentRemoved(segment_name(base)) from error
                raise
            if not part:
                break
            parts.append(part)
            start += len(part)
        return b"".join(parts)

    def salt(self) -> bytes:
        return bytes.fromhex(self.http.call_json("GET", "/api/v1/journal/identity")["salt"])

    def marks(self, piece: Piece, every: int) -> list[FrameMark]:
        """Look for frames at some places: the segment's salt tells where they begin.

        A payload that holds a copy of journal bytes could pass for one. Then the frames before it
        do not end where it begins, and their reader reports that: nothing is read wrongly.
        """
        salt = salt_of(self, piece.base)
        found: list[FrameMark] = []
        for start in range(piece.start + every, piece.end - every // 2, every):
            data = self.fetch(piece.base, start, min(start + _WINDOW, piece.end))
            frame = next_frame(SegmentBytes(data, len(data)), 0, len(data), salt)
            if frame is not None:
                found.append(FrameMark(int(frame.first_seq), piece.base, start + int(frame.offset)))
        self._remember_marks(found)
        return found


class RegisteredReader:
    """A reader of the journal that the server keeps segments for.

    A commit is itself a record of the journal. A follower that committed after every record would
    never end, so commits are spread out; only what is kept depends on them.
    """

    def __init__(self, web: ServerHttpClient, name: str, lease: float = LEASE) -> None:
        self._web = web
        self._lease = lease
        self._path = f"/api/v1/readers/{quote(name, safe='')}"
        self._committed = 0
        self._registered_at = 0.0

    def register(self, next_seq: int | None) -> dict[str, Any]:
        """It has all before `next_seq` (None: nothing yet), and what follows is kept for it.

        Also for one that is registered: it never goes backwards.
        """
        body = {"next_seq": next_seq, "lease": self._lease}
        answer: dict[str, Any] = self._web.call_json("PUT", self._path, body)
        self._committed = next_seq or 0
        self._registered_at = time.monotonic()
        return answer

    def start(self, next_seq: int | None) -> None:
        """Register a reader that is new to the server, or one that returns; RecordsRemoved if
        records that it has not read were removed.
        """
        answer = self.register(next_seq)
        self._committed = max(self._committed, answer["next_seq"])
        if next_seq is not None and answer["missed"] and answer["next_seq"] <= next_seq:
            raise RecordsRemoved(next_seq, next_seq + answer["missed"])

    def report_progress(self, next_seq: int, last: bool = False) -> None:
        """All before `next_seq` is done. `last`: nothing will be said after it for now.

        It is committed now and then while the reader gets on, and often enough for its lease.
        """
        waited = time.monotonic() - self._registered_at
        done = next_seq - self._committed
        due = done >= _COMMIT_RECORDS or (done > _OWN_RECORDS and (last or waited >= _COMMIT_PAUSE))
        if due or waited >= self._lease / 3:
            self.register(next_seq)


def commit_reader(
    url: str, reader: str, next_seq: int, lease: float = LEASE, token: str | None = None
) -> dict[str, Any]:
    """Say that a reader has all records before `next_seq`; gives what the server knows of it."""
    return RegisteredReader(ServerHttpClient(url, token), reader, lease).register(next_seq)


def _parse_url(url: str) -> tuple[SplitResult, int | None]:
    """The parts of the URL, and the port that it names."""
    try:
        parts = urlsplit(url)
        if parts.hostname and parts.scheme in ("http", "https"):
            return parts, parts.port
    except ValueError:
        pass  # its text may show the password
    raise ValueError(f"{_without_credentials(url)!r} is not an address like http://host:8080")


def _credentials(parts: SplitResult, token: str | None) -> dict[str, str]:
    if token:
        if not (token.isascii() and token.isprintable()):  # the library would show it
            raise ValueError("the token has a character that no token has, like a line break")
        return {"Authorization": f"Bearer {token}"}
    if parts.username is None:
        return {}
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return {"Authorization": "Basic " + base64.b64encode(pair.encode()).decode()}


def _without_credentials(url: str) -> str:
    return url.rpartition("@")[2]


def _error_text(answer: bytes) -> str:
    text = answer.decode(errors="replace")[:500]
    try:
        problem = json.loads(answer)
        return str(problem.get("detail") or problem.get("title") or text)
    except (ValueError, AttributeError):
        return text
