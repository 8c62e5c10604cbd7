"""The policy packs that a stack is judged by, as arguments of the engine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from stacks.settings import CloudSettings
from stacks.settings.policies import PACKS

#: The folder of the packs.
POLICIES = Path(__file__).resolve().parents[2] / "policies"


def pack_arguments(settings: CloudSettings) -> list[str]:
    """``--policy-pack FOLDER`` for each pack of the stack; one process where it wants all."""
    return [
        argument
        for folder in pack_folders(settings.policies.packs)
        for argument in ("--policy-pack", str(folder))
    ]


def pack_folders(packs: Sequence[str]) -> list[Path]:
    """The folders of packs by their names."""
    if set(packs) == set(PACKS):
        return [POLICIES / "all"]
    return [POLICIES / name for name in dict.fromkeys(packs)]
