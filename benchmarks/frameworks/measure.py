"""One measurement: a fresh broker, tasks pushed into it, then one worker that runs them all."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import hiredis

from benchmarks import redis_peer, rig
from benchmarks.frameworks.environment import Environment
from benchmarks.frameworks.programs import produce, settings, tally
from benchmarks.frameworks.subjects import PROGRAMS, Subject, Words

PUSH_SECONDS: Final = 300.0
DRAIN_SECONDS: Final = 300.0
SETTLE_SECONDS: Final = 30.0
LOOK: Final = 0.005  # seconds between two looks
MOST_EACH: Final = 2000
"""Tasks that are pushed one by one; the rest goes with the call for many."""
UNFINISHED: Final = ("blocked", "delayed", "ready", "leased", "failed")


@dataclass(frozen=True, slots=True)
class Setting:
    """What all measurements of a run have in common."""

    tasks: int
    form: rig.Form
    directory: Path
    environment: Environment


@dataclass(frozen=True, slots=True)
class Measurement:
    """Of one subject in one round. Processor times are seconds for each task."""

    tasks: int
    ran: float
    """Seconds from the first run of a task to the last."""
    seconds: float
    """The same until the broker knew that nothing is left to do."""
    worker_cpu: float
    broker_cpu: float
    pushed_each: float
    """Tasks a second, one by one."""
    pushed_many: float | None
    """The same with the call for many, if there is one."""
    push_cpu: float
    """Of the producer, by its fastest way."""

    @property
    def per_s(self) -> float:
        return self.tasks / self.seconds

    @property
    def runs_per_s(self) -> float:
        return self.tasks / self.ran


Readings = dict[str, dict[str, float]]


def measure(setting: Setting, subject: Subject) -> Measurement:
    tasks = subject.tasks(setting.tasks)
    with (
        rig.scratch(setting.directory) as directory,
        broker(setting, subject).run(directory) as server,
    ):
        pushes = push(setting, subject, server, tasks)
        readings = drain(setting, subject, server, tasks, directory)
    return measurement(tasks, pushes, readings)


def measurement(tasks: int, pushes: Readings, readings: Readings) -> Measurement:
    began, settled = readings["began"], readings["settled"]
    each, many = pushes["each"], pushes.get("many")
    best = many or each
    return Measurement(
        tasks=tasks,
        ran=readings["ended"]["at"] - began["at"],
        seconds=settled["at"] - began["at"],
        worker_cpu=(settled["worker_cpu"] - began["worker_cpu"]) / tasks,
        broker_cpu=(settled["broker_cpu"] - began["broker_cpu"]) / tasks,
        pushed_each=each["count"] / each["seconds"],
        pushed_many=many["count"] / many["seconds"] if many else None,
        push_cpu=best["cpu"] / best["count"],
    )


def broker(setting: Setting, subject: Subject) -> redis_peer.Redis | rig.Taskyard:
    if subject.broker == "redis":
        return redis_peer.Redis(subject.durability, "")
    return rig.Taskyard(setting.form, subject.durability, dialect="lists")


def portions(tasks: int) -> tuple[int, int]:
    """How many are pushed one by one and how many at once, beside those that warm up."""
    each = min(MOST_EACH, tasks // 4)
    return each, tasks - each - 2 * produce.WARMUP


def push(setting: Setting, subject: Subject, server: rig.RunningServer, tasks: int) -> Readings:
    each, many = portions(tasks)
    python = sys.executable if subject.broker == "taskyard" else setting.environment.python
    command = [python, "-m", f"{PROGRAMS}.produce", subject.program, str(each), str(many)]
    try:
        run = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=PUSH_SECONDS,
            env={**os.environ, **variables(setting, subject, server)},
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise rig.BenchmarkError(f"{subject.name} took longer to push than that") from None
    if run.returncode != 0:
        raise rig.BenchmarkError(f"{subject.name} cannot push:\n{run.stderr.strip()[-2000:]}")
    pushed: Readings = json.loads(run.stdout)
    waiting = left(subject, server.port)
    if subject.left[0][0] != "XPENDING" and waiting != tasks:
        raise rig.BenchmarkError(f"{subject.name}: {waiting} tasks wait in place of {tasks}")
    return pushed


def variables(setting: Setting, subject: Subject, server: rig.RunningServer) -> dict[str, str]:
    paths = [str(rig.ROOT)]
    if subject.broker == "taskyard":
        paths.insert(0, str(rig.code_path(setting.form)))
    return {
        **subject.environment,
        "PYTHONPATH": os.pathsep.join(paths),
        settings.PORT: str(server.port),
    }


def drain(
    setting: Setting, subject: Subject, server: rig.RunningServer, tasks: int, directory: Path
) -> Readings:
    """What the worker's tally says, and the same when the broker had nothing left."""
    file, log = directory / "tally.json", directory / "worker.log"
    environment = {
        **variables(setting, subject, server),
        tally.TASKS: str(tasks),
        tally.FILE: str(file),
        tally.BROKER: str(server.pid),
    }
    with worker(worker_command(setting, subject, server.port), log, environment) as child:
        try:
            wait_for(file, child, log, subject.name)
            found = json.loads(file.read_text())
            wait_until_settled(subject, server.port)
            settled = tally.reading(found["pid"], server.pid)
        finally:
            # Its broker goes too, so there is nothing to end in good order; and it may have
            # processes of its own, all of which are in its group.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
    return {"began": found["began"], "ended": found["ended"], "settled": settled}


def worker(
    command: list[str], log: Path, environment: dict[str, str]
) -> contextlib.AbstractContextManager[subprocess.Popen[bytes]]:
    return rig.process(command, log, environment=environment, end_with=signal.SIGKILL)


def worker_command(setting: Setting, subject: Subject, port: int) -> list[str]:
    words = [word.replace("{port}", str(port)) for word in subject.command]
    if subject.broker == "taskyard":
        return [sys.executable, "-m", "taskyard", *words]
    return [setting.environment.script(words[0]), *words[1:]]


def wait_for(file: Path, child: subprocess.Popen[bytes], log: Path, name: str) -> None:
    deadline = time.monotonic() + DRAIN_SECONDS
    while not file.exists():
        if child.poll() is not None:
            raise rig.BenchmarkError(f"the worker of {name} ended:\n{rig.tail(log)}")
        if time.monotonic() > deadline:
            raise rig.BenchmarkError(f"{name} did not run all its tasks:\n{rig.tail(log)}")
        time.sleep(LOOK)


def wait_until_settled(subject: Subject, port: int) -> None:
    deadline = time.monotonic() + SETTLE_SECONDS
    while remaining := left(subject, port):
        if time.monotonic() > deadline:
            raise rig.BenchmarkError(f"{subject.name} has run all, but {remaining} tasks are left")
        time.sleep(LOOK)


def left(subject: Subject, port: int) -> int:
    return sum(number_in(reply) for reply in ask(port, subject.left))


def number_in(reply: Any) -> int:
    """Of what LLEN and the like reply, XPENDING, and Taskyard's API about a queue."""
    if isinstance(reply, int):
        return reply
    match reply:
        case [200, bytes(body)]:
            counts = json.loads(body)["counts"]
            return sum(int(counts[state]) for state in UNFINISHED)
        case [int(pending), _, _, _]:
            return pending
    raise rig.BenchmarkError(f"the broker replied {reply!r}")


def ask(port: int, commands: tuple[Words, ...]) -> list[Any]:
    reader = hiredis.Reader()
    replies: list[Any] = []
    with socket.create_connection((rig.HOST, port), timeout=10.0) as connection:
        connection.sendall(b"".join(inline(words) for words in commands))
        while len(replies) < len(commands):
            received = connection.recv(65536)
            if not received:
                raise rig.BenchmarkError("the broker has closed the connection")
            reader.feed(received)
            while (reply := reader.gets()) is not False:
                replies.append(reply)
    return replies


def inline(words: Words) -> bytes:
    return " ".join(words).encode() + b"\r\n"
