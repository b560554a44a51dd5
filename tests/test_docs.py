"""The documents are true: their sessions run as written, and what they point at is there.

In README.md and the pages of the dialects each `sh` and `python` block is run, from top to bottom,
against a server whose data directory is empty at the top of the page. A `text` block right behind
one is what it prints; `...` in it stands for anything within a line. Other blocks are only shown.
"""

import ast
import contextlib
import io
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.sockets import HANG_GUARD, SocketWire

from taskyard.client.client import Client
from taskyard.server.config import options

ROOT = Path(__file__).resolve().parent.parent
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
DOCUMENTED_PORTS = {"12345": "masenko", "9922": "workq", "8002": "resp", "8080": "http"}
DOCUMENTED_PORT = re.compile(r"\b(?:" + "|".join(DOCUMENTED_PORTS) + r")\b")

FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CODE_SPAN = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
MAKE_TARGET = re.compile(r"^\$? ?make ([a-z-]+)", re.MULTILINE)

# Stands in for nc where there is none: sends what it is given, prints until the other side closes.
NC = f"""#!{sys.executable}
import shutil, socket, sys
host, port = sys.argv[-2:]
with socket.create_connection((host, int(port)), timeout={HANG_GUARD}) as peer:
    peer.sendall(sys.stdin.buffer.read())
    if "-N" in sys.argv:
        peer.shutdown(socket.SHUT_WR)
    shutil.copyfileobj(peer.makefile("rb"), sys.stdout.buffer)
"""

# The same for curl, as far as the pages use it.
CURL = f"""#!{sys.executable}
import getopt, sys, urllib.error, urllib.request
pairs, [url] = getopt.gnu_getopt(sys.argv[1:], "sH:d:T:X:o:w:")
given = dict(pairs)
body = given["-d"].encode() if "-d" in given else None
if "-T" in given:
    body = open(given["-T"], "rb").read()
request = urllib.request.Request(url, body, method=given.get("-X"))
for name, value in [value.split(": ", 1) for flag, value in pairs if flag == "-H"]:
    request.add_header(name, value)
try:
    answer = urllib.request.urlopen(request, timeout={HANG_GUARD})
except urllib.error.HTTPError as error:
    answer = error
data = answer.read()
if "-o" not in given:
    sys.stdout.buffer.write(data)
told = given.get("-w", "").replace("%{{http_code}}", str(answer.status))
sys.stdout.buffer.write(told.encode().decode("unicode_escape").encode())
"""
TASKYARD = f'#!/bin/sh\nexec "{sys.executable}" -m taskyard "$@"\n'
STAND_INS = {"nc": NC, "curl": CURL, "taskyard": TASKYARD}

Session = tuple[int, str, str, str | None]  # line, language, code, what it prints


def sessions(page: Path) -> list[Session]:
    """The blocks of a page that are to be run."""
    text = page.read_text(encoding="utf-8")
    blocks = list(FENCED.finditer(text))
    found: list[Session] = []
    for index, block in enumerate(blocks):
        if block[1] not in {"sh", "python"}:
            continue
        expected = None
        following = blocks[index + 1] if index + 1 < len(blocks) else None
        if following is not None and following[1] == "text":
            between = text[block.end() : following.start()]
            expected = following[2] if not between.strip() else None
        line = text.count("\n", 0, block.start()) + 2
        found.append((line, block[1], block[2], expected))
    return found


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


def run_shell(code: str, directory: Path, url: str) -> str:
    search = [str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]
    for name, text in STAND_INS.items():
        if shutil.which(name) is None:
            stand_in = directory / "bin" / name
            stand_in.parent.mkdir(exist_ok=True)
            stand_in.write_text(text)
            stand_in.chmod(0o755)
            search.insert(0, str(stand_in.parent))
    done = subprocess.run(
        ["/bin/sh", "-eu", "-c", code],
        cwd=directory,
        env={**os.environ, "PATH": os.pathsep.join(search), "TASKYARD_URL": url},
        capture_output=True,
        text=True,
        timeout=HANG_GUARD,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def run_python(code: str, where: str, namespace: dict[str, Any]) -> str:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, where, "exec"), namespace)
    return printed.getvalue()


def matches(expected: str, printed: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, expected.split("..."))), printed) is not None


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
        ports = {port: listeners[name]["port"] for port, name in DOCUMENTED_PORTS.items()}
        for line, language, written, expected in sessions(page):
            where = f"{name_of(page)}:{line}"
            code = DOCUMENTED_PORT.sub(lambda port: str(ports[port[0]]), written)
            if language == "sh":
                printed = run_shell(code, tmp_path, f"taskyard://127.0.0.1:{ports['8002']}")
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
