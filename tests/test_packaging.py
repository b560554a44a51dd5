"""The package is what it says it is: its version, its form, the modules that are compiled."""

import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

import taskyard
from taskyard import build
from taskyard.web.files import VENDORED

ROOT = Path(__file__).resolve().parent.parent
FORM = os.environ.get("TASKYARD_FORM")


@pytest.fixture(scope="module")
def project() -> dict[str, dict[str, object]]:
    content: dict[str, dict[str, object]] = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return content


@pytest.mark.skipif(FORM is None, reason="TASKYARD_FORM does not say which form is wanted")
def test_the_wanted_form_is_loaded() -> None:
    assert build.form() == FORM


def test_the_version_is_the_one_of_the_package(project: dict[str, dict[str, object]]) -> None:
    assert taskyard.__version__ == project["project"]["version"]


def test_the_types_are_published() -> None:
    package = Path(taskyard.__file__).parent
    assert (package / "py.typed").exists()


@pytest.mark.parametrize("name", ["requirements.lock", "requirements-dev.lock"])
def test_a_lock_names_no_registry(name: str) -> None:
    text = (ROOT / name).read_text()
    assert "--hash=sha256:" in text
    assert "://" not in text


def test_the_run_lock_is_part_of_the_dev_lock() -> None:
    pins = [
        {line.split()[0] for line in (ROOT / name).read_text().splitlines() if "==" in line}
        for name in ("requirements.lock", "requirements-dev.lock")
    ]
    assert pins[0] < pins[1]


# What is built


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a build needs, with libraries of the dashboard that stand for those of npm."""
    place = tmp_path_factory.mktemp("checkout")
    names = ("LICENSE", "MANIFEST.in", "README.md", "pyproject.toml", "setup.py")
    for name in (*names, "scripts/vendor"):
        (place / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, place / name)
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "vendor", "vendor.new-*")
    shutil.copytree(ROOT / "src", place / "src", ignore=ignored)
    for name in VENDORED:
        path = place / "src" / "taskyard" / "web" / "static" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("library")
        (path.parent / "LICENSE").write_text("licence")
    return place


def build_in(checkout: Path, kind: str, target: Path) -> Path:
    """Without a network, and without a compiler."""
    code = f"import setuptools.build_meta as b; print(b.build_{kind}({str(target)!r}))"
    environment = {**os.environ, "TASKYARD_COMPILE": "0", "TASKYARD_VENDOR": "0"}
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
    static = Path(taskyard.__file__).parent / "web" / "static"
    own = [path.relative_to(static).as_posix() for path in static.rglob("*") if path.is_file()]
    libraries = [*VENDORED, *(f"{name.rpartition('/')[0]}/LICENSE" for name in VENDORED)]
    return [*(name for name in own if not name.startswith("vendor")), *libraries]


def test_a_wheel_has_the_dashboard_and_no_other_package(checkout: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(build_in(checkout, "wheel", tmp_path)) as wheel:
        names = set(wheel.namelist())
        [top] = [name for name in names if name.endswith("top_level.txt")]
        assert wheel.read(top).split() == [b"taskyard"]
    assert {f"taskyard/web/static/{name}" for name in static_files()} <= names


def test_a_source_archive_has_what_a_wheel_is_built_from(checkout: Path, tmp_path: Path) -> None:
    with tarfile.open(build_in(checkout, "sdist", tmp_path)) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {f"src/taskyard/web/static/{name}" for name in static_files()}
    assert wanted | {"scripts/vendor", "setup.py", "src/taskyard/web/page.py"} <= names
