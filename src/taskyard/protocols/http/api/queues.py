"""The API's queues: list, create, settings, pause, resume, purge, delete."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import Final
from urllib.parse import quote

from msgspec import UNSET

from taskyard.access.principal import ADMIN, INSPECT
from taskyard.broker.commit import Broker
from taskyard.broker.interfaces import Scheduler
from taskyard.engine.limits import next_start_us
from taskyard.engine.model.events import TaskyardError, WrongState
from taskyard.engine.model.job import (
    BLOCKED,
    DELAYED,
    FAILED,
    LEASED,
    LIMITED,
    MAX_PRIORITY,
    MIN_PRIORITY,
    READY,
    SECOND,
    STATE_NAMES,
    SUCCEEDED,
    Job,
)
from taskyard.engine.model.queue import Queue, QueueSettings, copy_settings
from taskyard.engine.records.job_lifecycle import PURGED
from taskyard.protocols.http.api.problems import (
    INVALID_CURSOR,
    INVALID_VALUE,
    MAX_CURSOR_CHARS,
    QUEUE_NOT_EMPTY,
    QUEUE_NOT_FOUND,
    ApiProblem,
    NameCursor,
    problem_of,
    queue_not_found,
    read_cursor,
    write_cursor,
)
from taskyard.protocols.http.api.views import moment, seconds
from taskyard.protocols.http.call import JSON, Answers, ApiCall, Operation, QueryParameter
from taskyard.shared import api_types as messages

CHUNK_JOBS: Final = 500  # jobs scanned in one turn: some milliseconds
_BACKLOG_PAUSE_US: Final = 5_000  # microseconds, while the disk is behind

_START_POSITION: Final = (MAX_PRIORITY, MIN_PRIORITY, 0)

LIMIT: Final = QueryParameter(name="limit", doc="how many at most", least=1, most=1000, default=100)
CURSOR: Final = QueryParameter(
    name="cursor", doc=f"where to go on: at most {MAX_CURSOR_CHARS} characters"
)
BACKOFFS: Final = ("none", "quartic", "exponential")
MAX_SCANNED_QUEUES: Final = 10_000  # queues, for one page of those that a caller may see
# Limited jobs first: while they are gone through, they may become ready.
STATES: Final = (LIMITED, BLOCKED, DELAYED, READY, LEASED, SUCCEEDED, FAILED)
QUEUE: Final = "/api/v1/queues/{queue}"


class QueueOperations:
    def __init__(self, names: SortedQueueNames, scheduler: Scheduler) -> None:
        self._names = names
        self._scheduler = scheduler

    def operations(self) -> list[Operation]:
        one = {200: ("The queue.", messages.QueueView)}
        return [*self._on_settings(one), *self._on_jobs(one)]

    def _on_settings(self, one: Answers) -> list[Operation]:
        return [
            Operation(
                method="GET",
                pattern="/api/v1/queues",
                name="listQueues",
                summary="All queues that the caller may see, in order of their names",
                action=INSPECT,
                checks_queues_itself=True,
                run=self._list,
                query=(LIMIT, CURSOR),
                answers={
                    200: ("A page, which may be short while more follows.", messages.QueuePage)
                },
                problems=(INVALID_CURSOR,),
            ),
            Operation(
                method="GET",
                pattern=QUEUE,
                name="getQueue",
                summary="One queue: counts, settings, counters",
                action=INSPECT,
                run=lambda call: call.send_json(200, queue_view(call, call.queue())),
                answers=one,
                problems=(QUEUE_NOT_FOUND,),
            ),
            Operation(
                method="PUT",
                pattern=QUEUE,
                name="putQueue",
                summary="Create a queue, or give it these settings and no others",
                action=ADMIN,
                run=self._put,
                bodies={JSON: messages.Settings},
                answers={201: ("It was created.", messages.QueueView), **one},
            ),
            Operation(
                method="PATCH",
                pattern=QUEUE,
                name="changeQueue",
                summary="Change some of a queue's settings",
                action=ADMIN,
                run=self._patch,
                bodies={JSON: messages.Settings},
                answers=one,
                problems=(QUEUE_NOT_FOUND,),
            ),
        ]

    def _on_jobs(self, one: Answers) -> list[Operation]:
        """Operations on the jobs of a queue: pause, resume, purge and the like."""
        return [
            Operation(
                method="DELETE",
                pattern=QUEUE,
                name="deleteQueue",
                summary="Delete a queue; with purge=true also the jobs in it",
                action=ADMIN,
                run=self._delete,
                query=(
                    QueryParameter(
                        name="purge",
                        doc="whether its jobs go with it",
                        values=("true", "false"),
                        default="false",
                    ),
                ),
                answers={200: ("It is gone.", messages.Removed)},
                problems=(QUEUE_NOT_FOUND, QUEUE_NOT_EMPTY),
            ),
            Operation(
                method="POST",
                pattern=QUEUE + "/pause",
                name="pauseQueue",
                summary="Hand out no more jobs of this queue",
                action=ADMIN,
                run=lambda call: _pause(call, True),
                answers=one,
                problems=(QUEUE_NOT_FOUND,),
            ),
            Operation(
                method="POST",
                pattern=QUEUE + "/resume",
                name="resumeQueue",
                summary="Hand out jobs of this queue again",
                action=ADMIN,
                run=lambda call: _pause(call, False),
                answers=one,
                problems=(QUEUE_NOT_FOUND,),
            ),
            Operation(
                method="POST",
                pattern=QUEUE + "/purge",
                name="purgeQueue",
                summary="Remove the jobs that are in these states now; answers when it is done",
                action=ADMIN,
                run=self._purge,
                bodies={JSON: messages.Purge},
                answers={200: ("They are gone.", messages.Removed)},
                problems=(QUEUE_NOT_FOUND,),
            ),
        ]

    def _list(self, call: ApiCall) -> None:
        limit = call.number("limit")
        cursor = call.text("cursor")
        behind = read_cursor(cursor, NameCursor).name if cursor else ""
        queues = call.engine.state.queues
        # A page that is hidden in part may be short, or empty, while more follows.
        names = self._names.names_after(
            behind, limit if call.request.principal.is_superuser else MAX_SCANNED_QUEUES
        )
        shown: list[Queue] = []
        last = b""
        for name in names:
            if len(shown) == limit:
                break
            last = name
            if call.may_inspect(queues[name]):
                shown.append(queues[name])
        full = len(shown) == limit or len(names) == MAX_SCANNED_QUEUES
        following = write_cursor(NameCursor(last.decode())) if full else None
        views = [queue_view(call, queue) for queue in shown]
        call.send_json(200, messages.QueuePage(queues=views, next=following))

    def _put(self, call: ApiCall) -> None:
        body = call.body(messages.Settings)
        name = call.queue_name()
        there = call.engine.queue(name.encode())
        if there is None:
            settings = apply_settings(QueueSettings(), body)
            queue = call.engine.create_queue(name, settings, call.origin, call.now)
            location = f"/api/v1/queues/{quote(queue.name, safe='')}"
            call.send_json(201, queue_view(call, queue), [("Location", location)])
            return
        old = there.settings
        fresh = QueueSettings(True, old.paused)
        _configure(call, there, apply_settings(fresh, body))

    def _patch(self, call: ApiCall) -> None:
        body = call.body(messages.Settings)
        queue = call.queue()
        _configure(call, queue, apply_settings(copy_settings(queue.settings), body))

    def _purge(self, call: ApiCall) -> None:
        body = call.body(messages.Purge)
        if len(set(body.states)) != len(body.states):
            raise ApiProblem(INVALID_VALUE, "Name each state once.", field="states")
        states = [state for state in STATES if STATE_NAMES[state] in body.states]
        self._remove_jobs(call, call.queue(), states, _PurgeAnswer(call))

    def _delete(self, call: ApiCall) -> None:
        queue = call.queue()
        if call.text("purge") == "true":
            self._remove_jobs(call, queue, list(STATES), _DeleteAnswer(call))
        else:
            _DeleteAnswer(call).on_removed(0)

    def _remove_jobs(
        self, call: ApiCall, queue: Queue, states: list[int], end: _PurgeAnswer
    ) -> None:
        before = call.engine.state.next_id  # what is pushed from now on stays
        if LIMITED in states and READY in states:
            # A fetch meanwhile may park ready jobs, some of which are released again.
            behind = states.index(READY) + 1
            states[behind:behind] = [LIMITED, READY]

        def remove(job: Job) -> bool:
            if job.id >= before:
                return False
            call.engine.delete_job(job.id, call.origin, call.now, PURGED)
            return True

        QueueScan(call, self._scheduler, queue, states, remove, end.on_removed).start()


class SortedQueueNames:
    """The names of all queues in order, sorted again when a queue was created or deleted."""

    def __init__(self, broker: Broker) -> None:
        self._state = broker.engine.state
        self._names: list[bytes] = []
        self._names_version = -1

    def names_after(self, name: str, limit: int) -> list[bytes]:
        if self._names_version != self._state.queues_version:
            self._names_version = self._state.queues_version
            self._names = sorted(self._state.queues)
        start = bisect_right(self._names, name.encode(errors="replace"))
        return self._names[start : start + limit]


class _PurgeAnswer:
    def __init__(self, call: ApiCall) -> None:
        self._call = call

    def on_removed(self, removed: int) -> None:
        self._call.send_json(200, messages.Removed(removed=removed))


class _DeleteAnswer(_PurgeAnswer):
    def on_removed(self, removed: int) -> None:
        call = self._call
        try:
            call.engine.delete_queue(call.queue().utf8, call.origin, call.now)
        except WrongState:
            raise ApiProblem(
                QUEUE_NOT_EMPTY,
                "The queue still has jobs: purge it first, or delete it with ?purge=true.",
                done=removed,
            ) from None
        super().on_removed(removed)


def _pause(call: ApiCall, paused: bool) -> None:
    queue = call.queue()
    settings = copy_settings(queue.settings)
    settings.paused = paused
    _configure(call, queue, settings)


def _configure(call: ApiCall, queue: Queue, settings: QueueSettings) -> None:
    queue = call.engine.configure_queue(queue.utf8, settings, call.origin, call.now)
    call.send_json(200, queue_view(call, queue))


def apply_settings(settings: QueueSettings, body: messages.Settings) -> QueueSettings:
    """With what the body names; null is the engine's -1."""
    if body.retries is not UNSET:
        settings.retries = -1 if body.retries is None else body.retries
    if body.result_retention is not UNSET:
        settings.result_retention = _microseconds(body.result_retention)
    if body.dead_retention is not UNSET:
        kept = body.dead_retention
        settings.dead_retention = -1 if kept is None else _microseconds(kept)
    if body.backoff is not UNSET:
        settings.backoff = -1 if body.backoff is None else BACKOFFS.index(body.backoff)
    if body.backoff_base is not UNSET:
        settings.backoff_base = _microseconds(body.backoff_base)
    if body.backoff_cap is not UNSET:
        settings.backoff_cap = _microseconds(body.backoff_cap)
    if body.max_jobs is not UNSET:
        settings.max_jobs = -1 if body.max_jobs is None else body.max_jobs
    if body.max_bytes is not UNSET:
        settings.max_bytes = -1 if body.max_bytes is None else body.max_bytes
    if body.overflow is not UNSET:
        settings.overflow = messages.OVERFLOWS.index(body.overflow)
    _change_limits(settings, body)
    return settings


def _change_limits(settings: QueueSettings, body: messages.Settings) -> None:
    if body.ttr is not UNSET:
        settings.ttr = -1 if body.ttr is None else _microseconds(body.ttr)
    if body.concurrency is not UNSET:
        settings.concurrency = -1 if body.concurrency is None else body.concurrency
    if body.rate is not UNSET:
        settings.rate_count, settings.rate_period = _rate_to_settings(body.rate)
    if body.key_concurrency is not UNSET:
        settings.key_concurrency = -1 if body.key_concurrency is None else body.key_concurrency
    if body.key_rate is not UNSET:
        settings.key_rate_count, settings.key_rate_period = _rate_to_settings(body.key_rate)
    if body.draining is not UNSET:
        settings.draining = body.draining
    if body.idle_expiry is not UNSET:
        settings.idle_expiry = _idle_expiry_us(body.idle_expiry)


def _rate_to_settings(given: messages.Rate | None) -> tuple[int, int]:
    return (-1, 0) if given is None else (given.count, _microseconds(given.per))


def _idle_expiry_us(given: float | None) -> int:
    """Between never and a second it stays there when it is rounded, and is refused."""
    if given is None:
        return -1
    expiry = _microseconds(given)
    return min(max(expiry, 1), SECOND - 1) if 0 < given < 1 else expiry


def _microseconds(given: float) -> int:
    return round(given * SECOND)


def queue_view(call: ApiCall, queue: Queue) -> messages.QueueView:
    settings = queue.settings
    waiters = call.engine.waiters.get(queue.utf8)
    return messages.QueueView(
        name=queue.name,
        paused=settings.paused,
        created=settings.created,
        counts=counts_of(queue),
        waiting=len(waiters) if waiters is not None else 0,
        waiting_bytes=queue.unfinished_bytes,
        dead_bytes=queue.dead_bytes,
        opens_at=rate_opens_at(queue, call.now),
        settings=settings_view(settings),
        effective=settings_view(queue.effective_settings),
        counters=counters_of(queue),
    )


def counts_of(queue: Queue) -> messages.StateCounts:
    return messages.StateCounts(
        blocked=queue.blocked.size,
        delayed=queue.delayed.size,
        ready=queue.ready.size,
        leased=queue.leased.size,
        succeeded=queue.done.size,
        failed=queue.dead.size,
        limited=queue.limited.size,
    )


def counters_of(queue: Queue) -> messages.Counters:
    return messages.Counters(
        pushed=queue.pushed,
        leases=queue.leases,
        finished=queue.finished,
        failed=queue.failed,
        retried=queue.retried,
        released=queue.released,
        expired=queue.expired,
        removed=queue.removed,
    )


def rate_opens_at(queue: Queue, now: int) -> str | None:
    """When its rate lets the next job go, if that is not now."""
    rules = queue.effective_settings
    if rules.rate_count <= 0:
        return None
    when = next_start_us(queue.theoretical_arrival_ns, rules.rate_count, rules.rate_period)
    return moment(when) if when > now else None


def settings_view(settings: QueueSettings) -> messages.SettingsView:
    return messages.SettingsView(
        retries=_unless_unset(settings.retries),
        result_retention=seconds(settings.result_retention),
        dead_retention=_seconds_unless_unset(settings.dead_retention),
        backoff=None if settings.backoff < 0 else BACKOFFS[settings.backoff],
        backoff_base=seconds(settings.backoff_base),
        backoff_cap=seconds(settings.backoff_cap),
        max_jobs=_unless_unset(settings.max_jobs),
        max_bytes=_unless_unset(settings.max_bytes),
        overflow=messages.OVERFLOWS[settings.overflow],
        ttr=_seconds_unless_unset(settings.ttr),
        concurrency=_unless_unset(settings.concurrency),
        rate=_rate_view(settings.rate_count, settings.rate_period),
        key_concurrency=_unless_unset(settings.key_concurrency),
        key_rate=_rate_view(settings.key_rate_count, settings.key_rate_period),
        draining=settings.draining,
        idle_expiry=_seconds_unless_unset(settings.idle_expiry),
    )


def _unless_unset(value: int) -> int | None:
    return None if value < 0 else value


def _seconds_unless_unset(value: int) -> float | None:
    return None if value < 0 else seconds(value)


def _rate_view(count: int, period: int) -> messages.Rate | None:
    return None if count < 0 else messages.Rate(count=count, per=seconds(period))


# Actions on many jobs of a queue


class QueueScan:
    """Applies an action to many jobs of a queue in chunks, so that other clients do not wait.

    The scan keeps a position, not a job: jobs that come and go meanwhile neither stop it nor make
    it miss one that stays.
    """

    def __init__(
        self,
        call: ApiCall,
        scheduler: Scheduler,
        queue: Queue,
        states: list[int],
        act: Callable[[Job], bool],
        then: Callable[[int], None],
    ) -> None:
        self._call = call
        self._scheduler = scheduler
        self._queue = queue
        self._states = list(reversed(states))  # the next one last
        self._act = act  # says whether it did anything
        self._then = then
        self._position = _START_POSITION
        self._done = 0

    def start(self) -> None:
        """Run the first chunk, in the turn of the request."""
        if self._run_chunk():
            self._then(self._done)
        elif self._call.broker.is_backlogged():
            when = self._call.broker.clock.now() + _BACKLOG_PAUSE_US
            self._scheduler.call_at(when, self._continue_next_turn)
        else:
            self._scheduler.call_soon(self._continue_next_turn)

    def _continue_next_turn(self) -> None:
        call = self._call
        call.now = call.broker.begin_turn()
        call.run_guarded(self.start)
        call.broker.end_turn()

    def _run_chunk(self) -> bool:
        """Run one chunk; True if it was the last."""
        call = self._call
        engine = call.engine
        if engine.queue(self._queue.utf8) is not self._queue:
            raise self._stopped(queue_not_found(self._queue.name))
        priority, position, id = self._position
        state = self._states[-1]
        jobs = engine.jobs_after(self._queue, state, priority, position, id, CHUNK_JOBS)
        try:
            for job in jobs:
                self._position = (job.priority, job.order_key, job.id)  # before it is moved
                if self._act(job):
                    self._done += 1
        except TaskyardError as error:
            raise self._stopped(problem_of(error)) from error
        if len(jobs) < CHUNK_JOBS:
            self._states.pop()
            self._position = _START_POSITION
        return not self._states

    def _stopped(self, problem: ApiProblem) -> ApiProblem:
        problem.done = self._done
        return problem
