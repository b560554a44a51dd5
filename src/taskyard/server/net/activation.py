"""Listening sockets passed by the process that started the server, as systemd does it.

They stay open while the server restarts: clients that connect meanwhile wait instead of being
refused. LISTEN_FDS of them start at descriptor 3. Each belongs to the listener that its name in
LISTEN_FDNAMES says, or else to the one whose port it is bound to.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, MutableMapping
from typing import Final

from taskyard.server.settings.config import ConfigError, Settings
from taskyard.server.settings.exposure import identifies_clients, is_local

FIRST_DESCRIPTOR: Final = 3  # the descriptors before that are input, output and errors
_VARIABLES: Final = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")

PassedSockets = dict[str, list[socket.socket]]  # by the name of the listener


def collect_passed_sockets(settings: Settings, environ: MutableMapping[str, str]) -> PassedSockets:
    """Return the sockets that were passed to this process, and to none that it starts."""
    found = _passed_descriptors(environ)
    for variable in _VARIABLES:
        environ.pop(variable, None)
    passed: PassedSockets = {}
    for number, name in found:
        taken = _open_socket(number)
        try:
            listener = _listener_of(taken, name, settings)
        except ConfigError:
            taken.close()
            raise
        passed.setdefault(listener, []).append(taken)
    return passed


def _passed_descriptors(environ: Mapping[str, str]) -> list[tuple[int, str]]:
    """Descriptors and their names; "": it has none that says anything."""
    if environ.get("LISTEN_PID") != str(os.getpid()):
        return []  # they are another's
    text = environ.get("LISTEN_FDS", "")
    if not text.isascii() or not text.isdigit():
        raise ConfigError(f"LISTEN_FDS must be a number, not {text!r}.")
    names = environ.get("LISTEN_FDNAMES", "").split(":")
    count = int(text)
    names += [""] * (count - len(names))
    return [(FIRST_DESCRIPTOR + index, names[index]) for index in range(count)]


def _open_socket(number: int) -> socket.socket:
    try:
        os.set_inheritable(number, False)
        taken = socket.socket(fileno=number)
        is_listening = taken.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    except OSError as error:
        raise ConfigError(f"Descriptor {number} was passed and is no socket: {error}.") from error
    if taken.family not in (socket.AF_INET, socket.AF_INET6) or not is_listening:
        taken.close()
        raise ConfigError(f"Descriptor {number} was passed and does not listen to TCP.")
    return taken


def _listener_of(taken: socket.socket, name: str, settings: Settings) -> str:
    host, port = taken.getsockname()[:2]
    ports = {
        "masenko": settings.masenko_port,
        "workq": settings.workq_port,
        "resp": settings.resp_port,
        "http": settings.http_port,
    }
    if name not in ports:
        name = next((each for each, known in ports.items() if known == port), "")
    if not name or ports[name] is None:
        raise ConfigError(f"A socket at {host}:{port} was passed, which is no listener's port.")
    if not is_local(host) and not identifies_clients(settings):
        raise ConfigError(
            f"A socket at {host}:{port} was passed, which other machines may reach: name the users "
            "with --users, have clients show certificates with --tls-client-ca, or allow it with "
            "--allow-anonymous on."
        )
    return name
