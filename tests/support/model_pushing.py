"""Taking jobs in: push and transactions, in the reference model."""

from collections.abc import Iterable

from support.model_checks import check_new_job, require
from support.model_jobs import Lifecycle
from support.model_world import FOREVER, OPEN, Job

from taskyard.engine.model.events import (
    DuplicateJob,
    NotLeaseholder,
    QueueFull,
    TaskyardError,
    TransactionStepRefused,
    UidTaken,
)
from taskyard.engine.model.job import (
    STAGE_FINISH,
    STAGE_READY,
    STAGE_SYNC,
    STAGE_WRITE,
    NewJob,
    Notify,
    Origin,
)
from taskyard.engine.model.queue import OVERFLOW_REFUSE, QueueSettings
from taskyard.engine.model.state import derive_uid
from taskyard.engine.operations.push import TransactionStep


class Pushing(Lifecycle):
    def push(self, new: NewJob, origin: Origin, now: int) -> int:
        check_new_job(new, self.settings)
        self._check_uid(new, origin)
        require(all(id > 0 for id in new.blocked_by or ()), "blocked_by")
        if self._overflows(new, self._waiting()):
            job = self._add(new, new.blocked_by or [], new.notify, origin, now)
            self._fail_finally(job, "queue full", False, b"", now)
            self.settle(now)
            return job.id
        notify = self._fast_pop_notify(new, now)
        job = self._add(new, new.blocked_by or [], notify, origin, now)
        self.serve(job.queue, now)
        self.settle(now)
        return job.id

    def transact(
        self, steps: list[TransactionStep], owner: int, origin: Origin, now: int
    ) -> list[int]:
        """All steps or none of them; a blocker of -k is the k-th push before."""
        self._check_steps(steps, owner, origin)
        over = self._overflowing(steps)
        ids: list[int] = []
        for step in steps:
            if step.new is None:
                self._finish(self.jobs[step.ack], b"", now)
            else:
                blockers = [id if id > 0 else ids[id] for id in step.new.blocked_by or ()]
                ids.append(self._add(step.new, blockers, step.new.notify, origin, now).id)
        pushed = [index for index, step in enumerate(steps) if step.new is not None]
        for index, id in zip(pushed, ids, strict=True):
            if index in over:
                self._fail_finally(self.jobs[id], "queue full", False, b"", now)
        for id in ids:
            self.serve(self.jobs[id].queue, now)
        self.settle(now)
        return ids

    def _check_steps(self, steps: list[TransactionStep], owner: int, origin: Origin) -> None:
        pushed = 0
        used: set[object] = set()
        for index, step in enumerate(steps):
            try:
                if step.new is None:
                    self._held(step.ack, owner)
                    if step.ack in used:
                        raise NotLeaseholder(step.ack)
                    used.add(step.ack)
                    continue
                check_new_job(step.new, self.settings)
                self._check_uid(step.new, origin)
                if step.new.uid is not None and step.new.uid in used:
                    raise DuplicateJob(0)
                used.add(step.new.uid)
                for blocker in step.new.blocked_by or ():
                    require(blocker != 0 and blocker >= -pushed, "blocked_by")
                pushed += 1
            except TaskyardError as error:
                raise TransactionStepRefused(index, error) from error

    def _waiting(self) -> list[tuple[bytes, int]]:
        """Queue and size of each job that has not ended."""
        return [(job.queue, len(job.payload)) for job in self.jobs.values() if job.state in OPEN]

    def _overflows(self, new: NewJob, waiting: list[tuple[bytes, int]]) -> bool:
        """Whether it goes to the dead letters, since its queue has no place for it."""
        name = new.queue.encode()
        queue = self.queues.get(name)
        settings = queue.settings if queue is not None else QueueSettings()
        jobs = settings.max_jobs if settings.max_jobs >= 0 else self.settings.max_jobs
        size = settings.max_bytes if settings.max_bytes >= 0 else self.settings.max_bytes
        there = [each for queue_name, each in waiting if queue_name == name]
        too_many = 0 <= jobs < len(there) + 1
        too_large = 0 <= size < sum(there) + len(new.payload)
        if (too_many or too_large) and settings.overflow == OVERFLOW_REFUSE:
            raise QueueFull
        return too_many or too_large

    def _overflowing(self, steps: list[TransactionStep]) -> set[int]:
        """The steps that go to the dead letters, each seen after those before it."""
        waiting = self._waiting()
        found = set()
        for index, step in enumerate(steps):
            if step.new is None:
                job = self.jobs[step.ack]
                waiting.remove((job.queue, len(job.payload)))
                continue
            queue = step.new.queue
            try:
                if self._overflows(step.new, waiting):
                    found.add(index)
                    queue = step.new.policy.dead_queue
            except QueueFull as error:
                raise TransactionStepRefused(index, error) from error
            if queue:
                waiting.append((queue.encode(), len(step.new.payload)))
        return found

    def _check_uid(self, new: NewJob, origin: Origin) -> None:
        """A push repeats another with its uid if queue and user are the same."""
        uid = new.uid
        if uid is None:
            return
        producer = new.queue.encode(), origin.user
        known = self.with_uid(uid)
        if known is not None:
            raise DuplicateJob(known.id) if known.producer == producer else UidTaken
        if uid in self.tombstones:
            _, id, first = self.tombstones[uid]
            raise DuplicateJob(id) if first == producer else UidTaken
        for job in self.jobs.values():
            if job.state != "gone" and derive_uid(self.salt, job.id) == uid:
                raise UidTaken

    def _fast_pop_notify(self, new: NewJob, now: int) -> Notify | None:
        """A job that a waiting pop takes at once is never ready, only finished."""
        notify = new.notify
        queue = self.queues.get(new.queue.encode())
        first = self._first_waiter(new.queue.encode())
        if notify is None or first is None or not first.take.pop:
            return notify
        if new.run_at > now or new.blocked_by or (queue is not None and queue.settings.paused):
            return notify
        wanted = notify.stages & (STAGE_READY | STAGE_FINISH)
        return Notify(notify.session, notify.label, STAGE_FINISH if wanted else 0)

    def _add(
        self,
        new: NewJob,
        blocked_by: Iterable[int],
        notify: Notify | None,
        origin: Origin,
        now: int,
    ) -> Job:
        job = Job(
            id=self.next_id,
            queue=new.queue.encode(),
            name=new.name,
            payload=new.payload,
            policy=new.policy,
            priority=new.priority,
            dialect=origin.dialect,
            content=new.content,
            pushed_at=now,
            run_at=new.run_at,
            uid=new.uid,
            producer=(new.queue.encode(), origin.user),
            key=new.key,
            ttl_ms=new.ttl_ms,
            notify=notify,
            state="new",
        )
        self.next_id += 1
        if job.ttl_ms:
            job.expires_at = min((job.run_at or now) + job.ttl_ms * 1000, FOREVER)
        blockers = [self.live(id) for id in blocked_by]
        job.blockers = {each.id for each in blockers if each is not None and each.state in OPEN}
        self.queue(job.queue).counts["pushed"] += 1
        self.jobs[job.id] = job
        self._enter(job, new.front, now)
        for stage in (STAGE_READY, STAGE_WRITE, STAGE_SYNC):
            self._notice(job, stage, now)
        return job
