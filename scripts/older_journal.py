"""Makes a journal for tests/journal/formats, with the server of a source tree, of this or an older
version: what that has written must be read for ever.

    .venv/bin/python scripts/older_journal.py 8-something --source ../older/src

It speaks every protocol that the server has, has it compact its journal, and kills it. What must be
found is what it was told, and stands in the JSON file beside.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

PLACE = Path(__file__).resolve().parents[1] / "tests" / "journal" / "formats"
FLAGS = ("--segment-size", "64KiB", "--payload-limit", "16KiB", "--retain-bytes", "0")
LATE = "2100-01-01T00:00:00Z"
UIDS = [f"6ba7b810-9dad-41d1-80b4-00c04fd4300{number}" for number in range(4)]
CARRIED = [f"6ba7b811-9dad-41d1-80b4-00c04fd4300{number}" for number in range(2)]
PATIENCE = 60.0


class Told:
    """What the server has said yes to."""

    def __init__(self) -> None:
        self.jobs: dict[str, dict[str, Any]] = {}  # by payload
        self.others: dict[str, Any] = {}

    def job(self, payload: str, queue: str, state: str, attempts: int = 0, fails: int = 0) -> None:
        self.jobs[payload] = {"queue": queue, "state": state, "attempts": attempts, "fails": fails}


class Lines:
    """A socket on which lines go to and fro."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._socket = socket.create_connection(address, PATIENCE)
        self._file = self._socket.makefile("rb")

    def ask(self, data: bytes) -> bytes:
        self._socket.sendall(data)
        return self._file.readline()

    def read(self, size: int) -> bytes:
        return self._file.read(size)

    def call(self, *words: str) -> bytes:
        """A command of RESP; gives the first line of the answer."""
        parts = [b"*%d\r\n" % len(words)]
        parts += [b"$%d\r\n%b\r\n" % (len(word), word.encode()) for word in words]
        answer = self.ask(b"".join(parts))
        assert not answer.startswith(b"-"), (words, answer)
        return answer


def masenko(address: tuple[str, int], told: Told, data: Path) -> Lines:
    peer = Lines(address)

    def push(payload: str, **more: object) -> int:
        message = {"name": "task", "queue": "m", "payload": payload, **more}
        answer = peer.ask(b"PUSH " + json.dumps(message).encode() + b"\n")
        assert answer.startswith(b"OK"), answer
        return int(json.loads(answer[3:])["id"])

    def fetch(queue: str = "m") -> int:
        answer = peer.ask(b"FETCH " + json.dumps({"queues": [queue]}).encode() + b"\n")
        assert answer.startswith(b"OK"), answer
        return int(json.loads(answer[3:])["id"])

    def end(word: str, number: int) -> None:
        answer = peer.ask(f'{word} {{"id":{number}}}\n'.encode())
        assert answer.startswith(b"OK"), answer

    end_of = push("m-old", queue="m-old")  # to be carried
    told.job("m-old", "m-old", "ready")
    for number in range(200):
        push("x" * 1000, queue="filling", name=f"job{number}")
        end("ACK", fetch("filling"))
    wait_for(lambda: not (data / "journal" / f"{0:020}.seg").exists(), "compaction")
    push("m-done")
    end("ACK", fetch())
    push("m-failed", retry=5, queue="m-failed")
    for _ in range(2):  # a second after the first time, 16 after the second
        end("NACK", fetch("m-failed"))
    told.job("m-failed", "m-failed", "delayed", 2, 2)
    push("m-held")
    fetch()
    told.job("m-held", "m", "leased", 1)
    push("m-ready")
    told.job("m-ready", "m", "ready")
    push("m-later", execute_at=LATE)
    told.job("m-later", "m", "delayed")
    push("m-blocked", blocked_by=[end_of])
    told.job("m-blocked", "m", "blocked")
    return peer


def workq(address: tuple[str, int], told: Told) -> Lines:
    peer = Lines(address)

    def call(line: str, data: bytes | None = None) -> bytes:
        block = b"" if data is None else data + b"\r\n"
        answer = peer.ask(line.encode() + b"\r\n" + block)
        assert answer.startswith(b"+OK"), answer
        return answer

    def add(uid: str, queue: str, data: bytes, flags: str = "") -> None:
        call(f"add {uid} {queue} 3600000 86400000 {len(data)}{flags}", data)

    def lease(queue: str) -> None:
        call(f"lease {queue} 1000")
        size = int(peer._file.readline().split()[-1])
        peer.read(size + 2)

    add(UIDS[0], "w-done", b"w-done")
    lease("w-done")
    call(f"complete {UIDS[0]} 4", b"done")
    told.job("w-done", "w-done", "succeeded", 1)
    add(UIDS[1], "w", b"w-held")
    lease("w")
    told.job("w-held", "w", "leased", 1)
    add(UIDS[2], "w", b"w-ready", " -priority=5 -max-fails=3")
    told.job("w-ready", "w", "ready")
    return peer


class Api:
    def __init__(self, address: tuple[str, int]) -> None:
        self.address = address

    def __call__(self, method: str, path: str, body: object) -> Any:
        connection = http.client.HTTPConnection(*self.address, timeout=PATIENCE)
        kind = {"Content-Type": "application/json"}
        connection.request(method, "/api/v1" + path, json.dumps(body), kind)
        answer = connection.getresponse()
        found = answer.read()
        connection.close()
        assert answer.status < 300, (path, answer.status, found)
        return json.loads(found or b"null")


def over_http(address: tuple[str, int], told: Told) -> Api:
    from websockets.sync.client import connect

    api = Api(address)
    api("PUT", "/queues/h", {"retries": 3})
    api("POST", "/queues/h/jobs", {"text": "h-ready", "priority": 7})
    told.job("h-ready", "h", "ready")
    host, port = address
    headers = {"Binary": "false"}
    with connect(f"ws://{host}:{port}/connect/", additional_headers=headers) as peer:
        peer.recv()
        for message in (
            {"type": "create", "queue": "g", "label": 1},
            {"type": "post", "queue": "g", "message": "g-ready", "label": 2, "notify": ["sync"]},
        ):
            peer.send(json.dumps(message))
            assert json.loads(peer.recv())["type"] == "notice"
    told.job("g-ready", "g", "ready")
    return api


def resp(address: tuple[str, int], told: Told) -> Lines:
    peer = Lines(address)
    call = peer.call
    call("RPUSH", "r", "r-ready")
    told.job("r-ready", "r", "ready")
    call("UPDATE", "p-ready", "5")
    told.job("p-ready", "pqueue", "ready")
    call("SETEX", "kept", "864000000", "value")
    told.others["values"] = {"kept": "value"}
    call("JOB.PUSH", "j", "j-held", "TTR", "3600000")
    call("JOB.TAKE", "1", "j")
    told.job("j-held", "j", "leased", 1)
    return peer


def uids(address: tuple[str, int], told: Told) -> Lines:
    """A job with a uid that is still there, and one that is done, before compaction has both."""
    peer = Lines(address)
    peer.call("JOB.PUSH", "u-ready", "u-ready", "UID", CARRIED[0])
    told.job("u-ready", "u-ready", "ready")
    peer.call("JOB.PUSH", "u-done", "u-done", "UID", CARRIED[1])
    peer.call("LPOP", "u-done")
    peer.read(len("u-done\r\n"))
    told.others["uids"] = {CARRIED[0]: "u-ready", CARRIED[1]: "u-done"}
    return peer


def pipeline(address: tuple[str, int], told: Told) -> Lines:
    peer = Lines(address)
    peer.call("RPUSH", "b", "b-held")
    peer.call("BATCH.LEASE", "etl", "1", "10", "QUEUES", "b")
    told.job("b-held", "b", "leased", 1)
    told.others["consumers"] = {"etl": 1}
    return peer


def wait_for(condition: Any, what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"no {what} came"
        time.sleep(0.05)


def talk(ports: dict[str, Any], told: Told, data: Path) -> list[object]:
    """With all that the server listens for; the connections stay open until it is killed."""

    def address(name: str) -> tuple[str, int]:
        return ports[name]["host"], ports[name]["port"]

    open_: list[object] = [uids(address("resp"), told)] if "resp" in ports else []
    open_.append(masenko(address("masenko"), told, data))
    if "workq" in ports:
        open_.append(workq(address("workq"), told))
    api = over_http(address("http"), told) if "http" in ports else None
    if "resp" in ports:
        open_.append(resp(address("resp"), told))
    if api is not None and has(api, "/schedules"):
        schedule = {"queue": "s", "cron": "0 3 1 1 *", "payload": "nightly"}
        api("PUT", "/schedules/nightly", schedule)
        api("PUT", "/queues/limited", {"concurrency": 2, "rate": {"count": 10, "per": 60}})
        told.others["schedules"] = ["nightly"]
        told.others["limited"] = {"limited": 2}
    if api is not None and has(api, "/readers"):
        api("PUT", "/readers/lake", {"lease": 3600})
        told.others["readers"] = ["lake"]
        open_.append(pipeline(address("resp"), told))
    # Nobody waits for a lease to be on disk; what is answered now has all leases before it.
    last = Lines(address("masenko"))
    assert last.ask(b'PUSH {"name":"task","queue":"last","payload":"last"}\n').startswith(b"OK")
    told.job("last", "last", "ready")
    return [*open_, last]


def has(api: Api, path: str) -> bool:
    try:
        api("GET", path, None)
    except AssertionError:
        return False
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name")
    parser.add_argument("--source", type=Path, required=True)
    arguments = parser.parse_args()
    place = Path(tempfile.mkdtemp())
    data, ports_file = place / "data", place / "ports.json"
    environment = {**os.environ, "PYTHONPATH": str(arguments.source)}
    environment.pop("TASKYARD_FORM", None)
    known = subprocess.run(
        [sys.executable, "-m", "taskyard", "serve", "--help"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    ports = [f"--{name}-port" for name in ("masenko", "workq", "http", "resp")]
    flags = [word for flag in ports if flag in known for word in (flag, "0")]
    command = [sys.executable, "-m", "taskyard", "serve", "--data", str(data), *flags, *FLAGS]
    server = subprocess.Popen([*command, "--ports-file", str(ports_file)], env=environment)
    told = Told()
    try:
        wait_for(ports_file.exists, "server")
        open_ = talk(json.loads(ports_file.read_text()), told, data)
    finally:
        server.kill()
        server.wait()
    assert open_
    target = PLACE / arguments.name
    shutil.rmtree(target, ignore_errors=True)
    (target / "journal").mkdir(parents=True)
    shutil.copy(data / "identity.json", target)
    for segment in (data / "journal").glob("*.seg"):
        # Without the zeros at its end: a file that is cut there is read in the same way.
        (target / "journal" / segment.name).write_bytes(
            segment.read_bytes().rstrip(b"\0") + bytes(64)
        )
    expected = {"jobs": told.jobs, **told.others}
    (PLACE / f"{arguments.name}.json").write_text(json.dumps(expected, indent=1) + "\n")
    shutil.rmtree(place)


if __name__ == "__main__":
    main()
