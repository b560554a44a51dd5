"""Processes that fill a lake, and that are killed or halted at a chosen commit.

A JVM takes seconds to start. So a program starts Spark once, and forks for each driver: that is
killed as hard as any, without the JVM. It must not use delta-rs before, whose threads do not
outlive a fork.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import traceback
from pathlib import Path
from typing import Any, Self

KILL, STOP = "SIGKILL", "SIGSTOP"
GOOD, FAILED, REFUSED = 0, 1, 3  # exit statuses


class Drivers:
    """One driver after the other, each a process."""

    def __init__(self, directory: Path, master: str = "local[2]") -> None:
        self._log = directory / "drivers.log"
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        with self._log.open("wb") as log:
            self._program = subprocess.Popen(
                [sys.executable, "-m", "pipeline.lake_driver", master],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
                cwd=directory,
                text=True,
                start_new_session=True,
            )
        self.ui = self._line().strip()  # of Spark

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        os.killpg(self._program.pid, signal.SIGKILL)
        with self._program:  # which waits for it, and closes the pipes
            pass

    def run(self, data: Path | None, lake: Path | str, **what: Any) -> int | str:
        """Give the exit status, or the name of the signal that has killed it."""
        self.start(data, lake, **what)
        return self.wait()

    def start(
        self,
        data: Path | None,
        lake: Path | str,
        *,
        method: str = "",
        table: str = "",
        send: str = KILL,
        **options: Any,
    ) -> int:
        """Give the pid. `send` this signal behind a call for this table of `method`, which is one
        of Store, or a function beside it."""
        asked = {
            "data": None if data is None else str(data),
            "lake": str(lake),
            "method": method,
            "table": table,
            "send": send,
            "options": options,
        }
        assert self._program.stdin is not None
        self._program.stdin.write(json.dumps(asked) + "\n")
        self._program.stdin.flush()
        return int(self._line())

    def wait(self) -> int | str:
        status = int(self._line())
        if os.WIFSIGNALED(status):
            return signal.Signals(os.WTERMSIG(status)).name
        return os.WEXITSTATUS(status)

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def said(self) -> str:
        """Why the last one that was refused was so."""
        found: list[str] = re.findall(r"^refused: (.*)$", self.log(), re.MULTILINE)
        return found[-1]

    def _line(self) -> str:
        assert self._program.stdout is not None
        line = self._program.stdout.readline()
        assert line, self.log()
        return line


def _main() -> None:
    import taskyard.spark

    conf = {"spark.sql.shuffle.partitions": "2", "spark.sql.codegen.wholeStage": "false"}
    conf |= {"spark.sql.streaming.pollingDelay": "20ms"}
    conf |= {"spark.executor.memory": "512m", "spark.driver.memory": "512m"}
    spark = taskyard.spark.session(sys.argv[1], name="drivers", conf=conf, ui=True)
    _say(spark.sparkContext.uiWebUrl)
    for line in sys.stdin:
        pid = os.fork()
        if not pid:
            # Py4J has a connection for each thread: that of this one is the program's.
            driver = threading.Thread(target=_drive, args=(spark, json.loads(line)))
            driver.start()
            driver.join()
            os._exit(FAILED)
        _say(pid)
        _say(os.waitpid(pid, 0)[1])


def _say(what: object) -> None:
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


def _drive(spark: Any, asked: dict[str, Any]) -> None:
    from pipeline.lake_runs import read_in

    from taskyard.pipeline.lake import store
    from taskyard.pipeline.lake.errors import LakeError
    from taskyard.pipeline.lake.storage import Storage

    if asked["method"]:
        owner = store.Store if hasattr(store.Store, asked["method"]) else store
        _watch(owner, asked["method"], asked["table"], signal.Signals[asked["send"]])
    options = asked["options"]
    lake = Storage(asked["lake"], options.pop("storage_options", None))
    try:
        read_in(spark, asked["data"], lake, **options)
    except LakeError as error:
        sys.stderr.write(f"refused: {error}\n")
        sys.stderr.flush()
        os._exit(REFUSED)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(FAILED)
    os._exit(GOOD)


def _watch(owner: Any, method: str, table: str, number: signal.Signals) -> None:
    original = getattr(owner, method)

    def watched(first: Any, given: Any, *rest: Any) -> Any:
        found = original(first, given, *rest)
        if given.name == table:
            os.kill(os.getpid(), number)
        return found

    setattr(owner, method, watched)


if __name__ == "__main__":
    _main()
