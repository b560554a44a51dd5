"""A real Chromium that looks at the dashboard of a real server.

A page may log no error, throw nothing, break no rule of the content security policy, and ask no
other host for anything: that is checked at the end of each test.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from dashboard.site import Site
from playwright.sync_api import Browser, Page, expect, sync_playwright
from support.sockets import HANG_GUARD

PATIENCE = HANG_GUARD * 1000  # milliseconds; a guard against a hang, not a limit
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]

expect.set_options(timeout=PATIENCE)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    program = shutil.which("chromium") or shutil.which("google-chrome")
    assert program, "the tests of the dashboard need Chromium: run scripts/setup dev"
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, args=FLAGS, timeout=PATIENCE)
        yield started
        started.close()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with Site(tmp_path_factory.mktemp("site")) as running:
        yield running


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    context.set_default_timeout(PATIENCE)
    tab = context.new_page()
    faults: list[str] = []
    hosts: set[str] = set()
    tab.on("console", lambda told: faults.append(told.text) if told.type in _BAD else None)
    tab.on("pageerror", lambda error: faults.append(str(error)))
    tab.on("dialog", lambda dialog: faults.append(f"a script has run: {dialog.message}"))
    tab.on("request", lambda request: hosts.add(request.url.split("/")[2]))
    yield tab
    context.close()
    assert [fault for fault in faults if not _is_expected(fault)] == []
    assert all(host.startswith("127.0.0.1:") for host in hosts)


_BAD = ("error", "warning", "assert")


def _is_expected(fault: str) -> bool:
    """Chromium itself tells of each request that was refused or found nobody."""
    return fault.startswith("Failed to load resource:")


@pytest.fixture(scope="session")
def axe() -> str:
    """The text of the checker of accessibility."""
    found = Path("build/vendor-dev/axe-core/axe.min.js")
    assert found.exists(), "scripts/vendor dev brings axe-core"
    return found.read_text(encoding="utf-8")
