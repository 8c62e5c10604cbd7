"""``keys.json``: the wrapped data keys of a package, the only part that a rotation rewrites."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from falaj.workloads.errors import IntegrityError
from falaj.workloads.files import read_json, write_json_atomic
from falaj.workloads.registry.keyservice import KeyService, WrappedKey

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
