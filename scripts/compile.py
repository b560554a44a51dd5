"""Builds the compiled form into build/compiled, only when something that goes into it changed.

Run by `make compiled`. With the argument `quick` the target is build/compiled-quick, in a third of
the time: the same C, little optimized, for tests. A digest of the sources decides, so that a
checkout of another branch and a deleted module are noticed too, which file times would not show.
The files of the dashboard are copied whenever they differ: nothing of them is compiled.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
TARGETS = {"1": BUILD / "compiled", "quick": BUILD / "compiled-quick"}  # by TASKYARD_COMPILE
DIGEST = ".digest"
OPTIONS = ("setup.py", "scripts/cold.h")  # of the C compiler
LAYOUT = BUILD / "layout"
STATIC = Path("taskyard", "web", "static")


def inputs() -> list[Path]:
    sources = [path for path in (ROOT / "src").rglob("*") if path.suffix in {".py", ".typed", ".c"}]
    return [ROOT / "pyproject.toml", *(ROOT / name for name in OPTIONS), *sorted(sources)]


def digest() -> str:
    total = hashlib.sha256(sys.version.encode())
    for path in inputs():
        content = path.read_bytes()
        total.update(f"{path.relative_to(ROOT)} {len(content)}\n".encode())
        total.update(content)
    return total.hexdigest()


def layout(mode: str) -> str:
    """Which modules there are, which are compiled and how, as one text to compare."""
    compiled = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["taskyard"]["compiled"]
    how = [(ROOT / name).read_text() for name in OPTIONS]
    return "\n".join([mode, *how, *compiled, *(str(path.relative_to(ROOT)) for path in inputs())])


def drop_stale_output(mode: str) -> None:
    """setuptools never removes a module from its own build directory, so we do when one may go, and
    does not know with which options an object file was made."""
    if LAYOUT.exists() and LAYOUT.read_text() == layout(mode):
        return
    patterns = ("lib.*", "bdist.*", "temp.*", "lib", "mypyc")
    for path in [path for pattern in patterns for path in BUILD.glob(pattern)]:
        shutil.rmtree(path, ignore_errors=True)
    LAYOUT.write_text(layout(mode))


def compiler() -> str:
    return str(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]


def build(mode: str) -> int:
    wanted = digest()
    target = TARGETS[mode]
    stamp = target / DIGEST
    if stamp.exists() and stamp.read_text() == wanted:
        return 0
    if shutil.which(compiler()) is None:
        print(f"compile: the C compiler {compiler()} was not found", file=sys.stderr)
        return 1
    drop_stale_output(mode)
    fresh = BUILD / "compiled.new"
    shutil.rmtree(fresh, ignore_errors=True)
    print("compile: building the compiled form", file=sys.stderr)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    options = ["--no-index", "--no-deps", "--no-build-isolation", "--target", str(fresh)]
    done = subprocess.run(
        [*pip, *options, str(ROOT)],
        env={**os.environ, "TASKYARD_COMPILE": mode, "TASKYARD_VENDOR": "0"},
        check=False,
    )
    if done.returncode != 0:
        return done.returncode
    (fresh / DIGEST).write_text(wanted)
    shutil.rmtree(target, ignore_errors=True)
    fresh.rename(target)
    return 0


def copy_page(target: Path) -> None:
    """Only if something of it has changed: servers of this form may be reading it."""
    source, copy = ROOT / "src" / STATIC, target / STATIC
    if contents(source) == contents(copy):
        return
    fresh = target / "page.new"
    shutil.rmtree(fresh, ignore_errors=True)
    shutil.copytree(source, fresh)
    shutil.rmtree(copy, ignore_errors=True)
    fresh.rename(copy)


def contents(directory: Path) -> dict[Path, bytes]:
    files = [path for path in directory.rglob("*") if path.is_file()]
    return {path.relative_to(directory): path.read_bytes() for path in files}


def main() -> int:
    mode = "quick" if sys.argv[1:] == ["quick"] else "1"
    BUILD.mkdir(exist_ok=True)
    with open(BUILD / "compile.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        failure = build(mode)
        if not failure:
            copy_page(TARGETS[mode])
        return failure


if __name__ == "__main__":
    sys.exit(main())
