"""HTTP as bytes and as messages: requests under limits, responses, and errors as problems. No I/O.

The module `connection` runs a connection with them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Protocol
from urllib.parse import parse_qsl, unquote

import httptools
import msgspec

from taskyard.access.principal import ANONYMOUS, Principal
from taskyard.protocols.http.cookies import session_of

HEADER_LIMIT = 65_536  # bytes of the request line and all headers
SMALL_BODY = 16_384  # bytes that are kept of any sender

VERSIONS = ("1.0", "1.1")
OTHER_VERSION = "Only HTTP/1.1 and HTTP/1.0 are spoken here."
# What llhttp says of a request line that names no version it knows.
_VERSION_ERRORS = ("Expected HTTP/", "Expected dot", "version")
# It takes these for HTTP.
_OTHER_PROTOCOLS = (b" RTSP/", b" ICE/")

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"
BODYLESS = (204, 304)
# What every answer has that does not say otherwise: no cache keeps it, and no browser takes it for
# something else than it is.
NO_STORE = "cache-control: no-store"
NO_SNIFF = "x-content-type-options: nosniff"
_DEFAULT_HEADERS = f"{NO_STORE}\r\n{NO_SNIFF}"
# Under TLS: for a year, browsers come back with TLS only.
ONLY_TLS = "strict-transport-security: max-age=31536000"

CONTENT_TYPE = "application/problem+json"
SESSION = "/api/v1/session"  # where a browser logs in
# What a 401 says of how to log in.
CHALLENGES = [
    ("www-authenticate", 'Basic realm="taskyard", charset="UTF-8"'),
    ("www-authenticate", 'Bearer realm="taskyard"'),
]


# What a handler sees: a request, and the exchange through which it answers. An answer may come at
# once or later (a payload that must be read back, a long list), and it waits for the journal like
# any reply.


@dataclass(slots=True)
class Request:
    method: str
    path: str  # decoded, without the query
    query: dict[str, str] = field(default_factory=dict)  # the last value of each name
    headers: dict[str, str] = field(default_factory=dict, repr=False)  # names in lower case
    body: bytes = field(default=b"", repr=False)
    peer: str = ""  # host:port of the client
    principal: Principal = ANONYMOUS
    params: dict[str, str] = field(default_factory=dict)  # what the route's {names} stand for
    certificate: str = ""  # the common name of the client's, if TLS has verified one
    connection: int = 0  # its number in the log
    id: str = ""  # what the log calls the request, and its answer has as X-Request-Id


@dataclass(slots=True)
class Response:
    """An answer; `position` is the journal position that must be durable before it is sent."""

    status: int
    body: bytes = b""
    content_type: str = "application/json"
    headers: list[tuple[str, str]] = field(default_factory=list)
    position: int = 0


class Stream(Protocol):
    """The body of a response without an end, such as server-sent events."""

    def send(self, data: bytes, position: int = 0) -> None: ...

    def accepts_more(self) -> bool:
        """Whether the client reads what it is sent; if not, `on_writable` says when it does."""
        ...

    def close(self) -> None: ...


class Exchange(Protocol):
    """One request and its one answer: either `reply` or `stream`, once."""

    @property
    def request(self) -> Request: ...

    def reply(self, response: Response) -> None: ...

    def stream(
        self,
        content_type: str,
        *,
        on_writable: Callable[[], None],
        on_close: Callable[[], None],
    ) -> Stream:
        """Begin an answer without an end; `on_close`: the client has gone."""
        ...


Handler = Callable[[Exchange], None]


# The principal, or the answer to wrong credentials; None: it takes a while, and the function
# will be called with it in a turn of the loop's own.
Identify = Callable[[Request, Callable[[Principal | Response], None]], Principal | Response | None]


def anonymous(request: Request, later: Callable[[Principal | Response], None]) -> Principal:
    """There are no users."""
    return ANONYMOUS


@dataclass(frozen=True, slots=True)
class Route:
    method: str
    pattern: str  # /api/v1/queues/{queue}: a {name} stands for one segment, decoded
    handler: Handler


# Requests out of a stream of bytes, however it arrives


class BadRequest(Exception):
    """The input is not HTTP, or too much of it; the connection cannot continue."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


class ParsedRequest:
    """A request as it was parsed, with what the connection must know of it."""

    def __init__(self, request: Request, raw_path: str, keep_alive: bool) -> None:
        self.request = request
        self.raw_path = raw_path
        self.keep_alive = keep_alive


class Parser:
    """Feed bytes; complete requests are in `ready`.

    After an upgrade request nothing more is parsed: what belongs to the next protocol is in
    `upgrade_bytes`.
    """

    def __init__(self, body_limit: int) -> None:
        self._body_limit = body_limit
        self._parser = httptools.HttpRequestParser(self)
        self._in_head = True
        self._head_size = 0
        # the input, behind what has arrived of an incomplete head
        self._head_bytes = b""
        self._checked_lines_end = 0  # of the request lines in there that were checked
        self._is_plain: bool | None = None  # nothing in there names another protocol; if known
        self.ready: deque[ParsedRequest] = deque()
        self.pending_bytes = 0  # bytes of bodies in `ready`, and of what follows an upgrade
        self.wants_continue = False  # the client waits before it sends the body
        self.upgrade = False  # the last request in `ready` is an upgrade
        self.upgrade_bytes = b""
        self.idle = True  # between two requests
        # the one that is coming, once its body is not small
        self.large_request: Request | None = None
        self._reset()

    def feed(self, data: bytes) -> None:
        if self.upgrade:  # which may take a while
            self.upgrade_bytes += data
            self.pending_bytes += len(data)
            return
        if self._in_head:
            self._head_size += len(data)
        else:
            self._trailer_bytes += len(data)
        heads = self._head_bytes + data
        self._head_bytes = heads
        self._checked_lines_end = 0
        self._is_plain = None
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self.upgrade = True
            self.upgrade_bytes = data[upgrade.args[0] :]
            self._head_bytes = b""
            return
        except httptools.HttpParserError as error:
            cause = error.__context__
            if isinstance(cause, BadRequest):
                raise cause from None
            if any(words in str(error) for words in _VERSION_ERRORS):
                raise BadRequest(505, OTHER_VERSION) from None
            raise BadRequest(400, f"This is not HTTP/1.1: {error}.") from None
        # Of requests that are there in whole, nothing but perhaps the last one's body is kept.
        self._head_bytes = (
            heads.rpartition(b"\r\n\r\n")[2] if self._in_head and not self.idle else b""
        )
        if self._in_head and self._head_size > HEADER_LIMIT:
            raise BadRequest(431, f"The headers are longer than {HEADER_LIMIT} bytes.")
        if self._trailer_bytes > HEADER_LIMIT:
            raise BadRequest(431, f"The trailers are longer than {HEADER_LIMIT} bytes.")

    def buffered_bytes(self) -> int:
        """Bytes of all that was not taken, whole or not."""
        if self.idle:
            return self.pending_bytes
        return self.pending_bytes + self._size + self._head_size + self._trailer_bytes

    def next_request(self) -> ParsedRequest | None:
        if not self.ready:
            return None
        incoming = self.ready.popleft()
        self.pending_bytes -= len(incoming.request.body)
        return incoming

    # From httptools

    def on_message_begin(self) -> None:
        self.idle = False
        self._reset()

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_head:
            return  # behind the body, where nothing is of use here
        key = name.decode("latin-1").lower()
        text = value.decode("latin-1")
        known = self._headers.get(key)
        self._headers[key] = text if known is None else f"{known}, {text}"

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._head_size = 0
        if self._parser.get_http_version() not in VERSIONS or self._names_other_protocol():
            raise BadRequest(505, OTHER_VERSION)
        length = self._headers.get("content-length", "0")
        if length.isdigit() and int(length) > self._body_limit:
            raise BadRequest(413, f"The body is larger than {self._body_limit} bytes.")
        if length.isdigit() and int(length) > SMALL_BODY:
            self.large_request = self._request()
        if self._headers.get("expect", "").lower() == "100-continue":
            self.wants_continue = True

    def _names_other_protocol(self) -> bool:
        """Whether the request line ends in the version of a protocol that only looks like HTTP."""
        heads = self._head_bytes
        if self._is_plain is None:  # checked once a piece, which may have thousands of requests
            self._is_plain = not any(name in heads for name in _OTHER_PROTOCOLS)
        if self._is_plain:
            return False
        begin = self._checked_lines_end
        line = heads.find(self._url + b" HTTP/", begin)
        if line < 0:  # it is of another one, or has blanks that leave that open
            return True
        if any(heads.find(self._url + name, begin, line) >= 0 for name in _OTHER_PROTOCOLS):
            return True
        self._checked_lines_end = line + 1  # the next request of this piece may have the same path
        return False

    def on_body(self, body: bytes) -> None:
        self._size += len(body)
        self._trailer_bytes = 0
        if self._size > self._body_limit:
            raise BadRequest(413, f"The body is larger than {self._body_limit} bytes.")
        if self._size > SMALL_BODY and self.large_request is None:
            self.large_request = self._request()
        self._body.append(body)

    def on_message_complete(self) -> None:
        self._in_head = True
        self._head_size = 0
        self.wants_continue = False
        self.idle = True
        request = self.large_request or self._request()
        self.large_request = None
        request.body = b"".join(self._body)
        self.pending_bytes += len(request.body)
        self.ready.append(ParsedRequest(request, self._path, self._parser.should_keep_alive()))

    def _request(self) -> Request:
        """What the head says."""
        path, _, query = self._url.decode("latin-1").partition("?")
        if path.startswith(("http://", "https://")):  # as to a proxy, which is allowed too
            path = "/" + path.split("/", 3)[3] if path.count("/") > 2 else "/"
        self._path = path
        return Request(
            self._parser.get_method().decode("latin-1"),
            unquote(path),
            dict(parse_qsl(query, keep_blank_values=True)),
            self._headers,
        )

    def _reset(self) -> None:
        self._url = b""
        self._path = ""
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        self._size = 0
        self._trailer_bytes = 0  # bytes behind the last ones of the body: of chunks and of trailers


# Responses as bytes


def encode(
    response: Response,
    *,
    keep_alive: bool,
    head_only: bool,
    request_id: str = "",
    secure: bool = False,
) -> bytes:
    lines = [_status_line(response.status)]
    if response.status not in BODYLESS:
        lines.append(f"content-type: {response.content_type}")
        lines.append(f"content-length: {len(response.body)}")
    headers = response.headers
    if not headers:
        lines.append(_DEFAULT_HEADERS)
    else:
        lines.extend([f"{name}: {value}" for name, value in headers])
        names = [name for name, _ in headers]
        if "cache-control" not in names:
            lines.append(NO_STORE)
        if "x-content-type-options" not in names:
            lines.append(NO_SNIFF)
    if secure:
        lines.append(ONLY_TLS)
    if request_id:
        lines.append(f"x-request-id: {request_id}")
    if not keep_alive:
        lines.append("connection: close")
    head = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
    return head if head_only or response.status in BODYLESS else head + response.body


def encode_stream_head(content_type: str, request_id: str = "", secure: bool = False) -> bytes:
    """The head of a response in chunks, which no cache and no proxy should hold back."""
    lines = [
        _status_line(200),
        f"content-type: {content_type}",
        NO_STORE,
        NO_SNIFF,
        "x-accel-buffering: no",
        "transfer-encoding: chunked",
    ]
    if secure:
        lines.append(ONLY_TLS)
    if request_id:
        lines.append(f"x-request-id: {request_id}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def encode_chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _status_line(status: int) -> str:
    return f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"


# Errors as application/problem+json (RFC 9457): a sentence that a person can act on


def login_required(detail: str) -> Response:
    """The answer to a client that has to log in first."""
    answer = problem(401, detail)
    answer.headers.extend(CHALLENGES)
    return answer


def without_prompt(request: Request, refusal: Response) -> Response:
    """The answer to a request of a page: for Basic a browser would ask for a password itself, while
    the page is about to show its own form.
    """
    headers = request.headers
    from_page = (
        session_of(request) is not None
        or "x-requested-with" in headers
        or headers.get("sec-fetch-dest") == "empty"
        or "text/event-stream" in headers.get("accept", "")
        or request.path.startswith(SESSION)
    )
    if from_page:
        refusal.headers = [each for each in refusal.headers if each != CHALLENGES[0]]
    return refusal


def problem(status: int, detail: str, **more: object) -> Response:
    body = {"title": HTTPStatus(status).phrase, "status": status, "detail": detail, **more}
    return Response(status, msgspec.json.encode(body), CONTENT_TYPE)


def no_route(request: Request, allowed: list[str]) -> Response:
    """No route has this path; or, if some methods are allowed, this method."""
    if not allowed:
        return problem(404, f"There is nothing at {request.path}.")
    names = ", ".join(allowed)
    answer = problem(405, f"{request.method} is not possible at {request.path}, only {names}.")
    answer.headers.append(("allow", names))
    return answer
