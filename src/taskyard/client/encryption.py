"""Errors of the TLS library, for code that does not know whether a connection is encrypted.

Loading that library takes longer than a short command, so programs without encryption do without
it: as long as it is not loaded, no error and no socket is of its making.
"""

from __future__ import annotations

import socket
import sys
from typing import Any


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
