"""Workflows: tasks that run one after the other, or side by side; pushed together, or none."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar, overload

from taskyard.client.commands import NewJob
from taskyard.tasks.codec import Envelope
from taskyard.tasks.foreign import GROUP_HANDLE_HINTS, STEP_HINTS, KnowsForeignNames
from taskyard.tasks.handle import Handle

if TYPE_CHECKING:
    from taskyard.tasks.app import App
    from taskyard.tasks.task import Task

T = TypeVar("T")

JOIN_TASK_NAME: Final = "taskyard.join"
"""The name of jobs that do nothing: they stand between a job and more blockers than it may have."""
MAX_BLOCKERS: Final = 255
MAX_JOBS: Final = 1000
STEP_RESULT_TTL_S: Final = 86_400.0
"""Seconds for which the result of a step is kept for the one after it."""


class Signature(KnowsForeignNames, Generic[T]):
    """A call of a task that is to be made later."""

    _foreign_names = STEP_HINTS

    def __init__(
        self,
        task: Task[..., T],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        immutable: bool = False,
    ) -> None:
        self.task = task
        self.args = tuple(args)
        self.kwargs = dict(kwargs)
        self.immutable = immutable

    def __or__(self, after: Step) -> Chain:
        return Chain([self, after])

    def push(self) -> Handle[T]:
        return self.task.push(*self.args, **self.kwargs)

    async def apush(self) -> Handle[T]:
        return await asyncio.to_thread(self.push)

    def with_options(self, **changes: Any) -> Signature[T]:
        task = self.task.with_options(**changes)
        return Signature(task, self.args, self.kwargs, self.immutable)


class Chain:
    """Steps that run one after the other. Make it with `chain(...)`, or with `|`."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self.steps: list[Step] = []
        for step in steps:
            self.steps += step.steps if isinstance(step, Chain) else [step]
        if not self.steps:
            raise ValueError("a chain needs at least one step")

    def __or__(self, after: Step) -> Chain:
        return Chain([self, after])

    def push(self) -> Handle[Any]:
        """The handle of the last step. A chain that ends in a group: push it with
        `push_group`.
        """
        [handle] = _push_step(self, single=True)
        return handle

    def push_group(self) -> GroupHandle:
        """The handles of the group that it ends in."""
        return GroupHandle(_push_step(self))

    async def apush(self) -> Handle[Any]:
        return await asyncio.to_thread(self.push)


class Group(KnowsForeignNames):
    """Tasks side by side. Make it with `group(...)`."""

    _foreign_names = STEP_HINTS

    def __init__(self, members: Sequence[Step]) -> None:
        self.members = list(members)
        if not self.members:
            raise ValueError("a group needs at least one member")

    def __or__(self, after: Step) -> Chain:
        return Chain([self, after])

    def then(self, after: Step) -> Chain:
        """A step after all of them: its first argument is the list of their results."""
        return Chain([self, after])

    def push(self) -> GroupHandle:
        return GroupHandle(_push_step(self))

    async def apush(self) -> GroupHandle:
        return await asyncio.to_thread(self.push)


Step: TypeAlias = Signature[Any] | Chain | Group


@overload
def chain(*steps: Step) -> Chain: ...
@overload
def chain(steps: Iterable[Step], /) -> Chain: ...


def chain(*steps: Any) -> Chain:
    """Each step begins when the one before has succeeded, and gets what that gave as its first
    argument, unless it is immutable (`.si`). When one fails, those after it fail.
    """
    return Chain(_as_steps(steps))


@overload
def group(*members: Step) -> Group: ...
@overload
def group(members: Iterable[Step], /) -> Group: ...


def group(*members: Any) -> Group:
    """Side by side, pushed in one go."""
    return Group(_as_steps(members))


def _as_steps(steps: Sequence[Any]) -> list[Step]:
    if len(steps) == 1 and not isinstance(steps[0], Signature | Chain | Group):
        return list(steps[0])
    return list(steps)


class GroupHandle(KnowsForeignNames):
    """Of all members of a group, in their order."""

    _foreign_names = GROUP_HANDLE_HINTS

    def __init__(self, handles: Sequence[Handle[Any]]) -> None:
        self.handles = list(handles)

    def __len__(self) -> int:
        return len(self.handles)

    def results(self, wait: float | None = None) -> list[Any]:
        """Of all of them; waits for so many seconds at most. What one of them raises is raised."""
        left = _time_left(wait)
        return [handle.result(left()) for handle in self.handles]

    async def aresults(self, wait: float | None = None) -> list[Any]:
        left = _time_left(wait)
        return [await handle.aresult(left()) for handle in self.handles]

    def done(self) -> int:
        """How many have ended."""
        return sum(handle.is_done() for handle in self.handles)

    def cancel(self) -> int:
        """How many of them had not ended yet."""
        return sum(handle.cancel() for handle in self.handles)


def _time_left(wait: float | None) -> Callable[[], float | None]:
    if wait is None:
        return lambda: None
    until = time.monotonic() + wait
    return lambda: max(until - time.monotonic(), 0.0)


@dataclass(slots=True)
class _PlannedJob:
    """A job of a canvas, before it is pushed."""

    signature: Signature[Any] | None  # None: it only joins
    uid: str
    after: list[int]  # places of the steps before it, whose results it gets
    joins_results: bool  # as a list
    blockers: list[int]  # places of those that block it
    keeps_result: bool = False


class _Plan:
    """The jobs of a canvas in the order in which they are pushed."""

    def __init__(self) -> None:
        self.jobs: list[_PlannedJob] = []

    def add_step(self, step: Step, after: list[int], joins: bool) -> tuple[list[int], bool]:
        """Gives the places of the last ones, and whether these are several by nature."""
        match step:
            case Chain():
                for one in step.steps:
                    after, joins = self.add_step(one, after, joins)
                return after, joins
            case Group():
                last: list[int] = []
                for member in step.members:
                    last += self.add_step(member, after, joins)[0]
                return last, True
        return [self._add_call(step, after, joins)], False

    def _add_call(self, signature: Signature[Any], after: list[int], joins: bool) -> int:
        blockers = self._limit_blockers(after)
        for place in [] if signature.immutable else after:
            self.jobs[place].keeps_result = True
        return self._append_job(_PlannedJob(signature, str(uuid.uuid4()), after, joins, blockers))

    def _limit_blockers(self, after: list[int]) -> list[int]:
        """Not more than a job may have: others that do nothing stand between."""
        while len(after) > MAX_BLOCKERS:
            after = [
                self._append_job(
                    _PlannedJob(None, str(uuid.uuid4()), [], False, after[at : at + MAX_BLOCKERS])
                )
                for at in range(0, len(after), MAX_BLOCKERS)
            ]
        return after

    def _append_job(self, job: _PlannedJob) -> int:
        if len(self.jobs) >= MAX_JOBS:
            raise ValueError(
                f"at most {MAX_JOBS} jobs can be pushed together: push large groups with map()"
            )
        self.jobs.append(job)
        return len(self.jobs) - 1

    def new_jobs(self) -> list[NewJob]:
        jobs: list[NewJob] = []
        queue = ""
        for place, planned in enumerate(self.jobs):
            new = self._new_job(planned, queue)
            blocked_by = [blocker - place for blocker in planned.blockers]
            jobs.append(replace(new, uid=planned.uid, blocked_by=blocked_by))
            queue = new.queue
        return jobs

    def _new_job(self, planned: _PlannedJob, queue: str) -> NewJob:
        signature = planned.signature
        if signature is None:
            # In the queue of those before it: their workers are there.
            return NewJob(queue, b"[]", name=JOIN_TASK_NAME)
        fed = bool(planned.after) and not signature.immutable
        envelope = Envelope(
            signature.args,
            signature.kwargs,
            [self.jobs[place].uid for place in planned.after] if fed else [],
            planned.joins_results if fed else False,
            STEP_RESULT_TTL_S if planned.keeps_result else 0.0,
        )
        task = signature.task
        if not fed:
            task.codec.check_arguments(signature.args, signature.kwargs)
        return task.new_job(signature.args, signature.kwargs, envelope=envelope)


def _push_step(step: Step, single: bool = False) -> list[Handle[Any]]:
    """`one`: there must be a single last step."""
    plan = _Plan()
    last, _ = plan.add_step(step, [], False)
    if single and len(last) != 1:
        raise ValueError("this chain ends in a group: use push_group()")
    broker = _app_of(step).broker
    pushed = broker.push_all(plan.new_jobs())
    handles: list[Handle[Any]] = []
    for planned, job in zip(plan.jobs, pushed, strict=True):
        before = [handles[place] for place in planned.blockers]
        if planned.signature is None:
            handles.append(Handle(broker, job, JOIN_TASK_NAME, lambda data: None, before))
        else:
            task = planned.signature.task
            handles.append(Handle(broker, job, task.name, task.codec.decode_result, before))
    return [handles[place] for place in last]


def _app_of(step: Step) -> App:
    match step:
        case Chain():
            return _app_of(step.steps[0])
        case Group():
            return _app_of(step.members[0])
    return step.task.app
