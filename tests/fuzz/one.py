"""Runs one target under libFuzzer, in this process: its arguments are those of libFuzzer."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
from collections.abc import Callable, Sequence

from fuzz import catalog

ADDRESS_SPACE = 4 << 30  # bytes: what is allocated on the word of a length fails
MISSING = (
    "fuzzing needs atheris (pip install atheris==3.0.0), which has wheels for Linux on x86-64 and "
    "Python 3.11 to 3.13 only"
)
INSTRUMENTED = ["taskyard", "fuzz.planted"]
_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of Linux


class NoAtheris(Exception):
    """The fuzzer is not installed."""


def load_instrumented(names: Sequence[str]) -> dict[str, catalog.Target]:
    """Import the targets so that every branch of the product tells that it was taken."""
    try:
        import atheris
    except ImportError as error:
        raise NoAtheris(MISSING) from error
    if os.environ.get("TASKYARD_FORM", "interpreted") != "interpreted":
        raise NoAtheris("only the interpreted form can be fuzzed: set TASKYARD_FORM=interpreted")
    with atheris.instrument_imports(include=INSTRUMENTED):
        targets = {name: catalog.load(name) for name in names}
    recovery = sys.modules.get("taskyard.journal.recovery")
    if recovery is not None:
        recovery.Thread = AtOnce  # type: ignore[attr-defined]
    return targets


class AtOnce:
    """A thread that is none: to change to another takes longer than what recovery does in it."""

    def __init__(self, target: Callable[[], None]) -> None:
        self._target = target

    def start(self) -> None:
        self._target()

    def join(self) -> None:
        pass


def run(target: catalog.Target, arguments: Sequence[str]) -> None:
    """Never returns: libFuzzer ends the process."""
    import atheris

    # It must not go on when who has started it was killed.
    ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL)
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    atheris.Setup([sys.argv[0], *arguments], target.fuzz)
    atheris.Fuzz()
