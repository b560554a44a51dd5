"""`python -m taskyard.cli.lake_aside ...`: `taskyard lake ...`, as the server runs it for a while.

Standard input is only watched: it ends when the server does, also when that is killed, and then
this process ends too, with all it has started.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Sequence
from typing import Final

_NICENESS: Final = 10  # after the broker, and after what keeps the lake up to date


def main(argv: Sequence[str]) -> int:
    os.nice(_NICENESS)
    os.umask(0o077)  # for what Spark and its Java write as well
    watched = os.dup(0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    threading.Thread(target=_watch, args=(watched,), daemon=True).start()
    from taskyard.cli.main import main as taskyard

    return taskyard(["lake", *argv])


def _watch(number: int) -> None:
    while os.read(number, 1):
        pass
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
