"""Typed settings of a stack: the only way by which ``Pulumi.<stack>.yaml`` reaches a blueprint.

Unknown keys, wrong types and impossible combinations are refused before the engine does anything,
each with its line and with the line as it should be. Region, cloud and data class are plain
strings here, known before any resource is registered.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from falaj.stacks.settings.kinds import BLUEPRINTS, EXISTING, PLATFORMS
from falaj.stacks.settings.load import load_engine, load_file, validate
from falaj.stacks.settings.problems import NAMESPACE

if TYPE_CHECKING:
    from falaj.stacks.settings.cloud import CloudSettings
    from falaj.stacks.settings.cluster import ClusterSettings
    from falaj.stacks.settings.foundation import FoundationSettings
    from falaj.stacks.settings.in_cluster import InClusterSettings
    from falaj.stacks.settings.kinds import Settings
    from falaj.stacks.settings.local import LocalSettings
    from falaj.stacks.settings.platform import PlatformSettings
    from falaj.stacks.settings.smb import SmbSettings
    from falaj.stacks.settings.workloads import WorkloadsSettings

#: Settings that are loaded only when somebody names them: most stand on components.
_LATER = {
    "CloudSettings": "cloud",
    "ClusterSettings": "cluster",
    "FoundationSettings": "foundation",
    "InClusterSettings": "in_cluster",
    "LocalSettings": "local",
    "PlatformSettings": "platform",
    "SmbSettings": "smb",
    "WorkloadsSettings": "workloads",
}

__all__ = [
    "BLUEPRINTS",
    "EXISTING",
    "NAMESPACE",
    "PLATFORMS",
    "CloudSettings",
    "ClusterSettings",
    "FoundationSettings",
    "InClusterSettings",
    "LocalSettings",
    "PlatformSettings",
    "Settings",
    "SmbSettings",
    "WorkloadsSettings",
    "load_engine",
    "load_file",
    "validate",
]


def __getattr__(name: str) -> Any:
    if name == "Settings":
        return Any  # for annotations alone
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_LATER[name]}"), name)
