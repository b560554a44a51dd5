"""One suite for both clients: the asynchronous one is made to look like the blocking one."""

from __future__ import annotations

import asyncio
import inspect
import threading
from typing import Any, cast

from support.sockets import HANG_GUARD

from taskyard import AsyncClient, Client
from taskyard.client.retry import Backoff

KINDS = ("blocking", "asynchronous")
QUICK = Backoff(0.001, 0.05)


class _Facade:
    """Calls of an AsyncClient, each waited for, from any thread."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self._inner = AsyncClient(*args, **options)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def __enter__(self) -> _Facade:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not callable(found):
            return found

        def call(*args: Any, **options: Any) -> Any:
            return self._wait(found(*args, **options))

        return call

    def close(self) -> None:
        if not self._loop.is_closed():
            self._wait(self._inner.close())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(HANG_GUARD)
            self._loop.close()

    def _wait(self, made: Any) -> Any:
        if inspect.isasyncgen(made):
            made = _listed(made)
        return asyncio.run_coroutine_threadsafe(made, self._loop).result()


async def _listed(items: Any) -> list[Any]:
    return [item async for item in items]


def open_client(kind: str, url: str, **options: Any) -> Client:
    """Of this kind, and quick to try again."""
    options.setdefault("backoff", QUICK)
    options.setdefault("patience", HANG_GUARD)
    if kind == "blocking":
        return Client(url, **options)
    return cast("Client", _Facade(url, **options))
