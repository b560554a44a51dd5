"""Errors of the API as application/problem+json, and the cursors of its lists.

Problems have one table of kinds; the document and the answers are both made from it.
"""

from __future__ import annotations

import base64
import binascii
import re
from bisect import bisect_right
from collections.abc import Collection
from typing import Annotated, Any, Final, NamedTuple, TypeVar, get_args, get_type_hints

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from taskyard.engine.model.events import (
    Draining,
    DuplicateJob,
    InvalidOption,
    JobNotFound,
    NoSpace,
    QueueFull,
    QueueNotFound,
    ReaderNotFound,
    ReadOnly,
    ScheduleNotFound,
    SchedulesFull,
    TaskyardError,
    TransactionStepRefused,
    UidTaken,
    WrongState,
)
from taskyard.protocols.http.wire import CHALLENGES, CONTENT_TYPE, Response
from taskyard.shared.misspelt import suggestion

PREFIX: Final = "urn:taskyard:problem:"

BAD_REQUEST: Final = "bad-request"
INVALID_VALUE: Final = "invalid-value"
INVALID_CURSOR: Final = "invalid-cursor"
UNAUTHENTICATED: Final = "unauthenticated"
DENIED: Final = "denied"
JOB_NOT_FOUND: Final = "job-not-found"
QUEUE_NOT_FOUND: Final = "queue-not-found"
SCHEDULE_NOT_FOUND: Final = "schedule-not-found"
NO_LAKE: Final = "no-lake"
READER_NOT_FOUND: Final = "reader-not-found"
CONSUMER_NOT_FOUND: Final = "consumer-not-found"
SEGMENT_NOT_FOUND: Final = "segment-not-found"
SEGMENT_GONE: Final = "segment-gone"
NO_USERS: Final = "no-users"
WRONG_POSITION: Final = "wrong-position"
WRONG_STATE: Final = "wrong-state"
QUEUE_NOT_EMPTY: Final = "queue-not-empty"
DUPLICATE_UID: Final = "duplicate-uid"
UID_TAKEN: Final = "uid-taken"
TOO_LARGE: Final = "too-large"
MEDIA_TYPE: Final = "unsupported-media-type"
QUEUE_FULL: Final = "queue-full"
SCHEDULES_FULL: Final = "schedules-full"
READ_ONLY: Final = "read-only"
DISK_ERROR: Final = "disk-error"
LAKE_BUSY: Final = "lake-busy"
LAKE_FAILED: Final = "lake-failed"
NO_SPACE: Final = "no-space"
DRAINING: Final = "draining"

# How the JSON decoder says where a body is wrong, and what is.
_AT: Final = re.compile(r" - at `\$\.?([^`]*)`$")
_NAMED: Final = re.compile(r"field `([^`]*)`")
_UNKNOWN: Final = re.compile(r"unknown field `(.*)`", re.DOTALL)
_NO_CHOICE: Final = re.compile(r"Invalid enum value '(.*)'", re.DOTALL)
_SHOWN: Final = 100  # characters of a word that a client has sent

MAX_CURSOR_CHARS: Final = 1024  # characters: names are at most 255 bytes

# What fits the engine's numbers; a walk counts on from the id.
Number = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
Id = Annotated[int, Meta(ge=0, le=(1 << 63) - 2)]


class ProblemKind(NamedTuple):
    status: int
    title: str


KINDS: Final[dict[str, ProblemKind]] = {
    BAD_REQUEST: ProblemKind(400, "The request cannot be read"),
    INVALID_VALUE: ProblemKind(400, "A value cannot be used"),
    INVALID_CURSOR: ProblemKind(400, "The cursor is not one of this list"),
    UNAUTHENTICATED: ProblemKind(401, "Only for those who log in"),
    DENIED: ProblemKind(403, "Not allowed"),
    JOB_NOT_FOUND: ProblemKind(404, "There is no such job"),
    QUEUE_NOT_FOUND: ProblemKind(404, "There is no such queue"),
    SCHEDULE_NOT_FOUND: ProblemKind(404, "There is no such schedule"),
    NO_LAKE: ProblemKind(404, "The server runs no lake"),
    READER_NOT_FOUND: ProblemKind(404, "There is no such reader"),
    CONSUMER_NOT_FOUND: ProblemKind(404, "There is no such consumer"),
    SEGMENT_NOT_FOUND: ProblemKind(404, "There is no such segment"),
    NO_USERS: ProblemKind(409, "The server has no users"),
    WRONG_POSITION: ProblemKind(409, "The reader cannot be there"),
    WRONG_STATE: ProblemKind(409, "The job's state does not allow it"),
    QUEUE_NOT_EMPTY: ProblemKind(409, "The queue still has jobs"),
    DUPLICATE_UID: ProblemKind(409, "A uid stands twice in the batch"),
    UID_TAKEN: ProblemKind(409, "Another push has the uid"),
    SEGMENT_GONE: ProblemKind(410, "The segment is gone"),
    TOO_LARGE: ProblemKind(413, "Too large"),
    MEDIA_TYPE: ProblemKind(415, "The body has a content type that is not understood here"),
    QUEUE_FULL: ProblemKind(429, "The queue is full"),
    SCHEDULES_FULL: ProblemKind(429, "There are too many schedules"),
    READ_ONLY: ProblemKind(503, "The server cannot write"),
    DISK_ERROR: ProblemKind(503, "The disk cannot be read"),
    LAKE_BUSY: ProblemKind(503, "Too many ask the lake"),
    LAKE_FAILED: ProblemKind(503, "The lake cannot be asked"),
    DRAINING: ProblemKind(503, "Nothing is pushed here for now"),
    NO_SPACE: ProblemKind(507, "There is no room on the disk"),
}


Type = Annotated[str, Meta(extra_json_schema={"enum": [PREFIX + kind for kind in KINDS]})]


class ProblemDetails(Struct, kw_only=True, forbid_unknown_fields=True):
    """Why a request was refused (RFC 9457)."""

    type: Type
    title: str
    status: Annotated[int, Meta(ge=400, le=599)]
    detail: Annotated[str, Meta(description="A sentence that says what to do about it.")]
    field: Annotated[str, Meta(description="The field or parameter at fault.")] | UnsetType = UNSET
    line: Annotated[int, Meta(ge=1, description="The line of a batch.")] | UnsetType = UNSET
    done: (
        Annotated[int, Meta(ge=0, description="How many jobs were dealt with before.")] | UnsetType
    ) = UNSET
    first_seq: (
        Annotated[int, Meta(ge=1, description="The first record that there still is.")] | UnsetType
    ) = UNSET


class ApiProblem(Exception):
    def __init__(
        self,
        kind: str,
        detail: str,
        *,
        field: str | UnsetType = UNSET,
        line: int | UnsetType = UNSET,
        done: int | UnsetType = UNSET,
        first_seq: int | UnsetType = UNSET,
    ) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail
        self.field = field
        self.line = line
        self.done = done
        self.first_seq = first_seq

    def response(self, position: int) -> Response:
        status, title = KINDS[self.kind]
        body = ProblemDetails(
            type=PREFIX + self.kind,
            title=title,
            status=status,
            detail=self.detail,
            field=self.field,
            line=self.line,
            done=self.done,
            first_seq=self.first_seq,
        )
        headers = list(CHALLENGES) if self.kind == UNAUTHENTICATED else []
        return Response(status, msgspec.json.encode(body), CONTENT_TYPE, headers, position)


def invalid_value(field: str, detail: str) -> ApiProblem:
    return ApiProblem(INVALID_VALUE, detail, field=field)


def queue_not_found(name: str) -> ApiProblem:
    return ApiProblem(
        QUEUE_NOT_FOUND,
        f"There is no queue {name!r}: it begins with its first push, or with PUT "
        "/api/v1/queues/{queue}.",
    )


def schedule_not_found(name: str) -> ApiProblem:
    return ApiProblem(
        SCHEDULE_NOT_FOUND,
        f"There is no schedule {name!r}: make one with PUT /api/v1/schedules/{{schedule}}.",
    )


def reader_not_found(name: str) -> ApiProblem:
    return ApiProblem(
        READER_NOT_FOUND,
        f"There is no reader {name!r}: register it with PUT /api/v1/readers/{{reader}}.",
    )


def consumer_not_found(name: str) -> ApiProblem:
    return ApiProblem(
        CONSUMER_NOT_FOUND, f"There is no consumer {name!r}: it begins with its first batch."
    )


def job_not_found(which: str) -> ApiProblem:
    return ApiProblem(
        JOB_NOT_FOUND,
        f"There is no job {which}: it never was, or it ended so long ago that it is forgotten.",
    )


# The engine's refusals whose only detail is their own text.
_REFUSALS: Final[tuple[tuple[type[TaskyardError], str, str], ...]] = (
    (JobNotFound, JOB_NOT_FOUND, "The job is gone."),
    (WrongState, WRONG_STATE, "This cannot be done now: {}."),
    (ReadOnly, READ_ONLY, "The server is read-only until it is restarted: {}. See its log."),
    (QueueFull, QUEUE_FULL, "Try again when some of its jobs are done: the {}."),
    (
        SchedulesFull,
        SCHEDULES_FULL,
        "Delete one first, or start the server with a larger bound: {}.",
    ),
    (Draining, DRAINING, "Push elsewhere, or when that is over: {}."),
    (NoSpace, NO_SPACE, "Nothing can be added until there is room on the server's disk: {}."),
)


def problem_of(error: TaskyardError) -> ApiProblem:
    """The engine's refusal in the words of the API."""
    if isinstance(error, TransactionStepRefused):
        problem = problem_of(error.cause)
        problem.line = error.index + 1
        problem.detail = f"Line {problem.line}: {problem.detail}"
        return problem
    for refusal, kind, text in _REFUSALS:
        if isinstance(error, refusal):
            return ApiProblem(kind, text.format(error))
    if isinstance(error, QueueNotFound):
        return queue_not_found(str(error))
    if isinstance(error, ScheduleNotFound):
        return schedule_not_found(str(error))
    if isinstance(error, ReaderNotFound):
        return reader_not_found(str(error))
    if isinstance(error, DuplicateJob):
        return ApiProblem(
            DUPLICATE_UID, "Two lines have this uid: each job needs its own.", field="uid"
        )
    if isinstance(error, UidTaken):
        return ApiProblem(
            UID_TAKEN,
            "A push to another queue or of another user has this uid, so this one does not repeat "
            "it, and nothing is pushed: give the job a uid of its own.",
            field="uid",
        )
    if isinstance(error, InvalidOption):
        kind = TOO_LARGE if error.reason == "too large" else INVALID_VALUE
        return ApiProblem(
            kind, f"The value of {error.option} is refused: {error.reason}.", field=error.option
        )
    return ApiProblem(BAD_REQUEST, f"The request is refused: {error}.")


def unknown_parameter(name: str, known: Collection[str]) -> ApiProblem:
    there_are = f"There are {', '.join(known)}." if known else "There are none."
    return invalid_value(
        name, f"There is no parameter {name} here{suggestion(name, known)} {there_are}"
    )


def malformed_body(error: Exception, kind: Any) -> ApiProblem:
    """What the JSON decoder says of a body of that kind, with the field it speaks of."""
    text = str(error)
    at = _AT.search(text)
    found = at or _NAMED.search(text)
    field = found[1] if found is not None else ""
    if not isinstance(error, msgspec.ValidationError):
        if isinstance(error, RecursionError):
            text = "it is nested too deeply"
        return ApiProblem(BAD_REQUEST, f"The body is not JSON that can be read: {text}.")
    text = _AT.sub("", text)
    there = _type_at(kind, at[1] if at is not None else "")
    if unknown := _UNKNOWN.search(text):
        return _unknown_field(unknown[1], _fields_of(there), field)
    where = f" in {field}" if field and f"`{field}`" not in text else ""
    text = f"{text}{where}."
    if no_choice := _NO_CHOICE.search(text):
        choices = _choices_of(there)
        text = f"{text[:-1]}{suggestion(no_choice[1], choices)} There are {', '.join(choices)}."
    return ApiProblem(INVALID_VALUE, text, field=field.partition("[")[0] or UNSET)


def _unknown_field(name: str, known: list[str], field: str) -> ApiProblem:
    shown = name[:_SHOWN]
    where = f" in {field}" if field != name else ""
    there_are = f"There are {', '.join(known)}." if known else ""
    detail = f"There is no field `{shown}`{where}{suggestion(shown, known)} {there_are}"
    return ApiProblem(INVALID_VALUE, detail, field=field.partition("[")[0] or UNSET)


def _type_at(kind: Any, path: str) -> Any:
    """The type of what stands there: `rate.per` of a body that has a field `rate`."""
    for name in re.split(r"[.\[]", path):
        if not name or name.endswith("]"):
            continue  # of a list: its items are among the parts of its type
        structs = [part for part in _parts_of(kind) if _is_struct(part)]
        hints = [get_type_hints(struct, include_extras=True) for struct in structs]
        kind = next((hint[name] for hint in hints if name in hint), None)
    return kind


def _parts_of(kind: Any) -> list[Any]:
    """The type, or those that it is made of."""
    return [kind] + [part for inner in get_args(kind) for part in _parts_of(inner)]


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Struct)


def _fields_of(kind: Any) -> list[str]:
    structs = [part for part in _parts_of(kind) if _is_struct(part)]
    return list(structs[0].__struct_fields__) if structs else []


def _choices_of(kind: Any) -> list[str]:
    return [part for part in _parts_of(kind) if isinstance(part, str)]


# Cursors: the position after which a list continues, as an opaque text. A cursor names a position,
# not a job, so it stays valid when the job at that position has left.


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
