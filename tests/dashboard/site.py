"""A server with a dashboard, and what tests do to both."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote
from urllib.request import Request, urlopen

from playwright.sync_api import Locator, Page, expect
from support.process import ServerProcess

from taskyard import Client


class Site(ServerProcess):
    """Its addresses stay the same over a restart."""

    @property
    def url(self) -> str:
        host, port = self.address("http")
        return f"http://{host}:{port}/"

    def client(self) -> Client:
        host, port = self.address("resp")
        return Client(f"taskyard://{host}:{port}")

    def api(self, method: str, path: str, body: object = None) -> Any:
        request = Request(
            f"{self.url}api/v1/{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urlopen(request) as answer:
            return json.loads(answer.read() or "null")

    def push(self, queue: str, payload: object = None, **options: object) -> int:
        """The id of the job."""
        path = f"queues/{quote(queue, safe='')}/jobs"
        pushed = self.api("POST", path, {"payload": payload, **options})
        return int(pushed["id"])

    def bury(self, queue: str, errors: list[str]) -> None:
        """A dead letter for each of these errors."""
        for error in errors:
            self.push(queue, {"error": error}, name="doomed", max_fails=1)
        with self.client() as client:
            for job in client.fetch(queue, count=len(errors)):
                client.fail(job, job.json()["error"])

    def keep_addresses(self) -> None:
        """A server that is started again listens where it did."""
        for dialect in ("http", "resp", "masenko", "workq"):
            port = self.address(dialect)[1]
            self.flags = [*self.flags, f"--{dialect}-port", str(port)]


def go(page: Page, site: Site, path: str, title: str) -> None:
    """Open a page of the dashboard, and wait until it is there."""
    page.goto(f"{site.url}#/{path}")
    expect(page.get_by_role("heading", level=1)).to_contain_text(title)


def notices(page: Page) -> Locator:
    return page.get_by_role("status", name="Notices")
