"""WebSocket messages a second: echo servers of three libraries, and Taskyard over Glovebox.

`python -m benchmarks.websocket`. The servers take turns within each round and all have the same
client, so what the ratios compare is the servers.
"""

import argparse
import contextlib
import importlib.metadata
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from benchmarks import readings, rig

LIBRARIES: Final = ("picows", "uvloop", "httptools", "aiohttp", "websockets")
"""Installed beside the benchmarks' data where the environment does not have them."""
PLAIN: Final = "picows"
WINDOWS: Final = (1, 20)
INSTALL_SECONDS: Final = 300.0


@dataclass(frozen=True, slots=True)
class Subject:
    """A server, and what is said to it."""

    name: str
    talk: str
    what: str
    durability: rig.Durability | None = None
    """None for the echo servers."""


SUBJECTS: Final = (
    Subject(PLAIN, "echo", "echo: picows"),
    Subject("picows-handed-over", "echo-greeted", "echo: picows behind Taskyard's HTTP listener"),
    Subject("aiohttp", "echo", "echo: aiohttp"),
    Subject("websockets", "echo", "echo: websockets"),
    Subject("post-json", "post-json", "Glovebox post, JSON, memory", "memory"),
    Subject("post-bincode", "post-bincode", "Glovebox post, bincode, memory", "memory"),
    Subject("cycle-json", "cycle-json", "Glovebox post + pop, JSON, sync", "sync"),
    Subject("cycle-bincode", "cycle-bincode", "Glovebox post + pop, bincode, sync", "sync"),
)


@dataclass(frozen=True, slots=True)
class Measurement:
    count: int
    seconds: float
    client_cpu: float
    server_cpu: float

    @property
    def per_s(self) -> float:
        return self.count / self.seconds


@dataclass(frozen=True, slots=True)
class Case:
    """All the rounds of one subject with one window."""

    subject: Subject
    window: int
    rounds: list[Measurement] = field(default_factory=list)

    @property
    def rates(self) -> list[float]:
        return [taken.per_s for taken in self.rounds]

    @property
    def rate(self) -> float:
        return statistics.median(self.rates)

    @property
    def cost(self) -> float:
        """Microseconds of the server's processor time for each message or cycle."""
        return statistics.median(taken.server_cpu / taken.count * 1e6 for taken in self.rounds)


@dataclass(frozen=True, slots=True)
class Plan:
    subjects: list[Subject]
    windows: list[int]
    form: rig.Form
    rounds: int
    seconds: float
    warmup: float
    payload: int
    connections: int
    directory: Path
    libraries: Path

    @property
    def environment(self) -> dict[str, str]:
        paths = [rig.code_path(self.form), rig.ROOT, self.libraries]
        return {"PYTHONPATH": os.pathsep.join(str(path) for path in paths)}


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each case (5)")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement (2)")
    parser.add_argument("--warmup", type=float, default=0.5, help="seconds not counted (0.5)")
    parser.add_argument("--payload", type=int, default=200, help="bytes of each message (200)")
    parser.add_argument("--connections", type=int, default=50, help="of the client (50)")
    parser.add_argument("--form", choices=("compiled", "interpreted"), help="of Taskyard")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="WORD,...",
        help="of " + ", ".join([*(each.name for each in SUBJECTS), *map(window_word, WINDOWS)]),
    )
    parser.add_argument(
        "--dir", type=Path, default=rig.DEFAULT_DIRECTORY, help="where the servers keep their data"
    )
    parser.add_argument(
        "--results",
        type=Path,
        default=rig.DEFAULT_DIRECTORY / "websocket.json",
        help="the results file",
    )
    return parser.parse_args()


def window_word(window: int) -> str:
    return f"w{window}"


def make_plan(arguments: argparse.Namespace) -> Plan:
    kinds = [subject.name for subject in SUBJECTS], [window_word(window) for window in WINDOWS]
    names, windows = rig.choose_terms(arguments.only, kinds)
    form = rig.choose_form(arguments.form)
    return Plan(
        subjects=[subject for subject in SUBJECTS if subject.name in names],
        windows=[window for window in WINDOWS if window_word(window) in windows],
        form=form,
        rounds=arguments.rounds,
        seconds=arguments.seconds,
        warmup=arguments.warmup,
        payload=arguments.payload,
        connections=arguments.connections,
        directory=arguments.dir,
        libraries=rig.DEFAULT_DIRECTORY / "libraries",
    )


def install_libraries(directory: Path) -> None:
    """What the environment lacks goes to a directory that only these servers look into."""
    sys.path.append(str(directory))
    missing = [name for name in LIBRARIES if importlib.util.find_spec(name) is None]
    if not missing:
        return
    print(f"installing {', '.join(missing)} into {directory}", flush=True)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    done = subprocess.run(
        [*pip, "--upgrade", "--target", str(directory), *missing],
        capture_output=True,
        text=True,
        timeout=INSTALL_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        raise rig.BenchmarkError(f"pip could not install them: {done.stderr.strip()}")
    importlib.invalidate_caches()


def measure(plan: Plan) -> list[Case]:
    cases = [Case(subject, window) for window in plan.windows for subject in plan.subjects]
    began, count = time.monotonic(), 0
    for number in range(plan.rounds):
        for case in cases:
            case.rounds.append(measure_once(plan, case))
            count += 1
            print(
                f"[{count}/{len(cases) * plan.rounds}, {time.monotonic() - began:.0f} s] "
                f"round {number + 1} window {case.window} {case.subject.name}: "
                f"{case.rates[-1]:,.0f}/s",
                flush=True,
            )
    return cases


def measure_once(plan: Plan, case: Case) -> Measurement:
    with rig.scratch(plan.directory) as directory, running(plan, case, directory) as server:
        command = [sys.executable, "-m", "benchmarks.websocket.client", case.subject.talk]
        command += [f"--port={server.port}", f"--pid={server.pid}", f"--window={case.window}"]
        command += [f"--connections={plan.connections}", f"--payload={plan.payload}"]
        command += [f"--seconds={plan.seconds}", f"--warmup={plan.warmup}"]
        client = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **plan.environment},
        )
        out, err = client.communicate(timeout=rig.GENERATOR_SECONDS)
        if client.returncode != 0:
            log = rig.tail(directory / "log")
            raise rig.BenchmarkError(f"{' '.join(command)}\n{err.strip()}\nThe server:\n{log}")
        return Measurement(**json.loads(out))


@contextlib.contextmanager
def running(plan: Plan, case: Case, directory: Path) -> Iterator[rig.RunningServer]:
    durability = case.subject.durability
    if durability is not None:
        with rig.Taskyard(plan.form, durability, dialect="http").run(directory) as server:
            yield server
        return
    ports, log = directory / "ports.json", directory / "log"
    command = [sys.executable, "-m", "benchmarks.websocket.echo", case.subject.name, str(ports)]
    began = time.monotonic()
    with rig.process(command, log, environment=plan.environment) as child:
        port = rig.wait_until_ready(lambda: rig.listening_port(ports, "http"), child, log)
        yield rig.RunningServer(child.pid, port, "http", time.monotonic() - began)


def plain_echo(cases: Sequence[Case], case: Case) -> Case | None:
    """With the same window; a cycle is no single message and is not compared with one."""
    if case.subject.durability == "sync":
        return None
    for other in cases:
        if other.subject.name == PLAIN and other.window == case.window:
            return other
    return None


def ratios(cases: Sequence[Case], case: Case) -> tuple[float, float] | None:
    """Of the rate and of the rate that the server's processor time would allow."""
    plain = plain_echo(cases, case)
    return None if plain is None else (case.rate / plain.rate, plain.cost / case.cost)


def table(cases: Sequence[Case]) -> str:
    header = ["window", "server", "a second", "least - most", "ratio to picows"]
    header += ["server µs", "ratio by µs", "server cores", "client cores"]
    rows = []
    for case in cases:
        reached = ratios(cases, case)
        rows.append(
            [
                str(case.window),
                case.subject.what,
                f"{case.rate:,.0f}",
                f"{min(case.rates):,.0f} - {max(case.rates):,.0f}",
                "" if reached is None else f"{reached[0]:.2f}",
                f"{case.cost:.1f}",
                "" if reached is None else f"{reached[1]:.2f}",
                f"{statistics.median(each.server_cpu / each.seconds for each in case.rounds):.2f}",
                f"{statistics.median(each.client_cpu / each.seconds for each in case.rounds):.2f}",
            ]
        )
    return rig.markdown_table(header, rows)


def versions() -> dict[str, str]:
    return {name: importlib.metadata.version(name) for name in LIBRARIES}


def main() -> int:
    arguments = read_arguments()
    try:
        plan = make_plan(arguments)
        install_libraries(plan.libraries)
        facts = readings.machine(plan.directory)
        cases = measure(plan)
    except rig.BenchmarkError as error:
        print(f"benchmark: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print(f"\n{readings.describe_machine(facts)}, {os.getloadavg()[0]:.1f} at the end")
    print(", ".join(f"{name} {version}" for name, version in versions().items()))
    print(f"Taskyard {plan.form}; {plan.payload}-byte messages; {plan.connections} connections; ")
    print(f"medians of {plan.rounds} rounds of {plan.seconds:g} s\n\n{table(cases)}\n")
    results: dict[str, object] = {
        "machine": facts,
        "versions": versions(),
        "form": plan.form,
        "rounds": plan.rounds,
        "seconds": plan.seconds,
        "payload": plan.payload,
        "connections": plan.connections,
        "cases": [
            {
                **asdict(case),
                "per_s": case.rate,
                "server_us": case.cost,
                "ratios": ratios(cases, case),
            }
            for case in cases
        ],
    }
    rig.write_results(arguments.results, results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
