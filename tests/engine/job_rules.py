"""The rules of the state machine: every operation, done to the engine and to the model."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from engine.draws import (
    NAMES,
    PAYLOAD_LIMIT,
    DrawnPush,
    DrawnStep,
    Settings,
    bad_queue_settings,
    blobs,
    blocked_pushes,
    budgets,
    durations,
    faults,
    keys,
    name_lists,
    names,
    origins,
    owners,
    picks,
    plain_pushes,
    policies,
    pushes,
    scores,
    steps,
)
from engine.harness import ORIGIN, SALT, START
from engine.upkeep_rules import UpkeepRules
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule
from support.model_world import OPEN

from taskyard.engine.model.events import FetchRequest, JobWatcher, Waiter
from taskyard.engine.model.job import FOREVER, SECOND, Origin, Policy
from taskyard.engine.model.state import derive_uid
from taskyard.engine.operations.facade import Engine
from taskyard.engine.operations.finish import BY_POLICY, NEVER
from taskyard.engine.operations.push import TransactionStep


def with_job(*states: str) -> Callable[["JobRules"], bool]:
    """A rule is of use while there is a job in one of these states."""

    def has_one(machine: "JobRules") -> bool:
        return any(job.state in states for job in machine.model.jobs.values())

    return has_one


class JobRules(UpkeepRules):
    @initialize(
        seed=st.integers(0, 3),
        window=st.sampled_from((0, 20 * SECOND, 20 * SECOND)),
        letters=st.integers(0, 5),
        jobs=st.lists(plain_pushes | pushes, min_size=2, max_size=10),
        sessions=st.sets(st.sampled_from((1, 2))),
        max_jobs=st.sampled_from((-1, -1, -1, 6)),
    )
    def start(
        self,
        seed: int,
        window: int,
        letters: int,
        jobs: list[DrawnPush],
        sessions: set[int],
        max_jobs: int,
    ) -> None:
        self.begin(seed, window, letters, max_jobs)
        for id in sessions:
            self.session(id, "open", 0)
        for wish in jobs:
            self.push_wish(wish, ORIGIN)
        self.fetch_anything(1, True, False, 3)

    # Time

    @rule(duration=durations, budget=budgets)
    def time_passes(self, duration: int, budget: int) -> None:
        """Each timer is met when it is due."""
        target = self.now + duration
        self.meet_due(budget)
        while 0 < self.engine.next_deadline(self.now) <= target:
            self.bench.now = max(self.now, self.engine.next_deadline(self.now))
            self.meet_due(budget)
        self.bench.now = target

    @rule(budget=budgets)
    def next_timer(self, budget: int) -> None:
        when = self.engine.next_deadline(self.now)
        if 0 < when < FOREVER:
            self.bench.now = max(self.now, when)
            self.meet_due(budget)

    def meet_due(self, budget: int) -> None:
        # Woken jobs are delivered after each chunk, so that its size shows to those who wait.
        self.tick(1000 if self.engine.waiters else budget)

    @rule(duration=durations)
    def clock_runs_ahead(self, duration: int) -> None:
        """Commands may be met before the timers that are due."""
        self.bench.now += duration

    @rule(downtime=st.just(0) | durations)
    def restart(self, downtime: int) -> None:
        self.bench.now += downtime
        self.restart_both()

    # Pushing

    def push_wish(self, wish: DrawnPush, origin: Origin) -> None:
        ids = [self.some_job(pick) for pick in wish.blockers]
        self.do(
            lambda engine: engine.push(wish.make_new_job(self.now, ids), origin, self.now),
            lambda model, _: model.push(wish.make_new_job(self.now, ids), origin, self.now),
        )

    @rule(many=st.lists(plain_pushes, min_size=1, max_size=4))
    def push_plain(self, many: list[DrawnPush]) -> None:
        for wish in many:
            self.push_wish(wish, ORIGIN)

    @rule(wish=pushes, origin=origins)
    def push(self, wish: DrawnPush, origin: Origin) -> None:
        self.push_wish(wish, origin)

    @rule(wish=blocked_pushes)
    def push_blocked(self, wish: DrawnPush) -> None:
        self.push_wish(wish, ORIGIN)

    @rule(drawn=steps, owner=owners)
    def transact(self, drawn: list[DrawnStep], owner: int) -> None:
        acks = [each for each in drawn if isinstance(each, int)]
        if acks:
            owner = self.holder_of(self.some_job(acks[0], "leased"), True)
        both = self.make_steps(drawn), self.make_steps(drawn)
        self.do(
            lambda engine: engine.transact(both[0], owner, ORIGIN, self.now),
            lambda model, _: model.transact(both[1], owner, ORIGIN, self.now),
        )

    def make_steps(self, drawn: list[DrawnStep]) -> list[TransactionStep]:
        made = []
        for each in drawn:
            if isinstance(each, int):
                made.append(TransactionStep(None, self.some_job(each, "leased")))
            elif isinstance(each, DrawnPush):
                ids = [self.some_job(pick) for pick in each.blockers]
                made.append(TransactionStep(each.make_new_job(self.now, ids)))
            else:
                made.append(TransactionStep(each[0].make_new_job(self.now, [each[1]])))
        return made

    # Taking

    def fetch_or_wait(self, take: FetchRequest, patience: int | None) -> None:
        got = self.do(
            lambda engine: engine.fetch(take, self.now),
            lambda model, got: model.fetch(take, self.now, self.queue_of(got)),
        )
        # After a restart the first step may be followed by what is due, which may bring a job.
        empty = all(self.model.first_ready(name) is None for name in take.queues)
        if got is None and empty and patience is not None:
            self.wait(take, self.now + patience)

    def queue_of(self, id: object) -> bytes | None:
        job = self.engine.state.jobs.get(id) if isinstance(id, int) else None
        return None if job is None else job.queue.utf8

    def wait(self, take: FetchRequest, deadline: int) -> None:
        def start(engine: Engine) -> Waiter:
            waiter = engine.wait_for_job(take, deadline)
            self.waiting.waiters[waiter.number] = waiter
            return waiter

        self.do(start, lambda model, _: model.wait(take, deadline))

    @rule(owner=owners, bound=st.booleans(), uniform=st.booleans(), count=st.integers(1, 3))
    def fetch_anything(self, owner: int, bound: bool, uniform: bool, count: int) -> None:
        for _ in range(count):
            take = FetchRequest([b"a", b"b", b"dead"], owner, ORIGIN, bound, uniform)
            self.fetch_or_wait(take, None)

    @rule(
        queues=name_lists,
        owner=owners,
        origin=origins,
        bound=st.booleans(),
        uniform=st.booleans(),
        pop=st.booleans(),
        ttr=st.sampled_from((0, 0, 3 * SECOND, FOREVER)),
        patience=durations | st.just(0),
        count=st.integers(1, 3),
    )
    def fetch_with_patience(
        self,
        queues: list[str],
        owner: int,
        origin: Origin,
        bound: bool,
        uniform: bool,
        pop: bool,
        ttr: int,
        patience: int,
        count: int,
    ) -> None:
        encoded = [name.encode() for name in queues]
        for number in range(count):
            take = FetchRequest(encoded, owner + number, origin, bound, uniform, pop, ttr)
            self.fetch_or_wait(take, patience)

    @rule(
        queues=name_lists,
        owner=owners,
        last=st.booleans(),
        move_to=st.just("") | names,
        front=st.booleans(),
        patience=durations | st.just(0),
        count=st.integers(1, 2),
    )
    def take_from_a_list(
        self,
        queues: list[str],
        owner: int,
        last: bool,
        move_to: str,
        front: bool,
        patience: int,
        count: int,
    ) -> None:
        encoded = [name.encode() for name in queues]
        for number in range(count):
            holder = owner + number
            take = FetchRequest(
                encoded, holder, ORIGIN, pop=not move_to, last=last, move_to=move_to
            )
            take.front = front
            self.fetch_or_wait(take, patience)

    @precondition(lambda machine: machine.waiting.waiters)
    @rule(pick=picks)
    def stop_waiting(self, pick: int) -> None:
        waiters = list(self.waiting.waiters.values())
        waiter = waiters[pick % len(waiters)]
        self.do(
            lambda engine: engine.stop_waiting(waiter),
            lambda model, _: model.stop_waiting(waiter.number),
        )

    @rule(name=names, last=st.booleans())
    def pop(self, name: str, last: bool) -> None:
        self.do(
            lambda engine: engine.pop(name.encode(), last, ORIGIN, self.now),
            lambda model, _: model.pop(name.encode(), last, self.now),
        )

    @precondition(with_job("leased"))
    @rule(pick=picks, ttr=st.sampled_from((1, 6 * SECOND, FOREVER - 1)))
    def extend(self, pick: int, ttr: int, right: bool = True) -> None:
        id = self.some_job(pick, "leased")
        owner = self.holder_of(id, right)
        self.do(
            lambda engine: engine.extend_lease(id, owner, ttr, ORIGIN, self.now),
            lambda model, _: model.extend(id, owner, ttr, self.now),
        )

    @precondition(with_job("leased"))
    @rule(pick=picks)
    def give_back(self, pick: int, right: bool = True) -> None:
        id = self.some_job(pick, "leased")
        owner = self.holder_of(id, right)
        self.do(
            lambda engine: engine.release_lease(id, owner, ORIGIN, self.now),
            lambda model, _: model.give_back(id, owner, self.now),
        )

    # Finishing

    @precondition(with_job("leased"))
    @rule(pick=picks)
    def ack(self, pick: int, right: bool = True) -> None:
        id = self.some_job(pick, "leased")
        owner = self.holder_of(id, right)
        self.do(
            lambda engine: engine.ack(id, owner, ORIGIN, self.now),
            lambda model, _: model.ack(id, owner, self.now),
        )

    @precondition(with_job("leased"))
    @rule(
        pick=picks,
        error=blobs,
        delay=st.sampled_from((BY_POLICY, BY_POLICY, NEVER, 0, 1, 5 * SECOND)),
    )
    def nack(self, pick: int, error: bytes, delay: int = BY_POLICY, right: bool = True) -> None:
        id = self.some_job(pick, "leased")
        owner = self.holder_of(id, right)
        self.do(
            lambda engine: engine.nack(id, owner, error, ORIGIN, self.now, delay),
            lambda model, _: model.nack(id, owner, error, self.now, delay),
        )

    @precondition(with_job("leased"))
    @rule(pick=picks, result=blobs)
    def finish_with_token(self, pick: int, result: bytes, later: tuple[int, int] = (0, 0)) -> None:
        id = self.some_job(pick, "leased")
        job = self.model.jobs.get(id)
        lease = job.lease if job is not None else None
        epoch = (lease.epoch if lease is not None else 1) + later[0]
        number = (job.leases if job is not None else 1) + later[1]
        self.do(
            lambda engine: engine.finish_with_token(id, epoch, number, result, ORIGIN, self.now),
            lambda model, _: model.finish_with_token(id, epoch, number, result, self.now),
        )

    @precondition(with_job("leased"))
    @rule(owner=owners)
    def disconnect(self, owner: int) -> None:
        self.do(
            lambda engine: engine.disconnect(owner, ORIGIN, self.now),
            lambda model, _: model.disconnect(owner, self.now),
        )

    @precondition(with_job(*OPEN))
    @rule(pick=picks, result=blobs)
    def complete(self, pick: int, result: bytes) -> None:
        id = self.some_job(pick)
        self.do(
            lambda engine: engine.complete(id, result, ORIGIN, self.now),
            lambda model, _: model.complete(id, result, self.now),
        )

    @precondition(with_job(*OPEN))
    @rule(pick=picks, error=blobs)
    def fail(self, pick: int, error: bytes) -> None:
        id = self.some_job(pick)
        self.do(
            lambda engine: engine.fail(id, error, ORIGIN, self.now),
            lambda model, _: model.fail(id, error, self.now),
        )

    # Watching

    @precondition(with_job(*OPEN))
    @rule(pick=picks, patience=st.none() | durations)
    def watch(self, pick: int, patience: int | None) -> None:
        id = self.some_job(pick)
        deadline = 0 if patience is None else self.now + patience

        def start(engine: Engine) -> JobWatcher:
            watcher = engine.watch_job(id, 1, deadline)
            self.waiting.watchers[watcher.number] = watcher
            return watcher

        self.do(start, lambda model, _: model.watch(id, deadline))

    @precondition(lambda machine: machine.waiting.watchers)
    @rule(pick=picks)
    def stop_watching(self, pick: int) -> None:
        watchers = list(self.waiting.watchers.values())
        watcher = watchers[pick % len(watchers)]
        self.do(
            lambda engine: engine.stop_watching(watcher),
            lambda model, _: model.stop_watching(watcher.number),
        )

    # Looking after jobs

    @precondition(with_job("ready", "blocked"))
    @rule(pick=picks)
    def delete(self, pick: int) -> None:
        id = self.some_job(pick)
        self.do(
            lambda engine: engine.delete_job(id, ORIGIN, self.now),
            lambda model, _: model.delete(id, self.now),
        )

    @precondition(with_job("ready", "delayed", "failed"))
    @rule(pick=picks, to=st.sampled_from((*NAMES, "dead")), front=st.booleans())
    def move(self, pick: int, to: str, front: bool) -> None:
        id = self.some_job(pick)
        self.do(
            lambda engine: engine.move_job(id, to, front, ORIGIN, self.now),
            lambda model, _: model.move(id, to, front, self.now),
        )

    @precondition(with_job(*OPEN))
    @rule(pick=picks, priority=scores)
    def rescore(self, pick: int, priority: int) -> None:
        id = self.some_job(pick)
        self.do(
            lambda engine: engine.rescore(id, priority, ORIGIN, self.now),
            lambda model, _: model.rescore(id, priority),
        )

    @rule(name=names, key=keys, delta=scores, policy=policies)
    def update_keyed(self, name: str, key: bytes, delta: int, policy: Policy) -> None:
        self.do(
            lambda engine: engine.update_keyed(name, key, delta, policy, ORIGIN, self.now),
            lambda model, _: model.update_keyed(name, key, delta, policy, ORIGIN, self.now),
        )

    @precondition(with_job("delayed"))
    @rule(pick=picks, state=st.sampled_from(("delayed", "delayed", "ready")))
    def wake_now(self, pick: int, state: str) -> None:
        id = self.some_job(pick, state)
        self.do(
            lambda engine: engine.wake_job(id, ORIGIN, self.now),
            lambda model, _: model.wake_now(id, self.now),
        )

    @precondition(with_job("failed"))
    @rule(pick=picks, state=st.sampled_from(("failed", "failed", "ready")))
    def replay(self, pick: int, state: str) -> None:
        id = self.some_job(pick, state)
        self.do(
            lambda engine: engine.replay_dead_letter(id, ORIGIN, self.now),
            lambda model, _: model.replay(id, self.now),
        )

    @precondition(with_job("ready"))
    @rule(pick=picks, state=st.sampled_from(("ready", "ready", "ready", "leased")))
    def take_out(self, pick: int, state: str) -> None:
        id = self.some_job(pick, state)
        self.do(
            lambda engine: engine.remove_from_list(id, ORIGIN, self.now),
            lambda model, _: model.take_out(id, self.now),
        )

    # What must be refused, or must change nothing

    @rule(wish=pushes, fault=faults, before=st.lists(plain_pushes, max_size=2))
    def push_badly(
        self, wish: DrawnPush, fault: Mapping[str, object], before: list[DrawnPush]
    ) -> None:
        bad = replace(wish, **fault)  # type: ignore[arg-type]
        self.push_wish(bad, ORIGIN)
        self.transact([*before, bad, DrawnPush("a", Policy())], 1)

    @rule(wish=pushes, pick=picks)
    def push_twice(self, wish: DrawnPush, pick: int) -> None:
        """A uid that is taken: given to another job, or derived for one that was given none."""
        mine = replace(wish, uid=b"1" * 16)
        self.push_wish(mine, ORIGIN)
        self.push_wish(mine, ORIGIN)
        self.push_wish(mine, Origin(1, "mallory", ""))
        self.push_wish(replace(mine, queue="dead"), ORIGIN)
        twice = [DrawnPush("a", Policy(), uid=b"9" * 16)] * 2
        self.transact([*twice], 1)
        self.push_wish(replace(wish, uid=derive_uid(SALT, self.some_job(pick))), ORIGIN)

    @precondition(with_job("leased"))
    @rule(pick=picks, which=st.integers(0, 9))
    def misuse_leases(self, pick: int, which: int) -> None:
        too_large = b"x" * (PAYLOAD_LIMIT + 1)
        misuses: tuple[Callable[[], object], ...] = (
            lambda: self.extend(pick, 0),
            lambda: self.extend(pick, SECOND, right=False),
            lambda: self.give_back(pick, right=False),
            lambda: self.ack(pick, right=False),
            lambda: self.nack(pick, b"", right=False),
            lambda: self.nack(pick, too_large),
            lambda: self.finish_with_token(pick, b"", (1, 0)),
            lambda: self.finish_with_token(pick, b"", (0, 1)),
            lambda: self.finish_with_token(pick, too_large),
            lambda: self.complete(pick, too_large),
        )
        misuses[which]()

    @rule(pick=picks, which=st.integers(0, 25), bad=bad_queue_settings)
    def misuse_the_rest(self, pick: int, which: int, bad: Settings) -> None:
        too_large = b"x" * (PAYLOAD_LIMIT + 1)
        misuses: tuple[Callable[[], object], ...] = (
            lambda: self.fetch_or_wait(FetchRequest([b"a"], 1, ORIGIN, ttr=-1), None),
            lambda: self.wait(FetchRequest([b"a"], 1, ORIGIN, ttr=-1), self.now + SECOND),
            lambda: self.fail(pick, too_large),
            lambda: self.move(pick, "two words", False),
            lambda: self.move(pick, "", False),
            lambda: self.create_queue("two words", {}),
            lambda: self.create_queue("new", bad),
            lambda: self.configure_queue("a", bad),
            lambda: self.configure_queue("unknown", {}),
            lambda: self.purge("a", 6, 1),
            lambda: self.purge("a", 2, -1),
            lambda: self.purge("unknown", 2, 1),
            lambda: self.delete_queue("unknown", False),
            lambda: self.lease_batch("two words", 1, 1, 0),
            lambda: self.lease_batch("c1", -1, 1, 0),
            lambda: self.lease_batch("c1", 2, 1, 0),
            lambda: self.lease_batch("c1", 1, 0, 0),
            lambda: self.lease_batch("c1", 1, 1, -1),
            lambda: self.lease_batch("c1", 1, 1, FOREVER - START),
            lambda: self.ack_batch("c1", 1),
            lambda: self.set_value(b"", b"", None),
            lambda: self.set_value(b"v" * 65536, b"", None),
            lambda: self.set_value(b"v1", too_large, None),
            lambda: self.set_value(b"v1", b"", 0),
            lambda: self.expire_value(b"v1", -1),
            lambda: self.letters_delivered(1, -1),
        )
        misuses[which]()
