"""Builds the compiled form into build/compiled, only when something that goes into it changed.

Run by `make compiled`. With the argument `quick` the target is build/compiled-quick, in half of the
time: the same C, little optimized, for tests. A digest of the sources decides, so that another
branch and a deleted module are noticed too, which file times would not show.
The files of the dashboard are copied whenever they differ: nothing of them is compiled.
"""

import fcntl
import hashlib
import math
import os
import shutil
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
TARGETS = {"1": BUILD / "compiled", "quick": BUILD / "compiled-quick"}  # by TASKYARD_COMPILE
DIGEST = ".digest"
OPTIONS = ("setup.py", "scripts/cold.h", "scripts/mypyc.ini")  # of both compilers
STATIC = Path("taskyard", "dashboard", "static")
LOG = BUILD / "compile.log"
WEIGHT_PER_SECOND: Final = 1000.0  # of a unit of C, on a quick core with nothing else to do
TRANSLATION: Final = 0.1  # of the bar: mypyc has no more to say than that it is done


class Progress:
    """Tells on stderr how far the compilation is: a bar on a terminal, else a line a stage."""

    def __init__(self, on_terminal: bool) -> None:
        self.begun = time.monotonic()
        self.stage = "translating Python to C"
        self._on_terminal = on_terminal
        self._weights: dict[str, float] = {}
        self._running: dict[str, float] = {}  # since when
        self._pace = WEIGHT_PER_SECOND
        self._done = 0.0
        self._shown = 0.0
        self._lock = threading.Lock()

    def hear(self, line: str) -> None:
        """A line of setup.py, see TASKYARD_PROGRESS there."""
        kind, name, *more = line.split()
        now = time.monotonic()
        with self._lock:
            if kind == "unit":
                self._weights[name] = float(more[0])
                if self.stage != "compiling C":
                    self.stage = "compiling C"
                    self._say()
            elif kind == "begin":
                self._running[name] = now
            elif kind == "end":
                took = max(now - self._running.pop(name), 0.1)
                self._pace = self._weights[name] / took
                self._done += self._weights[name]

    def share(self) -> float:
        """How much is done, from 0 to 1; of a unit that is being compiled, what it should be."""
        with self._lock:
            total = sum(self._weights.values())
            if not total:
                return 0.0
            done = self._done
            for name, since in self._running.items():
                weight = self._weights[name]
                part = (time.monotonic() - since) * self._pace / weight
                done += weight * (part if part < 0.8 else 1 - 0.2 * math.exp(4 - 5 * part))
            # A unit that took longer than it should makes the others slower in hindsight, too.
            self._shown = max(self._shown, TRANSLATION + (1 - TRANSLATION) * done / total)
            return self._shown

    def _say(self) -> None:
        if not self._on_terminal:
            seconds = time.monotonic() - self.begun
            print(f"compile: {self.stage} ({seconds:.0f} s)", file=sys.stderr, flush=True)

    @contextmanager
    def shown(self) -> Iterator[None]:
        if self._on_terminal:
            over = threading.Event()
            drawing = threading.Thread(target=self._draw, args=(over,))
            drawing.start()
            try:
                yield
            finally:
                over.set()
                drawing.join()
        else:
            self._say()
            yield
        print(f"compile: done in {time.monotonic() - self.begun:.0f} s", file=sys.stderr)

    def _draw(self, over: threading.Event) -> None:
        while not over.wait(0.2):
            share = self.share()
            bar = ("#" * round(share * 30)).ljust(30, ".")
            seconds = time.monotonic() - self.begun
            text = f"compile: {self.stage:<24} [{bar}] {share:4.0%} {seconds:4.0f} s"
            print(f"\r{text}", end="", file=sys.stderr, flush=True)
        print("\r\033[K", end="", file=sys.stderr)


def inputs() -> list[Path]:
    kinds = {".py", ".typed", ".c", ".sql"}
    tree = (ROOT / "src").rglob("*")
    sources = [path for path in tree if path.suffix in kinds or path.parent.name == "page"]
    return [ROOT / "pyproject.toml", *(ROOT / name for name in OPTIONS), *sorted(sources)]


def digest() -> str:
    total = hashlib.sha256(sys.version.encode())
    for path in inputs():
        content = path.read_bytes()
        total.update(f"{path.relative_to(ROOT)} {len(content)}\n".encode())
        total.update(content)
    return total.hexdigest()


def compiler() -> str:
    return str(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]


def build(mode: str) -> int:
    wanted = digest()
    target = TARGETS[mode]
    stamp = target / DIGEST
    if stamp.exists() and stamp.read_text() == wanted:
        return 0
    if shutil.which(compiler()) is None:
        print(f"compile: the C compiler {compiler()} was not found", file=sys.stderr)
        return 1
    fresh, objects = BUILD / "compiled.new", BUILD / "objects"
    for path in (fresh, objects):
        shutil.rmtree(path, ignore_errors=True)
    if failure := run_setup(mode, ["build", f"--build-base={objects}", f"--build-lib={fresh}"]):
        sys.stderr.write(LOG.read_text())
        return failure
    (fresh / DIGEST).write_text(wanted)
    shutil.rmtree(target, ignore_errors=True)
    fresh.rename(target)
    shutil.rmtree(objects, ignore_errors=True)
    return 0


def run_setup(mode: str, command: list[str]) -> int:
    read, write = os.pipe()
    environment = {
        **os.environ,
        "TASKYARD_COMPILE": mode,
        "TASKYARD_VENDOR": "0",
        "TASKYARD_PROGRESS": str(write),
    }
    progress = Progress(sys.stderr.isatty())
    with open(LOG, "w") as log, progress.shown():
        process = subprocess.Popen(
            [sys.executable, "setup.py", "--quiet", *command],
            cwd=ROOT,
            env=environment,
            stdout=log,
            stderr=log,
            pass_fds=[write],
        )
        os.close(write)
        with open(read) as lines:
            for line in lines:
                progress.hear(line)
        return process.wait()


def copy_page(target: Path) -> None:
    """Only if something of it has changed: servers of this form may be reading it."""
    source, copy = ROOT / "src" / STATIC, target / STATIC
    if contents(source) == contents(copy):
        return
    fresh = target / "page.new"
    shutil.rmtree(fresh, ignore_errors=True)
    shutil.copytree(source, fresh)
    shutil.rmtree(copy, ignore_errors=True)
    fresh.rename(copy)


def contents(directory: Path) -> dict[Path, bytes]:
    files = [path for path in directory.rglob("*") if path.is_file()]
    return {path.relative_to(directory): path.read_bytes() for path in files}


def main() -> int:
    mode = "quick" if sys.argv[1:] == ["quick"] else "1"
    BUILD.mkdir(exist_ok=True)
    with open(BUILD / "compile.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        failure = build(mode)
        if not failure:
            copy_page(TARGETS[mode])
        return failure


if __name__ == "__main__":
    sys.exit(main())
