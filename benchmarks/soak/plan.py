"""What each pattern does, phase by phase."""

from dataclasses import dataclass
from typing import Final

from benchmarks.soak.work import WorkSetting

PATTERNS: Final = ("old-job", "delayed", "backlog", "failing", "burst", "mixed")
IDLE_SECONDS: Final = 3.0
REST_SECONDS: Final = 3.0


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many jobs each pattern keeps."""

    delayed: int
    backlog: int
    burst: int


@dataclass(frozen=True, slots=True)
class Phase:
    name: str
    seconds: float
    works: tuple[WorkSetting, ...] = ()
    churn: bool = False
    """Short jobs cycle beside the works."""
    until: str = ""
    """It ends already when no work of this kind is left."""
    judged: bool = True
    """Whether the disk should have come to rest at its end."""


OLD: Final = WorkSetting("keep", "old", payload=200, jobs=1)
# Only for runs that kill the server; else the load generator does it, with less processor time.
SHORT: Final = WorkSetting("cycle", "short", payload=200, connections=8, batch=50)
# One kind ends in a queue and is taken from there, the other among the dead letters.
BREAKING: Final = WorkSetting("fail", "breaking", payload=1024, batch=25, dead_queue="broken")
PERISHING: Final = WorkSetting("fail", "perishing", payload=1024, batch=25)


def delayed(jobs: int) -> WorkSetting:
    return WorkSetting("delay", "delayed", payload=200, jobs=jobs, connections=2)


def backlog(jobs: int) -> WorkSetting:
    return WorkSetting("cycle", "backlog", payload=1024, jobs=jobs, connections=4, batch=50)


def grow(jobs: int) -> WorkSetting:
    return WorkSetting("keep", "burst", payload=1024, jobs=jobs, connections=4)


def drain() -> WorkSetting:
    return WorkSetting("drain", "burst", payload=1024, connections=4)


def make_plan(pattern: str, seconds: float, sizes: Sizes) -> list[Phase]:
    """From an idle server to one whose jobs were all taken out and counted."""
    middle = mixed(seconds, sizes) if pattern == "mixed" else alone(pattern, seconds, sizes)
    streams = {work.stream: work for phase in middle for work in phase.works}
    streams["short"] = SHORT
    clear = tuple(
        WorkSetting("clear", work.stream, work.payload)
        for work in streams.values()
        if work.kind != "delay"
    )
    return [
        Phase("idle", IDLE_SECONDS, judged=False),
        *middle,
        Phase("rest", REST_SECONDS),
        Phase("clear", 600.0, clear, until="clear", judged=False),
    ]


def alone(pattern: str, seconds: float, sizes: Sizes) -> list[Phase]:
    if pattern == "burst":
        return burst(seconds, sizes, ())
    works: dict[str, tuple[WorkSetting, ...]] = {
        "old-job": (OLD,),
        "delayed": (delayed(sizes.delayed),),
        "backlog": (backlog(sizes.backlog),),
        "failing": (BREAKING, PERISHING),
    }
    # A backlog is a load by itself: it must be the one that moves the journal on.
    return [Phase(pattern, seconds, works[pattern], churn=pattern != "backlog")]


def burst(seconds: float, sizes: Sizes, beside: tuple[WorkSetting, ...]) -> list[Phase]:
    third = seconds / 3
    return [
        Phase("burst", third, (*beside, grow(sizes.burst)), until="keep", judged=False),
        Phase("drain", 600.0, (*beside, drain()), until="drain", judged=False),
        Phase("after burst", third, beside, churn=True),
    ]


def mixed(seconds: float, sizes: Sizes) -> list[Phase]:
    """Each pattern comes to those before it, and they stay."""
    part = seconds / 6
    steps: list[tuple[str, tuple[WorkSetting, ...]]] = [
        ("old-job", (OLD,)),
        ("delayed", (delayed(sizes.delayed),)),
        ("backlog", (backlog(sizes.backlog),)),
        ("failing", (BREAKING, PERISHING)),
    ]
    phases: list[Phase] = []
    works: tuple[WorkSetting, ...] = ()
    for name, more in steps:
        works += more
        phases.append(Phase(name, part, works, churn=True))
    return phases + burst(2 * part, sizes, works)
