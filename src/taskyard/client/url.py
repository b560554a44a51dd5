"""Where a server is: taskyard://[[user][:password]@]host[:port][/database][?options].

With the scheme taskyards the connection is encrypted. Options are `timeout` and `patience` in
seconds and, of TLS, the files `ca`, `cert` and `key`.
"""

from __future__ import annotations

import math
import os
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

if TYPE_CHECKING:
    import ssl


SCHEME: Final = "taskyard"
TLS_SCHEME: Final = "taskyards"
DEFAULT_PORT: Final = 8002
_DATABASES: Final = 16
_NO_URL: Final = "not a URL like taskyard://localhost:8002"
TLS_FILES: Final = ("ca", "cert", "key")
_SECONDS_OPTIONS: Final = ("timeout", "patience")

DEFAULT_URL: Final = f"{SCHEME}://localhost:8002"
URL_VARIABLE: Final = "TASKYARD_URL"
DEFAULT_TIMEOUT_S: Final = 10.0
DEFAULT_PATIENCE_S: Final = 30.0


# Addresses


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int = DEFAULT_PORT
    user: str = ""
    password: str = field(default="", repr=False)
    database: int = 0
    tls: bool = False
    ca: str = ""  # certificates to trust; else those that the system trusts
    cert: str = ""  # our own certificate, with its key if that has no file of its own
    key: str = ""
    timeout: float | None = None
    patience: float | None = None

    @classmethod
    def parse(cls, url: str) -> Address:
        """ValueError, with what is wrong, if this is not such a URL."""
        try:
            parts = urlsplit(url)
        except ValueError:
            raise ValueError(f"{_without_credentials(url)} is {_NO_URL}") from None
        host = parts.hostname
        if not host or parts.scheme not in (SCHEME, TLS_SCHEME):
            raise ValueError(f"{_without_credentials(url)} is {_NO_URL}")
        if parts.fragment:
            raise ValueError(
                f"{_without_credentials(url)}: a URL of taskyard has nothing behind a #"
            )
        try:
            port = parts.port
        except ValueError:
            raise ValueError(
                f"{_without_credentials(url)}: the port must be a number up to 65535"
            ) from None
        tls = parts.scheme == TLS_SCHEME
        needed = None if tls else TLS_SCHEME
        options = read_options(
            _without_credentials(url), parts.query, needed, (*_SECONDS_OPTIONS, *TLS_FILES)
        )
        seconds = {
            name: _parse_seconds(name, options[name], url)
            for name in _SECONDS_OPTIONS
            if name in options
        }
        return cls(
            host=host,
            port=DEFAULT_PORT if port is None else port,
            user=unquote(parts.username or ""),
            password=unquote(parts.password or ""),
            database=_parse_database(parts.path, url),
            tls=tls,
            ca=options.get("ca", ""),
            cert=options.get("cert", ""),
            key=options.get("key", ""),
            timeout=seconds.get("timeout"),
            patience=seconds.get("patience"),
        )

    @property
    def prefix(self) -> str:
        """What the names of queues of this database begin with where the database is not known."""
        return f"db{self.database}:" if self.database else ""

    def create_tls_context(self) -> ssl.SSLContext | None:
        """How to encrypt, if at all; ValueError if a file of the URL cannot be used."""
        if not self.tls:
            return None
        try:
            return load_tls_context(self.ca, self.cert, self.key)
        except ValueError as error:
            raise ValueError(f"{self}: {error}") from None

    @property
    def url(self) -> str:
        """All of it, the password too: for other processes, not for messages."""
        who = f"{quote(self.user, safe='')}:{quote(self.password, safe='')}@"
        scheme, mark, place = str(self).partition("://")
        options = {name: getattr(self, name) for name in (*_SECONDS_OPTIONS, *TLS_FILES)}
        said = urlencode(
            {name: value for name, value in options.items() if value not in (None, "")}
        )
        return (
            f"{scheme}{mark}{who if self.user or self.password else ''}{place}"
            f"{f'/{self.database}' if self.database else ''}{f'?{said}' if said else ''}"
        )

    def __str__(self) -> str:
        """Without the password: this is for messages."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{TLS_SCHEME if self.tls else SCHEME}://{host}:{self.port}"


def resolve_address(url: str | None) -> Address:
    """Of this URL, else of TASKYARD_URL, else on this machine."""
    return Address.parse(url or os.environ.get(URL_VARIABLE) or DEFAULT_URL)


def first_given(*values: float | None) -> float:
    """The first that is given."""
    return next(value for value in values if value is not None)


def load_tls_context(ca: str, cert: str, key: str) -> ssl.SSLContext:
    """Load the certificates to trust and the client's own, by names of files; ValueError if one
    cannot be used.
    """
    import ssl  # here, since it takes its time: see _ssl_class

    wanted = ca or cert or key
    try:
        context = ssl.create_default_context(cafile=ca or None)
        if cert:
            # Else the library would ask for the password of a key at the terminal.
            wanted = cert
            context.load_cert_chain(cert, key or None, password="")
    except (OSError, ValueError) as error:
        reason = str(error) or type(error).__name__
        raise ValueError(f"{wanted} cannot be used: {reason}") from None
    return context


def read_options(
    shown_url: str, query: str, tls_scheme: str | None, known: Sequence[str]
) -> dict[str, str]:
    """Read the options of a URL; ValueError if one is wrong.

    `shown_url` is the URL as an error may show it, and `tls_scheme` the scheme that the files of
    TLS need, None if it has that.
    """
    options = dict(parse_qsl(query, keep_blank_values=True))
    for name, value in options.items():
        if name not in known:
            raise ValueError(f"{shown_url}: there is no option {name}, only {', '.join(known)}")
        if name in TLS_FILES and tls_scheme is not None:
            raise ValueError(f"{shown_url}: the option {name} is for {tls_scheme}:// only")
        if name in TLS_FILES and not value:
            raise ValueError(f"{shown_url}: the option {name} must name a file")
    if "key" in options and "cert" not in options:
        raise ValueError(f"{shown_url}: the option key needs the option cert")
    return options


def _parse_seconds(name: str, value: str, url: str) -> float:
    try:
        found = float(value)
    except ValueError:
        found = -1.0
    if not 0 <= found < math.inf:
        raise ValueError(
            f"{_without_credentials(url)}: the option {name} must be a number of seconds"
        )
    return found


def _parse_database(path: str, url: str) -> int:
    number = path.strip("/")
    if not number:
        return 0
    if not (number.isascii() and number.isdigit()) or int(number) >= _DATABASES:
        raise ValueError(
            f"{_without_credentials(url)}: behind the / belongs a database from 0 to 15"
        )
    return int(number)


def _without_credentials(url: str) -> str:
    """The URL as an error may show it."""
    scheme, mark, rest = url.partition("://")
    return scheme + mark + rest.rpartition("@")[2]


# Errors of the TLS library, for code that does not know whether a connection is encrypted
#
# Loading that library takes longer than a short command, so programs without encryption do without
# it: as long as it is not loaded, no error and no socket is of its making.


def wants_read(error: OSError) -> bool:
    """TLS cannot continue before something has arrived."""
    return isinstance(error, _ssl_class("SSLWantReadError"))


def wants_write(error: OSError) -> bool:
    """TLS cannot continue before something could be sent."""
    return isinstance(error, _ssl_class("SSLWantWriteError"))


def is_permanent_tls_error(error: Exception) -> bool:
    """Not a connection that broke, but one that cannot be."""
    if isinstance(error, _ssl_class("SSLCertVerificationError")):
        return True
    return (
        isinstance(error, _ssl_class("SSLError"))
        and getattr(error, "reason", "") == "WRONG_VERSION_NUMBER"
    )


def is_secure(connected: socket.socket) -> bool:
    return isinstance(connected, _ssl_class("SSLSocket"))


def _ssl_class(name: str) -> Any:
    """A class of the library, or no class at all: also while another thread is loading it."""
    return getattr(sys.modules.get("ssl"), name, ())
