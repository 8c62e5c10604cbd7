"""Whose keys are whose: sites sign the keys of a round with the key of their certificate.

The coordinator passes these keys on. Were they not signed, it could hand out its own and open what
sites share with each other. So a site knows the names of all sites by its own settings, and takes
keys for a name that are signed by a certificate of that name which the federation's authority
issued; where the settings pin a public key, by that key alone.
"""

from __future__ import annotations

import datetime
import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.x509.oid import NameOID

from falaj.workloads import bounds
from falaj.workloads.documents import is_dictionary
from falaj.workloads.errors import WorkloadError
from falaj.workloads.files import read_bytes, read_json

AUTHORITY: Final = "authority"
"""In the place of a pin: any certificate of the authority with the site's name."""
_CURVES: Final = (ec.SECP256R1, ec.SECP384R1, ec.SECP521R1)
_PADDING: Final = padding.PSS(padding.MGF1(hashes.SHA256()), padding.PSS.DIGEST_LENGTH)


class IdentityError(WorkloadError):
    """Keys aren't those of the site that they are said to be of."""


@dataclass(frozen=True)
class Identity:
    """Who a site is.

    Attributes:
        name: common name of its certificate.
        certificate: DER.
    """

    name: str
    certificate: bytes
    _key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey

    @classmethod
    def read(cls, certificate: Path, key: Path) -> Identity:
        """Of the files that the site does TLS with.

        Raises:
            WorkloadError: one is missing, broken, or of a kind of key that isn't signed with here.
        """
        try:
            # The first of the file is the site's own.
            found = x509.load_pem_x509_certificates(read_bytes(certificate, "the certificate"))[0]
            secret = serialization.load_pem_private_key(read_bytes(key, "its key"), None)
        except (ValueError, TypeError) as error:
            raise WorkloadError(f"can't read {certificate} and {key}: {error}") from error
        if not isinstance(
            secret, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey
        ):
            raise WorkloadError(
                f"the key in {key} is of a kind that rounds aren't signed with: "
                "use one of ECDSA (P-256, P-384, P-521), Ed25519 or RSA"
            )
        der = found.public_bytes(serialization.Encoding.DER)
        return cls(_common_name(found), der, secret)

    def sign(self, data: bytes) -> bytes:
        """A signature, by the kind of key: ECDSA or RSA-PSS with SHA-256, or Ed25519."""
        if isinstance(self._key, ec.EllipticCurvePrivateKey):
            return self._key.sign(data, ec.ECDSA(hashes.SHA256()))
        if isinstance(self._key, rsa.RSAPrivateKey):
            return self._key.sign(data, _PADDING, hashes.SHA256())
        return self._key.sign(data)


class Directory:
    """The sites of a federation, as one's own settings name them.

    Args:
        authority: PEM of the federation's authority, which issues the sites' certificates itself.
        pins: by the name of each site, the SHA-256 (hex) of its certificate's public key (DER of
            its SubjectPublicKeyInfo), or `AUTHORITY`.
    """

    def __init__(self, authority: Path, pins: Mapping[str, str]) -> None:
        try:
            self._authorities = x509.load_pem_x509_certificates(
                read_bytes(authority, "the authority's certificate")
            )
        except ValueError as error:
            raise WorkloadError(f"can't read {authority}: {error}") from error
        self.pins = dict(pins)

    def check(self, name: str, certificate: bytes, data: bytes, signature: bytes) -> None:
        """Refuse what isn't signed by the site of a name.

        Args:
            name: who is said to have signed.
            certificate: DER.
            data: what was signed.
            signature: of it.

        Raises:
            IdentityError: says what is wrong.
        """
        pin = self.pins.get(name)
        if pin is None:
            raise IdentityError(f"{name!r} is no site of --site-keys: {', '.join(self.pins)}")
        try:
            found = x509.load_der_x509_certificate(certificate)
            common = _common_name(found)
            key = found.public_key()
        except (ValueError, TypeError) as error:
            raise IdentityError(f"the certificate for {name} can't be read: {error}") from error
        if common != name:
            raise IdentityError(f"the certificate for {name} is of {common!r}")
        now = datetime.datetime.now(datetime.UTC)
        if not found.not_valid_before_utc <= now <= found.not_valid_after_utc:
            raise IdentityError(f"the certificate of {name} isn't valid now")
        if not any(_issued(found, each) for each in self._authorities):
            raise IdentityError(
                f"the certificate of {name} isn't issued by a certificate of --authority itself"
            )
        if pin != AUTHORITY and not hmac.compare_digest(pin, fingerprint(certificate)):
            raise IdentityError(f"the public key of {name} isn't the one of --site-keys")
        if not _signed(key, data, signature):
            raise IdentityError(
                f"the keys for {name} aren't signed by it for this round: they are another's, or "
                "of another round"
            )


def fingerprint(certificate: bytes) -> str:
    """SHA-256 (hex) of the public key of a certificate (both DER)."""
    key = x509.load_der_x509_certificate(certificate).public_key()
    encoded = key.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return hashlib.sha256(encoded).hexdigest()


def read_pins(path: Path) -> dict[str, str]:
    """The sites of a federation: a pin of each, by its name.

    Args:
        path: a JSON object; see `Directory`.

    Raises:
        WorkloadError: it is missing, names too few or too many, or holds something else.
    """
    value = read_json(path, "the list of sites' keys")
    if not is_dictionary(value):
        raise WorkloadError(f"{path} must be a JSON object: a pin by the name of each site")
    bounds.FEDERATION["secure_sites"].check(f"the number of sites in {path}", len(value))
    for name, pin in value.items():
        bounds.FORMS["federation"]["site"].check(f"the name of a site in {path}", name)
        bounds.FORMS["federation"]["site_key"].check(f"the key of {name} in {path}", pin)
    return dict(value)


def _common_name(certificate: x509.Certificate) -> str:
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(names[0].value) if len(names) == 1 else ""


def _issued(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        limits = authority.extensions.get_extension_for_class(x509.BasicConstraints).value
        certificate.verify_directly_issued_by(authority)
    except (x509.ExtensionNotFound, ValueError, TypeError, InvalidSignature):
        return False
    return limits.ca


def _signed(key: object, data: bytes, signature: bytes) -> bool:
    try:
        if isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, _CURVES):
            key.verify(signature, data, ec.ECDSA(hashes.SHA256()))
        elif isinstance(key, rsa.RSAPublicKey):
            key.verify(signature, data, _PADDING, hashes.SHA256())
        elif isinstance(key, ed25519.Ed25519PublicKey):
            key.verify(signature, data)
        else:
            return False
    except InvalidSignature:
        return False
    return True
