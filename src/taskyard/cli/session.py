"""One run of a command: its arguments, its output, and its connection to the server."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import quote, urlencode

from taskyard.cli.failure import CommandFailed
from taskyard.cli.output import Output
from taskyard.cli.units import seconds_of
from taskyard.shared.exit_codes import USAGE

if TYPE_CHECKING:
    from taskyard.client.sync import Client

PAGE_ITEMS: Final = 1000  # items in one answer, at most
_LONG_TIMEOUT_S: Final = 86_400.0  # seconds
DEFAULT_URL: Final = "taskyard://localhost:8002"


class Context:
    """A context: connects when that is first needed, and closes at the end."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.out = Output(sys.stdout, json=getattr(arguments, "json", False))
        self.heartbeats = False  # leases outlast the command, unless it works on the jobs itself
        self._client: Client | None = None
        self._long_client: Client | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for client in (self._client, self._long_client):
            if client is not None:
                client.close()
        if error is not None:
            self._raise_as_command_failure(error)

    @property
    def url(self) -> str:
        return self.arguments.url or os.environ.get("TASKYARD_URL") or DEFAULT_URL

    @property
    def client(self) -> Client:
        if self._client is None:
            timeout = seconds_of(self.arguments.timeout, "--timeout")
            self._client = self._connect(timeout)
        return self._client

    def _connect(self, timeout: float) -> Client:
        from taskyard.client.sync import Client

        try:
            return Client(self.url, timeout=timeout, patience=0, heartbeats=self.heartbeats)
        except ValueError as error:
            raise CommandFailed(f"{error}.", USAGE) from None

    def api(self, method: str, path: str, body: Any = None, **query: object) -> Any:
        """What the JSON API answers; `path` is behind /api/v1, as `path()` makes it."""
        return self.client.call_api(method, _api_path(path, query), body)

    def long_api(self, method: str, path: str, body: Any = None, **query: object) -> Any:
        """The same for what is answered when it is done, which may take its time."""
        if self._long_client is None:
            self._long_client = self._connect(_LONG_TIMEOUT_S)
        return self._long_client.call_api(method, _api_path(path, query), body)

    def queue_name(self, name: str) -> str:
        """Return the name in the API: the URL may name a database, whose queues have a prefix
        there.
        """
        return self.client.address.prefix + name

    def queue_path(self, name: str, *rest: str) -> str:
        return path("queues", self.queue_name(name), *rest)

    def pages(
        self, path: str, field: str, most: int | None = None, **query: object
    ) -> Iterator[Any]:
        """All items of a list, or so many."""
        cursor = None
        left = most
        while left is None or left > 0:
            limit = PAGE_ITEMS if left is None else min(left, PAGE_ITEMS)
            page = self.api("GET", path, limit=limit, cursor=cursor, **query)
            yield from page[field]
            cursor = page["next"]
            if cursor is None:
                return
            if left is not None:
                left -= len(page[field])

    def _raise_as_command_failure(self, error: BaseException) -> None:
        """Raises a Failure in place of an error of the client."""
        if isinstance(error, CommandFailed | KeyboardInterrupt | BrokenPipeError):
            return
        if isinstance(error, ValueError):  # a value that the client can see to be of no use
            raise CommandFailed(f"{str(error).rstrip('.')}.", USAGE) from None
        from taskyard.cli.explain import explain

        failure = explain(error)
        if failure is not None:
            raise failure from None


def path(*parts: str | int) -> str:
    """Names as a path: session.queue_path("a/b") is /queues/a%2Fb."""
    return "".join(f"/{quote(str(part), safe='')}" for part in parts)


def _api_path(path: str, query: dict[str, object]) -> str:
    given = {name: _query_value(value) for name, value in query.items() if value is not None}
    return f"/api/v1{path}?{urlencode(given)}" if given else f"/api/v1{path}"


def _query_value(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
