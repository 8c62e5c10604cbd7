"""A key ring as one file for those who open packages: without the keys that sign.

What a server needs goes through a secret store to where it runs: the key-encryption keys, the key
that verifies packages and the public keys of tokens. Who holds the archive can read models, and
can neither sign a package nor make a token.
"""

from __future__ import annotations

import io
import re
import tarfile
from pathlib import Path

from falaj.workloads.errors import WorkloadError
from falaj.workloads.files import make_private_folder, read_bytes, write_atomic
from falaj.workloads.registry.keyring import KeyRing

MAX_BYTES = 1 << 20
"""Secret stores take some tens of KiB (AWS Secrets Manager 64 KiB, Kubernetes 1 MiB)."""
_NAME = re.compile(r"keyring\.json|kek-[1-9][0-9]{0,8}\.key|signing\.pub\.pem|tokens\.jwks\.json")
_INDEX = "keyring.json"


def pack(keyring: KeyRing) -> bytes:
    """Return the archive: a tar file, the same bytes for the same keys.

    Raises:
        WorkloadError: a file of the key ring is missing.
    """
    buffer = io.BytesIO()
    with keyring.steady(), tarfile.open(fileobj=buffer, mode="w") as archive:
        for path in sorted(keyring.path.iterdir()):
            if _NAME.fullmatch(path.name):
                data = read_bytes(path, "the key ring")
                member = tarfile.TarInfo(path.name)
                member.size, member.mode = len(data), 0o600
                archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def unpack(source: Path, target: Path) -> KeyRing:
    """Lay out an archive as a key ring in ``target``, a private folder; what is there is replaced.

    Raises:
        WorkloadError: it is no such archive, or what it holds is no key ring.
    """
    files = _read(source)
    make_private_folder(target)
    # The index comes last: until then there is no key ring.
    for name in sorted(files, key=lambda each: (each == _INDEX, each)):
        write_atomic(target / name, files[name])
    keyring = KeyRing.open(target)
    keyring.verify_key()
    return keyring


def _read(source: Path) -> dict[str, bytes]:
    data = read_bytes(source, "the packed key ring")
    if len(data) > MAX_BYTES:
        raise WorkloadError(f"{source} has {len(data)} bytes; a packed key ring has at most "
                            f"{MAX_BYTES}")  # fmt: skip
    files: dict[str, bytes] = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
            for member in archive:
                content = archive.extractfile(member) if member.isreg() else None
                if content is None or not _NAME.fullmatch(member.name) or member.name in files:
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
    if _INDEX not in files:
        raise WorkloadError(f"{source} holds no {_INDEX}: it is no packed key ring")
    return files
