"""The processes beside the server: the driver and the probes, and how they are asked."""

import contextlib
import multiprocessing
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection as Pipe
from typing import Any, Final

from benchmarks import rig
from benchmarks.soak import driver, probe

PATIENCE: Final = 120.0


class Member:
    """A process that answers each message."""

    def __init__(self, name: str, pipe: Pipe) -> None:
        self._name = name
        self._pipe = pipe

    def ask(self, message: object) -> Any:
        try:
            self._pipe.send(message)
            if not self._pipe.poll(PATIENCE):
                raise rig.BenchmarkError(f"the {self._name} has not answered in {PATIENCE:.0f} s")
            return self._pipe.recv()
        except (EOFError, BrokenPipeError) as error:
            raise rig.BenchmarkError(f"the {self._name} has ended") from error


@contextlib.contextmanager
def member(name: str, target: Callable[..., None], *arguments: object) -> Iterator[Member]:
    # Not forked: the child would hold this process's ends of the other pipes open.
    context = multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe()
    process = context.Process(target=target, args=(*arguments, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        yield Member(name, mine)
    finally:
        mine.close()
        process.join(10.0)
        if process.is_alive():
            process.kill()


class Probes:
    """Both probes as one."""

    def __init__(self, members: dict[probe.Kind, Member]) -> None:
        self._members = members

    def listen(self, port: int | None) -> None:
        for each in self._members.values():
            each.ask(probe.Listen(port))

    def read(self) -> dict[probe.Kind, probe.Readings]:
        """What was measured since the last time."""
        return {kind: each.ask(None) for kind, each in self._members.items()}


@contextlib.contextmanager
def probes() -> Iterator[Probes]:
    with contextlib.ExitStack() as stack:
        yield Probes(
            {
                kind: stack.enter_context(member(f"{kind} probe", probe.probe, kind))
                for kind in probe.INTERVALS
            }
        )


class Driver:
    def __init__(self, process: Member) -> None:
        self._process = process

    def tell(self, message: driver.Message) -> driver.Tally:
        tally: driver.Tally = self._process.ask(message)
        if tally.problem:
            raise rig.BenchmarkError(tally.problem)
        return tally


@contextlib.contextmanager
def load_driver(dead_limit: int) -> Iterator[Driver]:
    with member("driver", driver.drive, dead_limit) as process:
        yield Driver(process)
