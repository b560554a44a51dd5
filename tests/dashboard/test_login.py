"""Where there are users, the page asks who one is, and shows what one may see."""

import subprocess
import sys
from collections.abc import Iterator

import pytest
from dashboard.site import Site, go
from playwright.sync_api import Page, expect

from taskyard import Client

PASSWORDS = {"ada": "correct horse battery", "bob": "another secret word"}
RIGHTS = {"ada": ["--admin"], "bob": ["--queues", "mail", "--allow", "inspect"]}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("guarded")
    users = folder / "users.toml"
    for name, password in PASSWORDS.items():
        command = [sys.executable, "-m", "taskyard", "user", "add", name, "--users", str(users)]
        subprocess.run([*command, *RIGHTS[name]], input=f"{password}\n".encode(), check=True)
    with Site(folder, "--users", str(users)) as running:
        host, port = running.address("resp")
        secret = PASSWORDS["ada"].replace(" ", "%20")
        with Client(f"taskyard://ada:{secret}@{host}:{port}") as client:
            client.push("mail", b"hello")
            client.push("private", b"secret")
        yield running


def log_in(page: Page, site: Site, name: str, password: str) -> None:
    page.goto(site.url)
    expect(page.get_by_role("heading", name="Log in")).to_be_visible()
    page.get_by_label("User").fill(name)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Log in").click()


def test_a_wrong_password_is_said_to_be_wrong(guarded: Site, page: Page) -> None:
    log_in(page, guarded, "ada", "wrong")
    expect(page.get_by_role("alert")).to_contain_text("wrong")


def test_an_administrator_sees_all_and_logs_out(guarded: Site, page: Page) -> None:
    log_in(page, guarded, "ada", PASSWORDS["ada"])
    expect(page.get_by_role("heading", level=1)).to_contain_text("Overview")
    go(page, guarded, "queues", "Queues")
    expect(page.get_by_role("link", name="private")).to_be_visible()
    [cookie] = page.context.cookies()
    assert cookie["httpOnly"]
    assert cookie["sameSite"] == "Strict"
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_role("heading", name="Log in")).to_be_visible()
    assert page.context.cookies() == []


def test_a_user_of_one_queue_sees_that_one(guarded: Site, page: Page) -> None:
    log_in(page, guarded, "bob", PASSWORDS["bob"])
    expect(page.get_by_role("button", name="Log out")).to_be_visible()
    go(page, guarded, "queues", "Queues")
    expect(page.get_by_role("link", name="mail")).to_be_visible()
    expect(page.get_by_role("link", name="private")).to_have_count(0)
    go(page, guarded, "queues/mail", "mail")
    expect(page.get_by_role("button", name="Purge")).to_be_disabled()
