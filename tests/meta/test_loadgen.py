"""The load generator of the benchmarks counts what was done, and notices what was done wrongly.

Each of its protocols is tried on a real Taskyard or Redis. beanstalkd and NATS are not there when
tests are run: small servers that speak as they do stand in, and the benchmarks run the real ones.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.process import WarmServer
from support.queue_peers import Address, Beanstalkd, Forger, JetStream, serving
from support.redis_server import RedisServer

from benchmarks import rig

PATIENCE = 300.0  # seconds; the generator gives up by itself when nothing is answered
TASKYARD = {
    "masenko": "masenko",
    "workq": "workq",
    "glovebox": "http",
    "glovebox-write": "http",
    "glovebox-memory": "http",
    "jobs": "resp",
    "jobs-batch": "resp",
    "lists": "resp",
    "pqueue": "resp",
}
REDIS = ("redis-list", "redis-stream", "lists", "zset")
SMALL = {"beanstalk": Beanstalkd, "nats": JetStream}
CASES = [
    *(("taskyard", driver) for driver in TASKYARD),
    *(("redis", driver) for driver in REDIS),
    *(("small", driver) for driver in SMALL),
]
LISTS = ("lists", "pqueue", "zset")
Loadgen = Callable[..., subprocess.CompletedProcess[str]]
Target = tuple[str, Address]


@pytest.fixture(scope="module")
def loadgen(tmp_path_factory: pytest.TempPathFactory) -> Loadgen:
    """Built with checks for every access to memory that is none of its own."""
    binary = tmp_path_factory.mktemp("loadgen") / "loadgen"
    compiler = shutil.which(os.environ.get("CC") or "cc")
    assert compiler is not None, "the load generator needs a C compiler"
    sources = [str(source) for source in rig.GENERATOR_SOURCES if source.suffix == ".c"]
    checks = ["-O1", "-Wall", "-Wextra", "-fsanitize=address,undefined"]
    subprocess.run(
        [compiler, *checks, "-fno-sanitize-recover=all", "-o", str(binary), *sources], check=True
    )

    def run(mode: str, target: Target, *options: str) -> subprocess.CompletedProcess[str]:
        driver, (_, port) = target
        command = [str(binary), *mode.split(), "--driver", driver, "--port", str(port), *options]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=PATIENCE, check=False
        )

    return run


@pytest.fixture(params=CASES, ids="-".join)
def target(
    request: pytest.FixtureRequest, tmp_path: Path, redis_server: RedisServer
) -> Iterator[Target]:
    """A server in which nothing waits, and the driver for it."""
    kind, driver = request.param
    if kind == "taskyard":
        # The client waits for a flush with `glovebox`, and others flush only from time to time.
        durability = "sync" if driver == "glovebox" else "write"
        with WarmServer(tmp_path, "--durability", durability) as server:
            yield driver, server.address(TASKYARD[driver])
    elif kind == "redis":
        redis_server.empty()
        yield driver, redis_server.address
    else:
        with serving(SMALL[driver]()) as address:
            yield driver, address


def told(run: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert run.returncode == 0, run.stderr
    result: dict[str, Any] = json.loads(run.stdout)
    return result


@pytest.mark.parametrize("depth", [1, 7])
def test_every_cycle_is_done_and_counted(loadgen: Loadgen, target: Target, depth: int) -> None:
    shape = ("--connections", "4", "--depth", str(depth))
    result = told(loadgen("cycle", target, "--cycles", "300", *shape))
    assert (result["cycles"], result["pushed"]) == (300, 300)
    parts = {"cycle", "push", "take"} | (set() if target[0] in LISTS else {"finish"})
    assert set(result["latency_us"]) == parts
    assert told(loadgen("drain", target, *shape))["cycles"] == 0


def test_what_was_filled_is_drained_each_once(loadgen: Loadgen, target: Target) -> None:
    shape = ("--connections", "3", "--depth", "10")
    assert told(loadgen("fill 205", target, "--serial", "0", *shape))["cycles"] == 205
    assert told(loadgen("drain", target, *shape))["cycles"] == 205


def test_payloads_may_be_larger_than_one_read(loadgen: Loadgen, target: Target) -> None:
    options = ("--cycles", "30", "--connections", "2", "--depth", "6", "--payload", "70000")
    assert told(loadgen("cycle", target, *options))["cycles"] == 30


FORGED = {
    "masenko": [("push", b'OK {"id"', b'NO {"id"'), ("finish", b"OK {}", b"OK []")],
    "workq": [("push", b"+OK\r", b"-NO\r"), ("take", b"+OK 1", b"+OK 2")],
    "glovebox": [("push", b'"sync"', b'"drop"'), ("finish", b'"finish"', b'"assign"')],
    "glovebox-write": [("push", b'"write"', b'"ready"')],
    "glovebox-memory": [("finish", b'"finish"', b'"assign"')],
    "jobs": [("push", b":", b"-"), ("finish", b"+OK", b"+KO")],
    "jobs-batch": [
        ("push", b":", b"-"),
        ("take", b"*3", b"*2"),
        ("finish", b"*1\r\n:1", b"*1\r\n:0"),
    ],
    "lists": [("push", b":1", b":0")],
    "pqueue": [("push", b":1", b":2"), ("take", b"+item", b"+memo")],
    "redis-list": [("push", b":1\r\n", b":0\r\n")],
    "redis-stream": [("finish", b":1\r\n:1\r\n", b":1\r\n:0\r\n")],
    "zset": [("take", b"\r\nitem:", b"\r\nmemo:"), ("push", b"$1\r\n1", b"$1\r\n2")],
    "beanstalk": [("push", b"INSERTED", b"BURIED 0"), ("finish", b"DELETED", b"NOT_FOUND")],
    "nats": [("push", b'"stream"', b'"errors"'), ("take", b"$JS.ACK.", b"$JS.NAK.")],
}
WITH_PAYLOADS = [driver for driver in FORGED if driver not in ("pqueue", "zset")]


def forgeries(driver: str) -> list[tuple[str, bytes, bytes]]:
    # With these letters each payload goes on behind its serial number.
    spoilt = [("take", b"abejqz", b"abejqx")] if driver in WITH_PAYLOADS else []
    return [*FORGED[driver], *spoilt]


def test_a_wrong_answer_ends_the_run(loadgen: Loadgen, target: Target) -> None:
    driver, address = target
    for operation, old, new in forgeries(driver):
        with serving(Forger(address, old, new)) as forged:
            run = loadgen("cycle", (driver, forged), "--cycles", "20")
        assert run.returncode == 1, (operation, run.stdout)
        assert f"unexpected reply to {operation} ({driver}, " in run.stderr
        told(loadgen("drain", target))


def test_a_server_that_hangs_up_ends_the_run(loadgen: Loadgen) -> None:
    server = Beanstalkd()
    server.hang_up_after(pushes=10)
    with serving(server) as address:
        run = loadgen("cycle", ("beanstalk", address), "--cycles", "20")
    assert run.returncode == 1
    assert "the server closed the connection, 1 replies to push outstanding" in run.stderr


def test_nats_is_asked_for_a_stream_and_answered_when_it_asks(loadgen: Loadgen) -> None:
    server = JetStream()
    with serving(server) as address:
        told(loadgen("cycle", ("nats", address), "--cycles", "200"))
    assert server.made == [
        "$JS.API.STREAM.CREATE.bench",
        "$JS.API.CONSUMER.DURABLE.CREATE.bench.bench",
    ]
    assert (server.pushed, len(server.ready), server.pending) == (200, 0, set())
    assert server.pongs >= 3


def test_no_acknowledgement_is_lost_when_a_run_ends(loadgen: Loadgen) -> None:
    server = JetStream()
    with serving(server) as address:
        shape = ("--connections", "5", "--depth", "20")
        told(loadgen("cycle", ("nats", address), "--seconds", "0.1", *shape))
        assert (server.pending, len(server.ready)) == (set(), 0)


@pytest.mark.parametrize(
    ("driver", "option", "why"),
    [
        ("nats", "--queues=2", "nats has one queue"),
        ("jobs-batch", "--depth=1001", "jobs-batch takes up to 1000"),
    ],
)
def test_what_a_protocol_cannot_do_is_refused(
    loadgen: Loadgen, driver: str, option: str, why: str
) -> None:
    run = loadgen("cycle", (driver, ("127.0.0.1", 1)), option)
    assert (run.returncode, run.stdout) == (2, "")
    assert why in run.stderr


def test_at_a_rate_a_job_counts_from_when_it_was_due(loadgen: Loadgen) -> None:
    """A server that is held up for 300 ms makes all wait that are due meanwhile, not one."""
    server = Beanstalkd()
    server.hold_up_after(pushes=100, seconds=0.3)
    with serving(server) as address:
        paced = ("--rate", "1000", "--cycles", "400", "--connections", "1")
        result = told(loadgen("cycle", ("beanstalk", address), *paced))
    assert (server.pushed, result["cycles"]) == (400, 400)
    # Of 400, the 100 before it may be quick; of the others the n-th waits at least 300 - n ms.
    assert result["latency_us"]["cycle"]["p50"] > 90_000


PAUSE = 0.2  # seconds
PAUSING = """
import select, socket, sys, time
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
client, _ = listener.accept()
pause, clock, events = float(sys.argv[2]), time.thread_time, select.epoll()
if sys.argv[3] == "epoll":
    events.register(client, select.EPOLLIN)
while (sys.argv[3] != "epoll" or events.poll()) and client.recv(100):
    if sys.argv[1] == "asleep":
        time.sleep(pause)
    else:
        began = clock()
        while clock() < began + pause:
            pass
    client.sendall(b"PONG {}\\n")
"""


@pytest.mark.parametrize("how", ["asleep", "busy"])
@pytest.mark.parametrize("waiting", ["recv", "epoll"])
def test_a_pause_of_the_server_is_its_own(loadgen: Loadgen, how: str, waiting: str) -> None:
    """All but what it waited for a processor, or was robbed of by the host.

    It pauses several times: what it waited just before it was asked may be taken off, too.
    """
    command = [sys.executable, "-c", PAUSING, how, str(PAUSE), waiting]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        target = "masenko", ("127.0.0.1", int(server.stdout.readline()))
        found = told(loadgen("probe", target, f"--pid={server.pid}", "--seconds=1"))
    assert PAUSE <= found["longest_own_us"] / 1e6 <= found["longest_us"] / 1e6


def test_a_probe_needs_a_server_to_look_at(loadgen: Loadgen, tmp_path: Path) -> None:
    with subprocess.Popen(["true"]) as gone:
        gone.wait()
    with WarmServer(tmp_path) as server:
        target = "masenko", server.address("masenko")
        run = loadgen("probe", target, f"--pid={gone.pid}", "--seconds=1")
    assert run.returncode != 0
    assert f"/proc/{gone.pid}/" in run.stderr
