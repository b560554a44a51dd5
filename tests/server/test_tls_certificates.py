"""Whose certificates count: those of clients, those read again, and those that are no good."""

import asyncio
import contextlib
import shutil
import signal
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvloop
from redis import Redis
from support.process import WarmServer
from support.simulated import SimulatedServer
from support.sockets import HANG_GUARD
from support.tls import HERE, Certificates, TlsPeer
from support.wire import exchange
from websockets.asyncio.client import connect

from taskyard.broker.turns import ClientConnection
from taskyard.server.net.connection import Connection, ConnectionRegistry
from taskyard.server.settings.schema import ConfigError, load_settings
from taskyard.server.tls import TlsTransport, holder_name, make_context


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    made = Certificates(tmp_path_factory.mktemp("certificates"))
    made.sign("server", "/CN=the server", HERE)
    made.sign("renewed", "/CN=the renewed server", HERE)
    made.sign("alice", "/O=company/CN=alice", "DNS:other.example")
    made.sign("nameless", "/O=company", "email:a@b.example,DNS:first.example,DNS:second.example")
    made.sign("double", "/CN=alice/CN=bob")
    made.sign("unnamed", "/O=company")
    made.sign("intruder", "/CN=alice", by="theirs")
    return made


def flags(certificates: Certificates, **more: str) -> list[str]:
    given = {"tls-certificate": str(certificates.path("server-both.pem")), **more}
    return [part for name, value in given.items() for part in (f"--{name}", value)]


# Clients with certificates


@pytest.fixture(scope="module")
def strict(
    tmp_path_factory: pytest.TempPathFactory, certificates: Certificates
) -> Iterator[WarmServer]:
    """A server that wants certificates."""
    given = flags(certificates, **{"tls-client-ca": str(certificates.ca), "log-level": "debug"})
    with WarmServer(tmp_path_factory.mktemp("strict"), *given) as running:
        yield running
        assert "Traceback" not in running.log_text()


def identity(certificates: Certificates, name: str) -> ssl.SSLContext:
    return certificates.client(certificates.path(f"{name}-both.pem"))


def ask(
    server: WarmServer,
    client: ssl.SSLContext,
    question: bytes,
    session: ssl.SSLSession | None = None,
) -> bytes:
    with contextlib.closing(TlsPeer(server.address(), client, session)) as peer:
        # The server does not read for ever; why it has gone is there to be read all the same.
        with contextlib.suppress(ConnectionError, ssl.SSLEOFError):
            peer.send(question)
        return peer.read_line()


def test_who_has_a_certificate_is_let_in(strict: WarmServer, certificates: Certificates) -> None:
    client = identity(certificates, "alice")
    with contextlib.closing(TlsPeer(strict.address(), client)) as peer:
        exchange(peer, b"PING\n", b"PONG {}\n")
    host, port = strict.address("resp")
    both = str(certificates.path("alice-both.pem"))
    with Redis(
        host,
        port,
        ssl=True,
        ssl_ca_certs=str(certificates.ca),
        ssl_certfile=both,
        ssl_keyfile=both,
        socket_timeout=HANG_GUARD,
        socket_connect_timeout=HANG_GUARD,
    ) as redis:
        assert redis.ping()
    url = "wss://{}:{}/connect/".format(*strict.address("http"))
    assert "hello" in asyncio.run(_first_message(url, client))


async def _first_message(url: str, client: ssl.SSLContext) -> str:
    async with connect(url, ssl=client, open_timeout=HANG_GUARD) as socket:
        return str(await socket.recv())


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize(
    ("who", "told", "logged"),
    [
        (None, "CERTIFICATE_REQUIRED|HANDSHAKE_FAILURE", "peer did not return a certificate"),
        ("intruder", "UNKNOWN_CA", "unable to get local issuer certificate"),
    ],
)
def test_who_has_none_is_told_so(
    strict: WarmServer,
    certificates: Certificates,
    version: ssl.TLSVersion,
    who: str | None,
    told: str,
    logged: str,
) -> None:
    client = certificates.client() if who is None else identity(certificates, who)
    client.minimum_version = client.maximum_version = version
    # A client of TLS 1.3 hears of it when it reads, and may have sent much by then.
    with pytest.raises(ssl.SSLError, match=told):
        ask(strict, client, b"PING\n" * 50_000)
    strict.wait_for(lambda: logged in strict.log_text())


def test_certificates_can_be_optional(tmp_path: Path, certificates: Certificates) -> None:
    more = {"tls-client-ca": str(certificates.ca), "tls-client": "optional"}
    with WarmServer(tmp_path, *flags(certificates, **more)) as server:
        for client in (certificates.client(), identity(certificates, "alice")):
            with contextlib.closing(TlsPeer(server.address(), client)) as peer:
                exchange(peer, b"PING\n", b"PONG {}\n")
        with pytest.raises(ssl.SSLError, match="UNKNOWN_CA"):
            ask(server, identity(certificates, "intruder"), b"PING\n")


class Listening:
    """A protocol that asks every client's connection for the name of its holder."""

    def __init__(self) -> None:
        self._yard = SimulatedServer()
        self.names: list[str] = []

    def connect(self, transport: Connection, peer: str) -> ClientConnection:
        self.names.append(transport.certificate_name())
        return self._yard.masenko.connect(transport, peer)


def names_told(context: ssl.SSLContext, clients: list[ssl.SSLContext]) -> list[str]:
    """What a protocol learns of clients that come one after the other, and again with the session
    of the first time.
    """
    listening = Listening()

    def come(address: tuple[str, int], client: ssl.SSLContext) -> None:
        with contextlib.closing(TlsPeer(address, client)) as peer:
            exchange(peer, b"PING\n", b"PONG {}\n")
            session = peer.tls.session
        with contextlib.closing(TlsPeer(address, client, session)) as peer:
            exchange(peer, b"PING\n", b"PONG {}\n")
            assert peer.tls.session_reused

    async def serve() -> None:
        open_connections = ConnectionRegistry()
        server = await asyncio.get_running_loop().create_server(
            lambda: TlsTransport(context, Connection(listening, 1000, open_connections), 30.0),
            "127.0.0.1",
            0,
        )
        for client in clients:
            await asyncio.to_thread(come, server.sockets[0].getsockname(), client)
        server.close()
        await open_connections.wait_until_closed(30.0)

    uvloop.run(serve())
    return listening.names


def test_a_dialect_learns_whose_certificate_it_is(certificates: Certificates) -> None:
    given = {
        "tls_certificate": str(certificates.path("server-both.pem")),
        "tls_client_ca": str(certificates.ca),
        "tls_client": "optional",
    }
    people = ["alice", "nameless", "double", "unnamed"]
    clients = [identity(certificates, name) for name in people]
    names = names_told(make_context(load_settings(given, {})), [*clients, certificates.client()])
    assert names[::2] == ["alice", "first.example", "", "", ""]
    assert names[1::2] == names[::2]


def test_no_name_is_taken_from_what_was_not_asked_for(certificates: Certificates) -> None:
    """Without a CA for clients their certificates are not verified."""
    given = {"tls_certificate": str(certificates.path("server-both.pem"))}
    context = make_context(load_settings(given, {}))
    assert names_told(context, [identity(certificates, "intruder")]) == ["", ""]


def test_a_certificate_without_a_subject_has_no_name() -> None:
    assert holder_name(None) == ""
    assert holder_name({}) == ""


def test_a_connection_without_tls_has_no_name() -> None:
    listening = Listening()
    connection = Connection(listening, 1000, ConnectionRegistry())
    assert connection.certificate_name() == ""


# Certificates that change


def test_certificates_are_read_again(tmp_path: Path, certificates: Certificates) -> None:
    current = tmp_path / "current.pem"
    shutil.copy(certificates.path("server-both.pem"), current)
    client = certificates.client()
    with WarmServer(tmp_path, *flags(certificates, **{"tls-certificate": str(current)})) as server:

        def reload(source: Path, told: str) -> str:
            """Put this in its place; gives whose certificate new clients then see."""
            before = server.log_text().count(told)
            shutil.copy(source, current)
            server.tell(signal.SIGHUP)
            server.wait_for(lambda: server.log_text().count(told) > before)
            exchange(old, b"PING\n", b"PONG {}\n")
            with contextlib.closing(TlsPeer(server.address("http"), client)) as peer:
                return peer.subject()

        with contextlib.closing(TlsPeer(server.address(), client)) as old:
            exchange(old, b'PUSH {"name":"a"}\nFETCH\n', b'OK {"id":1}\n')
            assert old.read_line().startswith(b'OK {"id":1,')
            assert old.subject() == "the server"
            renewed = certificates.path("renewed-both.pem")
            assert reload(renewed, "certificate reloaded") == "the renewed server"
            assert reload(certificates.ca, "not reloaded") == "the renewed server"
            assert f"{current} has no private key" in server.log_text()
            original = certificates.path("server-both.pem")
            assert reload(original, "certificate reloaded") == "the server"
            exchange(old, b'ACK {"id":1}\n', b"OK {}\n")
        assert server.stop() == 0
        assert "Traceback" not in server.log_text()


def test_a_ca_that_was_taken_away_lets_nobody_in_any_more(
    tmp_path: Path, certificates: Certificates
) -> None:
    """Not even those who were let in before."""
    trusted = tmp_path / "trusted.pem"
    trusted.write_bytes(certificates.ca.read_bytes() + certificates.foreign_ca.read_bytes())
    client = identity(certificates, "intruder")
    given = flags(certificates, **{"tls-client-ca": str(trusted)})
    with WarmServer(tmp_path, *given) as server:
        with contextlib.closing(TlsPeer(server.address(), client)) as peer:
            exchange(peer, b"PING\n", b"PONG {}\n")
            session = peer.tls.session
        shutil.copy(certificates.ca, trusted)
        server.tell(signal.SIGHUP)
        server.wait_for(lambda: "TLS certificate reloaded" in server.log_text())
        with pytest.raises(ssl.SSLError, match="UNKNOWN_CA"):
            ask(server, client, b"PING\n", session)


def test_a_server_without_anything_to_read_again_goes_on(tmp_path: Path) -> None:
    with WarmServer(tmp_path) as server:
        server.tell(signal.SIGHUP)
        exchange(server.connect(), b"PING\n", b"PONG {}\n")
        assert server.stop() == 0


# Settings that are refused


def refusal(**given: object) -> str:
    with pytest.raises(ConfigError) as caught:
        make_context(load_settings({name: str(value) for name, value in given.items()}, {}))
    return str(caught.value)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"tls_key": "a"}, "tls_key is only for use with tls_certificate."),
        ({"tls_client_ca": "a"}, "tls_client_ca is only for use with tls_certificate."),
        (
            {"tls_certificate": "a", "tls_client": "optional"},
            "tls_client is only for use with tls_client_ca.",
        ),
    ],
)
def test_settings_that_need_others(given: dict[str, str], told: str) -> None:
    assert refusal(**given) == told


def test_files_that_cannot_be_read(certificates: Certificates, tmp_path: Path) -> None:
    good = certificates.path("server-both.pem")
    none = tmp_path / "none.pem"
    missing = f"{none} cannot be read (No such file or directory)."
    assert refusal(tls_certificate=none) == f"tls_certificate: {missing}"
    assert refusal(tls_certificate=good, tls_key=none) == f"tls_key: {missing}"
    assert refusal(tls_certificate=good, tls_client_ca=none) == f"tls_client_ca: {missing}"
    directory = f"tls_certificate: {tmp_path} cannot be read (Is a directory)."
    assert refusal(tls_certificate=tmp_path) == directory


def test_files_that_hold_something_else(certificates: Certificates, tmp_path: Path) -> None:
    certificate, key = certificates.path("server.pem"), certificates.path("server.key")
    assert refusal(tls_certificate=key) == (
        f"tls_certificate: {key} has no certificate in PEM form."
    )
    assert refusal(tls_certificate=certificate) == (
        f"tls_certificate: {certificate} has no private key in PEM form; it can also be in a file "
        "of its own, tls_key."
    )
    assert refusal(tls_certificate=certificate, tls_key=certificate) == (
        f"tls_key: {certificate} has no private key in PEM form."
    )
    assert refusal(tls_certificate=certificate, tls_key=key, tls_client_ca=key) == (
        f"tls_client_ca: {key} has no certificate in PEM form."
    )
    broken = tmp_path / "broken.pem"
    broken.write_bytes(key.read_bytes() + b"-----BEGIN CERTIFICATE-----\nabc\n")
    assert refusal(tls_certificate=broken).startswith(f"tls_certificate: {broken} cannot be used (")
    assert refusal(tls_certificate=certificate, tls_key=key, tls_client_ca=broken).startswith(
        f"tls_client_ca: {broken} cannot be used ("
    )


def test_keys_that_do_not_fit(certificates: Certificates) -> None:
    certificate, other = certificates.path("server.pem"), certificates.path("alice.key")
    assert refusal(tls_certificate=certificate, tls_key=other) == (
        f"tls_key: the key in {other} is not that of {certificate}."
    )
    locked = certificates.lock("server")
    assert refusal(tls_certificate=certificate, tls_key=locked) == (
        f"tls_key: the key in {locked} is locked by a password."
    )


def test_a_server_does_not_start_with_them(tmp_path: Path, certificates: Certificates) -> None:
    certificate = certificates.path("server.pem")
    server = WarmServer(tmp_path, "--tls-certificate", str(certificate))
    server.start()
    assert server.wait() == 2
    assert f"cannot start: tls_certificate: {certificate} has no private" in server.log_text()
    assert "Traceback" not in server.log_text()
    assert not server.data.exists()
