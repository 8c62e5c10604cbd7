"""Makes what the inference server starts with out of what was fetched, and becomes the server.

Runs inside the inference image, without privileges. Of its own it reads the setting ``login``,
the folder with the registry's login.

The certificate is the machine's own, made at each start and gone with it: the load balancer, which
shows clients the tier's certificate, encrypts to machines without comparing theirs.
"""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from falaj.components.specification.server_start import become_server, take_over

_VALID = datetime.timedelta(days=397)


def make_certificate(host: str, folder: Path) -> tuple[Path, Path]:
    """Write a private key and a certificate for ``host`` that it signs itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host[:64])])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        # Clocks of client and server may differ by minutes.
        .not_valid_before(now - datetime.timedelta(minutes=10))
        .not_valid_after(now + _VALID)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    written = folder / "tls.crt", folder / "tls.key"
    written[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    written[1].touch(mode=0o600)
    written[1].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return written


def prepare(settings: dict[str, Any]) -> Path:
    """Make the certificate, take the package over, write the configuration; returns its path.

    Raises:
        subprocess.CalledProcessError: as `take_over` says.
    """
    make_certificate(settings["host_name"], Path(settings["secrets"]))
    return take_over(settings, Path(settings["login"]) / "config.json")


if __name__ == "__main__":
    become_server(prepare)
