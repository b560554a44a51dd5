"""Takes over into the corpus what a run has found: the fewest and smallest inputs for all branches.

    python -m fuzz.minimize [--target masenko] [--found build/fuzz]

Inputs whose name begins with `regression-` have once been a crash, and stay whatever they cover.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from fuzz import catalog, one, run

REGRESSION = "regression-"
MOST_BYTES = 40_000  # of one target


def inputs(name: str, target: catalog.Target, found: Path) -> list[Path]:
    """All there are, the smallest first; the seeds are in the target itself."""
    seeds = set(target.SEEDS)
    known: dict[bytes, Path] = {}
    for path in [*catalog.corpus(name), *sorted((found / name).glob("*"))]:
        data = path.read_bytes()
        if data not in seeds and len(data) <= catalog.longest(target):
            known.setdefault(data, path)
    return sorted(known.values(), key=lambda path: (path.stat().st_size, path.name))


def edges_of(target: catalog.Target, paths: Sequence[Path], work: Path) -> dict[int, set[str]]:
    """The branches that each input takes and none before it: libFuzzer notes them for a merge."""
    control = work / "merge.txt"
    control.write_text("\n".join([str(len(paths)), "0", *map(str, paths)]) + "\n")
    process = os.fork()
    if not process:
        run.leave(work / "merge.log", target, ["-merge_inner=1", f"-merge_control_file={control}"])
    os.waitpid(process, 0)
    covered: dict[int, set[str]] = {}
    for line in control.read_text().splitlines()[2 + len(paths) :]:
        kind, _, rest = line.partition(" ")
        if kind == "COV":
            index, *edges = rest.split()
            covered[int(index)] = set(edges)
    return covered


def chosen(paths: Sequence[Path], covered: dict[int, set[str]], seen: set[str]) -> list[Path]:
    """Smaller ones first, each for what no smaller one covers, as long as there is room."""
    kept: list[Path] = []
    size = 0
    for index, path in enumerate(paths):
        more = covered.get(index, set()) - seen
        if more and size + path.stat().st_size <= MOST_BYTES:
            kept.append(path)
            seen |= more
            size += path.stat().st_size
    return kept


def minimize(name: str, target: catalog.Target, found: Path) -> tuple[int, int]:
    """Gives how many inputs there were and how many are kept."""
    work = found / f"{name}-merge"
    work.mkdir(parents=True, exist_ok=True)
    seeds = [run.write_once(work, seed) for seed in target.SEEDS]
    paths = inputs(name, target, found)
    covered = edges_of(target, [*seeds, *paths], work)
    seen = set().union(*(covered.get(index, set()) for index in range(len(seeds))))
    own = {index - len(seeds): edges for index, edges in covered.items() if index >= len(seeds)}
    kept = {path.read_bytes() for path in chosen(paths, own, seen)}
    place = catalog.CORPUS / name
    for path in catalog.corpus(name):
        if not path.name.startswith(REGRESSION):
            path.unlink()
    if kept:
        place.mkdir(parents=True, exist_ok=True)
    for data in kept:
        run.write_once(place, data)
    return len(paths), len(kept)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzz.minimize", description=__doc__)
    parser.add_argument("--target", default="", help="only these, divided by commas")
    parser.add_argument("--found", type=Path, default=run.FOUND)
    given = parser.parse_args()
    names = [name for name in given.target.split(",") if name] or catalog.names()
    for name, target in one.load_instrumented(names).items():
        before, after = minimize(name, target, given.found)
        print(f"{name:<18} {before:>6} inputs, {after:>4} kept", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
