"""Something done to many jobs of a queue, some of them at a time, so that nobody else waits.

The walk remembers a place, not a job: jobs that come and go meanwhile neither stop it nor make it
miss one that stays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from taskyard.broker.seams import Scheduler
from taskyard.engine.model.errors import TaskyardError
from taskyard.engine.model.job import MAX_PRIORITY, MIN_PRIORITY, Job
from taskyard.engine.model.queue import Queue
from taskyard.protocols.http.api.problems import Problem, no_queue, problem_of
from taskyard.protocols.http.call import Call

PORTION: Final = 500  # jobs looked at in one turn: some milliseconds
_BREATH: Final = 5_000  # microseconds, while the disk is behind


class Walk:
    def __init__(
        self,
        call: Call,
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
        self._place = _START
        self._done = 0

    def start(self) -> None:
        """The first portion, in the turn of the request."""
        if self._step():
            self._then(self._done)
        elif self._call.broker.is_behind():
            when = self._call.broker.clock.now() + _BREATH
            self._scheduler.call_at(when, self._go_on)
        else:
            self._scheduler.call_soon(self._go_on)

    def _go_on(self) -> None:
        call = self._call
        call.now = call.broker.begin()
        call.guard(self.start)
        call.broker.end()

    def _step(self) -> bool:
        """One portion; True if that was the last."""
        call = self._call
        engine = call.engine
        if engine.queue(self._queue.utf8) is not self._queue:
            raise self._stopped(no_queue(self._queue.name))
        priority, position, id = self._place
        state = self._states[-1]
        jobs = engine.jobs_after(self._queue, state, priority, position, id, PORTION)
        try:
            for job in jobs:
                self._place = (job.priority, job.position, job.id)  # before it is moved
                if self._act(job):
                    self._done += 1
        except TaskyardError as error:
            raise self._stopped(problem_of(error)) from error
        if len(jobs) < PORTION:
            self._states.pop()
            self._place = _START
        return not self._states

    def _stopped(self, problem: Problem) -> Problem:
        problem.done = self._done
        return problem


_START: Final = (MAX_PRIORITY, MIN_PRIORITY, 0)
