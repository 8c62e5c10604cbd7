"""Checks all that a stack's components would refuse, before the engine makes the first of them."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping
from typing import Any

import pulumi

from falaj.components import catalogue
from falaj.stacks.blueprints import cluster, foundation, in_cluster, platform, smb, workloads
from falaj.stacks.blueprints.cloud import Cloud, common_arguments
from falaj.stacks.errors import SettingsError
from falaj.stacks.settings import (
    CloudSettings,
    ClusterSettings,
    InClusterSettings,
    PlatformSettings,
    SmbSettings,
    WorkloadsSettings,
)
from falaj.stacks.settings.foundation import OwnFoundation


class Anything:
    """Stands for an output: whatever is read from it is as unknown as itself."""

    def __getattr__(self, name: str) -> Anything:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __getitem__(self, key: str) -> Anything:
        return self

    def apply(self, function: Callable[..., object]) -> Anything:
        """Nothing is known, so nothing is done."""
        del function
        return self


class Rehearsed:
    """A cloud's components that only check their arguments."""

    def __init__(self, cloud: str) -> None:
        """``cloud`` is ``aws`` or ``azure``."""
        self._cloud = cloud
        self.refusals: list[str] = []

    def __getattr__(self, component: str) -> Callable[..., Anything]:
        module = re.sub(r"(?<!^)(?=[A-Z])", "_", component).lower()
        check = importlib.import_module(f"falaj.components.specification.{module}").check

        def make(name: str, args: Mapping[str, Any], options: object) -> Anything:
            del options
            try:
                check(self._cloud, name, args)
            except pulumi.InputPropertiesError as error:
                self.refusals.append(str(error))
            return Anything()

        return make


class Late(pulumi.Output[Any]):
    """Stands for an output where components ask whether a value is one."""

    def __init__(self) -> None:
        """Nothing is known of it, and nothing waits for it."""


class RehearsedInCluster:
    """The components inside a cluster that only check their arguments."""

    def __init__(self) -> None:
        self.refusals: list[str] = []

    def __getattr__(self, component: str) -> Callable[..., Anything]:
        module = re.sub(r"(?<!^)(?=[A-Z])", "_", component).lower()
        check = importlib.import_module(f"falaj.components.kubernetes.{module}").check

        def make(name: str, args: Mapping[str, Any], options: object) -> Anything:
            del options
            try:
                check(name, args)
            except pulumi.InputPropertiesError as error:
                self.refusals.append(str(error))
            return Anything()

        return make


def rehearse_in_cluster(settings: InClusterSettings, digests: Mapping[str, str]) -> None:
    """Check the arguments of every component of a stack inside a cluster.

    Args:
        settings: the stack's settings.
        digests: of images, by their short names.

    Raises:
        SettingsError: what each component refuses, and why.
    """
    rehearsed: Any = RehearsedInCluster()
    parts = in_cluster.InClusterParts(
        rehearsed, in_cluster.common_arguments(settings), digests, pulumi.ResourceOptions(),
        unknown=Late(),
    )  # fmt: skip
    if isinstance(settings, PlatformSettings):
        platform.declare(settings, parts)
    elif isinstance(settings, WorkloadsSettings):
        workloads.declare(settings, parts)
    if rehearsed.refusals:
        raise SettingsError("\n".join(rehearsed.refusals))


def rehearse(settings: CloudSettings, place: catalogue.Place, made_up: Mapping[str, str]) -> None:
    """Check the arguments of every component of a stack.

    Args:
        settings: the stack's settings.
        place: where it is to be made.
        made_up: what the sandbox stands in with.

    Raises:
        SettingsError: what each component refuses, and why.
    """
    parts: Any = Rehearsed(place.cloud)
    common = common_arguments(settings, place)
    cloud = Cloud(place, parts, common, pulumi.ResourceOptions(), unknown=Anything())
    if isinstance(settings, ClusterSettings):
        cluster.declare(settings, cloud)
    elif isinstance(settings, SmbSettings):
        smb.declare(settings, cloud, made_up)
    elif isinstance(settings, OwnFoundation):
        foundation.declare(settings, cloud)
    if parts.refusals:
        raise SettingsError("\n".join(parts.refusals))
