"""A journal behind a server's HTTP listener, and the reader that is registered there."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import time
from typing import Any, Final
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from taskyard.client.address import context_of
from taskyard.journal.errors import JournalError, JournalPassed
from taskyard.journal.frames import Content, next_frame
from taskyard.journal.segment import SEGMENT_HEADER, segment_name
from taskyard.pipeline.journal_view import (
    JournalView,
    Mark,
    Piece,
    SegmentView,
    newest_marks,
    salt_of,
)

_TIMEOUT: Final = 60.0
_PAUSES: Final = (0.1, 0.2, 0.5, 1.0, 2.0, 4.0, 8.0)  # seconds between tries: a server restarts
_BUSY: Final = (429, 502, 503, 504)
_GONE: Final = (404, 410)
_FILES: Final = ("ca", "cert", "key")  # of TLS, as in the URL of a client
_WINDOW: Final = 256 << 10  # in which a frame is looked for


class ServerUnreachable(JournalError):
    """Nobody answered, however often it was tried."""


class ServerRefused(JournalError):
    """The server said no, and why."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(f"the server refused ({status}): {reason}")
        self.status = status


class Web:
    """One connection to a server, kept open and made again when it breaks."""

    def __init__(self, url: str, token: str | None = None) -> None:
        self._connection: http.client.HTTPConnection | None = None
        self._secure, self._host, port = _server(url)
        self._files = _files(url, self._secure)
        self._url = url
        self._token = token
        self._port = port or (443 if self._secure else 80)
        self._headers = {"Accept": "application/json", **_credentials(url, token)}

    def __reduce__(self) -> tuple[type[Web], tuple[str, str | None]]:
        return Web, (self._url, self._token)

    def __del__(self) -> None:
        self.close()  # ranges come and go with their tasks, and nobody else knows of it

    @property
    def address(self) -> str:
        """Without credentials, for people to read."""
        return f"{'https' if self._secure else 'http'}://{self._host}:{self._port}"

    def call(self, method: str, path: str, body: object = None) -> Any:
        """The answer to a call of the API."""
        return json.loads(self.octets(method, path, body) or b"null")

    def octets(self, method: str, path: str, body: object = None) -> bytes:
        for pause in (*_PAUSES, None):
            try:
                status, answer = self._exchange(method, path, body)
                if status not in _BUSY or pause is None:
                    return _checked(status, answer)
            except (OSError, http.client.HTTPException) as error:
                self.close()
                if pause is None or isinstance(error, ssl.SSLCertVerificationError):
                    raise ServerUnreachable(f"no answer from {self.address}: {error}") from error
            time.sleep(pause)
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
        if self._secure:
            context = context_of(*(self._files.get(name, "") for name in _FILES))
            return http.client.HTTPSConnection(
                self._host, self._port, timeout=_TIMEOUT, context=context
            )
        return http.client.HTTPConnection(self._host, self._port, timeout=_TIMEOUT)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class WebJournal:
    """Keeps what the answers say of where records stand, so that little is read twice."""

    def __init__(self, url: str, token: str | None = None) -> None:
        self._arguments = (url, token)
        self.web = Web(url, token)
        self._marks: list[Mark] = []

    def __reduce__(self) -> tuple[type[WebJournal], tuple[str, str | None]]:
        return WebJournal, self._arguments

    def view(self, from_seq: int = 0) -> JournalView:
        answer = self.web.call("GET", f"/api/v1/journal?from={from_seq}")
        segments = tuple(_segment(each) for each in answer["segments"])
        earlier = tuple((each["timeline"], each["last_seq"]) for each in answer["earlier"])
        durable = answer["durable_seq"]
        self._note(segments, durable)
        return JournalView(
            answer["timeline"],
            answer["first_seq"],
            durable,
            segments,
            earlier,
            tuple(self._marks),
            self,
        )

    def _note(self, segments: tuple[SegmentView, ...], durable: int) -> None:
        """Where the durable bytes end, the next record will begin."""
        if segments and segments[-1].last_seq == durable >= segments[-1].first_seq:
            last = segments[-1]
            self._keep([Mark(durable + 1, last.base, last.bytes)])

    def _keep(self, marks: list[Mark]) -> None:
        self._marks = newest_marks([*self._marks, *marks])

    def fetch(self, base: int, start: int, end: int) -> bytes:
        parts: list[bytes] = []
        while start < end:
            part = self._fetch(base, start, end)
            if not part:
                break
            parts.append(part)
            start += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _fetch(self, base: int, start: int, end: int) -> bytes:
        path = f"/api/v1/journal/segments/{base}?from={start}&to={end}"
        try:
            return self.web.octets("GET", path)
        except ServerRefused as error:
            if error.status in _GONE:
                raise JournalPassed(segment_name(base)) from error
            raise

    def salt(self) -> bytes:
        return bytes.fromhex(self.web.call("GET", "/api/v1/journal/identity")["salt"])

    def marks(self, piece: Piece, every: int) -> list[Mark]:
        """Look for frames at some places: the segment's salt tells where they begin.

        A payload that holds a copy of journal bytes could pass for one. Then the frames before it
        do not end where it begins, and whoever reads them says so: nothing is read wrongly.
        """
        salt = salt_of(self.fetch(piece.base, 0, SEGMENT_HEADER), piece.base)
        found: list[Mark] = []
        for start in range(piece.start + every, piece.end - every // 2, every):
            data = self.fetch(piece.base, start, min(start + _WINDOW, piece.end))
            frame = next_frame(Content(data, len(data)), 0, len(data), salt)
            if frame is not None:
                found.append(Mark(int(frame.first_seq), piece.base, start + int(frame.offset)))
        self._keep(found)
        return found


class RegisteredReader:
    """A reader of the journal that the server keeps segments for."""

    def __init__(self, web: Web, name: str, lease: float) -> None:
        self._web = web
        self.name = name
        self.lease = lease
        self._path = f"/api/v1/readers/{quote(name, safe='')}"

    def register(self, next_seq: int | None) -> dict[str, Any]:
        """It has all before `next_seq` (None: nothing yet), and what follows is kept for it.

        Also for one that is registered: it never goes backwards.
        """
        body = {"next_seq": next_seq, "lease": self.lease}
        answer: dict[str, Any] = self._web.call("PUT", self._path, body)
        return answer


def _segment(each: dict[str, Any]) -> SegmentView:
    return SegmentView(
        each["base"], each["first_seq"], each["last_seq"], each["bytes"], each["timeline"]
    )


def _server(url: str) -> tuple[bool, str, int | None]:
    """Whether it is spoken to in secret, host and port."""
    try:
        parts = urlsplit(url)
        scheme, host, port = parts.scheme, parts.hostname, parts.port
    except ValueError:  # whose text may show the password
        scheme, host, port = "", None, None
    if not host or scheme not in ("http", "https"):
        raise ValueError(f"{_bare(url)!r} is not an address like http://host:8080")
    return scheme == "https", host, port


def _files(url: str, secure: bool) -> dict[str, str]:
    """Whom to trust, and who to be; all machines that read have them at the same place."""
    files = dict(parse_qsl(urlsplit(url).query, keep_blank_values=True))
    for name, value in files.items():
        if name not in _FILES:
            raise ValueError(f"{_bare(url)}: there is no option {name}, only {', '.join(_FILES)}")
        if not secure or not value:
            needed = "is for https:// only" if not secure else "must name a file"
            raise ValueError(f"{_bare(url)}: the option {name} {needed}")
    if "key" in files and "cert" not in files:
        raise ValueError(f"{_bare(url)}: the option key needs the option cert")
    return files


def _credentials(url: str, token: str | None) -> dict[str, str]:
    if token:
        return {"Authorization": f"Bearer {token}"}
    parts = urlsplit(url)
    if parts.username is None:
        return {}
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return {"Authorization": "Basic " + base64.b64encode(pair.encode()).decode()}


def _bare(url: str) -> str:
    return url.rpartition("@")[2]


def _checked(status: int, answer: bytes) -> bytes:
    if status < 300:
        return answer
    reason = answer.decode(errors="replace")[:500]
    try:
        problem = json.loads(answer)
        reason = problem.get("detail") or problem.get("title") or reason
    except (ValueError, AttributeError):
        pass
    raise ServerRefused(status, reason)
