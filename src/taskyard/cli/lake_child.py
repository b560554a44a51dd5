"""`python -m taskyard.cli.lake_child ...`: `taskyard lake ...` as the server runs it.

Standard output has what the command prints, and nothing else; what anything below it prints goes to
standard error. Standard input is only watched: it ends when the server does, also when that is
killed, and then this process ends too, with all it has started.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

_NICENESS: Final = 10  # the broker's turns come before the lake's
_STOP_TIMEOUT_S: Final = 5.0  # seconds for a batch to end when the server has vanished


def main(
    argv: Sequence[str],
    run: Callable[[Sequence[str]], int] | None = None,
    patience: float = _STOP_TIMEOUT_S,
) -> int:
    _lower_priority()
    sys.stdout = os.fdopen(_move_descriptor(1, 2), "w", encoding="utf-8")
    watched = _move_descriptor(0, os.open(os.devnull, os.O_RDONLY))
    # What is run takes the signal over; until then, nothing may be left of what was started so far.
    signal.signal(signal.SIGTERM, lambda number, frame: _kill_process_group())
    gone = threading.Event()
    watch = threading.Thread(target=_end_with_server, args=(watched, gone, patience), daemon=True)
    watch.start()
    try:
        return (run or _run)(argv)
    finally:
        if gone.is_set():  # no other process would end what is left
            _kill_process_group()


def _lower_priority() -> None:
    """To the broker: this process and all that it starts."""
    os.nice(_NICENESS)
    os.umask(0o077)  # for what Spark and its Java write as well
    with contextlib.suppress(OSError):
        # Where a session's processes are weighed together, as on most desktops and many servers,
        # their niceness says nothing to other sessions: this does.
        Path("/proc/self/autogroup").write_text(str(_NICENESS))
    with contextlib.suppress(OSError):
        # A thread that wakes up does not interrupt another.
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def _run(argv: Sequence[str]) -> int:
    from taskyard.cli.main import main as taskyard

    return taskyard(["lake", *argv])


def _move_descriptor(number: int, other: int) -> int:
    """Another number for a file, which no descendant gets; its old one is for the other file."""
    kept = os.dup(number)
    os.dup2(other, number)
    return kept


def _end_with_server(number: int, gone: threading.Event, patience: float) -> None:
    while os.read(number, 1):
        pass
    gone.set()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(patience)
    _kill_process_group()


def _kill_process_group() -> None:
    """This process, and all of its group."""
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
