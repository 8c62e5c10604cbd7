"""The keys of one site: versioned key-encryption keys, the signing key and the token key.

What a server needs goes through a secret store to where it runs: the key-encryption keys, the key
that verifies packages and the public keys of tokens. Who holds the archive can read models, and
can neither sign a package nor make a token.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import io
import json
import os
import re
import tarfile
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol, cast

from cryptography.exceptions import InvalidSignature, InvalidTag, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from falaj.workloads.bounds import VERSION_NUMBER
from falaj.workloads.documents import mapping
from falaj.workloads.errors import IntegrityError, RetiredKeyError, WorkloadError
from falaj.workloads.files import (
    TEMPORARY_PREFIX,
    locked,
    make_private_folder,
    read_bytes,
    read_json,
    shred,
    storage_errors,
    write_atomic,
    write_json_atomic,
)

# Ed25519 keys on disk, their public names, and detached signatures of documents.

SIGNATURE_FORMAT = "falaj.signature/1"
ALGORITHM = "Ed25519"
_SIGNS = "signing.pem"
_TOKENS = "tokens.pem"
_JWKS = "tokens.jwks.json"
TOKEN_OVERLAP = timedelta(hours=24)
"""For which tokens of a rotated key go on: as long as one lives, if nothing else is said
(`max_token_minutes` of `falaj.workloads.inference.settings`)."""
VERIFIES = "signing.pub.pem"


def make_private_key(path: Path) -> Ed25519PrivateKey:
    """Make a private key and write it as unencrypted PKCS#8 PEM, mode 0600."""
    key = Ed25519PrivateKey.generate()
    write_private_key(path, key)
    return key


def write_private_key(path: Path, key: Ed25519PrivateKey) -> None:
    """Write a private key as unencrypted PKCS#8 PEM, mode 0600."""
    write_atomic(
        path, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()), mode=0o600
    )


def write_public_key(path: Path, key: Trusted) -> None:
    """Write public keys as SubjectPublicKeyInfo PEM, readable by everybody."""
    write_atomic(path, trusted_keys(key).to_pem(), mode=0o644)


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


@dataclass(frozen=True, slots=True)
class VerifyKey:
    """Who is trusted to sign: one key, and those before it that a rotation has left valid.

    Attributes:
        current: the key that signs now.
        former: earlier ones, newest first; they sign nothing any more.
    """

    current: Ed25519PublicKey
    former: tuple[Ed25519PublicKey, ...] = ()

    @property
    def ids(self) -> tuple[str, ...]:
        """The id of each, the current one's first."""
        return tuple(key_id(key) for key in (self.current, *self.former))

    def find(self, identifier: str) -> Ed25519PublicKey | None:
        """The key with this id; None: it isn't trusted."""
        for key in (self.current, *self.former):
            if key_id(key) == identifier:
                return key
        return None

    def to_pem(self) -> bytes:
        """All of them, as SubjectPublicKeyInfo, one after the other."""
        return b"".join(
            key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
            for key in (self.current, *self.former)
        )


Trusted = Ed25519PublicKey | VerifyKey
"""What signatures are held against."""


def trusted_keys(key: Trusted) -> VerifyKey:
    """One form of both."""
    return key if isinstance(key, VerifyKey) else VerifyKey(key)


_PEM_END = b"-----END PUBLIC KEY-----"


def read_public_key(path: Path) -> VerifyKey:
    """Read Ed25519 public keys in PEM: the current one, and behind it those before it.

    Raises:
        WorkloadError: missing, or not Ed25519 public keys.
    """
    return public_keys_of(read_bytes(path, "the public key"), str(path))


def public_keys_of(pem: bytes, what: str) -> VerifyKey:
    """The Ed25519 public keys of a text in PEM, as `read_public_key`; ``what`` names it in errors.

    Raises:
        WorkloadError: they aren't such keys.
    """
    *blocks, rest = pem.split(_PEM_END)
    keys: list[Ed25519PublicKey] = []
    try:
        for block in blocks or [rest]:
            key = load_pem_public_key(block + _PEM_END)
            if not isinstance(key, Ed25519PublicKey):
                kind = type(key).__name__
                raise WorkloadError(f"{what} holds a {kind}; an Ed25519 key is needed")
            keys.append(key)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise WorkloadError(f"{what} isn't an Ed25519 public key in PEM: {error}") from error
    return VerifyKey(keys[0], tuple(keys[1:]))


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


def _token_jwk(key: Ed25519PublicKey) -> dict[str, Any]:
    return {**public_jwk(key), "kid": key_id(key), "use": "sig", "alg": "EdDSA"}


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


def verify(payload: bytes, payload_type: str, signature: bytes, key: Trusted, what: str) -> None:
    """Check a detached signature against the trusted public keys.

    The algorithm and the key are the caller's: what the document says of them only improves the
    message. ``what`` names the signed thing in errors.

    Raises:
        IntegrityError: the signature is malformed, of another signer, or of other content.
    """
    document = _parse(signature, what)
    trusted = trusted_keys(key)
    signer = trusted.find(document["key_id"])
    if signer is None:
        expected = " or ".join(trusted.ids)
        message = f"{what} was signed by key {document['key_id']!r}, not by the trusted {expected}"
        raise IntegrityError(f"{message}; use the key ring that it was published with")
    try:
        raw = base64.b64decode(document["signature"], validate=True)
        signer.verify(raw, _encode(payload, payload_type))
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


KEY_BYTES = 32
"""AES-256, for key-encryption keys and data keys alike."""


@dataclass(frozen=True, slots=True)
class WrappedKey:
    """A data key, encrypted under the key-encryption key ``key_id``.

    ``ciphertext`` is opaque: what the key service needs to unwrap it.
    """

    key_id: str
    ciphertext: bytes

    def to_json(self) -> dict[str, str]:
        """Return ``{"key_id", "ciphertext"}``, the latter in base64."""
        encoded = base64.b64encode(self.ciphertext).decode()
        return {"key_id": self.key_id, "ciphertext": encoded}

    @classmethod
    def from_json(cls, value: object, what: str) -> WrappedKey:
        """Read back :meth:`to_json`; ``what`` names the place in errors.

        Raises:
            IntegrityError: not such a value.
        """
        match mapping(value):
            case {"key_id": str(version), "ciphertext": str(text), **rest} if not rest:
                with contextlib.suppress(binascii.Error, ValueError):
                    return cls(version, base64.b64decode(text, validate=True))
            case _:
                pass
        raise IntegrityError(f"the wrapped key of {what} is malformed: it was changed")


class KeyService(Protocol):
    """What wraps data keys: the key ring here, a cloud's key management service elsewhere."""

    @property
    def primary(self) -> str:
        """The id of the key that new data keys are wrapped under."""
        ...

    def wrap(self, key: bytes, context: bytes) -> WrappedKey:
        """Encrypt a data key; the same ``context`` must be shown to unwrap it."""
        ...

    def unwrap(self, wrapped: WrappedKey, context: bytes) -> bytes:
        """Return the data key, or raise :class:`IntegrityError`."""
        ...

    def steady(self) -> AbstractContextManager[None]:
        """Hold off the end of a rotation, so that no key is retired while the block runs."""
        ...


KEYRING_FORMAT = "falaj.keyring/1"
_NONCE_BYTES = 12  # NIST SP 800-38D: 96 bits, at random; far fewer than 2^32 wraps per key
_INDEX = "keyring.json"
_LOCK = ".lock"
VERSION = re.compile(VERSION_NUMBER)


class KeyRing:
    """Keys in a private folder: ``keyring.json``, ``kek-<version>.key``, two Ed25519 keys.

    Safe between processes: rotation waits for those inside :meth:`steady`, and they for it.
    """

    def __init__(self, path: Path, primary: str, keys: dict[str, str]) -> None:
        """Use :meth:`create` or :meth:`open`."""
        self.path = path
        self._primary = primary
        self._created = keys

    @classmethod
    def create(cls, path: Path) -> KeyRing:
        """Make a key ring, or open the one that is there; an interrupted creation is completed.

        Raises:
            WorkloadError: the folder can't be made, or an existing ring is damaged.
        """
        make_private_folder(path)
        with locked(path / _LOCK):
            if not (path / _INDEX).exists():
                # The index is written last: without it nothing was ever wrapped or signed here.
                signing = make_private_key(path / _SIGNS)
                write_public_key(path / VERIFIES, signing.public_key())
                tokens = make_private_key(path / _TOKENS).public_key()
                write_json_atomic(path / _JWKS, {"keys": [_token_jwk(tokens)]}, mode=0o644)
                _write_kek(path, "1")
                _write_index(path, "1", {"1": _now()})
        return cls.open(path)

    @classmethod
    def open(cls, path: Path) -> KeyRing:
        """Open an existing key ring.

        Raises:
            WorkloadError: there is none, a key file is missing or open to other users, or the
                index is damaged.
        """
        primary, keys = _read_index(path)
        for version in keys:
            check_private(_kek_path(path, version), f"version {version} of the key ring")
        return cls(path, primary, keys)

    @property
    def primary(self) -> str:
        """The version that new data keys are wrapped under."""
        return self._primary

    @property
    def versions(self) -> list[str]:
        """The versions that can unwrap, oldest first."""
        return sorted(self._created, key=int)

    @property
    def signing_key_id(self) -> str:
        """The thumbprint of the key that signs packages."""
        return key_id(self.verify_key().current)

    @property
    def token_key_id(self) -> str:
        """The thumbprint (``kid``) of the key that signs tokens."""
        return key_id(read_private_key(self.path / _TOKENS).public_key())

    @property
    def signs(self) -> bool:
        """Whether the key that signs packages is here; a pod's key ring hasn't it."""
        return (self.path / _SIGNS).is_file()

    def signing_key(self) -> Ed25519PrivateKey:
        """Return the private key that signs packages."""
        return read_private_key(self.path / _SIGNS)

    def verify_key(self) -> VerifyKey:
        """Return the public keys that packages are verified with."""
        return read_public_key(self.path / VERIFIES)

    def verify(self, payload: bytes, payload_type: str, signature: bytes, what: str) -> None:
        """As the function `verify`, against the key that verifies packages."""
        verify(payload, payload_type, signature, self.verify_key(), what)

    @contextlib.contextmanager
    def steady(self) -> Generator[None, None, None]:
        """Keep rotation out while the block runs, and see what an earlier one did.

        Whoever wraps a key and stores it, or reads a wrapped key and unwraps it, does both inside
        one such block. Blocks may nest; a rotation must not be started inside one.
        """
        with locked(self.path / _LOCK, shared=True):
            self._reload()
            yield

    def wrap(self, key: bytes, context: bytes) -> WrappedKey:
        """Encrypt a data key with AES-256-GCM under the primary version, bound to ``context``."""
        nonce = os.urandom(_NONCE_BYTES)
        version = self._primary
        sealed = AESGCM(self._kek(version)).encrypt(nonce, key, _binding(version, context))
        return WrappedKey(version, nonce + sealed)

    def unwrap(self, wrapped: WrappedKey, context: bytes) -> bytes:
        """Return the data key of ``wrapped``.

        Raises:
            IntegrityError: another context or key ring, or changed bytes.
            RetiredKeyError: the version was retired.
        """
        version = wrapped.key_id
        if version not in self._created:
            have = ", ".join(self.versions)
            message = f"the data key is wrapped under version {version!r} of a key ring"
            raise RetiredKeyError(
                f"{message}, but {self.path} has only {have}: it was retired or is of another ring"
            )
        nonce, sealed = wrapped.ciphertext[:_NONCE_BYTES], wrapped.ciphertext[_NONCE_BYTES:]
        try:
            return AESGCM(self._kek(version)).decrypt(nonce, sealed, _binding(version, context))
        except (InvalidTag, ValueError) as error:
            message = (
                "the wrapped data key doesn't open: it was changed or belongs to another file"
            )
            raise IntegrityError(f"{message}, or {self.path} isn't its key ring") from error

    def rotate(self) -> str:
        """Make a new primary version and return it; older versions still unwrap.

        Raises:
            WorkloadError: the folder can't be written; the old primary stays.
        """
        with locked(self.path / _LOCK):
            return self.rotate_locked()

    def rotate_signing_locked(self, keep: Callable[[str], bool], now: datetime) -> None:
        """Make a new key that signs packages and one that signs tokens; the old ones are shredded.

        What they signed is still believed: packages of the key before, and of those for whose id
        ``keep`` says so; tokens for `TOKEN_OVERLAP`. Where an earlier rotation was interrupted,
        both are made anew. Only for a caller that is inside :meth:`exclusive`, with a key ring
        that signs.
        """
        before = self.verify_key()
        # Of an interrupted rotation the current one has never signed.
        in_use = key_id(self.signing_key().public_key())
        kept = [
            key
            for key in (before.current, *before.former)
            if key_id(key) == in_use or keep(key_id(key))
        ]
        self._replace(_SIGNS, lambda new: write_public_key(
            self.path / VERIFIES, VerifyKey(new, tuple(kept))
        ))  # fmt: skip
        if not (self.path / _TOKENS).is_file():
            return  # a publisher's, which makes no tokens
        until = int((now + TOKEN_OVERLAP).timestamp())
        former = [
            {**entry, "exp": min(until, entry.get("exp", until))}
            for entry in self._token_keys()
            if entry.get("exp", until) > now.timestamp()
        ]
        self._replace(_TOKENS, lambda new: write_json_atomic(
            self.path / _JWKS, {"keys": [_token_jwk(new), *former]}, mode=0o644
        ))  # fmt: skip

    def distrust_former_locked(self) -> None:
        """Believe nothing any more that a key before the current ones signed.

        Only for a caller that is inside :meth:`exclusive`.
        """
        write_public_key(self.path / VERIFIES, self.verify_key().current)
        write_json_atomic(self.path / _JWKS, {"keys": self._token_keys()[:1]}, mode=0o644)

    def _token_keys(self) -> list[dict[str, Any]]:
        document: Any = read_json(self.path / _JWKS, "the token keys")
        match document:
            case {"keys": [*entries]} if all(isinstance(each, dict) for each in entries):
                return cast("list[dict[str, Any]]", entries)
            case _:
                raise WorkloadError(f"{self.path / _JWKS} isn't a set of keys: restore it")

    def _replace(self, name: str, announce: Callable[[Ed25519PublicKey], None]) -> None:
        """Replace a private key; its public half is known before anything is signed with it."""
        path, kept = self.path / name, self.path / f"{TEMPORARY_PREFIX}{name}"
        key = Ed25519PrivateKey.generate()
        announce(key.public_key())
        with storage_errors(kept):
            if kept.exists() and kept.samefile(path):
                kept.unlink()  # an interrupted rotation: the key is still the one in use
        shred(kept)
        with storage_errors(kept):
            os.link(path, kept, follow_symlinks=False)
        write_private_key(path, key)
        shred(kept)

    def rotate_locked(self) -> str:
        """As :meth:`rotate`, for a caller that is inside :meth:`exclusive`."""
        self._reload()
        # The primary is the newest and can't be retired, so a number never comes twice.
        version = str(max(int(known) for known in self._created) + 1)
        _write_kek(self.path, version)
        _write_index(self.path, version, {**self._created, version: _now()})
        self._reload()
        return version

    def retire(self, version: str) -> None:
        """Forget a version and shred its key: what is still wrapped under it is lost for good.

        Raises:
            WorkloadError: it is the primary, or there is no such version.
        """
        with locked(self.path / _LOCK):
            self.retire_locked(version)

    def retire_locked(self, version: str) -> None:
        """As :meth:`retire`, for a caller that is inside :meth:`exclusive`."""
        self._reload()
        if version == self._primary:
            raise WorkloadError(f"version {version} is the primary of {self.path}: rotate first")
        if version not in self._created:
            have = ", ".join(self.versions)
            raise WorkloadError(f"{self.path} has no version {version!r}; it has {have}")
        left = {known: at for known, at in self._created.items() if known != version}
        _write_index(self.path, self._primary, left)
        self._reload()
        self.shred_unlisted()

    def shred_unlisted(self) -> None:
        """Shred key files that the index doesn't name: leftovers of an interrupted rotation.

        Only for a caller that is inside :meth:`exclusive`.
        """
        for path in self.path.glob(f"{TEMPORARY_PREFIX}*"):
            shred(path)
        for path in self.path.glob("kek-*.key"):
            if path.name not in {f"kek-{version}.key" for version in self._created}:
                shred(path)

    def exclusive(self) -> AbstractContextManager[None]:
        """Keep everybody else out, for a rotation that re-wraps."""
        return locked(self.path / _LOCK)

    def shred(self) -> None:
        """Overwrite and remove every key: nothing that was encrypted can be read again."""
        shred_keyring(self.path)

    def _reload(self) -> None:
        self._primary, self._created = _read_index(self.path)

    def _kek(self, version: str) -> bytes:
        path = _kek_path(self.path, version)
        what = f"version {version} of the key ring"
        check_private(path, what)
        key = read_bytes(path, what)
        if len(key) != KEY_BYTES:
            raise WorkloadError(
                f"{path} holds {len(key)} bytes; a key has {KEY_BYTES}: restore it"
            )
        return key


def shred_keyring(path: Path) -> None:
    """Shred the key ring in ``path``, even a damaged one or one that is half shredded.

    Files that aren't a key ring's are left, and the folder with them. A missing folder is fine.

    Raises:
        WorkloadError: a file can't be removed.
    """
    if not path.is_dir():
        return
    with locked(path / _LOCK):
        # The index goes last: an interrupted shredding leaves a ring that opens with an error,
        # not one that create would silently replace.
        secrets = [*sorted(path.glob("kek-*.key")), path / _SIGNS, path / _TOKENS]
        for file in [*secrets, *path.glob(".tmp-*"), path / VERIFIES]:
            shred(file)
        shred(path / _JWKS)
        shred(path / _INDEX)
        shred(path / _LOCK)
    if not any(path.iterdir()):
        with storage_errors(path):
            path.rmdir()


def _kek_path(path: Path, version: str) -> Path:
    return path / f"kek-{version}.key"


def _write_kek(path: Path, version: str) -> None:
    write_atomic(_kek_path(path, version), os.urandom(KEY_BYTES))


def _write_index(path: Path, primary: str, created: dict[str, str]) -> None:
    keys = {version: {"created": at} for version, at in created.items()}
    index = {"format": KEYRING_FORMAT, "primary": primary, "keys": keys}
    write_json_atomic(path / _INDEX, index)


def _read_index(path: Path) -> tuple[str, dict[str, str]]:
    if not (path / _INDEX).is_file():
        message = f"there is no key ring in {path}"
        raise WorkloadError(
            f"{message}; make one: python -m falaj.workloads.registry keyring create"
        )
    index: Any = read_json(path / _INDEX, "the key ring")
    created: dict[str, str] = {}
    match index:
        case {"format": "falaj.keyring/1", "primary": str(primary), "keys": {**keys}}:
            for version, entry in cast(dict[str, Any], keys).items():
                match entry:
                    case {"created": str(at)} if VERSION.fullmatch(version):
                        created[version] = at
                    case _:
                        raise WorkloadError(f"{path / _INDEX}: version {version!r} is malformed")
            if primary in created:
                return primary, created
            raise WorkloadError(f"{path / _INDEX}: the primary {primary!r} isn't among its keys")
        case _:
            message = f"{path / _INDEX} isn't a key ring of format {KEYRING_FORMAT!r}"
            raise WorkloadError(f"{message}: restore it, or shred the ring and make a new one")


def _binding(version: str, context: bytes) -> bytes:
    return b"falaj.wrap/1\0" + version.encode() + b"\0" + context


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


MAX_BYTES = 1 << 20
"""Secret stores take some tens of KiB (AWS Secrets Manager 64 KiB, Kubernetes 1 MiB)."""
_NAME = re.compile(
    rf"keyring\.json|kek-{VERSION_NUMBER}\.key|signing\.pub\.pem|tokens\.jwks\.json"
)
_ARCHIVE_INDEX = "keyring.json"


def pack(keyring: KeyRing, *, signs: bool = False) -> bytes:
    """Return the archive: a tar file, the same bytes for the same keys.

    Args:
        keyring: what is packed.
        signs: with the private key that signs packages and records, for who publishes.

    Raises:
        WorkloadError: a file of the key ring is missing.
    """
    buffer = io.BytesIO()
    with keyring.steady(), tarfile.open(fileobj=buffer, mode="w") as archive:
        for path in sorted(keyring.path.iterdir()):
            if _belongs(path.name, signs=signs):
                data = read_bytes(path, "the key ring")
                member = tarfile.TarInfo(path.name)
                member.size, member.mode = len(data), 0o600
                archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def _belongs(name: str, *, signs: bool) -> bool:
    return bool(_NAME.fullmatch(name)) or (signs and name == _SIGNS)


def unpack(source: Path, target: Path, *, signs: bool = False) -> KeyRing:
    """Lay out an archive as a key ring in ``target``, a private folder; what is there is replaced.

    Args:
        source: the archive.
        target: the folder.
        signs: whether it has to have the private key that signs; else it may not have it.

    Raises:
        WorkloadError: it is no such archive, or what it holds is no key ring, or one that signs
            where it mustn't, or doesn't where it must.
    """
    files = _read(source, signs=signs)
    make_private_folder(target)
    # The index comes last: until then there is no key ring.
    for name in sorted(files, key=lambda each: (each == _ARCHIVE_INDEX, each)):
        write_atomic(target / name, files[name])
    keyring = KeyRing.open(target)
    public = keyring.verify_key()
    if signs and keyring.signing_key().public_key() != public.current:
        raise WorkloadError(f"{source}: its {_SIGNS} isn't the key of its {VERIFIES}")
    return keyring


def _read(source: Path, *, signs: bool) -> dict[str, bytes]:
    data = read_bytes(source, "the packed key ring")
    if len(data) > MAX_BYTES:
        raise WorkloadError(f"{source} has {len(data)} bytes; a packed key ring has at most "
                            f"{MAX_BYTES}")  # fmt: skip
    files: dict[str, bytes] = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
            for member in archive:
                content = archive.extractfile(member) if member.isreg() else None
                belongs = _belongs(member.name, signs=signs) and member.name not in files
                if content is None or not belongs:
                    raise WorkloadError(
                        f"{source} holds {member.name!r}, which belongs to no packed key ring; "
                        "make it with: python -m falaj.workloads.registry keyring pack"
                    )
                files[member.name] = content.read()
    except tarfile.TarError as error:
        raise WorkloadError(
            f"{source} is no packed key ring: {error}. Is it still in base64? The secret store's "
            "text has to be decoded (decodingStrategy: Base64)"
        ) from error
    if _ARCHIVE_INDEX not in files:
        raise WorkloadError(f"{source} holds no {_ARCHIVE_INDEX}: it is no packed key ring")
    if signs and _SIGNS not in files:
        raise WorkloadError(
            f"{source} holds no {_SIGNS}: it can't sign; make it with: "
            "python -m falaj.workloads.registry keyring pack --signs"
        )
    return files
