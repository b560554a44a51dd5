"""Applies an action to many jobs of a queue in chunks, so that other clients do not wait.

The scan keeps a position, not a job: jobs that come and go meanwhile neither stop it nor make it
miss one that stays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from taskyard.broker.seams import Scheduler
from taskyard.engine.model.errors import TaskyardError
from taskyard.engine.model.job import MAX_PRIORITY, MIN_PRIORITY, Job
from taskyard.engine.model.queue import Queue
from taskyard.protocols.http.api.problems import ApiProblem, problem_of, queue_not_found
from taskyard.protocols.http.call import ApiCall

CHUNK_JOBS: Final = 500  # jobs scanned in one turn: some milliseconds
_BACKLOG_PAUSE_US: Final = 5_000  # microseconds, while the disk is behind


class QueueScan:
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


_START_POSITION: Final = (MAX_PRIORITY, MIN_PRIORITY, 0)
