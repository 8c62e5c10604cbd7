"""Authenticated encryption of long data in chunks: the STREAM construction over AES-256-GCM.

Each chunk is sealed under the nonce ``prefix (7) || counter (4) || last (1)``, so that a chunk
that was moved, dropped, repeated or cut off doesn't open, nor data whose last chunk is missing.
Hoang, Reyhanitabar, Rogaway, Vizár, "Online Authenticated-Encryption and its Nonce-Reuse
Misuse-Resistance", CRYPTO 2015; the nonce is laid out as in Tink's AES256_GCM_HKDF_1MB.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from falaj.workloads.errors import IntegrityError, WorkloadError
from falaj.workloads.registry.keyservice import KEY_BYTES

CHUNK_BYTES = 1 << 20
"""Plaintext bytes in each chunk but the last."""

TAG_BYTES = 16
HEADER_BYTES = 51
MAX_CHUNK_BYTES = 1 << 26

_MAGIC = b"FALAJST1"
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
        return _HEADER.pack(_MAGIC, self.salt, self.prefix, self.chunk_bytes)

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
        if magic != _MAGIC:
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
