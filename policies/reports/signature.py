"""Detached Ed25519 signatures of pages of evidence, as `openssl pkeyutl` makes and verifies them.

A signature is 64 raw bytes (RFC 8032, section 5.1.6). It doesn't say whose it is, so a page that
is to be signed names the key: that tells a changed page from a wrong key.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Final

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from falaj.policies.model import PolicyError

#: Bytes of a signature.
SIZE: Final = 64
_NAMED: Final = re.compile(rb'<meta name="falaj-signed-by" content="sha256:([0-9a-f]{64})">')
_MAKE: Final = "make one with: openssl genpkey -algorithm ed25519 -aes256 -out KEY.pem"
_PUBLISH: Final = "who signed makes it with: openssl pkey -in KEY.pem -pubout -out PUB.pem"


class LockedKeyError(PolicyError):
    """A private key is encrypted, and no passphrase is given."""


@dataclass(frozen=True)
class Verification:
    """What became of a signature.

    Attributes:
        good: whether the key made it over exactly this page.
        key: fingerprint of the key that was given.
        named: fingerprint of the key that the page names; empty where it names none.
    """

    good: bool
    key: str
    named: str


def private_key(pem: bytes, passphrase: bytes | None = None) -> Ed25519PrivateKey:
    """A private key in PEM, PKCS#8.

    Args:
        pem: the file's content.
        passphrase: of a key that is encrypted. One that isn't needs none.

    Raises:
        LockedKeyError: the passphrase is missing.
        PolicyError: it is none, of another kind, or the passphrase is wrong. Nothing of the key
            is in the message.
    """
    try:
        found = load_pem_private_key(pem, None)
    except TypeError:
        if not passphrase:
            raise LockedKeyError("it is encrypted, and no passphrase is given") from None
        try:
            found = load_pem_private_key(pem, passphrase)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            raise PolicyError("it is encrypted, and the passphrase doesn't open it") from None
    except (ValueError, UnsupportedAlgorithm):
        raise PolicyError(
            f"no private key can be read from it; allowed: Ed25519 in PEM, PKCS#8\n  {_MAKE}"
        ) from None
    if not isinstance(found, Ed25519PrivateKey):
        raise PolicyError(f"given {_kind(found)}; allowed: Ed25519\n  {_MAKE}")
    return found


def public_key(pem: bytes) -> Ed25519PublicKey:
    """A public key in PEM. Raises PolicyError where it is none, or of another kind."""
    try:
        found = load_pem_public_key(pem)
    except (ValueError, UnsupportedAlgorithm):
        raise PolicyError(
            f"no public key can be read from it; allowed: Ed25519 in PEM\n  {_PUBLISH}"
        ) from None
    if not isinstance(found, Ed25519PublicKey):
        raise PolicyError(f"given {_kind(found)}; allowed: Ed25519\n  {_PUBLISH}")
    return found


def fingerprint(key: Ed25519PublicKey) -> str:
    """SHA-256 of a public key in DER, as hexadecimal digits.

    As printed by ``openssl pkey -pubin -in PUB.pem -outform DER | sha256sum``.
    """
    der = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(der).hexdigest()


def verify(page: bytes, signature: bytes, key: Ed25519PublicKey) -> Verification:
    """Whether a key made a signature over a page.

    Raises:
        PolicyError: what is given can't be a signature.
    """
    if len(signature) != SIZE:
        raise PolicyError(f"it is no Ed25519 signature: given {len(signature)} bytes, not {SIZE}")
    named = _NAMED.search(page)
    try:
        key.verify(signature, page)
        good = True
    except InvalidSignature:
        good = False
    return Verification(good, fingerprint(key), named[1].decode() if named else "")


def _kind(key: object) -> str:
    """The kind of a key by the name of its class, which holds nothing of the key."""
    return "a key of the kind " + re.sub(r"(Private|Public)Key$", "", type(key).__name__)
