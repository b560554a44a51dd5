"""The workflow of the forge: as its schema says, and about what there is in the repository."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from support.manifests import ROOT, documents, faults, write

FILE = ROOT / ".github" / "workflows" / "ci.yml"
# What a tag of an action must at least say: its major version.
PINNED = re.compile(r"[\w.-]+/[\w./-]+@v\d+(\.\d+)*")
VERSIONS = ["3.11", "3.12", "3.13", "3.14"]


@pytest.fixture(scope="module")
def workflow() -> dict[Any, Any]:
    [found] = documents(FILE)
    assert isinstance(found, dict)
    return found


def steps(workflow: dict[Any, Any]) -> list[dict[str, Any]]:
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


def test_the_workflow_is_as_its_schema_says() -> None:
    assert not faults("github-workflows", FILE)


def test_the_schema_refuses_a_job_that_runs_nowhere(
    workflow: dict[Any, Any], tmp_path: Path
) -> None:
    test = {name: it for name, it in workflow["jobs"]["test"].items() if name != "runs-on"}
    # YAML reads the key `on` as true; whoever reads it as JSON wants a text.
    changed = {"name": "CI", "on": "push", "jobs": {"test": test}}
    assert "runs-on" in faults("github-workflows", write(tmp_path, changed))


def test_all_actions_are_pinned(workflow: dict[Any, Any]) -> None:
    used = [step["uses"] for step in steps(workflow) if "uses" in step]
    assert used
    assert [name for name in used if not PINNED.fullmatch(name)] == []


def test_every_version_of_python_is_tested(workflow: dict[Any, Any]) -> None:
    assert workflow["jobs"]["test"]["strategy"]["matrix"]["python"] == VERSIONS


def test_every_version_of_python_has_wheels() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["cibuildwheel"]
    assert settings["build"] == [f"cp{version.replace('.', '')}-*" for version in VERSIONS]
    assert settings["environment"]["TASKYARD_COMPILE"] == "1"
    script = re.search(r"\{project\}/(\S+)", settings["test-command"])
    assert script
    assert (ROOT / script[1]).is_file()


def test_what_is_made_is_a_target(workflow: dict[Any, Any]) -> None:
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    made = re.findall(r"\bmake ([\w-]+)", " ".join(step.get("run", "") for step in steps(workflow)))
    assert {"test", "dist"} <= set(made) <= set(targets)


def test_the_image_is_built_from_the_recipe(workflow: dict[Any, Any]) -> None:
    commands = " ".join(step.get("run", "") for step in workflow["jobs"]["image"]["steps"])
    for name in re.findall(r"docker build -f (\S+)", commands):
        assert (ROOT / name).is_file()
    recipe = (ROOT / "packaging" / "Containerfile").read_text()
    for stage in re.findall(r"--target (\S+)", commands):
        assert f" AS {stage}\n" in recipe


def test_a_release_has_what_all_jobs_make(workflow: dict[Any, Any]) -> None:
    jobs = workflow["jobs"]
    assert set(jobs["release"]["needs"]) == jobs.keys() - {"release"}
    assert jobs["release"]["if"].startswith("startsWith(github.ref, 'refs/tags/v')")
