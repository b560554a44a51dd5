"""Errors after which the state in memory cannot be trusted: the server must exit and start again.

A change has steps: a record is encoded, appended to the journal, and applied. A change that breaks
off in between, for lack of memory or by a mistake in the code, leaves half of it. It must never be
written, and nothing may be decided by it. Every change that was confirmed is on disk, so the next
start has all of them.
"""

from __future__ import annotations

from typing import Final

from taskyard.engine.model.errors import TaskyardError

# Where a change is made. The broker calls protocols as well, so it counts where nothing else does.
_CHANGING_MODULES: Final = ("taskyard.engine.", "taskyard.journal.")
_CALLING_MODULE: Final = "taskyard.broker."


def is_fatal(error: BaseException) -> bool:
    """Whether the error was raised where a change may be half made. Refusals are raised before any
    change.
    """
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
