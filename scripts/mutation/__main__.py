"""A mutation test: is every small wrong change of the engine and the journal noticed by a test?

    PYTHONPATH=src TASKYARD_FORM=interpreted python -m scripts.mutation --sample 1500 --seed 1

One process imports all tests, and forks for each mutant: the fork puts the mutant in and runs the
tests that come by its lines, those that are likely to fail first, until one fails. What was run is
in build/mutation/results.jsonl; a run leaves out what stands there already.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import resource
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

from scripts.mutation.live import NotInstalled, install
from scripts.mutation.mutants import Mutant, mutants_of
from scripts.mutation.reach import Book, Reach, measure

ROOT = Path(__file__).resolve().parent.parent.parent
SOURCE = ROOT / "src"
BUILD = ROOT / "build" / "mutation"
TESTS = ("tests/engine", "tests/journal", "tests/broker")
PACKAGES = ("engine", "journal")
MEMORY = 2 << 30  # bytes that a mutant may take beyond what is there: loops may append for ever
KILLED, SURVIVED, UNREACHED, LOOPED, SKIPPED = (
    "killed",
    "survived",
    "unreached",
    "looped",
    "skipped",
)


def sources() -> list[Path]:
    return [path for name in PACKAGES for path in sorted((SOURCE / "taskyard" / name).glob("*.py"))]


def all_mutants(only: list[str]) -> list[Mutant]:
    found: list[Mutant] = []
    for path in sources():
        module = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
        if not only or any(module.endswith(name) for name in only):
            found.extend(mutants_of(path, module))
    return found


def sampled(mutants: list[Mutant], size: int, seed: int) -> list[Mutant]:
    """As many of each module as its share is, in an order of which every beginning is fair."""
    dice = random.Random(seed)
    by_module: dict[str, list[Mutant]] = {}
    for mutant in mutants:
        by_module.setdefault(mutant.module, []).append(mutant)
    placed: list[tuple[float, Mutant]] = []
    for members in by_module.values():
        dice.shuffle(members)
        step = 1 / len(members)
        offset = dice.random() * step
        placed.extend((offset + place * step, mutant) for place, mutant in enumerate(members))
    placed.sort(key=lambda pair: pair[0])
    return [mutant for _, mutant in placed][:size]


def past(path: Path) -> dict[str, dict[str, Any]]:
    """What became of each mutant when it was run last."""
    if not path.exists():
        return {}
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return {row["name"]: row for row in rows}


def passes(item: pytest.Item) -> bool:
    return not any(report.failed for report in runtestprotocol(item, log=False, nextitem=None))


class Runner:
    """Takes the place of pytest's own loop over the tests."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.book = Book(BUILD / "reach.json", sources())
        self.results = BUILD / "results.jsonl"
        self.items: dict[str, pytest.Item] = {}
        self.killers: dict[str, Counter[str]] = {}

    def pytest_sessionstart(self) -> None:
        from hypothesis import Phase, settings  # not before pytest wants it

        # A failure need not be made small.
        phases = (Phase.explicit, Phase.generate)
        settings.register_profile("mutation", settings(phases=phases, report_multiple_bugs=False))
        settings.load_profile("mutation")

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            raise session.Interrupted("not all tests could be collected")
        self.items = {item.nodeid: item for item in session.items}
        gc.collect()
        gc.freeze()
        self.measure()
        before = past(self.results)
        for row in before.values():
            if "by" in row:
                self.credit(row["name"].partition(":")[0], row["by"])
        chosen = sampled(all_mutants(self.options.module), self.options.sample, self.options.seed)
        if self.options.again:
            names = {name for name, row in before.items() if row["result"] in (SURVIVED, UNREACHED)}
            if self.options.names:
                names &= set(self.options.names.read_text(encoding="utf-8").split())
            chosen = [mutant for mutant in chosen if mutant.name in names]
        else:
            chosen = [mutant for mutant in chosen if mutant.name not in before]
        print(f"{len(chosen)} mutants to run, {len(self.items)} tests", flush=True)
        self.side_by_side(lambda number, jobs: self.run_all(chosen[number::jobs]))
        return True

    def side_by_side(self, work: Callable[[int, int], None]) -> None:
        jobs = self.options.jobs
        workers = [_fork(lambda number=number: work(number, jobs)) for number in range(jobs)]  # type: ignore[misc]
        for worker in workers:
            _wait_for(worker)

    def measure(self) -> None:
        missing = [name for name in self.items if name not in self.book.tests]
        if not missing:
            return
        print(f"measuring {len(missing)} tests", flush=True)
        files = frozenset(map(str, sources()))
        parts = BUILD / "parts"
        shutil.rmtree(parts, ignore_errors=True)
        parts.mkdir(parents=True)

        def work(number: int, jobs: int) -> None:
            for at in range(number, len(missing), jobs):
                _alone(lambda at=at: self.measure_one(missing[at], files, parts / str(at)))  # type: ignore[misc]

        self.side_by_side(work)
        for part in parts.iterdir():
            self.book.add(json.loads(part.read_text(encoding="utf-8")))
        shutil.rmtree(parts)
        self.book.save()

    def measure_one(self, name: str, files: frozenset[str], part: Path) -> None:
        base = self.own_directory()
        found = measure(lambda: passes(self.items[name]), files)
        part.write_text(json.dumps({name: found}), encoding="utf-8")
        shutil.rmtree(base)

    def own_directory(self) -> Path:
        """Forks must not meet in pytest's temporary directory."""
        base: Path = self.options.scratch / str(os.getpid())
        shutil.rmtree(base, ignore_errors=True)
        base.mkdir(parents=True)
        item = next(iter(self.items.values()))
        item.config._tmp_path_factory._basetemp = base  # type: ignore[attr-defined]
        return base

    def run_all(self, mutants: list[Mutant]) -> None:
        with self.results.open("a", encoding="utf-8") as results:
            for number, mutant in enumerate(mutants, 1):
                row = self.run(mutant)
                results.write(json.dumps(row) + "\n")
                results.flush()
                if number % 50 == 0:
                    print(f"{number} of {len(mutants)}", flush=True)

    def run(self, mutant: Mutant) -> dict[str, Any]:
        old, new = mutant.shown()
        row: dict[str, Any] = {
            "name": mutant.name,
            "function": mutant.function,
            "old": old,
            "new": new,
        }
        tests = self.tests_of(mutant)
        if not tests:
            return {**row, "result": UNREACHED}
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        within = self.affordable(tests, self.options.budget)
        result, last = self.fork(mutant, tests[:within])
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        row |= {"result": result, "tests": last + 1, "of": len(tests), "cpu": round(cpu, 2)}
        if result in (KILLED, LOOPED):
            row["by"] = tests[last]
            self.credit(mutant.module, tests[last])
        return row

    def credit(self, module: str, test: str) -> None:
        self.killers.setdefault(module, Counter())[test] += 1

    def tests_of(self, mutant: Mutant) -> list[str]:
        killers = self.killers.get(mutant.module, Counter())
        likely = {name for name, _ in killers.most_common(12)}
        reach = self.book.tests
        path = str(mutant.path)
        known = [name for name in self.items if name in reach]
        if mutant.function:
            known = [name for name in known if reach[name].touches(path, mutant.lines)]
        else:  # a constant: whoever runs something of the module may use it, or looks at it
            module = sys.modules[mutant.module]
            known = [
                name for name in known if reach[name].lines.get(path) or self.imports(name, module)
            ]
        known.sort(key=lambda name: _cost(name, reach[name], mutant, name in likely))
        if self.options.again:  # a second of quick ones, then those that see most of the module
            quick = self.affordable(known, 1.0)
            rest = sorted(known[quick:], key=lambda name: -reach[name].lines_of(path))
            known = known[:quick] + rest
        return known

    def imports(self, test: str, module: ModuleType) -> bool:
        item = self.items[test]
        return isinstance(item, pytest.Function) and any(
            value is module for value in vars(item.module).values()
        )

    def affordable(self, tests: list[str], left: float) -> int:
        """How many of the tests can be run in so many seconds; one at least."""
        for number, name in enumerate(tests):
            left -= self.book.tests[name].seconds
            if left < 0:
                return max(number, 1)
        return len(tests)

    def fork(self, mutant: Mutant, tests: list[str]) -> tuple[str, int]:
        """Run the tests in another process; gives how it ended, and the last test's number."""
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            os.close(reader)
            try:
                self.in_fork(mutant, tests, writer)
            finally:
                os._exit(99)
        os.close(writer)
        with os.fdopen(reader, "rb") as pipe:
            told = pipe.read().split()
        _, status = os.waitpid(child, 0)
        shutil.rmtree(self.options.scratch / str(child), ignore_errors=True)
        last = int(told[-1]) if told else -1
        if os.WIFSIGNALED(status):
            return LOOPED, last
        return {0: SURVIVED, 2: SKIPPED}.get(os.WEXITSTATUS(status), KILLED), last

    def in_fork(self, mutant: Mutant, tests: list[str], writer: int) -> None:
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)
        with open("/proc/self/statm", encoding="ascii") as numbers:
            limit = int(numbers.read().split()[0]) * resource.getpagesize() + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        self.own_directory()
        try:
            install(mutant)
        except NotInstalled:
            os._exit(2)
        for number, name in enumerate(tests):
            os.write(writer, b"%d\n" % number)
            seconds = self.book.tests[name].seconds
            signal.setitimer(signal.ITIMER_PROF, 1.5 + 8 * seconds)
            signal.setitimer(signal.ITIMER_REAL, 60 + 20 * seconds)
            if not passes(self.items[name]):
                os._exit(1)
        os._exit(0)


def _fork(work: Callable[[], None]) -> int:
    """A process of its own for some work, and its number."""
    child = os.fork()
    if child:
        return child
    try:
        work()
    except BaseException:
        sys.excepthook(*sys.exc_info())
        os._exit(1)
    os._exit(0)


def _wait_for(child: int) -> None:
    if os.waitpid(child, 0)[1]:
        raise RuntimeError("a process that was started here has failed")


def _alone(work: Callable[[], None]) -> None:
    _wait_for(_fork(work))


def _cost(name: str, reach: Reach, mutant: Mutant, likely: bool) -> float:
    """Quick tests come first, and those that have to do with the module count as quicker."""
    _, package, module = mutant.module.split(".")
    folder, _, file = name.partition("::")[0].rpartition("/")
    seconds = reach.seconds
    if likely:
        seconds /= 20
    if module in file:
        seconds /= 4
    return seconds if package in folder else 10 * seconds


def report(path: Path) -> None:
    rows = list(past(path).values())
    counts: dict[str, Counter[str]] = {}
    for row in rows:
        counts.setdefault(row["name"].split(":")[0], Counter())[row["result"]] += 1
    total: Counter[str] = Counter()
    for module, count in sorted(counts.items()):
        total += count
        print(f"{module:36} {_line(count)}")
    print(f"{'all':36} {_line(total)}")
    print(f"CPU {sum(row.get('cpu', 0) for row in rows):.0f} s")


def _line(count: Counter[str]) -> str:
    return "  ".join(
        f"{name} {count[name]:5}" for name in (KILLED, LOOPED, SURVIVED, UNREACHED, SKIPPED)
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="mutation", description=__doc__.splitlines()[0])
    parser.add_argument("module", nargs="*", help="modules, like engine.timers; none: all")
    parser.add_argument("--sample", type=int, default=1 << 30, help="how many mutants; all")
    parser.add_argument("--seed", type=int, default=1, help="which ones")
    parser.add_argument("--jobs", type=int, default=1, help="processes side by side")
    parser.add_argument("--budget", type=float, default=1e9, help="seconds of tests for a mutant")
    parser.add_argument("--again", action="store_true", help="only those that survived before")
    parser.add_argument("--names", type=Path, help="and of these only those named in a file")
    parser.add_argument("--report", action="store_true", help="only count what was run")
    parser.add_argument(
        "--scratch", type=Path, default=BUILD / "scratch", help="for temporary files"
    )
    options = parser.parse_args()
    runner = Runner(options)
    if not options.report:
        BUILD.mkdir(parents=True, exist_ok=True)
        arguments = ["-q", "-s", "-p", "no:cacheprovider", *map(str, map(ROOT.joinpath, TESTS))]
        code = pytest.main(arguments, plugins=[runner])
        shutil.rmtree(options.scratch, ignore_errors=True)
        if code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            return int(code)
    report(runner.results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
