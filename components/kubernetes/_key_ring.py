"""A key ring in the memory of pods: where it comes from, and how it gets there.

A ring insists on the modes of its files, which no volume of a secret has. So External Secrets
brings it packed, and the first container lays it out in memory, where the others find it.
"""

from __future__ import annotations

from typing import Any, Final

from falaj.components.kubernetes._objects import Manifest
from falaj.components.kubernetes._secrets import external_secret

BASE: Final = "/run/falaj"
SECRET: Final = f"{BASE}/secret"
"""The packed key ring, as the cluster hands it over; for the first container only."""
_PACKED: Final = "keyring.tar"
"""The file there, and the key of the Secret."""
KEYS: Final = f"{BASE}/keys"
"""In memory: the key ring, with the file modes that it insists on."""
KEY_RING: Final = f"{KEYS}/keyring"
VARIABLE: Final = "FALAJ_KEYRING"
"""Where programs of a team's own find its folder."""
_MIB: Final = 4


def unpack_command() -> list[str]:
    """Lay the key ring out in memory."""
    return [
        "python", "-m", "falaj.workloads.registry", "keyring", "unpack",
        "--path", KEY_RING, "--from", f"{SECRET}/{_PACKED}",
    ]  # fmt: skip


def packed_secret(about: dict[str, Any], store: str, entry: str) -> Manifest:
    """What has External Secrets bring the packed ring.

    Args:
        about: its metadata; the secret has the same name.
        store: the `ClusterSecretStore`.
        entry: what the store calls it.
    """
    return external_secret(about, store, entry, _PACKED, decoding="Base64")


def volumes(secret: str, prefix: str = "") -> list[dict[str, Any]]:
    """The volumes ``secret`` and ``keys``, the latter in memory.

    Args:
        secret: name of the Secret with the packed ring.
        prefix: of the volumes' names, where a pod has two rings.
    """
    memory = {"medium": "Memory", "sizeLimit": f"{_MIB}Mi"}
    return [
        {"name": f"{prefix}secret", "secret": {"secretName": secret, "defaultMode": 0o440}},
        {"name": f"{prefix}keys", "emptyDir": memory},
    ]
