"""The documents are true: their sessions run as written, and what they point at is there.

On every page each `sh`, `python`, `js` and `console` block is run, from top to bottom, against a
server whose data directory is empty at the top of the page: see support/doc_reader.py. Pages that
need more than that are run by other tests, and commands that no test can run are named in
support/doc_skips.py, with the reason.
"""

import ast
import functools
import io
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.browser import Page, browser
from support.doc_reader import Reader
from support.doc_sessions import FENCED, ROOT, RUN, SHOWN, commands, run_shell, sessions
from support.doc_skips import NOT_RUN, not_run
from support.sockets import HANG_GUARD

from taskyard.client.sync import Client
from taskyard.server.settings.schema import options

DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]

# Pages whose blocks another test runs, and which one.
RUN_BY = {
    "docs/analytics.md": "tests/pipeline/test_pages.py",
    "docs/lake.md": "tests/pipeline/test_pages.py",
    "docs/pipeline.md": "tests/pipeline/test_tour.py",
    "docs/replay.md": "tests/pipeline/test_pages.py",
    "docs/report.md": "tests/pipeline/test_pages.py",
    "docs/spark-events.md": "tests/pipeline/test_pages.py",
    "docs/spark-queues.md": "tests/pipeline/test_pages.py",
    "docs/spark-workers.md": "tests/pipeline/test_pages.py",
    "docs/tasks.md": "tests/tasks/test_page.py",
}

# What a page takes for granted, as commands.
GIVEN = {
    "docs/security.md": """
        printf 'hush hush\\n' > new-password
        openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 \\
            -subj /CN=taskyard -addext subjectAltName=DNS:localhost,IP:127.0.0.1 \\
            -keyout server.key -out server.pem 2> openssl.log
    """,
}

# Of mypy, curl, redis-cli, git, useradd, systemctl, podman, pip, and tests/simulation.
FLAGS_OF_OTHERS = {
    *("--strict", "--cacert", "--tls", "--detach", "--system", "--home-dir", "--shell", "--now"),
    *("--name", "--stop-timeout", "--upgrade"),
    *("--build", "--from-file", "--from-literal", "--no-cache-dir", "--target"),  # of images, pods
    *("--form", "--scale"),
    *("--seeds", "--trace", "--processes"),
    *("--archives", "--conf", "--py-files"),  # of spark-submit
}

# What the page of each protocol has sessions in.
SPOKEN = {
    "masenko": {"sh", "python"},
    "workq": {"sh", "python"},
    "glovebox": {"sh", "python", "js"},
    "resp": {"sh", "python"},
    "pqueue": {"sh", "python"},
    "toq": {"sh", "python"},
    "api": {"sh", "python"},
    "events": {"sh", "python", "js"},
    "quickstart": {"sh", "python", "js"},
}

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


@pytest.fixture(scope="module")
def one_browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Page]]:
    """The same for all pages, started by the first that needs it."""
    with ExitStack() as stack:

        @functools.cache
        def start() -> Page:
            page = stack.enter_context(browser(tmp_path_factory.mktemp("browser")))
            page.call("Page.enable")
            return page

        yield start


@pytest.fixture
def reader(
    tmp_path: Path, one_browser: Callable[[], Page], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Reader]:
    """What the Python blocks of a page leave open is closed."""
    monkeypatch.chdir(tmp_path)
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(HANG_GUARD)
    reader = Reader(tmp_path, browser=one_browser, skips=not_run)
    yield reader
    socket.setdefaulttimeout(before)
    for value in reader.names.values():
        if isinstance(value, io.IOBase | socket.socket | Client):
            value.close()
    reader.leave()


def followed() -> list[Path]:
    return [page for page in PAGES if sessions(page) and name_of(page) not in RUN_BY]


@pytest.mark.parametrize("page", followed(), ids=name_of)
def test_the_sessions_of_a_page_run_as_written(page: Path, reader: Reader) -> None:
    run_shell(GIVEN.get(name_of(page), ""), reader.directory, "")
    reader.follow(page, name_of(page))


@pytest.mark.parametrize(("page", "test"), RUN_BY.items())
def test_a_page_that_another_test_runs_is_named_there(page: str, test: str) -> None:
    assert sessions(ROOT / page)
    assert Path(page).name in (ROOT / test).read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_is_of_a_language_of_which_is_known_whether_it_is_run(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert {block[1] for block in FENCED.finditer(text)} <= {*RUN, *SHOWN}
    assert text.count("```") == 2 * len(FENCED.findall(text))
    assert not re.findall(r"^    (?:make|python3?|taskyard|curl|nc|redis-cli) ", text, re.MULTILINE)


def test_what_is_not_run_is_there() -> None:
    typed = {
        command
        for page in PAGES
        for _, _, block, _ in sessions(page, ("console",))
        for command in commands(block)
    }
    for pattern in NOT_RUN:
        assert any(re.fullmatch(pattern, command, re.DOTALL) for command in typed), pattern


@pytest.mark.parametrize(("name", "languages"), SPOKEN.items())
def test_the_page_of_a_dialect_has_sessions_to_copy(name: str, languages: set[str]) -> None:
    found = sessions(DOCS / f"{name}.md")
    assert languages <= {language for _, language, _, _ in found}
    assert sum(expected is not None for _, _, _, expected in found) >= len(languages)


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
    known |= FLAGS_OF_OTHERS
    sources = [*ROOT.glob("src/taskyard/cli/*.py"), *ROOT.glob("benchmarks/*.[cp]*")]
    for source in (*sources, *ROOT.glob("benchmarks/*/*.py"), *ROOT.glob("scripts/*/*.py")):
        text = source.read_text(encoding="utf-8")
        known.update(re.findall(r'"(--[a-z-]+)"', text))
        known.update(re.findall(r"(--[a-z-]+)(?: [A-Z{][^:\n]*)?: ", text))  # in a table of help
        known.update(f"--{name}" for name in re.findall(r'^\s*\{"([a-z-]+)",', text, re.MULTILINE))
    assert not set(FLAG.findall(code_of(page))) - known


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_make_targets_that_are_named_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(MAKE_TARGET.findall(code_of(page))) <= targets


def test_every_error_of_masenko_is_in_its_table() -> None:
    page = (DOCS / "masenko.md").read_text(encoding="utf-8")
    table = page.partition("## All errors")[2].partition("\n## ")[0]
    folder = ROOT / "src" / "taskyard" / "protocols" / "masenko"
    texts: set[str] = set()
    for module in ("connection.py", "parsing.py"):
        texts |= error_texts(ast.parse((folder / module).read_text(encoding="utf-8")))
    assert len(texts) > 15
    for text in texts:
        assert text in table, text


def test_every_error_of_workq_is_in_its_table() -> None:
    page = (DOCS / "workq.md").read_text(encoding="utf-8")
    table = page.partition("## All errors")[2].partition("\n## ")[0]
    texts: set[str] = set()
    for module in (ROOT / "src" / "taskyard" / "protocols" / "workq").glob("*.py"):
        source = module.read_text(encoding="utf-8")
        texts.update(re.findall(r'"((?:Invalid|Duplicate|Unknown|Line) [\w ]+)"', source))
    assert len(texts) == 20
    for text in texts:
        assert f"`-CLIENT-ERROR {text}`" in table, text


def test_every_command_of_resp_is_on_its_page() -> None:
    pages = code_of(DOCS / "resp.md") + code_of(DOCS / "pqueue.md")
    found: set[str] = set()
    for module in (ROOT / "src" / "taskyard" / "protocols" / "resp").glob("*.py"):
        source = module.read_text(encoding="utf-8")
        found.update(re.findall(r'resp\.add_command\(b"([A-Z.]+)"', source))
    assert len(found) > 45
    assert not {name for name in found if not re.search(rf"(?<![\w.]){name}(?![\w.])", pages)}


def test_every_error_of_resp_is_in_its_table() -> None:
    page = (DOCS / "resp.md").read_text(encoding="utf-8")
    table = page.partition("## All errors")[2].partition("\n## ")[0]
    texts: set[str] = set()
    for module in (ROOT / "src" / "taskyard" / "protocols" / "resp").glob("*.py"):
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
    """The fixed parts of what CommandError and _refuse are given, or a *_text function returns."""
    said: list[ast.expr] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "id", "") or getattr(node.func, "attr", "")
            said += node.args if name in {"CommandError", "_refuse"} else []
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


def test_the_map_of_the_code_has_every_package_and_names_what_is_there() -> None:
    page = (DOCS / "internals" / "index.md").read_text(encoding="utf-8")
    root = ROOT / "src" / "taskyard"
    packages = {
        f"{each.parent.relative_to(root)}/"
        for each in root.rglob("__init__.py")
        if each.parent != root
    }
    mapped = set(re.findall(r"^\| `([a-z_/]+/)` \|", page, re.MULTILINE))
    assert mapped == packages
    for name in re.findall(r"`([a-z_]+/[a-z_/]+\.py)`", page):
        assert (root / name).exists() or (ROOT / name).exists(), name


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "mutants.md"], ids=name_of)
def test_the_modules_that_a_page_names_are_there(page: Path) -> None:
    """A name without its folder is enough."""
    there = {"/setup.py"} | {
        f"/{path.relative_to(ROOT)}"
        for folder in ("src", "tests", "scripts", "benchmarks", "demo")
        for path in (ROOT / folder).rglob("*.py")
    }
    text = page.read_text(encoding="utf-8")
    written = set(
        re.findall(r"^(?:cat > )?# ?([a-z_]+\.py)$|^cat > ([a-z_]+\.py)", text, re.MULTILINE)
    )
    own = {name for pair in written for name in pair if name}  # that the page has the reader write
    named = set(re.findall(r"`((?:[a-z_0-9]+/)*[a-z_0-9]+\.py)`", text)) - own
    assert not {name for name in named if not any(each.endswith(f"/{name}") for each in there)}
