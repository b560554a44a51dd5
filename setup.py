"""Build with mypyc: compiles the modules listed under [tool.taskyard] in pyproject.toml, and brings
the libraries of the dashboard with scripts/vendor; without the npm registry it does without them.

mypyc writes one C file for each module. They are compiled in units: those of the hot path together,
so that the C compiler can put calls between them in line, and with -O2; all others with -Og, which
takes a quarter of the time. The units are compiled side by side, one for each core.

TASKYARD_COMPILE: "auto" (the default) compiles when it can and falls back to plain Python with a
warning, "1" must compile, "0" never does. "quick" must compile too, in less than half of the time:
with -Og throughout, which is enough for tests.

TASKYARD_VENDOR: "0" downloads nothing; what scripts/vendor has brought before is taken anyway.

TASKYARD_PROGRESS: the number of an open file for lines that say how far the compilation is: `unit
NAME WEIGHT` for each unit before the first begins, then `begin NAME` and `end NAME`.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
SOURCE = ROOT / "src"
GENERATED = ROOT / "build" / "mypyc"
GROUP = "taskyard"
NATIVE = f"{GROUP}__mypyc"  # the extension with the code; those of single modules only point to it
MODES = ("auto", "1", "0", "quick")
# Else every function may be replaced when the library is loaded: none could be put in line, and
# each call would go by a table.
DIRECT_CALLS = ["-fno-semantic-interposition", "-fvisibility=hidden"]
COLD_ERRORS = ["-include", str(ROOT / "scripts" / "cold.h")]
# gcc's warnings about generated code tell nobody anything, and take two thirds of its time. Not to
# print them is not enough: what Python itself was built with asks for the search.
NO_WARNINGS = ["-w", "-Wno-all", "-Wno-maybe-uninitialized"]
OPTIONS = [*DIRECT_CALLS, *COLD_ERRORS, *NO_WARNINGS, "-g0"]
FULL, LITTLE = "-O2", "-Og"
COST = {FULL: 3, LITTLE: 1}  # processor time for as much C
COST_OF_MODULE = 60  # of an extension that only points to the code, as the weight of a unit
REQUIRED = ("1", "quick")  # they never fall back to plain Python
# Commands that only write metadata or a source archive; they need no extension.
NO_EXTENSIONS = {"dist_info", "egg_info", "sdist"}


class BuildError(Exception):
    """The compiled form cannot be built; the message says why."""


@dataclass(frozen=True)
class Unit:
    """What the C compiler is given at once."""

    name: str
    source: Path
    level: str

    @property
    def weight(self) -> int:
        sizes = [
            (GENERATED / line.split('"')[1]).stat().st_size
            for line in self.source.read_text().splitlines()
        ]
        return sum(sizes) * COST[self.level] // 1000


def compile_mode() -> str:
    mode = os.environ.get("TASKYARD_COMPILE") or "auto"
    if mode not in MODES:
        raise SystemExit(f"TASKYARD_COMPILE is {mode!r}, but must be one of {', '.join(MODES)}.")
    return mode


def listed(*keys: str) -> list[str]:
    """The modules listed there below [tool.taskyard], as paths relative to src/."""
    with open(ROOT / "pyproject.toml", "rb") as file:
        patterns = tomllib.load(file)["tool"]["taskyard"]
    for key in keys:
        patterns = patterns[key]
    found: set[str] = set()
    for pattern in patterns:
        # An __init__.py is not compiled: a package that is itself an extension cannot be imported
        # in part, and there is nothing hot in it.
        matches = [path for path in SOURCE.glob(pattern) if path.name != "__init__.py"]
        if not matches:
            name = ".".join(("tool", "taskyard", *keys))
            raise SystemExit(f"{name} in pyproject.toml: {pattern} matches no module.")
        found.update(path.relative_to(SOURCE).as_posix() for path in matches)
    return sorted(found)


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


def mypyc_extensions() -> list[Extension]:
    require_tools()
    from mypyc.build import mypycify

    sources = listed("compiled")
    shutil.rmtree(GENERATED, ignore_errors=True)
    try:
        with source_directory():
            extensions: list[Extension] = mypycify(
                ["--config-file", str(ROOT / "scripts" / "mypyc.ini"), *sources],
                debug_level="0",
                separate=False,
                multi_file=True,
                include_runtime_files=False,
                group_name=GROUP,
                target_dir=str(GENERATED),
            )
    except SystemExit as error:
        raise BuildError("mypyc refused the sources (its messages are above)") from error
    return [*extensions, *threads()]


def threads() -> list[Extension]:
    """Those that do without the interpreter: see journal/flush.py and server/net/sending.py."""
    return [
        Extension("taskyard.journal._flusher", ["src/taskyard/journal/_flusher.c"]),
        Extension("taskyard.server.net._postman", ["src/taskyard/server/net/_postman.c"]),
    ]


def units(sources: list[str], mode: str) -> list[Unit]:
    """Divide the C files. mypyc's own functions are in the first unit, which calls them most and
    so has them put in line."""
    files = [Path(source).relative_to(GENERATED).as_posix() for source in sources]
    runtime = [file for file in files if not file.startswith("__native")]
    rest = set(files).difference(runtime)
    level = LITTLE if mode == "quick" else FULL
    found = []
    for name in ("engine", "listeners"):
        hot = rest.intersection(f"__native_{module_name(path)}.c" for path in listed("hot", name))
        rest -= hot
        found.append(write_unit(name, [*runtime, *sorted(hot)], level))
        runtime = []
    found.append(write_unit("rest", sorted(rest), LITTLE))
    return sorted(found, key=lambda unit: -unit.weight)


def module_name(path: str) -> str:
    """As mypyc has it in the names of its files."""
    return path.removesuffix(".py").replace("/", "___")


def write_unit(name: str, files: list[str], level: str) -> Unit:
    path = GENERATED / f"unit_{name}.c"
    path.write_text("".join(f'#include "{file}"\n' for file in files))
    return Unit(name, path, level)


def extensions(mode: str) -> list[Extension]:
    if mode == "0" or NO_EXTENSIONS.intersection(sys.argv):
        return []
    try:
        return mypyc_extensions()
    except BuildError as error:
        if mode in REQUIRED:
            raise SystemExit(f"taskyard cannot be compiled: {error}.") from error
        warn(str(error))
        return []


def vendor() -> None:
    """The libraries come with every wheel and every source archive."""
    script = ROOT / "scripts" / "vendor"
    if os.environ.get("TASKYARD_VENDOR") == "0" or {"dist_info", "egg_info"} & set(sys.argv):
        return
    if script.exists() and subprocess.run([sys.executable, str(script)], check=False).returncode:
        print("warning: taskyard is built without its dashboard.", file=sys.stderr)  # noqa: T201


reason = ""  # why this build is plain Python


def warn(why: str) -> None:
    global reason  # noqa: PLW0603
    reason = why
    print(f"warning: taskyard is built as plain Python: {why}.", file=sys.stderr)  # noqa: T201


def tell(line: str) -> None:
    if target := os.environ.get("TASKYARD_PROGRESS"):
        os.write(int(target), f"{line}\n".encode())


class BuildPython(build_py):
    """Leaves a note in a package that is plain Python though nobody asked for that: pip shows
    nothing of what a build says, so it is the installed program that has to say it."""

    def run(self) -> None:
        super().run()
        if reason and not self.editable_mode:
            write_note(self.build_lib)


def write_note(directory: str) -> None:
    path = Path(directory, "taskyard", "not_compiled.txt")
    path.write_text(f"{reason}\n", encoding="utf-8")


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
            if not self.inplace:
                write_note(self.build_lib)

    def build_extensions(self) -> None:
        """Compile all there is in one go, and only link what setuptools would compile."""
        self.check_extensions_list(self.extensions)
        self.force = True  # nothing is newer than the sources, where there are none left
        modules = len(self.extensions) - 1
        tell(f"unit modules {modules * COST_OF_MODULE}")
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            waiting = []
            for extension in sorted(self.extensions, key=lambda each: each.name != NATIVE):
                waiting += [(extension, job) for job in self.compilations(extension, pool)]
                extension.sources = []
            pool.submit(tell, "end modules")
            for extension, job in waiting:
                extension.extra_objects += job.result()
            list(pool.map(self.build_extension, self.extensions))

    def compilations(
        self, extension: Extension, pool: ThreadPoolExecutor
    ) -> list[Future[list[str]]]:
        if extension.name != NATIVE:
            return [
                pool.submit(self.compile_source, extension, source) for source in extension.sources
            ]
        found = units(extension.sources, compile_mode())
        for unit in found:
            tell(f"unit {unit.name} {unit.weight}")
        jobs = [pool.submit(self.compile_unit, extension, unit) for unit in found]
        pool.submit(tell, "begin modules")  # the other extensions come behind these
        return jobs

    def compile_unit(self, extension: Extension, unit: Unit) -> list[str]:
        tell(f"begin {unit.name}")
        objects = self.compile_source(extension, str(unit.source), unit.level, *OPTIONS)
        tell(f"end {unit.name}")
        return objects

    def compile_source(self, extension: Extension, source: str, *options: str) -> list[str]:
        objects: list[str] = self.compiler.compile(
            [source],
            output_dir=self.build_temp,
            macros=extension.define_macros,
            include_dirs=extension.include_dirs,
            extra_postargs=[*extension.extra_compile_args, *options],
        )
        return objects

    def remove_extensions(self) -> None:
        for extension in self.extensions:
            Path(self.get_ext_fullpath(extension.name)).unlink(missing_ok=True)
        self.extensions = []


vendor()
setup(
    ext_modules=extensions(compile_mode()),
    cmdclass={"build_ext": BuildExtensions, "build_py": BuildPython},
)
