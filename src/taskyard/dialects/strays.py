"""Requests of HTTP at a port that does not speak it.

A browser sends them for whatever page it shows, to any port of its own machine. Their first lines
are no commands, but what the page has put behind those may be.
"""

from __future__ import annotations

from typing import Final

NOT_HTTP: Final = "this port does not speak HTTP"


def is_of_http(word: bytes) -> bool:
    """Whether a command that is not known is how such a request begins.

    What can come before a page's own lines is the method, and the host that follows it always.
    """
    return word[:5].upper() in (b"POST", b"HOST:")
