"""The package is what it says it is: its version, its form, the modules that are compiled."""

import os
import tomllib
from pathlib import Path

import pytest

import taskyard
from taskyard import build

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
