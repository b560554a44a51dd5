"""Gets a server from a package that is missing, without its packaged service being started."""

import os
import shutil
import socket
import subprocess
from collections.abc import Sequence
from functools import cache

from benchmarks import rig

INSTALL_SECONDS = 300.0


def present_or_reason(program: str, package: str) -> str | None:
    """None if the program is there, perhaps installed just now; else why it is not."""
    if shutil.which(program) is not None:
        return None
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return f"{program} is not installed, and only root can install it with apt-get"
    print(f"installing {package} with apt-get", flush=True)
    problem = install(package)
    return None if problem is None else f"{program} could not be installed: {problem}"


@cache
def install(package: str) -> str | None:
    """None if that went well; it is tried once."""
    # RUNLEVEL keeps Debian from starting the packaged service: the benchmarks start their own.
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    for command in (["update"], ["install", "-y", "--no-install-recommends", package]):
        problem = call(["apt-get", *command], environment)
        if problem is not None:
            return f"apt-get {command[0]}: {problem}"
    return None


def call(command: Sequence[str], environment: dict[str, str] | None = None) -> str | None:
    """None if it ended well and in time, else what it said."""
    try:
        run = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=INSTALL_SECONDS,
            env=environment,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"took longer than {INSTALL_SECONDS:.0f} s"
    return None if run.returncode == 0 else run.stderr.strip()


def first_line(*command: str) -> str:
    """What a program says of its version."""
    run = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    return (run.stdout or run.stderr).strip().partition("\n")[0]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((rig.HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def answers(port: int, question: bytes, answer: bytes) -> bool:
    """Whether a server listens there that says this; it may greet without being asked."""
    try:
        with socket.create_connection((rig.HOST, port), timeout=1.0) as connection:
            connection.sendall(question)
            return answer in connection.recv(4096)
    except OSError:
        return False
