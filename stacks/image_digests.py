"""Which digests a stack's images have: its lock file's, else the bill of materials' own."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from falaj.components.kubernetes.bill_of_materials import images
from falaj.stacks.images.items import LockError, read_lock
from falaj.stacks.settings.cloud import InClusterSettings
from falaj.stacks.settings.problems import Finding, RefusedSettingsError, format_value


@dataclass(frozen=True)
class Digests:
    """What is given to the components of a stack."""

    by_name: Mapping[str, str]
    """``sha256:…`` by the images' short names, beside those of the bill of materials."""
    made_up: tuple[str, ...]
    """Names whose digest nobody knows yet; only in the sandbox."""


def digests(settings: InClusterSettings, root: Path, *, sandboxed: bool) -> Digests:
    """The digests that the stack's file brings.

    In the sandbox an image that has none yet gets one that is made from its name: nothing pulls it
    there, and everything else about the stack can be judged.

    Args:
        settings: the stack's settings.
        root: the project's folder, where the lock file's path starts.
        sandboxed: whether nothing real is made.

    Raises:
        SettingsError: the lock file can't be used.
    """
    locked = _locked(settings, root)
    unknown = sorted(
        name for name, image in images().items() if not image.digest and name not in locked
    )
    if not sandboxed:
        return Digests(locked, ())
    made_up = {
        name: "sha256:" + hashlib.sha256(f"made up for {name}".encode()).hexdigest()
        for name in unknown
    }
    return Digests({**locked, **made_up}, tuple(unknown))


def _locked(settings: InClusterSettings, root: Path) -> dict[str, str]:
    if settings.images is None:
        return {}
    try:
        return dict(read_lock(root / settings.images))
    except LockError as error:
        finding = Finding(("images",), f"given {format_value(settings.images)}; {error}")
        raise RefusedSettingsError.of(settings.provenance, [finding]) from None
