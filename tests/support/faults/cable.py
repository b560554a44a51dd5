"""Two network namespaces with a cable between them that can be cut.

The server is on the near side. Clients are on the far side, or on the near one beside the server:
these go on when the cable is cut. No address of it exists outside.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from support.faults.far_side import RemoteNamespace

NEAR, FAR = "10.77.0.1", "10.77.0.2"
_HOLD = "ip link set lo up && echo there && exec cat"


class Cable:
    """Needs no privileges where users may have namespaces of their own."""

    def __init__(self) -> None:
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.callback(self._end)
            root = os.geteuid() == 0
            self._near = self._hold(["unshare", "-n" if root else "-rn"])
            beside = [] if root else [*_enter(self._near, user=True), "--"]
            self._far = self._hold([*beside, "unshare", "-n"])
            self._plug_in()
            self.near = self._stack.enter_context(RemoteNamespace(self.near_side))
            self.far = self._stack.enter_context(RemoteNamespace(self.far_side))
            stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def cut(self) -> None:
        """Nothing gets through, and nobody is told."""
        _run([*self.far_side, "ip", "link", "set", "yard1", "down"])

    def mend(self) -> None:
        _run([*self.far_side, "ip", "link", "set", "yard1", "up"])

    @property
    def near_side(self) -> list[str]:
        """What to put before a command for it to be there."""
        return [*_enter(self._near, user=os.geteuid() != 0), "-n", "--"]

    @property
    def far_side(self) -> list[str]:
        return [*_enter(self._far, user=os.geteuid() != 0), "-n", "--"]

    def _hold(self, command: Sequence[str]) -> subprocess.Popen[bytes]:
        holder = subprocess.Popen(
            [*command, "sh", "-c", _HOLD],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._stack.callback(holder.communicate)
        assert holder.stdout is not None
        assert holder.stderr is not None
        if holder.stdout.readline() != b"there\n":
            raise AssertionError(
                "these tests need network namespaces (root, or user namespaces) and iproute2: "
                + holder.stderr.read().decode(errors="replace")
            )
        return holder

    def _plug_in(self) -> None:
        peer = ["peer", "name", "yard1", "netns", str(self._far.pid)]
        _run([*self.near_side, "ip", "link", "add", "yard0", "type", "veth", *peer])
        for side, name, address in ((self.near_side, "yard0", NEAR), (self.far_side, "yard1", FAR)):
            _run([*side, "ip", "address", "add", f"{address}/24", "dev", name])
            _run([*side, "ip", "link", "set", name, "up"])

    def _end(self) -> None:
        self._stack.close()


def _enter(holder: subprocess.Popen[bytes], *, user: bool) -> list[str]:
    return ["nsenter", "-t", str(holder.pid), *(["-U", "--preserve-credentials"] if user else [])]


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stderr}"
