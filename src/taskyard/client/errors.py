"""What a program that uses a server has to reckon with."""

from __future__ import annotations


class ClientError(Exception):
    """Base of everything below."""


class Unavailable(ClientError, ConnectionError):
    """The server cannot be reached, or went away before it answered. Trying again may help."""


class Refused(ClientError):
    """The server's answer is an error. Trying the same again will not help."""

    @property
    def code(self) -> str:
        """The word that an error begins with, such as ERR or STALE."""
        return str(self).partition(" ")[0]
