"""One engine and one model, the same done to both, and all that must agree after each step."""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice

from engine.draws import PAYLOAD_LIMIT
from engine.harness import SALT, Bench
from hypothesis.stateful import RuleBasedStateMachine
from support.model import Model
from support.model_invariants import check_invariants
from support.model_view import effect_view, engine_view, model_view
from support.snapshot import snapshot

from taskyard.engine.model.events import (
    DuplicateJob,
    JobWatcher,
    LifecycleNotice,
    TaskyardError,
    TransactionStepRefused,
    Waiter,
)
from taskyard.engine.model.job import FOREVER, SECOND, Job
from taskyard.engine.model.queue import Queue
from taskyard.engine.model.state import DurableSession, EngineSettings, State
from taskyard.engine.operations.facade import Engine
from taskyard.engine.operations.finish import ATTEMPTS_USED_UP
from taskyard.engine.records.entities import BatchDone
from taskyard.engine.records.job_changes import (
    FailRecord,
    ReleaseRecord,
    RemoveRecord,
    RetryRecord,
    WakeRecord,
)
from taskyard.engine.records.job_lifecycle import Record
from taskyard.engine.records.replay import apply_record


@dataclass
class Refusal:
    """How an operation was refused, as far as both sides must agree on it."""

    error: type[BaseException]
    details: tuple[object, ...] = ()


@dataclass
class Waiting:
    """Objects of the engine that the test must hand back to it."""

    waiters: dict[int, Waiter] = field(default_factory=dict)
    watchers: dict[int, JobWatcher] = field(default_factory=dict)


def outcome(call: Callable[[], object]) -> object:
    """What came back, or how it was refused, in terms that both sides have."""
    try:
        return plain(call())
    except TransactionStepRefused as error:
        return Refusal(TransactionStepRefused, (error.index, type(error.cause)))
    except DuplicateJob as error:
        return Refusal(DuplicateJob, (error.job_id,))
    except TaskyardError as error:
        return Refusal(type(error))


def plain(value: object) -> object:
    if isinstance(value, Job):
        return value.id
    if isinstance(value, Waiter | JobWatcher):
        return value.number
    if isinstance(value, list):
        return [plain(each) for each in value]
    return None if isinstance(value, Queue | DurableSession) else value


def order_of(records: list[Record]) -> dict[tuple[str, object], int]:
    """Which timers seem to have been met in which order."""
    met: list[tuple[str, object]] = []
    for record in records:
        if isinstance(record, ReleaseRecord | FailRecord):
            met.append(("lease", record.id))
        elif isinstance(record, WakeRecord):
            met += [("wake", record.queue), ("wake one", record.id)]
        elif isinstance(record, RemoveRecord):
            met += [("ttl", record.id), ("dead", record.queue), ("dead one", record.id)]
        elif isinstance(record, BatchDone):
            met.append(("consumer", record.consumer))
    return {each: place for place, each in enumerate(dict.fromkeys(met))}


class SideBySide(RuleBasedStateMachine):
    bench: Bench
    model: Model
    kind_of_bench: type[Bench] = Bench

    def begin(self, seed: int, window: int, letters: int, max_jobs: int = -1) -> None:
        """`window`: how long uids are remembered; `letters`: how many an outbox can hold."""
        settings = EngineSettings(
            payload_limit=PAYLOAD_LIMIT,
            finished_bytes=1 << 40,
            uid_window=window,
            dead_retention=30 * SECOND,
            dead_bytes=2 * 512 + 20,
            default_ttr=4 * SECOND,
            outbox_age=15 * SECOND,
            outbox_bytes=letters * 64,
            max_jobs=max_jobs,
        )
        self.bench = self.kind_of_bench(settings, seed)
        self.model = Model(settings, SALT)
        self.model.boot(self.bench.now, [])
        self.bench.in_portions(2)
        self.shadow = State(settings)  # what the records so far give
        self.waiting = Waiting()
        self.follow()
        self.compare()

    def restart_both(self) -> None:
        self.bench.restart()
        self.restarted()
        self.waiting = Waiting()
        ended = [
            each.id
            for each in self.follow()
            if isinstance(each, ReleaseRecord)
            or (isinstance(each, FailRecord) and each.reason == ATTEMPTS_USED_UP)
        ]
        self.model.boot(self.now, ended)
        self.compare()

    def restarted(self) -> None:
        """For a machine that has something to say to that."""

    def stepped(self) -> None:
        """For a machine that does something between the steps."""

    def comparable(self, state: State) -> dict[str, object]:
        """What must be the same in the engine's state and in one that its records give."""
        return snapshot(state)

    @property
    def now(self) -> int:
        return self.bench.now

    @property
    def engine(self) -> Engine:
        return self.bench.engine

    def do(
        self, engine: Callable[[Engine], object], model: Callable[[Model, object], object]
    ) -> object:
        """The same on both sides; what comes back must be the same."""
        before = len(self.bench.frames)
        got = outcome(lambda: engine(self.engine))
        records = self.follow()
        self.model.retries = {
            each.id: each.run_at for each in records if isinstance(each, RetryRecord)
        }
        wanted = outcome(lambda: model(self.model, got))
        assert got == wanted
        assert not isinstance(got, Refusal) or len(self.bench.frames) == before
        if self.engine.state.pending_dependents:
            self.tick(1000)
        else:
            self.compare()
        self.stepped()
        return got

    def follow(self) -> list[Record]:
        """Apply what was logged since the last time to a second state."""
        records = self.bench.collect()
        for record in records:
            apply_record(self.shadow, record)
        assert self.comparable(self.shadow) == self.comparable(self.engine.state)
        return records

    def tick(self, budget: int) -> None:
        """Ties may go either way: the model takes the way that the engine took."""
        records: list[Record] = []
        while self.engine.tick(self.now, budget):
            records += self.follow()
            self.stepped()
        records += self.follow()
        hints = order_of(records)
        self.model.portions = budget < 1000
        before = self.model.copy() if self.model.due(self.now) else self.model
        seen = self.visible()
        for world in islice(self.model.ticks(self.now, hints), 600):
            if seen == (model_view(world), sorted(world.effects)):
                self.model = world
                break
        else:
            assert isinstance(before, Model)
            self.model = next(before.ticks(self.now, hints))
        self.compare()

    def visible(self) -> tuple[dict[str, object], list[tuple[object, ...]]]:
        effects = sorted(effect_view(effect) for effect in self.engine.effects)
        return engine_view(self.engine, self.bench.read), effects

    def compare(self) -> None:
        view, effects = self.visible()
        assert view == model_view(self.model)
        assert effects == sorted(self.model.effects)
        for effect in self.engine.effects:
            assert (
                not isinstance(effect, LifecycleNotice)
                or 0 < effect.durable_position <= self.engine.records.end_position()
            )
        self.engine.drain_effects()
        self.model.take_effects()
        check_invariants(self.engine)
        planned = [when for when, _, _ in self.model.planned() if 0 < when < FOREVER]
        if planned:
            assert 0 < self.engine.next_deadline(self.now) <= max(self.now, min(planned))

    def teardown(self) -> None:
        if hasattr(self, "bench"):
            rebuilt = self.bench.rebuild()
            assert self.comparable(rebuilt) == self.comparable(self.engine.state)

    # Choosing among what is there

    def some_job(self, pick: int, *states: str) -> int:
        """The id of a job: mostly a live one, now and then one that is gone or never was."""
        if pick >= 18:
            return max(1, self.model.next_id - 19 + pick)
        jobs = [job for job in self.model.jobs.values() if job.state != "gone"]
        jobs = [job for job in jobs if job.state in states] or jobs
        return jobs[pick % len(jobs)].id if jobs else self.model.next_id

    def holder_of(self, id: int, right: bool) -> int:
        job = self.model.jobs.get(id)
        owner = job.lease.owner if job is not None and job.lease is not None else 1
        return owner if right else owner + 1
