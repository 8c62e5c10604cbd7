"""Servers on the loopback that answer in every way, with an authority of their own."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.x509.oid import NameOID

Answer = Callable[[ssl.SSLSocket, bytes], None]
"""Answers a whole request, head and body, on its connection."""


def certificate(folder: Path, *, days: int = 2) -> Path:
    """One file with a key and a certificate of itself for the loopback; ``days`` may be past."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    end = datetime.now(UTC) + timedelta(days=days)
    names = [x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))]
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(end - timedelta(days=10))
        .not_valid_after(end)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = folder / f"loopback-{days}.pem"
    path.write_bytes(_private(key) + made.public_bytes(serialization.Encoding.PEM))
    return path


def write_token_key(folder: Path) -> None:
    """The key that a key ring in this folder signs tokens with."""
    (folder / "tokens.pem").write_bytes(_private(Ed25519PrivateKey.generate()))


def _private(key: ec.EllipticCurvePrivateKey | Ed25519PrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


@dataclass
class Peer:
    """A server and what it was asked."""

    port: int
    authority: Path
    asked: list[bytes] = field(default_factory=list[bytes])


def saying(status: str, body: bytes = b"", *headers: str) -> Answer:
    """An answer that says all at once."""

    def answer(connection: ssl.SSLSocket, request: bytes) -> None:
        del request
        lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]
        connection.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + body)

    return answer


@contextmanager
def peer(authority: Path, answer: Answer) -> Generator[Peer]:
    """A server that lives as long as the block."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        made = Peer(listener.getsockname()[1], authority)
        thread = threading.Thread(target=_serve, args=(listener, context, made, answer))
        thread.start()
        try:
            yield made
        finally:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def _serve(listener: socket.socket, context: ssl.SSLContext, made: Peer, answer: Answer) -> None:
    while True:
        try:
            plain, _ = listener.accept()
        except OSError:
            return
        with plain, suppress(OSError, ssl.SSLError):
            plain.settimeout(10)
            with context.wrap_socket(plain, server_side=True) as connection:
                request = _whole(connection)
                made.asked.append(request)
                answer(connection, request)


def _whole(connection: ssl.SSLSocket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        part = connection.recv(65_536)
        if not part:
            return data
        data += part
    head, _, body = data.partition(b"\r\n\r\n")
    lengths = [
        int(line.partition(b":")[2])
        for line in head.split(b"\r\n")
        if line.lower().startswith(b"content-length:")
    ]
    while lengths and len(body) < lengths[0]:
        body += connection.recv(65_536)
    return head + b"\r\n\r\n" + body
