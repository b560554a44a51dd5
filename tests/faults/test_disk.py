"""System calls of the journal that fail, take long or are the last ones, under load."""

from collections import Counter
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from random import Random

import pytest
from support.faults.crowds import FLAGS
from support.faults.run import LoadedServer, under_load
from support.faults.tracing import Injection
from support.process import WarmServer
from support.sockets import HANG_GUARD
from support.wire import error_of

SMALL_SEGMENTS = ("--segment-size", "64KiB", "--payload-limit", "16KiB")
WRITES = "pwritev,pwritev2,pwrite64"
BREAKING = {
    "EIO of a flush": "fdatasync:error=EIO:when={n}+",
    "ENOSPC of a flush": "fdatasync:error=ENOSPC:when={n}+",
    "EIO of a write": WRITES + ":error=EIO:when={n}+",
    "ENOSPC of a write": WRITES + ":error=ENOSPC:when={n}+",
}
KILLING = {
    "kill before a flush": "fdatasync:signal=KILL:when={n}+",
    "kill before a write": WRITES + ":signal=KILL:when={n}+",
    "kill at a rename": "rename:signal=KILL:when=1+",
}
PASSING = {
    "EIO of fallocate": "fallocate:error=EIO:when=1+",
    "ENOSPC of fallocate": "fallocate:error=ENOSPC:when=1+",
    "EIO of a rename": "rename:error=EIO:when=1+",
    "a slow flush": "fdatasync:delay_enter=20000:when=1+",
}


def start(tmp_path: Path, chance: Random) -> WarmServer:
    mode = chance.choice(["inline", "thread"])
    return WarmServer(tmp_path, "--sync-mode", mode, *FLAGS, *SMALL_SEGMENTS)


def injection(run: LoadedServer, fault: str, chance: Random) -> Injection:
    number = chance.randint(1, 5)
    return Injection(run.server.pid, run.server.data.parent, fault.format(n=number))


@pytest.mark.parametrize("fault", list(BREAKING))
def test_a_disk_that_fails_makes_the_server_read_only_and_nothing_is_lost(
    tmp_path: Path, chance: Random, tally: Counter[str], fault: str
) -> None:
    server = start(tmp_path, chance)
    with server, under_load(server, chance, tally) as run:
        run.wait(chance.randint(1, 300))
        with injection(run, BREAKING[fault], chance):
            run.wait_until(lambda: "read only until restarted" in server.log_text())
        assert_read_only(server)
        assert server.stop() == 1
        assert "Traceback" not in server.log_text()
        run.ended()
        run.again()
        run.wait(50)
        tally[f"disk: {fault}"] += 1


def assert_read_only(server: WarmServer) -> None:
    with closing(HTTPConnection(*server.address("http"), timeout=HANG_GUARD)) as web:
        web.request("GET", "/readyz")
        answer = web.getresponse()
        assert answer.status == 503
        assert b'"reason": "read-only"' in answer.read()
    peer = server.connect()
    peer.send(b'PUSH {"name":"a"}\n')
    assert error_of(peer.read_line()).startswith("read only: the journal cannot be written: ")


@pytest.mark.parametrize("fault", list(KILLING))
def test_a_server_that_dies_at_a_system_call_has_lost_nothing(
    tmp_path: Path, chance: Random, tally: Counter[str], fault: str
) -> None:
    server = start(tmp_path, chance)
    with server, under_load(server, chance, tally) as run:
        run.wait(chance.randint(1, 300))
        with injection(run, KILLING[fault], chance):
            run.wait_until(lambda: not server.is_running())
        run.ended()
        run.again()
        run.wait(50)
        tally[f"disk: {fault}"] += 1


@pytest.mark.parametrize("fault", list(PASSING))
def test_what_the_journal_can_do_without_holds_up_nobody_for_good(
    tmp_path: Path, chance: Random, tally: Counter[str], fault: str
) -> None:
    """No new segment, no old one removed, a disk that is slow: no reason to give up."""
    server = start(tmp_path, chance)
    with server, under_load(server, chance, tally) as run:
        run.wait(chance.randint(1, 300))
        with injection(run, PASSING[fault], chance) as injected:
            run.wait_until(lambda: injected.count() >= 3)
            run.wait(50)
        run.wait(100)
        assert "read only" not in server.log_text()
        tally[f"disk: {fault}"] += 1
