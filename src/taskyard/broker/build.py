"""Tells which form of the hot modules is loaded: compiled by mypyc or interpreted, and why."""

from pathlib import Path
from typing import Final, Literal

Form = Literal["compiled", "interpreted"]

_REASON_FILE: Final = "not_compiled.txt"
"""Written by setup.py into a package that could not be compiled, with the reason."""


def form() -> Form:
    """The form of the engine, found by what its job module was loaded from."""
    from taskyard.engine.model import job

    return "interpreted" if job.__file__.endswith(".py") else "compiled"


def not_compiled_reason() -> str:
    """What kept this installation from being compiled; empty if nothing did."""
    try:
        return (Path(__file__).parent.parent / _REASON_FILE).read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def describe_form() -> str:
    """The form in words, with the reason where there is one."""
    why = not_compiled_reason()
    return f"interpreted: {why}" if why and form() == "interpreted" else form()
