"""Single encrypted files: header with the wrapped data key, then the encrypted stream.

Layout::

    magic (8) | length of the wrapped key (4, big endian) | wrapped key (JSON) | stream

The stream's header and the caller's context are authenticated with every chunk. The wrapped key
is bound to the stream's header (its random salt), not to the context, so that a rotation can
re-wrap a file without knowing what it holds, and a wrapped key of another file is still refused.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

from falaj.workloads.errors import IntegrityError, WorkloadError
from falaj.workloads.files import read_bytes, shred, write_atomic
from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.registry.keyservice import KeyService, WrappedKey
from falaj.workloads.registry.stream import (
    CHUNK_BYTES,
    HEADER_BYTES,
    StreamHeader,
    decrypt,
    encrypt,
    new_data_key,
)

SUFFIX = ".sealed"
_MAGIC = b"FALAJSL1"
_FRONT = struct.Struct(">8sI")
_MAX_WRAPPED_BYTES = 1 << 16
_WRAP_CONTEXT = b"falaj.sealed/1\0"


def seal(
    path: Path,
    data: bytes | bytearray | memoryview,
    keys: KeyService,
    context: bytes,
    *,
    chunk_bytes: int = CHUNK_BYTES,
) -> None:
    """Encrypt ``data`` under a new data key and write it to ``path`` atomically, mode 0600.

    Args:
        path: the file to write; by convention its name ends in ``.sealed``.
        data: the plaintext, which stays in memory.
        keys: the key ring that wraps the data key.
        context: the file's role (``b"dataset:<digest>:data"``); needed again to unseal it.
        chunk_bytes: plaintext bytes per chunk; 1 MiB by default.

    Raises:
        StorageFullError: no space; an older file is untouched.
    """
    header = StreamHeader.new(chunk_bytes)
    key = new_data_key()
    stream = encrypt(data, key, header, context)
    with keys.steady():
        wrapped = keys.wrap(key, _WRAP_CONTEXT + header.encode())
        write_atomic(path, _front(wrapped) + stream)


def unseal(path: Path, keys: KeyService, context: bytes) -> bytes:
    """Return the data of a sealed file, decrypted in memory.

    Raises:
        IntegrityError: it was changed, cut short, swapped with another file, or sealed under
            another context or key ring.
        WorkloadError: it is missing, or its key was retired.
    """
    what = str(path)
    with keys.steady():
        data = memoryview(read_bytes(path, "the sealed file"))
        wrapped, stream = _split(data, what)
        key = keys.unwrap(wrapped, _WRAP_CONTEXT + bytes(stream[:HEADER_BYTES]))
    return decrypt(stream, key, context, what)


def rewrap(path: Path, keys: KeyService) -> bool:
    """Wrap a sealed file's data key under the primary version; the stream stays as it is.

    Neither the plaintext nor the context is needed. Atomic: readers see the old file or the new.
    The caller keeps others from sealing at the same time (:meth:`KeyRing.exclusive`).

    Returns:
        Whether the file was rewritten; False if it was under the primary version already.

    Raises:
        IntegrityError: the file isn't a sealed one, or was changed.
    """
    data = memoryview(read_bytes(path, "the sealed file"))
    wrapped, stream = _split(data, str(path))
    context = _WRAP_CONTEXT + bytes(stream[:HEADER_BYTES])
    # Unwrapped even when there is nothing to do: a damaged file is found while its key exists.
    key = keys.unwrap(wrapped, context)
    if wrapped.key_id == keys.primary:
        return False
    write_atomic(path, _front(keys.wrap(key, context)) + bytes(stream))
    return True


def artifact_path(path: Path, keyring: KeyRing | None) -> Path:
    """Return where an artefact lies: ``path``, plus ``.sealed`` where there is a key ring."""
    return path if keyring is None else path.with_name(path.name + SUFFIX)


def write_artifact(path: Path, data: bytes, keyring: KeyRing | None, context: bytes) -> Path:
    """Write an artefact, sealed if a key ring is given, else plain; atomic, mode 0600.

    Args:
        path: the name without ``.sealed``.
        data: the content.
        keyring: None writes plaintext.
        context: the artefact's role, as in :func:`seal`.

    Returns:
        The file that was written. A plain copy of the same name is shredded when a sealed one is
        written, and a sealed one removed when a plain one is, so that only one is current.
    """
    target = artifact_path(path, keyring)
    if keyring is None:
        write_atomic(target, data)
        path.with_name(path.name + SUFFIX).unlink(missing_ok=True)
    else:
        seal(target, data, keyring, context)
        shred(path)
    return target


def read_artifact(path: Path, keyring: KeyRing | None, context: bytes) -> bytes:
    """Return what :func:`write_artifact` wrote under the same name, key ring and context.

    Raises:
        IntegrityError: see :func:`unseal`. A plain file is refused where a key ring is given.
        WorkloadError: the artefact is missing, or it is sealed and there is no key ring.
    """
    target = artifact_path(path, keyring)
    if not target.exists():
        if keyring is None and path.with_name(path.name + SUFFIX).exists():
            raise WorkloadError(f"{path} is sealed: give the key ring that it was sealed with")
        if keyring is not None and path.exists():
            message = (
                f"{path} is plaintext, but a key ring was given, so {target.name} is expected"
            )
            raise IntegrityError(f"{message}: make it again with the key ring")
    if keyring is None:
        return read_bytes(target, "the artefact")
    return unseal(target, keyring, context)


def _front(wrapped: WrappedKey) -> bytes:
    encoded = json.dumps(wrapped.to_json(), sort_keys=True, separators=(",", ":")).encode()
    return _FRONT.pack(_MAGIC, len(encoded)) + encoded


def _split(data: memoryview, what: str) -> tuple[WrappedKey, memoryview]:
    """Return the wrapped key and the stream, with at least a whole stream header."""
    if len(data) < _FRONT.size:
        raise IntegrityError(
            f"{what} has {len(data)} bytes: it is no sealed file or was cut short"
        )
    magic, length = _FRONT.unpack_from(data)
    if magic != _MAGIC:
        raise IntegrityError(
            f"{what} doesn't begin as a sealed file: it was changed or is another"
        )
    if length > _MAX_WRAPPED_BYTES or len(data) < _FRONT.size + length + HEADER_BYTES:
        raise IntegrityError(
            f"{what} is shorter than its header says: it was changed or cut short"
        )
    try:
        value: Any = json.loads(bytes(data[_FRONT.size : _FRONT.size + length]))
    except (ValueError, RecursionError) as error:
        raise IntegrityError(f"the header of {what} isn't valid: it was changed") from error
    return WrappedKey.from_json(value, what), data[_FRONT.size + length :]
