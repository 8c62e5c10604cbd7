"""Checks all that a stack's components would refuse, before the engine makes the first of them."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pulumi

from falaj.components import catalogue
from falaj.components.specification.refusals import RefusedArgumentsError
from falaj.components.specification.spelling import module_of
from falaj.stacks.blueprints import cluster, foundation, in_cluster, platform, smb, workloads
from falaj.stacks.blueprints.cloud import Cloud, common_arguments
from falaj.stacks.image_digests import digests
from falaj.stacks.refusals import Check, Refused, findings
from falaj.stacks.sandbox_guard import made_up
from falaj.stacks.settings import (
    CloudSettings,
    ClusterSettings,
    InClusterSettings,
    PlatformSettings,
    SmbSettings,
    WorkloadsSettings,
)
from falaj.stacks.settings.foundation import OwnFoundation
from falaj.stacks.settings.problems import RefusedSettingsError


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
    """Components that only check their arguments, and remember what they refuse."""

    def __init__(self, check_of: Callable[[str], Check]) -> None:
        """``check_of`` finds a component's check by the component's module."""
        self._check_of = check_of
        self.refused: list[Refused] = []

    @classmethod
    def in_cloud(cls, cloud: str) -> Rehearsed:
        """The components of ``aws`` or ``azure``."""

        def check_of(module: str) -> Check:
            check = importlib.import_module(f"falaj.components.specification.{module}").check
            return lambda name, args: check(cloud, name, args)

        return cls(check_of)

    @classmethod
    def in_cluster(cls) -> Rehearsed:
        """The components inside a cluster."""
        return cls(
            lambda module: importlib.import_module(f"falaj.components.kubernetes.{module}").check
        )

    def __getattr__(self, component: str) -> Callable[..., Anything]:
        check = self._check_of(module_of(component))

        def make(name: str, args: Mapping[str, Any], options: object) -> Anything:
            del options
            try:
                check(name, args)
            except RefusedArgumentsError as error:
                self.refused.append(Refused(component, name, args, check, error))
            return Anything()

        return make

    def require_accepted(self, settings: CloudSettings) -> None:
        """Raises SettingsError with everything that was refused, by the stack's keys."""
        found = findings(settings, self.refused)
        if found:
            raise RefusedSettingsError.of(settings.provenance, found)


class Late(pulumi.Output[Any]):
    """Stands for an output where components ask whether a value is one."""

    def __init__(self) -> None:
        """Nothing is known of it, and nothing waits for it."""


def rehearse_in_cluster(settings: InClusterSettings, digests: Mapping[str, str]) -> None:
    """Check the arguments of every component of a stack inside a cluster.

    Args:
        settings: the stack's settings.
        digests: of images, by their short names.

    Raises:
        SettingsError: what each component refuses, and why.
    """
    rehearsed = Rehearsed.in_cluster()
    parts = in_cluster.InClusterParts(
        rehearsed, in_cluster.common_arguments(settings), digests, pulumi.ResourceOptions(),
        unknown=Late(),
    )  # fmt: skip
    if isinstance(settings, PlatformSettings):
        platform.declare(settings, parts)
    elif isinstance(settings, WorkloadsSettings):
        workloads.declare(settings, parts)
    rehearsed.require_accepted(settings)


def rehearse(settings: CloudSettings, place: catalogue.Place, made_up: Mapping[str, str]) -> None:
    """Check the arguments of every component of a stack.

    Args:
        settings: the stack's settings.
        place: where it is to be made.
        made_up: what the sandbox stands in with.

    Raises:
        SettingsError: what each component refuses, and why.
    """
    parts = Rehearsed.in_cloud(place.cloud)
    common = common_arguments(settings, place)
    cloud = Cloud(place, parts, common, pulumi.ResourceOptions(), unknown=Anything())
    if isinstance(settings, ClusterSettings):
        cluster.declare(settings, cloud)
    elif isinstance(settings, SmbSettings):
        smb.declare(settings, cloud, made_up)
    elif isinstance(settings, OwnFoundation):
        foundation.declare(settings, cloud)
    parts.require_accepted(settings)


def with_what_components_refuse(error: RefusedSettingsError, root: Path) -> RefusedSettingsError:
    """A refusal of settings, with what the components would refuse of the rest.

    Args:
        error: what was refused before any component was asked.
        root: the project's folder.
    """
    try:
        ask_components(error.mended, root)
    except RefusedSettingsError as more:
        return error.and_also(more)
    return error


def ask_components(settings: Any, root: Path) -> None:
    """Check what can be known of a stack beside its settings' types, as in the sandbox.

    Args:
        settings: of any stack; of a local one nothing is asked.
        root: the project's folder, where the path of the images' lock file starts.

    Raises:
        SettingsError: what each component refuses, and why.
    """
    if isinstance(settings, InClusterSettings):
        rehearse_in_cluster(settings, digests(settings, root, sandboxed=True).by_name)
    elif isinstance(settings, CloudSettings) and len(settings.places) == 1:
        place = catalogue.parse(settings.places[0])
        rehearse(settings, place, made_up(settings, place.cloud))
