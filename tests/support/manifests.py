"""The files in packaging/ and the workflow, read and held against schemas."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from taskyard.server.settings.schema import Settings, load_settings, options

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGING = ROOT / "packaging"


def documents(path: Path) -> list[Any]:
    return list(yaml.safe_load_all(path.read_text(encoding="utf-8")))


def write(directory: Path, *contents: Any) -> Path:
    path = directory / "changed.yml"
    path.write_text(yaml.safe_dump_all(contents), encoding="utf-8")
    return path


def _run(module: str, *arguments: str) -> str:
    """What it finds wrong; nothing if that is nothing."""
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return (done.stdout + done.stderr) if done.returncode else ""


def faults(schema: str, path: Path) -> str:
    """By a schema that check-jsonschema brings along."""
    return _run("check_jsonschema", "--builtin-schema", f"vendor.{schema}", str(path))


def kubernetes_faults(version: str, path: Path) -> str:
    """By what that version of Kubernetes knows; a field that it does not know is a fault."""
    return _run("kubernetes_validate", "-k", version, "--strict", str(path))


def serve_settings(words: list[str]) -> Settings:
    """Those of a command line `serve --flag=value ...`; one that is not known is an error."""
    assert words[0] == "serve"
    by_flag = {option.flag: option.name for option in options()}
    pairs = [word.partition("=") for word in words[1:]]
    return load_settings({by_flag[flag]: value for flag, _, value in pairs}, {})


def ports() -> dict[str, int]:
    """Of the listeners, where nothing else is set."""
    return {
        option.name.removesuffix("_port"): int(option.default)
        for option in options()
        if option.name.endswith("_port")
    }
