"""Logging: lines of text or JSON on stderr, with fields beside the message.

    log.info("listening", extra=fields(dialect="masenko", port=12345))

Everything logs under "taskyard"; other libraries are logged from WARNING on.
"""

from __future__ import annotations

import json
import logging
import math
import sys
import time
from typing import Any, Final, TextIO

from taskyard.broker.interfaces import Cancellable, Clock, Scheduler
from taskyard.broker.metrics import SlowCommand
from taskyard.shared.escaping import escape_unsafe, escape_unsafe_json, escape_unsafe_lines

log: Final = logging.getLogger("taskyard")

_MAX_LINES_PER_SECOND: Final = 10  # lines in a second
_SECOND_US: Final = 1_000_000


def fields(**values: object) -> dict[str, dict[str, object]]:
    """The `extra` argument of a log call."""
    return {"fields": values}


def configure(*, style: str, level: str, stream: TextIO | None = None) -> None:
    """Sends all logging to the stream, or to stderr, as "text" or "json"."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if style == "json" else TextFormatter())
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    log.setLevel(level.upper())


class TextFormatter(logging.Formatter):
    """2026-01-01T00:00:00.000Z INFO message key=value"""

    shows_fields = True

    def format(self, record: logging.LogRecord) -> str:
        # One event is one line, whatever a client managed to get into the message.
        message = escape_unsafe(record.getMessage())
        parts = [_timestamp(record), record.levelname, message]
        if self.shows_fields:
            parts += [f"{key}={_text(value)}" for key, value in _fields(record).items()]
        line = " ".join(parts)
        trace = _trace(self, record)
        return "\n".join([line, *escape_unsafe_lines(trace)]) if trace else line


class SentenceFormatter(TextFormatter):
    """The same for messages that say all that is in their fields."""

    shows_fields = False


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, object] = {
            "time": _timestamp(record),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
        }
        trace = _trace(self, record)
        if trace:
            entry["exception"] = trace
        for key, value in _fields(record).items():
            entry[f"field_{key}" if key in entry else key] = _json_value(value)
        return escape_unsafe_json(json.dumps(entry, default=str))


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    values: dict[str, Any] = getattr(record, "fields", {})
    return values


def _timestamp(record: logging.LogRecord) -> str:
    seconds, milliseconds = divmod(int(record.created * 1_000), 1_000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{milliseconds:03d}Z"


def _trace(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    return formatter.formatException(record.exc_info) if record.exc_info else ""


def _text(value: object) -> str:
    """A value as it is where it reads as one word, else as a JSON string."""
    text = str(value)
    if text and text.isprintable() and not any(mark in text for mark in ' "='):
        return text
    return escape_unsafe_json(json.dumps(text, ensure_ascii=False))


def _json_value(value: object) -> object:
    # JSON has no infinities.
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


# Slow commands


class SlowCommandReporter:
    """Logs slow commands, a few lines a second: a disk that stalls makes thousands at once."""

    def __init__(self, clock: Clock, scheduler: Scheduler) -> None:
        self._clock = clock
        self._scheduler = scheduler
        self._second_ends_at = 0  # the end of the second for which is counted
        self._line_count = 0
        self._suppressed = 0
        self._timer_handle: Cancellable | None = None

    def report(self, slow: SlowCommand) -> None:
        now = self._clock.now()
        if now >= self._second_ends_at:
            self._second_ends_at = now + _SECOND_US
            self._line_count = 0
        self._line_count += 1
        if self._line_count > _MAX_LINES_PER_SECOND:
            self._suppress()
            return
        queue = {"queue": slow.queue} if slow.queue else {}
        told = fields(
            connection=int(slow.connection_number),
            request=slow.request_id,
            dialect=slow.protocol_name,
            peer=slow.peer,
            command=slow.command,
            **queue,
            commands=int(slow.command_count),
            milliseconds=to_milliseconds(slow.duration_us),
            line_milliseconds=to_milliseconds(slow.queued_us),
            work_milliseconds=to_milliseconds(slow.processing_us),
            disk_milliseconds=to_milliseconds(slow.disk_us),
        )
        log.warning("slow command", extra=told)

    def stop(self) -> None:
        if self._timer_handle is not None:
            self._timer_handle.cancel()
            self._report_suppressed()

    def _suppress(self) -> None:
        self._suppressed += 1
        if self._timer_handle is None:
            self._timer_handle = self._scheduler.call_at(
                self._second_ends_at, self._report_suppressed
            )

    def _report_suppressed(self) -> None:
        self._timer_handle = None
        left_out, self._suppressed = self._suppressed, 0
        log.warning("slow command log suppressed", extra=fields(count=left_out))


def to_milliseconds(microseconds: int) -> float:
    return round(microseconds / 1000, 1)
