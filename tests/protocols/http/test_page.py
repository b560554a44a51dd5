"""The files of the dashboard: who gets them, in which form, and what comes with them."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest
from protocols.http.rig import Rig
from protocols.http.site import Answer, Site, read_answer

from taskyard.protocols.http.dashboard import STATIC, VENDORED, Asset, DashboardPage, read_assets

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; font-src 'none'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
JS = "text/javascript; charset=utf-8"
HTML = "text/html; charset=utf-8"
TEXT = b"export const text = 'the same again and again';\n" * 100


class PageRig(Rig):
    """A page of these files, and nothing else."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        for route in DashboardPage(read_assets(directory)).routes():
            self.add(route.method, route.pattern, route.handler)

    def ask(self, method: str, path: str, *headers: str) -> Answer:
        peer = self.connect()
        peer.send("\r\n".join([f"{method} {path} HTTP/1.1", *headers, "", ""]).encode())
        return read_answer(peer, method)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    static = tmp_path / "static"
    contents: dict[str, bytes] = {
        "index.html": b"<!doctype html>\n<title>Jobs</title>\n",
        "app.css": b"body {}\n",
        "icon.svg": b"<svg/>",
        "js/app.js": TEXT,
        "js/pages/queues.js": b"export {};\n",
        "vendor/preact/LICENSE": b"MIT",
        "notes.md": b"not for the web",
        **dict.fromkeys(VENDORED, b"export {};\n"),
    }
    for name, content in contents.items():
        path = static / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    (tmp_path / "secret.js").write_bytes(b"secret")
    return static


@pytest.fixture
def rig(directory: Path) -> PageRig:
    return PageRig(directory)


# What is there


def test_the_page_is_at_the_root(rig: PageRig) -> None:
    reply = rig.ask("GET", "/")
    assert (reply.status, reply.headers["content-type"]) == (200, HTML)
    assert b"<title>Jobs</title>" in reply.body


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/assets/app.css", "text/css; charset=utf-8"),
        ("/assets/icon.svg", "image/svg+xml"),
        ("/assets/js/app.js", JS),
        ("/assets/js/pages/queues.js", JS),
        ("/assets/vendor/preact/preact.mjs", JS),
        ("/assets/vendor/preact/LICENSE", "text/plain; charset=utf-8"),
    ],
)
def test_each_file_has_its_kind(rig: PageRig, path: str, kind: str) -> None:
    reply = rig.ask("GET", path)
    assert (reply.status, reply.headers["content-type"]) == (200, kind)
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert reply.headers["referrer-policy"] == "no-referrer"
    assert reply.headers["cache-control"] == "no-cache"


@pytest.mark.parametrize(
    "path",
    [
        "/assets",
        "/assets/",
        "/assets/nothing.js",
        "/assets/js",
        "/assets/index.html/x",
        "/assets/notes.md",
        "/assets/../secret.js",
        "/assets/../../secret.js",
        "/assets/js/../../../secret.js",
        "/assets/..%2fsecret.js",
        "/assets/%2e%2e/secret.js",
        "/assets/%2e%2e%2fsecret.js",
        "/assets/..%5csecret.js",
        "/assets//etc/passwd",
        "/assets/%2fetc%2fpasswd",
        "/assets/js/app.js%00",
        "/../secret.js",
    ],
)
def test_nothing_else_is(rig: PageRig, path: str) -> None:
    reply = rig.ask("GET", path)
    assert (reply.status, reply.headers["content-type"]) == (404, "application/problem+json")
    assert b"secret\n" not in reply.body


@pytest.mark.parametrize("path", ["/", "/assets/js/app.js"])
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_files_are_only_read(rig: PageRig, method: str, path: str) -> None:
    reply = rig.ask(method, path)
    assert (reply.status, reply.headers["allow"]) == (405, "GET, HEAD")


def test_a_file_that_comes_later_is_not_served(rig: PageRig, directory: Path) -> None:
    """What is read from the disk is read at the start, and never because of a request."""
    (directory / "js" / "late.js").write_bytes(b"late")
    (directory / "js" / "app.js").write_bytes(b"changed")
    assert rig.ask("GET", "/assets/js/late.js").status == 404
    assert rig.ask("GET", "/assets/js/app.js").body == TEXT


# What comes with it


def test_a_page_has_a_strict_policy_however_it_is_asked_for(rig: PageRig) -> None:
    tag = rig.ask("GET", "/").headers["etag"]
    for method, headers in [
        ("GET", ()),
        ("HEAD", ()),
        ("GET", ("accept-encoding: gzip",)),
        ("GET", (f"if-none-match: {tag}",)),
    ]:
        reply = rig.ask(method, "/", *headers)
        assert reply.headers["content-security-policy"] == POLICY
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["referrer-policy"] == "no-referrer"


def test_head_tells_the_same_without_a_body(rig: PageRig) -> None:
    for path in ("/", "/assets/js/app.js"):
        for headers in ((), ("accept-encoding: gzip",)):
            got = rig.ask("GET", path, *headers)
            told = rig.ask("HEAD", path, *headers)
            assert (told.status, told.headers, told.body) == (got.status, got.headers, b"")


# Caches


def test_what_a_client_has_is_not_sent_again(rig: PageRig, directory: Path) -> None:
    path = "/assets/js/app.js"
    tag = rig.ask("GET", path).headers["etag"]
    for known in (tag, f'"other", {tag}', f"W/{tag}", "*"):
        reply = rig.ask("GET", path, f"if-none-match: {known}")
        assert (reply.status, reply.body, reply.headers["etag"]) == (304, b"", tag)
        assert "content-length" not in reply.headers
    assert rig.ask("HEAD", path, f"if-none-match: {tag}").status == 304
    for other in ('"other"', tag.strip('"'), ""):
        assert rig.ask("GET", path, f"if-none-match: {other}").body == TEXT
    (directory / "js" / "app.js").write_bytes(TEXT + b"\n")
    again = PageRig(directory).ask("GET", path, f"if-none-match: {tag}")
    assert (again.status, len(again.body)) == (200, len(TEXT) + 1)


def test_a_connection_goes_on_after_an_answer_without_a_body(rig: PageRig) -> None:
    tag = rig.ask("GET", "/").headers["etag"]
    peer = rig.connect()
    known = f"GET / HTTP/1.1\r\nif-none-match: {tag}\r\n\r\n".encode()
    peer.send(known + known + b"GET / HTTP/1.1\r\n\r\n")
    told = peer.take()
    assert [told.count(b"HTTP/1.1 304 "), told.count(b"HTTP/1.1 200 ")] == [2, 1]


@pytest.mark.parametrize(
    ("accepted", "packed"),
    [
        ("gzip", True),
        ("gzip, deflate, br", True),
        ("br;q=1.0, GZIP;q=0.5", True),
        ("*", True),
        ("", False),
        ("br, deflate", False),
        ("gzip;q=0", False),
        ("*, gzip;q=0.0", False),
        ("*;q=0", False),
        ("identity", False),
        ("gzip;q=much", False),
        ("xgzip", False),
    ],
)
def test_a_file_is_compressed_for_those_who_accept_it(
    rig: PageRig, accepted: str, packed: bool
) -> None:
    reply = rig.ask("GET", "/assets/js/app.js", f"accept-encoding: {accepted}")
    assert reply.headers.get("content-encoding") == ("gzip" if packed else None)
    assert (gzip.decompress(reply.body) if packed else reply.body) == TEXT
    assert reply.headers["vary"] == "accept-encoding"


def test_both_forms_have_their_own_tag(rig: PageRig) -> None:
    path = "/assets/js/app.js"
    plain = rig.ask("GET", path).headers["etag"]
    packed = rig.ask("GET", path, "accept-encoding: gzip").headers["etag"]
    assert plain != packed
    assert rig.ask("GET", path, f"if-none-match: {packed}").status == 200
    again = rig.ask("GET", path, "accept-encoding: gzip", f"if-none-match: {packed}")
    assert again.status == 304


def test_what_does_not_get_smaller_is_sent_as_it_is() -> None:
    assert Asset(b"short", JS).compressed() is None
    assert Asset(b"", JS).compressed() is None


# Without the libraries


def test_a_page_that_lacks_libraries_says_so_in_plain_html(directory: Path) -> None:
    for name in VENDORED[:2]:
        (directory / name).unlink()
    rig = PageRig(directory)
    reply = rig.ask("GET", "/")
    assert (reply.status, reply.headers["content-type"]) == (503, HTML)
    assert reply.headers["content-security-policy"] == POLICY
    assert re.findall(rb"<li><code>(.*)</code></li>", reply.body) == [
        name.encode() for name in VENDORED[:2]
    ]
    assert b"scripts/vendor" in reply.body
    assert b"<script" not in reply.body
    assert rig.ask("GET", "/assets/js/app.js").status == 200


def test_a_server_without_any_file_of_it_runs(tmp_path: Path) -> None:
    reply = PageRig(tmp_path / "nothing").ask("GET", "/")
    assert reply.status == 503
    assert b"index.html" in reply.body


# Of the server


def test_the_page_is_for_everybody_also_with_a_wrong_password(tmp_path: Path) -> None:
    site = Site(tmp_path)
    for headers in (
        (),
        ("authorization: Bearer wrong",),
        ("authorization: nonsense",),
        ("cookie: taskyard_session=nonsense",),
    ):
        assert site.ask("GET", "/", *headers).headers["content-security-policy"] == POLICY
        for name in read_assets():
            if name != "index.html":
                assert site.ask("GET", f"/assets/{name}", *headers).status == 200


def test_a_page_of_a_name_that_is_not_ours_is_refused(tmp_path: Path) -> None:
    """Else a stranger's site could call itself this server, where nobody has to log in."""
    peer = Site(tmp_path, None).connect()
    peer.send(b"GET / HTTP/1.1\r\nhost: evil.example\r\n\r\n")
    assert read_answer(peer).status == 421


def test_our_files_need_no_other_host() -> None:
    """And nothing that the policy forbids: no inline code, no inline styles."""
    for path in STATIC.rglob("*"):
        if path.suffix not in (".html", ".css", ".js", ".svg") or "vendor" in path.parts:
            continue
        text = path.read_text()
        assert not re.search(r"(?:src|href)=[\"']?(?:https?:)?//", text), path
        assert not re.search(r"(?:import|from|url\()\s*[\"']?(?:https?:)?//", text), path
        if path.suffix == ".html":
            assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son[a-z]+=", text), path


# Weight

LIBRARIES = 32_000  # bytes; measured: 30,2xx
PAGE = 128_000


def transferred(names: list[str]) -> int:
    assets = read_assets()
    return sum(len(assets[name].compressed() or assets[name].content) for name in names)


def test_the_page_is_light() -> None:
    """What a browser that has none of it yet has to load; a phone should not have to wait."""
    assets = [name for name in read_assets() if not name.endswith(("LICENSE", ".txt"))]
    libraries = [name for name in assets if name.startswith("vendor/")]
    assert transferred(libraries) <= LIBRARIES
    assert transferred(assets) <= PAGE
