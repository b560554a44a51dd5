"""Where a server is: taskyard://[[user][:password]@]host[:port][/database]."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote, urlsplit

SCHEME: Final = "taskyard"
DEFAULT_PORT: Final = 8002
_DATABASES: Final = 16


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int = DEFAULT_PORT
    user: str = ""
    password: str = ""
    database: int = 0

    @classmethod
    def parse(cls, url: str) -> Address:
        """ValueError, with what is wrong, if this is not such a URL."""
        parts = urlsplit(url)
        if parts.scheme != SCHEME or not parts.hostname:
            raise ValueError(f"{_shown(url)} is not a URL like taskyard://localhost:8002")
        if parts.query or parts.fragment:
            raise ValueError(f"{_shown(url)}: a URL of taskyard has no options behind ? or #")
        try:
            port = parts.port
        except ValueError:
            raise ValueError(f"{_shown(url)}: the port must be a number up to 65535") from None
        return cls(
            host=parts.hostname,
            port=DEFAULT_PORT if port is None else port,
            user=unquote(parts.username or ""),
            password=unquote(parts.password or ""),
            database=_database(parts.path, url),
        )

    def __str__(self) -> str:
        """Without the password: this is for messages."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{SCHEME}://{host}:{self.port}"


def _database(path: str, url: str) -> int:
    number = path.strip("/")
    if not number:
        return 0
    if not (number.isascii() and number.isdigit()) or int(number) >= _DATABASES:
        raise ValueError(f"{_shown(url)}: behind the / belongs a database from 0 to 15")
    return int(number)


def _shown(url: str) -> str:
    """The URL as an error may show it."""
    scheme, mark, rest = url.partition("://")
    return scheme + mark + rest.rpartition("@")[2]
