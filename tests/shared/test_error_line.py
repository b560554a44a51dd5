"""Errors in one line: of a traceback the exception, of other texts the first line."""

import traceback
from collections.abc import Callable

import pytest

from taskyard.shared.error_line import MAX_END_CHARS, error_line


def traceback_of(function: Callable[[], object]) -> str:
    try:
        function()
    except BaseException:
        return traceback.format_exc()
    raise AssertionError("nothing was raised")


def fail() -> None:
    raise ValueError("no such address")


def fail_while_handling() -> None:
    try:
        fail()
    except ValueError:
        raise KeyError("second") from None


def fail_in_a_chain() -> None:
    try:
        fail()
    except ValueError:
        dict[str, int]()["second"]


def fail_with_a_cause() -> None:
    try:
        fail_in_a_chain()
    except KeyError as error:
        raise RuntimeError("third") from error


def fail_in_lines() -> None:
    raise RuntimeError("the first line\n  the second\nTypeError: the third")


def fail_with_a_note() -> None:
    error = ValueError("noted")
    error.add_note("look there")
    raise error


def fail_with_anothers_traceback() -> None:
    raise RuntimeError(f"the worker has failed:\n{traceback_of(fail)}")


def fail_in_code() -> None:
    compile("a = (", "settings.py", "exec")


def fail_in_a_group() -> None:
    raise ExceptionGroup("several", [ValueError("one"), ExceptionGroup("in", [KeyError("two")])])


def fail_in_a_group_after_another() -> None:
    try:
        fail()
    except ValueError:
        fail_in_a_group()


def fail_without_a_word() -> None:
    raise ConnectionError


def fail_deep() -> None:
    def go(depth: int) -> None:
        if depth:
            go(depth - 1)
        elif True:
            fail_in_a_chain()

    go(900)


@pytest.mark.parametrize(
    ("function", "line"),
    [
        (fail, "ValueError: no such address"),
        (fail_while_handling, "KeyError: 'second'"),
        (fail_in_a_chain, "KeyError: 'second'"),
        (fail_with_a_cause, "RuntimeError: third"),
        (fail_in_lines, "RuntimeError: the first line"),
        (fail_with_a_note, "ValueError: noted"),
        (fail_with_anothers_traceback, "RuntimeError: the worker has failed:"),
        (fail_in_code, "SyntaxError: '(' was never closed"),
        (fail_in_a_group, "ExceptionGroup: several (2 sub-exceptions)"),
        (fail_in_a_group_after_another, "ExceptionGroup: several (2 sub-exceptions)"),
        (fail_without_a_word, "ConnectionError"),
        (fail_deep, "KeyError: 'second'"),
    ],
)
def test_of_a_traceback_it_is_the_exception(function: Callable[[], object], line: str) -> None:
    text = traceback_of(function)
    for form in (text, text.strip(), f"\n{text}", text.rstrip()):
        assert error_line(form) == line


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", ""),
        (" \n\n ", ""),
        ("no route to host", "no route to host"),
        ("no route\nto host\n", "no route"),
        ("\n\n  no route \nto host", "no route"),
        ("ValueError: no\nTraceback (most recent call last):\n  File", "ValueError: no"),
        ("Tracebacks are long\nKeyError: 'x'", "Tracebacks are long"),
        ("Exception in thread main\n  at x\nCaused by: y", "Exception in thread main"),
        ("Traceback (most recent call last):", "Traceback (most recent call last):"),
        ("Traceback\n  line\nKeyError: 'x'", "KeyError: 'x'"),
        ("Traceback (most recent call last):\r\n  File\r\nKeyError: 'x'\r\n", "KeyError: 'x'"),
    ],
)
def test_of_other_texts_it_is_the_first_line(text: str, line: str) -> None:
    assert error_line(text) == line


def test_the_last_exception_of_a_chain_may_have_no_traceback() -> None:
    first = traceback_of(fail)
    chain = "During handling of the above exception, another exception occurred:"
    text = f"{first}\n{chain}\n\nKeyError: 1\n"
    assert error_line(text) == "KeyError: 1"


@pytest.mark.parametrize("frames", [50, 200, 100_000])
@pytest.mark.parametrize("message", [10, 10 * MAX_END_CHARS])
def test_of_a_large_error_only_both_ends_are_looked_at(frames: int, message: int) -> None:
    first = traceback_of(fail)
    chain = "\nDuring handling of the above exception, another exception occurred:\n\n"
    deep = '  File "app.py", line 12, in go\n    go(depth - 1)\n' * frames
    last = f"KeyError: {'x' * message}"
    text = f"{first}{chain}Traceback (most recent call last):\n{deep}{last}\n"
    got = error_line(text)
    if message < MAX_END_CHARS:
        assert got == last
    elif frames > 1000:  # where the line begins is at neither end
        assert got == "Traceback (most recent call last):"
    assert error_line(text[:MAX_END_CHARS], text[-MAX_END_CHARS:]) == got


@pytest.mark.parametrize("cut", range(60))
def test_where_the_middle_is_missing_is_all_the_same(cut: int) -> None:
    deep = '  File "app.py", line 12, in go\n    go(depth - 1)\n    ^^^^^^^^^^^^^\n' * 100
    text = f"Traceback (most recent call last):\n{deep}KeyError: 'x'\n"
    assert error_line(text[: 1000 + cut], text[-1000 - cut :]) == "KeyError: 'x'"


def test_a_long_line_is_no_longer_than_what_is_looked_at() -> None:
    assert error_line("x" * 10_000_000) == "x" * MAX_END_CHARS
