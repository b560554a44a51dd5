"""Certificates made with the openssl command, and clients that speak TLS to a server."""

from __future__ import annotations

import contextlib
import socket
import ssl
import subprocess
from pathlib import Path
from typing import Any

from support.sockets import HANG_GUARD, SocketPeer

_CONFIG = "[req]\ndistinguished_name = dn\n[dn]\n"
HERE = "IP:127.0.0.1,DNS:localhost"


class Certificates:
    """Two CAs, `ours` and `theirs`, and what they sign."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._config = directory / "openssl.cnf"
        self._config.write_text(_CONFIG, encoding="ascii")
        for name in ("ours", "theirs"):
            self._make(name, f"/CN={name}", "basicConstraints=critical,CA:true")
        self.ca = self.path("ours.pem")
        self.foreign_ca = self.path("theirs.pem")

    def path(self, name: str) -> Path:
        return self._directory / name

    def sign(self, name: str, subject: str, names: str = "", by: str = "ours") -> Path:
        """A certificate and its key, in one file and in two; gives the one."""
        signer = ["-CA", str(self.path(f"{by}.pem")), "-CAkey", str(self.path(f"{by}.key"))]
        extensions = [f"subjectAltName={names}"] if names else []
        self._make(name, subject, "basicConstraints=critical,CA:false", *extensions, signer=signer)
        both = self.path(f"{name}-both.pem")
        both.write_bytes(
            self.path(f"{name}.key").read_bytes() + self.path(f"{name}.pem").read_bytes()
        )
        return both

    def lock(self, name: str) -> Path:
        """The same key, under a password."""
        locked = self.path(f"{name}-locked.key")
        command = ["openssl", "ec", "-in", str(self.path(f"{name}.key")), "-out", str(locked)]
        _run([*command, "-aes128", "-passout", "pass:secret"])
        return locked

    def _make(self, name: str, subject: str, *extensions: str, signer: list[str] = []) -> None:  # noqa: B006
        command = ["openssl", "req", "-x509", "-config", str(self._config), "-nodes", *signer]
        command += ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-days", "30"]
        command += ["-keyout", str(self.path(f"{name}.key")), "-out", str(self.path(f"{name}.pem"))]
        command += ["-subj", subject]
        for extension in extensions:
            command += ["-addext", extension]
        _run(command)

    def client(self, identity: Path | None = None) -> ssl.SSLContext:
        """A client that trusts our CA only, and may have a certificate itself."""
        context = ssl.create_default_context(cafile=str(self.ca))
        if identity is not None:
            context.load_cert_chain(identity)
        return context


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()


class TlsPeer(SocketPeer):
    """One TLS connection to the server. Its end must be one that TLS has announced."""

    def __init__(
        self,
        address: tuple[str, int],
        context: ssl.SSLContext,
        session: ssl.SSLSession | None = None,
    ) -> None:
        super().__init__(address)
        with contextlib.ExitStack() as undo:
            undo.enter_context(self._socket)
            self.tls = context.wrap_socket(
                self._socket,
                server_hostname=address[0],
                suppress_ragged_eofs=False,
                session=session,
            )
            undo.pop_all()
        self._socket = self.tls

    def reset(self) -> None:
        """Go away at once, so that the server learns of it by an error."""
        self.tls.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.tls.close()

    def subject(self) -> str:
        """The common name of the server."""
        certificate = self.tls.getpeercert()
        assert certificate
        subject: Any = certificate["subject"]
        return str(dict(part[0] for part in subject)["commonName"])


def receive_after_farewell(
    address: tuple[str, int], context: ssl.SSLContext, data: bytes, *, announced: bool
) -> bytes:
    """Send this, close that half of the connection, and give what comes until the server's end.

    Python's sockets cannot do that by themselves: an end that is announced ends both halves there.
    """
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_hostname=address[0])
    with socket.create_connection(address, timeout=HANG_GUARD) as client:
        while True:
            with contextlib.suppress(ssl.SSLWantReadError):
                tls.do_handshake()
                break
            client.sendall(outgoing.read())
            incoming.write(client.recv(65_536))
        tls.write(data)
        if announced:
            with contextlib.suppress(ssl.SSLWantReadError):
                tls.unwrap()
        client.sendall(outgoing.read())
        if not announced:
            client.shutdown(socket.SHUT_WR)
        return _receive_all(client, tls, incoming)


def _receive_all(client: socket.socket, tls: ssl.SSLObject, incoming: ssl.MemoryBIO) -> bytes:
    received = b""
    while True:
        try:
            part = tls.read(65_536)
            received += part
            if not part:
                return received
        except ssl.SSLWantReadError:
            more = client.recv(65_536)
            assert more, f"cut off after {received!r}"
            incoming.write(more)
        except ssl.SSLZeroReturnError:
            return received
