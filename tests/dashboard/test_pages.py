"""Every page of the dashboard shows what the server has, and goes on doing so by itself."""

import re

from dashboard.site import Site, go
from playwright.sync_api import Browser, Page, expect
from support.sockets import HANG_GUARD
from support.waiting import wait_for

NAMES = ("Queues", "Dead letters", "Workers", "Schedules", "Limits", "Lake", "Server", "Overview")


def test_all_pages_are_reached_by_their_links_and_have_the_focus(site: Site, page: Page) -> None:
    go(page, site, "", "Overview")
    for name in NAMES:
        page.get_by_role("navigation", name="Pages").get_by_role("link", name=name).click()
        expect(page.get_by_role("heading", level=1)).to_contain_text(name)
        expect(page.get_by_role("heading", level=1)).to_be_focused()


def test_figures_change_without_a_reload(site: Site, page: Page) -> None:
    go(page, site, "queues", "Queues")
    page.evaluate("window.isTheSamePage = true")
    site.push("live-mail")
    row = page.get_by_role("row", name=re.compile("live-mail"))
    expect(row).to_be_visible()
    site.api("POST", "queues/live-mail/pause")
    expect(row).to_contain_text("Paused")
    site.api("DELETE", "queues/live-mail?purge=true")
    expect(row).to_have_count(0)
    assert page.evaluate("window.isTheSamePage")


def test_a_worker_is_shown_while_it_holds_a_job(site: Site, page: Page) -> None:
    job = site.push("held", name="long-task")
    go(page, site, "workers", "Workers")
    with site.client() as client:
        [held] = client.fetch("held")
        expect(page.get_by_role("main")).to_contain_text("long-task")
        client.ack(held)
    expect(page.get_by_role("link", name=str(job), exact=True)).to_have_count(0)


def test_a_job_is_told_from_its_push_to_its_end(site: Site, page: Page) -> None:
    job = site.push("life", {"n": 12345678901234567890}, name="told", priority=2**63 - 1)
    with site.client() as client:
        [first] = client.fetch("life")
        client.nack(first, "ValueError: no such thing", delay=0)
        [second] = client.fetch("life", wait=5)
        client.ack(second, {"fine": True})
    go(page, site, f"jobs/{job}", f"Job {job}")
    main = page.get_by_role("main")
    expect(page.get_by_role("region", name="Payload")).to_contain_text("12345678901234567890")
    expect(main).to_contain_text("9,223,372,036,854,775,807")
    expect(page.get_by_role("region", name="Timeline")).to_contain_text("no such thing")


def test_blockers_and_dependents_are_a_graph(site: Site, page: Page) -> None:
    first = site.push("chain", name="extract")
    second = site.push("chain", name="transform", blocked_by=[first])
    third = site.push("chain", name="load", blocked_by=[second])
    go(page, site, f"jobs/{second}", f"Job {second}")
    graph = page.get_by_role("region", name="Blockers and dependents")
    for id, name in ((first, "extract"), (third, "load")):
        expect(graph.get_by_role("link", name=name)).to_have_attribute("href", f"#/jobs/{id}")


def test_jobs_and_queues_are_found_by_the_search(site: Site, page: Page) -> None:
    job = site.push("search-here", name="needle")
    go(page, site, "", "Overview")
    wait_for(lambda: first_option_was_chosen(page, "search-h", "search-here"))
    go(page, site, "search?name=needle", "Search")
    expect(page.get_by_role("link", name=str(job), exact=True)).to_be_visible()


def first_option_was_chosen(page: Page, typed: str, wanted: str) -> bool:
    """False if another answer has come meanwhile, as to who types slowly: nothing is chosen then,
    and Enter leads to the page of the search."""
    page.keyboard.press("/")
    page.keyboard.type(typed)
    expect(page.get_by_role("option").first).to_contain_text(wanted)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    title = page.get_by_role("heading", level=1)
    expect(title).to_contain_text(re.compile(f"{wanted}|Search"))
    return wanted in (title.text_content() or "")


def test_colours_follow_the_system_and_a_switch_that_is_remembered(site: Site, page: Page) -> None:
    go(page, site, "", "Overview")
    background = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(background)
    page.emulate_media(color_scheme="dark")
    wait_for(lambda: page.evaluate(background) != light)
    page.emulate_media(color_scheme="light")
    wait_for(lambda: page.evaluate(background) == light)
    page.get_by_role("button", name="Colours: auto").click()
    page.get_by_role("button", name="Colours: light").click()
    expect(page.get_by_role("button", name="Colours: dark")).to_be_visible()
    wait_for(lambda: page.evaluate(background) != light)
    page.reload()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Overview")
    wait_for(lambda: page.evaluate(background) != light)


def test_a_phone_shows_all_of_it(site: Site, browser: Browser) -> None:
    site.push("phone", {"a": "b" * 300})
    context = browser.new_context(viewport={"width": 360, "height": 740}, has_touch=True)
    context.set_default_timeout(HANG_GUARD * 1000)
    page = context.new_page()
    for path, title in (("", "Overview"), ("queues", "Queues"), ("queues/phone", "phone")):
        go(page, site, path, title)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
    context.close()


def test_a_thousand_queues_are_a_screenful_of_rows(site: Site, page: Page) -> None:
    with site.client() as client:
        for number in range(1000):
            client.push(f"many-{number:04}", b"")
    go(page, site, "queues?sort=name", "Queues")
    table = page.get_by_role("table").first
    expect(table.get_by_role("link", name="many-0000")).to_be_visible()
    assert page.locator("tbody tr").count() < 200
    page.get_by_label("Filter queues by name").fill("many-0999")
    expect(page.get_by_role("link", name="many-0999")).to_be_visible()
    expect(page.get_by_role("link", name="many-0000")).to_have_count(0)
