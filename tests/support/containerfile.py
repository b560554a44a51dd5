"""A Containerfile, read and carried out as far as it can be without a container engine.

Every stage gets the same directory in the place of `/`, one after the other: so what one stage
copies from another is where its own absolute paths say. A base image is the Python that runs this,
and what the machine has; packages of the system are not installed, and users are not made.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

# Absolute paths, but neither /var/lib/apt nor those of programs of the system.
OURS = re.compile(r"(?<![\w./:-])/(?:opt|src|wheels|etc/taskyard|var/lib/taskyard)\b")
# Commands that change the machine itself.
FOREIGN = re.compile(r"^(?:apt-get|useradd)\b")


@dataclass
class Stage:
    name: str
    base: str
    instructions: list[tuple[str, str]] = field(default_factory=list)

    def last(self, word: str) -> list[str]:
        """The words of an instruction of which the last one counts."""
        found = [text for name, text in self.instructions if name == word]
        words: list[str] = json.loads(re.sub(r"^.*?(?=\[)", "", found[-1]))
        return words


def read(path: Path) -> list[Stage]:
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    stages: list[Stage] = []
    for line in re.sub(r"\\\n\s*", "", "\n".join(lines)).splitlines():
        word, _, text = line.partition(" ")
        if word == "FROM":
            base, _, name = text.partition(" AS ")
            stages.append(Stage(name, base))
        elif word:
            stages[-1].instructions.append((word, text.strip()))
    return stages


def ignored(context: Path) -> list[str]:
    return (context / ".dockerignore").read_text().split()


class Builder:
    """Carries out the instructions of stages below `place`, with the files of `context`."""

    def __init__(self, context: Path, place: Path, arguments: dict[str, str]) -> None:
        self.root = place / "root"
        self._context = context
        self._place = place
        self._arguments = arguments
        self._bin = place / "bin"
        self._bin.mkdir()
        (self._bin / "python").symlink_to(sys.executable)
        self.foreign: list[str] = []  # what was left out

    def build(self, stage: Stage) -> None:
        """Leaves what the stage consists of in `root`."""
        self.root.mkdir()
        work = self.root
        variables: dict[str, str] = {}
        for word, text in stage.instructions:
            if word == "WORKDIR":
                work = Path(self._moved(text))
                work.mkdir(parents=True, exist_ok=True)
            elif word == "ARG":
                name, _, default = text.partition("=")
                variables[name] = self._arguments.get(name, default)
            elif word == "COPY":
                self._copy(text.split(), work)
            elif word == "RUN":
                self._run(text, work, variables)

    def keep(self, stage: Stage) -> None:
        """Make room for the next stage, which may copy from this one."""
        self.root.rename(self._place / stage.name)

    def _moved(self, text: str) -> str:
        return OURS.sub(lambda match: f"{self.root}{match[0]}", text)

    def _run(self, command: str, work: Path, variables: dict[str, str]) -> None:
        if FOREIGN.match(command):
            self.foreign.append(command)
            return
        path = f"{self._bin}{os.pathsep}{os.environ['PATH']}"
        clean = {name: it for name, it in os.environ.items() if not name.startswith("PYTHON")}
        done = subprocess.run(
            ["sh", "-ec", self._moved(command)],
            cwd=work,
            env={**clean, **variables, "PATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"RUN {command}\n{done.stdout[-5000:]}"

    def _copy(self, words: list[str], work: Path) -> None:
        *sources, target = words
        if sources[0].startswith("--from="):
            origin = self._place / sources.pop(0).removeprefix("--from=")
            [source] = sources
            shutil.copytree(origin / source[1:], Path(self._moved(target)), symlinks=True)
        elif sources == ["."]:
            shutil.copytree(self._context, work / target, ignore=self._left_out, dirs_exist_ok=True)
        else:
            for name in sources:
                shutil.copy(self._context / name, work / target)

    def _left_out(self, directory: str, names: list[str]) -> list[str]:
        below = Path(directory).relative_to(self._context)
        return [name for name in names if self._is_left_out((below / name).as_posix())]

    def _is_left_out(self, path: str) -> bool:
        """As much of its rules as the file uses: whole names at the top, and `**/` anywhere."""
        name = path.rpartition("/")[2]
        return any(
            fnmatch(name, pattern[3:]) if pattern.startswith("**/") else path == pattern
            for pattern in ignored(self._context)
        )
