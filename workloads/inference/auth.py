"""Who calls and what they may do: bearer tokens (EdDSA, ES256) and client certificates.

Tokens are JWTs (RFC 7519) signed by a key of the service's key set (RFC 7517). The algorithm is
that of the key, never the token's own choice: `none`, symmetric and unknown algorithms are
refused before any signature is looked at (RFC 8725, 3.1). A verified token is remembered until
it expires, so that a signature costs its time once and not per request.
"""

from __future__ import annotations

import ssl
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import jwt
import orjson
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from jwt.algorithms import ECAlgorithm, OKPAlgorithm

from falaj.workloads.inference.errors import InferenceError, RequestError
from falaj.workloads.inference.settings import SCOPES, AuthSettings

ALGORITHMS = {("OKP", "Ed25519"): "EdDSA", ("EC", "P-256"): "ES256"}
"""Key type and curve of a JWK, and the one algorithm that it may be used with."""
MAX_TOKEN_BYTES = 8192
MAX_REMEMBERED = 4096
MAX_SUBJECT_CHARACTERS = 256
REQUIRED_CLAIMS = ["exp", "iss", "aud", "sub"]
CHALLENGE = b"WWW-Authenticate: Bearer"


class Identity:
    """A caller that has proved who it is.

    ``expires`` is in seconds since the epoch: of the token, or of the client certificate.
    ``calls`` counts requests since the last audit record.
    """

    __slots__ = ("calls", "expires", "log_subject", "means", "scopes", "subject")

    def __init__(self, subject: str, scopes: frozenset[str], means: str, expires: float) -> None:
        self.subject = subject
        self.scopes = scopes
        self.means = means
        self.expires = expires
        self.calls = 0
        self.log_subject = orjson.dumps(subject)

    def require(self, scope: str) -> None:
        """Refuse with 403 unless the caller holds the scope (`admin` holds all of them)."""
        if scope not in self.scopes and "admin" not in self.scopes:
            held = ", ".join(sorted(self.scopes)) or "none"
            raise RequestError(
                403,
                f"this needs the scope {scope}; the scopes of {self.subject} are: {held}",
                headers=(b'WWW-Authenticate: Bearer error="insufficient_scope"',),
            )


def _refuse(reason: str) -> RequestError:
    return RequestError(401, reason, headers=(CHALLENGE + b' error="invalid_token"',))


def read_keys(path: Path) -> dict[str, jwt.PyJWK]:
    """Read a JWK set: key id -> public key.

    Raises:
        InferenceError: the file can't be read or holds no usable key.
    """
    try:
        document = orjson.loads(path.read_bytes())
    except OSError as error:
        raise InferenceError(f"can't read the token keys {path}: {error.strerror}") from error
    except orjson.JSONDecodeError as error:
        raise InferenceError(f"the token keys {path} are not JSON: {error}") from error
    keys: dict[str, jwt.PyJWK] = {}
    entries: list[Any] = document.get("keys") or [] if isinstance(document, dict) else []
    for entry in entries:
        kind = (entry.get("kty"), entry.get("crv")) if isinstance(entry, dict) else None
        algorithm = ALGORITHMS.get(cast("tuple[str, str]", kind))
        if algorithm is None or entry.get("alg", algorithm) != algorithm or "d" in entry:
            raise InferenceError(
                f"the token keys {path} hold a key of another kind than a public Ed25519 (EdDSA) "
                "or P-256 (ES256) key"
            )
        try:
            keys[str(entry.get("kid", ""))] = jwt.PyJWK(entry, algorithm)
        except jwt.PyJWTError as error:
            raise InferenceError(f"the token keys {path} hold a broken key: {error}") from error
    if not keys:
        raise InferenceError(f"the token keys {path} hold no key")
    return keys


class Authenticator:
    """Turns an `Authorization` header, or a client certificate, into an Identity."""

    def __init__(self, settings: AuthSettings) -> None:
        self._issuer = settings.issuer
        self._audience = settings.audience
        self._clients = settings.clients
        self._keys = read_keys(settings.jwks)
        self._remembered: dict[bytes, Identity] = {}

    def identify(
        self, authorization: bytes | None, certificate: Mapping[str, Any] | None
    ) -> Identity:
        """Return who calls. A token that is shown must be good, whatever the certificate says.

        Raises:
            RequestError: 401, with the reason, when there is no token and no certificate, or
                the token isn't valid; 403 for a certificate that the service doesn't know.
        """
        if authorization is not None:
            known = self._remembered.get(authorization)
            if known is not None and known.expires > time.time():
                return known
            return self._verify(authorization)
        if certificate:
            return self._client(certificate)
        raise RequestError(
            401,
            "no credentials: send 'Authorization: Bearer <token>' or use a client certificate",
            headers=(CHALLENGE,),
        )

    def _client(self, certificate: Mapping[str, Any]) -> Identity:
        names = [
            value
            for part in certificate.get("subject", ())
            for key, value in part
            if key == "commonName"
        ]
        name = str(names[-1]) if names else ""
        scopes = self._clients.get(name)
        if scopes is None:
            raise RequestError(
                403, f"this service doesn't know the client certificate of '{name}'"
            )
        expires = ssl.cert_time_to_seconds(str(certificate["notAfter"]))
        if expires <= time.time():
            raise _refuse("the client certificate has expired: renew it and connect again")
        return Identity(name, scopes, "certificate", float(expires))

    def _verify(self, authorization: bytes) -> Identity:
        scheme, _, token = authorization.partition(b" ")
        token = token.strip()
        if scheme.lower() != b"bearer" or not token:
            raise _refuse("the Authorization header must be 'Bearer <token>'")
        if len(token) > MAX_TOKEN_BYTES:
            raise _refuse(f"the token is longer than {MAX_TOKEN_BYTES} bytes")
        claims = self._claims(token)
        scope = claims.get("scope", "")
        if not isinstance(scope, str):
            raise _refuse("the token's scope claim must be a text of names, separated by spaces")
        subject = str(claims["sub"])
        if not subject.isprintable() or len(subject) > MAX_SUBJECT_CHARACTERS:
            raise _refuse("the token's subject must be a short, printable text")
        identity = Identity(subject, frozenset(scope.split()), "token", float(claims["exp"]))
        if len(self._remembered) >= MAX_REMEMBERED:
            self._remembered.clear()
        self._remembered[authorization] = identity
        return identity

    def _claims(self, token: bytes) -> dict[str, Any]:
        try:
            header = jwt.get_unverified_header(token)
            key = self._key(header)
            return jwt.decode(
                token,
                key.key,
                algorithms=[str(key.algorithm_name)],
                issuer=self._issuer,
                audience=self._audience,
                options={"require": REQUIRED_CLAIMS},
            )
        except jwt.ExpiredSignatureError as error:
            raise _refuse("the token has expired: get a new one") from error
        except jwt.InvalidAudienceError as error:
            raise _refuse("the token is meant for another service (audience)") from error
        except jwt.InvalidIssuerError as error:
            raise _refuse("the token comes from another issuer") from error
        except jwt.ImmatureSignatureError as error:
            raise _refuse("the token isn't valid yet") from error
        except jwt.MissingRequiredClaimError as error:
            raise _refuse(f"the token lacks the claim {error.claim}") from error
        except jwt.InvalidSignatureError as error:
            raise _refuse("the token's signature is wrong") from error
        # PyJWT lets a few plain ValueErrors and TypeErrors of odd claims through.
        except (jwt.PyJWTError, ValueError, TypeError) as error:
            raise _refuse("the token is not a valid JWT") from error

    def _key(self, header: Mapping[str, Any]) -> jwt.PyJWK:
        identifier = header.get("kid")
        if identifier is None and len(self._keys) == 1:
            key = next(iter(self._keys.values()))
        else:
            found = self._keys.get(identifier) if isinstance(identifier, str) else None
            if found is None:
                raise _refuse("the token is signed by a key that this service doesn't know")
            key = found
        if header.get("alg") != key.algorithm_name:
            raise _refuse("the token's algorithm isn't allowed: sign it with EdDSA or ES256")
        return key


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
