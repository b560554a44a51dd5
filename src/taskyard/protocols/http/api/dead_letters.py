"""The API's dead letters: grouped by reason, listed, replayed, purged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec import UNSET, UnsetType

from taskyard.access.principal import ADMIN, INSPECT
from taskyard.broker.seams import Scheduler
from taskyard.engine.model.errors import TaskyardError
from taskyard.engine.model.job import FAILED, Job
from taskyard.engine.model.queue import Queue
from taskyard.engine.records.job_lifecycle import PURGED
from taskyard.protocols.http.api.cursor import JobPlace, write_cursor
from taskyard.protocols.http.api.jobs import after, place_behind, place_of
from taskyard.protocols.http.api.problems import (
    DISK_ERROR,
    INVALID_CURSOR,
    QUEUE_NOT_FOUND,
    Problem,
    invalid,
    problem_of,
)
from taskyard.protocols.http.api.queues import CURSOR, LIMIT, QUEUE
from taskyard.protocols.http.api.views import (
    GLANCE,
    error_end,
    error_of,
    error_place,
    line_of,
    summary_of,
)
from taskyard.protocols.http.api.walk import PORTION, Walk
from taskyard.protocols.http.call import JSON, Call, Operation, Parameter
from taskyard.protocols.times import format_moment
from taskyard.shared import api_messages as messages

SCANNED: Final = 10_000  # dead letters that are looked at in one turn at most
_SAMPLE: Final = 10


Act = Callable[[Call, Job], None]
End = Callable[[Call, int, list[int]], None]  # how many, and the ids that were no dead letters
Error = tuple[messages.Content | None, str | None]  # the beginning of it, and its line


class DeadOperations:
    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def operations(self) -> list[Operation]:
        return [
            Operation(
                method="GET",
                pattern=QUEUE + "/dead",
                name="groupDead",
                summary="The dead letters of a queue by reason",
                action=INSPECT,
                run=_group,
                answers={200: ("The groups, the largest first.", messages.DeadGroups)},
                problems=(QUEUE_NOT_FOUND, DISK_ERROR),
            ),
            Operation(
                method="GET",
                pattern=QUEUE + "/dead/jobs",
                name="listDead",
                summary="The dead letters of a queue, the oldest first",
                action=INSPECT,
                run=_list,
                query=(
                    Parameter(name="reason", doc="only those that failed for this reason"),
                    LIMIT,
                    CURSOR,
                ),
                answers={
                    200: ("A page, which may be short while more follows.", messages.DeadPage)
                },
                problems=(QUEUE_NOT_FOUND, INVALID_CURSOR, DISK_ERROR),
            ),
            Operation(
                method="POST",
                pattern=QUEUE + "/dead/replay",
                name="replayDead",
                summary="Give dead letters another life; answers when it is done",
                action=ADMIN,
                run=self._replay,
                bodies={JSON: messages.Replay},
                answers={200: ("They are ready.", messages.Replayed)},
                problems=(QUEUE_NOT_FOUND,),
            ),
            Operation(
                method="POST",
                pattern=QUEUE + "/dead/purge",
                name="purgeDead",
                summary="Remove dead letters; answers when it is done",
                action=ADMIN,
                run=self._purge,
                bodies={JSON: messages.PurgeDead},
                answers={200: ("They are gone.", messages.PurgedDead)},
                problems=(QUEUE_NOT_FOUND,),
            ),
        ]

    def _replay(self, call: Call) -> None:
        body = call.body(messages.Replay)
        if (body.ids is UNSET) != body.all:
            raise invalid("ids", "Give either the ids, or all: true.")
        self._do(call, body.ids, body.reason, _replay, _replayed)

    def _purge(self, call: Call) -> None:
        body = call.body(messages.PurgeDead)
        self._do(call, body.ids, body.reason, _purge, _purged)

    def _do(
        self, call: Call, ids: list[int] | UnsetType, reason: str | UnsetType, act: Act, end: End
    ) -> None:
        if ids is not UNSET and reason is not UNSET:
            raise invalid("reason", "A reason goes with all dead letters, not with ids.")
        queue = call.queue()
        if ids is UNSET:
            self._walk(call, queue, reason, act, end)
        else:
            _Some(call, self._scheduler, queue, list(dict.fromkeys(ids)), act, end).go_on()

    def _walk(
        self,
        call: Call,
        queue: Queue,
        reason: str | UnsetType,
        act: Act,
        end: End,
    ) -> None:
        # A dead letter that is replayed may die again meanwhile: that is another one.
        last = queue.dead.last().position if queue.dead.size else 0

        def act_on(job: Job) -> bool:
            if job.position > last or (reason is not UNSET and _reason(job) != reason):
                return False
            act(call, job)
            return True

        def done(count: int) -> None:
            end(call, count, [])

        Walk(call, self._scheduler, queue, [FAILED], act_on, done).start()


class _Some:
    """Those with certain ids, in portions."""

    def __init__(
        self,
        call: Call,
        scheduler: Scheduler,
        queue: Queue,
        ids: list[int],
        act: Act,
        end: End,
    ) -> None:
        self._call = call
        self._scheduler = scheduler
        self._queue = queue
        self._ids = ids
        self._act = act
        self._end = end
        self._at = 0
        self._skipped: list[int] = []

    def go_on(self) -> None:
        call = self._call
        engine = call.engine
        for id in self._ids[self._at : self._at + PORTION]:
            job = engine.state.live(id) if id < engine.state.next_id else None
            if job is None or job.state != FAILED or job.queue is not self._queue:
                self._skipped.append(id)
            else:
                self._do(job)
            self._at += 1
        if self._at < len(self._ids):
            self._scheduler.call_soon(self._next_turn)
        else:
            count = self._at - len(self._skipped)
            self._end(call, count, self._skipped)

    def _do(self, job: Job) -> None:
        try:
            self._act(self._call, job)
        except TaskyardError as error:
            problem: Problem = problem_of(error)
            problem.done = self._at - len(self._skipped)
            raise problem from error

    def _next_turn(self) -> None:
        call = self._call
        call.now = call.broker.begin()
        call.guard(self.go_on)
        call.broker.end()


def _replay(call: Call, job: Job) -> None:
    call.engine.replay(job.id, call.origin, call.now)


def _replayed(call: Call, count: int, skipped: list[int]) -> None:
    call.answer(200, messages.Replayed(replayed=count, skipped=skipped))


def _purge(call: Call, job: Job) -> None:
    call.engine.delete(job.id, call.origin, call.now, PURGED)


def _purged(call: Call, count: int, skipped: list[int]) -> None:
    call.answer(200, messages.PurgedDead(removed=count, skipped=skipped))


def _reason(job: Job) -> str:
    extra = job.extra
    return extra.reason if extra is not None else ""


def _list(call: Call) -> None:
    """With a reason it looks at so many letters in a turn; then the page ends, however short."""
    queue = call.queue()
    limit = call.number("limit")
    reason = call.arguments["reason"]
    place = place_of(call, queue, FAILED)
    found = after(call, queue, FAILED, place, limit if reason is None else SCANNED)
    jobs: list[Job] = []
    last: Job | None = None
    for job in found:
        if len(jobs) == limit:
            break
        last = job
        if reason is None or _reason(job) == reason:
            jobs.append(job)
    over = last is None or last is queue.dead.last()
    following = None if over or last is None else place_behind(last)
    _show_with_errors(call, jobs, following)


def _show_with_errors(call: Call, jobs: list[Job], following: JobPlace | None) -> None:
    def show(errors: list[Error]) -> None:
        letters = [
            messages.DeadLetter(
                **summary_of(call.engine, job, call.now), error=error, error_line=line
            )
            for job, (error, line) in zip(jobs, errors, strict=True)
            if job.state == FAILED  # still, after the disk was read
        ]
        cursor = write_cursor(following) if following is not None else None
        call.answer(200, messages.DeadPage(jobs=letters, next=cursor))

    _load_errors(call, jobs, show)


def _load_errors(call: Call, jobs: list[Job], show: Callable[[list[Error]], None]) -> None:
    """The beginning of each, and of those with their line at the end that, too."""

    def load_ends(begins: list[bytes | None]) -> None:
        def tell(ends: list[bytes | None]) -> None:
            found: list[Error] = []
            for job, begin, end in zip(jobs, begins, ends, strict=True):
                error = error_of(job, begin)
                found.append((error, line_of(error, begin, end)))
            show(found)

        both = zip(jobs, begins, strict=True)
        call.load([error_end(call.broker, job, begin) for job, begin in both], tell)

    call.load([error_place(job, GLANCE) for job in jobs], load_ends)


def _group(call: Call) -> None:
    """By the newest letters, since the number of all of them has no bound."""
    queue = call.queue()
    total = queue.dead.size
    scanned = queue.dead.slice(max(0, total - SCANNED), SCANNED)
    groups: dict[str, list[Job]] = {}
    for job in scanned:
        groups.setdefault(_reason(job), []).append(job)
    newest = [letters[-1] for letters in groups.values()]

    def show(errors: list[Error]) -> None:
        views = [
            messages.DeadGroup(
                reason=reason,
                count=len(letters),
                last_at=format_moment(letters[-1].finished_at),
                last_error=error,
                last_error_line=line,
                sample=[job.id for job in reversed(letters[-_SAMPLE:])],
            )
            for (reason, letters), (error, line) in zip(groups.items(), errors, strict=True)
        ]
        views.sort(key=lambda view: -view.count)
        call.answer(
            200,
            messages.DeadGroups(
                queue=queue.name,
                total=total,
                bytes=queue.dead_bytes,
                complete=len(scanned) == total,
                scanned=len(scanned),
                groups=views,
            ),
        )

    _load_errors(call, newest, show)
