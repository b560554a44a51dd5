"""The documents are true: their sessions run as written, and what they point at is there.

In README.md and the pages of the dialects each `sh` and `python` block is run, from top to bottom,
against a server whose data directory is empty at the top of the page: see support/doc_sessions.py.
"""

import ast
import io
import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.doc_sessions import (
    FENCED,
    ROOT,
    matches,
    run_python,
    run_shell,
    sessions,
    with_ports,
)
from support.sockets import HANG_GUARD, SocketWire

from taskyard.client.client import Client
from taskyard.server.config import options

DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
PAGES_WITH_SESSIONS = [
    ROOT / "README.md",
    *(
        DOCS / f"{name}.md"
        for name in (
            "masenko",
            "workq",
            "resp",
            "pqueue",
            "api",
            "client",
            "queues",
            "cli",
            "schedules",
            "interop",
        )
    ),
]

CODE_SPAN = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
MAKE_TARGET = re.compile(r"^\$? ?make ([a-z-]+)", re.MULTILINE)


def without_fences(page: Path) -> str:
    return FENCED.sub("", page.read_text(encoding="utf-8"))


def code_of(page: Path) -> str:
    """All fenced blocks and code spans of a page."""
    text = page.read_text(encoding="utf-8")
    fenced = [block[2] for block in FENCED.finditer(text)]
    return "\n".join([*fenced, *CODE_SPAN.findall(FENCED.sub("", text))])


def anchors(page: Path) -> set[str]:
    """The names under which a page's headings can be linked to."""
    titles = HEADING.findall(without_fences(page))
    words = (re.sub(r"[^\w\- ]", "", title.lower()) for title in titles)
    return {text.replace(" ", "-") for text in words}


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.fixture
def namespace() -> Iterator[dict[str, Any]]:
    """What the Python blocks of a page share; what they leave open is closed."""
    names: dict[str, Any] = {"__name__": "docs"}
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(HANG_GUARD)
    yield names
    socket.setdefaulttimeout(before)
    for value in names.values():
        if isinstance(value, io.IOBase | socket.socket | Client):
            value.close()


@pytest.mark.parametrize("page", PAGES_WITH_SESSIONS, ids=name_of)
def test_the_sessions_of_a_page_run_as_written(
    page: Path, tmp_path: Path, namespace: dict[str, Any]
) -> None:
    with SocketWire(tmp_path):
        listeners = json.loads((tmp_path / "ports.json").read_bytes())
        ports = {name: listener["port"] for name, listener in listeners.items()}
        for line, language, written, expected in sessions(page):
            where = f"{name_of(page)}:{line}"
            code = with_ports(written, ports)
            if language == "sh":
                printed = run_shell(code, tmp_path, f"taskyard://127.0.0.1:{ports['resp']}")
            else:
                printed = run_python(code, where, namespace)
            if expected is not None:
                assert matches(expected, printed), f"{where} printed\n{printed}not\n{expected}"


@pytest.mark.parametrize("page", PAGES_WITH_SESSIONS, ids=name_of)
def test_a_page_with_sessions_has_some_in_both_languages(page: Path) -> None:
    languages = [language for _, language, _, expected in sessions(page) if expected]
    assert {"sh", "python"} <= set(languages)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_to_pages_and_headings_that_exist(page: Path) -> None:
    for link in LINK.findall(without_fences(page)):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert target.is_relative_to(ROOT), link
        if anchor:
            assert anchor in anchors(target), link


def test_every_page_can_be_reached_from_the_index() -> None:
    index = DOCS / "index.md"
    linked = {(DOCS / link.partition("#")[0]).resolve() for link in LINK.findall(index.read_text())}
    assert {page for page in DOCS.rglob("*.md") if page != index} <= linked


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_flags_that_are_named_exist(page: Path) -> None:
    known = {option.flag for option in options()}
    known |= {"--strict", "--cacert", "--tls"}  # of mypy, curl and redis-cli
    sources = [*ROOT.glob("src/taskyard/cli/*.py"), *ROOT.glob("benchmarks/*.[cp]*")]
    for source in (*sources, *ROOT.glob("benchmarks/*/*.py")):
        text = source.read_text(encoding="utf-8")
        known.update(re.findall(r'"(--[a-z-]+)"', text))
        known.update(f"--{name}" for name in re.findall(r'^\s*\{"([a-z-]+)",', text, re.MULTILINE))
    assert not set(FLAG.findall(code_of(page))) - known


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_make_targets_that_are_named_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(MAKE_TARGET.findall(code_of(page))) <= targets


def test_every_error_of_masenko_is_in_its_table() -> None:
    page = (DOCS / "masenko.md").read_text(encoding="utf-8")
    table = page.partition("## All errors")[2].partition("\n## ")[0]
    dialects = ROOT / "src" / "taskyard" / "dialects"
    texts: set[str] = set()
    for module in ("masenko.py", "masenko_requests.py"):
        texts |= error_texts(ast.parse((dialects / module).read_text(encoding="utf-8")))
    assert len(texts) > 15
    for text in texts:
        assert text in table, text


def test_every_error_of_workq_is_in_its_table() -> None:
    page = (DOCS / "workq.md").read_text(encoding="utf-8")
    table = page.partition("## All errors")[2].partition("\n## ")[0]
    texts: set[str] = set()
    for module in (ROOT / "src" / "taskyard" / "dialects").glob("workq*.py"):
        source = module.read_text(encoding="utf-8")
        texts.update(re.findall(r'"((?:Invalid|Duplicate|Unknown|Line) [\w ]+)"', source))
    assert len(texts) == 20
    for text in texts:
        assert f"`-CLIENT-ERROR {text}`" in table, text


def test_every_command_of_resp_is_on_its_page() -> None:
    pages = code_of(DOCS / "resp.md") + code_of(DOCS / "pqueue.md")
    found: set[str] = set()
    for module in (ROOT / "src" / "taskyard" / "dialects").glob("resp_*.py"):
        source = module.read_text(encoding="utf-8")
        found.update(re.findall(r'resp\.add\(b"([A-Z.]+)"', source))
    assert len(found) > 45
    assert not {name for name in found if not re.search(rf"(?<![\w.]){name}(?![\w.])", pages)}


def test_every_error_of_resp_is_in_its_table() -> None:
    page = (DOCS / "resp.md").read_text(encoding="utf-8")
    table = page.partition("## All errors")[2].partition("\n## ")[0]
    texts: set[str] = set()
    for module in (ROOT / "src" / "taskyard" / "dialects").glob("resp_*.py"):
        source = module.read_text(encoding="utf-8")
        codes = (
            "ERR|NOPROTO|WRONGTYPE|DUPLICATE|NOJOB|STALE|OOM|READONLY|NOAUTH|NOPERM|WRONGPASS"
            "|EXECABORT"
        )
        texts.update(re.findall(rf'"((?:{codes}) [^"{{]*)', source))
    assert len(texts) > 25
    for text in texts:
        assert text.strip() in table, text


def error_texts(tree: ast.Module) -> set[str]:
    """The fixed parts of what is given to Refused and _refuse, or returned by a *_text function."""
    said: list[ast.expr] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "id", "") or getattr(node.func, "attr", "")
            said += node.args if name in {"Refused", "_refuse"} else []
        elif isinstance(node, ast.FunctionDef) and node.name.endswith("_text"):
            returns = [inner for inner in ast.walk(node) if isinstance(inner, ast.Return)]
            said += [inner.value for inner in returns if inner.value is not None]
    texts: set[str] = set()
    for expression in said:
        parts = expression.values if isinstance(expression, ast.JoinedStr) else [expression]
        texts.update(
            part.value.strip()
            for part in parts
            if isinstance(part, ast.Constant) and isinstance(part.value, str)
        )
    return texts - {":", ""}
