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
    JobPlace,
    RingPlace,
    foreign,
    read_cursor,
    write_cursor,
)
from taskyard.protocols.http.api.problems import (
    DISK_ERROR,
    INVALID_CURSOR,
    JOB_NOT_FOUND,
    QUEUE_NOT_FOUND,
    WRONG_STATE,
    Problem,
)
from taskyard.protocols.http.api.queues import CURSOR, LIMIT, QUEUE, QueueNames
from taskyard.protocols.http.api.views import content_of, error_of, error_place, held_of, summary_of
from taskyard.protocols.http.call import JSON, Call, Operation, Parameter, bad_name
from taskyard.shared import api_messages as messages
from taskyard.shared.names import valid_name

JOB: Final = "/api/v1/jobs/{job}"
QUEUES_AT_ONCE: Final = 10_000  # looked at for one page of leases


class JobOperations:
    def __init__(self, names: QueueNames) -> None:
        self._names = names

    def operations(self) -> list[Operation]:
        return [*_operations_on_one(), *_changes_of_one(), *self._lists()]

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
                    Parameter(
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
                anywhere=True,
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
                anywhere=True,
                name="listFinished",
                summary="Jobs that ended a short while ago, as the caller may see, the last first",
                action=INSPECT,
                run=_list_finished,
                query=(LIMIT, CURSOR),
                answers={200: ("A page of jobs.", messages.JobPage)},
                problems=(INVALID_CURSOR,),
            ),
        ]

    def _list_leases(self, call: Call) -> None:
        limit = call.number("limit")
        place = place_of(call, None, LEASED)
        queues = call.engine.state.queues
        jobs: list[Job] = []
        last = place.queue
        first = call.engine.queue(place.queue.encode(errors="replace"))
        if first is not None and call.shows(first):
            jobs = after(call, first, LEASED, place, limit)
        looked_at = 0
        while len(jobs) < limit and looked_at < QUEUES_AT_ONCE:
            names = self._names.after(last, 100)
            for name in names:
                looked_at += 1
                queue = queues[name]
                last = queue.name
                if queue.leased.size and call.shows(queue):
                    jobs.extend(queue.leased.slice(0, limit - len(jobs)))
                if len(jobs) == limit:
                    break
            if not names:
                _answer_leases(call, jobs, None)
                return
        if len(jobs) < limit:  # many queues, few leases: the page ends here, the list does not
            following = JobPlace(last, STATE_NAMES[LEASED], MIN_PRIORITY, FOREVER, 0)
        else:
            following = place_behind(jobs[-1])
        _answer_leases(call, jobs, following)


def _operations_on_one() -> list[Operation]:
    return [
        Operation(
            method="GET",
            pattern=JOB,
            anywhere=True,
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
            anywhere=True,
            name="cancelJob",
            summary="Remove a job, whatever its state; jobs that wait for it fail",
            action=ADMIN,
            run=_cancel,
            answers={204: ("It is gone.", None)},
            problems=(JOB_NOT_FOUND,),
        ),
    ]


def _changes_of_one() -> list[Operation]:
    summary = {200: ("The job as it is now.", messages.JobSummary)}
    return [
        Operation(
            method="PATCH",
            pattern=JOB,
            anywhere=True,
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
            anywhere=True,
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
            anywhere=True,
            name="moveJob",
            summary="Put a ready or delayed job or a dead letter into another queue, ready",
            action=ADMIN,
            run=_move,
            bodies={JSON: messages.Move},
            answers=summary,
            problems=(JOB_NOT_FOUND, WRONG_STATE),
        ),
    ]


def _get(call: Call) -> None:
    job = call.job_or_remains()
    result = _result_place(job)
    places = [(job.payload_at, job.payload_size), result or (0, 0), error_place(job, FOREVER)]

    def show(found: list[bytes | None]) -> None:
        call.check_job(job)
        call.answer(
            200,
            messages.JobView(
                **summary_of(call.engine, job, call.now),
                payload=content_of(found[0], job.payload_size),
                result=None if result is None else content_of(found[1], result[1]),
                error=error_of(job, found[2]),
            ),
        )

    call.load(places, show)


def _result_place(job: Job) -> tuple[int, int] | None:
    """Of a failed job there is none: what Workq gives as its result is its error."""
    extra = job.extra
    succeeded = job.state == SUCCEEDED or (job.state == GONE and job.position)
    if extra is None or not extra.has_result or not succeeded:
        return None
    return extra.result_at, extra.result_size


def _cancel(call: Call) -> None:
    call.engine.delete(call.job().id, call.origin, call.now)
    call.answer(204)


def _change(call: Call) -> None:
    body = call.body(messages.Change)
    job = call.job()
    call.engine.rescore(job.id, body.priority, call.origin, call.now)
    _show(call, job)


def _retry(call: Call) -> None:
    job = call.job()
    if job.state == DELAYED:
        call.engine.wake_now(job.id, call.origin, call.now)
    elif job.state == FAILED:
        call.engine.replay(job.id, call.origin, call.now)
    else:
        raise Problem(
            WRONG_STATE,
            f"The job is {STATE_NAMES[job.state]}: only a delayed job or a dead letter can be "
            "made ready.",
        )
    _show(call, job)


def _move(call: Call) -> None:
    body = call.body(messages.Move)
    if not valid_name(body.queue):
        raise bad_name("queue")
    job = call.job()
    call.allow_on(body.queue)
    call.engine.move(job.id, body.queue, body.front, call.origin, call.now)
    _show(call, job)


def _show(call: Call, job: Job) -> None:
    call.answer(200, messages.JobSummary(**summary_of(call.engine, job, call.now)))


# Lists


def _list(call: Call) -> None:
    queue = call.queue()
    state = STATE_NAMES.index(call.text("state"))
    limit = call.number("limit")
    jobs = after(call, queue, state, place_of(call, queue, state), limit)
    following = write_cursor(place_behind(jobs[-1])) if len(jobs) == limit else None
    views = [messages.JobSummary(**summary_of(call.engine, job, call.now)) for job in jobs]
    call.answer(200, messages.JobPage(jobs=views, next=following))


def _list_leases_of_one(call: Call) -> None:
    queue = call.queue()
    limit = call.number("limit")
    jobs = after(call, queue, LEASED, place_of(call, queue, LEASED), limit)
    _answer_leases(call, jobs, place_behind(jobs[-1]) if len(jobs) == limit else None)


def _answer_leases(call: Call, jobs: list[Job], following: JobPlace | None) -> None:
    held = [held_of(call.engine, job, job.lease, call.now) for job in jobs if job.lease is not None]
    cursor = write_cursor(following) if following is not None else None
    call.answer(200, messages.LeasePage(leases=held, next=cursor))


def _list_finished(call: Call) -> None:
    limit = call.number("limit")
    shown = (job for job in recently_finished(call) if call.shows(job.queue))
    jobs = list(islice(shown, limit))
    following = write_cursor(RingPlace(jobs[-1].id)) if len(jobs) == limit else None
    views = [messages.JobSummary(**summary_of(call.engine, job, call.now)) for job in jobs]
    call.answer(200, messages.JobPage(jobs=views, next=following))


def recently_finished(call: Call) -> Iterator[Job]:
    """The ring from its newest job back, from behind the cursor on."""
    ring = reversed(call.engine.state.finished)
    cursor = call.text("cursor")
    if not cursor:
        return ring
    last = read_cursor(cursor, RingPlace).id
    if call.engine.state.next_id <= last or call.engine.recent(last) is None:
        return iter(())  # it has left the ring, and all that ended before it left earlier
    for job in ring:
        if job.id == last:
            break
    return ring


def place_of(call: Call, queue: Queue | None, state: int) -> JobPlace:
    """Where a list is to go on: behind the cursor, or at the beginning."""
    name = queue.name if queue is not None else ""
    cursor = call.text("cursor")
    if not cursor:
        return JobPlace(name, STATE_NAMES[state], MAX_PRIORITY, MIN_PRIORITY, 0)
    place = read_cursor(cursor, JobPlace)
    if place.state != STATE_NAMES[state] or (queue is not None and place.queue != name):
        raise foreign()
    return place


def place_behind(job: Job) -> JobPlace:
    return JobPlace(job.queue.name, STATE_NAMES[job.state], job.priority, job.position, job.id)


def after(call: Call, queue: Queue, state: int, place: JobPlace, limit: int) -> list[Job]:
    return call.engine.jobs_after(queue, state, place.priority, place.position, place.id, limit)
