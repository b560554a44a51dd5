"""Build with mypyc: compiles the modules listed under [tool.taskyard] in pyproject.toml, and brings
the libraries of the dashboard with scripts/vendor; without the npm registry it does without them.

TASKYARD_COMPILE: "auto" (the default) compiles when it can and falls back to plain Python with a
warning, "1" must compile, "0" never does. "quick" must compile too, in a third of the time: the C
compiler optimizes little, which is enough for tests.

TASKYARD_VENDOR: "0" downloads nothing; what scripts/vendor has brought before is taken anyway.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Iterator
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
SOURCE = ROOT / "src"
MODES = ("auto", "1", "0", "quick")
# Else every function may be replaced when the library is loaded: none could be put in line, and
# each call would go by a table.
DIRECT_CALLS = ["-fno-semantic-interposition", "-fvisibility=hidden"]
COLD_ERRORS = ["-include", str(ROOT / "scripts" / "cold.h")]
NO_WARNINGS = ["-w", "-Wno-all", "-Wno-maybe-uninitialized"]
OPTIONS = [*DIRECT_CALLS, *COLD_ERRORS, *NO_WARNINGS]
REQUIRED = ("1", "quick")  # they never fall back to plain Python
# Commands that only write metadata; they need no extension, and mypyc takes its time.
METADATA_COMMANDS = {"dist_info", "egg_info"}


class BuildError(Exception):
    """The compiled form cannot be built; the message says why."""


def compile_mode() -> str:
    mode = os.environ.get("TASKYARD_COMPILE") or "auto"
    if mode not in MODES:
        raise SystemExit(f"TASKYARD_COMPILE is {mode!r}, but must be one of {', '.join(MODES)}.")
    return mode


def compiled_sources() -> list[str]:
    """The listed modules as paths relative to src/, a glob that matches nothing left out."""
    with open(ROOT / "pyproject.toml", "rb") as file:
        patterns = tomllib.load(file)["tool"]["taskyard"]["compiled"]
    found = {path for pattern in patterns for path in SOURCE.glob(pattern)}
    # An __init__.py is not compiled: a package that is itself an extension cannot be imported
    # in part, and there is nothing hot in it.
    return sorted(str(path.relative_to(SOURCE)) for path in found if path.name != "__init__.py")


def require_tools() -> None:
    try:
        import mypyc.build  # noqa: F401
    except ImportError as error:
        raise BuildError(f"mypyc cannot be imported ({error})") from error
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(compiler) is None:
        raise BuildError(f"the C compiler {compiler} was not found")
    if not (Path(sysconfig.get_path("include")) / "Python.h").exists():
        raise BuildError("Python.h was not found (install the Python development headers)")


@contextlib.contextmanager
def source_directory() -> Iterator[None]:
    """mypyc names modules after paths relative to the working directory."""
    before = Path.cwd()
    os.chdir(SOURCE)
    try:
        yield
    finally:
        os.chdir(before)


def mypyc_extensions(mode: str) -> list[Extension]:
    require_tools()
    from mypyc.build import mypycify

    sources = compiled_sources()
    if not sources:
        raise BuildError("no module to compile was found")
    try:
        with source_directory():
            extensions: list[Extension] = mypycify(
                ["--config-file", str(ROOT / "pyproject.toml"), *sources],
                opt_level="g" if mode == "quick" else "2",
                debug_level="0",
                separate=False,
                group_name="taskyard",
                target_dir=str(ROOT / "build" / "mypyc"),
            )
    except SystemExit as error:
        raise BuildError("mypyc refused the sources (its messages are above)") from error
    for extension in extensions:
        # gcc's warnings about generated code tell nobody anything, and take two thirds of its time.
        # Not to print them is not enough: what Python itself was built with asks for the search.
        # A new list, since all extensions have the same one.
        extension.extra_compile_args = [*extension.extra_compile_args, *OPTIONS]
    return [*extensions, *threads()]


def threads() -> list[Extension]:
    """Those that do without the interpreter: see journal/flusher.py and server/postman.py."""
    return [
        Extension("taskyard.journal._flusher", ["src/taskyard/journal/_flusher.c"]),
        Extension("taskyard.server._postman", ["src/taskyard/server/_postman.c"]),
    ]


def extensions(mode: str) -> list[Extension]:
    if mode == "0" or METADATA_COMMANDS.intersection(sys.argv):
        return []
    try:
        return mypyc_extensions(mode)
    except BuildError as error:
        if mode in REQUIRED:
            raise SystemExit(f"taskyard cannot be compiled: {error}.") from error
        warn(str(error))
        return []


def vendor() -> None:
    """The libraries come with every wheel and every source archive."""
    script = ROOT / "scripts" / "vendor"
    if os.environ.get("TASKYARD_VENDOR") == "0" or METADATA_COMMANDS.intersection(sys.argv):
        return
    if script.exists() and subprocess.run([sys.executable, str(script)], check=False).returncode:
        print("warning: taskyard is built without its dashboard.", file=sys.stderr)  # noqa: T201


def warn(reason: str) -> None:
    print(f"warning: taskyard is built as plain Python: {reason}.", file=sys.stderr)  # noqa: T201


class BuildExtensions(build_ext):
    """In "auto" mode a failing compiler leaves plain Python behind, never half an extension."""

    def run(self) -> None:
        try:
            super().run()
        except Exception:
            if compile_mode() in REQUIRED:
                raise
            self.remove_extensions()
            warn("the C compiler failed (its messages are above)")

    def remove_extensions(self) -> None:
        for extension in self.extensions:
            Path(self.get_ext_fullpath(extension.name)).unlink(missing_ok=True)
        self.extensions = []


vendor()
setup(ext_modules=extensions(compile_mode()), cmdclass={"build_ext": BuildExtensions})
