"""The API's schedules: list, set, delete, pause, resume, run now.

A schedule belongs to the queue that it pushes to: clients that may see or change that queue may do
so with its schedules, and others do not see them.
"""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import quote

from msgspec import UNSET

from taskyard.access.principal import ADMIN, INSPECT, PUSH
from taskyard.engine.model.job import (
    BACKOFF_EXPONENTIAL,
    BACKOFF_QUARTIC,
    SECOND,
    STATE_NAMES,
    NewJob,
    Policy,
)
from taskyard.engine.model.state import format_uid
from taskyard.engine.schedules.schedule import Schedule
from taskyard.protocols.http.api.problems import (
    DENIED,
    INVALID_CURSOR,
    QUEUE_FULL,
    SCHEDULE_NOT_FOUND,
    SCHEDULES_FULL,
    ApiProblem,
    NameCursor,
    invalid_value,
    read_cursor,
    schedule_not_found,
    write_cursor,
)
from taskyard.protocols.http.api.push import PushOperations
from taskyard.protocols.http.api.queues import CURSOR, LIMIT, MAX_SCANNED_QUEUES
from taskyard.protocols.http.api.views import content_view, seconds
from taskyard.protocols.http.call import JSON, Answers, ApiCall, Operation, invalid_name
from taskyard.protocols.text import format_moment
from taskyard.shared import api_types as messages
from taskyard.shared.text import valid_name

SCHEDULE: Final = "/api/v1/schedules/{schedule}"
_PUSH_FIELDS: Final = (
    "payload",
    "text",
    "base64",
    "name",
    "priority",
    "ttr",
    "ttl",
    "max_attempts",
    "max_fails",
    "backoff",
    "backoff_base",
    "backoff_cap",
    "dead_queue",
    "limit_key",
)


class ScheduleOperations:
    def __init__(self, pushing: PushOperations) -> None:
        self._pushing = pushing

    def operations(self) -> list[Operation]:
        one = {200: ("The schedule.", messages.ScheduleView)}
        return [*self._on_schedules(one), *_tick_operations(one)]

    def _on_schedules(self, one: Answers) -> list[Operation]:
        return [
            Operation(
                method="GET",
                pattern="/api/v1/schedules",
                name="listSchedules",
                summary="All schedules whose queues the caller may see, in order of their names",
                action=INSPECT,
                checks_queues_itself=True,
                run=_list,
                query=(LIMIT, CURSOR),
                answers={
                    200: ("A page, which may be short while more follows.", messages.SchedulePage)
                },
                problems=(INVALID_CURSOR,),
            ),
            Operation(
                method="GET",
                pattern=SCHEDULE,
                name="getSchedule",
                summary="One schedule, with the payload of its jobs",
                action=INSPECT,
                checks_queues_itself=True,
                run=lambda call: call.send_json(200, schedule_view(_named_schedule(call))),
                answers=one,
                problems=(SCHEDULE_NOT_FOUND,),
            ),
            Operation(
                method="PUT",
                pattern=SCHEDULE,
                name="putSchedule",
                summary="Create a schedule, or make it be this; needs admin on its queue as well",
                action=PUSH,
                checks_queues_itself=True,
                run=self._put,
                bodies={JSON: messages.Schedule},
                answers={201: ("It was created.", messages.ScheduleView), **one},
                problems=(SCHEDULES_FULL,),
            ),
            Operation(
                method="DELETE",
                pattern=SCHEDULE,
                name="deleteSchedule",
                summary="Delete a schedule; jobs that it has pushed stay",
                action=ADMIN,
                checks_queues_itself=True,
                run=_delete,
                answers={204: ("It is gone.", None)},
                problems=(SCHEDULE_NOT_FOUND,),
            ),
        ]

    def _put(self, call: ApiCall) -> None:
        body = call.body(messages.Schedule)
        name = call.request.params["schedule"]
        if not valid_name(name):
            raise invalid_name("schedule")
        if not valid_name(body.queue):
            raise invalid_name("queue")
        call.require_action(PUSH, body.queue)
        call.require_action(ADMIN, body.queue)
        old = call.engine.schedule(name)
        if old is not None and not call.request.principal.may(ADMIN, old.job.queue):
            raise ApiProblem(
                DENIED,
                "A schedule of this name belongs to a queue that you may not change: choose "
                "another name.",
            )
        wanted = self._parse_schedule(call, name, body, old is not None and old.paused)
        schedule = call.engine.set_schedule(wanted, call.origin, call.now)
        if old is None:
            location = [("Location", f"/api/v1/schedules/{quote(name, safe='')}")]
            call.send_json(201, schedule_view(schedule), location)
        else:
            call.send_json(200, schedule_view(schedule))

    def _parse_schedule(
        self, call: ApiCall, name: str, body: messages.Schedule, paused: bool
    ) -> Schedule:
        if (body.cron is UNSET) == (body.every is UNSET):
            raise invalid_value("cron", "Give one of cron and every.")
        return Schedule(
            name,
            self._parse_job(call, body),
            "" if body.cron is UNSET else body.cron,
            0 if body.every is UNSET else round(body.every * SECOND),
            body.timezone,
            messages.MISSED.index(body.missed),
            messages.OVERLAPS.index(body.overlap),
            paused if body.paused is UNSET else body.paused,
        )

    def _parse_job(self, call: ApiCall, body: messages.Schedule) -> NewJob:
        fields: dict[str, Any] = {name: getattr(body, name) for name in _PUSH_FIELDS}
        job = self._pushing.new_job(call, body.queue, messages.Push(**fields))
        if body.key is not UNSET:
            try:
                job.key = body.key.encode()
            except UnicodeEncodeError:
                raise invalid_value(
                    "key", "key holds half a character, which has no UTF-8."
                ) from None
        return job


def _named_schedule(call: ApiCall) -> Schedule:
    """The one that the path names; it must be there for the caller."""
    name = call.request.params["schedule"]
    schedule = call.engine.schedule(name)
    if schedule is None:
        raise schedule_not_found(name)
    principal = call.request.principal
    queue = schedule.job.queue
    if not principal.may(INSPECT, queue) and not principal.may(call.operation.action, queue):
        raise schedule_not_found(name)  # a refusal would show that it exists
    call.require(queue)
    return schedule


def _tick_operations(one: Answers) -> list[Operation]:
    return [
        Operation(
            method="POST",
            pattern=SCHEDULE + "/pause",
            name="pauseSchedule",
            summary="Let no ticks come; those in between are not made up for",
            action=ADMIN,
            checks_queues_itself=True,
            run=lambda call: _pause(call, True),
            answers=one,
            problems=(SCHEDULE_NOT_FOUND,),
        ),
        Operation(
            method="POST",
            pattern=SCHEDULE + "/resume",
            name="resumeSchedule",
            summary="Let ticks come again from now on",
            action=ADMIN,
            checks_queues_itself=True,
            run=lambda call: _pause(call, False),
            answers=one,
            problems=(SCHEDULE_NOT_FOUND,),
        ),
        Operation(
            method="POST",
            pattern=SCHEDULE + "/run",
            name="runSchedule",
            summary="Push one job of a schedule now, beside its ticks",
            action=ADMIN,
            checks_queues_itself=True,
            run=_run,
            answers={201: ("Pushed and durable.", messages.Pushed)},
            problems=(SCHEDULE_NOT_FOUND, QUEUE_FULL),
        ),
    ]


def _list(call: ApiCall) -> None:
    limit = call.number("limit")
    cursor = call.text("cursor")
    behind = read_cursor(cursor, NameCursor).name if cursor else ""
    schedules = call.engine.state.schedules
    may = call.request.principal.may
    shown: list[messages.ScheduleSummary] = []
    last = ""
    looked = 0
    for name in schedules.irange(behind, inclusive=(False, True)):
        if len(shown) == limit or looked == MAX_SCANNED_QUEUES:
            break
        last = name
        looked += 1
        schedule = schedules[name]
        if may(INSPECT, schedule.job.queue):
            shown.append(messages.ScheduleSummary(**_summary_fields(schedule)))
    full = len(shown) == limit or looked == MAX_SCANNED_QUEUES
    following = write_cursor(NameCursor(last)) if full else None
    call.send_json(200, messages.SchedulePage(schedules=shown, next=following))


def _delete(call: ApiCall) -> None:
    call.engine.delete_schedule(_named_schedule(call).name, call.origin, call.now)
    call.send_json(204)


def _pause(call: ApiCall, paused: bool) -> None:
    name = _named_schedule(call).name
    call.send_json(
        200, schedule_view(call.engine.pause_schedule(name, paused, call.origin, call.now))
    )


def _run(call: ApiCall) -> None:
    job = call.engine.run_schedule(_named_schedule(call).name, call.origin, call.now)
    uid = format_uid(call.engine.uid_of(job))
    pushed = messages.Pushed(id=job.id, uid=uid, state=STATE_NAMES[job.state], duplicate=False)
    call.send_json(201, pushed, [("Location", f"/api/v1/jobs/{job.id}")])


def schedule_view(schedule: Schedule) -> messages.ScheduleView:
    payload = schedule.job.payload
    return messages.ScheduleView(
        **_summary_fields(schedule), payload=content_view(payload, len(payload))
    )


def _summary_fields(schedule: Schedule) -> dict[str, Any]:
    """The fields of ScheduleSummary."""
    job = schedule.job
    policy = job.policy
    return {
        "name": schedule.name,
        "cron": schedule.cron or None,
        "every": seconds(schedule.every) if schedule.every else None,
        "timezone": schedule.zone,
        "missed": messages.MISSED[schedule.missed_rule],
        "overlap": messages.OVERLAPS[schedule.overlap],
        "paused": schedule.paused,
        "set_by": schedule.user or None,
        "queue": job.queue,
        "job_name": job.name,
        "priority": job.priority,
        "ttr": seconds(policy.ttr) if policy.ttr else None,
        "ttl": job.ttl_ms / 1000 if job.ttl_ms else None,
        "max_attempts": policy.max_attempts or None,
        "max_fails": policy.max_fails if policy.max_fails > 0 else None,
        "backoff": _backoff(policy),
        "backoff_base": seconds(policy.backoff_base),
        "backoff_cap": seconds(policy.backoff_cap),
        "dead_queue": policy.dead_queue or None,
        "key": job.key.decode(errors="replace") if job.key is not None else None,
        "limit_key": (
            job.limit_key.decode(errors="replace") if job.limit_key is not None else None
        ),
        "payload_size": len(job.payload),
        "next_at": format_moment(schedule.next_at),
        "last_at": format_moment(schedule.last_at),
        "last_job": schedule.last_job or None,
        "runs": schedule.runs,
        "skipped": schedule.skipped,
        "missed_ticks": schedule.missed,
        "refused": schedule.refusal or None,
    }


def _backoff(policy: Policy) -> messages.Backoff | None:
    if policy.backoff == BACKOFF_QUARTIC:
        return "quartic"
    if policy.backoff == BACKOFF_EXPONENTIAL:
        return "exponential" if policy.backoff_base else "none"
    return None
