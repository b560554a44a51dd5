"""The user's page is true: its programs run as written."""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
import types
from pathlib import Path

import pytest
from support.sockets import HANG_GUARD
from tasks.workers import SOURCES
from toq.brokers import Running

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tasks.md"
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# (\w+\.py)\n")
URL = "taskyard://127.0.0.1:8002"

BLOCKS = BLOCK.findall(PAGE.read_text())
PROGRAMS = [(code, out) for code, out in BLOCKS if FILE.match(code) is None]


def as_here(program: str, url: str) -> str:
    """With the server of the test, and with its patience where a reader has ten seconds."""
    return program.replace(URL, url).replace("wait=10)", f"wait={HANG_GUARD})")


def test_the_first_task(server: Running, tmp_path: Path) -> None:
    for code, _ in BLOCKS:
        name = FILE.match(code)
        if name is not None:
            (tmp_path / name[1]).write_text(as_here(code, server.url))
    shown = re.search(r"python push\.py\n```\n\n```text\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert shown is not None
    environment = {**os.environ, "PYTHONPATH": SOURCES}
    worker = subprocess.Popen(
        [sys.executable, "-m", "taskyard", "work", "mail:app"],
        cwd=tmp_path,
        env=environment,
        stderr=subprocess.DEVNULL,
    )
    try:
        found = subprocess.run(
            [sys.executable, "push.py"],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=HANG_GUARD,
            check=False,
        )
        assert (found.stdout, found.stderr) == (shown[1], "")
        worker.terminate()
        assert worker.wait(HANG_GUARD) == 0
    finally:
        worker.kill()
        worker.wait()


@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_an_example(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    code, expected = PROGRAMS[number]
    module = types.ModuleType(f"example_{number}")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        compiled = compile(code, f"tasks.md, example {number}", "exec", dont_inherit=True)
        exec(compiled, vars(module))
    assert printed.getvalue() == expected
