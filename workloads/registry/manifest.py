"""The manifest: what a package holds and where it came from, in one canonical JSON document."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, cast

from falaj.workloads.errors import IntegrityError, WorkloadError
from falaj.workloads.registry.sealed import HEADER_BYTES, MAX_CHUNK_BYTES, TAG_BYTES

_MODEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_ALIAS = re.compile(r"[a-z][a-z0-9-]{0,63}")
_VERSION = re.compile(r"[1-9][0-9]{0,8}")
_RESERVED = frozenset({"audit.jsonl"})


def check_model_name(name: str) -> str:
    """Return ``name`` if it may name a model.

    Raises:
        WorkloadError: it could leave the registry's folder or isn't portable.
    """
    if not _MODEL.fullmatch(name) or name in _RESERVED:
        message = f"{name!r} can't name a model; allowed: 1 to 64 letters, digits, '.', '_', '-'"
        raise WorkloadError(f"{message}, beginning with a letter or digit")
    return name


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
    if not _ALIAS.fullmatch(name):
        message = f"{name!r} can't name an alias; allowed: 1 to 64 small letters, digits and '-'"
        raise WorkloadError(f"{message}, beginning with a letter (such as 'production')")
    return name


def is_version(name: str) -> bool:
    """Tell whether a folder's name is a version: 1, 2, … without leading zeros."""
    return _VERSION.fullmatch(name) is not None


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

    @classmethod
    def from_bytes(cls, data: bytes, what: str) -> Manifest:
        """Parse a manifest; the caller has verified its signature.

        Raises:
            IntegrityError: not canonical, of another format, or a field is missing or wrong.
        """
        try:
            document: Any = json.loads(data, object_pairs_hook=_unique)
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
            allowed = " or ".join(_JSON_NAMES[kind] for kind in FIELDS[name])
            given = _JSON_NAMES.get(type(value), type(value).__name__)
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


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return found


def _entry(name: str, value: object) -> FileEntry:
    match value:
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
