"""Signs what was built: by cosign where the machine has it, else with a key of one's own.

The signed text is the one that cosign signs ("simple signing"), so that either can be checked by
the other: https://github.com/sigstore/cosign/blob/main/specs/SIGNATURE_SPEC.md
"""

from __future__ import annotations

import base64
import json
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from falaj.stacks.errors import StackError


def payload(reference: str, digest: str) -> bytes:
    """The text that is signed for an image.

    Args:
        reference: registry and repository, without tag.
        digest: ``sha256:…``.
    """
    return json.dumps(
        {
            "critical": {
                "identity": {"docker-reference": reference},
                "image": {"docker-manifest-digest": digest},
                "type": "cosign container image signature",
            },
            "optional": None,
        },
        separators=(",", ":"),
    ).encode()


def sign(text: bytes, key: Path) -> str:
    """Base64 of a signature.

    Args:
        text: what `payload` made.
        key: a private key in PEM, ECDSA (P-256 as cosign's) or Ed25519, without a passphrase.

    Raises:
        StackError: the key can't be used.
    """
    try:
        private = serialization.load_pem_private_key(key.read_bytes(), None)
    except OSError as error:
        raise StackError(f"key {key} cannot be read: {error.strerror}") from None
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise StackError(
            f"key {key}: allowed: a private key in PEM, ECDSA or Ed25519, without a passphrase; "
            "keys of cosign itself, which have one, need cosign on the PATH"
        ) from None
    if isinstance(private, ec.EllipticCurvePrivateKey):
        return base64.b64encode(private.sign(text, ec.ECDSA(hashes.SHA256()))).decode()
    if isinstance(private, ed25519.Ed25519PrivateKey):
        return base64.b64encode(private.sign(text)).decode()
    raise StackError(f"key {key}: given {type(private).__name__}; allowed: ECDSA or Ed25519")


def is_signed(text: bytes, signature: str, public_key: Path) -> bool:
    """Whether a signature is of this text, by the holder of the private key.

    Raises:
        StackError: the public key can't be used.
    """
    try:
        public = serialization.load_pem_public_key(public_key.read_bytes())
    except (OSError, ValueError, UnsupportedAlgorithm) as error:
        raise StackError(f"key {public_key} cannot be used: {error}") from None
    try:
        raw = base64.b64decode(signature, validate=True)
        if isinstance(public, ec.EllipticCurvePublicKey):
            public.verify(raw, text, ec.ECDSA(hashes.SHA256()))
        elif isinstance(public, ed25519.Ed25519PublicKey):
            public.verify(raw, text)
        else:
            raise StackError(f"key {public_key}: allowed: ECDSA or Ed25519")
    except (InvalidSignature, ValueError):
        return False
    return True
