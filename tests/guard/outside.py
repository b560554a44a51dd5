"""Counts system calls and bytes written: a server process under strace.

The server is held still while a round's commands are sent to it, so that it finds all of them when
it looks, and the same calls follow each time. What a timer wakes it for is not counted: how many of
those there are depends on how long it takes.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Final, Self

from guard.workloads import Channel
from simulation.frames import Frames, handshake, masked
from support.process import ServerProcess
from support.sockets import HANG_GUARD
from support.waiting import wait_for

LISTENERS: Final = {"lists": "resp", "pqueue": "resp", "glovebox": "http"}
TEXT: Final = 1
QUIET: Final = ("--heartbeat", "10m", "--slow-command", "10m")
"""Nothing that would be done, or said in the log, only because a machine is slow."""
_CALL: Final = re.compile(r"^\d+ +(\w+)\((.*)\) += (-?\d+)")
_POLLS: Final = re.compile(r"^epoll_p?wait2?$")
_MEMORY: Final = frozenset(("brk", "mmap", "munmap", "mremap", "madvise"))
"""Not counted: when an allocator wants more depends on all that has been before."""
_WRITES: Final = re.compile(r"^p?writev?(64|2)?$")


class Lines:
    """A connection of a protocol of lines."""

    def __init__(self, server: Server, address: tuple[str, int]) -> None:
        self._server = server
        self.socket = socket.create_connection(address, timeout=HANG_GUARD)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.port: int = self.socket.getsockname()[1]
        self.sent = 0  # bytes so far
        self._unread = b""

    def say(self, messages: Sequence[bytes]) -> None:
        self.send(b"".join(messages))

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)
        self.sent += len(data)

    def hear(self) -> bytes:
        while b"\n" not in self._unread:
            self._unread += self.receive()
        line, end, self._unread = self._unread.partition(b"\n")
        return line + end

    def receive(self) -> bytes:
        data = self.socket.recv(1 << 16)
        assert data, f"the server has closed the connection:\n{self._server.log_text()}"
        return data


class Messages(Lines):
    """A WebSocket."""

    def __init__(self, server: Server, address: tuple[str, int]) -> None:
        super().__init__(server, address)
        self._chance = Random(1)
        self._frames = Frames()
        self._heard: deque[bytes] = deque()
        self.send(handshake(self._chance))
        self.hear()

    def say(self, messages: Sequence[bytes]) -> None:
        self.send(b"".join(masked(TEXT, message, self._chance) for message in messages))

    def hear(self) -> bytes:
        while not self._heard:
            self._heard.extend(
                data for kind, data in self._frames.feed(self.receive()) if kind == TEXT
            )
        return self._heard.popleft()


class Server:
    """A server process on an own directory: a context, and a place for workloads."""

    def __init__(self, directory: Path, *flags: str, sync_mode: str = "inline") -> None:
        self._directory = directory
        self._process = ServerProcess(directory, *QUIET, "--sync-mode", sync_mode, *flags)
        self._opened = ExitStack()
        self._channels: list[Lines] = []

    def __enter__(self) -> Self:
        self._process.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._opened.close()
        self._process.__exit__(kind, error, trace)

    def log_text(self) -> str:
        return self._process.log_text()

    def open(self, dialect: str) -> Channel:
        address = self._process.address(LISTENERS.get(dialect, dialect))
        channel = (Messages if dialect == "glovebox" else Lines)(self, address)
        self._opened.enter_context(channel.socket)
        self._channels.append(channel)
        return channel

    @contextmanager
    def together(self) -> Iterator[None]:
        """It stands still meanwhile, and goes on when all of it is in its sockets' buffers."""
        before = {channel.port: channel.sent for channel in self._channels}
        self._process.tell(signal.SIGSTOP)
        wait_for(self._stands_still)
        try:
            yield
            said = {channel.port: channel.sent - before[channel.port] for channel in self._channels}
            wait_for(lambda: has_arrived(said))
        finally:
            self._process.tell(signal.SIGCONT)

    def _stands_still(self) -> bool:
        tasks = Path(f"/proc/{self._process.pid}/task")
        states = [
            (tasks / task / "stat").read_text().rpartition(")")[2] for task in os.listdir(tasks)
        ]
        return all(state.split()[0] in "Tt" for state in states)

    @contextmanager
    def counted(self) -> Iterator[Counts]:
        """Filled when the block has ended."""
        counts = Counts()
        notes = self._directory / "calls.txt"
        with traced(self._process.pid, notes):
            yield counts
        counts.read(notes.read_text(errors="replace"), self._process.data)


@dataclass(slots=True)
class Counts:
    calls: int = 0
    bytes: int = 0
    """Written to the server's files."""
    by_name: Counter[str] | None = None

    def read(self, notes: str, data: Path) -> None:
        """What a round of the loop does that began without a client is left out, but for bytes."""
        names: Counter[str] = Counter()
        asked = False  # whether this round of the loop was begun by clients
        for line in whole_lines(notes):
            call = _CALL.match(line)
            if call is None:
                continue
            name, arguments, result = call[1], call[2], call[3]
            if _POLLS.match(name):
                asked = not is_of_timer(arguments, result)
            if _WRITES.match(name) and f"<{data}/" in arguments:
                self.bytes += int(result)
            if asked and name not in _MEMORY:
                names[name] += 1
        self.by_name = names
        self.calls = names.total()


def whole_lines(notes: str) -> Iterator[str]:
    """A call during which another thread made one stands in two lines: these as one."""
    begun: dict[str, str] = {}
    for line in notes.splitlines():
        thread = line.partition(" ")[0]
        if line.endswith("<unfinished ...>"):
            begun[thread] = line.removesuffix("<unfinished ...>")
        elif " resumed>" in line:
            yield begun.pop(thread, "") + line.partition(" resumed>")[2]
        else:
            yield line


def is_of_timer(arguments: str, result: str) -> bool:
    """Whether a wait has ended because of a timer, or because we have held the server still."""
    timeout = arguments.rpartition("], ")[2].split(", ")[1]
    return result == "-1" or (result == "0" and timeout != "0")


def has_arrived(said: dict[int, int]) -> bool:
    """Whether so many bytes from each of these ports of ours wait to be read."""
    unread: dict[int, int] = {}
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        peer, queues = line.split()[2], line.split()[4]
        unread[int(peer.partition(":")[2], 16)] = int(queues.partition(":")[2], 16)
    return all(unread.get(port, 0) >= size for port, size in said.items() if size)


@contextmanager
def traced(pid: int, notes: Path) -> Iterator[None]:
    """strace writes down each call of the process and its threads, with what descriptors are."""
    assert shutil.which("strace"), "this guard needs strace (Debian: apt-get install strace)"
    said = notes.with_suffix(".log")
    command = [
        "strace",
        "-f",
        "-y",
        "-s",
        "0",
        "-e",
        "signal=none",
        "-p",
        str(pid),
        "-o",
        str(notes),
    ]
    with said.open("wb") as log:
        child = subprocess.Popen(command, stderr=log, stdin=subprocess.DEVNULL)

    def attached() -> bool:
        assert child.poll() is None, f"strace cannot attach: {said.read_text(errors='replace')}"
        tasks = Path(f"/proc/{pid}/task")
        return all(
            "TracerPid:\t0\n" not in (tasks / task / "status").read_text()
            for task in os.listdir(tasks)
        )

    try:
        wait_for(attached)
        yield
    finally:
        child.send_signal(signal.SIGINT)
        child.wait(HANG_GUARD)
