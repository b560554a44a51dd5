"""The JSON API through the command API: requests, and how their answers are read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar
from urllib.parse import quote, urlencode

import msgspec
from msgspec import Raw

from taskyard.client.commands import (
    Call,
    JobRef,
    Reply,
    ScheduleOptions,
    Word,
    job_ref_text,
    raise_if_refused,
    schedule_body,
    unexpected_reply,
)
from taskyard.client.errors import (
    Denied,
    Draining,
    JobNotFound,
    NotNow,
    Problem,
    QueueFull,
    QueueNotFound,
    Refused,
    ScheduleNotFound,
)
from taskyard.client.views import (
    ConsumerInfo,
    DeadGroups,
    DeadLetter,
    HeldJob,
    JobInfo,
    PurgedDead,
    Pushed,
    QueueInfo,
    ReaderInfo,
    Replayed,
    ScheduleInfo,
    ServerInfo,
    SettingsOptions,
)
from taskyard.shared.misspelt import check_names

T = TypeVar("T")

_ROOT: Final = "/api/v1"
_JSON: Final = "application/json"
_PAGE_ITEMS: Final = 1000  # items
_PROBLEM: Final = "urn:taskyard:problem:"
# The last of them if it is nested too deeply.
_UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class JobProblem(JobNotFound, Problem):
    pass


class QueueProblem(QueueNotFound, Problem):
    pass


class ScheduleProblem(ScheduleNotFound, Problem):
    pass


class DrainingProblem(Draining, Problem):
    pass


class DeniedProblem(Denied, Problem):
    pass


class FullProblem(QueueFull, Problem):
    pass


class NotNowProblem(NotNow, Problem):
    pass


_CLASSES: Final[dict[str, type[Problem]]] = {
    "job-not-found": JobProblem,
    "queue-not-found": QueueProblem,
    "schedule-not-found": ScheduleProblem,
    "draining": DrainingProblem,
    "unauthenticated": DeniedProblem,
    "denied": DeniedProblem,
    "queue-full": FullProblem,
    "read-only": NotNowProblem,
    "disk-error": NotNowProblem,
    "no-space": NotNowProblem,
}


class _Problem(msgspec.Struct):
    type: str = ""
    title: str = ""
    status: int = 0
    detail: str = ""


def call(
    method: str,
    path: str,
    body: object = None,
    *,
    query: Mapping[str, object] | None = None,
    into: Any = Any,
    repeat: bool | None = None,
    content_type: str = _JSON,
) -> Call[Any]:
    """Repeated are those that change nothing, unless it is said."""
    method = method.upper()
    if query:
        path += "?" + urlencode({name: str(value) for name, value in query.items()})
    words: list[Word] = ["API", method, path]
    if body is not None:
        words += (body if isinstance(body, bytes) else msgspec.json.encode(body), content_type)

    def read(reply: Reply, again: bool) -> Any:
        return _decode_answer(reply, into)

    return Call(
        words,
        read,
        repeatable=method == "GET" if repeat is None else repeat,
        own_connection=method != "GET",  # purging and replaying can take long
    )


def _decode_answer(reply: Reply, into: Any) -> Any:
    found = raise_if_refused(reply)
    match found:
        case [int(status), bytes(body), *_]:
            pass
        case _:
            raise unexpected_reply(found)
    if status >= 400:
        raise problem_from_answer(status, body)
    if not body:
        return None
    try:
        return msgspec.json.decode(body, type=into)
    except _UNREADABLE:
        raise unexpected_reply(found) from None


def problem_from_answer(status: int, body: bytes) -> Refused:
    try:
        told = msgspec.json.decode(body, type=_Problem)
    except _UNREADABLE:
        told = _Problem()
    kind = told.type.removeprefix(_PROBLEM)
    error = _CLASSES.get(kind, Problem)(told.detail or told.title or f"the answer is {status}")
    error.status = status
    error.kind = kind
    return error


class Pages(Generic[T]):
    """A list in pages."""

    def __init__(
        self, path: str, key: str, into: type[T], query: Mapping[str, object], limit: int | None
    ) -> None:
        self._path = path
        self._key = key
        self._items = msgspec.json.Decoder(list[into])  # type: ignore[valid-type]
        self._query = dict(query)
        self._remaining = limit
        self._is_exhausted = limit is not None and limit <= 0

    def next_call(self) -> Call[dict[str, Raw]] | None:
        """Return the request for the next page; None after the last one."""
        if self._is_exhausted:
            return None
        size = _PAGE_ITEMS if self._remaining is None else min(_PAGE_ITEMS, self._remaining)
        return call("GET", self._path, query={**self._query, "limit": size}, into=dict[str, Raw])

    def read_page(self, page: dict[str, Raw]) -> Sequence[T]:
        found: list[T] = self._items.decode(page[self._key])
        cursor = msgspec.json.decode(page["next"], type=str | None) if "next" in page else None
        if self._remaining is not None:
            self._remaining -= len(found)
        self._is_exhausted = cursor is None or self._remaining == 0
        self._query["cursor"] = cursor
        return found


class ApiCalls:
    """All routes; queues are those of one database."""

    def __init__(self, prefix: str = "") -> None:
        self._prefix = prefix

    def _queue(self, name: str) -> str:
        return f"{_ROOT}/queues/{quote(self._prefix + name, safe='')}"

    @staticmethod
    def _job(job: JobRef) -> str:
        return f"{_ROOT}/jobs/{job_ref_text(job)}"

    @staticmethod
    def _schedule(name: str) -> str:
        return f"{_ROOT}/schedules/{quote(name, safe='')}"

    # Jobs

    def inspect(self, job: JobRef) -> Call[JobInfo]:
        return call("GET", self._job(job), into=JobInfo)

    def cancel(self, job: JobRef) -> Call[None]:
        return call("DELETE", self._job(job))

    def retry(self, job: JobRef) -> Call[JobInfo]:
        return call("POST", f"{self._job(job)}/retry", into=JobInfo)

    def move(self, job: JobRef, queue: str, front: bool) -> Call[JobInfo]:
        body = {"queue": self._prefix + queue, "front": front}
        return call("POST", f"{self._job(job)}/move", body, into=JobInfo)

    def set_priority(self, job: JobRef, priority: int) -> Call[JobInfo]:
        return call("PATCH", self._job(job), {"priority": priority}, into=JobInfo, repeat=True)

    def jobs(self, queue: str, state: str, limit: int | None) -> Pages[JobInfo]:
        return Pages(f"{self._queue(queue)}/jobs", "jobs", JobInfo, {"state": state}, limit)

    def finished(self, limit: int | None) -> Pages[JobInfo]:
        return Pages(f"{_ROOT}/finished", "jobs", JobInfo, {}, limit)

    def leases(self, queue: str | None, limit: int | None) -> Pages[HeldJob]:
        path = f"{_ROOT}/leases" if queue is None else f"{self._queue(queue)}/leases"
        return Pages(path, "leases", HeldJob, {}, limit)

    # Queues

    def queues(self) -> Pages[QueueInfo]:
        return Pages(f"{_ROOT}/queues", "queues", QueueInfo, {}, None)

    def queue(self, name: str) -> Call[QueueInfo]:
        return call("GET", self._queue(name), into=QueueInfo)

    def configure(
        self, name: str, settings: Mapping[str, object], replace: bool
    ) -> Call[QueueInfo]:
        check_names("setting of queues", settings, SettingsOptions.__annotations__)
        method = "PUT" if replace else "PATCH"
        return call(method, self._queue(name), dict(settings), into=QueueInfo, repeat=True)

    def pause(self, name: str) -> Call[QueueInfo]:
        return call("POST", f"{self._queue(name)}/pause", into=QueueInfo, repeat=True)

    def resume(self, name: str) -> Call[QueueInfo]:
        return call("POST", f"{self._queue(name)}/resume", into=QueueInfo, repeat=True)

    def purge(self, name: str, states: Iterable[str]) -> Call[dict[str, int]]:
        body = {"states": list(states)}
        return call("POST", f"{self._queue(name)}/purge", body, into=dict[str, int])

    def delete(self, name: str, purge: bool) -> Call[dict[str, int]]:
        query = {"purge": "true"} if purge else None
        return call("DELETE", self._queue(name), query=query, into=dict[str, int])

    # Dead letters

    def dead(self, queue: str, reason: str | None, limit: int | None) -> Pages[DeadLetter]:
        query = {} if reason is None else {"reason": reason}
        return Pages(f"{self._queue(queue)}/dead/jobs", "jobs", DeadLetter, query, limit)

    def dead_groups(self, queue: str) -> Call[DeadGroups]:
        return call("GET", f"{self._queue(queue)}/dead", into=DeadGroups)

    def replay(self, queue: str, ids: Iterable[int] | None, reason: str | None) -> Call[Replayed]:
        body: dict[str, object] = {"all": True} if ids is None else {"ids": list(ids)}
        if reason is not None:
            body["reason"] = reason
        return call("POST", f"{self._queue(queue)}/dead/replay", body, into=Replayed)

    def purge_dead(
        self, queue: str, ids: Iterable[int] | None, reason: str | None
    ) -> Call[PurgedDead]:
        body: dict[str, object] = {} if ids is None else {"ids": list(ids)}
        if reason is not None:
            body["reason"] = reason
        return call("POST", f"{self._queue(queue)}/dead/purge", body, into=PurgedDead)

    # Schedules

    def schedules(self) -> Pages[ScheduleInfo]:
        return Pages(f"{_ROOT}/schedules", "schedules", ScheduleInfo, {}, None)

    def schedule(self, name: str) -> Call[ScheduleInfo]:
        return call("GET", self._schedule(name), into=ScheduleInfo)

    def set_schedule(self, name: str, queue: str, options: ScheduleOptions) -> Call[ScheduleInfo]:
        body = schedule_body(self._prefix, queue, options)
        return call("PUT", self._schedule(name), body, into=ScheduleInfo, repeat=True)

    def pause_schedule(self, name: str, paused: bool) -> Call[ScheduleInfo]:
        step = "pause" if paused else "resume"
        return call("POST", f"{self._schedule(name)}/{step}", into=ScheduleInfo, repeat=True)

    def run_schedule(self, name: str) -> Call[Pushed]:
        return call("POST", f"{self._schedule(name)}/run", into=Pushed)

    def delete_schedule(self, name: str) -> Call[None]:
        return call("DELETE", self._schedule(name))

    # The pipeline

    def consumers(self) -> Pages[ConsumerInfo]:
        return Pages(f"{_ROOT}/consumers", "consumers", ConsumerInfo, {}, None)

    def readers(self) -> Pages[ReaderInfo]:
        return Pages(f"{_ROOT}/readers", "readers", ReaderInfo, {}, None)

    # The server

    def server(self) -> Call[ServerInfo]:
        return call("GET", f"{_ROOT}/server", into=ServerInfo)
