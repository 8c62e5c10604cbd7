"""One package on disk: a signed manifest, encrypted files, and their wrapped data keys.

::

    manifest.json     canonical JSON; digests of every file, plain and encrypted
    manifest.sig      detached Ed25519 signature of manifest.json
    keys.json         the wrapped data keys; not signed, so that a rotation can replace them, but
                      each is bound to its model, version and file name
    files/NAME.enc    encrypted streams

Reading goes from trust to content: signature, then the digest of the encrypted bytes, then
decryption in memory, then the digest of the plain bytes.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from falaj.workloads.bounds import ENGINES, FORMS
from falaj.workloads.documents import is_dictionary, mapping, parse_json
from falaj.workloads.errors import IntegrityError, WorkloadError
from falaj.workloads.files import (
    TEMPORARY_PREFIX,
    make_private_folder,
    read_json,
    write_atomic,
    write_json_atomic,
)
from falaj.workloads.registry.keyring import (
    VERSION,
    KeyService,
    Trusted,
    WrappedKey,
    sign,
    verify,
)
from falaj.workloads.registry.layout import MANIFEST
from falaj.workloads.registry.sealed import (
    CHUNK_BYTES,
    HEADER_BYTES,
    MAX_CHUNK_BYTES,
    TAG_BYTES,
    StreamHeader,
    decrypt,
    encrypt,
    new_data_key,
)

# The manifest: what a package holds and where it came from, in one canonical JSON document.

_MODEL, _ALIAS = FORMS["registry"]["model"], FORMS["registry"]["alias"]
_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_RESERVED = frozenset({"audit.jsonl"})


def check_model_name(name: str) -> str:
    """Return ``name`` if it may name a model.

    Raises:
        WorkloadError: it could leave the registry's folder or isn't portable.
    """
    if not is_model(name):
        raise WorkloadError(f"{name!r} can't name a model; allowed: {_MODEL.rule}")
    return name


def is_model(name: str) -> bool:
    """Tell whether a text may name a model."""
    return _MODEL.allows(name) and name not in _RESERVED


def check_file_name(name: str) -> str:
    """Return ``name`` if it may name a file of a package.

    Raises:
        WorkloadError: it could leave the package's folder or isn't portable.
    """
    if not _FILE.fullmatch(name):
        message = f"{name!r} can't name a file of a package; allowed: 1 to 128 letters, digits"
        raise WorkloadError(f"{message}, '.', '_', '-', beginning with a letter or digit")
    return name


def check_alias(name: str) -> str:
    """Return ``name`` if it may name an alias; a number may not, so that it can't hide a version.

    Raises:
        WorkloadError: anything else.
    """
    if not _ALIAS.allows(name):
        raise WorkloadError(
            f"{name!r} can't name an alias; allowed: {_ALIAS.rule} (such as {_ALIAS.example!r})"
        )
    return name


def is_version(name: str) -> bool:
    """Tell whether a folder's name is a version: 1, 2, … without leading zeros."""
    return VERSION.fullmatch(name) is not None


PACKAGE_FORMAT = "falaj.package/1"
PAYLOAD_TYPE = "application/vnd.falaj.package+json"
"""What the signature says the signed bytes are."""

FIELDS: Mapping[str, tuple[type, ...]] = MappingProxyType(
    {
        "dataset": (dict,),
        "code": (dict,),
        "parameters": (dict,),
        "metrics": (dict,),
        "lineage": (dict,),
        "inputs": (list,),
        "outputs": (list,),
        "statistics": (dict,),
        "quantisation": (dict, type(None)),
        "data_class": (str,),
        "family": (str,),
        "task": (str,),
        "classes": (list, type(None)),
        "target": (dict, str, type(None)),
    }
)
"""What the publisher may say of a model, and the JSON types allowed for it."""

REQUIRED_FIELDS = ("dataset", "lineage", "inputs", "outputs")
_OWN = ("format", "model", "version", "created", "signer", "files")
_SHA256 = re.compile(r"[0-9a-f]{64}")


def _engine_of(fields: Mapping[str, Any]) -> tuple[object, ...] | None:
    """What the server chooses an engine by; None: whatever the machine, it is ONNX Runtime."""
    quantisation = mapping(fields.get("quantisation"))
    engine = quantisation.get("engine")
    if not is_dictionary(engine) or engine.get("name") == ENGINES[0]:
        return None
    return engine.get("name"), engine.get("precision"), quantisation.get("cpu_flags")


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One file: bytes of plaintext, SHA-256 of plain and encrypted content, bytes per chunk."""

    size: int
    sha256: str
    sha256_encrypted: str
    chunk: int

    @property
    def encrypted_size(self) -> int:
        """Bytes of the encrypted file: header, content and one tag per chunk."""
        chunks = max(1, -(-self.size // self.chunk))
        return HEADER_BYTES + self.size + chunks * TAG_BYTES

    def to_json(self) -> dict[str, str | int]:
        """Return the entry as it stands in the manifest."""
        return {
            "size": self.size,
            "sha256": self.sha256,
            "sha256_encrypted": self.sha256_encrypted,
            "chunk": self.chunk,
        }


@dataclass(frozen=True, slots=True)
class Manifest:
    """A manifest, checked field by field.

    Attributes:
        model: name of the model.
        version: 1, 2, …; never used twice for a model.
        created: when it was published, ISO 8601, UTC.
        signer: id of the key that signs it.
        files: by name.
        fields: what the publisher said (:data:`FIELDS`).
    """

    model: str
    version: int
    created: str
    signer: str
    files: Mapping[str, FileEntry]
    fields: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Return the whole document."""
        return {
            **self.fields,
            "format": PACKAGE_FORMAT,
            "model": self.model,
            "version": self.version,
            "created": self.created,
            "signer": self.signer,
            "files": {name: entry.to_json() for name, entry in self.files.items()},
        }

    def to_bytes(self) -> bytes:
        """Return the document in canonical form: these bytes are signed and stored.

        Raises:
            WorkloadError: a field holds NaN, infinity or something JSON can't say.
        """
        return canonical(self.to_json())

    @property
    def plain_digests(self) -> dict[str, str]:
        """SHA-256 of each file's content, by name."""
        return {name: entry.sha256 for name, entry in self.files.items()}

    def says_the_same(self, digests: Mapping[str, str], fields: Mapping[str, Any]) -> bool:
        """Whether it is of the same run, and of files with these `digests_of` their contents.

        And, where another engine than ONNX Runtime was chosen, the same on the same processor.
        """
        same_run = self.fields["lineage"].get("run") == fields["lineage"].get("run")
        same_engine = _engine_of(self.fields) == _engine_of(fields)
        return bool(same_run) and same_engine and self.plain_digests == digests

    @classmethod
    def from_bytes(cls, data: bytes, what: str) -> Manifest:
        """Parse a manifest; the caller has verified its signature.

        Raises:
            IntegrityError: not canonical, of another format, or a field is missing or wrong.
        """
        try:
            document: Any = parse_json(data)
            again = canonical(document)
        except (ValueError, RecursionError, WorkloadError) as error:
            raise IntegrityError(f"{what} isn't valid JSON: {error}") from error
        if not isinstance(document, dict) or again != data:
            raise IntegrityError(f"{what} isn't a JSON object in canonical form")
        values = cast(dict[str, Any], document)
        match values:
            case {
                "format": "falaj.package/1",
                "model": str(model),
                "version": int(version),
                "created": str(created),
                "signer": str(signer),
                "files": {**files},
            } if type(version) is int and version > 0:
                entries = cast(dict[str, Any], files)
            case _:
                message = f"{what} isn't a manifest of format {PACKAGE_FORMAT!r}"
                raise IntegrityError(f"{message}: {', '.join(_OWN)} are needed")
        fields = {name: value for name, value in values.items() if name not in _OWN}
        try:
            check_model_name(model)
            check_fields(fields, what)
            parsed = {check_file_name(name): _entry(name, v) for name, v in entries.items()}
        except WorkloadError as error:
            raise IntegrityError(f"{what}: {error}") from error
        return cls(model, version, created, signer, parsed, fields)


def digests_of(files: Mapping[str, bytes]) -> dict[str, str]:
    """SHA-256 of each file's content, by name."""
    return {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}


def check_fields(fields: Mapping[str, Any], what: str) -> None:
    """Check what a publisher says of a model; ``what`` names the place in errors.

    Raises:
        WorkloadError: a field is unknown, missing or of the wrong type.
    """
    for name, value in fields.items():
        if name not in FIELDS:
            allowed = ", ".join(FIELDS)
            raise WorkloadError(f"{what} has an unknown field {name!r}; allowed: {allowed}")
        if not isinstance(value, FIELDS[name]):
            allowed = " or ".join(_JSON_NAMES[each] for each in FIELDS[name])
            kind = cast("type[object]", type(value))
            given = _JSON_NAMES.get(kind, kind.__name__)
            raise WorkloadError(f"{what}: {name} is {given}; allowed: {allowed}")
    missing = [name for name in REQUIRED_FIELDS if name not in fields]
    if missing:
        raise WorkloadError(f"{what} lacks {', '.join(missing)}: add them")


def canonical(value: object) -> bytes:
    """Return JSON in UTF-8 with sorted keys and no white space: one value, one encoding.

    Raises:
        WorkloadError: NaN, infinity, text that isn't Unicode, or a type that JSON doesn't have.
    """
    try:
        text = json.dumps(
            value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
        )
        return text.encode()
    except (TypeError, ValueError) as error:
        raise WorkloadError(f"a manifest can't hold this value: {error}") from error


_JSON_NAMES: dict[type, str] = {
    dict: "an object", list: "a list", str: "text", type(None): "null",
    int: "a number", float: "a number", bool: "true or false",
}  # fmt: skip


def _entry(name: str, value: object) -> FileEntry:
    match mapping(value):
        case {
            "size": int(size),
            "sha256": str(plain),
            "sha256_encrypted": str(encrypted),
            "chunk": int(chunk),
            **rest,
        } if (
            not rest
            and size >= 0
            and 0 < chunk <= MAX_CHUNK_BYTES
            and _SHA256.fullmatch(plain)
            and _SHA256.fullmatch(encrypted)
        ):
            return FileEntry(size, plain, encrypted, chunk)
        case _:
            raise WorkloadError(f"the entry of file {name!r} is malformed")


KEYS_FORMAT = "falaj.keys/1"


@dataclass(frozen=True, slots=True)
class WrappedKeys:
    """The content of ``keys.json``; what it says of model and version is only a hint."""

    model: str
    version: int
    keys: Mapping[str, WrappedKey]

    def to_json(self) -> dict[str, Any]:
        """Return the document."""
        files = {name: wrapped.to_json() for name, wrapped in self.keys.items()}
        return {
            "format": KEYS_FORMAT,
            "model": self.model,
            "version": self.version,
            "files": files,
        }


def read_wrapped_keys(path: Path) -> WrappedKeys:
    """Read ``keys.json``.

    Raises:
        IntegrityError: malformed.
        WorkloadError: missing.
    """
    document = read_json(path, "the list of wrapped keys")
    match document:
        case {
            "format": "falaj.keys/1",
            "model": str(model),
            "version": int(version),
            "files": {**files},
            **rest,
        } if not rest:
            entries = cast(dict[str, Any], files)
            keys = {
                name: WrappedKey.from_json(v, f"{path} ({name})") for name, v in entries.items()
            }
            return WrappedKeys(model, version, keys)
        case _:
            raise IntegrityError(f"{path} isn't a list of wrapped keys: it was changed")


def file_context(model: str, version: int, name: str) -> bytes:
    """Return what a file's data key and chunks are bound to. Names never hold a zero byte."""
    return b"\0".join([b"falaj.package/1", model.encode(), str(version).encode(), name.encode()])


def rewrap_package_keys(path: Path, keys: KeyService) -> bool:
    """Wrap the keys of a ``keys.json`` under the primary version, atomically: all or none.

    Nothing else of the package changes or is looked at. The caller keeps others from publishing
    (:meth:`KeyRing.exclusive`).

    Returns:
        Whether the file was rewritten; False if all was under the primary version already.

    Raises:
        IntegrityError: malformed, or a key isn't of the model, version and file it is named for.
    """
    listed = read_wrapped_keys(path)
    renewed: dict[str, WrappedKey] = {}
    for name, wrapped in listed.keys.items():
        context = file_context(listed.model, listed.version, name)
        # Unwrapped even when there is nothing to do: damage is found while the old key exists.
        key = keys.unwrap(wrapped, context)
        renewed[name] = wrapped if wrapped.key_id == keys.primary else keys.wrap(key, context)
    if renewed == listed.keys:
        return False
    write_json_atomic(path, WrappedKeys(listed.model, listed.version, renewed).to_json())
    return True


SIGNATURE = "manifest.sig"
KEYS = "keys.json"
FILES = "files"
SEALED_SUFFIX = ".enc"
MAX_MANIFEST_BYTES = 1 << 26
"""Bytes of the manifest, and of its signature."""


@dataclass(frozen=True, slots=True)
class Package:
    """A package whose signature was verified and whose folder holds what it should.

    Attributes:
        path: its folder.
        manifest: the signed document, as plain JSON values.
        contents: the same, typed.
        digest: SHA-256 of the manifest, and so of everything in the package but wrapped keys.
    """

    path: Path
    contents: Manifest
    digest: str
    _keys: KeyService | None

    @property
    def manifest(self) -> Mapping[str, Any]:
        """The signed document, as plain JSON values."""
        return self.contents.to_json()

    @property
    def model(self) -> str:
        """The model's name."""
        return self.contents.model

    @property
    def version(self) -> int:
        """The version, as signed."""
        return self.contents.version

    @property
    def names(self) -> list[str]:
        """The names of its files, sorted."""
        return sorted(self.contents.files)

    def read(self, name: str) -> bytes:
        """Return a file's content, verified and decrypted in memory.

        Raises:
            IntegrityError: the file, its wrapped key or their order isn't what was published.
            WorkloadError: there is no such file, or its key was retired.
        """
        encrypted, entry, what = self._sealed(name)
        if self._keys is None:
            raise WorkloadError(f"{what} is sealed, and was opened without a key ring: give one")
        context = file_context(self.model, self.version, name)
        with self._keys.steady():
            wrapped = read_wrapped_keys(self.path / KEYS)
            if name not in wrapped.keys:
                raise IntegrityError(f"{self.path / KEYS} has no key for {what}: it was changed")
            key = self._keys.unwrap(wrapped.keys[name], context)
        plain = decrypt(encrypted, key, context, what)
        if len(plain) != entry.size or hashlib.sha256(plain).hexdigest() != entry.sha256:
            raise IntegrityError(f"{what} isn't what was signed: its content was changed")
        return plain

    def verify(self) -> None:
        """Read every file, and refuse wrapped keys for files that aren't there.

        Raises:
            IntegrityError: anything isn't what was published.
        """
        for name in self.names:
            self.read(name)
        self._check_keys()

    def verify_sealed(self) -> None:
        """Hold every file, as it is encrypted, against what was signed; no key opens anything.

        Raises:
            IntegrityError: a file isn't what was published, or keys are another package's.
        """
        for name in self.names:
            self._sealed(name)
        self._check_keys()

    def _sealed(self, name: str) -> tuple[bytes, FileEntry, str]:
        """A file's encrypted bytes, verified; its entry, and what errors call it."""
        what = f"{name} of {self.model} version {self.version}"
        entry = self.contents.files.get(name)
        if entry is None:
            raise WorkloadError(f"there is no {what}; it has: {', '.join(self.names)}")
        encrypted = _read(self.path / FILES / (name + SEALED_SUFFIX), entry.encrypted_size, what)
        if hashlib.sha256(encrypted).hexdigest() != entry.sha256_encrypted:
            raise IntegrityError(f"{what} isn't what was signed: its encrypted bytes were changed")
        return encrypted, entry, what

    def _check_keys(self) -> None:
        wrapped = read_wrapped_keys(self.path / KEYS)
        identity = (wrapped.model, wrapped.version, sorted(wrapped.keys))
        if identity != (self.model, self.version, self.names):
            raise IntegrityError(f"{self.path / KEYS} isn't of this package: it was changed")


def write_package(
    folder: Path,
    files: Mapping[str, bytes],
    draft: Manifest,
    *,
    keys: KeyService,
    signing_key: Ed25519PrivateKey,
    chunk_bytes: int = CHUNK_BYTES,
) -> Manifest:
    """Encrypt and write a package into an empty folder; the caller then moves it into place.

    The caller is inside ``keys.steady()`` and stays there until the package is in its place, so
    that no rotation retires the key between wrapping and publishing.

    Args:
        folder: exists and is empty.
        files: contents by name.
        draft: the manifest without its file entries.
        keys: wraps the data keys.
        signing_key: signs the manifest.
        chunk_bytes: plaintext bytes per chunk; 1 MiB by default.

    Returns:
        The manifest as signed.

    Raises:
        StorageFullError: no space; the caller removes the folder.
    """
    make_private_folder(folder / FILES)
    entries: dict[str, FileEntry] = {}
    wrapped: dict[str, WrappedKey] = {}
    for name, data in files.items():
        context = file_context(draft.model, draft.version, name)
        key = new_data_key()
        encrypted = encrypt(data, key, StreamHeader.new(chunk_bytes), context)
        write_atomic(folder / FILES / (name + SEALED_SUFFIX), encrypted)
        wrapped[name] = keys.wrap(key, context)
        plain_digest = hashlib.sha256(data).hexdigest()
        encrypted_digest = hashlib.sha256(encrypted).hexdigest()
        entries[name] = FileEntry(len(data), plain_digest, encrypted_digest, chunk_bytes)
    manifest = Manifest(
        draft.model, draft.version, draft.created, draft.signer, entries, draft.fields
    )
    payload = manifest.to_bytes()
    write_json_atomic(folder / KEYS, WrappedKeys(draft.model, draft.version, wrapped).to_json())
    write_atomic(folder / SIGNATURE, sign(payload, PAYLOAD_TYPE, signing_key))
    write_atomic(folder / MANIFEST, payload)
    return manifest


def open_package(
    path: Path, model: str, version: int, keys: KeyService | None, verify_key: Trusted
) -> Package:
    """Open the package in ``path``: verify its signature and that it is the one asked for.

    Without ``keys`` its files can be verified as they are encrypted, and not be read.

    Raises:
        IntegrityError: another signer, changed manifest, another model or version, a file too
            many or too few, or a link.
    """
    what = f"the manifest of {model} version {version}"
    _check_entries(path, {MANIFEST, SIGNATURE, KEYS}, {FILES})
    payload = _read(path / MANIFEST, None, what)
    signature = _read(path / SIGNATURE, None, f"the signature of {what}")
    verify(payload, PAYLOAD_TYPE, signature, verify_key, what)
    manifest = Manifest.from_bytes(payload, what)
    if (manifest.model, manifest.version) != (model, version):
        found = f"{manifest.model} version {manifest.version}"
        raise IntegrityError(f"{path} holds {found}, not {model} version {version}: it was moved")
    _check_entries(path / FILES, {name + SEALED_SUFFIX for name in manifest.files}, set())
    return Package(path, manifest, hashlib.sha256(payload).hexdigest(), keys)


def _check_entries(folder: Path, files: set[str], folders: set[str]) -> None:
    """Refuse links, what is missing, and what shouldn't be there."""
    if folder.is_symlink() or not folder.is_dir():
        raise IntegrityError(f"{folder} isn't a folder: the package is damaged or was changed")
    found: set[str] = set()
    for entry in os.scandir(folder):
        regular = entry.is_file(follow_symlinks=False)
        if regular and entry.name.startswith(TEMPORARY_PREFIX):
            continue  # a rotation is writing keys.json, or was killed while it did; never read
        if (entry.name in files and regular) or (
            entry.name in folders and entry.is_dir(follow_symlinks=False)
        ):
            found.add(entry.name)
            continue
        kind = "a symbolic link" if entry.is_symlink() else "an entry"
        raise IntegrityError(f"{folder} holds {kind} that doesn't belong there: {entry.name!r}")
    missing = sorted((files | folders) - found)
    if missing:
        raise IntegrityError(f"{folder} lacks {', '.join(missing)}: the package is damaged")


def _read(path: Path, size: int | None, what: str) -> bytes:
    """Read an ordinary file once, never through a link, and only if its size is plausible."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise IntegrityError(f"can't read {what} ({path}): {error.strerror}") from error
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise IntegrityError(f"{path} isn't an ordinary file")
        if size is not None and found.st_size != size:
            message = f"{what} has {found.st_size} encrypted bytes, {size} were signed"
            raise IntegrityError(f"{message}: it was changed or cut short")
        if size is None and found.st_size > MAX_MANIFEST_BYTES:
            message = f"{what} has {found.st_size} bytes; allowed: {MAX_MANIFEST_BYTES}"
            raise IntegrityError(message)
        return file.read()
