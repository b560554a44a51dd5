"""A Java on which Spark starts in half the time: with an archive of the classes that it loads.

Half of a start is the loading and checking of 15,000 classes; the archive has them as they are in
memory then. It is made once, and kept in build/. Programs of a test live for seconds, so they do
without the compiler and the collector that pay after minutes.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pyspark
from support.doc_sessions import ROOT

from taskyard.pipeline.spark.session import find_java

_KEPT: Final = ROOT / "build" / "spark-classes"
# One compiler alone gets 48 MB for what it makes; a session that runs all tests needs more.
_SHORT_LIVED: Final = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
_SILENT: Final = "-Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"
# Not for the small program that puts Spark's command line together: its classes are others.
_SHIM: Final = """\
#!/bin/sh
case " $* " in
    *' org.apache.spark.launcher.'*) exec {java} {flags} "$@" ;;
    *' org.apache.spark.deploy.'* | *' org.apache.spark.executor.'*) exec {java} {archived} "$@" ;;
    *) exec {java} {flags} "$@" ;;
esac
"""


def quick_java(directory: Path) -> Path:
    """A directory to be JAVA_HOME."""
    java = find_java()
    if not _can_archive(java):
        return _home(directory / "quick", java, "")
    archive = shlex.quote(str(_archive(java, directory)))
    return _home(directory / "quick", java, f"-XX:SharedArchiveFile={archive}")


def _can_archive(java: str) -> bool:
    """Whether it has the archive of its own classes, which others build upon."""
    asked = subprocess.run([java, "-Xshare:on", "-version"], capture_output=True, check=False)
    return asked.returncode == 0


def _archive(java: str, directory: Path) -> Path:
    """Where it is. One process makes it for all."""
    _KEPT.mkdir(parents=True, exist_ok=True)
    archive = _KEPT / f"{_key(java)}.jsa"
    with (_KEPT / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not archive.exists():
            _make(archive, java, directory)
    return archive


def _key(java: str) -> str:
    """Another one for whatever makes Java refuse it."""
    program = os.path.realpath(java)
    jars = Path(pyspark.__file__).parent / "jars"
    parts = (program, os.stat(program).st_mtime_ns, jars, jars.stat().st_mtime_ns)
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def _make(archive: Path, java: str, directory: Path) -> None:
    for old in _KEPT.glob("*.jsa"):
        old.unlink()
    fresh = directory / archive.name
    home = _home(directory / "first", java, f"-XX:ArchiveClassesAtExit={shlex.quote(str(fresh))}")
    environment = {**os.environ, "JAVA_HOME": str(home), "PYTHONPATH": os.pathsep.join(sys.path)}
    work = directory / "work"
    work.mkdir()
    program = Path(__file__).with_name("all_classes.py")
    subprocess.run([sys.executable, program, work], env=environment, check=True)
    shutil.move(fresh, archive.with_suffix(".new"))  # to what may be another disk
    archive.with_suffix(".new").rename(archive)


def _home(home: Path, java: str, flags: str) -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    archived = f"{_SHORT_LIVED} {_SILENT} {flags}"
    program.write_text(_SHIM.format(java=shlex.quote(java), flags=_SHORT_LIVED, archived=archived))
    program.chmod(0o755)
    return home
