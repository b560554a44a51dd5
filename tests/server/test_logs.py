"""Log lines are text or JSON, one line an event, with the fields of the call."""

import io
import json
import logging
import re
from collections.abc import Iterator

import pytest

from taskyard.server.logs import configure, fields, log


@pytest.fixture(autouse=True)
def restore_logging() -> Iterator[None]:
    root = logging.getLogger()
    before = root.handlers[:], root.level, log.level
    # basicConfig closes the handlers it replaces, and these are pytest's.
    root.handlers = []
    yield
    root.handlers, root.level, log.level = before


@pytest.fixture
def stream() -> io.StringIO:
    return io.StringIO()


def as_json(stream: io.StringIO) -> dict[str, object]:
    entry: dict[str, object] = json.loads(stream.getvalue())
    return entry


def test_a_line_of_text(stream: io.StringIO) -> None:
    configure(style="text", level="info", stream=stream)
    log.info("listening", extra=fields(dialect="masenko", port=12345))
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z INFO listening dialect=masenko port=12345\n",
        stream.getvalue(),
    )


def test_the_time_is_utc_to_the_millisecond(stream: io.StringIO) -> None:
    configure(style="text", level="info", stream=stream)
    record = logging.LogRecord("taskyard", logging.INFO, "", 0, "hello", None, None)
    record.created = 1_767_225_600.007_9
    log.handle(record)
    assert stream.getvalue() == "2026-01-01T00:00:00.007Z INFO hello\n"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a b", '"a b"'),
        ("", '""'),
        ("a=b", '"a=b"'),
        ('"', '"\\""'),
        ("a\nb", '"a\\nb"'),
        ("é", "é"),
        (None, "None"),
        (1.5, "1.5"),
        (b"x", "b'x'"),
    ],
)
def test_a_value_that_is_not_one_word_is_quoted(
    stream: io.StringIO, value: object, text: str
) -> None:
    configure(style="text", level="info", stream=stream)
    log.info("m", extra=fields(key=value))
    assert stream.getvalue().endswith(f" INFO m key={text}\n")


def test_a_message_cannot_forge_a_second_line(stream: io.StringIO) -> None:
    configure(style="text", level="info", stream=stream)
    log.info("bad %s", "x\n2026-01-01T00:00:00.000Z INFO forged")
    assert stream.getvalue().count("\n") == 1


HOSTILE = [
    "\x1b[2J",
    "\x9b2J",
    "\x85",
    "\x7f",
    "\u202egnp.exe",
    "\u2066x\u2069",
    "\u200b",
    "\u2028",
]


@pytest.mark.parametrize("style", ["text", "json"])
@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_in_a_log_acts_on_a_terminal(stream: io.StringIO, style: str, text: str) -> None:
    configure(style=style, level="info", stream=stream)
    try:
        raise KeyError(text, Hostile(text))
    except KeyError:
        log.exception("failed: %s", text, extra=fields(key=text, name=f"two words {text}"))
    shown = stream.getvalue()
    assert all(line.isprintable() for line in shown.split("\n"))
    if style == "json":
        entry = as_json(stream)
        assert (entry["message"], entry["key"]) == (f"failed: {text}", text)


class Hostile:
    """Is shown as its text, with nothing escaped."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def test_a_line_of_json(stream: io.StringIO) -> None:
    configure(style="json", level="info", stream=stream)
    log.warning("listening on %s", "a\nb", extra=fields(port=12345, odd={1}, much=float("inf")))
    entry = as_json(stream)
    assert stream.getvalue().count("\n") == 1
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", str(entry.pop("time")))
    assert entry == {
        "level": "warning",
        "message": "listening on a\nb",
        "port": 12345,
        "odd": "{1}",
        "much": "inf",
    }


def test_a_field_does_not_hide_the_message(stream: io.StringIO) -> None:
    configure(style="json", level="info", stream=stream)
    log.info("real", extra=fields(message="other"))
    entry = as_json(stream)
    assert (entry["message"], entry["field_message"]) == ("real", "other")


@pytest.mark.parametrize("style", ["text", "json"])
def test_an_exception_is_shown_with_its_trace(stream: io.StringIO, style: str) -> None:
    configure(style=style, level="info", stream=stream)
    try:
        raise KeyError("lost")
    except KeyError:
        log.exception("failed")
    text = stream.getvalue() if style == "text" else str(as_json(stream)["exception"])
    assert "Traceback (most recent call last)" in text
    assert "KeyError: 'lost'" in text


def test_the_level_is_ours_and_others_are_heard_from_warning_on(stream: io.StringIO) -> None:
    configure(style="text", level="debug", stream=stream)
    log.debug("ours")
    logging.getLogger("asyncio").info("quiet")
    logging.getLogger("asyncio").warning("loud")
    assert [line.split()[1:] for line in stream.getvalue().splitlines()] == [
        ["DEBUG", "ours"],
        ["WARNING", "loud"],
    ]


def test_configuring_again_replaces_the_output(stream: io.StringIO) -> None:
    configure(style="text", level="info", stream=io.StringIO())
    configure(style="text", level="error", stream=stream)
    log.warning("not shown")
    log.error("shown")
    assert stream.getvalue().endswith(" ERROR shown\n")
    assert stream.getvalue().count("\n") == 1
