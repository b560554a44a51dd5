"""The command line of this process as others see it, which should not show them a secret."""

import ctypes
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

_STAT: Final = Path("/proc/self/stat")
_START, _END = 45, 46  # of the arguments in memory: fields 48 and 49, of which two stand before ")"


def hide_password(url: str) -> None:
    """Put stars in place of the one in this argument. Without /proc, do nothing."""
    password = urlsplit(url).password
    if password:
        _show(url, url.replace(f":{password}@", f":{_stars(password)}@", 1))


def hide_value(option: str) -> None:
    """The same for a whole NAME=VALUE."""
    name, _, value = option.partition("=")
    _show(option, f"{name}={_stars(value)}")


def _stars(secret: str) -> str:
    return "*" * len(secret.encode())


def _show(argument: str, hidden: str) -> None:
    try:
        fields = _STAT.read_text().rpartition(")")[2].split()
        start, end = int(fields[_START]), int(fields[_END])
    except (OSError, IndexError, ValueError):
        return
    if not 0 < start < end:
        return
    line = ctypes.string_at(start, end - start)
    ctypes.memmove(start, line.replace(argument.encode(), hidden.encode()), len(line))
