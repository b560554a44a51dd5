"""The log of a worker: what others put into errors and names does nothing to a terminal."""

import logging

import pytest

from taskyard.tasks.logs import SafeFormatter


@pytest.mark.parametrize("text", ["\x1b[2J", "\x9b2J", "\x7f", "\u202egnp.exe", "\u2066x\u2069"])
def test_nothing_in_it_acts_on_a_terminal(text: str) -> None:
    record = logging.LogRecord("t", logging.ERROR, "", 1, "%s failed", (text,), None)
    shown = SafeFormatter("%(levelname)s %(message)s").format(record)
    assert shown.isprintable()
    assert shown.startswith("ERROR ")


def test_a_trace_keeps_its_lines() -> None:
    try:
        raise ValueError("a\x9bb")
    except ValueError as error:
        told = (type(error), error, error.__traceback__)
    record = logging.LogRecord("t", logging.ERROR, "", 1, "failed", (), told)
    lines = SafeFormatter("%(message)s").format(record).split("\n")
    assert lines[:2] == ["failed", "Traceback (most recent call last):"]
    assert lines[-1] == "ValueError: a\\x9bb"
