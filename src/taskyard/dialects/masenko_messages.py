"""The JSON of Masenko's commands: typed, checked, decoded in one go. Not compiled: see msgspec."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Raw, Struct

from taskyard.duration import parse_nanoseconds

JobId = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]


class Push(Struct, gc=False):
    """null stands for an option that was left out, as it does for the clients in Go."""

    name: str | None = None
    queue: str | None = None
    deadqueue: str | None = None
    payload: Raw = Raw(b"")
    retry: Annotated[int, Meta(ge=0, le=255)] | None = None
    execute_at: str | None = None
    blocked_by: list[JobId] | None = None


class Fetch(Struct, gc=False):
    queues: list[str] | None = None
    timeout: int | str | None = None


class Finish(Struct, gc=False):
    id: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None = None


class Credentials(Struct):
    user: str = ""
    password: str = ""
    token: str = ""


PushFields = tuple[
    str | None, str | None, str | None, Raw, int | None, str | None, list[int] | None
]
push_fields: Final[Callable[[Push], PushFields]] = msgspec.structs.astuple
decode_push: Final = msgspec.json.Decoder(Push).decode
decode_raw: Final = msgspec.json.Decoder(Raw).decode
decode_fetch: Final = msgspec.json.Decoder(Fetch).decode
decode_finish: Final = msgspec.json.Decoder(Finish).decode
decode_credentials: Final = msgspec.json.Decoder(Credentials).decode
encode_json: Final = msgspec.json.Encoder().encode

# A RecursionError is a document nested beyond all reason.
MALFORMED: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def timeout_of(message: Fetch, default: int) -> int:
    """Nanoseconds: an integer on the wire, or a string that is a Go duration."""
    timeout = message.timeout
    if timeout is None:
        return default
    return _nanoseconds(timeout) if isinstance(timeout, str) else timeout


@lru_cache(maxsize=1024)
def _nanoseconds(timeout: str) -> int:
    """Workers say the same again and again."""
    return parse_nanoseconds(timeout)
