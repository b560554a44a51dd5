"""Texts of others do nothing to a terminal, and have a known width there."""

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskyard.cli.text import (
    cut,
    escape_unsafe,
    escape_unsafe_json,
    escape_unsafe_lines,
    pad,
    width,
)

HOSTILE = [
    "\x1b[2J",
    "\x1b]0;title\x07",
    "\x9b2J",
    "a\rb",
    "back\x08space",
    "\u202egnp.exe",
    "\u2066x\u2069",
    "\u200bhidden",
    "\ud800",
    "\x7f",
    "\u2028",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_what_acts_on_a_terminal_is_spelled_out(text: str) -> None:
    shown = escape_unsafe(text)
    assert shown.isprintable()
    assert shown != text


@given(st.text(st.characters(codec=None)))
def test_a_safe_text_has_no_controls_whatever_it_was(text: str) -> None:
    shown = escape_unsafe(text)
    assert not {unicodedata.category(char) for char in shown} & {"Cc", "Cs", "Zl", "Zp"}


@given(st.text(st.characters(codec=None)))
def test_json_is_made_safe_without_changing_what_it_says(text: str) -> None:
    line = escape_unsafe_json(json.dumps({"text": text}, ensure_ascii=False))
    assert json.loads(line) == {"text": text}
    assert "\x1b" not in line
    assert "\x9b" not in line
    assert "\u202e" not in line


def test_lines_stay_lines() -> None:
    assert escape_unsafe_lines("a\tb\r\nc\x1b[1m") == ["a       b", "c\\e[1m"]


@pytest.mark.parametrize(
    ("text", "columns"),
    [("abc", 3), ("漢字", 4), ("e\u0301", 1), ("\uff46", 2), ("", 0), ("é", 1)],
)
def test_width(text: str, columns: int) -> None:
    assert width(text) == columns


@given(st.text(), st.integers(0, 30))
def test_a_text_that_is_cut_is_never_too_wide(text: str, most: int) -> None:
    assert width(cut(escape_unsafe(text), most)) <= most


def test_cutting_and_padding() -> None:
    assert cut("abcdef", 4) == "abc…"
    assert cut("漢字漢字", 5) == "漢字…"
    assert cut("漢字漢字", 4) == "漢…"
    assert cut("abcd", 4) == "abcd"
    assert pad("漢", 4) == "漢  "
    assert pad("ab", 4, right=True) == "  ab"
