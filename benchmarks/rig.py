"""What the benchmarks share: the load generator, the servers under test, and readings from /proc.

Every server runs on loopback in a directory of its own that is removed afterwards, and every wait
has an end.
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

ROOT = Path(__file__).resolve().parent.parent
GENERATOR_SOURCES = sorted(Path(__file__).resolve().parent.glob("loadgen*.[ch]"))
DEFAULT_DIRECTORY = ROOT / "build" / "bench"
HOST = "127.0.0.1"

START_SECONDS = 300.0
STOP_SECONDS = 30.0
INSTALL_SECONDS = 300.0
GENERATOR_SECONDS = 3900.0

Durability = Literal["sync", "write", "memory"]
DURABILITIES: tuple[Durability, ...] = ("sync", "write", "memory")
Form = Literal["compiled", "interpreted"]
Dialect = Literal["masenko", "workq", "http"]
"""A listener of Taskyard; a driver of the load generator for it has the same name."""
LISTENERS: tuple[Dialect, ...] = ("masenko", "workq", "http")


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


@dataclass(frozen=True, slots=True)
class Load:
    """How the load generator is to work."""

    connections: int
    depth: int = 1
    payload: int = 200
    queues: int = 1

    def arguments(self) -> list[str]:
        return [f"--{name}={value}" for name, value in asdict(self).items()]


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
    """Runs the load generator against a server."""

    def __init__(self, binary: Path) -> None:
        self._binary = binary

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
        command = [str(self._binary), *mode, *target(server), *load.arguments()]
        cpu, began = cpu_seconds(server.pid), time.monotonic()
        run = subprocess.run(
            command, capture_output=True, text=True, timeout=GENERATOR_SECONDS, check=False
        )
        elapsed = time.monotonic() - began
        if run.returncode != 0:
            raise BenchmarkError(f"{' '.join(command)}\n{run.stderr.strip()}")
        server_cores = (cpu_seconds(server.pid) - cpu) / elapsed
        return measurement(json.loads(run.stdout), server_cores)


def target(server: RunningServer) -> list[str]:
    return [f"--driver={server.driver}", f"--host={HOST}", f"--port={server.port}"]


def numbered_from(serial: int | None) -> list[str]:
    return [] if serial is None else [f"--serial={serial}"]


def measurement(result: dict[str, Any], server_cores: float) -> Measurement:
    seconds = float(result["seconds"])
    return Measurement(
        cycles=result["cycles"],
        seconds=seconds,
        cycles_per_s=result["cycles_per_s"],
        empty=result["empty"],
        pushed=result["pushed"],
        latency_us={name: Percentiles(**values) for name, values in result["latency_us"].items()},
        generator_cores=result["cpu_seconds"] / seconds if seconds else 0.0,
        server_cores=server_cores,
    )


def cpu_seconds(pid: int) -> float:
    """User and system time of all the threads of a process."""
    # The name in the second field may hold spaces; what follows its parenthesis does not.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_bytes(pid: int) -> int:
    return _memory(pid, "VmRSS:")


def peak_bytes(pid: int) -> int:
    """The most that was resident at any time so far."""
    return _memory(pid, "VmHWM:")


def _memory(pid: int, name: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1024
    raise BenchmarkError(f"process {pid} shows no resident memory")


def put_first(pid: int) -> None:
    """What else runs on the machine is not to pass for a pause of the server, if root says so."""
    with contextlib.suppress(PermissionError, FileNotFoundError):
        os.setpriority(os.PRIO_PROCESS, pid, -20)
        # Where processes are weighed by session, this is what counts; servers have their own.
        Path(f"/proc/{pid}/autogroup").write_text("-20")


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
    listeners: tuple[Dialect, ...] = LISTENERS
    """Those that the code has."""
    under: tuple[str, ...] = ()
    """A command that runs the server, a profiler for example."""

    @property
    def name(self) -> str:
        return f"taskyard-{self.form}" + ("" if self.dialect == "masenko" else f"-{self.dialect}")

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
            port = wait_until_ready(lambda: listening_port(ports, self.dialect), child, log)
            yield RunningServer(child.pid, port, self.dialect, time.monotonic() - began)

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


def holds(code: Path, form: Form) -> bool:
    """Whether this form of the package can be imported from there."""
    package = code / "taskyard"
    return package.is_dir() and (form == "interpreted" or any(package.rglob("*.so")))


def listening_port(ports: Path, dialect: Dialect) -> int | None:
    try:
        port: int = json.loads(ports.read_text())[dialect]["port"]
    except FileNotFoundError:
        return None
    return port


@dataclass(frozen=True, slots=True)
class Redis:
    """Redis lists, with the durability that comes nearest."""

    durability: Durability
    name: str = "redis-list"

    @contextlib.contextmanager
    def run(self, directory: Path) -> Iterator[RunningServer]:
        port, log = free_port(), directory / "log"
        began = time.monotonic()
        with process(self._command(directory, port), log) as child:
            wait_until_ready(lambda: port if answers_ping(port) else None, child, log)
            yield RunningServer(child.pid, port, "redis-list", time.monotonic() - began)

    def _command(self, directory: Path, port: int) -> list[str]:
        append = {
            "sync": ["--appendonly", "yes", "--appendfsync", "always"],
            "write": ["--appendonly", "yes", "--appendfsync", "everysec"],
            "memory": ["--appendonly", "no"],
        }
        command = ["redis-server", "--bind", HOST, "--port", str(port), "--dir", str(directory)]
        # No rewriting of the log in the middle of a run: it would only make Redis look slower.
        command += ["--save", "", "--auto-aof-rewrite-percentage", "0", "--daemonize", "no"]
        return command + append[self.durability]


Server = Taskyard | Redis


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def answers_ping(port: int) -> bool:
    try:
        with socket.create_connection((HOST, port), timeout=1.0) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(64).startswith(b"+PONG")
    except OSError:
        return False


def redis_or_reason() -> str | None:
    """None if redis-server 7 is here, perhaps installed just now; else why it is not."""
    if shutil.which("redis-server") is None:
        if os.geteuid() != 0 or shutil.which("apt-get") is None:
            return "redis-server is not installed, and only root can install it with apt-get"
        print("installing redis-server with apt-get", flush=True)
        problem = install("redis-server")
        if problem is not None:
            return f"redis-server could not be installed: {problem}"
    version = redis_version()
    return None if " v=7." in version else f"this is not Redis 7: {version}"


def install(package: str) -> str | None:
    # RUNLEVEL keeps Debian from starting the packaged service: the benchmarks start their own.
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    for command in (["update"], ["install", "-y", "--no-install-recommends", package]):
        try:
            run = subprocess.run(
                ["apt-get", *command],
                capture_output=True,
                text=True,
                timeout=INSTALL_SECONDS,
                env=environment,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"apt-get {command[0]} took longer than {INSTALL_SECONDS:.0f} s"
        if run.returncode != 0:
            return f"apt-get {command[0]}: {run.stderr.strip()}"
    return None


def redis_version() -> str:
    command = ["redis-server", "--version"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    return run.stdout.strip()


def machine(directory: Path) -> dict[str, object]:
    """What the figures depend on beside the code."""
    directory.mkdir(parents=True, exist_ok=True)
    return {
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "kernel": os.uname().release,
        "python": sys.version.split()[0],
        "tcp_congestion": Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip(),
        "file_system": file_system(directory),
        "flush_us": round(flush_us(directory), 1),
        "load_average": os.getloadavg()[0],
    }


def file_system(directory: Path) -> str:
    mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    under = [(point, kind) for point, kind in mounts if directory.resolve().is_relative_to(point)]
    return max(under, key=lambda mount: len(mount[0]))[1] if under else "unknown"


def flush_us(directory: Path, count: int = 200) -> float:
    """The median time of a small append with fdatasync."""
    taken: list[float] = []
    with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
        for _ in range(count):
            began = time.perf_counter()
            file.write(b"x" * 300)
            os.fdatasync(file.fileno())
            taken.append((time.perf_counter() - began) * 1e6)
    return statistics.median(taken)


def describe_machine(facts: dict[str, object]) -> str:
    memory = int(str(facts["memory_bytes"])) / 2**30
    return (
        f"{facts['cores']} cores, {memory:.0f} GiB, Linux {facts['kernel']}, "
        f"Python {facts['python']}, {facts['file_system']} with a flush of "
        f"{facts['flush_us']} µs, TCP {facts['tcp_congestion']}, "
        f"load average {facts['load_average']:.1f} at the start"
    )


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
