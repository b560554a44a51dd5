"""A real Redis, its lists and its streams."""

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks import rig
from benchmarks.peers.installing import answers, first_line, free_port, present_or_reason

DRIVERS = {"redis-lists": "redis-list", "redis-streams": "redis-stream"}
"""By the name of the peer; run.py and others use further ones of the load generator's drivers."""
SETTINGS: dict[rig.Durability, str] = {
    "sync": "appendfsync always",
    "write": "appendfsync everysec",
    "memory": "appendonly no",
}
OPTIONS: dict[rig.Durability, tuple[str, ...]] = {
    "sync": ("--appendonly", "yes", "--appendfsync", "always"),
    "write": ("--appendonly", "yes", "--appendfsync", "everysec"),
    "memory": ("--appendonly", "no"),
}


@dataclass(frozen=True, slots=True)
class Redis:
    """Redis, used in one of the load generator's ways, with the durability that comes nearest."""

    durability: rig.Durability
    driver: str

    @property
    def name(self) -> str:
        kinds = {driver: key.replace("-", " ") for key, driver in DRIVERS.items()}
        words = {"sync": "always", "write": "everysec", "memory": "no log"}
        return f"{kinds.get(self.driver, f'redis {self.driver}')}, {words[self.durability]}"

    @contextlib.contextmanager
    def run(self, directory: Path) -> Iterator[rig.RunningServer]:
        port, log = free_port(), directory / "log"
        began = time.monotonic()
        with rig.process(self._command(directory, port), log) as child:
            rig.wait_until_ready(lambda: port if answers_ping(port) else None, child, log)
            yield rig.RunningServer(child.pid, port, self.driver, time.monotonic() - began)

    def _command(self, directory: Path, port: int) -> list[str]:
        command = ["redis-server", "--bind", rig.HOST, "--port", str(port), "--dir", str(directory)]
        # No rewriting of the log in the middle of a run: it would only make Redis look slower.
        command += ["--save", "", "--auto-aof-rewrite-percentage", "0", "--daemonize", "no"]
        return [*command, *OPTIONS[self.durability]]


def answers_ping(port: int) -> bool:
    return answers(port, b"PING\r\n", b"+PONG")


def available_or_reason() -> str | None:
    """None if redis-server 7 is here, perhaps installed just now; else why it is not."""
    reason = present_or_reason("redis-server", "redis-server")
    if reason is not None:
        return reason
    found = version()
    return None if " v=7." in found else f"this is not Redis 7: {found}"


def unavailable(durability: rig.Durability) -> str | None:
    del durability  # it knows all three
    return available_or_reason()


def version() -> str:
    return first_line("redis-server", "--version")
