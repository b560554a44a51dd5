"""A small disk of its own for a server: a tmpfs in a mount namespace that nobody else sees."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

_HOLD = 'mount -t tmpfs -o "size=$1,mode=700" none "$0" && echo mounted && exec cat'


class SmallDisk:
    """Mounted at `path` for whoever is started with `wrapper`; it stays until the end.

    Needs no privileges where users may have namespaces of their own.
    """

    def __init__(self, path: Path, size: str) -> None:
        self.path = path
        self._size = size
        self._holder: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.path.mkdir(parents=True, exist_ok=True)
        flags = "-m" if os.geteuid() == 0 else "-rm"
        self._holder = subprocess.Popen(
            ["unshare", flags, "sh", "-c", _HOLD, str(self.path), self._size],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self._holder.stdout is not None
        if self._holder.stdout.readline() != b"mounted\n":
            _, text = self._holder.communicate()
            raise AssertionError(
                "these tests need a small tmpfs in a mount namespace (root, or user namespaces): "
                + text.decode(errors="replace")
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._holder is not None
        self._holder.communicate()

    @property
    def wrapper(self) -> list[str]:
        """What to put before a command for it to see this disk."""
        assert self._holder is not None
        flags = ["-m"] if os.geteuid() == 0 else ["-U", "--preserve-credentials", "-m"]
        enter = ["nsenter", "-t", str(self._holder.pid), *flags, "--"]
        return [*enter, "sh", "-c", 'cd "$0" && exec "$@"', str(Path.cwd())]  # where we are now

    def run(self, *command: str) -> str:
        done = subprocess.run(
            [*self.wrapper, *command], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout

    def resize(self, size: str) -> None:
        options = ["--options-mode", "ignore", "-o", f"remount,size={size}"]
        self.run("mount", *options, "none", str(self.path))
