"""The site builds without a complaint, needs no other host, and is as the code is."""

import ast
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
import yaml

from taskyard.server.settings.schema import load_settings, options

ROOT = Path(__file__).resolve().parent.parent.parent
SOURCE = ROOT / "src" / "taskyard"
DOCS = ROOT / "docs"
GROUPS = [
    "Home",
    "Quick start",
    "Dialects",
    "Tasks and workers",
    "Pipeline",
    "Operations",
    "Reference",
    "Internals",
]
# `name` in `file`, or `name` (`file`); several names may share a file.
PLACED = re.compile(r"((?:`[\w.]+`(?:, | and )?)+)(?: in|,? \()\s*`(\w+(?:/\w+)+\.py)`")


class Loads(HTMLParser):
    """What a browser fetches for a page by itself."""

    FETCHED = ("script", "link", "img", "iframe", "source", "video", "audio", "object", "embed")

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in self.FETCHED:
            self.addresses += [
                value for name, value in attrs if name in ("src", "href", "data") and value
            ]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as `make docs` does it: what links or navigation miss is an error."""
    place = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(place)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return place


def test_every_page_is_in_the_site(site: Path) -> None:
    for page in DOCS.rglob("*.md"):
        assert (site / page.relative_to(DOCS)).with_suffix(".html").exists(), page
    assert (site / "contributing.html").exists()
    assert (site / "changelog.html").exists()


def test_a_page_links_to_files_of_the_repository(site: Path) -> None:
    text = (site / "internals" / "index.html").read_text(encoding="utf-8")
    assert 'href="../source/src/taskyard/engine/model/job.py.txt"' in text
    copied = site / "source" / "src" / "taskyard" / "engine" / "model" / "job.py.txt"
    assert copied.read_bytes() == (SOURCE / "engine" / "model" / "job.py").read_bytes()


def test_nothing_is_fetched_from_other_hosts(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 40
    for page in pages:
        loads = Loads()
        loads.feed(page.read_text(encoding="utf-8"))
        assert loads.addresses
        for address in loads.addresses:
            assert not re.match(r"(?:\w+:)?//", address), (page, address)
    for sheet in site.rglob("*.css"):
        text = sheet.read_text(encoding="utf-8")
        assert not re.search(r"(?:url\(|@import)\s*['\"]?(?:https?:)?//", text), sheet


def test_the_navigation_is_grouped(site: Path) -> None:
    assert site.exists()
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    assert [next(iter(entry)) for entry in settings["nav"]] == GROUPS
    assert settings["strict"] is True


def test_the_table_of_settings_is_that_of_the_code() -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "reference.py"))
    page = (DOCS / "configuration.md").read_text(encoding="utf-8")
    assert page.count("\n| `--") == len(options())
    assert script["made"](page) == page, "run make reference"


def test_every_package_is_on_the_map() -> None:
    page = (DOCS / "internals" / "index.md").read_text(encoding="utf-8")
    on_map = set(re.findall(r"^\| `([\w/]+)/` \|[^|]+\|[^|]*\w[^|]*\|$", page, re.MULTILINE))
    packages = {str(file.parent.relative_to(SOURCE)) for file in SOURCE.rglob("__init__.py")}
    assert packages - {"."} <= on_map


def names_in_the_life_of_a_request() -> Iterator[tuple[str, str]]:
    page = (DOCS / "internals" / "request.md").read_text(encoding="utf-8")
    for names, file in PLACED.findall(page):
        for name in re.findall(r"`([\w.]+)`", names):
            yield name, file


@pytest.mark.parametrize(("name", "file"), sorted(set(names_in_the_life_of_a_request())))
def test_what_the_life_of_a_request_names_is_there(name: str, file: str) -> None:
    tree = ast.parse((SOURCE / file).read_text(encoding="utf-8"))
    known: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            known.add(node.name)
        if isinstance(node, ast.ClassDef):
            known |= {
                f"{node.name}.{item.name}"
                for item in node.body
                if isinstance(item, ast.FunctionDef)
            }
    assert name in known


def test_the_life_of_a_request_names_many() -> None:
    assert len(set(names_in_the_life_of_a_request())) > 40


def test_the_unit_starts_the_server_with_settings_that_exist() -> None:
    unit = (ROOT / "packaging" / "taskyard.service").read_text(encoding="utf-8")
    command = re.findall(r"^ExecStart=(.*)$", unit, re.MULTILINE)
    check_command(shlex.split(command[0])[1:])


def test_the_container_starts_the_server_with_settings_that_exist() -> None:
    recipe = (ROOT / "packaging" / "Containerfile").read_text(encoding="utf-8")
    command = re.findall(r"^CMD (\[.*?\])", recipe.replace("\\\n", ""), re.MULTILINE | re.DOTALL)
    check_command(ast.literal_eval(command[0]))
    exposed = re.findall(r"^EXPOSE (.*)$", recipe, re.MULTILINE)[0].split()
    ports = [option.default for option in options() if option.name.endswith("_port")]
    assert sorted(exposed) == sorted(ports)


def check_command(words: list[str]) -> None:
    assert words[0] == "serve"
    by_flag = {option.flag: option.name for option in options()}
    load_settings(
        {by_flag[flag]: value for flag, value in zip(words[1::2], words[2::2], strict=True)}, {}
    )
