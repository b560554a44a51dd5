"""Schedules of an app: declared in its code, kept and run by the server."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import msgspec

from taskyard.client.sync import Client
from taskyard.tasks.codec import Envelope, encode_arguments
from taskyard.tasks.options import Retry

if TYPE_CHECKING:
    from taskyard.tasks.app import App
    from taskyard.tasks.task import Task

log: Final = logging.getLogger("taskyard.tasks")

_UNLIMITED_FAILS: Final = 2**32 - 1  # the API has no word for no end
_HOW_TO_PRUNE: Final = "app.sync_schedules(prune=True) removes it"


class Schedules:
    """All that were declared. One is named `{app}.{task}`, or by what its declaration says."""

    def __init__(self, app: App) -> None:
        self._app = app
        self.declared: dict[str, dict[str, Any]] = {}  # what the server gets, by name

    def add(
        self,
        task: Task[..., Any],
        *,
        cron: str | None = None,
        every: float | None = None,
        timezone: str | None = None,
        name: str | None = None,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        missed: str | None = None,
        overlap: str | None = None,
    ) -> None:
        """`args`, `kwargs`: what the task is called with. `name`: behind the app's, else that of
        the task. `missed`: what becomes of ticks while the server was down. `overlap`: whether a
        tick is skipped while the job of the one before has not ended. See the page on schedules.
        """
        if (cron is None) == (every is None):
            raise ValueError("a schedule has either a cron expression or `every`")
        if every is not None and not isinstance(every, int | float):
            raise TypeError(f"every must be a number of seconds, not {every!r}")
        task.codec.check_arguments(args, kwargs or {})
        full = f"{self._app.name}.{name or task.name}"
        if full in self.declared:
            raise ValueError(f"there is a schedule {full!r} already: give this one a name")
        options = task.options
        payload = encode_arguments(Envelope(tuple(args), dict(kwargs or {})))
        body: dict[str, Any] = {
            "cron": cron,
            "every": every,
            "timezone": timezone,
            "queue": options.queue,
            "name": task.name,
            "payload": msgspec.Raw(payload),
            "priority": options.priority or None,
            "ttr": options.ttr,
            "ttl": options.ttl,
            **_retry_fields(options.retry),
            "dead_queue": options.dead_queue,
            "key": task.key(args, kwargs or {}),
            "limit_key": task.limit_key(args, kwargs or {}),
            "missed": missed,
            "overlap": overlap,
        }
        self.declared[full] = {key: value for key, value in body.items() if value is not None}

    def sync(self, client: Client, *, prune: bool = False) -> None:
        """Set those that were declared; one that is paused stays so.

        Those of this app's name that are no longer declared are logged, and removed with `prune`:
        an older or another app of the same name may have declared them.
        """
        for name, body in self.declared.items():
            client.call_api("PUT", _schedule_path(name), body)
        if self.declared or prune:
            for name in self._undeclared_names(client):
                if prune:
                    client.call_api("DELETE", _schedule_path(name))
                    log.info("schedule %s is no longer declared: it was removed", name)
                else:
                    log.warning("schedule %s is no longer declared: %s", name, _HOW_TO_PRUNE)

    def _undeclared_names(self, client: Client) -> list[str]:
        prefix = f"{self._app.name}."
        return [
            schedule.name
            for schedule in client.schedules()
            if schedule.name.startswith(prefix) and schedule.name not in self.declared
        ]


def _retry_fields(retry: Retry | None) -> dict[str, Any]:
    if retry is None:
        return {}
    if not retry.times:
        return {"max_fails": 1}
    first, most = retry.backoff
    return {
        "max_fails": _UNLIMITED_FAILS if retry.times < 0 else retry.times + 1,
        "backoff": "exponential",
        "backoff_base": first,
        "backoff_cap": most,
    }


def _schedule_path(name: str) -> str:
    return f"/api/v1/schedules/{quote(name, safe='')}"
