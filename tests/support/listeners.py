"""The listeners of a server process: every one on a free port, and where each has come to be."""

import json
import socket
from pathlib import Path
from types import TracebackType
from typing import Self

DIALECTS = ("masenko", "workq", "resp", "http")


def any_ports(flags: list[str]) -> list[str]:
    """Flags that give a free port to each listener that these flags say nothing of."""
    options = [f"--{dialect}-port" for dialect in DIALECTS]
    return [part for option in options if option not in flags for part in (option, "0")]


def address_of(ports_file: Path, dialect: str) -> tuple[str, int]:
    listener = json.loads(ports_file.read_bytes())[dialect]
    return listener["host"], listener["port"]


class KeptPort:
    """A port that nobody else gets while it is kept, also when no server listens there: connections
    are refused then. A server of ours can listen there beside it, and again after its end.
    """

    def __init__(self) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("127.0.0.1", 0))
        self.number: int = self._socket.getsockname()[1]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()
