"""A server that goes away and comes back: the page says so, and catches up by itself."""

import re
from pathlib import Path

from dashboard.site import Site, go
from playwright.sync_api import Page, expect


def test_the_page_outlives_its_server(tmp_path: Path, page: Page) -> None:
    with Site(tmp_path) as site:
        site.push("before")
        site.keep_addresses()
        go(page, site, "queues", "Queues")
        expect(page.get_by_role("link", name="before")).to_be_visible()
        page.evaluate("window.isTheSamePage = true")
        site.kill()
        expect(page.locator("body")).to_contain_text("Connection lost")
        site.start()
        site.wait_until_ready()
        expect(page.locator("body")).not_to_contain_text("Connection lost")
        site.push("after")
        expect(page.get_by_role("link", name="after")).to_be_visible()
        expect(page.get_by_role("row", name=re.compile("before"))).to_be_visible()
        assert page.evaluate("window.isTheSamePage")
