"""The server's certificate: from files to a TLS context.

The listeners share one. It can be reloaded, for new connections.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

from taskyard.server.logs import log
from taskyard.server.settings.config import ConfigError, Settings


class Tls:
    """What new connections are made secure with."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.context = make_context(settings)

    def reload(self) -> None:
        """Read the files again. If they are no good, all stays as it was."""
        try:
            self.context = make_context(self._settings)
        except ConfigError as error:
            log.error("TLS certificate not reloaded: %s", error)
        else:
            log.info("TLS certificate reloaded")


def make_context(settings: Settings) -> ssl.SSLContext:
    """Raises ConfigError in one sentence that says which file is wrong, and why."""
    certificate = settings.tls_certificate
    assert certificate is not None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.num_tickets = 1  # a client gets another one with each connection
    _load_certificate(context, certificate, settings.tls_key)
    if settings.tls_client_ca is not None:
        _load_client_ca(context, settings.tls_client_ca)
        required = settings.tls_client == "required"
        context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
    return context


def _load_certificate(context: ssl.SSLContext, certificate: Path, key: Path | None) -> None:
    _check_has_certificates("tls_certificate", certificate)
    name = "tls_certificate" if key is None else "tls_key"
    place = key or certificate
    if b"PRIVATE KEY-----" not in _read(name, place):
        hint = "" if key is not None else "; it can also be in a file of its own, tls_key"
        raise ConfigError(f"{name}: {place} has no private key in PEM form{hint}.")
    locked = False

    def no_password() -> str:
        # Without it OpenSSL would ask for one on the terminal.
        nonlocal locked
        locked = True
        return ""

    try:
        context.load_cert_chain(certificate, key, no_password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise ConfigError(f"{name}: the key in {place} is not that of {certificate}.") from None
        if locked:
            raise ConfigError(f"{name}: the key in {place} is locked by a password.") from None
        what = f"{certificate}" if key is None else f"{certificate} with {key}"
        raise ConfigError(
            f"tls_certificate: {what} cannot be used ({_ssl_error_text(error)})."
        ) from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"tls_certificate: {certificate} cannot be used ({error}).") from None


def _load_client_ca(context: ssl.SSLContext, path: Path) -> None:
    _check_has_certificates("tls_client_ca", path)
    try:
        context.load_verify_locations(path)
    except ssl.SSLError as error:
        raise ConfigError(
            f"tls_client_ca: {path} cannot be used ({_ssl_error_text(error)})."
        ) from None
    except OSError as error:
        raise ConfigError(f"tls_client_ca: {path} cannot be read ({error.strerror}).") from None


def _check_has_certificates(name: str, path: Path) -> None:
    content = _read(name, path)
    if b"CERTIFICATE-----" not in content:
        raise ConfigError(f"{name}: {path} has no certificate in PEM form.")


def _read(name: str, path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{name}: {path} cannot be read ({error.strerror}).") from None


def _ssl_error_text(error: ssl.SSLError) -> str:
    reason: str | None = error.reason
    return reason.lower().replace("_", " ") if reason else "it is damaged"


def holder_name(certificate: dict[str, Any] | None) -> str:
    """Return the holder of a verified certificate; "": it names none, or there is no certificate.

    That is the common name, or where there is none the first DNS name. A certificate with several
    common names has no holder: it would depend on the reader which of them counts.
    """
    if not certificate:
        return ""
    common: list[str] = [
        value
        for part in certificate.get("subject", ())
        for key, value in part
        if key == "commonName"
    ]
    if common:
        return common[0] if len(common) == 1 else ""
    names: list[str] = [
        value for kind, value in certificate.get("subjectAltName", ()) if kind == "DNS"
    ]
    return names[0] if names else ""
