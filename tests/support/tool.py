"""The `taskyard` command: in this process, in one of its own, or in a terminal.

In this process it is called as its script does it, which is some fifty times faster.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from unittest import mock

from support.pty_session import PtySession
from support.sockets import HANG_GUARD

from taskyard.cli.main import main


@dataclass(frozen=True, slots=True)
class Ran:
    code: int
    out: str
    err: str
    data: bytes  # what was written to the output, as it is

    @property
    def objects(self) -> list[dict[str, Any]]:
        """The lines of --json."""
        return [json.loads(line) for line in self.out.splitlines()]


class _Stream(io.TextIOWrapper):
    buffer: io.BytesIO


def _stream(data: bytes = b"") -> _Stream:
    return _Stream(io.BytesIO(data), encoding="utf-8")


def _ran(code: int, out: bytes, err: bytes) -> Ran:
    said = err.decode()
    assert "Traceback (most recent call last)" not in said, said
    return Ran(code, out.decode(errors="replace"), said, out)


class Tool:
    def __init__(self, url: str) -> None:
        self.environment = {**os.environ, "TASKYARD_URL": url}
        self.environment.pop("NO_COLOR", None)
        self.environment.pop("COLUMNS", None)

    def __call__(self, *arguments: str, given: bytes = b"", **environment: str) -> Ran:
        """Runs it to its end, in this process."""
        out, err = _stream(), _stream()
        with (
            mock.patch.dict(os.environ, self._with(environment), clear=True),
            mock.patch.multiple(sys, stdin=_stream(given), stdout=out, stderr=err),
        ):
            try:
                code = main(arguments)
            except SystemExit as exit_:  # of the parser
                code = int(exit_.code or 0)
            out.flush()
            err.flush()
        return _ran(code, out.buffer.getvalue(), err.buffer.getvalue())

    def process(self, *arguments: str, given: bytes = b"", **environment: str) -> Ran:
        """The same in a process of its own."""
        done = subprocess.run(
            self.argv(*arguments),
            input=given,
            capture_output=True,
            env=self._with(environment),
            timeout=HANG_GUARD,
            check=False,
        )
        return _ran(done.returncode, done.stdout, done.stderr)

    def ok(self, *arguments: str, given: bytes = b"") -> str:
        """The same; it must succeed, and what it printed is given."""
        ran = self(*arguments, given=given)
        assert ran.code == 0, ran.err
        return ran.out

    def in_terminal(
        self, *arguments: str, rows: int = 24, columns: int = 80, **environment: str
    ) -> PtySession:
        return PtySession(
            self.argv(*arguments), self._with(environment), rows=rows, columns=columns
        )

    def argv(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "taskyard", *arguments]

    def _with(self, environment: Mapping[str, str]) -> dict[str, str]:
        return {**self.environment, **environment}
