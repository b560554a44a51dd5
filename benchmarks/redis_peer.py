"""A real Redis beside Taskyard: how it is found, installed and started."""

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks import rig

INSTALL_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Redis:
    """Redis, used in one of the load generator's ways, with the durability that comes nearest."""

    durability: rig.Durability
    driver: str

    @contextlib.contextmanager
    def run(self, directory: Path) -> Iterator[rig.RunningServer]:
        port, log = free_port(), directory / "log"
        began = time.monotonic()
        with rig.process(self._command(directory, port), log) as child:
            rig.wait_until_ready(lambda: port if answers_ping(port) else None, child, log)
            yield rig.RunningServer(child.pid, port, self.driver, time.monotonic() - began)

    def _command(self, directory: Path, port: int) -> list[str]:
        append = {
            "sync": ["--appendonly", "yes", "--appendfsync", "always"],
            "write": ["--appendonly", "yes", "--appendfsync", "everysec"],
            "memory": ["--appendonly", "no"],
        }
        command = ["redis-server", "--bind", rig.HOST, "--port", str(port), "--dir", str(directory)]
        # No rewriting of the log in the middle of a run: it would only make Redis look slower.
        command += ["--save", "", "--auto-aof-rewrite-percentage", "0", "--daemonize", "no"]
        return command + append[self.durability]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((rig.HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def answers_ping(port: int) -> bool:
    try:
        with socket.create_connection((rig.HOST, port), timeout=1.0) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(64).startswith(b"+PONG")
    except OSError:
        return False


def available_or_reason() -> str | None:
    """None if redis-server 7 is here, perhaps installed just now; else why it is not."""
    if shutil.which("redis-server") is None:
        if os.geteuid() != 0 or shutil.which("apt-get") is None:
            return "redis-server is not installed, and only root can install it with apt-get"
        print("installing redis-server with apt-get", flush=True)
        problem = install("redis-server")
        if problem is not None:
            return f"redis-server could not be installed: {problem}"
    found = version()
    return None if " v=7." in found else f"this is not Redis 7: {found}"


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


def version() -> str:
    command = ["redis-server", "--version"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    return run.stdout.strip()
