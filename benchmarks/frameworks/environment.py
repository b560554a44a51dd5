"""The virtual environment of the frameworks: never that of the product."""

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks import rig

REQUIREMENTS: Final = Path(__file__).with_name("requirements.txt")
DIRECTORY: Final = rig.DEFAULT_DIRECTORY / "frameworks-venv"
INSTALL_SECONDS: Final = 600.0


@dataclass(frozen=True, slots=True)
class Environment:
    directory: Path

    @property
    def python(self) -> str:
        return str(self.directory / "bin" / "python")

    def script(self, name: str) -> str:
        return str(self.directory / "bin" / name)


def prepare(directory: Path = DIRECTORY) -> Environment:
    """With exactly what the requirements say; made again when they have changed."""
    done, wanted = directory / "installed.txt", REQUIREMENTS.read_text()
    environment = Environment(directory)
    if done.exists() and done.read_text() == wanted:
        return environment
    print(f"installing the frameworks into {directory}", flush=True)
    call([sys.executable, "-m", "venv", "--clear", str(directory)])
    pip = [environment.python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    call([*pip, "-r", str(REQUIREMENTS)])
    done.write_text(wanted)
    return environment


def versions() -> dict[str, str]:
    """Of what is named in the requirements, which are all pinned."""
    lines = [line for line in REQUIREMENTS.read_text().splitlines() if "==" in line]
    return dict(line.split("==", 1) for line in lines)


def call(command: Sequence[str]) -> None:
    try:
        run = subprocess.run(
            command, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise rig.BenchmarkError(f"{command[0]} took longer than {INSTALL_SECONDS:.0f} s") from None
    if run.returncode != 0:
        raise rig.BenchmarkError(f"{' '.join(command)}\n{run.stderr.strip()}")
