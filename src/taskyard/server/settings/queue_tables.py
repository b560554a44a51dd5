"""Tables of the TOML file that give settings to queues by their names: [queues."mail.*"].

A value is refused with a ValueError that reads on after the name of the file.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from taskyard.engine.model.job import MAX_TRIES
from taskyard.engine.model.queue import QueueRule, QueueSettings
from taskyard.engine.operations.checks import MAX_CONCURRENCY, MAX_RATE_COUNT
from taskyard.server.settings import kinds
from taskyard.server.settings.kinds import QueueTable
from taskyard.shared.misspelt import did_you_mean

_BACKOFFS: Final = ("none", "quartic", "exponential")
_TEN_YEARS: Final = "87600h"

ValueReader = Callable[[object], Any]


def _backoff(value: object) -> int:
    return _BACKOFFS.index(kinds.choice(*_BACKOFFS).from_toml(value))


_SCALAR_SETTINGS: Final[dict[str, ValueReader]] = {
    "ttr": kinds.duration("1ms", "24h").from_toml,
    "retries": kinds.integer(0, MAX_TRIES - 1).from_toml,
    "backoff": _backoff,
    "backoff_base": kinds.duration("0s", _TEN_YEARS).from_toml,
    "backoff_cap": kinds.duration("0s", _TEN_YEARS).from_toml,
    "result_retention": kinds.duration("0s", _TEN_YEARS).from_toml,
    "dead_retention": kinds.duration("0s", _TEN_YEARS).from_toml,
    "concurrency": kinds.integer(0, MAX_CONCURRENCY).from_toml,
    "key_concurrency": kinds.integer(0, MAX_CONCURRENCY).from_toml,
    "idle_expiry": kinds.duration("1s", _TEN_YEARS).from_toml,
}
_RATE_SETTINGS: Final = ("rate", "key_rate")
_RATE_FIELDS: Final[dict[str, ValueReader]] = {
    "count": kinds.integer(1, MAX_RATE_COUNT).from_toml,
    "per": kinds.duration("1ms", "8784h").from_toml,
}


def read_queue_tables(value: object) -> tuple[QueueTable, ...]:
    """All tables in the order of the file."""
    if not isinstance(value, dict):
        raise ValueError('queues must hold tables such as [queues."mail.*"]')
    return tuple(_read_table(pattern, table) for pattern, table in value.items())


def _read_table(pattern: str, table: object) -> QueueTable:
    where = f'[queues."{pattern}"]'
    if not isinstance(table, dict):
        raise ValueError(f"{where} must be a table")
    if not 0 < len(pattern.encode()) <= 255 or any(sign.isspace() for sign in pattern):
        raise ValueError(f"{where} must be the name of a queue, in which * stands for anything")
    found: list[tuple[str, int]] = []
    for key, value in table.items():
        if key in _RATE_SETTINGS:
            found += _read_rate(f"{where} {key}", key, value)
        elif key in _SCALAR_SETTINGS:
            found.append((key, _read_value(f"{where} {key}", _SCALAR_SETTINGS[key], value)))
        else:
            hint = did_you_mean(key, [*_SCALAR_SETTINGS, *_RATE_SETTINGS])
            raise ValueError(f"{where} {key!r} is not a setting of queues{hint}")
    return QueueTable(pattern, tuple(found))


def _read_rate(where: str, key: str, value: object) -> list[tuple[str, int]]:
    if not isinstance(value, dict) or set(value) != set(_RATE_FIELDS):
        raise ValueError(f'{where} must be a table such as {{ count = 100, per = "1s" }}')
    count = _read_value(f"{where}.count", _RATE_FIELDS["count"], value["count"])
    per = _read_value(f"{where}.per", _RATE_FIELDS["per"], value["per"])
    return [(f"{key}_count", count), (f"{key}_period", per)]


def _read_value(where: str, read: ValueReader, value: object) -> int:
    try:
        found: int = read(value)
    except ValueError as error:
        raise ValueError(f"{where} {error}") from error
    return found


def make_queue_rules(tables: tuple[QueueTable, ...]) -> list[QueueRule]:
    """The same as the engine has it."""
    return [QueueRule(table.pattern, _make_settings(dict(table.settings))) for table in tables]


def _make_settings(given: Mapping[str, int]) -> QueueSettings:
    settings = QueueSettings()
    for name, value in given.items():
        setattr(settings, name, value)
    return settings
