"""CertificateAuthority and Certificate: ECDSA P-256, made and renewed in the provider's process.

Private keys stay in files of mode 0600; the engine's state only ever holds paths, fingerprints
and dates.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import ClassVar, Final, Literal

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from falaj.components.local import machine
from falaj.components.local.arguments.certificates import CertificateArgs, CertificateAuthorityArgs
from falaj.components.local.machine import InvalidInput, InvalidInputsError, LocalError
from falaj.components.local.provider.fields import (
    flag,
    text,
    texts,
    whole,
)
from falaj.components.local.provider.handler import Change, Context, Handler, Site
from falaj.wire.values import Values

# Certificates on the disk.

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
    machine.make_folder(folder)
    key_path, certificate_path = folder / f"{file_name}.key", folder / f"{file_name}.crt"
    secret = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    shown = certificate.public_bytes(serialization.Encoding.PEM)
    machine.write_together(folder, {key_path.name: secret, certificate_path.name: shown})
    return Issued(certificate, certificate_path, key_path)


# The authority, which signs the certificates of a site's services and clients.


class CertificateAuthorityHandler(Handler):
    """Makes the authority; renews it with a new key when two thirds of its life are over."""

    type_name: ClassVar[str] = "CertificateAuthority"
    summary: ClassVar[str] = "A certificate authority of the site (ECDSA P-256)."
    arguments: ClassVar[type] = CertificateAuthorityArgs
    outputs: ClassVar[Mapping[str, str]] = {
        "certificatePath": "PEM file of the certificate, which clients trust.",
        "fingerprint": "SHA-256 of the certificate.",
        "notBefore": "Begin of its life.",
        "notAfter": "End of its life.",
    }

    def drift(self, state: Values) -> dict[str, Change]:
        """Missing, damaged, or due for renewal."""
        return renewal(_load(self.site_of(state)), state)

    def preview(self, inputs: Values, state: Values | None) -> Values:
        """The path follows from the site."""
        expected = super().preview(inputs, state)
        if isinstance(inputs.get("site"), str):
            expected["certificatePath"] = str(self.site_of(inputs).pki / "ca.crt")
        if state is not None and not _is_renamed(state, inputs) and not self.drift(state):
            expected.update({key: state[key] for key in self.outputs})
        return expected

    def create(self, context: Context, inputs: Values) -> tuple[str, Values]:
        """Make the authority; one that an interrupted run has left is adopted."""
        del context
        site = self.site_of(inputs)
        found = _load(site)
        if found is None or found.common_name != text(inputs, "commonName") or is_over(found):
            found = _make(site, inputs)
        return str(found.certificate_path), {**inputs, **describe(found)}

    def read(self, resource_id: str, state: Values) -> Values | None:
        """Gone when one of its files is."""
        found = _load(self.site_of(state))
        return None if found is None else {**state, **describe(found)}

    def update(self, context: Context, resource_id: str, state: Values, inputs: Values) -> Values:
        """Make a new one, with a new key; leafs follow because its fingerprint changes."""
        found = _load(self.site_of(inputs))
        if found is None or _is_renamed(state, inputs) or is_over(found):
            found = _make(self.site_of(inputs), inputs)
            context.say(f"made a certificate authority, good until {ends(found)}")
        return {**inputs, **describe(found)}

    def delete(self, context: Context, resource_id: str, state: Values) -> None:
        """Shred the key and remove the certificate, unless they are retained."""
        del context
        if not flag(state, "retain"):
            folder = self.site_of(state).pki
            machine.shred(folder / "ca.key")
            (folder / "ca.crt").unlink(missing_ok=True)


def describe(issued: Issued) -> Values:
    """What the engine may know of a certificate."""
    return {
        "certificatePath": str(issued.certificate_path),
        "fingerprint": issued.fingerprint,
        "notBefore": issued.certificate.not_valid_before_utc.isoformat(),
        "notAfter": issued.certificate.not_valid_after_utc.isoformat(),
    }


def renewal(found: Issued | None, state: Values) -> dict[str, Change]:
    """An update when files are missing or damaged, or two thirds of the life are over."""
    if found is None:
        return {"fingerprint": Change(is_input=False)}
    if is_over(found):
        return {"notAfter": Change(is_input=False)}
    if found.fingerprint != state.get("fingerprint"):
        # Made by an interrupted run: the state only has to learn of it.
        return {"fingerprint": Change(is_input=False)}
    return {}


def is_over(issued: Issued) -> bool:
    """Whether it is time for a new one."""
    certificate = issued.certificate
    return is_due(certificate.not_valid_before_utc, certificate.not_valid_after_utc)


def ends(issued: Issued) -> str:
    """The last day of a certificate."""
    moment: datetime = issued.certificate.not_valid_after_utc
    return moment.date().isoformat()


def _is_renamed(state: Values, inputs: Values) -> bool:
    return any(inputs.get(key) != state.get(key) for key in ("commonName", "days"))


def _load(site: Site) -> Issued | None:
    return load(site.pki / "ca.crt", site.pki / "ca.key")


def _make(site: Site, inputs: Values) -> Issued:
    return make_authority(site.pki, text(inputs, "commonName"), whole(inputs, "days"))


# The leaf certificate of a server or a client.


class CertificateHandler(Handler):
    """Makes a leaf; renews it with a new key when two thirds of its life are over."""

    type_name: ClassVar[str] = "Certificate"
    summary: ClassVar[str] = "A leaf certificate signed by the site's authority."
    arguments: ClassVar[type] = CertificateArgs
    outputs: ClassVar[Mapping[str, str]] = {
        "certificatePath": "PEM file of the certificate.",
        "privateKeyPath": "PEM file of the private key, mode 0600.",
        "fingerprint": "SHA-256 of the certificate.",
        "notBefore": "Begin of its life.",
        "notAfter": "End of its life.",
    }

    def check(self, given: Values, old: Values) -> Values:
        """The name of the authority's own files is taken."""
        checked = super().check(given, old)
        if checked.get("fileName") == "ca":
            reason = "given 'ca'; allowed: any other name, this one is the authority's"
            raise InvalidInputsError([InvalidInput("fileName", reason)])
        return checked

    def drift(self, state: Values) -> dict[str, Change]:
        """Missing, damaged, or due for renewal."""
        return renewal(self._load(state), state)

    def preview(self, inputs: Values, state: Values | None) -> Values:
        """Paths follow from the site and the name."""
        expected = super().preview(inputs, state)
        if isinstance(inputs.get("site"), str) and isinstance(inputs.get("fileName"), str):
            certificate, key = self._paths(inputs)
            expected.update(certificatePath=str(certificate), privateKeyPath=str(key))
        return expected

    def create(self, context: Context, inputs: Values) -> tuple[str, Values]:
        """Make the certificate, in place of what an interrupted run may have left."""
        del context
        made = self._make(inputs)
        return str(made.certificate_path), _state(inputs, made)

    def read(self, resource_id: str, state: Values) -> Values | None:
        """Gone when one of its files is."""
        found = self._load(state)
        return None if found is None else _state(state, found)

    def update(self, context: Context, resource_id: str, state: Values, inputs: Values) -> Values:
        """Make a new one under the same names of files."""
        made = self._make(inputs)
        context.say(f"made a certificate for {made.common_name}, good until {ends(made)}")
        return _state(inputs, made)

    def delete(self, context: Context, resource_id: str, state: Values) -> None:
        """Shred the key and remove the certificate."""
        del context
        certificate, key = self._paths(state)
        machine.shred(key)
        certificate.unlink(missing_ok=True)

    def _paths(self, values: Values) -> tuple[Path, Path]:
        folder, name = self.site_of(values).pki, text(values, "fileName")
        return folder / f"{name}.crt", folder / f"{name}.key"

    def _load(self, values: Values) -> Issued | None:
        return load(*self._paths(values))

    def _make(self, inputs: Values) -> Issued:
        return make_leaf(
            self.site_of(inputs).pki,
            text(inputs, "fileName"),
            usage="server" if text(inputs, "usage") == "server" else "client",
            common_name=text(inputs, "commonName"),
            names=texts(inputs, "names"),
            days=whole(inputs, "days"),
        )


def _state(values: Values, issued: Issued) -> Values:
    return {**values, **describe(issued), "privateKeyPath": str(issued.key_path)}
