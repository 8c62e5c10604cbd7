"""Authenticated encryption: long data in chunks, and single encrypted files.

Each chunk is sealed under the nonce ``prefix (7) || counter (4) || last (1)``, so that a chunk
that was moved, dropped, repeated or cut off doesn't open, nor data whose last chunk is missing.
Hoang, Reyhanitabar, Rogaway, Vizár, "Online Authenticated-Encryption and its Nonce-Reuse
Misuse-Resistance", CRYPTO 2015; the nonce is laid out as in Tink's AES256_GCM_HKDF_1MB.

Layout::

    magic (8) | length of the wrapped key (4, big endian) | wrapped key (JSON) | stream

The stream's header and the caller's context are authenticated with every chunk. The wrapped key
is bound to the stream's header (its random salt), not to the context, so that a rotation can
re-wrap a file without knowing what it holds, and a wrapped key of another file is still refused.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import struct
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from falaj.workloads.errors import IntegrityError, WorkloadError
from falaj.workloads.files import read_bytes, reading_errors, replacing, shred, write_atomic
from falaj.workloads.registry.keyring import KEY_BYTES, KeyRing, KeyService, WrappedKey

CHUNK_BYTES = 1 << 20
"""Plaintext bytes in each chunk but the last."""

TAG_BYTES = 16
HEADER_BYTES = 51
MAX_CHUNK_BYTES = 1 << 26

_STREAM_MAGIC = b"FALAJST1"
_SALT_BYTES = 32
_PREFIX_BYTES = 7
_HEADER = struct.Struct(f">8s{_SALT_BYTES}s{_PREFIX_BYTES}sI")
_INFO = b"falaj.stream/1"


@dataclass(frozen=True, slots=True)
class StreamHeader:
    """The public parameters at the front of a stream; authenticated with every chunk."""

    salt: bytes
    prefix: bytes
    chunk_bytes: int

    @classmethod
    def new(cls, chunk_bytes: int = CHUNK_BYTES) -> StreamHeader:
        """Return a header with a fresh random salt and nonce prefix."""
        if not 0 < chunk_bytes <= MAX_CHUNK_BYTES:
            message = f"a chunk of {chunk_bytes} bytes was asked for"
            raise WorkloadError(f"{message}; allowed: 1 to {MAX_CHUNK_BYTES}")
        return cls(os.urandom(_SALT_BYTES), os.urandom(_PREFIX_BYTES), chunk_bytes)

    def encode(self) -> bytes:
        """Return the header as it stands in the file: :data:`HEADER_BYTES` long."""
        return _HEADER.pack(_STREAM_MAGIC, self.salt, self.prefix, self.chunk_bytes)

    @classmethod
    def decode(cls, data: bytes | memoryview, what: str) -> StreamHeader:
        """Read the header at the front of ``data``; ``what`` names it in errors.

        Raises:
            IntegrityError: too short, of another format, or an impossible chunk size.
        """
        if len(data) < HEADER_BYTES:
            message = f"{what} has {len(data)} bytes, less than its header of {HEADER_BYTES}"
            raise IntegrityError(f"{message}: it was cut short")
        magic, salt, prefix, chunk_bytes = _HEADER.unpack_from(data)
        if magic != _STREAM_MAGIC:
            raise IntegrityError(f"{what} doesn't begin as an encrypted stream: it was changed")
        if not 0 < chunk_bytes <= MAX_CHUNK_BYTES:
            message = (
                f"{what} names chunks of {chunk_bytes} bytes (1 to {MAX_CHUNK_BYTES} allowed)"
            )
            raise IntegrityError(f"{message}: it was changed")
        return cls(salt, prefix, chunk_bytes)


def new_data_key() -> bytes:
    """Return a random key for one stream."""
    return os.urandom(KEY_BYTES)


def encrypt(
    data: bytes | bytearray | memoryview, key: bytes, header: StreamHeader, context: bytes
) -> bytearray:
    """Return ``header`` and the sealed chunks of ``data``.

    Args:
        data: any number of bytes; empty data still has one (empty, authenticated) chunk.
        key: the data key; use each for one stream only.
        header: a new one per stream.
        context: what the stream is for; the same bytes must be shown to decrypt it.

    Raises:
        WorkloadError: more than 2^32 chunks.
    """
    view = memoryview(data).cast("B")
    size = header.chunk_bytes
    chunks = max(1, -(-len(view) // size))
    if chunks > 1 << 32:
        message = f"{len(view)} bytes in chunks of {size} are more chunks than the 2^32 allowed"
        raise WorkloadError(f"{message}; use bigger chunks")
    sealed = bytearray(HEADER_BYTES + len(view) + chunks * TAG_BYTES)
    encoded = header.encode()
    sealed[:HEADER_BYTES] = encoded
    body = memoryview(sealed)[HEADER_BYTES:]
    cipher = _cipher(key, header)
    for index in range(chunks):
        part = view[index * size : (index + 1) * size]
        start = index * (size + TAG_BYTES)
        target = body[start : start + len(part) + TAG_BYTES]
        nonce = _nonce(header, index, last=index == chunks - 1)
        cipher.encrypt_into(nonce, part, encoded + context, target)
    body.release()
    return sealed


def decrypt(
    sealed: bytes | bytearray | memoryview, key: bytes, context: bytes, what: str
) -> bytes:
    """Return the data of :func:`encrypt`; nothing is returned unless all of it is authentic.

    Args:
        sealed: header and chunks.
        key: the data key.
        context: as given to :func:`encrypt`.
        what: names the data in errors.

    Raises:
        IntegrityError: another key or context, or bytes changed, moved, dropped or added.
    """
    view = memoryview(sealed).cast("B")
    header = StreamHeader.decode(view, what)
    body = view[HEADER_BYTES:]
    step = header.chunk_bytes + TAG_BYTES
    chunks = max(1, -(-len(body) // step))
    if len(body) - (chunks - 1) * step < TAG_BYTES:
        raise IntegrityError(f"{what} ends in the middle of a chunk: it was cut short")
    if chunks > 1 << 32:
        raise IntegrityError(f"{what} has more than 2^32 chunks: it was changed")
    cipher = _cipher(key, header)
    associated = header.encode() + context
    opened: list[bytes] = []
    for index in range(chunks):
        nonce = _nonce(header, index, last=index == chunks - 1)
        try:
            opened.append(
                cipher.decrypt(nonce, body[index * step : (index + 1) * step], associated)
            )
        except InvalidTag as error:
            message = f"chunk {index + 1} of {chunks} of {what} isn't what was written"
            raise IntegrityError(f"{message}: changed, moved, cut short or swapped") from error
    return b"".join(opened)


def _cipher(key: bytes, header: StreamHeader) -> AESGCM:
    derived = HKDF(SHA256(), KEY_BYTES, salt=header.salt, info=_INFO).derive(key)
    return AESGCM(derived)


def _nonce(header: StreamHeader, index: int, *, last: bool) -> bytes:
    return header.prefix + index.to_bytes(4, "big") + (b"\1" if last else b"\0")


SUFFIX = ".sealed"
_MAGIC = b"FALAJSL1"
_WHAT = "the sealed file"
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


@contextlib.contextmanager
def sealing(
    path: Path,
    keys: KeyService,
    context: bytes,
    *,
    chunk_bytes: int = CHUNK_BYTES,
    stage: Path | None = None,
) -> Generator[Sealing, None, None]:
    """As :func:`seal`, for data that are written piece by piece in the block: one chunk is held.

    A rotation waits until the block has ended. ``stage`` is as :func:`replacing` takes it;
    default: the file's own folder.

    Raises:
        StorageFullError: no space; an older file is untouched.
        WorkloadError: more than 2^32 chunks.
    """
    header = StreamHeader.new(chunk_bytes)
    key = new_data_key()
    with keys.steady(), replacing(path, stage=stage) as file:
        file.write(_front(keys.wrap(key, _WRAP_CONTEXT + header.encode())))
        stream = Sealing(file, key, header, context)
        yield stream
        stream.end()


class Sealing:
    """A stream of sealed chunks that grows; see :func:`sealing`, which ends it."""

    def __init__(self, file: BinaryIO, key: bytes, header: StreamHeader, context: bytes) -> None:
        self._file = file
        self._cipher = _cipher(key, header)
        self._header = header
        self._associated = header.encode() + context
        self._held = bytearray()
        self._index = 0
        file.write(header.encode())

    def write(self, data: bytes | memoryview) -> int:
        """Take more data; what makes a whole chunk is sealed and written."""
        self._held += data
        size = self._header.chunk_bytes
        # The last chunk is marked as such, so one is always held back.
        while len(self._held) > size:
            self._put(bytes(self._held[:size]), last=False)
            del self._held[:size]
        return len(data)

    def end(self) -> None:
        """Write the last chunk."""
        self._put(bytes(self._held), last=True)
        self._held.clear()

    def _put(self, part: bytes, *, last: bool) -> None:
        if self._index >= 1 << 32:
            raise WorkloadError("there are more chunks than the 2^32 allowed; use bigger chunks")
        nonce = _nonce(self._header, self._index, last=last)
        self._file.write(self._cipher.encrypt(nonce, part, self._associated))
        self._index += 1


def unsealed_chunks(path: Path, keys: KeyService, context: bytes) -> Iterator[bytes]:
    """Yield the data of a sealed file chunk by chunk, each authentic; one is in memory.

    That the file ends where it did is known with the last chunk only: whoever uses chunks before
    has to take that back where the end raises.

    Raises:
        IntegrityError: see :func:`unseal`.
        WorkloadError: it is missing, or its key was retired.
    """
    what = str(path)
    with contextlib.ExitStack() as stack:
        with keys.steady():
            file = stack.enter_context(_opened(path))
            wrapped, encoded = _read_front(file, what)
            key = keys.unwrap(wrapped, _WRAP_CONTEXT + encoded)
        header = StreamHeader.decode(encoded, what)
        cipher = _cipher(key, header)
        step = header.chunk_bytes + TAG_BYTES
        part, index, last = file.read(step), 0, False
        while not last:
            following = file.read(step)
            last = not following
            try:
                nonce = _nonce(header, index, last=last)
                yield cipher.decrypt(nonce, part, encoded + context)
            except (InvalidTag, ValueError, OverflowError) as error:
                message = f"chunk {index + 1} of {what} isn't what was written"
                raise IntegrityError(f"{message}: changed, moved, cut short or swapped") from error
            part, index = following, index + 1


def unseal(path: Path, keys: KeyService, context: bytes) -> bytes:
    """Return the data of a sealed file, decrypted in memory.

    Raises:
        IntegrityError: it was changed, cut short, swapped with another file, or sealed under
            another context or key ring.
        WorkloadError: it is missing, or its key was retired.
    """
    what = str(path)
    with keys.steady():
        data = memoryview(read_bytes(path, _WHAT))
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
    with _opened(path) as file:
        wrapped, header = _read_front(file, str(path))
        context = _WRAP_CONTEXT + header
        # Unwrapped even when there is nothing to do: a damaged file is found while its key exists.
        key = keys.unwrap(wrapped, context)
        if wrapped.key_id == keys.primary:
            return False
        with replacing(path) as renewed:
            renewed.write(_front(keys.wrap(key, context)) + header)
            shutil.copyfileobj(file, renewed, CHUNK_BYTES)
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


def _opened(path: Path) -> BinaryIO:
    """A sealed file, to be read piece by piece; errors are those of `read_bytes`."""
    with reading_errors(path, _WHAT):
        return path.open("rb")


def _read_front(file: BinaryIO, what: str) -> tuple[WrappedKey, bytes]:
    """The wrapped key and the stream's header; the file stands behind them then."""
    front = file.read(_FRONT.size + _MAX_WRAPPED_BYTES + HEADER_BYTES)
    wrapped, stream = _split(memoryview(front), what)
    file.seek(len(front) - len(stream) + HEADER_BYTES)
    return wrapped, bytes(stream[:HEADER_BYTES])


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
