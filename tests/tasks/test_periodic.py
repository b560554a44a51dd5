"""Schedules that are declared in the code of an app."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from toq.brokers import Running

from taskyard import App, BadArguments, Client


class Schedules(Client):
    """Keeps what a server would be told, and has the schedules of others."""

    def __init__(self, *names: str) -> None:
        super().__init__("taskyard://127.0.0.1:1")
        self.kept: dict[str, Any] = dict.fromkeys(names)
        self.deleted: list[str] = []

    def call_api(self, method: str, path: str, body: Any = None) -> Any:
        name = path.removeprefix("/api/v1/schedules/")
        assert name != path
        if method == "PUT":
            self.kept[name] = msgspec.json.decode(msgspec.json.encode(body))
        else:
            assert method == "DELETE"
            self.deleted.append(name)

    def schedules(self) -> list[Any]:
        return [SimpleNamespace(name=name) for name in self.kept]


def reports() -> App:
    app = App(name="reports")

    @app.periodic("0 6 * * *", timezone="Europe/Berlin", overlap="skip", args=["short"])
    @app.task(queue="slow", retry=2, priority=3, limit_key=str)
    def daily(kind: str = "long") -> None: ...

    @app.periodic(every=60, args=(["disk"],), name="often")
    def check(what: list[str]) -> None: ...

    return app


def test_retries_without_end_are_as_many_as_there_can_be() -> None:
    app, server = App(name="endless"), Schedules()

    @app.periodic(every=60)
    @app.task(retry=-1)
    def check() -> None: ...

    app.sync_schedules(server)
    assert server.kept["endless.check"]["max_fails"] == 2**32 - 1


def test_the_server_is_told_what_to_push() -> None:
    server = Schedules()
    reports().sync_schedules(server)
    assert server.kept == {
        "reports.daily": {
            "cron": "0 6 * * *",
            "timezone": "Europe/Berlin",
            "overlap": "skip",
            "queue": "slow",
            "name": "daily",
            "payload": {"args": ["short"], "kwargs": {}},
            "limit_key": "short",
            "priority": 3,
            "max_fails": 3,
            "backoff": "exponential",
            "backoff_base": 1.0,
            "backoff_cap": 300.0,
        },
        "reports.often": {
            "every": 60,
            "queue": "default",
            "name": "check",
            "payload": {"args": [["disk"]], "kwargs": {}},
        },
    }


def test_those_that_are_not_declared_any_more_are_told_of_and_removed_on_demand(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = Schedules("reports.weekly", "reports.daily", "others.daily")
    reports().sync_schedules(server)
    assert server.deleted == []
    assert "schedule reports.weekly is no longer declared" in caplog.text
    assert "others" not in caplog.text
    reports().sync_schedules(server, prune=True)
    assert server.deleted == ["reports.weekly"]


def test_what_makes_no_sense_is_refused() -> None:
    app = reports()
    with pytest.raises(ValueError, match="either a cron expression or `every`"):
        app.periodic()(lambda: None)
    with pytest.raises(BadArguments, match="too many positional arguments"):
        app.periodic(every=60, args=(1,))(lambda: None)
    with pytest.raises(ValueError, match=r"there is a schedule 'reports\.daily' already"):
        app.periodic("@hourly")(app.tasks["daily"])


def test_a_job_of_a_schedule_is_retried_as_its_task_says(server: Running) -> None:
    with App(server.url, name="ticking", queue="ticking") as app:
        runs: list[str] = []

        @app.periodic(every=86_400)
        @app.task(retry=0)
        def once() -> None:
            runs.append("once")
            raise ValueError

        @app.periodic(every=86_400)
        @app.task(retry=2, backoff=(3600, 3600))
        def later() -> None:
            runs.append("later")
            raise ValueError

        app.sync_schedules()
        for name in ("once", "later"):
            app.client.run_schedule(f"ticking.{name}")
        assert app.worker(burst=True, schedules=False).run()
        counts = app.client.queue("ticking").counts
        app.sync_schedules(prune=True)
    assert sorted(runs) == ["later", "once"]
    assert (counts.failed, counts.delayed) == (1, 1)
