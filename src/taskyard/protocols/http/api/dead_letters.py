"""The API's dead letters: grouped by reason, listed, replayed, purged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec import UNSET, UnsetType

from taskyard.access.principal import ADMIN, INSPECT
from taskyard.broker.interfaces import Scheduler
from taskyard.engine.model.events import TaskyardError
from taskyard.engine.model.job import FAILED, Job
from taskyard.engine.model.queue import Queue
from taskyard.engine.records.job_lifecycle import PURGED
from taskyard.protocols.http.api.jobs import cursor_after, jobs_after, start_cursor
from taskyard.protocols.http.api.problems import (
    DISK_ERROR,
    INVALID_CURSOR,
    QUEUE_NOT_FOUND,
    ApiProblem,
    JobCursor,
    invalid_value,
    problem_of,
    write_cursor,
)
from taskyard.protocols.http.api.queues import CHUNK_JOBS, CURSOR, LIMIT, QUEUE, QueueScan
from taskyard.protocols.http.api.views import (
    ERROR_PREVIEW_BYTES,
    error_end_location,
    error_line_of,
    error_location,
    error_view,
    job_summary_fields,
)
from taskyard.protocols.http.call import JSON, ApiCall, Operation, QueryParameter
from taskyard.protocols.text import format_moment
from taskyard.shared import api_types as messages

MAX_SCANNED: Final = 10_000  # most dead letters scanned in one turn
_SAMPLE_SIZE: Final = 10


Act = Callable[[ApiCall, Job], None]
OnDone = Callable[
    [ApiCall, int, list[int]], None
]  # how many, and the ids that were no dead letters
ErrorAndLine = tuple[messages.Content | None, str | None]  # the beginning of it, and its line


class DeadLetterOperations:
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
                    QueryParameter(name="reason", doc="only those that failed for this reason"),
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

    def _replay(self, call: ApiCall) -> None:
        body = call.body(messages.Replay)
        if (body.ids is UNSET) != body.all:
            raise invalid_value("ids", "Give either the ids, or all: true.")
        self._apply_to_selected(call, body.ids, body.reason, _replay, _replayed)

    def _purge(self, call: ApiCall) -> None:
        body = call.body(messages.PurgeDead)
        self._apply_to_selected(call, body.ids, body.reason, _purge, _purged)

    def _apply_to_selected(
        self,
        call: ApiCall,
        ids: list[int] | UnsetType,
        reason: str | UnsetType,
        act: Act,
        end: OnDone,
    ) -> None:
        if ids is not UNSET and reason is not UNSET:
            raise invalid_value("reason", "A reason goes with all dead letters, not with ids.")
        queue = call.queue()
        if ids is UNSET:
            self._apply_to_all(call, queue, reason, act, end)
        else:
            _SelectedLetters(
                call, self._scheduler, queue, list(dict.fromkeys(ids)), act, end
            ).run_chunk()

    def _apply_to_all(
        self,
        call: ApiCall,
        queue: Queue,
        reason: str | UnsetType,
        act: Act,
        end: OnDone,
    ) -> None:
        # A dead letter that is replayed may fail for good again meanwhile: that is another one.
        last = queue.dead.last().order_key if queue.dead.size else 0

        def act_on(job: Job) -> bool:
            if job.order_key > last or (reason is not UNSET and _reason(job) != reason):
                return False
            act(call, job)
            return True

        def done(count: int) -> None:
            end(call, count, [])

        QueueScan(call, self._scheduler, queue, [FAILED], act_on, done).start()


class _SelectedLetters:
    """Applies an action to dead letters with certain ids, in chunks."""

    def __init__(
        self,
        call: ApiCall,
        scheduler: Scheduler,
        queue: Queue,
        ids: list[int],
        act: Act,
        end: OnDone,
    ) -> None:
        self._call = call
        self._scheduler = scheduler
        self._queue = queue
        self._ids = ids
        self._act = act
        self._end = end
        self._next_index = 0
        self._skipped: list[int] = []

    def run_chunk(self) -> None:
        call = self._call
        engine = call.engine
        for id in self._ids[self._next_index : self._next_index + CHUNK_JOBS]:
            job = engine.state.live_job(id) if id < engine.state.next_id else None
            if job is None or job.state != FAILED or job.queue is not self._queue:
                self._skipped.append(id)
            else:
                self._act_on(job)
            self._next_index += 1
        if self._next_index < len(self._ids):
            self._scheduler.call_soon(self._continue_next_turn)
        else:
            count = self._next_index - len(self._skipped)
            self._end(call, count, self._skipped)

    def _act_on(self, job: Job) -> None:
        try:
            self._act(self._call, job)
        except TaskyardError as error:
            problem: ApiProblem = problem_of(error)
            problem.done = self._next_index - len(self._skipped)
            raise problem from error

    def _continue_next_turn(self) -> None:
        call = self._call
        call.now = call.broker.begin_turn()
        call.run_guarded(self.run_chunk)
        call.broker.end_turn()


def _replay(call: ApiCall, job: Job) -> None:
    call.engine.replay_dead_letter(job.id, call.origin, call.now)


def _replayed(call: ApiCall, count: int, skipped: list[int]) -> None:
    call.send_json(200, messages.Replayed(replayed=count, skipped=skipped))


def _purge(call: ApiCall, job: Job) -> None:
    call.engine.delete_job(job.id, call.origin, call.now, PURGED)


def _purged(call: ApiCall, count: int, skipped: list[int]) -> None:
    call.send_json(200, messages.PurgedDead(removed=count, skipped=skipped))


def _reason(job: Job) -> str:
    extra = job.extras
    return extra.reason if extra is not None else ""


def _list(call: ApiCall) -> None:
    """With a reason it scans a limited number of them; then the page ends, however short."""
    queue = call.queue()
    limit = call.number("limit")
    reason = call.arguments["reason"]
    place = start_cursor(call, queue, FAILED)
    found = jobs_after(call, queue, FAILED, place, limit if reason is None else MAX_SCANNED)
    jobs: list[Job] = []
    last: Job | None = None
    for job in found:
        if len(jobs) == limit:
            break
        last = job
        if reason is None or _reason(job) == reason:
            jobs.append(job)
    over = last is None or last is queue.dead.last()
    following = None if over or last is None else cursor_after(last)
    _show_with_errors(call, jobs, following)


def _show_with_errors(call: ApiCall, jobs: list[Job], following: JobCursor | None) -> None:
    def show(errors: list[ErrorAndLine]) -> None:
        letters = [
            messages.DeadLetter(
                **job_summary_fields(call.engine, job, call.now), error=error, error_line=line
            )
            for job, (error, line) in zip(jobs, errors, strict=True)
            if job.state == FAILED  # still, after the disk was read
        ]
        cursor = write_cursor(following) if following is not None else None
        call.send_json(200, messages.DeadPage(jobs=letters, next=cursor))

    _load_errors(call, jobs, show)


def _load_errors(
    call: ApiCall, jobs: list[Job], show: Callable[[list[ErrorAndLine]], None]
) -> None:
    """The beginning of each, and of those with their line at the end that, too."""

    def load_ends(begins: list[bytes | None]) -> None:
        def tell(ends: list[bytes | None]) -> None:
            found: list[ErrorAndLine] = []
            for job, begin, end in zip(jobs, begins, ends, strict=True):
                error = error_view(job, begin)
                found.append((error, error_line_of(error, begin, end)))
            show(found)

        both = zip(jobs, begins, strict=True)
        call.read_blobs([error_end_location(call.broker, job, begin) for job, begin in both], tell)

    call.read_blobs([error_location(job, ERROR_PREVIEW_BYTES) for job in jobs], load_ends)


def _group(call: ApiCall) -> None:
    """Group the newest letters, because the number of all of them has no bound."""
    queue = call.queue()
    total = queue.dead.size
    scanned = queue.dead.slice(max(0, total - MAX_SCANNED), MAX_SCANNED)
    groups: dict[str, list[Job]] = {}
    for job in scanned:
        groups.setdefault(_reason(job), []).append(job)
    newest = [letters[-1] for letters in groups.values()]

    def show(errors: list[ErrorAndLine]) -> None:
        views = [
            messages.DeadGroup(
                reason=reason,
                count=len(letters),
                last_at=format_moment(letters[-1].finished_at),
                last_error=error,
                last_error_line=line,
                sample=[job.id for job in reversed(letters[-_SAMPLE_SIZE:])],
            )
            for (reason, letters), (error, line) in zip(groups.items(), errors, strict=True)
        ]
        views.sort(key=lambda view: -view.count)
        call.send_json(
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
