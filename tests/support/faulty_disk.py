"""A disk that does what a test says: a library that stands between a process and its disk."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from support.waiting import wait_for

SOURCE = Path(__file__).with_name("faults.c")


def compile_shim(directory: Path) -> Path:
    library = directory / "faults.so"
    compiler = (os.environ.get("CC") or "cc").split()[0]
    command = [compiler, "-shared", "-fPIC", "-o", str(library), str(SOURCE), "-ldl"]
    subprocess.run(command, check=True)
    return library


class Faults:
    """What is wrong with the disk of the processes that have `environment`."""

    def __init__(self, directory: Path, shim: Path) -> None:
        self._path = directory / "faults"
        self._held = directory / "faults.held"
        self.environment = {"LD_PRELOAD": str(shim), "FAULTS": str(self._path)}

    def are(self, *words: str) -> None:
        """From now on; see support/faults.c."""
        draft = self._path.with_suffix(".new")
        draft.write_text(" ".join(words))
        draft.rename(self._path)

    def wait_until_held(self) -> None:
        """A flush has begun that "hold" keeps from ending."""
        wait_for(self._held.exists)
