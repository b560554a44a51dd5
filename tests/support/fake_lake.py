"""Speaks as the lake's process does, without Spark: `python -m support.fake_lake HOW ...`.

`follow`: reads the journal and says how far it has come. `deaf`: does not end when it is told to.
`broken`: ends at once. `family`: has a child that would stay. Each start adds a line to the file
`starts` in the lake's directory.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from support.sockets import POLL_INTERVAL

from taskyard.cli import lake_child
from taskyard.journal.disk import RealDisk
from taskyard.journal.reader import JournalReader


def run(argv: Sequence[str]) -> int:
    how, *rest = argv
    flags = dict(zip(rest[3::2], rest[4::2], strict=True))  # behind run --follow --json
    lake = Path(flags["--lake"])
    lake.mkdir(exist_ok=True)
    with (lake / "starts").open("a", encoding="ascii") as file:
        file.write(f"{os.getpid()}\n")
    return HOWS[how](Path(flags["--data"]), lake)


def follow(data: Path, lake: Path) -> int:
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda number, frame: over.set())
    os.write(1, b"an idle remark\n")  # as a library may do that knows no sys.stdout
    sys.stderr.write("Warning: a remark\n")
    report(state="starting", next_seq=0)
    told = 0
    while not over.is_set():
        reader = JournalReader(RealDisk(str(data / "journal")), live=True)
        last = max((entry.seq for entry in reader.read(1, True)), default=0)
        if last > told:
            told = last
            report(state="following", next_seq=last + 1, events_per_second=12.5)
        time.sleep(POLL_INTERVAL)
    report(state="stopped", next_seq=told + 1)
    return 0


def deaf(data: Path, lake: Path) -> int:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    report(next_seq=1)
    threading.Event().wait()
    return 0


def broken(data: Path, lake: Path) -> int:
    raise RuntimeError("the tables are of another journal")


def family(data: Path, lake: Path) -> int:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    (lake / "child").write_text(f"{child.pid}\n", encoding="ascii")
    return deaf(data, lake)


def report(**told: object) -> None:
    line = {"pid": os.getpid(), "state": "running", "batch": 1, "error": None, **told}
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


HOWS = {"follow": follow, "deaf": deaf, "broken": broken, "family": family}

if __name__ == "__main__":
    sys.exit(lake_child.main(sys.argv[1:], run, patience=0.3))
