"""Adds up a recording: time by phase and kind, by function, and by what was waited for."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from benchmarks.profile.phases import (
    DISK,
    KINDS,
    OTHER,
    PHASES,
    PREEMPTED,
    Classifier,
    Frame,
    Kind,
    Names,
    system_call,
)
from benchmarks.profile.recording import Recording
from benchmarks.profile.stacks import Sample, Wait

_UNSAID: Final = (
    "schedule",
    "__schedule",
    "io_schedule",
    "preempt_",
    "__x64_sys_",
    "do_syscall_",
    "entry_",
)


@dataclass(frozen=True, slots=True)
class Cost:
    """Microseconds of one cycle, and where they went."""

    name: str
    us: float
    share: float
    """Of all the time of the main thread."""
    kinds: dict[Kind, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Profile:
    cycle_us: float
    """Elapsed time for a cycle: the reciprocal of the rate."""
    processor_us: float
    """Of the main thread."""
    queued_us: float
    """Of the waits: what was over, but there was no core yet."""
    others_us: float
    """Processor time of the other threads."""
    others_disk_us: float
    """How long they were in a flush, while the main thread could do something else."""
    samples: int
    phases: list[Cost]
    functions: list[Cost]
    """By themselves."""
    callers: list[Cost]
    """Our own, with what Python, libraries and the kernel did for them."""
    waits: list[Cost]


class _Sums:
    """Seconds by name and kind."""

    def __init__(self) -> None:
        self.by: defaultdict[str, defaultdict[Kind, float]] = defaultdict(
            lambda: defaultdict(float)
        )

    def add(self, name: str, kind: Kind, seconds: float) -> None:
        self.by[name][kind] += seconds

    def costs(self, cycles: int, elapsed: float) -> list[Cost]:
        """The dearest first."""
        found = [
            Cost(
                name,
                sum(kinds.values()) / cycles * 1e6,
                sum(kinds.values()) / elapsed,
                {kind: kinds[kind] / cycles * 1e6 for kind in KINDS if kinds.get(kind)},
            )
            for name, kinds in self.by.items()
        ]
        return sorted(found, key=lambda cost: cost.us, reverse=True)


def add_up(recording: Recording, modules: Sequence[str]) -> Profile:
    """The main thread's time in full; of the others only what they took of the processor."""
    main = recording.main_thread
    mine = [sample for sample in recording.samples if sample.thread == main]
    waits = [wait for wait in recording.waits if wait.thread == main]
    elapsed = recording.ended - recording.began
    waited = sum(wait.seconds for wait in waits)
    # Sampling says how the time is divided; how much of it there was is known exactly.
    seen = sum(sample.seconds for sample in mine)
    scale = max(0.0, elapsed - waited) / seen if seen else 0.0
    names = Names(modules)
    classifier = Classifier(names)
    phases, functions, callers = _sums_of_samples(mine, scale, classifier, names)
    reasons = _sums_of_waits(waits, classifier, phases)
    cycles = recording.cycles
    others = sum(sample.seconds for sample in recording.samples if sample.thread != main)
    flushing = [
        w for w in recording.waits if w.thread != main and classifier.phase(w.stack) == DISK
    ]
    return Profile(
        cycle_us=elapsed / cycles * 1e6,
        processor_us=(elapsed - waited) / cycles * 1e6,
        queued_us=recording.queued_seconds / cycles * 1e6,
        others_us=others / cycles * 1e6,
        others_disk_us=sum(wait.seconds for wait in flushing) / cycles * 1e6,
        samples=len(mine),
        phases=_in_order(phases.costs(cycles, elapsed)),
        functions=functions.costs(cycles, elapsed),
        callers=callers.costs(cycles, elapsed),
        waits=reasons.costs(cycles, elapsed),
    )


def _sums_of_samples(
    samples: Iterable[Sample], scale: float, classifier: Classifier, names: Names
) -> tuple[_Sums, _Sums, _Sums]:
    phases, functions, callers = _Sums(), _Sums(), _Sums()
    for sample in samples:
        if not sample.stack:
            phases.add(OTHER, "runtime", sample.seconds * scale)
            continue
        leaf = sample.stack[0]
        kind = classifier.kind(leaf)
        phases.add(classifier.phase(sample.stack), kind, sample.seconds * scale)
        functions.add(names.function(leaf.symbol) or leaf.symbol, kind, sample.seconds * scale)
        caller = next(filter(None, (names.function(frame.symbol) for frame in sample.stack)), "")
        if caller:
            callers.add(caller, kind, sample.seconds * scale)
    return phases, functions, callers


def _sums_of_waits(waits: Iterable[Wait], classifier: Classifier, phases: _Sums) -> _Sums:
    reasons = _Sums()
    for wait in waits:
        phases.add(classifier.wait(wait.stack, wait.preempted), "waiting", wait.seconds)
        reason = PREEMPTED if wait.preempted else reason_of(wait.stack)
        reasons.add(reason, "waiting", wait.seconds)
    return reasons


def reason_of(stack: Sequence[Frame]) -> str:
    """The system call and the innermost functions that say what it waited for."""
    call = system_call(stack)
    kernel = [frame.symbol for frame in stack if frame.in_kernel]
    inner = [name for name in kernel if not name.startswith(_UNSAID)]
    return " < ".join([*inner[:3], f"{call}()" if call else "no call"])


def _in_order(costs: Iterable[Cost]) -> list[Cost]:
    """As a request goes through them, without those that took nothing."""
    by_name = {cost.name: cost for cost in costs}
    return [by_name[phase] for phase in PHASES if phase in by_name]
