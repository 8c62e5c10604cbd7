"""Ed25519 keys on disk, their public names, and detached signatures of documents."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from pathlib import Path
from typing import Any, cast

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from falaj.workloads.errors import IntegrityError, WorkloadError
from falaj.workloads.files import read_bytes, write_atomic

SIGNATURE_FORMAT = "falaj.signature/1"
ALGORITHM = "Ed25519"


def make_private_key(path: Path) -> Ed25519PrivateKey:
    """Make a private key and write it as unencrypted PKCS#8 PEM, mode 0600."""
    key = Ed25519PrivateKey.generate()
    write_atomic(
        path, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()), mode=0o600
    )
    return key


def write_public_key(path: Path, key: Ed25519PublicKey) -> None:
    """Write a public key as SubjectPublicKeyInfo PEM, readable by everybody."""
    pem = key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    write_atomic(path, pem, mode=0o644)


def read_private_key(path: Path) -> Ed25519PrivateKey:
    """Read an Ed25519 private key in PEM.

    Raises:
        WorkloadError: missing, open to other users, or not an Ed25519 private key.
    """
    check_private(path, "the private key")
    try:
        key = load_pem_private_key(read_bytes(path, "the private key"), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise WorkloadError(f"{path} isn't an Ed25519 private key in PEM: {error}") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise WorkloadError(f"{path} holds a {type(key).__name__}; an Ed25519 key is needed")
    return key


def read_public_key(path: Path) -> Ed25519PublicKey:
    """Read an Ed25519 public key in PEM.

    Raises:
        WorkloadError: missing, or not an Ed25519 public key.
    """
    try:
        key = load_pem_public_key(read_bytes(path, "the public key"))
    except (ValueError, UnsupportedAlgorithm) as error:
        raise WorkloadError(f"{path} isn't an Ed25519 public key in PEM: {error}") from error
    if not isinstance(key, Ed25519PublicKey):
        raise WorkloadError(f"{path} holds a {type(key).__name__}; an Ed25519 key is needed")
    return key


def check_private(path: Path, what: str) -> None:
    """Refuse a secret that other users of the machine could read or change.

    Raises:
        WorkloadError: it is missing, no ordinary file, or its mode lets others in.
    """
    try:
        found = path.lstat()
    except OSError as error:
        raise WorkloadError(f"{what} is missing: there is no file {path}") from error
    if not path.is_file() or path.is_symlink():
        raise WorkloadError(f"{what} {path} must be an ordinary file")
    if found.st_mode & 0o077:
        message = f"{what} {path} is open to other users (mode {found.st_mode & 0o777:04o})"
        raise WorkloadError(f"{message}; only its owner may read it: run chmod 600 {path}")


def public_jwk(key: Ed25519PublicKey) -> dict[str, str]:
    """Return the public key as a JSON Web Key (RFC 8037), without ``kid``."""
    raw = key.public_bytes(Encoding.Raw, PublicFormat.Raw)
    return {"crv": "Ed25519", "kty": "OKP", "x": _base64url(raw)}


def key_id(key: Ed25519PublicKey) -> str:
    """Return the key's JWK thumbprint (RFC 7638, SHA-256): 43 characters of base64url."""
    canonical = json.dumps(public_jwk(key), sort_keys=True, separators=(",", ":"))
    return _base64url(hashlib.sha256(canonical.encode()).digest())


def sign(payload: bytes, payload_type: str, key: Ed25519PrivateKey) -> bytes:
    """Return a detached signature of ``payload`` as a small JSON document."""
    document = {
        "format": SIGNATURE_FORMAT,
        "algorithm": ALGORITHM,
        "key_id": key_id(key.public_key()),
        "signature": base64.b64encode(key.sign(_encode(payload, payload_type))).decode(),
    }
    return (json.dumps(document, indent=2) + "\n").encode()


def verify(
    payload: bytes, payload_type: str, signature: bytes, key: Ed25519PublicKey, what: str
) -> None:
    """Check a detached signature against one trusted public key.

    The algorithm and the key are the caller's: what the document says of them only improves the
    message. ``what`` names the signed thing in errors.

    Raises:
        IntegrityError: the signature is malformed, of another signer, or of other content.
    """
    document = _parse(signature, what)
    expected = key_id(key)
    if document["key_id"] != expected:
        message = f"{what} was signed by key {document['key_id']!r}, not by the trusted {expected}"
        raise IntegrityError(f"{message}; use the key ring that it was published with")
    try:
        raw = base64.b64decode(document["signature"], validate=True)
        key.verify(raw, _encode(payload, payload_type))
    except (InvalidSignature, binascii.Error, ValueError) as error:
        message = f"the signature of {what} doesn't match its content: it was changed"
        raise IntegrityError(f"{message}; publish it again or restore it") from error


def _parse(signature: bytes, what: str) -> dict[str, str]:
    try:
        document: Any = json.loads(signature)
    except (ValueError, RecursionError) as error:
        raise IntegrityError(f"the signature of {what} isn't valid JSON: {error}") from error
    fields = {"format", "algorithm", "key_id", "signature"}
    if not isinstance(document, dict) or set(cast(dict[str, Any], document)) != fields:
        allowed = ", ".join(sorted(fields))
        raise IntegrityError(f"the signature of {what} must hold exactly: {allowed}")
    values = cast(dict[str, Any], document)
    if values["format"] != SIGNATURE_FORMAT or values["algorithm"] != ALGORITHM:
        message = f"the signature of {what} has format {values['format']!r}"
        message += f" and algorithm {values['algorithm']!r}"
        raise IntegrityError(f"{message}; allowed: {SIGNATURE_FORMAT!r} with {ALGORITHM!r}")
    if not all(isinstance(value, str) for value in values.values()):
        raise IntegrityError(f"the signature of {what} holds something other than text")
    return cast(dict[str, str], values)


def _encode(payload: bytes, payload_type: str) -> bytes:
    # DSSE v1 pre-authentication encoding: a signature of one type of document can't be shown for
    # another. https://github.com/secure-systems-lab/dsse/blob/master/protocol.md
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
