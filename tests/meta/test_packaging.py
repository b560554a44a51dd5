"""The package is what it says it is: its version, its form, the modules that are compiled."""

import ast
import importlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

import taskyard
from taskyard.broker import metrics
from taskyard.protocols.http.dashboard import VENDORED

ROOT = Path(__file__).resolve().parent.parent.parent
FORM = os.environ.get("TASKYARD_FORM")


@pytest.fixture(scope="module")
def project() -> dict[str, dict[str, object]]:
    content: dict[str, dict[str, object]] = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return content


@pytest.mark.skipif(FORM is None, reason="TASKYARD_FORM does not say which form is wanted")
def test_the_wanted_form_is_loaded() -> None:
    assert metrics.form() == FORM


def test_the_version_is_the_one_of_the_package(project: dict[str, dict[str, object]]) -> None:
    assert taskyard.__version__ == project["project"]["version"]


def listed(project: dict[str, dict[str, object]], *keys: str) -> set[str]:
    """The modules that the globs there stand for; none of these may match nothing."""
    patterns: object = project["tool"]["taskyard"]
    for key in keys:
        assert isinstance(patterns, dict)
        patterns = patterns[key]
    assert isinstance(patterns, list)
    found = {pattern: list((ROOT / "src").glob(pattern)) for pattern in patterns}
    assert [pattern for pattern, paths in found.items() if not paths] == []
    return {
        ".".join(path.relative_to(ROOT / "src").with_suffix("").parts)
        for paths in found.values()
        for path in paths
        if path.name != "__init__.py"
    }


@pytest.mark.skipif(FORM != "compiled", reason="only the compiled form has extension modules")
def test_the_listed_modules_and_no_others_are_extensions(
    project: dict[str, dict[str, object]],
) -> None:
    package = Path(taskyard.__file__).parent
    native = {
        ".".join(("taskyard", *path.relative_to(package).parts)).partition(".cpython-")[0]
        for path in package.rglob("*.so")
    }
    wanted = listed(project, "compiled")
    assert native - {"taskyard.journal._flusher", "taskyard.server.net._postman"} == wanted
    for name in sorted(wanted):
        module = importlib.import_module(name)
        assert module.__file__ is not None
        assert module.__file__.endswith(".so"), f"{name} is not loaded from its extension"


def test_the_hot_modules_are_compiled(project: dict[str, dict[str, object]]) -> None:
    hot = listed(project, "hot", "engine"), listed(project, "hot", "listeners")
    assert hot[0] | hot[1] <= listed(project, "compiled")
    assert not hot[0] & hot[1]


def test_a_build_has_what_the_compiled_modules_import(
    project: dict[str, dict[str, object]],
) -> None:
    """Else mypyc would know nothing of its types, and write slower code without a word."""
    wanted = {name for module in listed(project, "compiled") for name in imported_by(module)}
    requires = project["build-system"]["requires"]
    assert isinstance(requires, list)
    names = {re.split(r"[^\w-]", entry)[0].replace("-", "_") for entry in requires}
    own = wanted - sys.stdlib_module_names - {"taskyard"}
    assert own <= names, f"missing in build-system.requires: {own - names}"


def imported_by(module: str) -> set[str]:
    path = ROOT / "src" / Path(*module.split(".")).with_suffix(".py")
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found.add(node.module.partition(".")[0])
    return found


def test_the_types_are_published() -> None:
    package = Path(taskyard.__file__).parent
    assert (package / "py.typed").exists()


LOCKS = ("requirements.lock", "requirements-dev.lock", "requirements-lake.lock")


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_names_no_registry(name: str) -> None:
    text = (ROOT / name).read_text()
    assert "--hash=sha256:" in text
    assert "://" not in text


@pytest.mark.parametrize("name", ["requirements.lock", "requirements-lake.lock"])
def test_the_other_locks_are_part_of_the_dev_lock(name: str) -> None:
    pins = [
        {line.split()[0] for line in (ROOT / each).read_text().splitlines() if "==" in line}
        for each in (name, "requirements-dev.lock")
    ]
    assert pins[0] < pins[1]


# What is built


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a build needs, with libraries of the dashboard that stand for those of npm."""
    place = tmp_path_factory.mktemp("checkout")
    names = ("LICENSE", "MANIFEST.in", "README.md", "pyproject.toml", "setup.py")
    sources = (
        "scripts/vendor",
        "scripts/cold.h",
        "scripts/mypyc.ini",
        "tests/meta/test_packaging.py",
    )
    for name in (*names, *sources):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, place / name)
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "vendor", "vendor.new-*")
    shutil.copytree(ROOT / "src", place / "src", ignore=ignored)
    for name in VENDORED:
        path = place / "src" / "taskyard" / "dashboard" / "static" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("library")
        (path.parent / "LICENSE").write_text("licence")
    return place


def build_in(checkout: Path, kind: str, target: Path, **variables: str) -> Path:
    """Without a network, and without a compiler."""
    code = f"import setuptools.build_meta as b; print(b.build_{kind}({str(target)!r}))"
    environment = {**os.environ, "TASKYARD_COMPILE": "0", "TASKYARD_VENDOR": "0", **variables}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=checkout,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return target / done.stdout.splitlines()[-1]


def static_files() -> list[str]:
    static = Path(taskyard.__file__).parent / "dashboard" / "static"
    own = [path.relative_to(static).as_posix() for path in static.rglob("*") if path.is_file()]
    libraries = [*VENDORED, *(f"{name.rpartition('/')[0]}/LICENSE" for name in VENDORED)]
    return [*(name for name in own if not name.startswith("vendor")), *libraries]


def pipeline_files() -> list[str]:
    """What its modules read: SQL, and the parts of pages."""
    return [
        path.relative_to(ROOT / "src").as_posix()
        for path in (ROOT / "src" / "taskyard" / "pipeline").rglob("*")
        if path.suffix in (".sql", ".html", ".css", ".js")
    ]


def test_a_wheel_has_the_dashboard_and_no_other_package(checkout: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(build_in(checkout, "wheel", tmp_path)) as wheel:
        names = set(wheel.namelist())
        [top] = [name for name in names if name.endswith("top_level.txt")]
        modules = [f"pyspark_taskyard_{name}".encode() for name in ("events", "lake", "queue")]
        assert wheel.read(top).split() == [*modules, b"taskyard"]
    assert {f"taskyard/dashboard/static/{name}" for name in static_files()} <= names
    assert {"taskyard/pipeline/report/page/report.html", *pipeline_files()} <= names


def test_a_source_archive_has_what_a_wheel_is_built_from(checkout: Path, tmp_path: Path) -> None:
    with tarfile.open(build_in(checkout, "sdist", tmp_path)) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {f"src/taskyard/dashboard/static/{name}" for name in static_files()}
    wanted |= {f"src/{name}" for name in pipeline_files()}
    wanted |= {path.relative_to(ROOT).as_posix() for path in (ROOT / "src").rglob("*.c")}
    needed = {"scripts/cold.h", "scripts/mypyc.ini", "scripts/vendor", "setup.py"}
    assert wanted | needed | {"src/taskyard/protocols/http/dashboard.py"} <= names
    assert not any(name.startswith("tests") for name in names)


def test_a_package_that_could_not_be_compiled_says_why(checkout: Path, tmp_path: Path) -> None:
    path = build_in(checkout, "wheel", tmp_path, TASKYARD_COMPILE="auto", CC="/no/compiler")
    with zipfile.ZipFile(path) as wheel:
        wheel.extractall(tmp_path / "installed")
    done = subprocess.run(
        [sys.executable, "-m", "taskyard", "--version"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "installed")},
        capture_output=True,
        text=True,
        check=True,
    )
    why = "the C compiler /no/compiler was not found"
    assert done.stdout == f"taskyard {taskyard.__version__} (interpreted: {why})\n"


def test_a_glob_that_matches_nothing_ends_the_build(checkout: Path, tmp_path: Path) -> None:
    copy = tmp_path / "checkout"
    shutil.copytree(checkout, copy)
    settings = (copy / "pyproject.toml").read_text()
    changed = settings.replace('"taskyard/engine/**/*.py"', '"taskyard/engin/**/*.py"')
    assert changed != settings
    (copy / "pyproject.toml").write_text(changed)
    with pytest.raises(subprocess.CalledProcessError) as failed:
        build_in(copy, "wheel", tmp_path, TASKYARD_COMPILE="auto")
    assert "tool.taskyard.compiled in pyproject.toml: taskyard/engin/**/*.py matches no" in (
        failed.value.stderr
    )
