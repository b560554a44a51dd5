"""Tries a built package out: scripts/smoke.py [WHEEL] [--form compiled|interpreted].

With a wheel it makes an empty environment outside of the repository, has pip install the wheel and
what that depends on, and goes on with the Python of that environment. Without one it tries out the
Taskyard of the Python that it is run with. It needs nothing but the standard library.

What it does there: `taskyard --version`; a server on free ports, with its dashboard; a push, a
fetch and an ack over Masenko and with the Python client; a push of each, `kill -9`, a new server
that hands out both; and an orderly end. Each step is printed; the first that goes wrong ends it
with exit code 1.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
import urllib.error
import urllib.request
import venv
from pathlib import Path
from typing import Any

PATIENCE = 120.0  # seconds; a guard against a hang, never a promise
LISTENERS = ("masenko", "workq", "resp", "http")
QUEUE = "smoke"


class Broken(Exception):
    """A step went wrong; the text says which and how."""


def say(text: str) -> None:
    print(f"smoke: {text}", flush=True)


def demand(good: bool, text: str) -> None:
    if not good:
        raise Broken(text)


class Server:
    """`taskyard serve` on a data directory and on free ports."""

    def __init__(self, command: list[str], directory: Path) -> None:
        self._command = command
        self._data = directory / "data"
        self._ports = directory / "ports.json"
        self._log = directory / "server.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._ports.unlink(missing_ok=True)
        flags = ["--data", str(self._data), "--ports-file", str(self._ports)]
        ports = [part for name in LISTENERS for part in (f"--{name}-port", "0")]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._command, "serve", *flags, *ports], stdout=log, stderr=subprocess.STDOUT
            )
        deadline = time.monotonic() + PATIENCE
        while not self._ports.exists():
            code = self._process.poll()
            demand(code is None, f"the server ended with code {code}")
            demand(time.monotonic() < deadline, f"the server does not listen:\n{self.log()}")
            time.sleep(0.02)

    def address(self, listener: str) -> tuple[str, int]:
        found = json.loads(self._ports.read_text())[listener]
        return found["host"], found["port"]

    def log(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> int:
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(PATIENCE)


class Masenko:
    """One connection of that protocol: a line for a command, a line for the answer."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._socket = socket.create_connection(address, PATIENCE)
        self._answers = self._socket.makefile("rb")

    def ask(self, verb: str, wanted: str = "OK", **content: Any) -> dict[str, Any]:
        self._socket.sendall(f"{verb} {json.dumps(content)}\n".encode())
        status, _, answer = self._answers.readline().decode().partition(" ")
        demand(status == wanted, f"Masenko's {verb} was answered {status!r} {answer!r}")
        found: dict[str, Any] = json.loads(answer)
        return found

    def push(self, payload: str) -> None:
        self.ask("PUSH", name=QUEUE, queue=QUEUE, payload=payload)

    def fetch(self) -> str:
        job = self.ask("FETCH", queues=[QUEUE])
        self.ask("ACK", id=job["id"])
        return str(job["payload"])

    def close(self) -> None:
        self._answers.close()
        self._socket.close()


def resp_url(server: Server) -> str:
    return "taskyard://{}:{}".format(*server.address("resp"))


def push_with_the_client(server: Server, payload: str) -> None:
    import taskyard

    with taskyard.Client(resp_url(server)) as client:
        demand(client.push(QUEUE, payload).new, "the Python client's push was not new")


def fetch_with_the_client(server: Server) -> str:
    import taskyard

    with taskyard.Client(resp_url(server)) as client:
        jobs = client.fetch(QUEUE, wait=PATIENCE)
        demand(len(jobs) == 1, f"the Python client fetched {len(jobs)} jobs, not 1")
        client.ack(jobs[0])
        return str(jobs[0].json())


def check_form(server: Server, wanted: str | None) -> None:
    address = "http://{}:{}/api/v1/server".format(*server.address("http"))
    with urllib.request.urlopen(address, timeout=PATIENCE) as answer:
        form = json.loads(answer.read())["form"]
    say(f"the form is {form}")
    demand(wanted in {None, form}, f"the form is {form}, but must be {wanted}")


def check_dashboard(server: Server) -> None:
    """A build without the npm registry goes without it; what is released must not."""
    try:
        with urllib.request.urlopen(
            "http://{}:{}/".format(*server.address("http")), timeout=PATIENCE
        ):
            say("the dashboard is there")
    except urllib.error.HTTPError as error:
        raise Broken(f"the dashboard is not there: {error.read().decode()}") from error


def check_jobs(server: Server) -> None:
    peer = Masenko(server.address("masenko"))
    peer.push("by Masenko")
    demand(peer.fetch() == "by Masenko", "Masenko's job came back changed")
    peer.close()
    say("Masenko has pushed, fetched and acknowledged a job")
    push_with_the_client(server, "by the client")
    demand(fetch_with_the_client(server) == "by the client", "the client's job came back changed")
    say("the Python client has pushed, fetched and acknowledged a job")


def check_kill(server: Server) -> None:
    peer = Masenko(server.address("masenko"))
    peer.push("before the kill, by Masenko")
    push_with_the_client(server, "before the kill, by the client")
    server.kill()
    peer.close()
    say("the server was killed with -9 behind two pushes")
    server.start()
    demand(
        fetch_with_the_client(server) == "before the kill, by Masenko",
        "the job of Masenko is not what comes first after the kill",
    )
    peer = Masenko(server.address("masenko"))
    demand(peer.fetch() == "before the kill, by the client", "the client's job is not there")
    peer.ask("FETCH", wanted="EMPTY", queues=[QUEUE], timeout="1ms")
    peer.close()
    say("a new server has handed out both jobs, and no other")


def check(form: str | None) -> None:
    """What this Python has installed, with a data directory that is removed afterwards."""
    command = [str(Path(sysconfig.get_path("scripts")) / "taskyard")]
    version = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True)
    say(f"taskyard --version says {version.stdout.strip()!r}")
    with tempfile.TemporaryDirectory(prefix="taskyard-smoke-") as directory:
        server = Server(command, Path(directory))
        try:
            server.start()
            say("a server listens on " + ", ".join(f"{server.address(it)[1]}" for it in LISTENERS))
            check_form(server, form)
            check_dashboard(server)
            check_jobs(server)
            check_kill(server)
            code = server.stop()
            demand(code == 0, f"the server ended with code {code}")
            say("the server has stopped")
        except BaseException:
            server.kill()
            print(server.log(), file=sys.stderr)
            raise


def check_wheel(wheel: Path, form: str | None) -> None:
    """In an empty environment, which is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="taskyard-empty-") as directory:
        say(f"making an empty environment for {wheel.name}")
        venv.create(directory, with_pip=True)
        python = str(Path(directory) / "bin" / "python")
        pip = [python, "-I", "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
        demand(
            subprocess.run([*pip, str(wheel.resolve())], cwd=directory, check=False).returncode
            == 0,
            f"{wheel.name} cannot be installed",
        )
        say("the wheel is installed, with what it depends on")
        # -I: neither PYTHONPATH nor the directory of this script, so nothing of the repository.
        again = [python, "-I", str(Path(__file__).resolve()), *(["--form", form] if form else [])]
        environment = {name: it for name, it in os.environ.items() if "TASKYARD_" not in name}
        done = subprocess.run(again, cwd=directory, env=environment, check=False)
        demand(done.returncode == 0, f"{wheel.name} does not work")
        say(f"{wheel.name} works")


def main() -> int:
    parser = argparse.ArgumentParser(description="Try a built package out.")
    parser.add_argument("wheel", nargs="?", type=Path, help="what to install; else what is")
    parser.add_argument("--form", choices=("compiled", "interpreted"), help="which it must be")
    options = parser.parse_args()
    try:
        if options.wheel is None:
            check(options.form)
        else:
            check_wheel(options.wheel, options.form)
    except (Broken, OSError, subprocess.SubprocessError) as error:
        print(f"smoke: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
