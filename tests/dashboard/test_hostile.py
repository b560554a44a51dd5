"""Whatever stands in a job, it is text: no script runs, no element is made, nothing is loaded."""

import pytest
from dashboard.site import Site, go
from playwright.sync_api import Page, expect

EVIL = "<img src=x onerror=alert(1)><script>alert(2)</script>'\"&amp;{{7*7}}"
POLICY = (
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
)


def test_the_policy_is_strict(site: Site, page: Page) -> None:
    answer = page.goto(site.url)
    assert answer is not None
    policy = answer.headers["content-security-policy"]
    assert all(rule in policy.split("; ") for rule in POLICY)
    assert "unsafe" not in policy


@pytest.mark.parametrize(
    "payload",
    [EVIL, {EVIL: [EVIL, {"__proto__": EVIL}]}, "javascript:alert(3)", "\u202egnp\x00\x1b[31m"],
    ids=["text", "json", "address", "controls"],
)
def test_payloads_are_shown_and_not_run(site: Site, page: Page, payload: object) -> None:
    queue = "q<b>'\"" + ("&" if isinstance(payload, dict) else "")
    job = site.push(queue, payload, name="<svg/onload=alert(4)>")
    with site.client() as client:
        [held] = client.fetch(queue)
        client.fail(held, EVIL)
    go(page, site, f"jobs/{job}", f"Job {job}")
    expect(page.get_by_role("main")).to_contain_text("<img src=x onerror=alert(1)>")
    go(page, site, "dead", "Dead letters")
    expect(page.get_by_role("main")).to_contain_text("<img src=x")
    go(page, site, "queues", "Queues")
    expect(page.get_by_role("link", name=queue, exact=True)).to_be_visible()
    assert page.locator("img[src=x], main script").count() == 0
    site.api("POST", f"queues/{_quoted(queue)}/dead/purge", {})


def test_large_and_binary_payloads_are_shown_in_part(site: Site, page: Page) -> None:
    large = site.push(
        "large", {"rows": [{"n": number, "text": "x" * 80} for number in range(9000)]}
    )
    go(page, site, f"jobs/{large}", f"Job {large}")
    expect(page.get_by_role("region", name="Payload")).to_contain_text("rows")
    assert page.locator("main *").count() < 20_000
    with site.client() as client:
        binary = client.push("binary", bytes(range(256))).id
    go(page, site, f"jobs/{binary}", f"Job {binary}")
    expect(page.get_by_role("region", name="Payload")).to_contain_text("00 01 02 03")


def _quoted(name: str) -> str:
    from urllib.parse import quote

    return quote(name, safe="")
