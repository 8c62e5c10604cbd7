"""Makes what the inference server starts with out of what was fetched, and becomes the server.

Runs inside the inference image, without privileges; settings come as JSON in ``FALAJ_SERVING``:
``repository`` (host and name), ``package_digest`` and ``keys_digest`` of what is served, ``model``
and ``version`` that it is, ``login`` (folder with the registry's login), ``folder``, ``secrets``,
``host_name``, ``port``, ``workers``.

The certificate is the machine's own, made at each start and gone with it: the load balancer, which
shows clients the tier's certificate, encrypts to machines without comparing theirs.
"""

from __future__ import annotations

import datetime
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

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


def commands(settings: dict[str, Any]) -> list[list[str]]:
    """Take the package over, and write the server's ``service.json``: the image knows its form.

    The first fetches the package by its digests, and verifies its signature before an alias stands
    for it.
    """
    folder, secrets = Path(settings["folder"]), Path(settings["secrets"])
    ring = secrets / "keyring"
    packages = [
        *("--registry", str(folder / "registry"), "--keyring", str(ring)),
        *("--model", settings["model"]),
    ]
    take = [
        *(sys.executable, "-m", "falaj.workloads.registry", "import", *packages),
        *("--version", str(settings["version"])),
        *("--repository", settings["repository"]),
        *("--package-digest", settings["package_digest"]),
        *("--keys-digest", settings["keys_digest"]),
        *("--login", str(Path(settings["login"]) / "config.json")),
    ]
    configure = [
        *(sys.executable, "-m", "falaj.workloads.inference", "configure", *packages),
        *("--config", str(folder / "service.json")),
        # The machine has private addresses only.
        *("--name", settings["model"], "--host", "0.0.0.0"),  # noqa: S104
        *("--port", str(settings["port"]), "--cpus", str(settings["workers"])),
        *("--certificate", str(secrets / "tls.crt"), "--private-key", str(secrets / "tls.key")),
        *("--issuer", "falaj", "--audience", settings["host_name"]),
        *("--jwks", str(ring / "tokens.jwks.json")),
        *("--logs", str(folder / "logs"), "--state", str(folder / "state.json")),
    ]
    return [take, configure]


def prepare(settings: dict[str, Any]) -> Path:
    """Make the certificate, take the package over, write the configuration; returns its path.

    The login is gone afterwards, so that the server hasn't got it.

    Raises:
        subprocess.CalledProcessError: the package isn't what was signed, or the server wouldn't
            take the settings.
    """
    folder, secrets = Path(settings["folder"]), Path(settings["secrets"])
    make_certificate(settings["host_name"], secrets)
    try:
        for command in commands(settings):
            subprocess.run(command, check=True)
    finally:
        shutil.rmtree(settings["login"], ignore_errors=True)
    return folder / "service.json"


if __name__ == "__main__":
    try:
        path = prepare(json.loads(os.environ["FALAJ_SERVING"]))
    except (OSError, ValueError, subprocess.CalledProcessError) as error:
        sys.exit(f"error: {error}")
    command = (sys.executable, "-m", "falaj.workloads.inference", "serve", "--config", str(path))
    os.execv(sys.executable, command)  # noqa: S606 - the point of it: the server takes over
