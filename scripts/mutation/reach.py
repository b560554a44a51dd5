"""Which test runs which lines of the sources, and how long each takes, measured once and kept."""

from __future__ import annotations

import hashlib
import json
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

Trace = Callable[[FrameType, str, Any], Any]


@dataclass
class Reach:
    seconds: float
    lines: dict[str, int]  # by file, a bit for each line

    def touches(self, path: str, lines: Iterable[int]) -> bool:
        seen = self.lines.get(path, 0)
        return any(seen >> line & 1 for line in lines)

    def lines_of(self, path: str) -> int:
        """How many lines of a file it runs."""
        return self.lines.get(path, 0).bit_count()


class Book:
    """What was measured, valid as long as the sources stay as they are."""

    def __init__(self, path: Path, sources: list[Path]) -> None:
        self.path = path
        self.digest = hashlib.sha256(b"".join(p.read_bytes() for p in sources)).hexdigest()
        self.tests: dict[str, Reach] = {}
        if path.exists():
            kept = json.loads(path.read_text(encoding="utf-8"))
            if kept["digest"] == self.digest:
                self.add(kept["tests"])

    def add(self, tests: dict[str, list[Any]]) -> None:
        for name, (seconds, lines) in tests.items():
            self.tests[name] = Reach(seconds, {path: int(bits, 16) for path, bits in lines.items()})

    def save(self) -> None:
        tests = {
            name: [reach.seconds, {path: f"{bits:x}" for path, bits in reach.lines.items()}]
            for name, reach in self.tests.items()
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"digest": self.digest, "tests": tests})
        self.path.write_text(text, encoding="utf-8")


def measure(run: Callable[[], bool], files: frozenset[str]) -> list[Any]:
    """Run a test twice, to see where it comes, and how long it takes.

    To be called in a process that has run no other: what one test leaves in a cache of a module
    would keep the next from the lines that fill it.
    """
    watch = _Watch(files)
    threading.settrace(watch.call)
    sys.settrace(watch.call)
    try:
        passed = run()
    finally:
        sys.settrace(None)
        threading.settrace(None)
    begun = time.process_time()
    passed = run() and passed
    seconds = time.process_time() - begun
    if not passed:
        raise AssertionError("a test fails without any mutant")
    return [seconds, {path: f"{bits:x}" for path, bits in watch.lines().items()}]


class _Watch:
    def __init__(self, files: frozenset[str]) -> None:
        self._files = files
        self._seen: dict[CodeType, set[int]] = {}
        self._all: dict[CodeType, int] = {}
        self._local: dict[CodeType, Trace] = {}

    def call(self, frame: FrameType, event: str, argument: Any) -> Trace | None:
        code = frame.f_code
        if code.co_filename not in self._files:
            return None
        seen = self._seen.get(code)
        if seen is None:
            seen = self._seen[code] = set()
            self._all[code] = len({line for _, _, line in code.co_lines() if line})
            self._local[code] = _recorder(seen)
        seen.add(frame.f_lineno)
        return self._local[code] if len(seen) < self._all[code] else None

    def lines(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for code, seen in self._seen.items():
            bits = found.get(code.co_filename, 0)
            for line in seen:
                bits |= 1 << line
            found[code.co_filename] = bits
        return found


def _recorder(seen: set[int]) -> Trace:
    add = seen.add

    def trace(frame: FrameType, event: str, argument: Any) -> Trace:
        add(frame.f_lineno)
        return trace

    return trace
