"""The command line of this process as others see it, which should not show them a password."""

import ctypes
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

_STAT: Final = Path("/proc/self/stat")
_START, _END = 45, 46  # of the arguments in memory: fields 48 and 49, of which two stand before ")"


def hide_password(url: str) -> None:
    """Have stars in place of the one in this argument. Where there is no /proc, nothing is done."""
    password = urlsplit(url).password
    if not password:
        return
    try:
        fields = _STAT.read_text().rpartition(")")[2].split()
        start, end = int(fields[_START]), int(fields[_END])
    except (OSError, IndexError, ValueError):
        return
    if not 0 < start < end:
        return
    line = ctypes.string_at(start, end - start)
    hidden = url.replace(f":{password}@", f":{'*' * len(password.encode())}@", 1)
    ctypes.memmove(start, line.replace(url.encode(), hidden.encode()), len(line))
