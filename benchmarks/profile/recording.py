"""Runs a server under load with perf attached, and gives back what perf has seen.

The server runs twice under the same load: first without perf, which gives the rate that the
profile is to explain, then with it.
"""

import contextlib
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks import rig
from benchmarks.profile.stacks import (
    FIELDS,
    ON_PROCESSOR,
    SWITCH,
    Sample,
    Wait,
    read_samples,
    read_waits,
)
from benchmarks.side_by_side.shapes import SHAPES

PER_SECOND: Final = 997
"""Samples of each core: a prime number, so as not to go in step with anything."""
STACK_BYTES: Final = 16_384
# Return addresses on the stack are needed to go up through code without frame pointers. -d: also
# where the files' read-only data is mapped, which has the tables for that. On the whole machine: a
# clock of one process is set anew whenever it comes and goes, and that alone made a server with one
# connection a sixth slower.
SAMPLING: Final = (
    *("-a", "-d", "-e"),
    f"{ON_PROCESSOR}/freq={PER_SECOND},call-graph=dwarf,stack-size={STACK_BYTES}/",
)
# Where a thread waits, the kernel's own part of the stack is enough, and costs far less.
WAITING: Final = ("--switch-events", "-e", f"{SWITCH}/call-graph=fp/")
ATTACH_SECONDS: Final = 20.0
HOW_TO_GET_PERF: Final = (
    "the profile needs perf: `apt-get install linux-perf` (Debian) or `linux-tools-generic` "
    "(Ubuntu), and to be root, or `sysctl kernel.perf_event_paranoid=-1`"
)


@dataclass(frozen=True, slots=True)
class Ask:
    """What is to be profiled."""

    dialect: rig.Dialect
    shape: str
    durability: rig.Durability
    form: rig.Form
    payload: int
    seconds: float
    warmup: float
    options: tuple[str, ...]

    @property
    def load(self) -> rig.Load:
        connections, depth = SHAPES[self.shape]
        return rig.Load(connections=connections, depth=depth, payload=self.payload)


@dataclass(frozen=True, slots=True)
class Rate:
    """How fast it was, and what of the processors that took."""

    cycles_per_s: float
    server_cores: float
    generator_cores: float


def rate_of(measured: rig.Measurement) -> Rate:
    return Rate(measured.cycles_per_s, measured.server_cores, measured.generator_cores)


@dataclass(frozen=True, slots=True)
class Recording:
    """All that one case has given, with times on the monotonic clock."""

    ask: Ask
    plain: Rate
    profiled: Rate
    cycles: int
    """Also those of the generator's first and last moments, which were recorded as well."""
    flushed: str
    """Where the server has flushed the disk, as its log says: inline, or in a thread."""
    main_thread: int
    began: float
    ended: float
    queued_seconds: float
    """How long the main thread could have run, but had no core."""
    samples: list[Sample]
    waits: list[Wait]


def require_perf() -> None:
    if shutil.which("perf") is None:
        raise rig.BenchmarkError(HOW_TO_GET_PERF)


def record(ask: Ask, generator: rig.Generator, directory: Path) -> Recording:
    server = rig.Taskyard(ask.form, ask.durability, options=ask.options, dialect=ask.dialect)
    with rig.scratch(directory) as place, server.run(place) as running:
        plain = generator.cycle(running, ask.load, seconds=ask.seconds, warmup=ask.warmup)
        clock, switches = place / "clock.data", place / "switches.data"
        with perf(SAMPLING, clock), perf([*WAITING, "-p", str(running.pid)], switches):
            queued = queued_seconds(running.pid)
            began = time.monotonic()
            profiled = generator.cycle(running, ask.load, seconds=ask.seconds, warmup=0)
            ended = time.monotonic()
            queued = queued_seconds(running.pid) - queued
        with script(clock) as lines:
            samples = [s for s in read_samples(lines, running.pid) if began <= s.time <= ended]
        with script(switches) as lines:
            waits = [wait for wait in read_waits(lines) if began <= wait.time <= ended]
        if not samples or not waits:
            raise rig.BenchmarkError("perf has recorded nothing that could be read")
        return Recording(
            ask=ask,
            plain=rate_of(plain),
            profiled=rate_of(profiled),
            cycles=profiled.pushed,
            flushed=flushed(place / "log"),
            main_thread=running.pid,
            began=began,
            ended=ended,
            queued_seconds=queued,
            samples=samples,
            waits=waits,
        )


@contextlib.contextmanager
def perf(events: Sequence[str], data: Path) -> Iterator[None]:
    """What happens in the block goes to the file."""
    command = ["perf", "record", "-k", "CLOCK_MONOTONIC", "-m", "8M", *events, "-o", str(data)]
    log = data.with_suffix(".log")
    with log.open("ab") as output:
        child = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    try:
        wait_until_attached(child, data, log)
        yield
    finally:
        child.send_signal(signal.SIGINT)
        try:
            child.wait(ATTACH_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait(ATTACH_SECONDS)


def wait_until_attached(child: subprocess.Popen[bytes], data: Path, log: Path) -> None:
    """perf writes its header when it has opened all events, and records from then on."""
    deadline = time.monotonic() + ATTACH_SECONDS
    while time.monotonic() < deadline:
        if child.poll() is not None:
            raise rig.BenchmarkError(f"perf has ended:\n{rig.tail(log)}\n{HOW_TO_GET_PERF}")
        if data.exists() and data.stat().st_size > 0:
            return
        time.sleep(0.01)
    raise rig.BenchmarkError(f"perf has not begun in {ATTACH_SECONDS:.0f} s:\n{rig.tail(log)}")


@contextlib.contextmanager
def script(data: Path) -> Iterator[Iterator[str]]:
    """The lines of a recording."""
    command = ["perf", "script", "-i", str(data), "--no-inline", "--ns", "--show-switch-events"]
    with subprocess.Popen(
        [*command, "-F", FIELDS],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        errors="replace",
    ) as child:
        assert child.stdout is not None
        yield iter(child.stdout)


def flushed(log: Path) -> str:
    found = re.search(r" mode=(inline|thread)\b", log.read_text(errors="replace"))
    return found[1] if found is not None else "not at once"


def queued_seconds(pid: int) -> float:
    """How long the main thread has waited for a core since it began."""
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[1]) / 1e9
