"""Atomic, private writing of a run's and a dataset's files, sealed where there is a key ring."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workloads.errors import StorageFullError, WorkloadError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from workloads.registry.keyring import KeyRing

SEALED_SUFFIX = ".sealed"
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn the faults of a file system that a person can put right into a clear error.

    Raises:
        StorageFullError: the disk, the quota or the file size limit is exhausted.
        WorkloadError: the path can't be read or written.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise StorageFullError(
                f"no space left while writing {path}; free space and run again "
                "(the run continues from its last checkpoint)"
            ) from error
        raise WorkloadError(f"cannot use {path}: {error.strerror or error}") from error


def write_bytes(path: Path, data: bytes) -> None:
    """Replace ``path`` by ``data`` atomically, readable by its owner only (mode 0600).

    Raises:
        StorageFullError: there is no space; the old file is kept and nothing half written stays.
        WorkloadError: the folder can't be written.
    """
    with explained(path):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        temporary = Path(name)
        try:
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def write_json(path: Path, value: Any) -> None:
    """Replace ``path`` by ``value`` as indented JSON, atomically; errors as `write_bytes`."""
    write_bytes(path, (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode())


def read_json(path: Path, what: str) -> dict[str, Any]:
    """Return the JSON object of ``path``; ``what`` names it in errors.

    Raises:
        WorkloadError: it is missing, unreadable or not a JSON object.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise WorkloadError(f"there is no {what} at {path}") from None
    except OSError as error:
        raise WorkloadError(f"cannot read the {what} at {path}: {error.strerror}") from error
    except ValueError:
        raise WorkloadError(f"the {what} at {path} is not JSON: it was damaged") from None
    if not isinstance(value, dict):
        raise WorkloadError(f"the {what} at {path} is not a JSON object: it was damaged")
    return value


def open_keyring(path: Path | None) -> KeyRing | None:
    """Return the key ring in folder ``path``, or None where no path is given."""
    if path is None:
        return None
    from workloads.registry.keyring import KeyRing  # noqa: PLC0415 - only with keys

    return KeyRing.open(path)


def stored_path(path: Path, keyring: KeyRing | None) -> Path:
    """Return where ``path`` lies: with the suffix ``.sealed`` under a key ring."""
    return path.with_name(path.name + SEALED_SUFFIX) if keyring is not None else path


def write_artifact(path: Path, data: bytes, keyring: KeyRing | None, context: str) -> Path:
    """Write ``data`` at `stored_path`, encrypted for the role ``context`` under a key ring."""
    if keyring is None:
        write_bytes(path, data)
        return path
    from workloads.registry import sealed  # noqa: PLC0415 - only with keys

    target = stored_path(path, keyring)
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    sealed.seal(target, data, keyring, context.encode())
    return target


def read_artifact(path: Path, keyring: KeyRing | None, context: str) -> bytes:
    """Return what `write_artifact` wrote.

    Raises:
        WorkloadError: it is missing, sealed with other keys or for another role, or was
            changed; the message says which key ring option is missing.
    """
    target = stored_path(path, keyring)
    if not target.exists():
        if keyring is None and path.with_name(path.name + SEALED_SUFFIX).exists():
            raise WorkloadError(
                f"{path}{SEALED_SUFFIX} is encrypted: name its key ring (--keyring)"
            )
        if keyring is not None and path.exists():
            raise WorkloadError(
                f"{path} is not encrypted, but a key ring was given: leave --keyring away, "
                "or make it again with the key ring"
            )
        raise WorkloadError(f"there is no file {target}")
    if keyring is None:
        with explained(target):
            return target.read_bytes()
    from workloads.registry import sealed  # noqa: PLC0415 - only with keys

    return sealed.unseal(target, keyring, context.encode())


def canonical(value: Any) -> bytes:
    """Return the one JSON form of ``value`` that digests are taken of."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return text.encode()


def digest(value: Any) -> str:
    """Return the SHA-256 (hex) of ``value``'s canonical JSON."""
    return hashlib.sha256(canonical(value)).hexdigest()
