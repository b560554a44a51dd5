"""TLS, users, and what an error must not tell."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from client.both import open_client
from support.process import WarmServer
from support.tls import HERE, Certificates
from support.users import user, users_of

import taskyard
from taskyard import Client
from taskyard.access.users import Users, save_users
from taskyard.client.url import Address

TOKEN = "ty_a-very-secret-token"
PASSWORD = "p:w/d@?"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    made = Certificates(tmp_path_factory.mktemp("certificates"))
    made.sign("server", "/CN=the server", HERE)
    made.sign("client", "/CN=mailer.example.org")
    return made


@pytest.fixture(scope="module")
def guarded(
    tmp_path_factory: pytest.TempPathFactory, certificates: Certificates
) -> Iterator[WarmServer]:
    """A server that speaks TLS only, and only with those it knows."""
    directory = tmp_path_factory.mktemp("guarded")
    users: Users = users_of(
        user("ada", PASSWORD, admin=True),
        user("robot", tokens=(TOKEN,), rules=(("mine*", "push,take"),)),
        user("mailer", certificate="mailer.example.org", rules=(("mail", "push"),)),
    )
    file = directory / "users.toml"
    save_users(file, users)
    flags = ["--tls-certificate", str(certificates.path("server-both.pem"))]
    flags += ["--tls-client-ca", str(certificates.ca), "--tls-client", "optional"]
    with WarmServer(directory, *flags, "--users", str(file)) as running:
        yield running


@pytest.fixture
def place(guarded: WarmServer) -> str:
    return "{}:{}".format(*guarded.address("resp"))


def test_a_user_with_a_password(
    kind: str, place: str, certificates: Certificates, queue: str
) -> None:
    url = f"taskyards://ada:p%3Aw%2Fd%40%3F@{place}?ca={certificates.ca}"
    with open_client(kind, url) as client:
        pushed = client.push_many(queue, (b"x" * 1000 for _ in range(3000)))
        jobs = client.fetch(queue, count=3)
        assert [job.id for job in jobs] == [one.id for one in pushed[:3]]
        assert client.server().users == 3


def test_a_token_and_what_it_may_do(kind: str, place: str, certificates: Certificates) -> None:
    with open_client(kind, f"taskyards://:{TOKEN}@{place}?ca={certificates.ca}") as client:
        client.push("mine.1", b"x")
        assert client.fetch("mine.1", wait=1)[0].payload == b"x"
        for call in (
            lambda: client.push("hers"),
            lambda: client.fetch("hers"),
            lambda: client.purge("mine.1"),
            client.queues,
        ):
            with pytest.raises(taskyard.Denied):
                call()
        with pytest.raises(taskyard.Incomplete) as caught:
            client.push_many("hers", [1, 2])
        assert isinstance(caught.value.__cause__, taskyard.Denied)


def test_a_certificate_of_our_own(kind: str, place: str, certificates: Certificates) -> None:
    both = certificates.path("client-both.pem")
    with open_client(kind, f"taskyards://{place}?ca={certificates.ca}&cert={both}") as client:
        assert client.push("mail").new
    parts = f"cert={certificates.path('client.pem')}&key={certificates.path('client.key')}"
    with open_client(kind, f"taskyards://{place}?ca={certificates.ca}&{parts}") as client:
        assert client.push("mail").new


def test_who_is_not_let_in_is_told_at_once_and_no_secret(
    kind: str, place: str, certificates: Certificates
) -> None:
    with open_client(kind, f"taskyards://:sesame-42@{place}?ca={certificates.ca}") as client:
        with pytest.raises(taskyard.Denied) as caught:
            client.push("mail")
        assert "sesame-42" not in f"{caught.value!r} {client.address!r} {client.address}"


@pytest.mark.parametrize("ca", ["", "?ca={foreign}"])
def test_a_server_that_is_not_to_be_trusted(
    kind: str, place: str, certificates: Certificates, ca: str
) -> None:
    url = f"taskyards://:{TOKEN}@{place}{ca.format(foreign=certificates.foreign_ca)}"
    with open_client(kind, url) as client:
        with pytest.raises(taskyard.Untrusted, match="certificate") as caught:
            client.ping()
        assert TOKEN not in str(caught.value)


def test_the_name_of_the_server_is_checked() -> None:
    context = Address.parse("taskyards://h").create_tls_context()
    assert context is not None
    assert context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED


def test_tls_to_a_server_that_has_none(kind: str, url: str) -> None:
    secure = url.replace("taskyard:", "taskyards:")
    with open_client(kind, secure) as client, pytest.raises(taskyard.Untrusted):
        client.ping()


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("redis://localhost", "not a URL like"),
        ("taskyard://[::1", "not a URL like"),
        ("taskyard://h#x", "nothing behind a #"),
        ("taskyard://h?ca=x", "is for taskyards:// only"),
        ("taskyards://h?ca=", "must name a file"),
        ("taskyards://h?key=x", "needs the option cert"),
        ("taskyards://h?colour=red", "there is no option colour"),
        ("taskyard://h?timeout=soon", "must be a number of seconds"),
        ("taskyard://h?patience=-1", "must be a number of seconds"),
        ("taskyard://h?patience=inf", "must be a number of seconds"),
        ("taskyards://h?ca=/no/such/file", "/no/such/file cannot be used"),
        ("taskyards://h?cert=/no/such/file", "/no/such/file cannot be used"),
    ],
)
def test_urls_that_are_none(kind: str, url: str, reason: str) -> None:
    secret = url.replace("://", "://ada:sesame-42@")
    with pytest.raises(ValueError, match=reason) as caught:
        open_client(kind, secret)
    assert "sesame-42" not in str(caught.value)


def test_a_key_that_is_locked_is_not_asked_for_at_the_terminal(
    kind: str, certificates: Certificates, tmp_path: Path
) -> None:
    locked = certificates.lock("client")
    url = f"taskyards://h?cert={certificates.path('client.pem')}&key={locked}"
    with pytest.raises(ValueError, match="cannot be used"):
        open_client(kind, url)


def test_the_url_of_the_environment(kind: str, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TASKYARD_URL", url)
    with open_client(kind, None) as client:  # type: ignore[arg-type]
        client.ping()
    monkeypatch.delenv("TASKYARD_URL")
    assert Client().address == Address("localhost", 8002)
