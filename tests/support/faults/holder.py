"""A worker in a process of its own, to be stopped while it holds jobs of two protocols."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from types import TracebackType
from typing import Self

from support.process import ServerProcess

_PROGRAM = r"""
import json, socket, sys

masenko, resp = (socket.create_connection(address) for address in json.loads(sys.argv[1]))
masenko.sendall(b"FETCH\n")
task = json.loads(masenko.recv(4096).partition(b" ")[2])
resp.sendall(b"JOB.TAKE 1 q TTR 200\r\n")
reference = resp.recv(4096).split(b"\r\n")[3]
print("taken", flush=True)
sys.stdin.readline()
said = []
try:
    masenko.sendall(b'ACK {"id":%d}\n' % task["id"])
    said.append(json.loads(masenko.recv(4096).partition(b" ")[2]).get("msg", "done"))
except ConnectionError:
    said.append("cut off")
resp.sendall(b"JOB.DONE %b\r\n" % reference)
said.append(resp.recv(4096).decode().lstrip("-+").split()[0])
print(json.dumps(said), flush=True)
"""


class Holder:
    """A context, whose end kills it."""

    def __init__(self, server: ServerProcess) -> None:
        self._addresses = json.dumps([server.address("masenko"), server.address("resp")])

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-c", _PROGRAM, self._addresses],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def take(self) -> None:
        """Wait until it holds a Masenko task and a job of the queue q."""
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "taken\n"

    def tell(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def finish(self) -> list[str]:
        """Have it finish both; gives what it is told."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        said: list[str] = json.loads(self._process.stdout.readline())
        return said
