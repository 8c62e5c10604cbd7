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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, cast

import jwt
import orjson
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from jwt.algorithms import ECAlgorithm, OKPAlgorithm

from falaj.workloads.documents import is_sequence, mapping
from falaj.workloads.files import fingerprint, locked, write_json_atomic
from falaj.workloads.inference.errors import InferenceError, RequestError
from falaj.workloads.inference.settings import MAX_TOKEN_MINUTES, SCOPE, SCOPES, AuthSettings

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

    def require(
        self, scope: str, model: str | None = None, *, of_any: bool = False, names: bool = True
    ) -> None:
        """Refuse with 403 unless the caller holds the scope (`admin` holds all of them).

        Args:
            scope: out of `SCOPES`.
            model: for which it is enough to hold it. Default: it has to be held for all.
            of_any: whether it is enough to hold it for any one. Default: False.
            names: whether the refusal may name the model, as the caller has. Default: True.

        Raises:
            RequestError: 403, naming what is needed.
        """
        if self.holds(scope, model, of_any=of_any):
            return
        held = ", ".join(sorted(self.scopes)) or "none"
        limited = f" (or {scope}:{model})" if model is not None and names else ""
        raise RequestError(
            403,
            f"this needs the scope {scope}{limited}; the scopes of {self.subject} are: {held}",
            headers=(b'WWW-Authenticate: Bearer error="insufficient_scope"',),
        )

    def holds(self, scope: str, model: str | None = None, *, of_any: bool = False) -> bool:
        """Tell whether the caller holds a scope; as of `require`."""
        return (
            scope in self.scopes
            or "admin" in self.scopes
            or (model is not None and f"{scope}:{model}" in self.scopes)
            or (of_any and any(each.startswith(f"{scope}:") for each in self.scopes))
        )

    def sees(self, model: str) -> bool:
        """Tell whether the caller may know that there is such a model: by any scope for it."""
        return any(self.holds(scope, model) for scope in SCOPES)


def _refuse(reason: str) -> RequestError:
    return RequestError(401, reason, headers=(CHALLENGE + b' error="invalid_token"',))


class TokenKey(NamedTuple):
    """A key that tokens are verified with.

    ``expires`` is in seconds since the epoch: the end of a former key's overlap (`exp`, as in
    OpenID Federation 1.0, 8.7.2), infinite for the current one.
    """

    key: jwt.PyJWK
    expires: float


def read_keys(path: Path) -> dict[str, TokenKey]:
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
    keys: dict[str, TokenKey] = {}
    entries = mapping(document).get("keys")
    for each in entries if is_sequence(entries) else []:
        entry = dict(mapping(each))
        algorithm = ALGORITHMS.get((str(entry.get("kty")), str(entry.get("crv"))))
        if algorithm is None or entry.get("alg", algorithm) != algorithm or "d" in entry:
            raise InferenceError(
                f"the token keys {path} hold a key of another kind than a public Ed25519 (EdDSA) "
                "or P-256 (ES256) key"
            )
        expires = entry.get("exp", float("inf"))
        if not isinstance(expires, int | float) or isinstance(expires, bool):
            raise InferenceError(f"the token keys {path} hold an exp that is no number of seconds")
        try:
            keys[str(entry.get("kid", ""))] = TokenKey(jwt.PyJWK(entry, algorithm), expires)
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
        self._jwks = settings.jwks
        self._keys: dict[str, TokenKey] = {}
        self._most_seconds = settings.max_token_minutes * 60
        self._revoked = settings.revoked
        self._revocations = Revocations()
        self._marks: tuple[tuple[int, int, int] | None, ...] = ()
        self._remembered: dict[bytes, Identity] = {}
        self.refresh()

    def refresh(self) -> bool:
        """Read the keys and the revoked tokens again if they have changed; tell whether they have.

        Raises:
            InferenceError: a file is damaged; what was read of it before holds.
        """
        revoked = self._revoked
        marks = tuple(fingerprint(path) for path in (self._jwks, revoked) if path is not None)
        if marks == self._marks:
            return False
        self._marks = marks
        self._remembered.clear()
        try:
            if revoked is not None:
                self._revocations = Revocations.read(revoked)
        finally:
            # One that is damaged doesn't keep the other from being followed.
            self._keys = read_keys(self._jwks)
        return True

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
        claims, until = self._claims(token)
        scope = claims.get("scope", "")
        if not isinstance(scope, str):
            raise _refuse("the token's scope claim must be a text of names, separated by spaces")
        subject = str(claims["sub"])
        if not subject.isprintable() or len(subject) > MAX_SUBJECT_CHARACTERS:
            raise _refuse("the token's subject must be a short, printable text")
        self._check_life(claims)
        if self._revocations.hold(claims):
            raise _refuse("the token was revoked: get a new one")
        expires = min(float(claims["exp"]), until)
        identity = Identity(subject, frozenset(scope.split()), "token", expires)
        if len(self._remembered) >= MAX_REMEMBERED:
            self._remembered.clear()
        self._remembered[authorization] = identity
        return identity

    def _check_life(self, claims: Mapping[str, Any]) -> None:
        """A token that is stolen is good for its whole life, so that is bounded."""
        issued = claims.get("iat", time.time())
        if float(claims["exp"]) - float(issued) > self._most_seconds:
            raise _refuse(
                f"the token lives longer than the {self._most_seconds / 60:g} minutes allowed: "
                "get one for less"
            )

    def _claims(self, token: bytes) -> tuple[dict[str, Any], float]:
        """The claims of a token that is valid, and until when its key is."""
        try:
            header = jwt.get_unverified_header(token)
            key, until = self._key(header)
            claims = jwt.decode(
                token,
                key.key,
                algorithms=[str(key.algorithm_name)],
                issuer=self._issuer,
                audience=self._audience,
                options={"require": REQUIRED_CLAIMS},
            )
            return claims, until
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

    def _key(self, header: Mapping[str, Any]) -> TokenKey:
        identifier = header.get("kid")
        if identifier is None and len(self._keys) == 1:
            found = next(iter(self._keys.values()))
        else:
            found = self._keys.get(identifier) if isinstance(identifier, str) else None
            if found is None:
                raise _refuse("the token is signed by a key that this service doesn't know")
        if found.expires <= time.time():
            raise _refuse("the token is signed by a key that was rotated out: get a new one")
        if header.get("alg") != found.key.algorithm_name:
            raise _refuse("the token's algorithm isn't allowed: sign it with EdDSA or ES256")
        return found


# Revoked tokens: by their own id, or all that a subject has got up to a moment.

REVOKED_FORMAT = "falaj.revoked/1"


@dataclass(frozen=True)
class Revocations:
    """Tokens that aren't valid any more.

    Attributes:
        tokens: by id (`jti`), until when the token would have been valid, seconds since the epoch.
        subjects: by subject, the moment up to which its tokens were issued (`iat`), likewise.
    """

    tokens: Mapping[str, float] = field(default_factory=dict[str, float])
    subjects: Mapping[str, float] = field(default_factory=dict[str, float])

    @classmethod
    def read(cls, path: Path) -> Revocations:
        """Read a list; a file that isn't there is an empty one.

        Raises:
            InferenceError: it can't be read, or is no such list.
        """
        try:
            document = orjson.loads(path.read_bytes())
        except FileNotFoundError:
            return cls()
        except (OSError, orjson.JSONDecodeError) as error:
            raise InferenceError(f"can't read the revoked tokens {path}: {error}") from error
        match document:
            case {"format": "falaj.revoked/1", "tokens": {**ids}, "subjects": {**names}}:
                tokens, subjects = cast("dict[str, Any]", ids), cast("dict[str, Any]", names)
                moments = [*tokens.values(), *subjects.values()]
                if all(type(each) in (int, float) for each in moments):
                    return cls(tokens, subjects)
            case _:
                pass
        raise InferenceError(
            f"{path} isn't a list of revoked tokens: restore it, or write it anew with `revoke`"
        )

    def hold(self, claims: Mapping[str, Any]) -> bool:
        """Tell whether a token is among them; one without `iat` is of before any moment."""
        if claims.get("jti") in self.tokens:
            return True
        moment = self.subjects.get(str(claims["sub"]))
        return moment is not None and float(claims.get("iat", 0)) <= moment

    def write(self, path: Path, now: float) -> None:
        """Replace a list; tokens that have expired since are left out.

        Raises:
            WorkloadError: it can't be written.
        """
        tokens = {name: until for name, until in self.tokens.items() if until > now}
        document = {
            "format": REVOKED_FORMAT, "tokens": tokens, "subjects": dict(self.subjects),
        }  # fmt: skip
        write_json_atomic(path, document)


def revoke(path: Path, *, token: str | None = None, subject: str | None = None) -> str:
    """Add to a list of revoked tokens, which servers read again within a second.

    Args:
        path: the list; made if there is none.
        token: a token; it need not be valid. Default: none.
        subject: whose tokens of up to now are revoked. Default: nobody's.

    Returns:
        What was revoked, in words.

    Raises:
        WorkloadError: the token is none, or has no id; or the list can't be read or written.
    """
    now = time.time()
    with locked(path.with_name(f".{path.name}.lock")):
        before = Revocations.read(path)
        tokens, subjects = dict(before.tokens), dict(before.subjects)
        revoked: list[str] = []
        if token is not None:
            try:
                claims = jwt.decode(token, options={"verify_signature": False})
                identifier, until = str(claims["jti"]), float(claims["exp"])
            except (jwt.PyJWTError, KeyError, TypeError, ValueError) as error:
                raise InferenceError(
                    "what was given is no token with an id (jti) and an end (exp); revoke its "
                    "subject instead"
                ) from error
            tokens[identifier] = until
            revoked.append(f"the token {identifier}")
        if subject is not None:
            subjects[subject] = now
            revoked.append(f"all tokens of {subject} until now")
        Revocations(tokens, subjects).write(path, now)
    return " and ".join(revoked)


USUAL_MINUTES = AuthSettings.max_token_minutes
"""Longest life of a token, if nothing else is said."""


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
    key: Path, *, issuer: str, audience: str, subject: str, scopes: Sequence[str],
    minutes: float, long_lived: bool = False,
) -> str:  # fmt: skip
    """Return a signed JWT that is valid from now for ``minutes``.

    Args:
        key: the private key.
        issuer: of the token.
        audience: of the token.
        subject: whom the logs shall name.
        scopes: out of `SCOPES`, each but `admin` also for one model, as in ``predict:price``.
        minutes: validity.
        long_lived: allow up to `MAX_TOKEN_MINUTES`, for services whose `max_token_minutes` does.
            Default: False, up to `USUAL_MINUTES`.

    Raises:
        InferenceError: the key is no Ed25519 or P-256 key, a scope is unknown, or the time is
            not allowed.
    """
    for scope in scopes:
        if not SCOPE.allows(scope):
            raise InferenceError(f"unknown scope '{scope}'; allowed are {SCOPE.rule}")
    most = MAX_TOKEN_MINUTES if long_lived else USUAL_MINUTES
    if not 0 < minutes <= most:
        hint = "" if long_lived else "; --long-lived allows more"
        raise InferenceError(f"--minutes must be over 0 and at most {most}; got {minutes:g}{hint}")
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
