"""Names that mean something to JavaScript are names of queues and schedules like any other."""

import pytest
from dashboard.site import Site, go
from playwright.sync_api import Page, expect

NAMES = ["__proto__", "constructor", "toString", "hasOwnProperty"]


@pytest.mark.parametrize("name", NAMES)
def test_a_queue_of_this_name_is_like_any_other(site: Site, page: Page, name: str) -> None:
    site.bury(name, [name])
    waits = site.push(name, {name: {name: 1}}, name=name)
    schedule = {"queue": name, "every": 3600, "payload": {name: 1}}
    site.api("PUT", f"schedules/{name}", schedule)
    go(page, site, "queues", "Queues")
    expect(page.get_by_role("link", name=name, exact=True)).to_be_visible()
    go(page, site, f"queues/{name}", name)
    expect(page.locator("figure.plot canvas")).to_have_count(4)
    expect(page.get_by_role("main")).to_contain_text("1")
    go(page, site, f"dead?queue={name}", "Dead letters")
    expect(page.get_by_role("main")).to_contain_text(name)
    go(page, site, f"jobs/{waits}", f"Job {waits}")
    expect(page.get_by_role("region", name="Payload")).to_contain_text(name)
    go(page, site, f"schedules?match={name}", "Schedules")
    expect(page.get_by_role("main")).to_contain_text(name)
    with site.client() as client:
        [held] = client.fetch(name)
        go(page, site, "workers", "Workers")
        expect(page.get_by_role("main").get_by_role("link", name=name).first).to_be_visible()
        client.ack(held)
    site.api("DELETE", f"schedules/{name}")


@pytest.mark.parametrize("name", NAMES)
def test_a_page_of_this_name_is_not_there(site: Site, page: Page, name: str) -> None:
    go(page, site, name, "Not found")
    expect(page.locator("nav a[aria-current]")).to_have_count(0)
