"""Cursors: the position after which a list continues, as an opaque text.

A cursor names a position, not a job, so it stays valid when the job at that position has left.
"""

from __future__ import annotations

import base64
import binascii
from bisect import bisect_right
from typing import Annotated, Final, TypeVar

import msgspec
from msgspec import Meta, Struct

from taskyard.protocols.http.api.problems import INVALID_CURSOR, ApiProblem

MAX_CURSOR_CHARS: Final = 1024  # characters: names are at most 255 bytes

# What fits the engine's numbers; a walk counts on from the id.
Number = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
Id = Annotated[int, Meta(ge=0, le=(1 << 63) - 2)]


class NameCursor(Struct, array_like=True, forbid_unknown_fields=True, tag="n"):
    """Behind this queue."""

    name: str


class JobCursor(Struct, array_like=True, forbid_unknown_fields=True, tag="j"):
    """Behind this place in one state of one queue."""

    queue: str
    state: str
    priority: Number
    position: Number
    id: Id


class FinishedCursor(Struct, array_like=True, forbid_unknown_fields=True, tag="r"):
    """Before this job among the finished ones."""

    id: Id


class RecordCursor(Struct, array_like=True, forbid_unknown_fields=True, tag="e"):
    """Before this record of the journal, among those of one job."""

    job: Id
    seq: Annotated[int, Meta(ge=1, le=(1 << 63) - 2)]
    whole: bool  # its push was among those before


CursorType = TypeVar("CursorType", NameCursor, JobCursor, FinishedCursor, RecordCursor)


def write_cursor(position: NameCursor | JobCursor | FinishedCursor | RecordCursor) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(position)).decode().rstrip("=")


def read_cursor(text: str, kind: type[CursorType]) -> CursorType:
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True)
        return msgspec.json.decode(data, type=kind)
    except (ValueError, binascii.Error, msgspec.MsgspecError):
        raise invalid_cursor() from None


def invalid_cursor() -> ApiProblem:
    return ApiProblem(
        INVALID_CURSOR,
        "The cursor is not one of this list: begin without one, then pass on the `next` of each "
        "answer as it is.",
        field="cursor",
    )


def page_of_names(names: list[str], limit: int, cursor: str) -> tuple[list[str], str | None]:
    """A page of names that are in order, and the cursor to what follows it."""
    start = bisect_right(names, read_cursor(cursor, NameCursor).name) if cursor else 0
    page = names[start : start + limit]
    more = start + limit < len(names)
    return page, write_cursor(NameCursor(page[-1])) if more else None
