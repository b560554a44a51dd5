"""TLS of the server: its certificate, from files to a context, and its encrypted connections."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from pathlib import Path
from typing import Any, Final

from taskyard.server.logs import log
from taskyard.server.net.connection import Connection
from taskyard.server.settings.schema import ConfigError, Settings

_MAX_RECORD_BYTES: Final = 16_384  # bytes that TLS has in one piece at most
# What is encrypted at once. The buffers in between never shrink, so that each connection would
# keep as much memory as its largest reply took.
_CHUNK_BYTES: Final = 65_536
_REJECT_SECONDS: Final = 2.0  # seconds that a client has to read why it was refused


# Certificates


class Tls:
    """What new connections are made secure with.

    The listeners share one. It can be reloaded, for new connections.
    """

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


# Encrypted connections


class TlsTransport(asyncio.Transport, asyncio.Protocol):
    """TLS between a socket and a connection: a protocol to the one, a transport to the other.

    The event loop's own TLS drops all pending replies when a client closes its half, cannot close
    one half itself, and does not tell a client why it was refused. Here a connection behaves the
    same with and without TLS.
    """

    def __init__(
        self, context: ssl.SSLContext, connection: Connection, handshake_seconds: float
    ) -> None:
        super().__init__()
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._connection: Connection | None = connection  # until it is lost
        connection.tls_transport = self
        self._handshake_seconds = handshake_seconds  # seconds for the handshake
        self._socket: asyncio.Transport | None = None
        # as long as the connection is not notified
        self._handshake_timer: asyncio.TimerHandle | None = None
        self._input_ended = False  # the client has closed its half
        self._output_ended = False  # we have closed ours, and further input is dropped
        self._closing = False
        self._certificate_name = ""

    # From the socket

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._socket = transport
        loop = asyncio.get_running_loop()
        self._handshake_timer = loop.call_later(self._handshake_seconds, self._on_handshake_timeout)

    def data_received(self, data: bytes) -> None:
        if self._input_ended or self._output_ended:
            return
        self._incoming.write(data)
        if self._handshake_timer is None or self._continue_handshake():
            self._read_decrypted()

    def eof_received(self) -> bool:
        """Accept an end with or without close_notify: requests contain their own length, so that
        one that was cut short is never taken for a whole one, and the others can be answered.
        """
        if self._handshake_timer is not None:
            return False
        self._on_eof()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._closing = True
        connection, self._connection = self._connection, None
        if self._handshake_timer is not None:
            self._handshake_timer.cancel()
            self._handshake_timer = None
            if connection is not None:
                connection.on_gone()
        elif connection is not None:
            connection.connection_lost(exc)

    def pause_writing(self) -> None:
        if self._connection is not None and self._handshake_timer is None:
            self._connection.pause_writing()

    def resume_writing(self) -> None:
        if self._connection is not None and self._handshake_timer is None:
            self._connection.resume_writing()

    # Handshake

    def _continue_handshake(self) -> bool:
        """Continue the handshake; return whether it is done."""
        try:
            self._tls.do_handshake()
            name = holder_name(self._tls.getpeercert())
        except ssl.SSLWantReadError:
            self._write_encrypted()
            return False
        except (ssl.SSLError, ValueError) as error:
            self._reject(_failure_text(error))
            return False
        assert self._handshake_timer is not None
        assert self._connection is not None
        self._handshake_timer.cancel()
        self._handshake_timer = None
        self._certificate_name = name
        self._write_encrypted()
        self._connection.connection_made(self)
        return True

    def _on_handshake_timeout(self) -> None:
        self._log_failure("handshake timed out")
        self.abort()

    def _reject(self, reason: str) -> None:
        """The client learns why from an alert, which a close might overtake as long as it sends."""
        assert self._handshake_timer is not None
        self._log_failure(reason)
        self._handshake_timer.cancel()
        self._handshake_timer = asyncio.get_running_loop().call_later(_REJECT_SECONDS, self.abort)
        self._output_ended = True
        self._write_encrypted()
        if self._socket is not None and not self._socket.is_closing():
            self._socket.write_eof()

    def _log_failure(self, reason: str) -> None:
        address = self.get_extra_info("peername")
        told = {} if self._connection is None else {"connection": int(self._connection.number)}
        host = address[0] if address else "a client"
        log.debug("TLS error with %s: %s", host, reason, extra={"fields": told})

    # Reading

    def _read_decrypted(self) -> None:
        if self._output_ended:
            return
        parts: list[bytes] = []
        ended = False
        failure: ssl.SSLError | None = None
        try:
            # To read when there is nothing raises an exception, which costs more than to check.
            while self._incoming.pending or self._tls.pending():
                part = self._tls.read(_MAX_RECORD_BYTES)
                if not part:
                    ended = True
                    break
                parts.append(part)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            ended = True
        except ssl.SSLError as error:
            failure = error
        if self._outgoing.pending:
            self._write_encrypted()
        if failure is not None:
            self._output_ended = True  # input before it counts, but nothing can be sent any more
        if parts and self._connection is not None:
            self._connection.data_received(parts[0] if len(parts) == 1 else b"".join(parts))
        if failure is not None:
            self._log_failure(_failure_text(failure))
            self.abort()
        elif ended:
            self._on_eof()

    def _on_eof(self) -> None:
        """The client closes its half; it may still wait for replies."""
        if self._input_ended or self._connection is None:
            return
        self._input_ended = True
        if not self._connection.eof_received():
            self.close()

    # As the connection's transport

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "ssl_object":
            return self._tls
        if name == "certificate_name":
            return self._certificate_name
        return default if self._socket is None else self._socket.get_extra_info(name, default)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._output_ended or self._closing or not data:
            return
        if len(data) <= _CHUNK_BYTES:
            self._tls.write(data)
            self._write_encrypted()
            return
        view = memoryview(data)
        for start in range(0, len(view), _CHUNK_BYTES):
            self._tls.write(view[start : start + _CHUNK_BYTES])
            self._write_encrypted()

    def _write_encrypted(self) -> None:
        socket = self._socket
        if socket is not None and not socket.is_closing():
            data = self._outgoing.read()
            if data:
                socket.write(data)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if self._socket is not None:
            self._socket.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return 0 if self._socket is None else self._socket.get_write_buffer_size()

    def is_reading(self) -> bool:
        return self._socket is not None and self._socket.is_reading()

    def pause_reading(self) -> None:
        if self._socket is not None:
            self._socket.pause_reading()

    def resume_reading(self) -> None:
        if self._socket is not None:
            self._socket.resume_reading()

    def is_closing(self) -> bool:
        return self._closing or self._socket is None or self._socket.is_closing()

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        if self._output_ended or self._socket is None or self._socket.is_closing():
            return
        self._send_close_notify()
        self._socket.write_eof()

    def close(self) -> None:
        if self._closing or self._socket is None:
            return
        if not self._output_ended:
            self._send_close_notify()
        self._closing = True
        self._socket.close()

    def abort(self) -> None:
        self._closing = True
        if self._socket is not None:
            self._socket.abort()

    def _send_close_notify(self) -> None:
        """Send close_notify, so that the client can tell the end from an attack."""
        self._output_ended = True
        with contextlib.suppress(ssl.SSLError):  # the client has not said the same, and need not
            self._tls.unwrap()
        self._write_encrypted()


def _failure_text(error: Exception) -> str:
    text = getattr(error, "verify_message", "") or getattr(error, "reason", "") or str(error)
    return str(text).lower().replace("_", " ")
