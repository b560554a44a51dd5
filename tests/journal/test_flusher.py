"""The thread that flushes without the interpreter: one flush at a time, and its failures."""

import errno
import os
import select
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from taskyard.broker import metrics
from taskyard.journal.flush import Flusher, make_flusher

pytestmark = pytest.mark.skipif(
    metrics.form() != "compiled", reason="only the compiled form has this thread"
)


@pytest.fixture
def flusher() -> Iterator[Flusher]:
    made = make_flusher()
    assert made is not None
    yield made
    made.close()


def wait_for(flusher: Flusher) -> int:
    select.select([flusher.fileno()], [], [])
    return flusher.end_flush()


def test_it_flushes_one_file_after_the_other(flusher: Flusher, tmp_path: Path) -> None:
    for number in range(20):
        with (tmp_path / f"{number}").open("wb", buffering=0) as file:
            file.write(b"data")
            flusher.begin_flush(file.fileno())
            assert wait_for(flusher) == 0


def test_nothing_is_over_before_it_has_begun(flusher: Flusher) -> None:
    assert flusher.end_flush() == -1


def test_how_long_a_flush_took_is_known_when_it_is_over(flusher: Flusher, tmp_path: Path) -> None:
    assert flusher.last_flush_us() == 0
    with (tmp_path / "file").open("wb", buffering=0) as file:
        file.write(bytes(1 << 20))
        began = time.monotonic_ns()
        flusher.begin_flush(file.fileno())
        assert flusher.last_flush_us() == 0
        assert wait_for(flusher) == 0
        assert 0 < flusher.last_flush_us() <= (time.monotonic_ns() - began) // 1000 + 1


def test_it_does_one_thing_at_a_time(flusher: Flusher, tmp_path: Path) -> None:
    with (tmp_path / "file").open("wb") as file:
        flusher.begin_flush(file.fileno())
        with pytest.raises(ValueError, match="under way"):
            flusher.begin_flush(file.fileno())
        assert wait_for(flusher) == 0
        flusher.begin_flush(file.fileno())
        assert wait_for(flusher) == 0


def test_a_failure_is_told(flusher: Flusher) -> None:
    read, write = os.pipe()
    try:
        flusher.begin_flush(write)  # cannot be flushed
        assert wait_for(flusher) == errno.EINVAL
    finally:
        os.close(read)
        os.close(write)


@pytest.mark.parametrize("file", [-1, 2**40])
def test_what_is_no_file_is_refused(flusher: Flusher, file: int) -> None:
    with pytest.raises(ValueError, match="not a file"):
        flusher.begin_flush(file)
    with pytest.raises(TypeError):
        flusher.begin_flush("file")  # type: ignore[arg-type]


def test_a_flush_under_way_comes_to_its_end_before_it_closes(tmp_path: Path) -> None:
    made = make_flusher()
    assert made is not None
    with (tmp_path / "file").open("wb") as file:
        file.write(bytes(1 << 20))
        made.begin_flush(file.fileno())
        made.close()
    made.close()
    with pytest.raises(ValueError, match="closed"):
        made.begin_flush(0)
