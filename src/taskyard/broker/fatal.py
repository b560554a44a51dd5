"""Errors after which nobody can vouch for what is in memory: the server must end, and start anew.

A change is made in steps: a record is put together, goes to the end of the journal, and is applied.
What breaks off in between, for want of memory or by a mistake in the code, leaves half of it. It
must never be written, and nothing may be decided by it. What was answered is on disk, so the next
start has everything.
"""

from __future__ import annotations

from typing import Final

from taskyard.engine.model.errors import TaskyardError

# Where a change is made. The broker calls dialects as well, so it counts where nothing else does.
_CHANGING_MODULES: Final = ("taskyard.engine.", "taskyard.journal.")
_CALLING_MODULE: Final = "taskyard.broker."


def is_fatal(error: BaseException) -> bool:
    """Whether it came about where a change may be half made. Refusals come before any change."""
    if isinstance(error, MemoryError):
        return True
    if isinstance(error, TaskyardError):
        return False
    trace = error.__traceback__
    module = ""
    while trace is not None:
        module = str(trace.tb_frame.f_globals.get("__name__"))
        if module.startswith(_CHANGING_MODULES):
            return True
        trace = trace.tb_next
    return module.startswith(_CALLING_MODULE)
