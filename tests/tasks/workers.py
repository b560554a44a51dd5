"""`taskyard work` as a process that a test starts, signals and kills; and the server beside it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from support.child import Child

import taskyard

HERE = Path(__file__).parent
SOURCES = str(Path(taskyard.__file__).resolve().parents[1])


class WorkerProcess(Child):
    """Of the app in yard.py, whose tasks leave their marks in the directory."""

    def __init__(
        self,
        directory: Path,
        url: str,
        *options: str,
        app: str = "yard:app",
        cwd: Path = HERE,
    ) -> None:
        environment = {
            **os.environ,
            "PYTHONPATH": SOURCES,
            "TASKYARD_URL": url,
            "YARD_DIRECTORY": str(directory),
        }
        command = [sys.executable, "-m", "taskyard", "work", app, "--poll", "0.1", *options]
        super().__init__(directory, command, cwd=cwd, env=environment)


def marks(directory: Path, name: str) -> list[str]:
    path = directory / name
    return path.read_text().splitlines() if path.exists() else []
