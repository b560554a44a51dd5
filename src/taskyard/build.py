"""Tells which form of the hot modules is loaded: compiled by mypyc or interpreted."""

from typing import Literal

Form = Literal["compiled", "interpreted"]


def form() -> Form:
    """The form of the engine, found by what its job module was loaded from."""
    from taskyard.engine import job

    return "interpreted" if job.__file__.endswith(".py") else "compiled"
