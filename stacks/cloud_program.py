"""Declares the stacks of a cloud, in the first place that fits, and those inside a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pulumi
from pydantic.alias_generators import to_camel

from falaj.sandbox import activation
from falaj.stacks.blueprints.cloud import (
    declare_cluster,
    declare_foundation,
    declare_smb,
    open_cloud,
)
from falaj.stacks.placement import choose
from falaj.stacks.sandbox_guard import FIRST_KEY, STORES, check_sandbox_guard, is_phase, made_up
from falaj.stacks.settings import (
    CloudSettings,
    ClusterSettings,
    FoundationSettings,
    InClusterSettings,
    SmbSettings,
)
from falaj.stacks.settings.cloud import OwnFoundation
from falaj.stacks.validation import validate_in_cloud, validate_in_cluster


def declare(settings: CloudSettings, root: Path) -> None:
    """Declare a stack as the engine was asked to: with the sandbox's providers, or a phase of it.

    Args:
        settings: the stack's settings.
        root: the project's folder, where the path of the images' lock file starts.

    Raises:
        EngineError: the sandbox was asked for and isn't what would answer.
        StackError: the stack isn't meant for this, no place sells what it asks for, or the lock
            file can't be used.
        pulumi.InputPropertiesError: a component refused its arguments.
    """
    activation.check()
    sandboxed = activation.is_asked()
    if isinstance(settings, InClusterSettings):
        declare_in_cluster(settings, root, sandboxed=sandboxed)
    else:
        declare_in_cloud(
            settings,
            sandboxed=sandboxed,
            stores=is_phase(STORES),
            first_key=is_phase(FIRST_KEY),
        )


def declare_in_cloud(
    settings: CloudSettings, *, sandboxed: bool, stores: bool = False, first_key: bool = False
) -> None:
    """Declare a stack in the first of its places that fits.

    Args:
        settings: the stack's settings.
        sandboxed: whether the providers are the sandbox's.
        stores: only what it stands on, where that is its own. Default: False.
        first_key: Azure's registry with a key of its own first. Default: False.

    Raises:
        StackError: the stack isn't meant for this, or no place sells what it asks for.
        pulumi.InputPropertiesError: a component refused its arguments.
    """
    stores = stores and isinstance(settings, OwnFoundation)
    check_sandbox_guard(settings, sandboxed=sandboxed, stores=stores)
    choice = choose(settings)
    for reason in choice.reasons:
        pulumi.log.info(reason)
    stand_ins = made_up(settings, choice.place) if sandboxed or stores else {}
    validate_in_cloud(settings, choice.place, stand_ins)
    cloud = open_cloud(settings, choice.place, first_key=first_key)
    pulumi.export("place", choice.place.name)
    pulumi.export("sandbox", sandboxed)
    if stores or isinstance(settings, FoundationSettings):
        declare_foundation(cast("OwnFoundation", settings), cloud)
    elif isinstance(settings, ClusterSettings):
        declare_cluster(settings, cloud)
    elif isinstance(settings, SmbSettings):
        for name in stand_ins:
            pulumi.log.warn(f"SANDBOX: falaj:inference.{to_camel(name)} is missing; made up here")
        declare_smb(settings, cloud, stand_ins)


def declare_in_cluster(settings: InClusterSettings, root: Path, *, sandboxed: bool) -> None:
    """Declare a stack inside a cluster.

    Args:
        settings: the stack's settings.
        root: the project's folder, where the path of the images' lock file starts.
        sandboxed: whether the provider is the sandbox's.

    Raises:
        StackError: the stack isn't meant for this, or the lock file can't be used.
        pulumi.InputPropertiesError: a component refused its arguments.
    """
    # Most of what a stack in a cloud would have to load, and never uses.
    from falaj.stacks.blueprints.in_cluster import (  # noqa: PLC0415
        declare_platform,
        declare_workloads,
        open_cluster,
    )
    from falaj.stacks.image_digests import digests  # noqa: PLC0415
    from falaj.stacks.settings import PlatformSettings, WorkloadsSettings  # noqa: PLC0415

    check_sandbox_guard(settings, sandboxed=sandboxed)
    pinned = digests(settings, root, sandboxed=sandboxed)
    for name in pinned.made_up:
        pulumi.log.debug(f"SANDBOX: the digest of image {name} is unknown; made up here")
    validate_in_cluster(settings, pinned.by_name)
    parts = open_cluster(settings, pinned.by_name)
    pulumi.export("place", settings.places[0])
    pulumi.export("sandbox", sandboxed)
    if isinstance(settings, PlatformSettings):
        declare_platform(settings, parts)
    elif isinstance(settings, WorkloadsSettings):
        declare_workloads(settings, parts)
