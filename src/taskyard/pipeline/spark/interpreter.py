"""The Python that Spark starts: the one that runs here, with the modules that are installed for it.

Spark puts its own copy of itself first, in an archive, of which Python compiles each module anew
in each process: 1.2 seconds of CPU before a source or a sink does anything, in place of 0.4. It
starts such a process for every batch, and gives up on one that is not there in 10 seconds.
"""

from __future__ import annotations

import atexit
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pyspark

_NAME: Final = "PYSPARK_PYTHON"
_SHIM: Final = """\
#!/bin/sh
set -f
IFS=:
kept=
for place in $PYTHONPATH; do
    case $place in
        */pyspark.zip | */py4j-*-src.zip | */spark-core_*.jar) ;;
        *) kept=$kept:$place ;;
    esac
done
PYTHONPATH=${{kept#:}} exec {python} "$@"
"""


@contextmanager
def quick_python() -> Iterator[None]:
    """For sessions that are made meanwhile, on this machine, unless somebody has named a Python."""
    if _NAME in os.environ or ".zip" in (pyspark.__file__ or ".zip"):
        yield
        return
    os.environ[_NAME] = _shim()
    try:
        yield
    finally:
        del os.environ[_NAME]  # programs that are started from here may live longer than the shim


def _shim() -> str:
    directory = Path(tempfile.mkdtemp(prefix="taskyard-python-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    shim = directory / "python"
    shim.write_text(_SHIM.format(python=shlex.quote(sys.executable)))
    shim.chmod(0o755)
    return str(shim)
