"""Unexpected errors: they are logged, or they end the process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from typing import Any, Final

from taskyard.broker.fatal import is_fatal
from taskyard.server.logs import log

_EXIT_CODE: Final = 70  # EX_SOFTWARE: a supervisor may start it again


def install_crash_handler(loop: asyncio.AbstractEventLoop) -> None:
    loop.set_exception_handler(_handle_error)


def _handle_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    error = context.get("exception")
    if isinstance(error, BaseException) and is_fatal(error):
        _exit_at_once(error)
    loop.default_exception_handler(context)


def _exit_at_once(error: BaseException) -> None:
    """Exit at once, as if killed: anything still done would build on a half-made change."""
    try:
        with contextlib.suppress(Exception):  # there may be no memory for it
            text = "exiting at once: a change of the state was left incomplete: %r"
            log.critical(text, error, exc_info=error)
            sys.stderr.flush()
    finally:
        os._exit(_EXIT_CODE)
