"""A small certificate authority: ECDSA P-256, made and renewed in the provider's own process.

Private keys stay in files of mode 0600; the engine's state only ever holds paths, fingerprints
and dates.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, Literal

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from falaj.components.local.machine import files
from falaj.components.local.machine.errors import LocalError

Usage = Literal["server", "client"]

#: Clocks of clients may be a little behind ours.
_SKEW: Final = timedelta(minutes=5)
_RENEW_AFTER: Final = 2 / 3
LOCAL_NAMES: Final = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class Issued:
    """A certificate on the disk.

    Attributes:
        certificate: the certificate.
        certificate_path: its PEM file.
        key_path: PEM file (PKCS#8) of its private key.
    """

    certificate: x509.Certificate
    certificate_path: Path
    key_path: Path

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the DER form, in hexadecimal."""
        return self.certificate.fingerprint(hashes.SHA256()).hex()

    @property
    def common_name(self) -> str:
        """The subject's common name."""
        names = self.certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        return str(names[0].value) if names else ""


def is_due(not_before: datetime, not_after: datetime, now: datetime | None = None) -> bool:
    """Whether two thirds of a certificate's life are over."""
    moment = now or datetime.now(UTC)
    return moment >= not_before + (not_after - not_before) * _RENEW_AFTER


def load(certificate_path: Path, key_path: Path) -> Issued | None:
    """A certificate with its key; None when one is missing, damaged or of another pair."""
    try:
        certificate = x509.load_pem_x509_certificate(certificate_path.read_bytes())
        key = serialization.load_pem_private_key(key_path.read_bytes(), password=None)
    except (OSError, ValueError, TypeError):
        return None
    if key.public_key() != certificate.public_key():
        return None
    return Issued(certificate, certificate_path, key_path)


def make_authority(folder: Path, common_name: str, days: int) -> Issued:
    """A new self-signed authority in ``ca.crt`` and ``ca.key``; it may sign leafs only.

    Raises:
        LocalError: it can't be written.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name(common_name)
    usage = x509.KeyUsage(
        digital_signature=False, content_commitment=False, key_encipherment=False,
        data_encipherment=False, key_agreement=False, key_cert_sign=True, crl_sign=True,
        encipher_only=False, decipher_only=False,
    )  # fmt: skip
    builder = (
        _builder(name, name, key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    certificate = builder.sign(key, hashes.SHA256())
    return _write(folder, "ca", certificate, key)


def make_leaf(
    folder: Path,
    file_name: str,
    *,
    usage: Usage,
    common_name: str,
    names: Sequence[str],
    days: int,
) -> Issued:
    """A new leaf certificate signed by the folder's authority.

    Args:
        folder: where ``ca.crt`` and ``ca.key`` are; the leaf is written beside them.
        file_name: name of the two files without their suffix.
        usage: for which side of TLS it is good.
        common_name: the subject's common name.
        names: DNS names and IP addresses; a server also gets `LOCAL_NAMES`.
        days: its life; it never outlives the authority.

    Raises:
        LocalError: the authority is missing or over, or the files can't be written.
    """
    authority = load(folder / "ca.crt", folder / "ca.key")
    if authority is None:
        raise LocalError(
            f"the certificate authority in {folder} is missing or damaged; run `pulumi refresh` "
            "and then `pulumi up` to make a new one"
        )
    if authority.certificate.not_valid_after_utc <= datetime.now(UTC):
        raise LocalError(f"the certificate authority in {folder} is over; run `pulumi up` again")
    signer = serialization.load_pem_private_key(authority.key_path.read_bytes(), password=None)
    if not isinstance(signer, ec.EllipticCurvePrivateKey):
        raise LocalError(f"{authority.key_path} holds no ECDSA key")
    key = ec.generate_private_key(ec.SECP256R1())
    end = authority.certificate.not_valid_after_utc
    purpose = {
        "server": ExtendedKeyUsageOID.SERVER_AUTH,
        "client": ExtendedKeyUsageOID.CLIENT_AUTH,
    }[usage]
    key_usage = x509.KeyUsage(
        digital_signature=True, content_commitment=False, key_encipherment=False,
        data_encipherment=False, key_agreement=False, key_cert_sign=False, crl_sign=False,
        encipher_only=False, decipher_only=False,
    )  # fmt: skip
    subject = authority.certificate.subject
    builder = (
        _builder(_name(common_name), subject, key.public_key(), days, latest=end)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(key_usage, critical=True)
        .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
    )
    wanted = [*LOCAL_NAMES, *names] if usage == "server" else list(names)
    if wanted:
        alternatives = [general_name(name) for name in dict.fromkeys(wanted)]
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    return _write(folder, file_name, builder.sign(signer, hashes.SHA256()), key)


def general_name(name: str) -> x509.GeneralName:
    """An IP address where it reads as one, else a DNS name."""
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    public_key: ec.EllipticCurvePublicKey,
    days: int,
    latest: datetime | None = None,
) -> x509.CertificateBuilder:
    now = datetime.now(UTC).replace(microsecond=0)
    end = now + timedelta(days=days)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(min(end, latest) if latest is not None else end)
    )


def _write(
    folder: Path, file_name: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey
) -> Issued:
    files.make_folder(folder)
    key_path, certificate_path = folder / f"{file_name}.key", folder / f"{file_name}.crt"
    secret = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    files.shred(key_path)
    files.write_file(key_path, secret)
    files.write_file(certificate_path, certificate.public_bytes(serialization.Encoding.PEM))
    return Issued(certificate, certificate_path, key_path)
