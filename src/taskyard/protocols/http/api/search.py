"""The API's search: jobs by what they have in common, and whatever a text may stand for.

A call scans a limited number of jobs and queues, a chunk in each turn; the cursor continues.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from taskyard.access.principal import INSPECT
from taskyard.broker.interfaces import Scheduler
from taskyard.engine.model.job import (
    GONE,
    MAX_PRIORITY,
    MIN_PRIORITY,
    STATE_NAMES,
    Job,
)
from taskyard.engine.model.queue import Queue
from taskyard.protocols.http.api.jobs import cursor_after, jobs_after, recently_finished
from taskyard.protocols.http.api.problems import (
    INVALID_CURSOR,
    QUEUE_NOT_FOUND,
    FinishedCursor,
    JobCursor,
    invalid_cursor,
    queue_not_found,
    read_cursor,
    write_cursor,
)
from taskyard.protocols.http.api.queues import CURSOR, STATES, SortedQueueNames
from taskyard.protocols.http.api.views import job_summary_fields
from taskyard.protocols.http.call import ApiCall, Operation, QueryParameter
from taskyard.shared import api_types
from taskyard.shared import api_types as messages

LIMIT: Final = QueryParameter(name="limit", doc="how many at most", least=1, most=200, default=50)
CHUNK_STEPS: Final = 500  # jobs and queues in one turn
MAX_SCANNED: Final = 10_000  # of both in one call
MAX_NAMES: Final = 200_000  # of queues and tasks, for a text
_NAMES_PER_CHUNK: Final = 2_000


class SearchOperations:
    def __init__(self, names: SortedQueueNames, scheduler: Scheduler) -> None:
        self._names = names
        self._scheduler = scheduler

    def operations(self) -> list[Operation]:
        states = tuple(STATE_NAMES[state] for state in (*STATES, GONE))
        return [
            Operation(
                method="GET",
                pattern="/api/v1/jobs",
                name="searchJobs",
                summary="Jobs of all queues that the caller may see, by id, queue, name and state",
                action=INSPECT,
                checks_queues_itself=True,
                run=self._jobs,
                query=(
                    QueryParameter(name="q", doc="an id or a uid: that job and no other"),
                    QueryParameter(name="queue", doc="the queue they are in", of_queue=True),
                    QueryParameter(name="name", doc="how their names begin"),
                    QueryParameter(
                        name="state",
                        doc="the state they are in; gone: those that ended a short while ago; "
                        "without it: any but gone",
                        values=states,
                    ),
                    LIMIT,
                    CURSOR,
                ),
                answers={
                    200: ("A page, which may be short while more follows.", messages.FoundJobs)
                },
                problems=(INVALID_CURSOR, QUEUE_NOT_FOUND),
            ),
            Operation(
                method="GET",
                pattern="/api/v1/search",
                name="search",
                summary="The job, queues, task names and schedules that a text may stand for",
                action=INSPECT,
                checks_queues_itself=True,
                run=self._search,
                query=(
                    QueryParameter(name="q", doc="the text"),
                    QueryParameter(
                        name="limit", doc="how many of each at most", least=1, most=100, default=10
                    ),
                ),
                answers={200: ("What the caller may see of it.", messages.Found)},
            ),
        ]

    def _jobs(self, call: ApiCall) -> None:
        which = call.text("q")
        queue = _named_queue(call)
        if which:
            jobs = [
                job
                for job in [_visible_job(call, which)]
                if job is not None and _matches_query(call, job)
            ]
            _answer(call, [_summary(call, job) for job in jobs], len(jobs), None)
        elif call.text("state") == STATE_NAMES[GONE]:
            _list_gone(call, queue)
        else:
            _JobSearch(call, self._scheduler, self._names, queue).start()

    def _search(self, call: ApiCall) -> None:
        text = call.text("q")
        if text:
            _TextSearch(call, self._scheduler, text).start()
        else:
            nothing = messages.Found(jobs=[], queues=[], names=[], schedules=[], complete=True)
            call.send_json(200, nothing)


def _named_queue(call: ApiCall) -> Queue | None:
    """Return the queue in the query; None: any."""
    name = call.text("queue")
    if not name:
        return None
    call.require(name)
    queue = call.engine.queue(name.encode())
    if queue is None:
        raise queue_not_found(name)
    return queue


def _visible_job(call: ApiCall, which: str) -> Job | None:
    """The one of this id or uid, if it is there and the caller may see it."""
    job = call.lookup_job(which) if call.is_job_reference(which) else None
    return job if job is not None and call.may_inspect(job.queue) else None


def _matches_query(call: ApiCall, job: Job) -> bool:
    state, queue = call.text("state"), call.text("queue")
    return (
        job.name.startswith(call.text("name"))
        and (not state or STATE_NAMES[job.state] == state)
        and (not queue or job.queue.name == queue)
    )


def _summary(call: ApiCall, job: Job) -> api_types.JobSummary:
    return api_types.JobSummary(**job_summary_fields(call.engine, job, call.now))


def _answer(
    call: ApiCall,
    jobs: list[api_types.JobSummary],
    looked_at: int,
    following: JobCursor | FinishedCursor | None,
) -> None:
    cursor = write_cursor(following) if following is not None else None
    call.send_json(200, messages.FoundJobs(jobs=jobs, looked_at=looked_at, next=cursor))


def _list_gone(call: ApiCall, queue: Queue | None) -> None:
    """List jobs of the ring of finished jobs, the last first."""
    limit = call.number("limit")
    jobs: list[api_types.JobSummary] = []
    looked_at = 0
    last: Job | None = None
    for job in islice(recently_finished(call), MAX_SCANNED):
        looked_at += 1
        last = job
        if (
            (queue is None or job.queue is queue)
            and call.may_inspect(job.queue)
            and _matches_query(call, job)
        ):
            jobs.append(_summary(call, job))
            if len(jobs) == limit:
                break
    more = last is not None and (len(jobs) == limit or looked_at == MAX_SCANNED)
    _answer(call, jobs, looked_at, FinishedCursor(last.id) if more and last is not None else None)


class _ChunkedSearch:
    """Runs an operation in chunks, each in a turn of its own."""

    def __init__(self, call: ApiCall, scheduler: Scheduler) -> None:
        self._call = call
        self._scheduler = scheduler

    def start(self) -> None:
        """Run the first chunk, in the turn of the request."""
        if not self._run_chunk():
            self._scheduler.call_soon(self._continue_next_turn)

    def _continue_next_turn(self) -> None:
        call = self._call
        call.now = call.broker.begin_turn()
        call.run_guarded(self.start)
        call.broker.end_turn()

    def _run_chunk(self) -> bool:
        """True if it has been answered."""
        raise NotImplementedError


class _JobSearch(_ChunkedSearch):
    """Searches jobs queue by queue and state by state; its position stays valid while jobs come and
    go.
    """

    def __init__(
        self, call: ApiCall, scheduler: Scheduler, names: SortedQueueNames, queue: Queue | None
    ) -> None:
        super().__init__(call, scheduler)
        self._names = names
        self._queue = queue
        state = call.text("state")
        self._states = [STATE_NAMES.index(state)] if state else list(STATES)
        self._limit = call.number("limit")
        self._name = call.text("name")
        self._found: list[api_types.JobSummary] = []
        self._scanned_jobs = 0  # scanned
        self._steps = 0  # jobs and queues
        self._position = self._start_position()

    def _start_position(self) -> JobCursor:
        cursor = self._call.text("cursor")
        if not cursor:
            return _start_of_state(
                self._queue.name if self._queue is not None else "", self._states[0]
            )
        place = read_cursor(cursor, JobCursor)
        if self._queue is not None and place.queue != self._queue.name:
            raise invalid_cursor()
        if place.state not in [STATE_NAMES[state] for state in self._states]:
            raise invalid_cursor()
        return place

    def _run_chunk(self) -> bool:
        left = CHUNK_STEPS
        while left > 0:
            left -= 1
            self._steps += 1
            here = self._current_queue()
            if here is not None:
                looked_at = self._scan_queue(here, left + 1)
                left -= looked_at
                self._steps += looked_at
                if len(self._found) == self._limit:
                    self._answer_found(self._position)
                    return True
                if left <= 0:
                    break
            if not self._advance(here):
                self._answer_found(None)
                return True
        if self._steps >= MAX_SCANNED:
            self._answer_found(self._position)
            return True
        return False

    def _current_queue(self) -> Queue | None:
        name = self._position.queue
        queue = self._call.engine.queue(name.encode(errors="replace")) if name else None
        return queue if queue is not None and self._call.may_inspect(queue) else None

    def _scan_queue(self, queue: Queue, most: int) -> int:
        """Scan some jobs of this state from the position on; returns how many."""
        call = self._call
        state = STATE_NAMES.index(self._position.state)
        if not queue.job_count(state):
            return 0
        jobs = jobs_after(call, queue, state, self._position, most)
        for number, job in enumerate(jobs):
            self._position = cursor_after(job)
            if job.name.startswith(self._name):
                self._found.append(_summary(call, job))
                if len(self._found) == self._limit:
                    self._scanned_jobs += number + 1
                    return number + 1
        self._scanned_jobs += len(jobs)
        return len(jobs)

    def _advance(self, queue: Queue | None) -> bool:
        """Continue with the next state or queue; False: there is none."""
        at = self._states.index(STATE_NAMES.index(self._position.state)) + 1
        if queue is not None:
            for state in self._states[at:]:
                if queue.job_count(state):
                    self._position = _start_of_state(self._position.queue, state)
                    return True
        if self._queue is not None:
            return False
        names = self._names.names_after(self._position.queue, 1)
        if not names:
            return False
        self._position = _start_of_state(names[0].decode(), self._states[0])
        return True

    def _answer_found(self, place: JobCursor | None) -> None:
        _answer(self._call, self._found, self._scanned_jobs, place)


def _start_of_state(queue: str, state: int) -> JobCursor:
    return JobCursor(queue, STATE_NAMES[state], MAX_PRIORITY, MIN_PRIORITY, 0)


class _TextSearch(_ChunkedSearch):
    """Names of queues and of the tasks in them."""

    def __init__(self, call: ApiCall, scheduler: Scheduler, text: str) -> None:
        super().__init__(call, scheduler)
        self._text = text
        self._folded = text.casefold()
        self._limit = call.number("limit")
        self._all_queues = list(call.engine.state.queues.values())
        self._next_index = 0
        self._scanned = 0
        self._queues: list[str] = []
        self._tasks: dict[str, None] = {}
        self._complete = True

    def _run_chunk(self) -> bool:
        upto = self._scanned + _NAMES_PER_CHUNK
        while self._next_index < len(self._all_queues) and self._scanned < upto:
            queue = self._all_queues[self._next_index]
            self._next_index += 1
            self._match_queue(queue)
        self._keep_closest()
        if self._next_index == len(self._all_queues):
            self._answer_found()
            return True
        if self._scanned >= MAX_NAMES:
            self._complete = False
            self._answer_found()
            return True
        return False

    def _match_queue(self, queue: Queue) -> None:
        names = queue.interned_names
        self._scanned += 1 + len(names)
        tasks = [name for name in names if self._folded in name.casefold()]
        named = self._folded in queue.name.casefold()
        if not (tasks or named) or not self._call.may_inspect(queue):
            return
        if named:
            self._queues.append(queue.name)
        for name in tasks:
            if len(self._tasks) < self._limit:
                self._tasks[name] = None
            elif name not in self._tasks:
                self._complete = False

    def _keep_closest(self) -> None:
        """Keep the closest ones, so that there are never many to sort."""
        self._queues.sort(key=lambda name: (len(name), name))
        if len(self._queues) > self._limit:
            self._complete = False
            del self._queues[self._limit :]

    def _answer_found(self) -> None:
        call = self._call
        schedules = self._schedules()
        if len(schedules) > self._limit:
            self._complete = False
        job = _visible_job(call, self._text)
        call.send_json(
            200,
            messages.Found(
                jobs=[_summary(call, job)] if job is not None else [],
                queues=self._queues,
                names=sorted(self._tasks),
                schedules=schedules[: self._limit],
                complete=self._complete,
            ),
        )

    def _schedules(self) -> list[str]:
        found: list[str] = []
        for schedule in self._call.engine.state.schedules.values():
            if self._folded in schedule.name.casefold() and self._may_see(schedule.job.queue):
                found.append(schedule.name)
                if len(found) > self._limit:
                    break
        return found

    def _may_see(self, queue: str) -> bool:
        return self._call.request.principal.may(INSPECT, queue)
