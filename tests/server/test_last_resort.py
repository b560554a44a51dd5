"""Errors that nobody has expected: which of them end the process."""

import subprocess
import sys

import pytest

from taskyard.broker.interfaces import is_fatal
from taskyard.engine.model.events import JobNotFound
from taskyard.journal.disk import RealFile


def caught(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as found:
        return found


def test_without_memory_nothing_is_sure() -> None:
    assert is_fatal(caught(MemoryError()))


def test_an_error_from_where_changes_are_made_is_fatal() -> None:
    with pytest.raises(OSError, match="Bad file") as found:
        RealFile(-1).size()
    assert is_fatal(found.value)


def test_refusals_and_mistakes_elsewhere_are_not() -> None:
    assert not is_fatal(caught(JobNotFound()))
    assert not is_fatal(caught(KeyError("of a dialect")))


PROGRAM = """
import asyncio
from taskyard.server import runtime

def without_memory():
    raise MemoryError

async def main():
    loop = asyncio.get_running_loop()
    runtime.install_crash_handler(loop)
    loop.call_soon(without_memory)
    loop.call_soon(print, "went on")
    await asyncio.sleep(60)

asyncio.run(main())
"""


def test_a_fatal_error_ends_the_process_before_anything_else_happens() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (70, "")
    assert "exiting at once" in done.stderr
