"""The life of a job in the reference model: delivered, finished, failed, followed up."""

from support.model_checks import require, valid_name
from support.model_world import (
    DEAD_LETTER_BYTES,
    ENDED,
    FOREVER,
    LETTER_BYTES,
    Ended,
    Job,
    Lease,
    Waiter,
    World,
)

from taskyard.engine.model.events import (
    WATCH_FAILED,
    WATCH_GONE,
    WATCH_LEASED,
    WATCH_SUCCEEDED,
    DuplicateResult,
    FetchRequest,
    JobNotFound,
    NotLeaseholder,
)
from taskyard.engine.model.job import (
    BACKOFF_DEFAULT,
    BACKOFF_EXPONENTIAL,
    BACKOFF_NONE,
    BACKOFF_QUARTIC,
    FAILS_DEFAULT,
    STAGE_ASSIGN,
    STAGE_DROP,
    STAGE_FINISH,
    STAGE_RETRY,
    Policy,
)
from taskyard.engine.operations.finish import BY_POLICY, NEVER

SECOND = 1_000_000


class Lifecycle(World):
    """Operations on jobs. Each tells dependents of ended jobs before it is over."""

    def _enter(self, job: Job, front: bool, now: int) -> None:
        """Where a job goes that is new or was just released by its last blocker."""
        if job.blockers:
            self._claim_key(job)
            job.state = "blocked"
        elif job.run_at > now:
            self._delay(job, job.run_at)
        elif front:
            self._join_front(job)
        else:
            self._join_back(job)

    # Places

    def _join_back(self, job: Job) -> None:
        self._claim_key(job)
        job.state = "ready"
        self.queue(job.queue).line.append(job.id)

    def _join_front(self, job: Job) -> None:
        self._claim_key(job)
        job.state = "ready"
        self.queue(job.queue).line.insert(0, job.id)

    def _return_to_place(self, job: Job) -> None:
        job.lease = None
        self._claim_key(job)
        job.state = "ready"

    def _delay(self, job: Job, until: int) -> None:
        self._claim_key(job)
        job.state = "delayed"
        job.wake_at = until

    def _claim_key(self, job: Job) -> None:
        """A key belongs to the first queued job that has it."""
        if job.key is None:
            return
        other = self.with_key(job.queue, job.key)
        if other is not None and other is not job:
            job.key = None

    def _leave(self, job: Job) -> None:
        """The job has no place any more, holds no lease and waits for nobody."""
        queue = self.queues[job.queue]
        if job.id in queue.line:
            queue.line.remove(job.id)
        if job.id in queue.dead:
            queue.dead.remove(job.id)
        job.lease = None
        job.blockers = set()

    # Taking

    def fetch(self, take: FetchRequest, now: int, chosen: bytes | None) -> int | None:
        """`chosen` is the queue the engine took from, where chance had a say."""
        self._check_take(take)
        able = [name for name in take.queues if self.first_ready(name) is not None]
        if not able:
            return None
        if take.random_queue:
            assert chosen in able, f"{chosen!r} is not one of {able}"
        name = chosen if take.random_queue and chosen is not None else able[0]
        job = self.in_state(name, "ready")[-1 if take.last else 0]
        self._hand_over(job, take, now)
        if take.move_to:
            self.serve(job.queue, now)
        self.settle(now)
        return job.id

    def pop(self, name: bytes, last: bool, now: int) -> int | None:
        if self.first_ready(name) is None:
            return None
        job = self.in_state(name, "ready")[-1 if last else 0]
        self._finish(job, b"", now)
        self.settle(now)
        return job.id

    def wait(self, take: FetchRequest, deadline: int) -> int:
        self._check_take(take)
        self.numbered += 1
        self.waiters.append(Waiter(self.numbered, take, deadline))
        return self.numbered

    def _check_take(self, take: FetchRequest) -> None:
        require(take.ttr >= 0, "ttr")
        require(not take.move_to or valid_name(take.move_to), "queue")

    def stop_waiting(self, number: int) -> None:
        self.waiters = [waiter for waiter in self.waiters if waiter.number != number]

    def serve(self, name: bytes, now: int) -> None:
        """Ready jobs go to those who wait for them, in order of arrival."""
        while True:
            waiter = self._first_waiter(name)
            if self.first_ready(name) is None or waiter is None:
                return
            job = self.in_state(name, "ready")[-1 if waiter.take.last else 0]
            self.waiters.remove(waiter)
            self._hand_over(job, waiter.take, now)
            self.effects.append(("assigned", waiter.number, job.id))
            if waiter.take.move_to:
                self.serve(job.queue, now)

    def _first_waiter(self, name: bytes) -> Waiter | None:
        waiting = [waiter for waiter in self.waiters if name in waiter.take.queues]
        return waiting[0] if waiting else None

    def _hand_over(self, job: Job, take: FetchRequest, now: int) -> None:
        if take.pop:
            self._finish(job, b"", now)
            return
        if take.move_to:
            self.put_ready(job, take.move_to, take.front)
            return
        limits = [ttr for ttr in (job.policy.ttr, take.ttr) if ttr]
        if not limits and not take.bound_to_connection:
            limits = [self.settings.default_ttr]
        deadline = min(now + min(limits), FOREVER) if limits else 0
        self.lease(job, take.owner, take.bound_to_connection, take.origin.holder, now, deadline)

    def put_ready(self, job: Job, to: str, front: bool) -> None:
        self._leave(job)
        job.key = None
        job.queue = to.encode()
        if front:
            self._join_front(job)
        else:
            self._join_back(job)

    def lease(
        self, job: Job, owner: int, bound: bool, holder: str, now: int, deadline: int
    ) -> None:
        """The job keeps its place in line while it is leased. Every lease counts an attempt."""
        self.leases += 1
        job.attempts += 1
        job.leases += 1
        job.state = "leased"
        job.lease = Lease(
            self.leases, owner, bound, holder, self.epoch, job.attempts, now, deadline
        )
        self.queues[job.queue].counts["leases"] += 1
        self._notice(job, STAGE_ASSIGN, now)
        self._watched(job, WATCH_LEASED, False)

    def extend(self, id: int, owner: int, ttr: int, now: int) -> None:
        lease = self._lease_of(self._found(id), owner)
        require(0 < ttr < FOREVER, "ttr")
        lease.deadline = min(now + ttr, FOREVER)

    def give_back(self, id: int, owner: int, now: int) -> None:
        job = self._found(id)
        self._lease_of(job, owner)
        self.release(job, now)
        self.settle(now)

    def release(self, job: Job, now: int) -> None:
        """The lease ends without a verdict: the job is ready in its old place."""
        self._return_to_place(job)
        self.queues[job.queue].counts["released"] += 1
        self._notice(job, STAGE_RETRY, now)
        self.serve(job.queue, now)

    # Finishing

    def ack(self, id: int, owner: int, now: int) -> int:
        self._finish(self._held(id, owner), b"", now)
        self.settle(now)
        return id

    def nack(self, id: int, owner: int, error: bytes, now: int, delay: int = BY_POLICY) -> int:
        require(len(error) <= self.settings.payload_limit, "error")
        self._fail_attempt(self._held(id, owner), error, now, delay)
        self.settle(now)
        return id

    def complete(self, id: int, result: bytes, now: int) -> None:
        job = self._found(id)
        require(len(result) <= self.settings.payload_limit, "result")
        if job.state in ENDED:
            raise DuplicateResult
        self._finish(job, result, now)
        self.settle(now)

    def fail(self, id: int, error: bytes, now: int) -> None:
        job = self._found(id)
        require(len(error) <= self.settings.payload_limit, "error")
        if job.state in ENDED:
            raise DuplicateResult
        self._fail_attempt(job, error, now)
        self.settle(now)

    def finish_with_token(self, id: int, epoch: int, number: int, result: bytes, now: int) -> int:
        require(len(result) <= self.settings.payload_limit, "result")
        job = self._found(id)
        if job.lease is None or (job.lease.epoch, job.leases) != (epoch, number):
            raise NotLeaseholder(id)
        self._finish(job, result, now)
        self.settle(now)
        return id

    def disconnect(self, owner: int, now: int) -> None:
        for job in self.held_by(owner):
            if job.policy.lost_is_failed:
                self._fail_attempt(job, b"connection lost", now)
            else:
                self.lose(job, now)
        self.settle(now)

    def _finish(self, job: Job, result: bytes, now: int) -> None:
        queue = self.queues[job.queue]
        self._leave(job)
        job.finished_at = now
        job.result = result
        queue.counts["finished"] += 1
        self._end(job, True)
        if not job.ttl_ms and queue.settings.result_retention:
            job.expires_at = now + queue.settings.result_retention
        self._notice(job, STAGE_FINISH, now)
        if job.expires_at:
            job.state = "succeeded"
        else:
            self._go(job, True, now)
        self._watched(job, WATCH_SUCCEEDED, True)

    def _fail_attempt(self, job: Job, error: bytes, now: int, delay: int = BY_POLICY) -> None:
        """One fail: final if the policy says so, else tried again with back-off."""
        policy = job.policy
        fails = job.fails + 1
        limit = policy.max_fails if policy.max_fails or delay >= 0 else 1
        if limit == FAILS_DEFAULT:
            said = self.queues[job.queue].settings.retries
            limit = (3 if said < 0 else said) + 1
        if 0 < limit <= fails:
            self._fail_finally(job, "failures used up", True, error, now)
            return
        if policy.max_attempts and job.attempts >= policy.max_attempts:
            self._fail_finally(job, "attempts used up", True, error, now)
            return
        if delay == NEVER:
            self._fail_finally(job, "given up by its worker", True, error, now)
            return
        when = self._retry_at(job, fails, now) if delay == BY_POLICY else now + delay
        job.fails = fails
        job.error = error or job.error
        self.queues[job.queue].counts["retried"] += 1
        self._try_again(job, when, now)
        self._notice(job, STAGE_RETRY, now)
        if job.state == "ready":
            self.serve(job.queue, now)

    def _try_again(self, job: Job, when: int, now: int) -> None:
        if job.state == "blocked":
            return  # it still has to wait for its blockers
        if job.state == "delayed":
            when = max(when, job.wake_at)
        if when > now:
            self._leave(job)
            self._delay(job, when)
        elif job.state == "delayed":  # its time has come, but nobody has looked yet
            self._join_back(job)
        else:
            self._return_to_place(job)

    def _retry_at(self, job: Job, fails: int, now: int) -> int:
        kind, base, cap = job.policy.backoff, job.policy.backoff_base, job.policy.backoff_cap
        queue = self.queues[job.queue].settings
        if kind in (BACKOFF_NONE, BACKOFF_DEFAULT) and queue.backoff >= 0:
            kind, base, cap = queue.backoff, queue.backoff_base or SECOND, queue.backoff_cap
        elif kind == BACKOFF_DEFAULT:
            kind, base, cap = BACKOFF_EXPONENTIAL, SECOND, 300 * SECOND
        if job.state == "blocked" or not kind:
            return now
        if kind == BACKOFF_QUARTIC:
            return min((now + fails**4 * SECOND) // SECOND * SECOND, FOREVER - 1)
        delay = base * 2 ** min(fails - 1, 62)
        if cap:
            delay = min(delay, cap)
        chosen = self.retries.get(job.id, now)
        if job.state != "delayed":
            assert min(now + delay // 2, FOREVER - 1) <= chosen <= now + delay
        return chosen

    def lose(self, job: Job, now: int) -> None:
        """The holder did not come back: not a fail, but not for ever either."""
        policy = job.policy
        if policy.max_attempts and job.attempts >= policy.max_attempts:
            self._fail_finally(job, "attempts used up", False, b"", now)
        elif policy.max_losses and job.losses + 1 >= policy.max_losses:
            reason = "poison pill: too many holders were lost"
            self._fail_finally(job, reason, False, b"", now)
        else:
            job.losses += 1
            self.release(job, now)

    def take_back(self, job: Job, now: int) -> None:
        """The server ended under the holder."""
        if job.policy.max_attempts and job.attempts >= job.policy.max_attempts:
            self._fail_finally(job, "attempts used up", False, b"", now)
        else:
            self.release(job, now)

    def _fail_finally(self, job: Job, reason: str, explicit: bool, error: bytes, now: int) -> None:
        """Into its dead queue if it names one, else among the dead letters of its own."""
        queue = self.queues[job.queue]
        self._leave(job)
        queue.counts["failed"] += 1
        job.fails += explicit
        job.reason = reason
        job.error = error or job.error
        self._end(job, False)
        self._notice(job, STAGE_DROP, now)
        if job.policy.dead_queue:
            self._to_dead_queue(job)
            self._watched(job, WATCH_FAILED, True)
            self.serve(job.queue, now)
            return
        job.state = "failed"
        job.finished_at = now
        job.result = error if explicit else b""
        queue.dead.append(job.id)
        self._watched(job, WATCH_FAILED, True)
        while self._dead_bytes(job.queue) > self.settings.dead_bytes:
            self.remove(self.jobs[queue.dead[0]], now, remember=True)

    def _to_dead_queue(self, job: Job) -> None:
        old = job.policy
        job.queue = old.dead_queue.encode()
        job.attempts = job.fails = job.losses = 0
        job.policy = Policy(
            old.ttr,
            old.max_attempts,
            old.max_fails,
            old.max_losses,
            old.backoff,
            old.backoff_base,
            old.backoff_cap,
            "",
            old.lost_is_failed,
        )
        job.key = None
        self._join_back(job)

    def _dead_bytes(self, name: bytes) -> int:
        dead = self.in_state(name, "failed")
        return sum(DEAD_LETTER_BYTES + len(job.payload) + len(job.error) for job in dead)

    def remove(self, job: Job, now: int, remember: bool = False) -> None:
        """The job is gone without success, or has been kept for long enough."""
        ended = job.state in ENDED
        self._leave(job)
        if not ended:
            job.finished_at = now
            self._end(job, False)
        self._go(job, remember, now)
        self._watched(job, WATCH_GONE, True)

    def _go(self, job: Job, remember: bool, now: int) -> None:
        """`remember`: a producer may still repeat its push."""
        job.state = "gone"
        if remember and job.uid is not None and self.settings.uid_window:
            self.tombstones[job.uid] = now, job.id, job.producer

    # What follows for others

    def _end(self, job: Job, succeeded: bool) -> None:
        waiting = [other.id for other in self.jobs.values() if job.id in other.blockers]
        self.ended.append(Ended(job.id, succeeded, waiting))

    def settle(self, now: int) -> None:
        """Success releases those who waited, failure fails them, through all levels."""
        while self.ended:
            ended = self.ended.pop(0)
            for id in ended.waiting:
                job = self.live(id)
                if job is None or ended.id not in job.blockers:
                    continue
                if not ended.succeeded:
                    self._fail_finally(job, "a job it waited for failed", False, b"", now)
                    continue
                job.blockers.discard(ended.id)
                if not job.blockers:
                    self._enter(job, False, now)
                    self.serve(job.queue, now)

    def _notice(self, job: Job, stage: int, now: int) -> None:
        notify = job.notify
        if notify is None or not notify.stages & stage:
            return
        self.effects.append(("notice", notify.session, notify.label, stage, job.id))
        session = self.sessions.get(notify.session)
        if session is None:
            return
        session.numbered += 1
        session.outbox.append((session.numbered, now, job.id, notify.label, stage))
        room = self.settings.outbox_bytes // LETTER_BYTES
        session.outbox = session.outbox[-room:] if room else []

    def _watched(self, job: Job, event: int, last: bool) -> None:
        mine = [watcher for watcher in self.watchers if watcher.job == job.id]
        self.effects.extend(("watched", watcher.number, event, job.id) for watcher in mine)
        if last:
            self.watchers = [watcher for watcher in self.watchers if watcher.job != job.id]

    # Looking up

    def _found(self, id: int) -> Job:
        job = self.live(id)
        if job is None:
            raise JobNotFound
        return job

    def _lease_of(self, job: Job, owner: int) -> Lease:
        if job.lease is None or job.lease.owner != owner:
            raise NotLeaseholder(job.id)
        return job.lease

    def _held(self, id: int, owner: int) -> Job:
        job = self.live(id)
        if job is None or job.lease is None or job.lease.owner != owner:
            raise NotLeaseholder(id)
        return job
