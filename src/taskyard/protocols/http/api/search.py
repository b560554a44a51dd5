"""The API's search: jobs by what they have in common, and whatever a text may stand for.

A call looks at so many jobs and queues and no more, a portion in each turn; the cursor goes on.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from taskyard.access.principal import INSPECT
from taskyard.broker.seams import Scheduler
from taskyard.engine.model.job import (
    GONE,
    MAX_PRIORITY,
    MIN_PRIORITY,
    STATE_NAMES,
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
from taskyard.protocols.http.api.jobs import after, place_behind, recently_finished
from taskyard.protocols.http.api.problems import INVALID_CURSOR, QUEUE_NOT_FOUND, no_queue
from taskyard.protocols.http.api.queues import CURSOR, STATES, QueueNames
from taskyard.protocols.http.api.views import summary_of
from taskyard.protocols.http.call import Call, Operation, Parameter
from taskyard.shared import api_messages
from taskyard.shared import search_messages as messages

LIMIT: Final = Parameter(name="limit", doc="how many at most", least=1, most=200, default=50)
PORTION: Final = 500  # jobs and queues in one turn
MOST_LOOKED_AT: Final = 10_000  # of both in one call
MOST_NAMES: Final = 200_000  # of queues and tasks, for a text
_NAMES_AT_ONCE: Final = 2_000


class SearchOperations:
    def __init__(self, names: QueueNames, scheduler: Scheduler) -> None:
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
                anywhere=True,
                run=self._jobs,
                query=(
                    Parameter(name="q", doc="an id or a uid: that job and no other"),
                    Parameter(name="queue", doc="the queue they are in", of_queue=True),
                    Parameter(name="name", doc="how their names begin"),
                    Parameter(
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
                anywhere=True,
                run=self._search,
                query=(
                    Parameter(name="q", doc="the text"),
                    Parameter(
                        name="limit", doc="how many of each at most", least=1, most=100, default=10
                    ),
                ),
                answers={200: ("What the caller may see of it.", messages.Found)},
            ),
        ]

    def _jobs(self, call: Call) -> None:
        which = call.text("q")
        queue = _queue_named(call)
        if which:
            jobs = [job for job in [_job(call, which)] if job is not None and _fits(call, job)]
            _answer(call, [_summary(call, job) for job in jobs], len(jobs), None)
        elif call.text("state") == STATE_NAMES[GONE]:
            _list_gone(call, queue)
        else:
            _JobWalk(call, self._scheduler, self._names, queue).start()

    def _search(self, call: Call) -> None:
        text = call.text("q")
        if text:
            _TextWalk(call, self._scheduler, text).start()
        else:
            nothing = messages.Found(jobs=[], queues=[], names=[], schedules=[], complete=True)
            call.answer(200, nothing)


def _queue_named(call: Call) -> Queue | None:
    """The one that the query asks for; None: any."""
    name = call.text("queue")
    if not name:
        return None
    call.allow_on(name)
    queue = call.engine.queue(name.encode())
    if queue is None:
        raise no_queue(name)
    return queue


def _job(call: Call, which: str) -> Job | None:
    """The one of this id or uid, if it is there and the caller may see it."""
    job = call.find(which) if call.names_a_job(which) else None
    return job if job is not None and call.shows(job.queue) else None


def _fits(call: Call, job: Job) -> bool:
    state, queue = call.text("state"), call.text("queue")
    return (
        job.name.startswith(call.text("name"))
        and (not state or STATE_NAMES[job.state] == state)
        and (not queue or job.queue.name == queue)
    )


def _summary(call: Call, job: Job) -> api_messages.JobSummary:
    return api_messages.JobSummary(**summary_of(call.engine, job, call.now))


def _answer(
    call: Call,
    jobs: list[api_messages.JobSummary],
    looked_at: int,
    following: JobPlace | RingPlace | None,
) -> None:
    cursor = write_cursor(following) if following is not None else None
    call.answer(200, messages.FoundJobs(jobs=jobs, looked_at=looked_at, next=cursor))


def _list_gone(call: Call, queue: Queue | None) -> None:
    """Of the ring of finished jobs, the last first."""
    limit = call.number("limit")
    jobs: list[api_messages.JobSummary] = []
    looked_at = 0
    last: Job | None = None
    for job in islice(recently_finished(call), MOST_LOOKED_AT):
        looked_at += 1
        last = job
        if (queue is None or job.queue is queue) and call.shows(job.queue) and _fits(call, job):
            jobs.append(_summary(call, job))
            if len(jobs) == limit:
                break
    more = last is not None and (len(jobs) == limit or looked_at == MOST_LOOKED_AT)
    _answer(call, jobs, looked_at, RingPlace(last.id) if more and last is not None else None)


class _InTurns:
    """Something that is done a portion at a time, in turns of its own."""

    def __init__(self, call: Call, scheduler: Scheduler) -> None:
        self._call = call
        self._scheduler = scheduler

    def start(self) -> None:
        """The first portion, in the turn of the request."""
        if not self._step():
            self._scheduler.call_soon(self._go_on)

    def _go_on(self) -> None:
        call = self._call
        call.now = call.broker.begin()
        call.guard(self.start)
        call.broker.end()

    def _step(self) -> bool:
        """True if it has been answered."""
        raise NotImplementedError


class _JobWalk(_InTurns):
    """Jobs queue by queue and state by state; a place in it stays good while jobs come and go."""

    def __init__(
        self, call: Call, scheduler: Scheduler, names: QueueNames, queue: Queue | None
    ) -> None:
        super().__init__(call, scheduler)
        self._names = names
        self._only = queue
        state = call.text("state")
        self._states = [STATE_NAMES.index(state)] if state else list(STATES)
        self._limit = call.number("limit")
        self._name = call.text("name")
        self._found: list[api_messages.JobSummary] = []
        self._jobs = 0  # looked at
        self._steps = 0  # jobs and queues
        self._place = self._begin()

    def _begin(self) -> JobPlace:
        cursor = self._call.text("cursor")
        if not cursor:
            return _start(self._only.name if self._only is not None else "", self._states[0])
        place = read_cursor(cursor, JobPlace)
        if self._only is not None and place.queue != self._only.name:
            raise foreign()
        if place.state not in [STATE_NAMES[state] for state in self._states]:
            raise foreign()
        return place

    def _step(self) -> bool:
        left = PORTION
        while left > 0:
            left -= 1
            self._steps += 1
            here = self._here()
            if here is not None:
                looked_at = self._look(here, left + 1)
                left -= looked_at
                self._steps += looked_at
                if len(self._found) == self._limit:
                    self._end(self._place)
                    return True
                if left <= 0:
                    break
            if not self._move_on(here):
                self._end(None)
                return True
        if self._steps >= MOST_LOOKED_AT:
            self._end(self._place)
            return True
        return False

    def _here(self) -> Queue | None:
        name = self._place.queue
        queue = self._call.engine.queue(name.encode(errors="replace")) if name else None
        return queue if queue is not None and self._call.shows(queue) else None

    def _look(self, queue: Queue, most: int) -> int:
        """At some jobs of this state from the place on; gives how many that were."""
        call = self._call
        state = STATE_NAMES.index(self._place.state)
        if not queue.count(state):
            return 0
        jobs = after(call, queue, state, self._place, most)
        for number, job in enumerate(jobs):
            self._place = place_behind(job)
            if job.name.startswith(self._name):
                self._found.append(_summary(call, job))
                if len(self._found) == self._limit:
                    self._jobs += number + 1
                    return number + 1
        self._jobs += len(jobs)
        return len(jobs)

    def _move_on(self, queue: Queue | None) -> bool:
        """To the next state or queue; False: there is none."""
        at = self._states.index(STATE_NAMES.index(self._place.state)) + 1
        if queue is not None:
            for state in self._states[at:]:
                if queue.count(state):
                    self._place = _start(self._place.queue, state)
                    return True
        if self._only is not None:
            return False
        names = self._names.after(self._place.queue, 1)
        if not names:
            return False
        self._place = _start(names[0].decode(), self._states[0])
        return True

    def _end(self, place: JobPlace | None) -> None:
        _answer(self._call, self._found, self._jobs, place)


def _start(queue: str, state: int) -> JobPlace:
    return JobPlace(queue, STATE_NAMES[state], MAX_PRIORITY, MIN_PRIORITY, 0)


class _TextWalk(_InTurns):
    """Names of queues and of the tasks in them."""

    def __init__(self, call: Call, scheduler: Scheduler, text: str) -> None:
        super().__init__(call, scheduler)
        self._text = text
        self._folded = text.casefold()
        self._limit = call.number("limit")
        self._all = list(call.engine.state.queues.values())
        self._at = 0
        self._looked_at = 0
        self._queues: list[str] = []
        self._tasks: dict[str, None] = {}
        self._complete = True

    def _step(self) -> bool:
        upto = self._looked_at + _NAMES_AT_ONCE
        while self._at < len(self._all) and self._looked_at < upto:
            queue = self._all[self._at]
            self._at += 1
            self._look(queue)
        self._trim()
        if self._at == len(self._all):
            self._end()
            return True
        if self._looked_at >= MOST_NAMES:
            self._complete = False
            self._end()
            return True
        return False

    def _look(self, queue: Queue) -> None:
        names = queue.names
        self._looked_at += 1 + len(names)
        tasks = [name for name in names if self._folded in name.casefold()]
        named = self._folded in queue.name.casefold()
        if not (tasks or named) or not self._call.shows(queue):
            return
        if named:
            self._queues.append(queue.name)
        for name in tasks:
            if len(self._tasks) < self._limit:
                self._tasks[name] = None
            elif name not in self._tasks:
                self._complete = False

    def _trim(self) -> None:
        """Keep the closest ones, so that there are never many to be put in order."""
        self._queues.sort(key=lambda name: (len(name), name))
        if len(self._queues) > self._limit:
            self._complete = False
            del self._queues[self._limit :]

    def _end(self) -> None:
        call = self._call
        schedules = self._schedules()
        if len(schedules) > self._limit:
            self._complete = False
        job = _job(call, self._text)
        call.answer(
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
