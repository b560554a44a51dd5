"""A server that is restarted again and again, while clients of all protocols work.

They come back by themselves; all that was pushed is done, and what was done is not done again.
"""

from contextlib import ExitStack
from functools import partial
from pathlib import Path

from support.listeners import DIALECTS
from support.process import WarmServer
from support.rolling import LEASE, RollingClients
from support.waiting import wait_for
from tasks import yard
from tasks.workers import WorkerProcess, marks

RESTARTS = 3
SHARE = 8  # jobs of each client between two restarts
# A client that has nothing to do says nothing. A reply that is on its way when the server goes may
# get lost, and its job comes back when the lease is over.
PATIENT = ("--heartbeat", "10m", "--default-ttr", f"{LEASE}s")
WORK = ("--concurrency", "2", "--lease", str(LEASE))


def test_clients_of_all_dialects_come_back(tmp_path: Path) -> None:
    with WarmServer(tmp_path, *PATIENT) as server, ExitStack() as ending:
        ports = {dialect: server.address(dialect) for dialect in DIALECTS}
        server.flags += [flag for name in DIALECTS for flag in port_flag(name, ports[name])]
        crew = RollingClients(ports)
        ending.callback(crew.stop)
        crew.start()
        worker = ending.enter_context(WorkerProcess(tmp_path, crew.url, *WORK))
        yard.app.url = crew.url
        ending.callback(yard.app.close)
        noted = 0
        for number in range(RESTARTS):
            crew.allow(SHARE // 2)
            wait_for(partial(served, crew))
            crew.allow(SHARE // 2)
            for _ in range(SHARE):
                yard.note.push(noted)
                noted += 1
            wait_for(partial(has_begun, crew, number))
            assert server.stop() == 0
            server.restart()
        wait_for(partial(served, crew))
        wait_for(lambda: len(marks(tmp_path, "noted")) >= noted)
        assert not failed(crew)
        for name, book in crew.logs.items():
            assert len(book.pushed) == SHARE * RESTARTS, name
            assert book.back == [], name
        assert sorted(map(int, marks(tmp_path, "noted"))) == list(range(noted))
        assert worker.is_running()
        assert "Traceback" not in server.log_text()


def port_flag(dialect: str, address: tuple[str, int]) -> list[str]:
    return [f"--{dialect}-port", str(address[1])]


def has_begun(crew: RollingClients, number: int) -> bool:
    """Something of what was allowed last is on its way."""
    before = len(crew.logs) * (SHARE * number + SHARE // 2)
    return sum(len(book.pushed) for book in crew.logs.values()) > before or bool(failed(crew))


def served(crew: RollingClients) -> bool:
    return all(book.is_served() for book in crew.logs.values()) or bool(failed(crew))


def failed(crew: RollingClients) -> list[str]:
    return [f"{name}: {error}" for name, book in crew.logs.items() for error in book.errors]
