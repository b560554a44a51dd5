"""Who can reach a server, and whether it identifies its clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from taskyard.server.settings.config import Settings


def identifies_clients(settings: Settings) -> bool:
    """Whether every client is identified, or the operator allows anonymous ones."""
    if settings.users is not None or settings.allow_anonymous:
        return True
    return settings.tls_client_ca is not None and settings.tls_client == "required"


def is_local(host: str) -> bool:
    """Whether only this machine reaches a listener there; names are not resolved."""
    import ipaddress  # which help does not need

    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
