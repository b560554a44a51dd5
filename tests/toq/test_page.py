"""The user's page is true: its programs run as written, on either back end."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.sockets import HANG_GUARD
from toq.brokers import Running

import taskyard
from taskyard.toq import Task

PAGE = Path(__file__).resolve().parents[2] / "docs" / "toq.md"
FENCED = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# (\w+\.py)\n")
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(taskyard.__file__).resolve().parents[1])}
URL = "taskyard://127.0.0.1:8002"


def blocks(language: str) -> list[str]:
    return [text for found, text in FENCED.findall(PAGE.read_text()) if found == language]


def as_here(program: str, url: str) -> str:
    """With the server of the test, and with its patience where a reader has ten seconds."""
    return program.replace(URL, url).replace("timeout=10)", f"timeout={HANG_GUARD})")


@pytest.fixture
def programs(running: Running, tmp_path: Path) -> Path:
    """A directory with the files that the page tells to save."""
    for block in blocks("python"):
        name = FILE.match(block)
        if name is not None:
            assert URL in block
            (tmp_path / name[1]).write_text(as_here(block, running.url))
    return tmp_path


def test_the_producer_gets_what_the_consumer_did(programs: Path) -> None:
    consumer = subprocess.Popen(
        [sys.executable, "consumer.py"],
        cwd=programs,
        env=ENVIRONMENT,
        stderr=subprocess.DEVNULL,
    )
    try:
        producer = subprocess.run(
            [sys.executable, "producer.py"],
            cwd=programs,
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
            timeout=HANG_GUARD,
            check=False,
        )
        assert (producer.stdout, producer.stderr) == ("True 6\n", "")
        consumer.terminate()
        assert consumer.wait(HANG_GUARD) == 0
    finally:
        consumer.kill()
        consumer.wait()


def test_the_other_examples_run() -> None:
    names: dict[str, Any] = {}
    for block in blocks("python"):
        if FILE.match(block) is None:
            exec(compile(block, "toq.md", "exec"), names)
    assert names["resize"](names["task"]) == {"file": "a.png", "width": 100}
    assert names["resize"](Task(key="a", args='{"file": "a"}')).message == "not a picture"
