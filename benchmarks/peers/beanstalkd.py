"""beanstalkd, with a log that is flushed after each write, or without one."""

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks import rig
from benchmarks.peers.installing import answers, first_line, free_port, present_or_reason

SETTINGS: dict[rig.Durability, str] = {"sync": "-b DIR -f0", "memory": "no -b"}


@dataclass(frozen=True, slots=True)
class Beanstalkd:
    durability: rig.Durability

    @property
    def name(self) -> str:
        return "beanstalkd -f0" if self.durability == "sync" else "beanstalkd, no log"

    @contextlib.contextmanager
    def run(self, directory: Path) -> Iterator[rig.RunningServer]:
        port, log = free_port(), directory / "log"
        began = time.monotonic()
        with rig.process(self._command(directory, port), log) as child:
            rig.wait_until_ready(lambda: port if says_its_tube(port) else None, child, log)
            yield rig.RunningServer(child.pid, port, "beanstalk", time.monotonic() - began)

    def _command(self, directory: Path, port: int) -> list[str]:
        command = ["beanstalkd", "-l", rig.HOST, "-p", str(port)]
        if self.durability == "memory":
            return command
        binlog = directory / "binlog"
        binlog.mkdir(exist_ok=True)
        return [*command, "-b", str(binlog), "-f0"]


def says_its_tube(port: int) -> bool:
    return answers(port, b"list-tube-used\r\n", b"USING default\r\n")


def unavailable(durability: rig.Durability) -> str | None:
    del durability  # only those of SETTINGS are asked for
    return present_or_reason("beanstalkd", "beanstalkd")


def version() -> str:
    return first_line("beanstalkd", "-v")
