"""The control plane's own certificate authority, and the certificates that it issues.

A user of Kubernetes' client certificates is the common name, the groups are the organisations:
https://kubernetes.io/docs/reference/access-authn-authz/authentication/#x509-client-certificates
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from falaj.engine.errors import EngineError
from falaj.engine.files import replace_file

LIFETIME = timedelta(days=365)
"""Longer than a control plane for tests runs; Kueue replaces what ends within 90 days."""
CLOCK_SLACK = timedelta(minutes=5)
#: RFC 5280, appendix A.1: ub-common-name and ub-organization-name.
MOST_CHARACTERS = 64
SERVICE_ACCOUNT_KEY_BITS = 2048


@dataclass(frozen=True)
class Pair:
    """Paths of a certificate and its private key, both PEM."""

    certificate: Path
    key: Path


class Authority:
    """A certificate authority whose files lie in one folder (mode 0700)."""

    def __init__(
        self, folder: Path, called: str = "falaj-test-control-plane", *, rsa_key: bool = False
    ) -> None:
        """Open the authority in `folder`, making one that is `called` so when there is none.

        `rsa_key` is for controllers that read an authority's key as PKCS #1 alone, as Kueue's
        certificate rotation does.
        """
        self.folder = folder
        self.certificate = folder / "ca.crt"
        self._key_path = folder / "ca.key"
        if self.certificate.exists():
            key = serialization.load_pem_private_key(self._key_path.read_bytes(), None)
            if not isinstance(key, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
                raise EngineError(
                    f"{self._key_path} is no EC or RSA key; remove {folder} and start"
                )
            self._key = key
            self._own = x509.load_pem_x509_certificate(self.certificate.read_bytes())
            return
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._key = _rsa_key() if rsa_key else ec.generate_private_key(ec.SECP256R1())
        name = _name(called, ())
        self._own = (
            _builder(name, name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(
                _usage(key_cert_sign=True, crl_sign=True, digital_signature=True), critical=True
            )
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False
            )
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(called)]), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        replace_file(self._key_path, _pem(self._key), 0o600)
        replace_file(self.certificate, self._own.public_bytes(serialization.Encoding.PEM), 0o600)

    @property
    def signing(self) -> Pair:
        """The authority's own pair, with which kube-controller-manager signs requests."""
        return Pair(self.certificate, self._key_path)

    def server(self, name: str, hosts: Sequence[str]) -> Pair:
        """A certificate for a server (that is a client of its peers too) at `hosts`.

        `hosts` are DNS names and IP addresses.
        """
        alternatives: list[x509.GeneralName] = []
        for host in hosts:
            try:
                alternatives.append(x509.IPAddress(ip_address(host)))
            except ValueError:
                alternatives.append(x509.DNSName(host))
        return self._issue(name, name, (), alternatives)

    def client(self, user: str, groups: Sequence[str] = (), file: str | None = None) -> Pair:
        """A certificate with which `user` of `groups` calls the API server.

        The files are named `file`, by default after the user. Raises EngineError for names that
        a certificate can't carry.
        """
        for text in (user, *groups):
            if not text or len(text) > MOST_CHARACTERS or not text.isprintable():
                raise EngineError(
                    f"the user or group {text!r} can't be put into a client certificate: given "
                    f"{len(text)} characters, allowed are 1 to {MOST_CHARACTERS} printable ones"
                )
        return self._issue(file or user, user, groups, [])

    def _issue(
        self, file: str, common: str, groups: Sequence[str], names: list[x509.GeneralName]
    ) -> Pair:
        pair = Pair(self.folder / f"{file}.crt", self.folder / f"{file}.key")
        key = ec.generate_private_key(ec.SECP256R1())
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH]
        if names:
            usages.append(ExtendedKeyUsageOID.SERVER_AUTH)
        builder = (
            _builder(_name(common, groups), self._own.subject, key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(digital_signature=True), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        replace_file(pair.key, _pem(key), 0o600)
        replace_file(pair.certificate, certificate.public_bytes(serialization.Encoding.PEM), 0o600)
        return pair


def service_account_keys(folder: Path) -> Pair:
    """Write the key pair that signs and verifies tokens of service accounts.

    RSA, because every issuer and verifier of such tokens takes RS256.
    """
    key = _rsa_key()
    pair = Pair(folder / "service-account.pub", folder / "service-account.key")
    replace_file(pair.key, _pem(key), 0o600)
    replace_file(
        pair.certificate,
        key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        ),
        0o600,
    )
    return pair


def _name(common: str, groups: Sequence[str]) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey | rsa.RSAPublicKey
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SLACK)
        .not_valid_after(now + LIFETIME)
    )


def _usage(
    *, digital_signature: bool = False, key_cert_sign: bool = False, crl_sign: bool = False
) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=key_cert_sign,
        crl_sign=crl_sign,
        encipher_only=False,
        decipher_only=False,
    )


def _rsa_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=SERVICE_ACCOUNT_KEY_BITS)


def _pem(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        # PKCS #1 or SEC 1, which every program in Go reads.
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
