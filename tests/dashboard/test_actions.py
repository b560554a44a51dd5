"""What can be done on the dashboard: it asks before it destroys, and says what it did."""

import re

from dashboard.site import Site, go, notices
from playwright.sync_api import Page, expect


def test_a_job_is_pushed_with_a_form_that_knows_json(site: Site, page: Page) -> None:
    go(page, site, "queues", "Queues")
    page.get_by_role("button", name="Push a job").click()
    dialog = page.get_by_role("dialog", name="Push a job")
    dialog.get_by_label("Queue", exact=True).fill("from-the-page")
    dialog.get_by_label("Payload", exact=True).fill("{nope")
    dialog.get_by_role("button", name="Push", exact=True).click()
    expect(dialog).to_contain_text("This is not JSON")
    dialog.get_by_label("Payload", exact=True).fill('{"to": "Ann"}')
    dialog.get_by_role("button", name="Push", exact=True).click()
    expect(notices(page)).to_contain_text("Pushed job")
    with site.client() as client:
        [job] = client.fetch("from-the-page")
        assert job.payload == b'{"to":"Ann"}'


def test_a_queue_is_paused_and_resumed(site: Site, page: Page) -> None:
    site.push("pausing")
    go(page, site, "queues/pausing", "pausing")
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("button", name="Resume")).to_be_visible()
    assert site.api("GET", "queues/pausing")["paused"]
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    assert not site.api("GET", "queues/pausing")["paused"]


def test_settings_are_changed(site: Site, page: Page) -> None:
    site.push("setting")
    go(page, site, "queues/setting", "setting")
    page.get_by_role("button", name="Change settings").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Running at once", exact=True).fill("3")
    dialog.get_by_role("button", name="Save").click()
    expect(notices(page)).to_contain_text("Changed 1 setting")
    assert site.api("GET", "queues/setting")["settings"]["concurrency"] == 3


def test_a_purge_says_how_many_it_would_remove_and_how_many_it_has(site: Site, page: Page) -> None:
    for _ in range(3):
        site.push("purging")
    go(page, site, "queues/purging", "purging")
    page.get_by_role("button", name="Purge").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert site.api("GET", "queues/purging")["counts"]["ready"] == 3
    page.get_by_role("button", name="Purge").click()
    page.get_by_role("dialog").get_by_role("button", name=re.compile("Remove about 3")).click()
    expect(notices(page)).to_contain_text("Removed 3 jobs of queue purging")
    assert site.api("GET", "queues/purging")["counts"]["ready"] == 0


def test_a_queue_is_deleted_by_who_types_its_name(site: Site, page: Page) -> None:
    site.push("deleting")
    go(page, site, "queues/deleting", "deleting")
    page.get_by_role("button", name="Delete").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Type").fill("deleting")
    dialog.get_by_role("button", name="Delete the queue").click()
    expect(notices(page)).to_contain_text("Deleted queue deleting")
    names = [queue["name"] for queue in site.api("GET", "queues?limit=1000")["queues"]]
    assert "deleting" not in names


def test_a_job_is_moved_and_cancelled(site: Site, page: Page) -> None:
    job = site.push("moving")
    go(page, site, f"jobs/{job}", f"Job {job}")
    page.get_by_role("button", name="Priority").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Priority", exact=True).fill("5")
    dialog.get_by_role("button", name="Set priority").click()
    expect(notices(page)).to_contain_text("has priority 5")
    page.get_by_role("button", name="Move").click()
    page.get_by_role("dialog").get_by_label("To queue").fill("moved")
    page.get_by_role("dialog").get_by_role("button", name="Move the job").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("moved")
    assert site.api("GET", f"jobs/{job}")["queue"] == "moved"
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel the job").click()
    expect(notices(page)).to_contain_text("Cancelled job")
    assert site.api("GET", "queues/moved")["counts"]["ready"] == 0


def test_dead_letters_are_replayed_and_purged_by_selection(site: Site, page: Page) -> None:
    site.bury("morgue", ["Timeout: 1", "Timeout: 2", "Gone: 3"])
    letters = site.api("GET", "queues/morgue/dead/jobs")["jobs"]
    chosen = letters[0]["id"]
    go(page, site, "dead", "Dead letters")
    page.get_by_role("button", name=re.compile("Show letters of morgue")).first.click()
    page.get_by_role("checkbox", name=re.compile(f"Select job {chosen}")).check()
    page.get_by_role("button", name="Replay").click()
    page.get_by_role("dialog").get_by_role("button", name="Replay").click()
    expect(notices(page)).to_contain_text("Replayed 1 dead letter")
    assert site.api("GET", f"jobs/{chosen}")["state"] == "ready"
    page.get_by_role("checkbox", name=re.compile("Select all of morgue")).first.check()
    page.get_by_role("button", name="Purge").click()
    page.get_by_role("dialog").get_by_role("button", name="Purge").click()
    expect(notices(page)).to_contain_text(re.compile("Purged 2 dead letters"))
    assert site.api("GET", "queues/morgue/dead")["total"] == 0


def test_schedules_are_set_run_and_deleted(site: Site, page: Page) -> None:
    go(page, site, "schedules", "Schedules")
    page.get_by_role("button", name="New schedule").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Schedule", exact=True).fill("nightly")
    dialog.get_by_label("Queue").fill("reports")
    dialog.get_by_label("Cron").fill("0 3 * * *")
    dialog.get_by_role("button", name="Set schedule").click()
    expect(notices(page)).to_contain_text("Schedule nightly is set")
    page.get_by_role("button", name="Run nightly now").click()
    expect(notices(page)).to_contain_text("reports")
    assert site.api("GET", "queues/reports")["counts"]["ready"] == 1
    page.get_by_role("button", name="Delete nightly").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete the schedule").click()
    expect(notices(page)).to_contain_text("Deleted schedule nightly")
    assert site.api("GET", "schedules")["schedules"] == []


def test_a_server_is_drained_and_all_are_told(site: Site, page: Page) -> None:
    go(page, site, "server", "Server")
    page.get_by_role("button", name="Drain").click()
    page.get_by_role("dialog").get_by_role("button", name="Drain the server").click()
    expect(page.locator("body")).to_contain_text("No pushes are taken")
    assert site.api("GET", "server")["draining"]
    page.get_by_role("button", name="Stop draining").click()
    expect(page.get_by_role("button", name="Drain")).to_be_visible()
    assert not site.api("GET", "server")["draining"]
