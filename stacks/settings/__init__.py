"""Typed settings of a stack: the only way by which ``Pulumi.<stack>.yaml`` reaches a blueprint.

Unknown keys, wrong types and impossible combinations are refused before the engine does anything,
each with its line and with the line as it should be. Region, cloud and data class are plain
strings here, known before any resource is registered.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from falaj.stacks.settings.load import (
    BLUEPRINTS,
    EXISTING,
    MODELS,
    PLATFORMS,
    load_engine,
    load_file,
    validate,
)
from falaj.stacks.settings.problems import NAMESPACE

if TYPE_CHECKING:
    from typing_extensions import TypeIs

    from falaj.stacks.settings.cloud import (
        CloudSettings,
        ClusterSettings,
        FoundationSettings,
        InClusterSettings,
        SmbSettings,
    )
    from falaj.stacks.settings.in_cluster import PlatformSettings, WorkloadsSettings
    from falaj.stacks.settings.load import Settings
    from falaj.stacks.settings.local import LocalSettings

#: Settings that are loaded only when somebody names them: most stand on components.
_LATER = {
    "CloudSettings": "cloud",
    "InClusterSettings": "cloud",
    **{model: module for module, model in MODELS.values()},
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
    "is_local",
    "is_workloads",
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


def is_local(settings: Settings | None) -> TypeIs[LocalSettings]:
    """Whether settings are of a stack of one machine; those of others load nothing to tell."""
    return _is_of(settings, "local")


def is_workloads(settings: Settings | None) -> TypeIs[WorkloadsSettings]:
    """Whether settings are of workloads in a cluster; those of others load nothing to tell."""
    return _is_of(settings, "workloads")


def _is_of(settings: Settings | None, kind: str) -> bool:
    module, model = MODELS[kind]
    # Of a model that isn't loaded nobody has settings.
    loaded = sys.modules.get(f"{__name__}.{module}")
    return loaded is not None and isinstance(settings, getattr(loaded, model))
