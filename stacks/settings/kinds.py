"""The kinds of stacks and the settings of each, loaded where a stack is of that kind.

A local stack's settings need neither the engine's SDK nor any component.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from falaj.stacks.settings.cluster import ClusterSettings
    from falaj.stacks.settings.foundation import FoundationSettings
    from falaj.stacks.settings.local import LocalSettings
    from falaj.stacks.settings.platform import PlatformSettings
    from falaj.stacks.settings.smb import SmbSettings
    from falaj.stacks.settings.workloads import WorkloadsSettings

    Settings: TypeAlias = (
        LocalSettings
        | FoundationSettings
        | ClusterSettings
        | SmbSettings
        | PlatformSettings
        | WorkloadsSettings
    )

#: Where the settings of each kind are, by the name that the reference gives it.
_HOMES: Final[Mapping[str, tuple[str, str]]] = {
    "local": ("local", "LocalSettings"),
    "foundation": ("foundation", "FoundationSettings"),
    "cluster": ("cluster", "ClusterSettings"),
    "smb": ("smb", "SmbSettings"),
    "platform": ("platform", "PlatformSettings"),
    "workloads": ("workloads", "WorkloadsSettings"),
}

PLATFORMS: Final = ("local", "aws", "azure", "kubernetes")


class Kinds(Mapping[str, "type[Settings]"]):
    """Settings by a name, each loaded when it is asked for."""

    def __init__(self, kinds: Mapping[str, str]) -> None:
        """``kinds`` are the kinds by the names that a stack gives them."""
        self._kinds = kinds

    def __getitem__(self, name: str) -> type[Settings]:
        module, model = _HOMES[self._kinds[name]]
        return getattr(importlib.import_module(f"falaj.stacks.settings.{module}"), model)

    def kind(self, name: str) -> str:
        """The kind that a stack names so."""
        return self._kinds[name]

    def __contains__(self, name: object) -> bool:
        return name in self._kinds  # without loading it

    def __iter__(self) -> Iterator[str]:
        return iter(self._kinds)

    def __len__(self) -> int:
        return len(self._kinds)


ALL: Final = Kinds({name: name for name in _HOMES})
#: The kinds of stacks in a cloud, and the settings of each.
BLUEPRINTS: Final = Kinds({name: name for name in _HOMES if name != "local"})
#: The kinds on an existing cluster: its ``cluster`` is what a cloud's ``platform`` is.
EXISTING: Final = Kinds({"cluster": "platform", "workloads": "workloads"})


def kinds_on(platform: object) -> Kinds:
    """What a stack on a platform may be."""
    return EXISTING if platform == "kubernetes" else BLUEPRINTS
