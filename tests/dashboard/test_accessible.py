"""axe-core finds nothing serious on any page, light or dark, and the keyboard does it all."""

import json
from typing import Any

import pytest
from dashboard.site import Site, go
from playwright.sync_api import Page, expect
from support.waiting import wait_for

PAGES = {
    "": "Overview",
    "queues": "Queues",
    "queues/axe": "axe",
    "dead": "Dead letters",
    "workers": "Workers",
    "schedules": "Schedules",
    "limits": "Limits",
    "lake": "Lake",
    "server": "Server",
    "search?name=axe": "Search",
}


@pytest.fixture(scope="module", autouse=True)
def jobs(site: Site) -> int:
    """Something on every page; the id of a job that waits for another one."""
    site.api("PUT", "queues/axe", {"concurrency": 2, "rate": {"count": 5, "per": 1}})
    site.api("PUT", "schedules/axe", {"every": 3600, "queue": "axe"})
    site.bury("axe", ["Timeout: 1", "Gone: 2"])
    first = site.push("axe", {"deep": [{"er": [1, 2, {"x": None}]}]}, name="axe-task")
    return site.push("axe", "text", name="axe-task", blocked_by=[first])


def findings(page: Page, axe: str) -> list[Any]:
    page.evaluate(axe)
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        json.dumps({"rule": each["id"], "where": [node["html"] for node in each["nodes"]]})
        for each in found["violations"]
        if each["impact"] in ("serious", "critical")
    ]


@pytest.mark.parametrize("colours", ["light", "dark"])
def test_no_page_has_a_serious_finding(
    site: Site, page: Page, axe: str, jobs: int, colours: Any
) -> None:
    page.emulate_media(color_scheme=colours, reduced_motion="reduce")
    for path, title in (*PAGES.items(), (f"jobs/{jobs}", f"Job {jobs}")):
        go(page, site, path, title)
        expect(page.get_by_role("banner").get_by_text("Live", exact=True)).to_be_visible()
        assert (path, findings(page, axe)) == (path, [])


def test_nor_has_a_dialog(site: Site, page: Page, axe: str) -> None:
    go(page, site, "queues/axe", "axe")
    for button in ("Push a job", "Purge", "Change settings", "Delete"):
        page.get_by_role("button", name=button).click()
        expect(page.get_by_role("dialog")).to_be_visible()
        assert (button, findings(page, axe)) == (button, [])
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_have_count(0)
        expect(page.get_by_role("button", name=button)).to_be_focused()


def test_a_job_is_pushed_with_the_keyboard_alone(site: Site, page: Page) -> None:
    go(page, site, "queues/axe", "axe")
    page.get_by_role("button", name="Push a job").focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name="Push a job")
    expect(dialog).to_be_visible()
    dialog.get_by_label("Payload", exact=True).focus()
    page.keyboard.press("Control+A")
    page.keyboard.type('"typed"')
    for _ in range(20):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent.trim()") == "Push":
            break
    page.keyboard.press("Enter")
    expect(page.get_by_role("status", name="Notices")).to_contain_text("Pushed job")


def test_keys_lead_to_pages(site: Site, page: Page) -> None:
    go(page, site, "", "Overview")
    wait_for(lambda: leads_to(page, "q", "#/queues"))
    expect(page.get_by_role("heading", level=1)).to_contain_text("Queues")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("/")


def leads_to(page: Page, key: str, address: str) -> bool:
    """False if more than a second was between the two keys, on a busy machine."""
    page.keyboard.press("g")
    page.keyboard.press(key)
    return bool(page.evaluate("location.hash") == address)
