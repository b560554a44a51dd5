"""A disk that is full under load, and has room again: nothing is lost, nothing need be done."""

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from random import Random

import pytest
from support.faults.crowds import FLAGS
from support.faults.run import under_load
from support.glovebox_socket import Talker
from support.mounted import SmallDisk
from support.process import ServerProcess
from support.replies_resp import ask
from support.sockets import HANG_GUARD
from support.wire import error_of, exchange

SMALL_SEGMENTS = ("--segment-size", "1MiB", "--payload-limit", "64KiB")
SIZE = "12m"
NO_ROOM = "no room for the next segment of the journal: No space left on device"
ADD = b"add 6ba7b810-9dad-11d1-80b4-00c04fd430c8 q 60000 60000 1\r\nx\r\n"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with SmallDisk(tmp_path / "data", SIZE) as disk:
        yield disk


def fill(disk: SmallDisk) -> None:
    """Another file takes all the room there is."""
    filler = disk.path / "filler"
    disk.run("sh", "-c", f"cat /dev/zero >> {filler} 2> /dev/null || true")


def make_room(disk: SmallDisk) -> None:
    disk.run("rm", str(disk.path / "filler"))


def test_pushes_are_refused_in_every_dialect_and_go_on_by_themselves(
    tmp_path: Path, disk: SmallDisk, chance: Random, tally: Counter[str]
) -> None:
    server = ServerProcess(tmp_path, *FLAGS, *SMALL_SEGMENTS, wrapper=disk.wrapper)
    with server, under_load(server, chance, tally) as run:
        with Talker(server.address("http"), binary=False) as maker:
            maker.create("q")
        run.wait(chance.randint(1, 300))
        fill(disk)
        run.wait_until(lambda: "refusing pushes" in server.log_text())
        assert_refused(server)
        make_room(disk)
        run.wait_until(lambda: "accepting pushes again" in server.log_text())
        exchange(server.connect("workq"), ADD, b"+OK\r\n")
        exchange(server.connect("workq"), b"delete " + ADD.split()[1] + b"\r\n", b"+OK\r\n")
        run.wait(100)
        tally["disk: full, and with room again"] += 1


def assert_refused(server: ServerProcess) -> None:
    """A push says why in the words of its protocol, and the server says that it is not ready."""
    masenko = server.connect()
    masenko.send(b'PUSH {"name":"a","queue":"q"}\n')
    assert error_of(masenko.read_line()) == f"no space: {NO_ROOM}"
    workq = server.connect("workq")
    workq.send(ADD)
    assert workq.read_line() == f"-SERVER-ERROR {NO_ROOM}\r\n".encode()
    assert ask(server.connect("resp"), "RPUSH", "q", "x") == f"OOM {NO_ROOM}"
    with Talker(server.address("http"), binary=False) as glovebox:
        glovebox.say("post", queue="q", message="x", label=1, notify=["sync"])
        told = glovebox.hear()
        assert (told["type"], told["label"], told["code"]) == ("error", 1, "Unavailable")
    with closing(HTTPConnection(*server.address("http"), timeout=HANG_GUARD)) as web:
        job = json.dumps({"payload": "x"})
        web.request("POST", "/api/v1/queues/q/jobs", job, {"content-type": "application/json"})
        answer = web.getresponse()
        assert (answer.status, NO_ROOM in answer.read().decode()) == (507, True)
        web.request("GET", "/readyz")
        answer = web.getresponse()
        assert (answer.status, b'"no-space"' in answer.read()) == (503, True)


def test_a_server_starts_on_a_full_disk_and_finishes_what_is_there(
    tmp_path: Path, disk: SmallDisk, chance: Random, tally: Counter[str]
) -> None:
    server = ServerProcess(tmp_path, *FLAGS, *SMALL_SEGMENTS, wrapper=disk.wrapper)
    with server, under_load(server, chance, tally) as run:
        run.wait(chance.randint(100, 400))
        disk.run("fallocate", "-l", "64KiB", str(disk.path / "crumb"))
        fill(disk)
        run.kill()
        disk.run("rm", str(disk.path / "crumb"))
        run.again()
        run.wait_until(lambda: "refusing pushes" in server.log_text())
        run.wait(100)
        run.kill()
        make_room(disk)
        run.again()
        run.wait(100)
        tally["disk: full at the start"] += 1
