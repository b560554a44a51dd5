"""What the benchmarks share: the load generator, the servers under test, tables and results.

Every server runs on loopback in a directory of its own that is removed afterwards, and every wait
has an end.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from benchmarks.readings import cpu_seconds, put_first

ROOT = Path(__file__).resolve().parent.parent
GENERATOR_SOURCES = sorted(Path(__file__).resolve().parent.glob("loadgen*.[ch]"))
DEFAULT_DIRECTORY = ROOT / "build" / "bench"
HOST = "127.0.0.1"

START_SECONDS = 300.0
STOP_SECONDS = 30.0
GENERATOR_SECONDS = 3900.0

Durability = Literal["sync", "write", "memory"]
DURABILITIES: tuple[Durability, ...] = ("sync", "write", "memory")
Form = Literal["compiled", "interpreted"]
Listener = Literal["masenko", "workq", "http", "resp"]
LISTENERS: tuple[Listener, ...] = ("masenko", "workq", "http", "resp")
Dialect = Literal["masenko", "workq", "http", "glovebox", "lists", "pqueue", "jobs", "jobs-batch"]
"""What is spoken with Taskyard; a driver of the load generator for it has the same name."""
LISTENER_OF: dict[Dialect, Listener] = {
    "masenko": "masenko",
    "workq": "workq",
    "http": "http",
    "glovebox": "http",
    "lists": "resp",
    "pqueue": "resp",
    "jobs": "resp",
    "jobs-batch": "resp",
}


class BenchmarkError(Exception):
    """The benchmark cannot go on; the message says why."""


@dataclass(frozen=True, slots=True)
class Percentiles:
    p50: float
    p99: float
    p999: float


@dataclass(frozen=True, slots=True)
class Measurement:
    """One run of the load generator, and the processor time that the server took meanwhile."""

    cycles: int
    seconds: float
    cycles_per_s: float
    empty: int
    pushed: int
    """Also before and after what was measured."""
    latency_us: dict[str, Percentiles]
    generator_cores: float
    server_cores: float
    server_seconds: float
    """Processor time of the server for all that was pushed."""


@dataclass(frozen=True, slots=True)
class Load:
    """How the load generator is to work."""

    connections: int
    depth: int = 1
    payload: int = 200
    queues: int = 1
    scores: int = 1
    """How many different ones the items of a priority queue have."""
    rate: float | None = None
    """Jobs that begin in a second; without it, as many as can be done."""

    def arguments(self) -> list[str]:
        told = asdict(self).items()
        return [f"--{name}={value}" for name, value in told if value is not None]


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A server that accepts connections."""

    pid: int
    port: int
    driver: str
    started_in: float


def compile_generator(directory: Path) -> Path:
    """The load generator's binary, built again when a source is newer."""
    compiler = os.environ.get("CC") or "cc"
    if shutil.which(compiler) is None:
        raise BenchmarkError(f"the load generator needs a C compiler, and {compiler} was not found")
    directory.mkdir(parents=True, exist_ok=True)
    binary = directory / "loadgen"
    changed = max(source.stat().st_mtime for source in GENERATOR_SOURCES)
    if binary.exists() and binary.stat().st_mtime > changed:
        return binary
    sources = [str(source) for source in GENERATOR_SOURCES if source.suffix == ".c"]
    command = [compiler, "-O2", "-Wall", "-Wextra", "-o", str(binary), *sources]
    built = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if built.returncode != 0:
        raise BenchmarkError(f"the load generator does not compile:\n{built.stderr}")
    return binary


class Generator:
    """Runs the load generator against a server, `under` another command if need be."""

    def __init__(self, binary: Path, under: Sequence[str] = ()) -> None:
        self._binary = binary
        self._under = tuple(under)

    def cycle(
        self,
        server: RunningServer,
        load: Load,
        *,
        seconds: float,
        warmup: float,
        serial: int | None = None,
    ) -> Measurement:
        """Push, take and finish for some time; payloads are numbered from `serial` on."""
        mode = ["cycle", f"--seconds={seconds}", f"--warmup={warmup}"]
        return self._run(server, load, mode + numbered_from(serial))

    def cycles(self, server: RunningServer, load: Load, count: int) -> Measurement:
        """Push, take and finish exactly `count` jobs."""
        return self._run(server, load, ["cycle", f"--cycles={count}"])

    def fill(
        self, server: RunningServer, load: Load, count: int, *, serial: int | None = None
    ) -> Measurement:
        """Push `count` jobs and leave them waiting."""
        return self._run(server, load, ["fill", str(count), *numbered_from(serial)])

    def drain(
        self, server: RunningServer, load: Load, *, expect: int = 0, first_id: int = 1
    ) -> Measurement:
        """Take and finish until nothing waits.

        With `expect`, that many jobs must come from `first_id` on, each once, and to each
        connection in order.
        """
        expected = [f"--expect={expect}", f"--first-id={first_id}"] if expect else []
        return self._run(server, load, ["drain", *expected])

    def probe(self, server: RunningServer) -> subprocess.Popen[str]:
        """Asks every millisecond until it is terminated, then says how long answers took."""
        return subprocess.Popen(
            [str(self._binary), "probe", *target(server), f"--pid={server.pid}", "--seconds=3600"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def _run(self, server: RunningServer, load: Load, mode: list[str]) -> Measurement:
        command = [*self._under, str(self._binary), *mode, *target(server), *load.arguments()]
        cpu, began = cpu_seconds(server.pid), time.monotonic()
        run = subprocess.run(
            command, capture_output=True, text=True, timeout=GENERATOR_SECONDS, check=False
        )
        elapsed = time.monotonic() - began
        if run.returncode != 0:
            raise BenchmarkError(f"{' '.join(command)}\n{run.stderr.strip()}")
        server_seconds = cpu_seconds(server.pid) - cpu
        try:
            told = json.loads(run.stdout)
        except ValueError as error:
            raise BenchmarkError(f"{' '.join(command)} printed no result: {run.stdout}") from error
        return measurement(told, server_seconds, elapsed)


def target(server: RunningServer) -> list[str]:
    return [f"--driver={server.driver}", f"--host={HOST}", f"--port={server.port}"]


def numbered_from(serial: int | None) -> list[str]:
    return [] if serial is None else [f"--serial={serial}"]


def measurement(result: dict[str, Any], server_seconds: float, elapsed: float) -> Measurement:
    seconds = float(result["seconds"])
    return Measurement(
        cycles=result["cycles"],
        seconds=seconds,
        cycles_per_s=result["cycles_per_s"],
        empty=result["empty"],
        pushed=result["pushed"],
        latency_us={name: Percentiles(**values) for name, values in result["latency_us"].items()},
        generator_cores=result["cpu_seconds"] / seconds if seconds else 0.0,
        server_cores=server_seconds / elapsed,
        server_seconds=server_seconds,
    )


@contextlib.contextmanager
def scratch(directory: Path) -> Iterator[Path]:
    """A fresh directory for one server, removed at the end."""
    directory.mkdir(parents=True, exist_ok=True)
    path = Path(tempfile.mkdtemp(prefix="server-", dir=directory))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        # Else the next server would pay for the pages that this one left to be written.
        os.sync()


@contextlib.contextmanager
def process(
    command: Sequence[str],
    log: Path,
    *,
    environment: dict[str, str] | None = None,
    end_with: signal.Signals = signal.SIGTERM,
) -> Iterator[subprocess.Popen[bytes]]:
    """Runs a server until the block ends, then ends exactly that process."""
    # Settings of the user's own must not find their way into what is measured.
    clean = {name: value for name, value in os.environ.items() if not name.startswith("TASKYARD_")}
    with log.open("ab") as output:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**clean, **(environment or {})},
            start_new_session=True,
        )
    try:
        yield child
    finally:
        child.send_signal(end_with)
        try:
            child.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait(STOP_SECONDS)


def wait_until_ready(
    ready: Callable[[], int | None], child: subprocess.Popen[bytes], log: Path
) -> int:
    """The port, once the server accepts; what it said if it never does."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        port = ready()
        if port is not None:
            return port
        if child.poll() is not None:
            raise BenchmarkError(f"the server ended with status {child.returncode}:\n{tail(log)}")
        time.sleep(0.002)
    raise BenchmarkError(f"the server was not ready in {START_SECONDS:.0f} s:\n{tail(log)}")


def tail(log: Path, lines: int = 20) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])


@dataclass(frozen=True, slots=True)
class Taskyard:
    """Taskyard in one form and durability, reached over one of its protocols."""

    form: Form
    durability: Durability
    options: tuple[str, ...] = ()
    first: bool = False
    """Before all else that runs on the machine, where that is allowed."""
    dialect: Dialect = "masenko"
    code: Path | None = None
    """Where the package is imported from, if not from this tree."""
    listeners: tuple[Listener, ...] = LISTENERS
    """Those that the code has."""
    under: tuple[str, ...] = ()
    """A command that runs the server, a profiler for example."""

    @property
    def name(self) -> str:
        return f"taskyard-{self.form}" + ("" if self.dialect == "masenko" else f"-{self.dialect}")

    @property
    def driver(self) -> str:
        """Over Glovebox it is the client that says how durable a message must be."""
        if self.dialect == "glovebox" and self.durability != "sync":
            return f"{self.dialect}-{self.durability}"
        return self.dialect

    @contextlib.contextmanager
    def run(
        self, directory: Path, *, end_with: signal.Signals = signal.SIGTERM
    ) -> Iterator[RunningServer]:
        ports, log = directory / "ports.json", directory / "log"
        # A server that was killed leaves the file behind, and it would pass for that of the next.
        ports.unlink(missing_ok=True)
        environment = {"PYTHONPATH": str(self.code or code_path(self.form))}
        began = time.monotonic()
        with process(
            self._command(directory, ports), log, environment=environment, end_with=end_with
        ) as child:
            if self.first:
                put_first(child.pid)
            listener = LISTENER_OF[self.dialect]
            port = wait_until_ready(lambda: listening_port(ports, listener), child, log)
            yield RunningServer(child.pid, port, self.driver, time.monotonic() - began)

    def _command(self, directory: Path, ports: Path) -> list[str]:
        command = [*self.under, sys.executable, "-m", "taskyard", "serve", "--bind", HOST]
        for listener in self.listeners:
            command += [f"--{listener}-port", "0"]
        command += ["--durability", self.durability]
        command += ["--data", str(directory / "data"), "--ports-file", str(ports)]
        return command + list(self.options)


def code_path(form: Form) -> Path:
    return ROOT / ("build/compiled" if form == "compiled" else "src")


def is_built(form: Form) -> bool:
    return holds(code_path(form), form)


def choose_form(asked: Form | None) -> Form:
    """The form that was asked for, else compiled if that is built."""
    form = asked or ("compiled" if is_built("compiled") else "interpreted")
    if not is_built(form):
        where = code_path(form).relative_to(ROOT)
        raise BenchmarkError(f"the {form} form is not built in {where}")
    return form


def holds(code: Path, form: Form) -> bool:
    """Whether this form of the package can be imported from there."""
    package = code / "taskyard"
    return package.is_dir() and (form == "interpreted" or any(package.rglob("*.so")))


def listening_port(ports: Path, listener: Listener) -> int | None:
    try:
        port: int = json.loads(ports.read_text())[listener]["port"]
    except FileNotFoundError:
        return None
    return port


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def write_results(path: Path, results: dict[str, object]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results, indent=2) + "\n")
    print(f"\nresults: {path}", flush=True)


def choose_terms(only: Sequence[str], kinds: Sequence[Sequence[str]]) -> list[list[str]]:
    """For each kind the words that were named; all of them where none was.

    An unknown word is refused, so that a misspelt choice does not silently measure everything.
    """
    words = {word for given in only for word in given.split(",") if word}
    known = {word for kind in kinds for word in kind}
    if words - known:
        unknown, choices = ", ".join(sorted(words - known)), ", ".join(sorted(known))
        raise BenchmarkError(f"--only: {unknown} is none of {choices}")
    return [[word for word in kind if word in words] or list(kind) for kind in kinds]
