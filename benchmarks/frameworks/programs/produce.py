"""Pushes tasks and says how long it took, as JSON: python -m ....produce PROGRAM EACH MANY

A few go before what is timed, since frameworks import and connect when they are first used. EACH
are pushed one by one, then MANY with the framework's call for many, if it has one.
"""

import importlib
import json
import sys
import time
from collections.abc import Callable

WARMUP = 10


def timed(push: Callable[[int], None], count: int) -> dict[str, float]:
    cpu, began = time.process_time(), time.perf_counter()
    push(count)
    seconds = time.perf_counter() - began
    return {"count": count, "seconds": seconds, "cpu": time.process_time() - cpu}


def main() -> None:
    name, each, many = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    program = importlib.import_module(f"benchmarks.frameworks.programs.{name}")
    program.push_each(WARMUP)
    found = {"each": timed(program.push_each, each)}
    if hasattr(program, "push_many"):
        program.push_many(WARMUP)
        found["many"] = timed(program.push_many, many)
    else:
        program.push_each(WARMUP + many)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
