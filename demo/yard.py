"""The server of the demo: a process of its own with a data directory and a lake of its own."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any, Final

from demo.crew import Addresses

_HOST: Final = "127.0.0.1"
_PORTS: Final = {"masenko": 12345, "workq": 9922, "resp": 8002, "http": 8080}


class Yard:
    def __init__(self, folder: Path) -> None:
        """What an earlier demo has left in the folder is removed."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self.data = folder / "data"
        self.lake = folder / "lake"
        self.log = folder / "server.log"
        self.report = self.lake / "report.html"
        ports = {dialect: _port(usual) for dialect, usual in _PORTS.items()}
        self.addresses = Addresses(**{dialect: (_HOST, port) for dialect, port in ports.items()})
        self._command = [sys.executable, "-m", "taskyard"]
        flags = [f"--{dialect}-port={port}" for dialect, port in ports.items()]
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [*self._command, "serve", "--data", self.data, "--lake", self.lake, *flags],
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the demo, which then stops it
            )

    def wait_until_ready(self) -> None:
        while self._process.poll() is None:
            try:
                urllib.request.urlopen(f"{self.addresses.web}/readyz").close()
                return
            except OSError:
                time.sleep(0.05)
        raise RuntimeError(f"the server did not start: see {self.log}")

    def api(self, method: str, path: str, body: object = None) -> Any:
        request = urllib.request.Request(
            f"{self.addresses.web}/api/v1/{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request) as answer:
            return json.loads(answer.read() or "null")

    def counts(self) -> dict[str, int]:
        """Over all queues: what has happened, and what is there."""
        found = dict.fromkeys(("pushed", "finished", "removed", "dead", "waiting"), 0)
        for queue in self.api("GET", "queues?limit=1000")["queues"]:
            counts, counters = queue["counts"], queue["counters"]
            found["pushed"] += counters["pushed"]
            found["finished"] += counters["finished"]
            found["removed"] += counters["removed"] + counters["expired"]
            found["dead"] += counts["failed"]
            found["waiting"] += sum(counts[of] for of in ("ready", "delayed", "leased", "blocked"))
        return found

    def catch_up(self) -> dict[str, Any]:
        """Wait until the lake has all that has happened so far."""
        wanted = self.api("GET", "journal")["durable_seq"]
        while True:
            lake: dict[str, Any] = self.api("GET", "lake")
            if lake["error"]:
                raise RuntimeError(f"the lake: {lake['error']}")
            if (lake["next_seq"] or 0) > wanted:
                return lake
            time.sleep(0.2)

    def write_report(self) -> None:
        places = ["--lake", str(self.lake), "--out", str(self.report)]
        command = [*self._command, "lake", "report", *places]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()


def _port(usual: int) -> int:
    """The usual one if nobody has it, else a free one."""
    for port in (usual, 0):
        with socket.socket() as taken:
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                taken.bind((_HOST, port))
            except OSError:
                continue
            return int(taken.getsockname()[1])
    raise OSError("there is no free port")
