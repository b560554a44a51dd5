"""The journal over HTTPS, with certificates that only we know."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.process import ServerProcess
from support.tls import HERE, Certificates

from taskyard.pipeline.journal import open_journal
from taskyard.pipeline.journal_http import ServerUnreachable


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    made = Certificates(tmp_path_factory.mktemp("certificates"))
    made.sign("server", "/CN=server", HERE)
    made.sign("lake", "/CN=lake")
    return made


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[str]:
    flags = ["--tls-certificate", str(certificates.path("server-both.pem"))]
    flags += ["--tls-client-ca", str(certificates.ca)]
    with ServerProcess(tmp_path_factory.mktemp("server"), *flags) as server:
        host, port = server.address("http")
        yield f"https://{host}:{port}"


def test_a_server_and_a_client_know_each_other(url: str, certificates: Certificates) -> None:
    files = f"?ca={certificates.ca}&cert={certificates.path('lake-both.pem')}"
    assert open_journal(url + files).view().first_seq == 1


def test_a_server_that_nobody_vouches_for_is_not_asked_again(url: str) -> None:
    with pytest.raises(ServerUnreachable, match="certificate verify failed"):
        open_journal(url).view()


def test_files_that_cannot_be_used_are_named(url: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"missing\.pem cannot be used: .*No such file"):
        open_journal(f"{url}?ca={tmp_path / 'missing.pem'}").view()


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("http://ann:secret@h:1?ca=x", "h:1[?]ca=x: the option ca is for https:// only"),
        ("https://ann:secret@h:1?ca=", "h:1[?]ca=: the option ca must name a file"),
        ("https://ann:secret@h:1?key=x", "h:1[?]key=x: the option key needs the option cert"),
        ("https://ann:secret@h:1?patience=1", "there is no option patience, only ca, cert, key"),
    ],
)
def test_options_that_cannot_be_are_refused(address: str, reason: str) -> None:
    with pytest.raises(ValueError, match=f"^{reason}|{reason}$"):
        open_journal(address)
