"""The API's routes about the lake: how far it is, what it has of a job, and its report."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Protocol

import msgspec
from msgspec import Meta

from taskyard.access.principal import ADMIN, INSPECT
from taskyard.engine.model.uid import job_id_of
from taskyard.protocols.http.api.problems import (
    JOB_NOT_FOUND,
    LAKE_BUSY,
    LAKE_FAILED,
    NO_LAKE,
    ApiProblem,
)
from taskyard.protocols.http.api.views import content_view
from taskyard.protocols.http.call import ApiCall, Operation, parse_job_reference
from taskyard.shared.api_messages import Content, Count, Id, LakeView, Message, Time

Row = Annotated[dict[str, Any], Meta(description="A row of the table: see docs/lake.md.")]


class LakeJobView(Message):
    """All that the lake has of a job."""

    id: Id
    runs: Annotated[list[Row], Meta(description="Of `jobs`: the runs that have ended.")]
    open: Annotated[Row, Meta(description="Of `open_jobs`: the run that has not.")] | None
    attempts: Annotated[list[Row], Meta(description="Of `attempts`.")]
    events: Annotated[list[Row], Meta(description="Of `events`, without what is null.")]
    cut: Annotated[bool, Meta(description="These are only the last of them.")]
    next_seq: Annotated[Count, Meta(description="The first record the lake does not have yet.")]
    last_time: Annotated[Time, Meta(description="Of the last record it has.")] | None


@dataclass(frozen=True, slots=True)
class LakeLookup:
    """The result of a lookup; neither: the lake has no such job."""

    found: bytes = b""  # a LakeJobView
    error: str = ""


class LakeBackend(Protocol):
    """Requests to the lake: they take longer than a turn of the loop, and run in processes."""

    def look_up(self, which: str, done: Callable[[LakeLookup], None]) -> bool:
        """False: too many wait already. `done` is called on the loop, in a turn of its own."""
        ...

    def make_report(self) -> None: ...

    @property
    def report_path(self) -> Path:
        """Where that is written."""
        ...


LakeStatus = Callable[[], LakeView | None]  # None: the server runs none


def no_lake_status() -> None:
    return None


class LakeOperations:
    def __init__(self, lake_status: LakeStatus, backend: LakeBackend | None) -> None:
        self._lake_status = lake_status
        self._backend = backend

    def operations(self) -> list[Operation]:
        return [
            Operation(
                method="GET",
                pattern="/api/v1/lake",
                name="getLake",
                summary="Whether the lake's process runs, how far behind the lake is, its report",
                action=INSPECT,
                run=self._show,
                answers={200: ("The lake.", LakeView)},
                problems=(NO_LAKE,),
                reads_state=False,
            ),
            Operation(
                method="GET",
                pattern="/api/v1/lake/jobs/{job}",
                name="getLakeJob",
                summary="What the lake has of a job, also if the server has forgotten it",
                action=INSPECT,
                checks_queues_itself=True,
                run=self._look_up,
                answers={200: ("The job.", LakeJobView)},
                problems=(NO_LAKE, JOB_NOT_FOUND, LAKE_BUSY, LAKE_FAILED),
                reads_state=False,
            ),
            Operation(
                method="POST",
                pattern="/api/v1/lake/report",
                name="makeLakeReport",
                summary="Have a report written; `making` of the lake tells how long that takes",
                action=ADMIN,
                run=self._make_report,
                answers={202: ("It is being written.", LakeView)},
                problems=(NO_LAKE,),
                reads_state=False,
            ),
        ]

    def _view(self) -> LakeView:
        view = self._lake_status()
        if view is None:
            raise no_lake_here()
        return view

    def _show(self, call: ApiCall) -> None:
        call.send_json(200, self._view())

    def _make_report(self, call: ApiCall) -> None:
        self._view()
        if self._backend is not None:
            self._backend.make_report()
        call.send_json(202, self._view())

    def _look_up(self, call: ApiCall) -> None:
        which = call.request.params["job"]
        id, uid = parse_job_reference(which)
        if self._backend is None:
            raise no_lake_here()
        if uid is not None:  # most are made from the id, and lead back to it
            id = job_id_of(call.engine.salt, uid)
        wanted = str(id) if id else which

        def done(looked: LakeLookup) -> None:
            call.run_guarded(lambda: _show_job(call, which, looked))

        if not self._backend.look_up(wanted, done):
            raise ApiProblem(
                LAKE_BUSY, "Many look for jobs in the lake now: try again in a moment."
            )


def _show_job(call: ApiCall, which: str, looked: LakeLookup) -> None:
    if looked.error:
        raise ApiProblem(LAKE_FAILED, f"The lake could not be asked: {looked.error.rstrip('.')}.")
    if not looked.found:
        raise not_in_lake(which)
    view = msgspec.json.decode(looked.found, type=LakeJobView)
    principal = call.request.principal
    if not all(principal.may(INSPECT, queue) for queue in _queues_of_rows(view)):
        raise not_in_lake(which)  # a refusal would show that it exists
    for queue in _queues_of_rows(view):
        call.require(queue)
    for row in [*view.runs, *([view.open] if view.open else [])]:
        for name in ("payload", "result"):
            row[name] = _content(row.get(name))
    call.send_json(200, view)


def _content(told: Any) -> Content | None:
    """In the form that other jobs have it."""
    if not isinstance(told, dict):
        return None
    data = told["text"].encode() if "text" in told else base64.b64decode(told["base64"])
    return content_view(data, told["size"])


def _queues_of_rows(view: LakeJobView) -> list[str]:
    """Return all queues that the job was in: each row has one."""
    rows = [*view.runs, *view.attempts, *view.events, *([view.open] if view.open else [])]
    names = [row.get(key) for row in rows for key in ("queue", "first_queue", "to_queue")]
    return list(dict.fromkeys(name for name in names if isinstance(name, str)))


def no_lake_here() -> ApiProblem:
    return ApiProblem(NO_LAKE, "Start the server with --lake DIRECTORY to have it run one.")


def not_in_lake(which: str) -> ApiProblem:
    return ApiProblem(
        JOB_NOT_FOUND, f"The lake has no job {which}: there never was one, or it is not there yet."
    )
