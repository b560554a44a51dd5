"""Compaction between all other operations: a replay may begin at any base, and nobody notices.

The machine is the one of test_machine.py. In between, passes of compaction are done in chunks,
finished or given up, and restarts begin at the last base. After each pass, a replay from its base,
and one from any earlier point, must come to the state that is there.
"""

from dataclasses import dataclass

from engine.compacting import Compaction, places
from engine.harness import FRAME_HEAD, ORIGIN, Bench, Frame, machine_settings
from engine.job_rules import JobRules
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule
from support.model_invariants import check_invariants, check_weights
from support.snapshot import Plain, lasting

from taskyard.engine.model.job import SECOND
from taskyard.engine.model.state import State
from taskyard.engine.operations.facade import Engine
from taskyard.engine.records.job_lifecycle import Record

SPREAD = 300_000  # bytes between frames, so that weights are counted in several zones


@dataclass(frozen=True)
class Pace:
    """How a pass of compaction goes."""

    keep: int = 0  # percent of the records that stay as they are
    order: int = 0  # in which things are carried
    portions: tuple[int, ...] = ()  # so many after each of the next steps, then the rest


paces = st.builds(
    Pace,
    keep=st.sampled_from((0, 5, 20, 40, 60, 90)),
    order=st.integers(0, 9),
    portions=st.lists(st.integers(0, 5), max_size=8).map(tuple),
)


class CarryingBench(Bench):
    """Each record is a frame of its own, so that a base may be between any two of them."""

    def collect(self) -> list[Record]:
        records = super().collect()
        if records:
            whole = self.frames.pop()
            at = 0
            for record in records:
                data = whole.data[at : at + record.size]
                self.frames.append(Frame(whole.base + at, record.seq, data))
                at += record.size
        return records


class CarryingMachine(JobRules):
    kind_of_bench = CarryingBench
    every = 0  # steps from the end of a pass to the next; 0: only a rule begins one
    pace = Pace()

    @initialize(every=st.sampled_from((0, 0, 1, 4, 12)), pace=paces)
    def keep_compacting(self, every: int, pace: Pace) -> None:
        self.every = every
        self.pace = pace

    def begin(self, seed: int, window: int, letters: int, max_jobs: int = -1) -> None:
        self.compaction: Compaction | None = None
        self.idle = 0  # steps since the last pass
        super().begin(seed, window, letters, max_jobs)
        self.bench.gap = SPREAD if seed % 2 else FRAME_HEAD

    def comparable(self, state: State) -> Plain:
        return lasting(state)

    @rule(pace=paces)
    def compact(self, pace: Pace) -> None:
        """Begin a pass, or go on in another way."""
        self.pace = pace
        if self.compaction is None:
            self.begin_compaction()
        self.go_on()

    @rule()
    def give_up_compaction(self) -> None:
        self.compaction = None

    @rule(
        name=st.sampled_from(("r1", "r2")),
        what=st.sampled_from(("register", "commit", "drop")),
        next_seq=st.integers(1, 9),
    )
    def reader(self, name: str, what: str, next_seq: int) -> None:
        """The model knows nothing of those who read the journal; they are to be kept, too."""

        def change(engine: Engine) -> object:
            if what == "drop":
                engine.drop_reader(name, ORIGIN, self.now)
                return None
            act = engine.register_reader if what == "register" else engine.commit_reader
            return act(name, next_seq, SECOND, ORIGIN, self.now)

        self.do(change, lambda _, got: got)

    def begin_compaction(self) -> None:
        """The journal could begin between any two records, and where it ends."""
        places = {frame.base for frame in self.bench.frames}
        places |= {frame.end for frame in self.bench.frames}
        bases = sorted(place for place in places if place > self.bench.base)
        if bases:
            chosen = bases[-1 - len(bases) * self.pace.keep // 100]
            self.compaction = Compaction(self.bench, chosen)
            self.portions = list(self.pace.portions)

    def stepped(self) -> None:
        if self.compaction is None:
            self.idle += 1
            if self.every and self.idle >= self.every:
                self.begin_compaction()
        self.go_on()

    def go_on(self) -> None:
        """Carry a chunk, all that is left after the last one: nothing of that can be seen."""
        compaction = self.compaction
        if compaction is None:
            return
        self.idle = 0
        before = self.visible()
        compaction.continue_scan(self.portions.pop(0) if self.portions else 1000, self.pace.order)
        self.follow()
        assert self.visible() == before
        check_invariants(self.engine)
        if compaction.closed:
            self.compaction = None
            self.check_base(compaction.base)
            self.bench.base = compaction.base
            self.engine.state.live_bytes.forget_before(compaction.base)

    def check_base(self, base: int) -> None:
        """A replay may begin here, or anywhere before: not all old segments may be gone yet."""
        live = self.engine.state
        assert all(at > base for at in places(live))
        positions = [frame.base for frame in self.bench.frames]
        earlier = [position for position in positions if position <= base]
        later = [position for position in positions if position > base]
        for start in {base, earlier[self.pace.order % len(earlier)]}:
            state = self.bench.replay(start)
            assert not state.is_partial_replay
            assert lasting(state) == lasting(live)
            check_weights(state)
        assert self.bench.replay(later[self.pace.order % len(later)]).is_partial_replay

    def teardown(self) -> None:
        super().teardown()
        if hasattr(self, "bench"):
            assert lasting(self.bench.replay(0)) == lasting(self.engine.state)

    def restarted(self) -> None:
        """A crash: what was carried so far has been carried for nothing."""
        self.compaction = None
        known = self.engine.state.jobs
        self.model.jobs = {
            id: job
            for id, job in self.model.jobs.items()
            if job.state != "gone" or known.get(id) is not None
        }


TestCompaction = CarryingMachine.TestCase
TestCompaction.settings = machine_settings(examples=70, steps=60)
