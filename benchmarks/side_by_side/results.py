"""What a run has measured, as it is kept in JSON: the page is made of this and nothing else."""

import json
import os
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from benchmarks import rig

Part = Literal["peak", "offered", "slow-flush"]
"""As many jobs as can be done; so many a second for all; with a disk that takes longer to flush."""


@dataclass(frozen=True, slots=True)
class SubjectFacts:
    """A server that was measured: what a reader must know of it."""

    key: str
    label: str
    is_taskyard: bool
    has_finish: bool
    cycle: str
    version: str
    settings: dict[str, str]
    """By durability, in the server's own words."""


@dataclass(frozen=True, slots=True)
class Round:
    number: int
    jobs_per_s: float
    p50_us: float
    p99_us: float
    p999_us: float
    server_us: float
    """Processor time of the server for a job."""
    server_cores: float
    generator_cores: float
    stolen: float | None = None
    """Of the processor time that the machine asked for, what its host gave to others, if read."""


@dataclass(frozen=True, slots=True)
class Case:
    """One server at one durability, shape and size of payloads, with all of its rounds."""

    part: Part
    subject: str
    durability: rig.Durability
    shape: str
    payload: int
    rounds: list[Round] = field(default_factory=list)

    def median(self, figure: Callable[[Round], float]) -> float:
        return statistics.median(figure(each) for each in self.rounds)

    @property
    def rates(self) -> list[float]:
        return [each.jobs_per_s for each in self.rounds]

    @property
    def key(self) -> tuple[str, str, str, str, int]:
        return self.part, self.subject, self.durability, self.shape, self.payload

    @property
    def rate(self) -> float:
        return statistics.median(self.rates)


@dataclass(frozen=True, slots=True)
class Syscalls:
    """Counted over a fixed number of jobs."""

    subject: str
    durability: rig.Durability
    shape: str
    jobs: int
    calls: int
    counted_by: str


@dataclass(frozen=True, slots=True)
class Resident:
    """How much memory a server has gained by jobs that wait."""

    subject: str
    durability: rig.Durability
    jobs: int
    gained: int


@dataclass(slots=True)
class Results:
    machine: dict[str, Any]
    taskyard: str
    """Version and form."""
    command: str
    seconds: float
    warmup: float
    subjects: list[SubjectFacts]
    missing: dict[str, str] = field(default_factory=dict)
    """What could not be measured at all, and why."""
    failures: list[str] = field(default_factory=list)
    cases: list[Case] = field(default_factory=list)
    offered_rate: float | None = None
    rate_follows_peaks: bool = True
    """Else it was given."""
    flush_delay_ms: float = 0.0
    syscalls: list[Syscalls] = field(default_factory=list)
    syscalls_missing: str = ""
    resident: list[Resident] = field(default_factory=list)
    payload_of_resident: int = 200
    thrown_away: int = 0
    """Measurements that were made again, since too much of the machine was taken meanwhile."""
    took_seconds: float = 0.0
    load_average_at_end: float = 0.0
    complete: bool = False
    again: str = ""
    """The command that has measured some parts again, later than the rest."""

    def subject(self, key: str) -> SubjectFacts:
        return next(each for each in self.subjects if each.key == key)

    def find(
        self, part: Part, subject: str, durability: str, shape: str, payload: int
    ) -> Case | None:
        wanted = (part, subject, durability, shape, payload)
        return next((case for case in self.measured() if case.key == wanted), None)

    def forget(self, parts: Sequence[str], cases: Iterable[Case]) -> None:
        """What is measured again: these cases, and all of other parts."""
        again = {case.key for case in cases}
        self.cases = [case for case in self.cases if case.key not in again]
        if "syscalls" in parts:
            self.syscalls = []
        if "resident" in parts:
            self.resident = []
        self.complete = False

    def measured(self) -> Iterable[Case]:
        return (case for case in self.cases if case.rounds)

    def save(self, path: Path) -> None:
        """In one step, so that a run that is killed leaves a file that can be read."""
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_suffix(".new")
        new.write_text(json.dumps(asdict(self), indent=1) + "\n")
        os.replace(new, path)


def load(path: Path) -> Results:
    try:
        told = json.loads(path.read_text())
        return Results(
            **{
                **told,
                "subjects": [SubjectFacts(**each) for each in told["subjects"]],
                "cases": [_case(each) for each in told["cases"]],
                "syscalls": [Syscalls(**each) for each in told["syscalls"]],
                "resident": [Resident(**each) for each in told["resident"]],
            }
        )
    except OSError as error:
        raise rig.BenchmarkError(f"{path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise rig.BenchmarkError(f"{path} holds no results of this benchmark: {error}") from error


def _case(told: dict[str, Any]) -> Case:
    return Case(**{**told, "rounds": [Round(**each) for each in told["rounds"]]})
