"""docs/durability.md names a test for each promise: it must be there."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs" / "durability.md"
HEADING = "## Promises and the tests that hold them\n"
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def table() -> list[list[str]]:
    """The rows under the heading: the promise, then its tests."""
    _, _, rest = PAGE.read_text(encoding="utf-8").partition(HEADING)
    section = rest.partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]


def functions_of(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_every_test_that_is_named_exists() -> None:
    named = TEST.findall(PAGE.read_text(encoding="utf-8"))
    assert len(named) > 20
    missing = [
        f"{path}::{name}"
        for path, name in named
        if not (ROOT / path).is_file() or name not in functions_of(ROOT / path)
    ]
    assert not missing


def test_every_promise_names_a_test() -> None:
    rows = table()
    assert len(rows) > 15
    assert not [promise for promise, tests in rows if not TEST.search(tests)]
