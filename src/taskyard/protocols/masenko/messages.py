"""The JSON of Masenko's commands: typed, checked, decoded in one go. Not compiled: see msgspec.

The decoders take keys as nearly all clients spell them, and nothing else. What they refuse may be
spelled in another way that the original takes: `normalize_keys` writes it as they take it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Raw, Struct

from taskyard.shared.text import parse_nanoseconds

JobId = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]


class PushMessage(Struct, gc=False, forbid_unknown_fields=True):
    """null stands for an option that was left out, as it does for the clients in Go."""

    name: str | None = None
    queue: str | None = None
    deadqueue: str | None = None
    payload: Raw = Raw(b"")
    retry: Annotated[int, Meta(ge=0, le=255)] | None = None
    execute_at: str | None = None
    blocked_by: list[JobId] | None = None


class FetchMessage(Struct, gc=False, forbid_unknown_fields=True):
    queues: list[str] | None = None
    timeout: int | str | None = None


class FinishMessage(Struct, gc=False, forbid_unknown_fields=True):
    id: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None = None


class CredentialsMessage(Struct, forbid_unknown_fields=True):
    user: str = ""
    password: str = ""
    token: str = ""


PushFields = tuple[
    str | None, str | None, str | None, Raw, int | None, str | None, list[int] | None
]
push_fields: Final[Callable[[PushMessage], PushFields]] = msgspec.structs.astuple
decode_push: Final = msgspec.json.Decoder(PushMessage).decode
decode_raw: Final = msgspec.json.Decoder(Raw).decode
decode_fetch: Final = msgspec.json.Decoder(FetchMessage).decode
decode_finish: Final = msgspec.json.Decoder(FinishMessage).decode
decode_credentials: Final = msgspec.json.Decoder(CredentialsMessage).decode
encode_json: Final = msgspec.json.Encoder().encode

# A RecursionError is a document nested beyond all reason.
MALFORMED: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


_decode_pairs: Final = msgspec.json.Decoder(dict[str, Raw] | None).decode
_PAYLOAD: Final = "payload"


def normalize_keys(text: bytes, fields: tuple[str, ...]) -> bytes:
    """The same request with its keys as the decoders take them, and without those that are unknown.

    As the original does it: case does not matter, the last of several values counts, unless it is
    null, and null is a request that says nothing. Raises what is in MALFORMED.
    """
    pairs = _decode_pairs(text)
    if pairs is None:
        return b"{}"
    keys = [key for key in pairs if _fold_case(key) in fields]
    if len({_fold_case(key) for key in keys}) < len(keys):
        order = json.loads(text, object_pairs_hook=_keys_of_pairs, parse_int=str)  # it may be long
        last = {key: at for at, key in enumerate(order)}
        keys.sort(key=last.__getitem__)
    found: dict[str, bytes] = {}
    for key in keys:
        field = _fold_case(key)
        value = bytes(pairs[key])
        if value != b"null" or field == _PAYLOAD:
            found[field] = value
    members = [b'"' + field.encode() + b'":' + value for field, value in found.items()]
    return b"{" + b",".join(members) + b"}"


def _keys_of_pairs(pairs: list[tuple[str, object]]) -> list[str]:
    return [key for key, _ in pairs]


def _fold_case(key: str) -> str:
    return key.lower().replace("\u017f", "s")  # the only other letter with such a case


PUSH_FIELDS: Final = PushMessage.__struct_fields__
FETCH_FIELDS: Final = FetchMessage.__struct_fields__
FINISH_FIELDS: Final = FinishMessage.__struct_fields__
CREDENTIALS_FIELDS: Final = CredentialsMessage.__struct_fields__


def timeout_of(message: FetchMessage, default: int) -> int:
    """Nanoseconds: an integer on the wire, or a string that is a Go duration."""
    timeout = message.timeout
    if timeout is None:
        return default
    return _nanoseconds(timeout) if isinstance(timeout, str) else timeout


@lru_cache(maxsize=1024)
def _nanoseconds(timeout: str) -> int:
    """Workers say the same again and again."""
    return parse_nanoseconds(timeout)
