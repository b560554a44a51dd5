"""The connection to a server: replies, errors, time limits, and a server that goes away."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
import warnings
from collections.abc import Callable, Iterator

import pytest
from support.sockets import HANG_GUARD

from taskyard.client.connection import Connection
from taskyard.client.errors import Refused, Unavailable
from taskyard.client.retry import Backoff
from taskyard.client.url import Address

PING = b"*1\r\n$4\r\nPING\r\n"
QUICK = Backoff(0.001, 0.01)


class Script:
    """A server whose connections each do what the test says, one after the other."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = Address("127.0.0.1", self._listener.getsockname()[1])
        self._threads: list[threading.Thread] = []
        self.failures: list[BaseException] = []

    def play(self, *scenes: Callable[[socket.socket], None]) -> None:
        thread = threading.Thread(target=self._play, args=(scenes,))
        thread.start()
        self._threads.append(thread)

    def _play(self, scenes: tuple[Callable[[socket.socket], None], ...]) -> None:
        try:
            for scene in scenes:
                peer, _ = self._listener.accept()
                with peer:
                    peer.settimeout(HANG_GUARD)
                    scene(peer)
        except BaseException as error:
            self.failures.append(error)

    def close(self) -> None:
        for thread in self._threads:
            thread.join(HANG_GUARD)
        self._listener.close()
        assert not self.failures


def expect(peer: socket.socket, data: bytes) -> None:
    received = b""
    while len(received) < len(data):
        some = peer.recv(len(data) - len(received))
        assert some, f"closed after {received!r}"
        received += some
    assert received == data


def answering(*exchanges: tuple[bytes, bytes]) -> Callable[[socket.socket], None]:
    """Read and answer, then close when the other side has."""

    def scene(peer: socket.socket) -> None:
        for expected, reply in exchanges:
            expect(peer, expected)
            peer.sendall(reply)
        assert peer.recv(1) == b""

    return scene


def hanging_up(expected: bytes) -> Callable[[socket.socket], None]:
    return lambda peer: expect(peer, expected)


@pytest.fixture
def script() -> Iterator[Script]:
    found = Script()
    yield found
    found.close()


@pytest.mark.parametrize(
    ("sent", "reply"),
    [
        (b"+OK\r\n", b"OK"),
        (b":-7\r\n", -7),
        (b"$3\r\na\r\n\r\n", b"a\r\n"),
        (b"$-1\r\n", None),
        (b"*-1\r\n", None),
        (b"*2\r\n:1\r\n*1\r\n$0\r\n\r\n", [1, [b""]]),
    ],
)
def test_replies_of_each_kind(script: Script, sent: bytes, reply: object) -> None:
    script.play(answering((PING, sent)))
    with Connection(script.address) as connection:
        assert connection.call("PING") == reply


def test_a_command_is_sent_as_it_is_and_its_reply_may_come_in_pieces(script: Script) -> None:
    def scene(peer: socket.socket) -> None:
        expect(peer, b"*4\r\n$3\r\nSET\r\n$2\r\n\xc3\xa4\r\n$3\r\n\x00\r\n\r\n$2\r\n-5\r\n")
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in b"$5\r\n\r\n\x00ab\r\n":
            peer.sendall(bytes([byte]))
        assert peer.recv(1) == b""

    script.play(scene)
    with Connection(script.address) as connection:
        assert connection.call("SET", "ä", b"\x00\r\n", -5) == b"\r\n\x00ab"


def test_an_error_is_raised_and_the_connection_goes_on(script: Script) -> None:
    script.play(answering((PING, b"-STALE it is over\r\n"), (PING, b"+PONG\r\n")))
    with Connection(script.address) as connection:
        with pytest.raises(Refused, match="STALE it is over") as caught:
            connection.call("PING")
        assert caught.value.code == "STALE"
        assert connection.call("PING") == b"PONG"


def test_a_pipeline_is_sent_in_one_go_and_gives_errors_back(script: Script) -> None:
    script.play(answering((PING * 3, b":1\r\n-ERR no\r\n:3\r\n")))
    with Connection(script.address) as connection:
        one, two, three = connection.pipeline([("PING",)] * 3)
    assert (one, three) == (1, 3)
    assert isinstance(two, Refused)
    assert str(two) == "ERR no"


def test_a_long_pipeline_reads_replies_before_it_sends_all(script: Script) -> None:
    script.play(answering((PING * 256, b":1\r\n" * 256), (PING * 44, b":2\r\n" * 44)))
    with Connection(script.address) as connection:
        assert connection.pipeline([("PING",)] * 300) == [1] * 256 + [2] * 44
        assert connection.pipeline([]) == []


def test_a_lost_reply_is_told_of_and_the_next_call_connects_again(script: Script) -> None:
    script.play(hanging_up(PING), answering((PING, b"+PONG\r\n")))
    with Connection(script.address, patience=HANG_GUARD, backoff=QUICK) as connection:
        with pytest.raises(Unavailable, match="went away before it answered"):
            connection.call("PING")
        assert connection.call("PING") == b"PONG"


def test_what_does_no_harm_is_sent_again(script: Script) -> None:
    script.play(hanging_up(PING), hanging_up(b""), answering((PING, b"+PONG\r\n")))
    with Connection(script.address, patience=HANG_GUARD, backoff=QUICK) as connection:
        assert connection.call("PING", repeat=True) == b"PONG"


def test_an_idle_connection_that_was_closed_is_noticed_before_anything_is_sent(
    script: Script,
) -> None:
    closed = threading.Event()

    def scene(peer: socket.socket) -> None:
        expect(peer, PING)
        peer.sendall(b"+PONG\r\n")
        peer.shutdown(socket.SHUT_RDWR)
        peer.close()
        closed.set()

    script.play(scene, answering((PING, b"+AGAIN\r\n")))
    with Connection(script.address, patience=HANG_GUARD, backoff=QUICK) as connection:
        assert connection.call("PING") == b"PONG"
        assert closed.wait(HANG_GUARD)
        assert connection.call("PING") == b"AGAIN"


def test_a_server_that_is_away_is_tried_for_as_long_as_one_is_patient() -> None:
    with socket.socket() as taken:  # nobody listens there, and nobody else can
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        connection = Connection(Address("127.0.0.1", port), patience=0.05, backoff=QUICK)
        began = time.monotonic()
        with pytest.raises(Unavailable, match=f"taskyard://127.0.0.1:{port} cannot be reached"):
            connection.call("PING")
        assert time.monotonic() - began >= 0.03


def test_an_answer_that_does_not_come_is_not_waited_for(script: Script) -> None:
    script.play(_until_closed)
    with (
        Connection(script.address, timeout=0.02) as connection,
        pytest.raises(Unavailable, match="timed out"),
    ):
        connection.call("PING")


def test_what_is_no_reply_ends_the_connection(script: Script) -> None:
    script.play(answering((PING, b"HTTP/1.1 400 Bad Request\r\n")))
    with (
        Connection(script.address) as connection,
        pytest.raises(Unavailable, match="Protocol error"),
    ):
        connection.call("PING")


def test_a_close_ends_a_call_in_another_thread(script: Script) -> None:
    asked = threading.Event()

    def scene(peer: socket.socket) -> None:
        expect(peer, PING)
        asked.set()
        _until_closed(peer)

    script.play(scene)
    connection = Connection(script.address, patience=HANG_GUARD)
    errors: list[str] = []

    def call() -> None:
        try:
            connection.call("PING", wait=HANG_GUARD, repeat=True)
        except Unavailable as error:
            errors.append(str(error))

    calling = threading.Thread(target=call)
    calling.start()
    assert asked.wait(HANG_GUARD)
    connection.close()
    calling.join(HANG_GUARD)
    assert errors
    assert "the connection was closed" in errors[0]
    with pytest.raises(Unavailable, match="the connection was closed"):
        connection.call("PING")


def test_a_password_and_a_database_are_told_first(script: Script) -> None:
    greeting = b"*3\r\n$4\r\nAUTH\r\n$1\r\nu\r\n$2\r\np:\r\n*2\r\n$6\r\nSELECT\r\n$1\r\n3\r\n"
    script.play(answering((greeting, b"+OK\r\n+OK\r\n"), (PING, b"+PONG\r\n")))
    address = Address("127.0.0.1", script.address.port, user="u", password="p:", database=3)
    with Connection(address) as connection:
        assert connection.call("PING") == b"PONG"


def test_a_password_that_is_wrong_is_not_tried_again(script: Script) -> None:
    greeting = b"*2\r\n$4\r\nAUTH\r\n$1\r\np\r\n"
    script.play(answering((greeting, b"-WRONGPASS no\r\n")))
    address = Address("127.0.0.1", script.address.port, password="p")
    with (
        Connection(address, patience=HANG_GUARD) as connection,
        pytest.raises(Refused, match="WRONGPASS"),
    ):
        connection.call("PING", repeat=True)


def test_a_fork_gets_a_connection_of_its_own(script: Script) -> None:
    script.play(
        answering((PING, b":1\r\n"), (PING, b":3\r\n")),
    )
    with Connection(script.address) as connection:
        assert connection.call("PING") == 1
        script.play(answering((PING, b":2\r\n")))
        with warnings.catch_warnings():
            # The child does nothing that a lock of another thread could stop.
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if child == 0:
            os._exit(0 if connection.call("PING") == 2 else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert connection.call("PING") == 3


def test_a_fork_beside_a_call_in_another_thread_is_not_stopped_by_it(script: Script) -> None:
    asked, done = threading.Event(), threading.Event()

    def slow(peer: socket.socket) -> None:
        expect(peer, PING)
        asked.set()
        done.wait(HANG_GUARD)
        peer.sendall(b":1\r\n")

    script.play(slow)
    with Connection(script.address, timeout=HANG_GUARD) as connection:
        thread = threading.Thread(target=connection.call, args=("PING",))
        thread.start()
        assert asked.wait(HANG_GUARD)
        script.play(answering((PING, b":2\r\n")))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if child == 0:
            signal.alarm(int(HANG_GUARD))
            os._exit(0 if connection.call("PING") == 2 else 1)
        assert os.waitpid(child, 0)[1] == 0
        done.set()
        thread.join()


def test_the_reply_to_an_interrupted_call_is_not_taken_for_that_to_the_next(
    script: Script,
) -> None:
    def interrupting(peer: socket.socket) -> None:
        expect(peer, PING)
        os.kill(os.getpid(), signal.SIGUSR2)
        if peer.recv(len(PING)):
            peer.sendall(b":1\r\n:2\r\n")

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    script.play(interrupting, answering((PING, b":2\r\n")))
    before = signal.signal(signal.SIGUSR2, interrupt)
    try:
        with Connection(script.address) as connection:
            with pytest.raises(KeyboardInterrupt):
                connection.call("PING")
            assert connection.call("PING") == 2
    finally:
        signal.signal(signal.SIGUSR2, before)


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("taskyard://localhost", Address("localhost", 8002)),
        ("taskyard://[::1]:9", Address("::1", 9)),
        ("taskyard://u%40:p%3A@h:1/15", Address("h", 1, "u@", "p:", 15)),
        ("taskyard://:secret@h/", Address("h", 8002, "", "secret", 0)),
        (
            "taskyards://h:1?timeout=2.5&ca=/a%26b.pem",
            Address("h", 1, tls=True, ca="/a&b.pem", timeout=2.5),
        ),
    ],
)
def test_urls(url: str, address: Address) -> None:
    assert Address.parse(url) == address
    assert Address.parse(address.url) == address


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("redis://localhost", "is not a URL like taskyard://localhost:8002"),
        ("taskyard://", "is not a URL like"),
        ("taskyard://h:99999", "the port must be"),
        ("taskyard://h:x", "the port must be"),
        ("taskyard://h/16", "a database from 0 to 15"),
        ("taskyard://h/x", "a database from 0 to 15"),
        ("taskyard://h?x=1", "there is no option x"),
    ],
)
def test_urls_that_are_none(url: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Address.parse(url)


def test_no_error_shows_a_password() -> None:
    with pytest.raises(ValueError, match="database") as caught:
        Address.parse("taskyard://u:secret@h/x")
    assert "secret" not in str(caught.value)
    assert "secret" not in str(Address("h", 1, "u", "secret"))


def _until_closed(peer: socket.socket) -> None:
    while peer.recv(1 << 16):
        pass
