"""A run that is ended by signals: the first one stops it, the second one ends it at once."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator, Sequence


@contextlib.contextmanager
def handle_signals(numbers: Sequence[signal.Signals], call: Callable[[], None]) -> Iterator[None]:
    """Only the main thread may have handlers; in another one it is up to the program."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, lambda *_: call()) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
