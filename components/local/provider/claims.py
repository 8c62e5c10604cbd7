"""Which incarnation of a resource owns what lies on the disk.

When a resource is replaced by one that comes to the same folder (the same digest, the same name),
the engine first makes the new one, which adopts the folder, and then deletes the old one, which
must leave the folder alone. Each creation therefore writes a claim; a deletion acts only for the
holder of the last one.
"""

from __future__ import annotations

import hashlib
import secrets
from pathlib import Path
from typing import Final

from falaj.components.local.machine import files

_FOLDER: Final = ".claims"
CLAIM: Final = "claim"


def take(site: Path, type_name: str, resource_id: str) -> str:
    """Claim what a resource has made; earlier claims end.

    Raises:
        LocalError: the claim can't be written.
    """
    claim = secrets.token_hex(8)
    place = _place(site, type_name, resource_id)
    files.make_folder(place.parent)
    files.write_file(place, claim.encode())
    return claim


def is_lost(site: Path, type_name: str, resource_id: str, claim: object) -> bool:
    """Whether a later incarnation has claimed the same things."""
    try:
        return _place(site, type_name, resource_id).read_text(encoding="utf-8") != claim
    except OSError:
        return False


def give_up(site: Path, type_name: str, resource_id: str) -> None:
    """Remove a claim after the deletion."""
    _place(site, type_name, resource_id).unlink(missing_ok=True)


def _place(site: Path, type_name: str, resource_id: str) -> Path:
    name = hashlib.sha256(f"{type_name}\0{resource_id}".encode()).hexdigest()[:24]
    return site / _FOLDER / name
