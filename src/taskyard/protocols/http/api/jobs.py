"""The API's jobs: get, list, cancel, retry, change priority, move; leases; finished jobs."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from taskyard.access.principal import ADMIN, INSPECT
from taskyard.engine.model.job import (
    DELAYED,
    FAILED,
    FOREVER,
    GONE,
    LEASED,
    LIMITED,
    MAX_PRIORITY,
    MIN_PRIORITY,
    STATE_NAMES,
    SUCCEEDED,
    Job,
)
from taskyard.engine.model.queue import Queue
from taskyard.protocols.http.api.cursor import (
    FinishedCursor,
    JobCursor,
    invalid_cursor,
    read_cursor,
    write_cursor,
)
from taskyard.protocols.http.api.problems import (
    DISK_ERROR,
    INVALID_CURSOR,
    JOB_NOT_FOUND,
    QUEUE_NOT_FOUND,
    WRONG_STATE,
    ApiProblem,
)
from taskyard.protocols.http.api.queues import CURSOR, LIMIT, QUEUE, SortedQueueNames
from taskyard.protocols.http.api.views import (
    content_view,
    error_location,
    error_view,
    held_job_view,
    job_summary_fields,
)
from taskyard.protocols.http.call import JSON, ApiCall, Operation, QueryParameter, invalid_name
from taskyard.shared import api_messages as messages
from taskyard.shared.names import valid_name

JOB: Final = "/api/v1/jobs/{job}"
MAX_SCANNED_QUEUES: Final = 10_000  # queues scanned for one page of leases


class JobOperations:
    def __init__(self, names: SortedQueueNames) -> None:
        self._names = names

    def operations(self) -> list[Operation]:
        return [*_single_job_operations(), *_single_job_changes(), *self._lists()]

    def _lists(self) -> list[Operation]:
        return [
            Operation(
                method="GET",
                pattern=QUEUE + "/jobs",
                name="listJobs",
                summary="The jobs of a queue in one state, in their order there",
                action=INSPECT,
                run=_list,
                query=(
                    QueryParameter(
                        name="state",
                        doc="the state they are in",
                        values=(*STATE_NAMES[:6], STATE_NAMES[LIMITED]),
                        default="ready",
                    ),
                    LIMIT,
                    CURSOR,
                ),
                answers={200: ("A page of jobs.", messages.JobPage)},
                problems=(QUEUE_NOT_FOUND, INVALID_CURSOR),
            ),
            Operation(
                method="GET",
                pattern=QUEUE + "/leases",
                name="listQueueLeases",
                summary="The leases of a queue that are in flight",
                action=INSPECT,
                run=_list_leases_of_one,
                query=(LIMIT, CURSOR),
                answers={200: ("A page of leases.", messages.LeasePage)},
                problems=(QUEUE_NOT_FOUND, INVALID_CURSOR),
            ),
            Operation(
                method="GET",
                pattern="/api/v1/leases",
                checks_queues_itself=True,
                name="listLeases",
                summary="All leases in flight that the caller may see, queue by queue",
                action=INSPECT,
                run=self._list_leases,
                query=(LIMIT, CURSOR),
                answers={200: ("A page of leases.", messages.LeasePage)},
                problems=(INVALID_CURSOR,),
            ),
            Operation(
                method="GET",
                pattern="/api/v1/finished",
                checks_queues_itself=True,
                name="listFinished",
                summary="Jobs that ended a short while ago, as the caller may see, the last first",
                action=INSPECT,
                run=_list_finished,
                query=(LIMIT, CURSOR),
                answers={200: ("A page of jobs.", messages.JobPage)},
                problems=(INVALID_CURSOR,),
            ),
        ]

    def _list_leases(self, call: ApiCall) -> None:
        limit = call.number("limit")
        place = start_cursor(call, None, LEASED)
        queues = call.engine.state.queues
        jobs: list[Job] = []
        last = place.queue
        first = call.engine.queue(place.queue.encode(errors="replace"))
        if first is not None and call.may_inspect(first):
            jobs = jobs_after(call, first, LEASED, place, limit)
        looked_at = 0
        while len(jobs) < limit and looked_at < MAX_SCANNED_QUEUES:
            names = self._names.names_after(last, 100)
            for name in names:
                looked_at += 1
                queue = queues[name]
                last = queue.name
                if queue.leased.size and call.may_inspect(queue):
                    jobs.extend(queue.leased.slice(0, limit - len(jobs)))
                if len(jobs) == limit:
                    break
            if not names:
                _answer_leases(call, jobs, None)
                return
        if len(jobs) < limit:  # many queues, few leases: the page ends here, the list does not
            following = JobCursor(last, STATE_NAMES[LEASED], MIN_PRIORITY, FOREVER, 0)
        else:
            following = cursor_after(jobs[-1])
        _answer_leases(call, jobs, following)


def _single_job_operations() -> list[Operation]:
    return [
        Operation(
            method="GET",
            pattern=JOB,
            checks_queues_itself=True,
            name="getJob",
            summary="One job, also if it ended a short while ago",
            action=INSPECT,
            run=_get,
            answers={200: ("The job.", messages.JobView)},
            problems=(JOB_NOT_FOUND, DISK_ERROR),
        ),
        Operation(
            method="DELETE",
            pattern=JOB,
            checks_queues_itself=True,
            name="cancelJob",
            summary="Remove a job, whatever its state; jobs that wait for it fail",
            action=ADMIN,
            run=_cancel,
            answers={204: ("It is gone.", None)},
            problems=(JOB_NOT_FOUND,),
        ),
    ]


def _single_job_changes() -> list[Operation]:
    summary = {200: ("The job as it is now.", messages.JobSummary)}
    return [
        Operation(
            method="PATCH",
            pattern=JOB,
            checks_queues_itself=True,
            name="changeJob",
            summary="Give a job another priority",
            action=ADMIN,
            run=_change,
            bodies={JSON: messages.Change},
            answers=summary,
            problems=(JOB_NOT_FOUND, WRONG_STATE),
        ),
        Operation(
            method="POST",
            pattern=JOB + "/retry",
            checks_queues_itself=True,
            name="retryJob",
            summary="Make a delayed job or a dead letter ready now",
            action=ADMIN,
            run=_retry,
            answers=summary,
            problems=(JOB_NOT_FOUND, WRONG_STATE),
        ),
        Operation(
            method="POST",
            pattern=JOB + "/move",
            checks_queues_itself=True,
            name="moveJob",
            summary="Put a ready or delayed job or a dead letter into another queue, ready",
            action=ADMIN,
            run=_move,
            bodies={JSON: messages.Move},
            answers=summary,
            problems=(JOB_NOT_FOUND, WRONG_STATE),
        ),
    ]


def _get(call: ApiCall) -> None:
    job = call.find_job()
    result = _result_location(job)
    places = [(job.payload_at, job.payload_size), result or (0, 0), error_location(job, FOREVER)]

    def show(found: list[bytes | None]) -> None:
        call.check_job_permission(job)
        call.send_json(
            200,
            messages.JobView(
                **job_summary_fields(call.engine, job, call.now),
                payload=content_view(found[0], job.payload_size),
                result=None if result is None else content_view(found[1], result[1]),
                error=error_view(job, found[2]),
            ),
        )

    call.read_blobs(places, show)


def _result_location(job: Job) -> tuple[int, int] | None:
    """Return none for a failed job: what Workq returns as its result is its error."""
    extra = job.extras
    succeeded = job.state == SUCCEEDED or (job.state == GONE and job.order_key)
    if extra is None or not extra.has_result or not succeeded:
        return None
    return extra.result_at, extra.result_size


def _cancel(call: ApiCall) -> None:
    call.engine.delete_job(call.live_job().id, call.origin, call.now)
    call.send_json(204)


def _change(call: ApiCall) -> None:
    body = call.body(messages.Change)
    job = call.live_job()
    call.engine.rescore(job.id, body.priority, call.origin, call.now)
    _show(call, job)


def _retry(call: ApiCall) -> None:
    job = call.live_job()
    if job.state == DELAYED:
        call.engine.wake_job(job.id, call.origin, call.now)
    elif job.state == FAILED:
        call.engine.replay_dead_letter(job.id, call.origin, call.now)
    else:
        raise ApiProblem(
            WRONG_STATE,
            f"The job is {STATE_NAMES[job.state]}: only a delayed job or a dead letter can be "
            "made ready.",
        )
    _show(call, job)


def _move(call: ApiCall) -> None:
    body = call.body(messages.Move)
    if not valid_name(body.queue):
        raise invalid_name("queue")
    job = call.live_job()
    call.require(body.queue)
    call.engine.move_job(job.id, body.queue, body.front, call.origin, call.now)
    _show(call, job)


def _show(call: ApiCall, job: Job) -> None:
    call.send_json(200, messages.JobSummary(**job_summary_fields(call.engine, job, call.now)))


# Lists


def _list(call: ApiCall) -> None:
    queue = call.queue()
    state = STATE_NAMES.index(call.text("state"))
    limit = call.number("limit")
    jobs = jobs_after(call, queue, state, start_cursor(call, queue, state), limit)
    following = write_cursor(cursor_after(jobs[-1])) if len(jobs) == limit else None
    views = [messages.JobSummary(**job_summary_fields(call.engine, job, call.now)) for job in jobs]
    call.send_json(200, messages.JobPage(jobs=views, next=following))


def _list_leases_of_one(call: ApiCall) -> None:
    queue = call.queue()
    limit = call.number("limit")
    jobs = jobs_after(call, queue, LEASED, start_cursor(call, queue, LEASED), limit)
    _answer_leases(call, jobs, cursor_after(jobs[-1]) if len(jobs) == limit else None)


def _answer_leases(call: ApiCall, jobs: list[Job], following: JobCursor | None) -> None:
    held = [
        held_job_view(call.engine, job, job.lease, call.now)
        for job in jobs
        if job.lease is not None
    ]
    cursor = write_cursor(following) if following is not None else None
    call.send_json(200, messages.LeasePage(leases=held, next=cursor))


def _list_finished(call: ApiCall) -> None:
    limit = call.number("limit")
    shown = (job for job in recently_finished(call) if call.may_inspect(job.queue))
    jobs = list(islice(shown, limit))
    following = write_cursor(FinishedCursor(jobs[-1].id)) if len(jobs) == limit else None
    views = [messages.JobSummary(**job_summary_fields(call.engine, job, call.now)) for job in jobs]
    call.send_json(200, messages.JobPage(jobs=views, next=following))


def recently_finished(call: ApiCall) -> Iterator[Job]:
    """Return the ring from its newest job back, from behind the cursor on."""
    ring = reversed(call.engine.state.finished_ring)
    cursor = call.text("cursor")
    if not cursor:
        return ring
    last = read_cursor(cursor, FinishedCursor).id
    if call.engine.state.next_id <= last or call.engine.recent(last) is None:
        return iter(())  # it has left the ring, and all that ended before it have left earlier
    for job in ring:
        if job.id == last:
            break
    return ring


def start_cursor(call: ApiCall, queue: Queue | None, state: int) -> JobCursor:
    """Where a list continues: behind the cursor, or at the beginning."""
    name = queue.name if queue is not None else ""
    cursor = call.text("cursor")
    if not cursor:
        return JobCursor(name, STATE_NAMES[state], MAX_PRIORITY, MIN_PRIORITY, 0)
    place = read_cursor(cursor, JobCursor)
    if place.state != STATE_NAMES[state] or (queue is not None and place.queue != name):
        raise invalid_cursor()
    return place


def cursor_after(job: Job) -> JobCursor:
    return JobCursor(job.queue.name, STATE_NAMES[job.state], job.priority, job.order_key, job.id)


def jobs_after(call: ApiCall, queue: Queue, state: int, place: JobCursor, limit: int) -> list[Job]:
    return call.engine.jobs_after(queue, state, place.priority, place.position, place.id, limit)
