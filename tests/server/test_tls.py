"""TLS on every listener of a real server process, with clients that are not ours."""

import asyncio
import contextlib
import json
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis
from support.process import WarmServer
from support.sockets import HANG_GUARD
from support.tls import HERE, Certificates, TlsPeer, receive_after_farewell
from support.wire import exchange
from websockets.asyncio.client import connect

MEBIBYTE = 1 << 20
LISTENERS = ("masenko", "workq", "resp", "http")
GET = b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    made = Certificates(tmp_path_factory.mktemp("certificates"))
    made.sign("server", "/CN=the server", HERE)
    return made


@pytest.fixture(scope="module")
def server(
    tmp_path_factory: pytest.TempPathFactory, certificates: Certificates
) -> Iterator[WarmServer]:
    flags = ["--tls-certificate", str(certificates.path("server-both.pem"))]
    flags += ["--slow-command", "off"]  # a busy machine is no warning
    directory = tmp_path_factory.mktemp("server")
    with WarmServer(directory, *flags) as running:
        yield running
        assert "Traceback" not in running.log_text()
        assert "WARNING" not in running.log_text()
        assert "ERROR" not in running.log_text()
        assert running.stop() == 0


@pytest.fixture
def client(certificates: Certificates) -> ssl.SSLContext:
    return certificates.client()


def join(server: WarmServer, client: ssl.SSLContext, dialect: str = "masenko") -> TlsPeer:
    return TlsPeer(server.address(dialect), client)


def still_serves(server: WarmServer, client: ssl.SSLContext) -> None:
    with contextlib.closing(join(server, client)) as peer:
        exchange(peer, b"PING\n", b"PONG {}\n")


# Clients


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("dialect", LISTENERS)
def test_every_listener_speaks_tls(
    server: WarmServer, client: ssl.SSLContext, dialect: str, version: ssl.TLSVersion
) -> None:
    client.minimum_version = client.maximum_version = version
    said = {
        "masenko": (b"PING\n", b"PONG {}\n"),
        "workq": (b"lease nothing 0\r\n", b"-TIMEOUT\r\n"),
        "resp": (b"PING\r\n", b"+PONG\r\n"),
        "http": (GET, b"HTTP/1.1 200 OK\r\n"),
    }
    with contextlib.closing(join(server, client, dialect)) as peer:
        exchange(peer, *said[dialect])


def test_older_versions_are_refused(server: WarmServer, certificates: Certificates) -> None:
    command = ["openssl", "s_client", "-connect", "{}:{}".format(*server.address()), "-tls1_1"]
    command += ["-cipher", "ALL:@SECLEVEL=0"]
    done = subprocess.run(command, input=b"", capture_output=True, check=False)
    assert done.returncode != 0
    assert b"alert protocol version" in done.stderr


def test_a_returning_client_is_recognised(server: WarmServer, client: ssl.SSLContext) -> None:
    """By its session, so that the costly part of the handshake is spared."""
    with contextlib.closing(join(server, client)) as first:
        exchange(first, b"PING\n", b"PONG {}\n")
        session = first.tls.session
    with contextlib.closing(TlsPeer(server.address(), client, session)) as second:
        exchange(second, b"PING\n", b"PONG {}\n")
        assert second.tls.session_reused


def command_of(name: str, server: WarmServer, ca: str) -> tuple[list[str], bytes, bytes]:
    """What to run, what to put into it, and what comes out."""
    host, port = server.address()
    if name == "curl":
        web = "https://{}:{}/healthz".format(*server.address("http"))
        return (
            ["curl", "-s", "--cacert", ca, "-w", "%{http_code}", "-o", "/dev/null", web],
            b"",
            b"200",
        )
    if name == "redis-cli":
        host, port = server.address("resp")
        command = ["redis-cli", "--tls", "--cacert", ca, "-h", host, "-p", str(port)]
        return command, b"RPUSH cli one\nLPOP cli\n", b"1\none\n"
    command = ["openssl", "s_client", "-quiet", "-verify_return_error", "-CAfile", ca]
    return [*command, "-connect", f"{host}:{port}"], b"PING\nQUIT\n", b"PONG {}\nOK {}\n"


@pytest.mark.parametrize("name", ["openssl", *filter(shutil.which, ["curl", "redis-cli"])])
def test_commands_that_speak_tls(server: WarmServer, certificates: Certificates, name: str) -> None:
    command, given, wanted = command_of(name, server, str(certificates.ca))
    done = subprocess.run(
        command, input=given, capture_output=True, check=False, timeout=HANG_GUARD
    )
    assert done.stdout == wanted, done.stderr


def test_redis_clients(server: WarmServer, certificates: Certificates) -> None:
    host, port = server.address("resp")
    value = bytes(range(256)) * 4096
    # By default it gives a command up after five seconds, and then sends it once more.
    with Redis(
        host,
        port,
        ssl=True,
        ssl_ca_certs=str(certificates.ca),
        socket_timeout=HANG_GUARD,
        socket_connect_timeout=HANG_GUARD,
    ) as redis:
        pipeline = redis.pipeline(transaction=False)
        for _ in range(3):
            pipeline.rpush("redis", value)
        assert pipeline.execute() == [1, 2, 3]
        assert redis.lpop("redis", 3) == [value] * 3
        assert redis.blpop("redis", timeout=0.01) is None


def test_websockets(server: WarmServer, client: ssl.SSLContext) -> None:
    url = "wss://{}:{}/connect/".format(*server.address("http"))
    asyncio.run(_use_websocket(url, client))


async def _use_websocket(url: str, client: ssl.SSLContext) -> None:
    """On one thread: the ssl module reads and writes on two without a lock before Python 3.13."""
    body = "x" * MEBIBYTE
    async with connect(
        url, ssl=client, max_size=None, open_timeout=HANG_GUARD, close_timeout=HANG_GUARD
    ) as socket:
        assert json.loads(await socket.recv())["type"] == "hello"
        await socket.send(json.dumps({"type": "create", "queue": "wss", "label": 1}))
        assert json.loads(await socket.recv())["notice"] == "ready"
        post = {"type": "post", "queue": "wss", "message": body, "label": 2, "notify": ["sync"]}
        await socket.send(json.dumps(post))
        assert json.loads(await socket.recv())["notice"] == "sync"
        await (await socket.ping())
        await socket.send(json.dumps({"type": "pop", "queue": "wss", "label": 3}))
        assert json.loads(await socket.recv())["body"] == body
    assert socket.close_code == 1000


# Bytes


@pytest.mark.parametrize("size", [65_535, 65_536, 300_000, MEBIBYTE])
def test_large_payloads_go_both_ways(server: WarmServer, client: ssl.SSLContext, size: int) -> None:
    payload = (bytes(range(256)) * (size // 256 + 1))[:size]
    uid = b"6ba7b810-9dad-11d1-80b4-%012d" % size
    with contextlib.closing(join(server, client, "workq")) as peer:
        peer.send(b"add %b large%d 60000 60000 %d\r\n%b\r\n" % (uid, size, size, payload))
        peer.expect(b"+OK\r\n")
        peer.send(b"lease large%d 0\r\n" % size)
        peer.expect(b"+OK 1\r\n%b large%d %d\r\n%b\r\n" % (uid, size, size, payload))


def test_many_requests_at_once(server: WarmServer, client: ssl.SSLContext) -> None:
    with contextlib.closing(join(server, client)) as peer:
        peer.send(b"PING\n" * 20_000 + b'PUSH {"name":"a","queue":"many"}\n')
        peer.expect(b"PONG {}\n" * 20_000)
        assert peer.read_line().startswith(b'OK {"id":')


def test_requests_that_come_byte_by_byte(server: WarmServer, client: ssl.SSLContext) -> None:
    with contextlib.closing(join(server, client)) as peer:
        for byte in b"PING\n":
            peer.send(bytes([byte]))
        peer.expect(b"PONG {}\n")


def test_a_client_that_does_not_read_holds_up_nobody(
    server: WarmServer, client: ssl.SSLContext
) -> None:
    """Its requests wait, and all of them are answered once it reads."""
    text = b"x" * 500_000
    with contextlib.closing(join(server, client)) as pusher:
        for _ in range(40):
            pusher.send(b'PUSH {"name":"a","queue":"deaf","payload":"%b"}\n' % text)
            assert pusher.read_line().startswith(b"OK")
    with contextlib.closing(join(server, client)) as deaf:
        deaf.send(b'FETCH {"queues":["deaf"]}\n' * 40 + b"PING\n")
        first = deaf.read_line()
        assert text in first
        still_serves(server, client)
        for _ in range(39):
            assert text in deaf.read_line()
        deaf.expect(b"PONG {}\n")


# Ends


@pytest.mark.parametrize("announced", [True, False], ids=["by TLS", "by TCP"])
def test_a_client_that_closes_its_half_gets_its_replies(
    server: WarmServer, client: ssl.SSLContext, announced: bool
) -> None:
    pushes = b'PUSH {"name":"a","queue":"half"}\n' * 3
    received = receive_after_farewell(
        server.address(), client, pushes + b"PING\nhalf a comm", announced=announced
    )
    lines = received.splitlines()
    assert [line[:6] for line in lines[:3]] == [b'OK {"i'] * 3
    assert lines[3:] == [b"PONG {}"]


def test_the_last_reply_reaches_a_client_that_is_still_sending(
    server: WarmServer, client: ssl.SSLContext
) -> None:
    with contextlib.closing(join(server, client, "http")) as peer:
        peer.send(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 99999999999\r\n\r\n")
        with contextlib.suppress(OSError):  # the server does not read for ever
            for _ in range(10):
                peer.send(b"x" * 65_536)
        assert peer.read_line() == b"HTTP/1.1 413 Request Entity Too Large\r\n"


def test_the_server_announces_its_end(server: WarmServer, client: ssl.SSLContext) -> None:
    with contextlib.closing(join(server, client)) as peer:
        exchange(peer, b"PING\nQUIT\n", b"PONG {}\nOK {}\n")
        peer.expect_closed()


def test_clients_that_vanish_leave_no_trace(server: WarmServer, client: ssl.SSLContext) -> None:
    for dialect in LISTENERS:
        for _ in range(5):
            peer = join(server, client, dialect)
            peer.send(b"PING\n" * 1000)
            peer.reset()
        with socket.create_connection(server.address(dialect)) as early:
            early.sendall(b"\x16\x03\x01\x02\x00")  # the beginning of a handshake
        socket.create_connection(server.address(dialect)).close()
    still_serves(server, client)


def test_what_a_vanished_client_held_is_given_to_others(
    server: WarmServer, client: ssl.SSLContext
) -> None:
    vanishing = join(server, client)
    vanishing.send(b'PUSH {"name":"a","queue":"held","retry":0,"deadqueue":"lost"}\n')
    vanishing.send(b'FETCH {"queues":["held"]}\n')
    assert vanishing.read_line().startswith(b"OK")
    assert vanishing.read_line().startswith(b"OK")
    vanishing.reset()
    with contextlib.closing(join(server, client)) as other:
        other.send(b'FETCH {"queues":["lost"],"timeout":"20s"}\n')
        assert b'"queue":"lost"' in other.read_line()


@pytest.mark.parametrize("dialect", LISTENERS)
@pytest.mark.parametrize("data", [b"PING\n", GET, b"\0" * 100_000], ids=["line", "http", "zeros"])
def test_clients_without_tls_are_turned_away(
    server: WarmServer, client: ssl.SSLContext, dialect: str, data: bytes
) -> None:
    with socket.create_connection(server.address(dialect), timeout=HANG_GUARD) as plain:
        plain.sendall(data)
        received = b""
        with contextlib.suppress(ConnectionResetError):
            while part := plain.recv(1000):
                received += part
    assert len(received) <= 7  # an alert at most
    still_serves(server, client)


def test_what_is_not_of_this_session_breaks_the_connection(
    server: WarmServer, client: ssl.SSLContext
) -> None:
    with contextlib.closing(join(server, client)) as peer:
        exchange(peer, b"PING\n", b"PONG {}\n")
        socket.socket.send(peer.tls, b"\x17\x03\x03\x00\x20" + b"z" * 32)
        with pytest.raises((ssl.SSLError, ConnectionResetError)):
            peer.tls.recv(100)
    still_serves(server, client)


def test_who_does_not_finish_the_handshake_is_let_go(
    tmp_path: Path, certificates: Certificates
) -> None:
    flags = ["--tls-certificate", str(certificates.path("server-both.pem"))]
    with WarmServer(tmp_path, *flags, "--tls-handshake", "200ms") as server:
        silent = socket.create_connection(server.address(), timeout=HANG_GUARD)
        slow = socket.create_connection(server.address(), timeout=HANG_GUARD)
        with silent, slow:
            slow.sendall(b"\x16\x03\x01\x02\x00\x01")
            for each in (silent, slow):
                with contextlib.suppress(ConnectionResetError):
                    assert each.recv(100) == b""
        assert "Traceback" not in server.log_text()
        assert server.stop() == 0


# Stops


def test_a_stop_answers_what_has_arrived(tmp_path: Path, certificates: Certificates) -> None:
    flags = ["--tls-certificate", str(certificates.path("server.pem"))]
    flags += ["--tls-key", str(certificates.path("server.key"))]
    client = certificates.client()
    with WarmServer(tmp_path, *flags) as server:
        peers = [join(server, client) for _ in range(3)]
        with socket.create_connection(server.address()):  # and one that has said nothing yet
            for peer in peers:
                exchange(peer, b"PING\n", b"PONG {}\n")
                peer.send(b'FETCH {"queues":["none"]}\nPUSH {"name":"a"}\n')
            still_serves(server, client)
            assert server.stop() == 0
        for peer in peers:
            assert peer.read_line() == b"EMPTY {}\n"
            assert peer.read_line().startswith(b"OK")
            peer.expect_closed()
            peer.close()
        assert "Traceback" not in server.log_text()


def test_a_kill_loses_nothing_that_was_answered(tmp_path: Path, certificates: Certificates) -> None:
    flags = ["--tls-certificate", str(certificates.path("server-both.pem"))]
    client = certificates.client()
    with WarmServer(tmp_path, *flags) as server:
        peer = join(server, client)
        exchange(peer, b'PUSH {"name":"a"}\n', b'OK {"id":1}\n')
        server.kill()
        with contextlib.closing(peer), contextlib.suppress(ssl.SSLError, ConnectionResetError):
            assert peer.tls.recv(100) == b""  # as some versions of OpenSSL tell of such an end
        server.restart()
        with contextlib.closing(join(server, client)) as again:
            exchange(again, b"FETCH\n", b'OK {"id":1,"queue":"default","name":"a"}\n')
