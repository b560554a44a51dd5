"""The settings of a queue as flags. The server checks the values; here they get their types."""

import argparse
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from taskyard.cli.failure import CommandFailed
from taskyard.cli.main import CommandParser
from taskyard.cli.units import bytes_of, exact, seconds_of
from taskyard.shared.exit_codes import USAGE
from taskyard.shared.misspelt import did_you_mean
from taskyard.shared.text import format_size


class Setting(NamedTuple):
    flag: str
    metavar: str
    doc: str
    read: Callable[[str, str], Any]  # of the text and the flag
    default: Any = None  # null where the server has one of its own

    @property
    def name(self) -> str:
        """In the API."""
        return self.flag.removeprefix("--").replace("-", "_")


def number(text: str, flag: str) -> int:
    if not text.isdecimal() or not text.isascii() or len(text) > 19:
        raise CommandFailed(f"{flag} must be a whole number, not {text!r}.", USAGE)
    return int(text)


def _rate(text: str, flag: str) -> dict[str, Any]:
    count, _, per = text.partition("/")
    try:
        return {"count": number(count, flag), "per": seconds_of(per, flag)}
    except CommandFailed:
        raise CommandFailed(
            f"{flag} must be a number and a time, such as 10/1s or 100/1m, not {text!r}.", USAGE
        ) from None


def _one_of(words: Sequence[str]) -> Callable[[str, str], str]:
    def read(text: str, flag: str) -> str:
        if text not in words:
            hint = did_you_mean(text, words)
            raise CommandFailed(
                f"{flag} must be one of {', '.join(words)}, not {text!r}{hint}.", USAGE
            )
        return text

    return read


def _boolean(text: str, flag: str) -> bool:
    if text not in {"on", "off"}:
        raise CommandFailed(f"{flag} must be on or off, not {text!r}.", USAGE)
    return text == "on"


_BACKOFFS: Final = ("none", "quartic", "exponential")
_OVERFLOWS: Final = ("refuse", "dead")
SETTINGS: Final = (
    Setting("--retries", "N", "how often a job may fail and be tried again", number),
    Setting(
        "--backoff",
        "KIND",
        f"what a failed job waits for: {', '.join(_BACKOFFS)}",
        _one_of(_BACKOFFS),
    ),
    Setting("--backoff-base", "TIME", "of exponential: the first wait", seconds_of, 0),
    Setting("--backoff-cap", "TIME", "of exponential: the longest wait", seconds_of, 0),
    Setting("--result-retention", "TIME", "how long results are kept", seconds_of, 0),
    Setting("--dead-retention", "TIME", "how long dead letters are kept", seconds_of),
    Setting("--ttr", "TIME", "how long a lease lasts, if neither job nor taker says", seconds_of),
    Setting("--concurrency", "N", "how many of its jobs may be leased at once", number),
    Setting("--rate", "N/TIME", "how many may be handed out in a time, such as 10/1s", _rate),
    Setting("--key-concurrency", "N", "how many of one limit key may be leased at once", number),
    Setting("--key-rate", "N/TIME", "how many of one limit key may be handed out", _rate),
    Setting("--draining", "on|off", "refuse pushes, hand out what is there", _boolean, False),
    Setting("--idle-expiry", "TIME", "delete the queue after so long without use", seconds_of),
    Setting("--max-jobs", "N", "how many jobs may wait", number),
    Setting("--max-bytes", "SIZE", "how many bytes they may have", bytes_of),
    Setting(
        "--overflow",
        "WHAT",
        f"what becomes of a push beyond that: {', '.join(_OVERFLOWS)}",
        _one_of(_OVERFLOWS),
        "refuse",
    ),
)
_TIMES: Final = frozenset(one.name for one in SETTINGS if one.read is seconds_of)
# What a zero says, where that is not what one would think.
_NOTHING: Final = {
    "concurrency": "no limit",
    "key_concurrency": "no limit",
    "idle_expiry": "never",
    "result_retention": "not kept",
}


def setting_text(name: str, value: Any) -> str:
    """A value of the API as a person would write it."""
    if value is None:
        return "default"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, dict):
        return f"{value['count']}/{exact(value['per'])}"
    if not value and name in _NOTHING:
        return _NOTHING[name]
    if name in _TIMES:
        return exact(value)
    return format_size(value) if name == "max_bytes" else str(value)


def add_settings(parser: CommandParser) -> None:
    for setting in SETTINGS:
        parser.add_argument(
            setting.flag,
            dest=setting.name,
            metavar=setting.metavar,
            help=f"{setting.doc}; `default` for what the server does by default",
        )


def settings_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return those that were given, in the API's form."""
    given = {setting: getattr(arguments, setting.name) for setting in SETTINGS}
    return {
        setting.name: setting.default if text == "default" else setting.read(text, setting.flag)
        for setting, text in given.items()
        if text is not None
    }
