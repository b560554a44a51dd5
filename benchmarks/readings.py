"""What is read from /proc and from the machine: of one process, and of what figures depend on."""

import contextlib
import os
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path


def cpu_seconds(pid: int) -> float:
    """User and system time of all the threads of a process."""
    # The name in the second field may hold spaces; what follows its parenthesis does not.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def session_cpu(session: int) -> float:
    """Of all processes of a session: a program, its JVM and its workers."""
    total = 0.0
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):  # it has ended, or is none
            if os.getsid(int(entry.name)) == session:
                total += cpu_seconds(int(entry.name))
    return total


def loop_seconds(pid: int) -> float:
    """Time of the main thread alone, in nanoseconds where `cpu_seconds` counts ticks."""
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e9


def resident_bytes(pid: int) -> int:
    return _memory(pid, "VmRSS:")


def peak_bytes(pid: int) -> int:
    """The most that was resident at any time so far."""
    return _memory(pid, "VmHWM:")


def _memory(pid: int, name: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1024
    raise ProcessLookupError(f"process {pid} shows no resident memory")


@dataclass(frozen=True, slots=True)
class Processors:
    """What all of them have done since the machine was started, in ticks."""

    wanted: int
    stolen: int
    """Of what was wanted, what the host gave to others: a virtual machine is told."""

    def stolen_since(self, before: "Processors") -> float:
        """The share that was not given of what was asked for; 0 where nothing was."""
        return (self.stolen - before.stolen) / max(self.wanted - before.wanted, 1)


def processors() -> Processors:
    words = Path("/proc/stat").read_text().split(maxsplit=9)
    user, nice, system, _idle, _waiting, interrupts, soft, stolen = map(int, words[1:9])
    return Processors(user + nice + system + interrupts + soft + stolen, stolen)


def put_first(pid: int) -> None:
    """What else runs on the machine is not to pass for a pause of the server, if root says so."""
    with contextlib.suppress(PermissionError, FileNotFoundError):
        os.setpriority(os.PRIO_PROCESS, pid, -20)
        # Where processes are weighed by session, this is what counts; servers have their own.
        Path(f"/proc/{pid}/autogroup").write_text("-20")


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
