"""The targets: each is a module of tests/fuzz/targets.

It has `fuzz(data)`, which raises when something is wrong, and `SEEDS` to begin with. It may have
`WORDS`, which the fuzzer puts into its inputs, and `LONGEST`, the most bytes of an input.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol, cast

HERE = Path(__file__).parent
CORPUS = HERE / "corpus"
LONGEST = 1024  # bytes of an input, unless the target says otherwise
PLANTED = "planted"  # beside them: it has a defect, to see that one is found


class Target(Protocol):
    SEEDS: Sequence[bytes]

    def fuzz(self, data: bytes) -> None: ...


def names() -> list[str]:
    found = (HERE / "targets").glob("*.py")
    return sorted(path.stem for path in found)


def load(name: str) -> Target:
    module = PLANTED if name == PLANTED else f"targets.{name}"
    return cast("Target", importlib.import_module(f"fuzz.{module}"))


def longest(target: Target) -> int:
    size: int = getattr(target, "LONGEST", LONGEST)
    return size


def words(target: Target) -> Sequence[bytes]:
    found: Sequence[bytes] = getattr(target, "WORDS", ())
    return found


def corpus(name: str) -> Iterator[Path]:
    """What is kept of earlier runs, and what has once been a crash."""
    return (path for path in sorted((CORPUS / name).glob("*")) if path.is_file())
