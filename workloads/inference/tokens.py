"""Making a bearer token with the service's own token key."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from pathlib import Path

import jwt
import orjson
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from jwt.algorithms import ECAlgorithm, OKPAlgorithm

from falaj.workloads.inference.errors import InferenceError
from falaj.workloads.inference.settings import SCOPES

MAX_MINUTES = 60 * 24 * 366


def _key_id(key: Path) -> str | None:
    """Return the id of the key in the public key set beside it, where there is one.

    After a rotation the set may hold older keys too; the newest stands first or alone matches.
    """
    try:
        document = orjson.loads(key.with_name("tokens.jwks.json").read_bytes())
        public = _public_x(key)
        for entry in document["keys"]:
            if entry.get("x") == public:
                return str(entry["kid"])
    except (OSError, orjson.JSONDecodeError, KeyError, TypeError):
        return None
    return None


def _load(key: Path) -> Ed25519PrivateKey | EllipticCurvePrivateKey:
    try:
        private = load_pem_private_key(key.read_bytes(), password=None)
    except OSError as error:
        raise InferenceError(f"can't read the token key {key}: {error.strerror}") from error
    except (ValueError, TypeError) as error:
        raise InferenceError(f"{key} is not a private key in PEM form") from error
    if not isinstance(private, Ed25519PrivateKey | EllipticCurvePrivateKey):
        raise InferenceError(f"{key} is neither an Ed25519 nor a P-256 key")
    return private


def _public_x(key: Path) -> str:
    private = _load(key)
    if isinstance(private, Ed25519PrivateKey):
        document = OKPAlgorithm.to_jwk(private.public_key(), as_dict=True)
    else:
        document = ECAlgorithm.to_jwk(private.public_key(), as_dict=True)
    return str(document["x"])


def mint(
    key: Path, *, issuer: str, audience: str, subject: str, scopes: Sequence[str], minutes: float
) -> str:
    """Return a signed JWT that is valid from now for ``minutes``.

    Raises:
        InferenceError: the key is no Ed25519 or P-256 key, a scope is unknown, or the time is
            not in (0, one year].
    """
    for scope in scopes:
        if scope not in SCOPES:
            raise InferenceError(f"unknown scope '{scope}'; allowed are {', '.join(SCOPES)}")
    if not 0 < minutes <= MAX_MINUTES:
        raise InferenceError(
            f"--minutes must be over 0 and at most {MAX_MINUTES} (a year); got {minutes:g}"
        )
    private = _load(key)
    now = int(time.time())
    identifier = _key_id(key)
    return jwt.encode(
        {
            "iss": issuer,
            "aud": audience,
            "sub": subject,
            "scope": " ".join(scopes),
            "iat": now,
            "exp": now + max(1, round(minutes * 60)),
            "jti": uuid.uuid4().hex,
        },
        private,
        algorithm="EdDSA" if isinstance(private, Ed25519PrivateKey) else "ES256",
        headers={"kid": identifier} if identifier else None,
    )
