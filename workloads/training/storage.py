"""Folders, key rings and digests, as datasets and runs use them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from falaj.workloads.files import PRIVATE_FOLDER, storage_errors
from falaj.workloads.registry.keyring import KeyRing


def open_keyring(path: Path | None) -> KeyRing | None:
    """Return the key ring in folder ``path``, or None where no path is given.

    Raises:
        WorkloadError: there is no usable key ring.
    """
    return None if path is None else KeyRing.open(path)


def make_folder(path: Path) -> Path:
    """Make ``path`` (mode 0700) where it is missing; one that exists keeps its mode.

    Raises:
        StorageFullError: no space.
        WorkloadError: a file stands there, or no permission.
    """
    with storage_errors(path):
        path.mkdir(parents=True, exist_ok=True, mode=PRIVATE_FOLDER)
    return path


def digest(value: Any) -> str:
    """Return the SHA-256 (hex) of ``value``'s canonical JSON: sorted keys, no white space."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()
