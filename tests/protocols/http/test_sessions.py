"""Logging in with a browser: the cookie, what ends it, and what other sites cannot do with it."""

from __future__ import annotations

import base64
import json
import stat
from pathlib import Path
from typing import Any

import pytest
from protocols.http.site import COOKIE, PASSWORD, TOKEN, Answer, Site, people
from support.users import user, users_of

from taskyard.access.sessions import KEY_FILE
from taskyard.protocols.http.routing import NoRoute

SESSION = "/api/v1/session"
HOUR = 3600
EVERYTHING = dict.fromkeys(("push", "take", "inspect", "admin", "journal"), True)
NOTHING = dict.fromkeys(EVERYTHING, False)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def told(answer: Answer) -> Any:
    assert answer.status == 200, answer.body
    return answer.json()


def refused(answer: Answer, status: int, kind: str) -> str:
    body: Any = answer.json()
    assert (answer.status, body["type"]) == (status, f"urn:taskyard:problem:{kind}")
    detail: str = body["detail"]
    return detail


def name_of(site: Site, *headers: str) -> object:
    return told(site.ask("GET", SESSION, *headers))["user"]


def ended(site: Site, cookie: str) -> None:
    """Nothing is done with this cookie, and the browser is told to forget it."""
    answer = site.ask("GET", "/api/v1/server", cookie)
    assert refused(answer, 401, "unauthenticated") == "The session has ended: log in again."
    assert answer.has_dropped()
    shown = site.ask("GET", SESSION, cookie)
    assert (told(shown)["user"], shown.has_dropped()) == (None, True)


# Logging in and out


@pytest.mark.parametrize("given", [{"user": "root", "password": PASSWORD}, {"token": TOKEN}])
def test_who_logs_in_is_known_by_the_cookie(site: Site, given: dict[str, str]) -> None:
    answer = site.ask("POST", SESSION, value=given)
    view = told(answer)
    assert (view["user"], view["users"], view["needs_login"]) == ("root", True, False)
    assert view["may"] == view["may_somewhere"] == EVERYTHING
    assert answer.headers["cache-control"] == "no-store"
    [line] = answer.all("set-cookie")
    assert line.startswith(f"{COOKIE}=1.")
    assert "; Max-Age=43200; " in line or "; Max-Age=43199; " in line
    assert "Secure" not in line
    cookie = f"cookie: {answer.cookie()}"
    assert told(site.ask("GET", SESSION, cookie)) == view
    assert site.ask("GET", "/api/v1/server", cookie).status == 200
    assert site.ask("PUT", "/api/v1/queues/new", cookie, value={}).status == 201
    for secret in (PASSWORD, TOKEN):
        assert secret not in line


def test_logging_out_has_the_browser_forget_it(site: Site) -> None:
    cookie = site.log_in(token=TOKEN)
    for header in (cookie, "x: no cookie", "cookie: taskyard_session=nonsense"):
        answer = site.ask("DELETE", SESSION, header)
        assert (answer.status, answer.has_dropped()) == (204, True)


def test_others_cookies_stand_beside_it(site: Site) -> None:
    pair = site.log_in(token=TOKEN).removeprefix("cookie: ")
    assert name_of(site, f"cookie: theme=dark; {pair}; x{COOKIE}=other") == "root"
    assert name_of(site, f"cookie: theme=dark; x{pair}") is None


@pytest.mark.parametrize("secure", [False, True])
def test_the_cookie_is_only_for_tls_where_there_is_tls(site: Site, secure: bool) -> None:
    scheme = "https" if secure else "http"
    origin = f"origin: {scheme}://taskyard"
    answer = site.ask("POST", SESSION, origin, value={"token": TOKEN})
    [line] = answer.all("set-cookie")
    assert line.endswith("; Secure") is secure


def test_a_server_that_speaks_tls_says_so_by_itself(tmp_path: Path) -> None:
    site = Site(tmp_path, settings={"tls_certificate": tmp_path / "server.pem"})
    [line] = site.ask("POST", SESSION, value={"token": TOKEN}).all("set-cookie")
    assert line.endswith("; Secure")


@pytest.mark.parametrize(
    "given",
    [
        {"user": "root", "password": "wrong"},
        {"user": "nobody", "password": PASSWORD},
        {"user": "worker", "password": PASSWORD},  # who has none
        {"user": "root", "password": TOKEN},
        {"token": PASSWORD},
        {"token": "ty_wrong"},
    ],
)
def test_what_is_wrong_is_refused_and_gets_no_cookie(site: Site, given: dict[str, str]) -> None:
    answer = site.ask("POST", SESSION, value=given)
    detail = refused(answer, 401, "unauthenticated")
    assert detail == "The name, the password or the token is wrong."
    assert not answer.all("set-cookie")
    # A browser would ask for a password by itself, over the form of the page.
    assert answer.all("www-authenticate") == ['Bearer realm="taskyard"']
    assert not (site.data / KEY_FILE).exists()


def test_wrong_passwords_get_slower_as_for_every_login(site: Site) -> None:
    body = json.dumps({"user": "root", "password": "wrong"}).encode()
    request = b"POST /api/v1/session HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    request += b"content-length: %d\r\n\r\n" % len(body) + body
    peer = site.connect()
    for wait in (0.25, 0.5, 1.0):
        peer.send(request)
        site.yard.advance(wait * 0.9)
        peer.expect_nothing()
        site.yard.advance(wait * 0.2)
        assert peer.take().startswith(b"HTTP/1.1 401 ")
    assert site.gate is not None
    assert site.gate.failed_logins == 3


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({}, "user"),
        ({"password": "x"}, "user"),
        ({"user": "root"}, "password"),
        ({"user": "root", "password": "x", "token": "y"}, "token"),
        ({"user": "root", "password": "x", "more": 1}, "more"),
        ({"user": "root", "password": ""}, "password"),
        ({"user": 7, "password": "x"}, "user"),
        ({"token": "x" * 1025}, "token"),
    ],
)
def test_a_login_that_cannot_be_read_says_why(
    site: Site, given: dict[str, object], field: str
) -> None:
    answer = site.ask("POST", SESSION, value=given)
    refused(answer, 400, "invalid-value")
    body: Any = answer.json()
    assert body["field"] == field


def test_a_form_of_a_page_cannot_log_in(site: Site) -> None:
    peer = site.connect()
    head = b"POST /api/v1/session HTTP/1.1\r\nhost: x\r\ncontent-type: text/plain\r\n"
    peer.send(head + b'content-length: 20\r\n\r\n{"token":"ty_token"}')
    assert peer.take().startswith(b"HTTP/1.1 415 ")


# Who asks


def test_strangers_are_told_that_they_have_to_log_in(site: Site) -> None:
    assert told(site.ask("GET", SESSION)) == {
        "user": None,
        "users": True,
        "needs_login": True,
        "until": None,
        "may": NOTHING,
        "may_somewhere": NOTHING,
    }


def test_strangers_who_may_see_something_do_not_have_to(tmp_path: Path) -> None:
    site = Site(tmp_path, users_of(user("root", PASSWORD), anonymous=(("public", "inspect"),)))
    view = told(site.ask("GET", SESSION))
    assert (view["user"], view["needs_login"]) == (None, False)
    assert (view["may"]["inspect"], view["may_somewhere"]["inspect"]) == (False, True)


def test_where_there_are_no_users_everybody_may_do_everything(tmp_path: Path) -> None:
    site = Site(tmp_path, None)
    view = told(site.ask("GET", SESSION))
    assert view == {
        "user": None,
        "users": False,
        "needs_login": False,
        "until": None,
        "may": EVERYTHING,
        "may_somewhere": EVERYTHING,
    }
    refused(site.ask("POST", SESSION, value={"token": TOKEN}), 409, "no-users")
    assert site.ask("DELETE", SESSION).status == 204


def test_users_see_what_they_may_do(site: Site) -> None:
    view = told(site.ask("GET", SESSION, site.log_in(user="ada", password=PASSWORD)))
    assert (view["user"], view["may"]) == ("ada", NOTHING)
    assert view["may_somewhere"] == {**NOTHING, "push": True, "inspect": True}


def test_a_header_counts_more_than_a_cookie_and_that_more_than_a_certificate(site: Site) -> None:
    cookie = site.log_in(user="ada", password=PASSWORD)
    bearer = f"authorization: Bearer {TOKEN}"
    view = told(site.ask("GET", SESSION, cookie, bearer))
    assert (view["user"], view["until"]) == ("root", None)
    common = "worker.example.org"
    assert told(site.ask("GET", SESSION, cookie, certificate=common))["user"] == "ada"
    assert told(site.ask("GET", SESSION, certificate=common))["user"] == "worker"
    refused(site.ask("GET", SESSION, cookie, "authorization: Bearer wrong"), 401, "unauthenticated")


def test_a_cookie_gives_the_permissions_of_its_user_and_no_more(site: Site) -> None:
    cookie = site.log_in(user="ada", password=PASSWORD)
    assert site.ask("POST", "/api/v1/queues/mail/jobs", cookie, value={}).status == 201
    assert site.ask("GET", "/api/v1/queues/mail", cookie).status == 200
    for method, path in [
        ("POST", "/api/v1/queues/mail/pause"),
        ("POST", "/api/v1/queues/other/jobs"),
        ("GET", "/api/v1/queues/other"),
        ("GET", "/api/v1/server"),
        ("GET", "/metrics"),
        ("GET", "/status/other"),
        ("GET", "/api/v1/events"),
    ]:
        answer = site.ask(method, path, cookie)
        assert refused(answer, 403, "denied").startswith("User ada has no permission")
        assert not answer.has_dropped()


# What ends it


def test_it_ends_after_its_time(site: Site) -> None:
    cookie = site.log_in(token=TOKEN)
    site.yard.advance(12 * HOUR - 5)
    assert name_of(site, cookie) == "root"
    site.yard.advance(10)
    ended(site, cookie)
    assert name_of(site, site.log_in(token=TOKEN)) == "root"


def test_how_long_that_is_can_be_set(tmp_path: Path) -> None:
    site = Site(tmp_path, settings={"session_length": 60_000_000})
    cookie = site.log_in(token=TOKEN)
    site.yard.advance(55)
    assert name_of(site, cookie) == "root"
    site.yard.advance(10)
    ended(site, cookie)


def test_it_survives_a_restart(site: Site) -> None:
    cookie = site.log_in(user="root", password=PASSWORD)
    before = site.users
    site.start()
    assert site.users is before
    assert name_of(site, cookie) == "root"


def test_a_new_password_ends_it(site: Site) -> None:
    cookie = site.log_in(user="root", password=PASSWORD)
    other = site.log_in(token=TOKEN)
    users = people()  # the same password, but with another salt: it was set anew
    site.change(users)
    ended(site, cookie)
    assert name_of(site, other) == "root"


def test_a_token_that_is_taken_away_ends_it(site: Site) -> None:
    cookie = site.log_in(token=TOKEN)
    other = site.log_in(token="ty_second")
    password = site.log_in(user="root", password=PASSWORD)
    assert site.users is not None
    users = users_of(*site.users.users.values())
    root = users.users["root"]
    users.users["root"] = user("root", tokens=("ty_second",), admin=True)
    users.users["root"].password = root.password
    site.change(users)
    ended(site, cookie)
    assert name_of(site, other) == name_of(site, password) == "root"


def test_a_user_who_is_removed_is_nobody(site: Site) -> None:
    cookie = site.log_in(token=TOKEN)
    site.change(users_of(user("other", PASSWORD, admin=True)))
    ended(site, cookie)
    site.start()
    ended(site, cookie)


def test_rules_that_change_count_at_once(site: Site) -> None:
    cookie = site.log_in(user="ada", password=PASSWORD)
    assert site.users is not None
    ada = site.users.users["ada"]
    again = user("ada", rules=(("other", "inspect"),))
    again.password = ada.password
    site.change(users_of(again))
    view = told(site.ask("GET", SESSION, cookie))
    assert view["may_somewhere"] == {**NOTHING, "inspect": True}


def test_another_key_ends_all(site: Site) -> None:
    cookie = site.log_in(token=TOKEN)
    (site.data / KEY_FILE).unlink()
    site.start()
    ended(site, cookie)
    assert not (site.data / KEY_FILE).exists()  # nobody has logged in since
    again = site.log_in(token=TOKEN)
    assert name_of(site, again) == "root"
    ended(site, cookie)


@pytest.mark.parametrize("content", [b"", b"short", b"x" * 33])
def test_a_key_that_is_no_key_is_made_anew(site: Site, content: bytes) -> None:
    cookie = site.log_in(token=TOKEN)
    (site.data / KEY_FILE).write_bytes(content)
    site.start()
    ended(site, cookie)
    assert len((site.data / KEY_FILE).read_bytes()) == 32
    assert name_of(site, site.log_in(token=TOKEN)) == "root"


def test_only_the_servers_own_user_can_read_the_key(site: Site) -> None:
    site.log_in(token=TOKEN)
    key = site.data / KEY_FILE
    assert (stat.S_IMODE(key.stat().st_mode), len(key.read_bytes())) == (0o600, 32)
    assert [path.name for path in site.data.iterdir()] == [KEY_FILE]


def test_a_key_that_cannot_be_written_lasts_as_long_as_the_server(tmp_path: Path) -> None:
    site = Site(tmp_path / "nowhere")
    cookie = site.log_in(token=TOKEN)
    assert name_of(site, cookie) == "root"
    site.start()
    ended(site, cookie)


# What nobody can make up


def parts_of(cookie: str) -> list[str]:
    return cookie.removeprefix(f"cookie: {COOKIE}=").split(".")


def encoded(name: str) -> str:
    return base64.urlsafe_b64encode(name.encode()).rstrip(b"=").decode()


def test_no_part_of_it_can_be_changed(site: Site) -> None:
    cookie = site.log_in(user="ada", password=PASSWORD)
    form, name, end, signed = parts_of(cookie)
    assert name == encoded("ada")
    forged = [
        [form, encoded("root"), end, signed],
        [form, encoded("nobody"), end, signed],
        [form, encoded("ADA"), end, signed],
        [form, name, str(int(end) + 1), signed],
        [form, name, f"0{end}", "A" * 43],
        [form, name, end, "A" * 43],
        [form, name, end, signed[:-2]],
        [form, name, end, ("B" if signed[0] == "A" else "A") + signed[1:]],
        ["2", name, end, signed],
        [form, name, "9" * 13, signed],
        [form, name, end],
        [form, name, end, signed, ""],
        [form, "_", end, signed],
        [form, "_w", end, signed],  # not UTF-8
        [form, "A" * 500, end, signed],
        [""],
        ["é" * 43],
    ]
    for parts in forged:
        ended(site, f"cookie: {COOKIE}={'.'.join(parts)}")
    assert name_of(site, cookie) == "ada"


def test_a_cookie_of_another_server_is_none_of_this_one(site: Site, tmp_path: Path) -> None:
    """Though it has the same users: its key is another."""
    other = Site(tmp_path / "other", site.users)
    (tmp_path / "other").mkdir()
    cookie = other.log_in(token=TOKEN)
    assert name_of(other, cookie) == "root"
    site.log_in(token=TOKEN)
    ended(site, cookie)


def test_what_was_signed_for_one_user_is_not_good_for_another(site: Site) -> None:
    """Also if both had the same secret."""
    twin = user("twin", admin=True)
    assert site.users is not None
    twin.password = site.users.users["ada"].password
    site.change(users_of(*site.users.users.values(), twin))
    form, _, end, signed = parts_of(site.log_in(user="ada", password=PASSWORD))
    ended(site, f"cookie: {COOKIE}={form}.{encoded('twin')}.{end}.{signed}")


# Pages of other sites


@pytest.mark.parametrize(
    ("header", "passes"),
    [
        ("origin: http://taskyard", True),
        ("x: none", True),
        ("sec-fetch-site: same-origin", True),
        ("sec-fetch-site: none", True),
        ("origin: http://evil.example", False),
        ("origin: http://taskyard:81", False),
        ("origin: null", False),
        ("sec-fetch-site: cross-site", False),
        ("sec-fetch-site: same-site", False),
    ],
)
def test_pages_of_other_sites_change_nothing_with_it(site: Site, header: str, passes: bool) -> None:
    cookie = site.log_in(token=TOKEN)
    for method, path, value in [
        ("PUT", "/api/v1/queues/new", {}),
        ("POST", SESSION, {"token": TOKEN}),
        ("DELETE", SESSION, None),
    ]:
        answer = site.ask(method, path, cookie, header, value=value)
        assert (answer.status < 300) is passes
        assert passes or (answer.status == 403 and not answer.all("set-cookie"))
    assert site.ask("GET", "/api/v1/queues/new", cookie).status == (200 if passes else 404)


def test_pages_that_the_operator_allows_may(tmp_path: Path) -> None:
    site = Site(tmp_path, settings={"http_origins": ("https://ops.example",)})
    cookie = site.log_in(token=TOKEN)
    own, other = "origin: https://ops.example", "sec-fetch-site: cross-site"
    assert site.ask("PUT", "/api/v1/queues/a", cookie, own, other, value={}).status == 201
    assert site.ask("PUT", "/api/v1/queues/b", cookie, other, value={}).status == 403
    site = Site(tmp_path, settings={"http_origins": ("*",)})
    assert site.ask("PUT", "/api/v1/queues/b", cookie, other, value={}).status == 201


@pytest.mark.parametrize(
    "header",
    [
        "x-requested-with: fetch",
        "accept: text/event-stream",
        "sec-fetch-dest: empty",
        f"cookie: {COOKIE}=nonsense",
    ],
)
def test_what_a_page_asks_brings_up_no_form_of_the_browser(site: Site, header: str) -> None:
    for path in ("/api/v1/server", "/api/v1/events", "/metrics"):
        answer = site.ask("GET", path, header)
        assert answer.status == 401
        assert answer.all("www-authenticate") == ['Bearer realm="taskyard"']
        plain = site.ask("GET", path, "cookie: theme=dark")
        assert [each.split()[0] for each in plain.all("www-authenticate")] == ["Basic", "Bearer"]


# Other ways in


def test_a_large_body_is_taken_from_who_has_a_cookie(site: Site) -> None:
    cookie = site.log_in(token=TOKEN)
    path, value = "/api/v1/queues/mail/jobs", {"text": "x" * 100_000}
    assert site.ask("POST", path, cookie, value=value).status == 201
    assert site.ask("POST", path, value=value).status == 401
    answer = site.ask("POST", path, f"cookie: {COOKIE}=nonsense", value=value)
    assert (answer.status, answer.has_dropped()) == (401, True)


def test_it_is_not_among_the_calls_of_resp(site: Site) -> None:
    for method in ("GET", "POST", "DELETE"):
        with pytest.raises(NoRoute):
            site.web.api.find(method, SESSION)
    site.web.api.find("GET", "/api/v1/server")
