"""Runs targets under libFuzzer, a few at a time, and tells what came of it.

    python -m fuzz.run --seconds 60 [--target masenko] [--jobs 2]

The targets are imported once, and each run is a fork of that: to instrument the product takes
longer than a short run does.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import hashlib
import os
import re
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from fuzz import catalog, one

FOUND = Path("build/fuzz")
FAILED = 70  # what a process ends with that has found something
SLOWEST = 300  # seconds after which an input counts as a hang, however busy the machine is
_LAST = re.compile(r"^#\d+\s.*?cov: (\d+) ft: (\d+) corp: (\d+)/", re.MULTILINE)
_STAT = re.compile(r"^stat::(\w+):\s+(\d+)", re.MULTILINE)
_ARTIFACT = re.compile(r"Test unit written to (\S+)")


@dataclass(frozen=True)
class Outcome:
    name: str
    status: int
    log: str

    @property
    def executions(self) -> int:
        return self._stat("number_of_executed_units")

    @property
    def new_units(self) -> int:
        return self._stat("new_units_added")

    @property
    def edges(self) -> int:
        """Branches of the product that were taken."""
        found = _LAST.findall(self.log)
        return int(found[-1][0]) if found else 0

    @property
    def crash(self) -> Path | None:
        """The input, if there is one that the target does not stand."""
        found = _ARTIFACT.findall(self.log)
        return Path(found[-1]) if found else None

    def _stat(self, name: str) -> int:
        return int(dict(_STAT.findall(self.log)).get(name, "0"))


@dataclass(frozen=True)
class Bounds:
    """How long a run is: so many inputs beside the corpus, or so many seconds."""

    runs: int = 0
    seconds: int = 0
    seed: int = 0  # 0: another one each time

    def arguments(self, inputs: int) -> list[str]:
        found = [f"-seed={self.seed}"] if self.seed else []
        if self.runs:  # libFuzzer counts the corpus among them
            found.append(f"-runs={self.runs + inputs + 1}")
        if self.seconds:
            found.append(f"-max_total_time={self.seconds}")
        return found


class Campaign:
    """Runs of several targets, whose new inputs and crashes are kept in a directory."""

    def __init__(
        self, names: Sequence[str], found: Path, bounds: Bounds, seeds_only: bool = False
    ) -> None:
        self._targets = one.load_instrumented(names)
        self._seeds_only = seeds_only
        self._found = found
        self._bounds = bounds

    def run(self, jobs: int) -> Iterator[Outcome]:
        waiting = list(self._targets)
        running: dict[int, str] = {}
        try:
            while waiting or running:
                while waiting and len(running) < jobs:
                    name = waiting.pop(0)
                    running[self._start(name)] = name
                process, status = os.wait()
                if process in running:
                    yield self._outcome(running.pop(process), os.waitstatus_to_exitcode(status))
        finally:
            for process in running:
                os.kill(process, 9)
                os.waitpid(process, 0)

    def _start(self, name: str) -> int:
        target = self._targets[name]
        own = self._found / name
        own.mkdir(parents=True, exist_ok=True)
        for seed in target.SEEDS:
            write_once(own, seed)
        arguments = self._arguments(name, target)
        sys.stdout.flush()
        process = os.fork()
        if not process:
            leave(self._log(name), target, arguments)
        return process

    def _arguments(self, name: str, target: catalog.Target) -> list[str]:
        own = self._found / name
        kept = [] if self._seeds_only else list(catalog.corpus(name))
        inputs = len(kept) + _count(own)
        arguments = [
            *self._bounds.arguments(inputs),
            f"-max_len={catalog.longest(target)}",
            f"-timeout={SLOWEST}",
            "-rss_limit_mb=2048",
            "-print_final_stats=1",
            f"-artifact_prefix={self._found / f'{name}-'}",
        ]
        words = catalog.words(target)
        if words:
            listed = self._found / f"{name}.words"
            listed.write_text("".join(f'"{_quoted(word)}"\n' for word in words))
            arguments.append(f"-dict={listed}")
        arguments.append(str(own))
        return [*arguments, str(catalog.CORPUS / name)] if kept else arguments

    def _log(self, name: str) -> Path:
        return self._found / f"{name}.log"

    def _outcome(self, name: str, status: int) -> Outcome:
        return Outcome(name, status, self._log(name).read_text(errors="replace"))


def leave(log: Path, target: catalog.Target, arguments: Sequence[str]) -> NoReturn:
    """In a fork: become libFuzzer."""
    with contextlib.suppress(BaseException):
        _redirect(log)
        one.run(target, arguments)
    # Not Python's way out, which is the parent's; libFuzzer writes the input down on this one.
    ctypes.CDLL(None).exit(FAILED)
    raise AssertionError("there is no way back")


def write_once(directory: Path, data: bytes) -> Path:
    """Under the name that libFuzzer gives it too, so that nothing is there twice."""
    path = directory / hashlib.sha1(data, usedforsecurity=False).hexdigest()
    if not path.exists():
        path.write_bytes(data)
    return path


def _count(directory: Path) -> int:
    return sum(1 for path in directory.iterdir() if path.is_file())


def _quoted(word: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in word)


def _redirect(log: Path) -> None:
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(out, 1)
    os.dup2(out, 2)


def tell(outcome: Outcome) -> None:
    print(
        f"{outcome.name:<18} {outcome.executions:>10,} executions  {outcome.edges:>6,} edges  "
        f"{outcome.new_units:>6,} new inputs",
        flush=True,
    )
    if outcome.status:
        print("\n".join(_told(outcome.log)))
        crash = outcome.crash
        if crash is not None:
            print(f"  the input: {crash}")
            print(f"  again:     make fuzz TARGET={outcome.name} INPUT={crash}", flush=True)


def _told(log: str) -> list[str]:
    """The error in a log, without what libFuzzer says around it."""
    lines = log.splitlines()
    marks = [at for at, line in enumerate(lines) if "Uncaught Python exception" in line]
    begin = marks[-1] if marks else max(len(lines) - 15, 0)
    return [f"  {line}" for line in lines[begin : begin + 40]]


def replay(name: str, paths: Sequence[Path]) -> None:
    """Run inputs once, without the fuzzer: what is wrong with them is raised."""
    target = catalog.load(name)
    for path in paths:
        started = time.perf_counter()
        target.fuzz(path.read_bytes())
        print(f"{path}: fine, in {time.perf_counter() - started:.3f} seconds")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzz.run", description=__doc__)
    parser.add_argument("--target", default="", help="only these, divided by commas")
    parser.add_argument("--seconds", type=int, default=0, help="of each target")
    parser.add_argument("--runs", type=int, default=0, help="inputs of each target")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2, help="targets at a time")
    parser.add_argument("--found", type=Path, default=FOUND, help="where new inputs are kept")
    parser.add_argument("--seeds-only", action="store_true", help="begin without the corpus")
    parser.add_argument("--input", type=Path, help="only run this input, once")
    given = parser.parse_args(argv)
    names = [name for name in given.target.split(",") if name] or catalog.names()
    if given.input is not None:
        replay(names[0], [given.input])
        return 0
    bounds = Bounds(given.runs, given.seconds or (0 if given.runs else 60), given.seed)
    try:
        campaign = Campaign(names, given.found, bounds, given.seeds_only)
    except one.NoAtheris as error:
        print(f"fuzz: {error}", file=sys.stderr)
        return 2
    failed = 0
    for outcome in campaign.run(given.jobs):
        tell(outcome)
        failed += outcome.status != 0
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
