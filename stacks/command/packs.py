"""Where the policy packs are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from falaj.stacks.settings.policies import PACKS

#: The folder of the packs.
POLICIES = Path(__file__).resolve().parents[2] / "policies"


def pack_folders(packs: Sequence[str]) -> list[Path]:
    """The folders of packs by their names."""
    if set(packs) == set(PACKS):
        return [POLICIES / "all"]
    return [POLICIES / name for name in dict.fromkeys(packs)]
