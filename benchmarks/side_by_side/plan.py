"""What is to be measured, how often and in which order, as the options say."""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Final

from benchmarks import patience, rig
from benchmarks.side_by_side.results import Case, Part
from benchmarks.side_by_side.shapes import SHAPES
from benchmarks.side_by_side.subjects import KEYS, Subject

PARTS: Final = ("peak", "offered", "slow-flush", "syscalls", "resident")
NARROWING: Final = ("quick", "only", "rounds", "seconds", "payload", "rate")
"""Options that make of a run another one than that of the page."""
SMALL: Final = 200
LARGE: Final = 10_000

# A flush that takes longer is tried with those that answer what it costs; the rest is as it was.
WITH_SLOW_FLUSH: Final = ("masenko", "workq", "jobs", "redis-lists", "redis-streams", "beanstalkd")
# Where a few hundredths decide, which is less than single rounds are apart: servers and shapes.
CLOSE: Final[dict[rig.Durability, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "sync": (("masenko", "redis-lists"), ("c1", "c50", "c500")),
    "memory": (("masenko", "beanstalkd"), ("c50",)),
}


@dataclass(frozen=True, slots=True)
class Block:
    """Cases that have everything in common but the server and the shape."""

    part: Part
    durability: rig.Durability
    payload: int
    shapes: tuple[str, ...]
    rounds: int
    seconds: float
    close_rounds: int = 0
    """Of who is nearly as fast as Taskyard, where that is, and of Taskyard there; 0: no more."""

    def rounds_of(self, case: Case) -> int:
        servers, shapes = CLOSE.get(self.durability, ((), ()))
        is_close = case.subject in servers and case.shape in shapes
        return max(self.rounds, self.close_rounds) if is_close else self.rounds


_PLAIN: Final = ("c1", "c50", "c500", "c50x100")
FULL: Final = (
    Block("peak", "sync", SMALL, tuple(SHAPES), rounds=4, seconds=1.5, close_rounds=12),
    Block("peak", "sync", LARGE, _PLAIN, rounds=2, seconds=1.5),
    Block("peak", "write", SMALL, _PLAIN, rounds=2, seconds=1.5),
    Block("peak", "write", LARGE, ("c50", "c50x100"), rounds=2, seconds=1.5),
    Block("peak", "memory", SMALL, _PLAIN, rounds=2, seconds=1.5, close_rounds=12),
    Block("peak", "memory", LARGE, ("c50", "c50x100"), rounds=2, seconds=1.5),
    Block("slow-flush", "sync", SMALL, ("c50",), rounds=5, seconds=1.5),
    # A pause of the disk is more than the slowest hundredth of a round, however long that is. So
    # there are many rounds: what happens in less than half of them is not in the median.
    Block("offered", "sync", SMALL, ("c50",), rounds=9, seconds=2.0, close_rounds=21),
)
QUICK: Final = (
    Block("peak", "sync", SMALL, _PLAIN, rounds=2, seconds=0.7),
    Block("peak", "memory", SMALL, ("c50", "c50x100"), rounds=1, seconds=0.7),
    Block("slow-flush", "sync", SMALL, ("c50",), rounds=2, seconds=0.7),
    Block("offered", "sync", SMALL, ("c50",), rounds=2, seconds=1.0),
)


@dataclass(frozen=True, slots=True)
class Plan:
    subjects: list[str]
    blocks: list[Block]
    parts: list[str]
    warmup: float
    rate: float | None
    patience: float
    """Seconds that may be spent on measuring again what was disturbed."""
    resident_jobs: int
    directory: Path
    is_whole: bool
    """Nothing was left out: this is the run that the page is for."""


def read_arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Taskyard beside other queue servers."
    )
    parser.add_argument("--quick", action="store_true", help="an impression in a few minutes")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="WORD,...",
        help="of " + ", ".join([*KEYS, *rig.DURABILITIES, *SHAPES, *PARTS]),
    )
    parser.add_argument("--rounds", type=int, help="of each case (21 to 2)")
    parser.add_argument("--seconds", type=float, help="of each measurement (1.5)")
    parser.add_argument("--warmup", type=float, default=0.5, help="seconds not counted (0.5)")
    parser.add_argument("--payload", type=int, help="bytes, instead of 200 and 10,000")
    parser.add_argument("--rate", type=float, help="jobs a second offered (half the lower peak)")
    patience.add_argument(parser)
    parser.add_argument("--form", choices=("compiled", "interpreted"), help="(compiled if built)")
    parser.add_argument(
        "--dir", type=Path, default=rig.DEFAULT_DIRECTORY, help="where the servers keep their data"
    )
    parser.add_argument(
        "--out", type=Path, default=rig.DEFAULT_DIRECTORY, help="where the results go (build/bench)"
    )
    parser.add_argument("--publish", action="store_true", help="write the documentation's page too")
    parser.add_argument(
        "--again", type=Path, metavar="FILE", help="measure parts of a run again, keep the rest"
    )
    parser.add_argument(
        "--report", type=Path, metavar="FILE", help="measure nothing: make the page"
    )
    return parser.parse_args(words)


def make_plan(arguments: argparse.Namespace) -> Plan:
    kinds = (KEYS, rig.DURABILITIES, tuple(SHAPES), PARTS)
    subjects, durabilities, shapes, parts = rig.choose_terms(arguments.only, kinds)
    for name in ("rounds", "seconds", "payload", "rate"):
        value = getattr(arguments, name)
        if value is not None and value <= 0:
            raise rig.BenchmarkError(f"--{name} must be more than 0, not {value:g}")
    blocks = [
        changed(block, arguments, shapes)
        for block in (QUICK if arguments.quick else FULL)
        if block.part in parts and block.durability in durabilities
    ]
    if arguments.payload is not None:
        small = [block for block in blocks if block.payload == SMALL]
        blocks = [replace(block, payload=arguments.payload) for block in small]
    return Plan(
        subjects=subjects,
        blocks=[block for block in blocks if block.shapes],
        parts=parts,
        warmup=arguments.warmup,
        rate=arguments.rate,
        patience=patience.seconds_of(arguments),
        resident_jobs=20_000 if arguments.quick else 200_000,
        directory=arguments.dir,
        is_whole=arguments.form is None and not any(getattr(arguments, name) for name in NARROWING),
    )


def changed(block: Block, arguments: argparse.Namespace, shapes: Sequence[str]) -> Block:
    """As it was asked for on the command line."""
    return replace(
        block,
        shapes=tuple(shape for shape in block.shapes if shape in shapes),
        rounds=arguments.rounds or block.rounds,
        close_rounds=0 if arguments.rounds else block.close_rounds,
        seconds=arguments.seconds or block.seconds,
    )


def cases_of(block: Block, subjects: Sequence[Subject]) -> Iterator[Case]:
    for shape in block.shapes:
        for subject in subjects:
            if takes_part(block, subject, shape):
                yield Case(block.part, subject.key, block.durability, shape, block.payload)


def takes_part(block: Block, subject: Subject, shape: str) -> bool:
    about = subject.about
    if block.durability not in subject.servers:
        return False
    if about.only_batches and SHAPES[shape][1] == 1:
        return False
    if not about.is_sized and block.payload != SMALL:
        return False
    if block.part == "slow-flush":
        return about.key in WITH_SLOW_FLUSH
    if about.is_extra:
        return block.part == "peak" and block.durability == "sync" and block.payload == SMALL
    return True


def in_turns(cases: Sequence[Case], number: int) -> list[Case]:
    """The order of a round.

    The servers of one shape come right after each other, so that a slow minute of the machine
    falls on all of them. Each round has another order, the same in every run: who comes after one
    that has worn out the disk does worse, and that must not be the same one each time.
    """
    groups: dict[tuple[str, int, str], list[Case]] = {}
    for case in cases:
        groups.setdefault((case.durability, case.payload, case.shape), []).append(case)
    ordered: list[Case] = []
    for group in groups.values():
        ordered += Random(number).sample(group, len(group))
    return ordered
