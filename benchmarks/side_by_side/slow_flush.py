"""A disk whose flush takes longer, for servers that are started meanwhile.

It is a library that is loaded before the C library and lets `fsync` and `fdatasync` wait. Servers
that do not call these there, such as those in Go, do not notice.
"""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from benchmarks import rig

SOURCE: Final = Path(__file__).with_suffix(".c")


def compile_library(directory: Path) -> Path:
    compiler = os.environ.get("CC") or "cc"
    if shutil.which(compiler) is None:
        raise rig.BenchmarkError(f"a slow flush needs a C compiler, and {compiler} was not found")
    directory.mkdir(parents=True, exist_ok=True)
    library = directory / "slow_flush.so"
    command = [compiler, "-O2", "-Wall", "-Wextra", "-shared", "-fPIC", "-o", str(library)]
    built = subprocess.run(
        [*command, str(SOURCE), "-ldl"], capture_output=True, text=True, timeout=60, check=False
    )
    if built.returncode != 0:
        raise rig.BenchmarkError(f"{SOURCE.name} does not compile:\n{built.stderr}")
    return library


@contextlib.contextmanager
def flushes_delayed(library: Path, milliseconds: float) -> Iterator[None]:
    """What is started within this has a disk of that kind."""
    changes = {"LD_PRELOAD": str(library), "FLUSH_DELAY_US": str(round(milliseconds * 1000))}
    before = {name: os.environ.get(name) for name in changes}
    if before["LD_PRELOAD"]:
        changes["LD_PRELOAD"] += f":{before['LD_PRELOAD']}"
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
