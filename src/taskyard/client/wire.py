"""RESP as a client has it: words to bytes, bytes to replies, how a connection begins."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Final, Protocol, TypeAlias

import hiredis

from taskyard.client.address import Address
from taskyard.client.encryption import is_permanent_tls_error
from taskyard.client.errors import Closed, Refused, Unavailable, Untrusted, refusal_from_reply

Word: TypeAlias = str | bytes | int
Command: TypeAlias = Sequence[Word]
Reply: TypeAlias = "int | bytes | list[Reply] | Refused | None"

INCOMPLETE: Final = object()
RECEIVE_BYTES: Final = 1 << 16

# Seconds. A wait for a job can be long, and the machine of the server can go without a word.
_KEEPALIVE_IDLE_S: Final = 15
_KEEPALIVE_INTERVAL_S: Final = 5
_KEEPALIVE_PROBES: Final = 3


def create_reader() -> hiredis.Reader:
    return hiredis.Reader(replyError=refusal_from_reply, notEnoughData=INCOMPLETE)


def encode_commands(commands: Sequence[Command]) -> bytes:
    return b"".join([hiredis.pack_command(tuple(words)) for words in commands])  # type: ignore[arg-type]


def login_commands(address: Address) -> list[Command]:
    """What a connection begins with."""
    commands: list[Command] = []
    if address.user:
        commands.append(("AUTH", address.user, address.password))
    elif address.password:
        commands.append(("AUTH", address.password))
    if address.database:
        commands.append(("SELECT", address.database))
    return commands


def unavailable_error(
    address: Address, error: Exception, *, sent: bool, closed: bool = False
) -> Unavailable:
    """Return what a caller gets for an error of the network. `closed`: this side has closed it."""
    reason = "the connection was closed" if closed else str(error)
    lost = "went away before it answered" if sent else "cannot be reached"
    kind = Closed if closed else Untrusted if is_permanent_tls_error(error) else Unavailable
    found = kind(f"{address} {lost}: {reason or type(error).__name__}")
    found.sent = sent
    found.timed_out = isinstance(error, TimeoutError)
    found.__cause__ = error
    return found


class _Socket(Protocol):
    def setsockopt(self, level: int, option: int, value: int, /) -> None: ...


def enable_keepalive(connected: _Socket) -> None:
    """Have the system find out when the other machine is no longer there."""
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", _KEEPALIVE_IDLE_S),
        ("TCP_KEEPINTVL", _KEEPALIVE_INTERVAL_S),
        ("TCP_KEEPCNT", _KEEPALIVE_PROBES),
    ):
        if hasattr(socket, name):  # not on every system
            connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
