"""The start of a real server process: what it says, what it writes, and what it refuses."""

import ctypes
import json
import os
import re
import socket
from functools import partial
from pathlib import Path

import pytest
from support.listeners import DIALECTS
from support.process import ServerProcess
from support.waiting import wait_for
from support.wire import exchange, queue_counts

from taskyard import __version__
from taskyard.broker import metrics

# What other parts of the project or of Python need, and a server does not.
NOT_ON_THE_WAY = (
    "deltalake",
    "difflib",
    "email",
    "html",
    "hypothesis",
    "importlib.metadata",
    "multiprocessing",
    "mypy",
    "mypyc",
    "numpy",
    "pandas",
    "pickle",
    "pip",
    "pyarrow",
    "pydoc",
    "pyspark",
    "pytest",
    "redis",
    "setuptools",
    "sqlite3",
    "tomllib",
    "unittest",
    "urllib.request",
    "xml",
)


def refused(server: ServerProcess) -> str:
    """What a server says that does not start."""
    server.start()
    assert server.wait() == 1
    log = server.log_text()
    assert "Traceback" not in log
    assert not server.ports_file.exists()
    return log


def test_the_ports_file_has_the_address_of_each_listener(tmp_path: Path) -> None:
    with ServerProcess(tmp_path) as server:
        ports = json.loads(server.ports_file.read_bytes())
        assert list(ports) == ["masenko", "workq", "resp", "http"]
        for listener in ports.values():
            assert list(listener) == ["host", "port"]
            assert listener["host"] == "127.0.0.1"
            assert listener["port"] > 0
        exchange(server.connect(), b"PING\n", b"PONG {}\n")
        exchange(server.connect("workq"), b"ping\r\n", b"-CLIENT-ERROR Unknown command\r\n")


def test_the_ports_file_is_there_as_a_whole_and_nothing_beside_it(tmp_path: Path) -> None:
    with ServerProcess(tmp_path):
        assert sorted(path.name for path in tmp_path.iterdir()) == [
            "data",
            "ports.json",
            "server.log",
        ]


def test_each_listener_accepts_when_the_ports_file_appears(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path)
    with server:
        for _ in range(5):
            socket.create_connection(server.address()).close()
            server.kill()
            server.restart()


def test_the_ports_file_is_gone_after_a_stop(tmp_path: Path) -> None:
    with ServerProcess(tmp_path) as server:
        assert server.stop() == 0
        assert not server.ports_file.exists()


def test_the_ports_file_of_a_killed_server_is_gone_when_the_next_does_not_start(
    tmp_path: Path,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        server = ServerProcess(tmp_path, "--masenko-port", str(taken.getsockname()[1]))
        server.ports_file.write_text('{"masenko": {"host": "127.0.0.1", "port": 1}}')
        server.spawn()
        assert server.wait() == 1
        assert not server.ports_file.exists()


def test_a_given_port_and_address_are_used(tmp_path: Path) -> None:
    server, port = start_at_a_free_port(tmp_path)
    try:
        assert server.address() == ("127.0.0.1", port)
        exchange(server.connect(), b"PING\n", b"PONG {}\n")
    finally:
        server.kill()


def has_begun_or_ended(server: ServerProcess) -> bool:
    return server.ports_file.exists() or not server.is_running()


def start_at_a_free_port(directory: Path) -> tuple[ServerProcess, int]:
    """Another process may take the port before the server does: then it is another one's turn."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        server = ServerProcess(directory, "--masenko-port", str(port), "--bind", "127.0.0.1")
        server.start()
        wait_for(partial(has_begun_or_ended, server))
        if server.is_running():
            return server, port
        assert "address already in use" in server.log_text(), server.log_text()


def test_a_listener_can_be_switched_off(tmp_path: Path) -> None:
    off = [part for dialect in DIALECTS for part in (f"--{dialect}-port", "off")]
    with ServerProcess(tmp_path, *off) as server:
        assert json.loads(server.ports_file.read_bytes()) == {}
        assert "listening" not in server.log_text()
        assert server.stop() == 0


def test_a_port_in_use_is_refused_by_name(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        log = refused(ServerProcess(tmp_path, "--masenko-port", str(port)))
    assert log.endswith(
        f" ERROR cannot start: cannot listen at 127.0.0.1:{port} for masenko:"
        " address already in use."
        " Stop the program that uses it, or choose another port with --masenko-port\n"
    )
    assert "stopped" not in log


def test_a_second_server_on_the_same_data_is_refused_and_the_first_goes_on(tmp_path: Path) -> None:
    with ServerProcess(tmp_path) as first:
        peer = first.connect()
        exchange(peer, b'PUSH {"name":"a"}\n', b'OK {"id":1}\n')
        ports = first.ports_file.read_bytes()
        second = ServerProcess(tmp_path)
        second.log = tmp_path / "second.log"
        second.spawn()
        assert second.wait() == 1
        log = second.log_text()
        reason = f"the data directory {first.data} is in use by process {first.pid}"
        assert f"ERROR cannot start: {reason}\n" in log
        assert first.ports_file.read_bytes() == ports
        exchange(peer, b'PUSH {"name":"a"}\n', b'OK {"id":2}\n')
        exchange(first.connect(), b"PING\n", b"PONG {}\n")
        assert first.stop() == 0


def test_the_data_directory_is_free_after_a_kill(tmp_path: Path) -> None:
    with ServerProcess(tmp_path) as server:
        server.kill()
        server.restart()
        exchange(server.connect(), b"PING\n", b"PONG {}\n")


def test_the_data_directory_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    with ServerProcess(tmp_path) as server:
        for path in [server.data, *server.data.rglob("*")]:
            assert path.stat().st_mode & 0o077 == 0, path


def test_a_data_directory_that_cannot_be_made_is_refused_by_name(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path)
    server.data = tmp_path / "file" / "data"
    (tmp_path / "file").write_text("not a directory")
    log = refused(server)
    assert "ERROR cannot start: " in log
    assert str(server.data) in log


def test_a_data_directory_that_cannot_be_written_is_refused_by_name(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path, prepare=without_privilege)
    server.data.mkdir(mode=0o500)
    log = refused(server)
    assert "ERROR cannot start: " in log
    assert f"Permission denied: '{server.data}" in log


def without_privilege() -> None:
    """Let permissions count even for root: takes CAP_DAC_OVERRIDE away, if it is there."""
    drop_from_bounding_set, dac_override = 24, 1
    ctypes.CDLL(None).prctl(drop_from_bounding_set, dac_override, 0, 0, 0)


def test_the_log_says_how_the_flush_was_measured_and_chosen(tmp_path: Path) -> None:
    with ServerProcess(tmp_path) as server:
        assert re.search(
            r" INFO disk flush measured mode=(inline|thread) "
            r"flush=\S*s thread_switch=\S*s\n",
            server.log_text(),
        )


@pytest.mark.parametrize("mode", ["inline", "thread"])
def test_the_log_says_that_the_flush_is_as_configured(tmp_path: Path, mode: str) -> None:
    with ServerProcess(tmp_path, "--sync-mode", mode) as server:
        log = server.log_text()
        assert f" INFO disk sync mode as configured mode={mode}\n" in log
        assert "measured" not in log
        exchange(server.connect(), b'PUSH {"name":"a"}\n', b'OK {"id":1}\n')


def test_a_flush_that_cannot_be_measured_is_no_reason_not_to_start(tmp_path: Path) -> None:
    """As on a disk that is full."""
    server = ServerProcess(tmp_path)
    (server.data / "flush.probe").mkdir(parents=True)
    with server:
        assert "WARNING disk flush not measured: " in server.log_text()
        exchange(server.connect(), b'PUSH {"name":"a"}\n', b'OK {"id":1}\n')


def test_the_log_says_what_was_recovered_and_what_runs(tmp_path: Path) -> None:
    with ServerProcess(tmp_path) as server:
        peer = server.connect()
        exchange(peer, b'PUSH {"name":"a"}\n' * 3, b'OK {"id":1}\nOK {"id":2}\nOK {"id":3}\n')
        assert server.stop() == 0
        server.restart()
        host, port = server.address("http")
        dashboard = f"http://{host}:{port}/"
        ready = f" INFO ready version={__version__} form={metrics.form()} dashboard={dashboard}\n"
        server.wait_for(lambda: ready in server.log_text())  # written when the ports are told
        log = server.log_text()
        assert re.search(r" INFO journal recovered records=4 jobs=3 segments=1 seconds=\S+\n", log)
        host, port = server.address()
        assert f" INFO listening dialect=masenko host={host} port={port}\n" in log


def test_a_log_in_json_has_an_object_a_line(tmp_path: Path) -> None:
    with ServerProcess(tmp_path, "--log-format", "json") as server:
        assert server.stop() == 0
        entries = server.log_entries()
        messages = [entry["message"] for entry in entries]
        assert messages[0] == "journal recovered"
        assert messages[-2:] == ["ready", "stopped"]
        measured = entries[1]
        assert measured["mode"] in ("inline", "thread")
        assert measured["flush"].endswith("s")
        assert measured["thread_switch"].endswith("s")
        assert {entry["level"] for entry in entries} == {"info"}


def test_nothing_heavy_is_imported_to_serve(tmp_path: Path) -> None:
    with ServerProcess(tmp_path, environment={"PYTHONPROFILEIMPORTTIME": "1"}) as server:
        exchange(server.connect(), b'PUSH {"name":"a"}\nFETCH\n', b'OK {"id":1}\n')
        lines = re.findall(r"^import time: .*\| +(\S+)$", server.log_text(), re.MULTILINE)
        assert "taskyard.server.app" in lines
        found = [name for name in NOT_ON_THE_WAY if name in lines]
        assert not found


def test_an_empty_directory_is_a_new_journal(tmp_path: Path) -> None:
    with ServerProcess(tmp_path) as server:
        assert sorted(os.listdir(server.data)) == ["identity.json", "journal", "lock"]
        assert queue_counts(server.connect()) == {}
