"""Typed settings of a stack: the only way by which ``Pulumi.<stack>.yaml`` reaches a blueprint.

Unknown keys, wrong types and impossible combinations are refused before the engine does anything.
Region, cloud and data class are plain strings here, known before any resource is registered.
"""

from falaj.stacks.settings.cloud import CloudSettings
from falaj.stacks.settings.cluster import ClusterSettings
from falaj.stacks.settings.foundation import FoundationSettings
from falaj.stacks.settings.in_cluster import InClusterSettings
from falaj.stacks.settings.load import (
    BLUEPRINTS,
    EXISTING,
    NAMESPACE,
    PLATFORMS,
    Settings,
    load_engine,
    load_file,
    validate,
)
from falaj.stacks.settings.local import LocalSettings
from falaj.stacks.settings.platform import PlatformSettings
from falaj.stacks.settings.smb import SmbSettings
from falaj.stacks.settings.workloads import WorkloadsSettings

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
