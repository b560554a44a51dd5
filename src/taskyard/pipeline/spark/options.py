"""The options of a source or sink: texts that Spark hands on, with their names in lower case."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from taskyard.client.url import Address
from taskyard.shared.text import parse_duration

# What Spark itself adds to the options of a source or sink.
_OF_SPARK = {"path", "checkpointlocation", "queryname", "mergeschema", "outputmode"}

NO_ALIASES: Final[Mapping[str, str]] = {}


class OptionError(ValueError):
    """An option is missing, unknown, or says something that cannot be."""


class SourceOptions:
    """Names may be asked for as the documentation has them: maxJobsPerBatch."""

    def __init__(
        self,
        given: Mapping[str, str],
        known: Iterable[str],
        aliases: Mapping[str, str] = NO_ALIASES,
    ) -> None:
        """OptionError if one is given that nobody knows: it would be a slip of the pen."""
        names = {name.lower().replace("_", ""): name for name in known}
        self._values: dict[str, str] = {}
        for key, value in given.items():
            plain = key.lower().replace("_", "")
            plain = aliases.get(plain, plain)
            if plain in self._values:
                raise OptionError(f"the option {names[plain]} is given twice, once as {key}")
            if plain in names:
                self._values[plain] = value
            elif plain not in _OF_SPARK:
                wanted = ", ".join(sorted(names.values()))
                raise OptionError(f"there is no option {key}, only {wanted}")

    def text(self, name: str) -> str | None:
        """None if it is not given."""
        return self._values.get(name.lower().replace("_", ""))

    def required_text(self, name: str, example: str) -> str:
        value = self.text(name)
        if not value:
            raise OptionError(f'the option {name} is needed: .option("{name}", "{example}")')
        return value

    def number(self, name: str, least: int, most: int | None = None) -> int | None:
        value = self.text(name)
        if value is None:
            return None
        try:
            found = int(value)
        except ValueError:
            found = least - 1
        if found < least or (most is not None and found > most):
            upto = "on" if most is None else f"to {most}"
            raise OptionError(f"{name} must be a number from {least} {upto}, not {value!r}")
        return found

    def flag(self, name: str) -> bool:
        value = (self.text(name) or "false").lower()
        if value not in ("true", "false"):
            raise OptionError(f"{name} must be true or false, not {value!r}")
        return value == "true"

    def seconds(self, name: str) -> float | None:
        """A duration such as 1m30s, or a number of seconds."""
        value = self.text(name)
        if value is None:
            return None
        try:
            found = float(value) if _is_number(value) else parse_duration(value) / 1e6
        except ValueError:
            found = -1.0
        if found < 0:
            raise OptionError(f"{name} must be a duration like 90s or 1h30m, not {value!r}")
        return found

    def address(self) -> Address:
        """Where the server is."""
        url = self.required_text("url", "taskyard://localhost:8002")
        try:
            return Address.parse(url)
        except ValueError as error:
            raise OptionError(str(error)) from None


def parse_offset(text: str | None) -> dict[str, Any]:
    """The offset of a source as Spark's progress has it; nothing, if it is another source's."""
    try:
        offset = json.loads(text or "null")
    except ValueError:
        return {}
    return offset if isinstance(offset, dict) else {}


def _is_number(text: str) -> bool:
    return text.replace(".", "", 1).isdecimal()
