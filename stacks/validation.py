"""Finds what a stack's components would refuse, before the engine makes the first resource.

The stack's blueprint is run as for a deployment, but instead of the components it is handed
stand-ins of the same names (`CheckedComponents`): each calls the check of the component's
arguments, notes what that refuses, and makes nothing. What the next components take of its outputs
is a `Placeholder`. So every component is checked with exactly the arguments that it would get.

What was refused is told by the keys of the stack's file: `falaj.stacks.component_findings`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pulumi

from falaj.components import catalogue
from falaj.components.specification.argument_errors import InvalidArgumentsError
from falaj.components.specification.property_names import module_of
from falaj.stacks.blueprints.cloud import (
    Cloud,
    common_arguments,
    declare_cluster,
    declare_foundation,
    declare_smb,
)
from falaj.stacks.invalid_component import Check, InvalidComponent
from falaj.stacks.sandbox_guard import made_up
from falaj.stacks.settings import (
    CloudSettings,
    ClusterSettings,
    InClusterSettings,
    SmbSettings,
)
from falaj.stacks.settings.cloud import OwnFoundation
from falaj.stacks.settings.problems import RefusedSettingsError


class Placeholder:
    """Stands for an output: whatever is read from it is as unknown as itself."""

    def __getattr__(self, name: str) -> Placeholder:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __getitem__(self, key: str) -> Placeholder:
        return self

    def apply(self, function: Callable[..., object]) -> Placeholder:
        """Nothing is known, so nothing is done."""
        del function
        return self


class CheckedComponents:
    """Components that only check their arguments, and remember what they refuse."""

    def __init__(self, check_of: Callable[[str], Check]) -> None:
        """``check_of`` finds a component's check by the component's module."""
        self._check_of = check_of
        self.refused: list[InvalidComponent] = []

    @classmethod
    def in_cloud(cls, cloud: str) -> CheckedComponents:
        """The components of ``aws`` or ``azure``."""

        def check_of(module: str) -> Check:
            check = importlib.import_module(f"falaj.components.specification.{module}").check
            return lambda name, args: check(cloud, name, args)

        return cls(check_of)

    @classmethod
    def in_cluster(cls) -> CheckedComponents:
        """The components inside a cluster."""
        return cls(
            lambda module: importlib.import_module(f"falaj.components.kubernetes.{module}").check
        )

    def __getattr__(self, component: str) -> Callable[..., Placeholder]:
        check = self._check_of(module_of(component))

        def make(name: str, args: Mapping[str, Any], options: object) -> Placeholder:
            del options
            try:
                check(name, args)
            except InvalidArgumentsError as invalid:
                self.refused.append(InvalidComponent(component, name, args, check, invalid))
            return Placeholder()

        return make

    def require_accepted(self, settings: CloudSettings) -> None:
        """Raises SettingsError with everything that was refused, by the stack's keys."""
        if not self.refused:
            return
        from falaj.stacks.component_findings import findings  # noqa: PLC0415 - as its module says

        raise RefusedSettingsError.of(settings.provenance, findings(settings, self.refused))


class OutputPlaceholder(pulumi.Output[Any]):
    """Stands for an output where components ask whether a value is one."""

    def __init__(self) -> None:
        """Nothing is known of it, and nothing waits for it."""


def validate_in_cluster(settings: InClusterSettings, digests: Mapping[str, str]) -> None:
    """Check the arguments of every component of a stack inside a cluster.

    Args:
        settings: the stack's settings.
        digests: of images, by their short names.

    Raises:
        SettingsError: what each component refuses, and why.
    """
    # A stack in a cloud needs none of these.
    from falaj.stacks.blueprints import in_cluster  # noqa: PLC0415
    from falaj.stacks.settings import PlatformSettings, WorkloadsSettings  # noqa: PLC0415

    checked = CheckedComponents.in_cluster()
    parts = in_cluster.InClusterParts(
        checked, in_cluster.common_arguments(settings), digests, pulumi.ResourceOptions(),
        unknown=OutputPlaceholder(),
    )  # fmt: skip
    if isinstance(settings, PlatformSettings):
        in_cluster.declare_platform(settings, parts)
    elif isinstance(settings, WorkloadsSettings):
        in_cluster.declare_workloads(settings, parts)
    checked.require_accepted(settings)


def validate_in_cloud(
    settings: CloudSettings, place: catalogue.Place, made_up: Mapping[str, Any]
) -> None:
    """Check the arguments of every component of a stack.

    Args:
        settings: the stack's settings.
        place: where it is to be made.
        made_up: what the sandbox stands in with.

    Raises:
        SettingsError: what each component refuses, and why.
    """
    parts = CheckedComponents.in_cloud(place.cloud)
    common = common_arguments(settings, place)
    cloud = Cloud(place, parts, common, pulumi.ResourceOptions(), unknown=Placeholder())
    if isinstance(settings, ClusterSettings):
        declare_cluster(settings, cloud)
    elif isinstance(settings, SmbSettings):
        declare_smb(settings, cloud, made_up)
    elif isinstance(settings, OwnFoundation):
        declare_foundation(settings, cloud)
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
        from falaj.stacks.image_digests import digests  # noqa: PLC0415

        validate_in_cluster(settings, digests(settings, root, sandboxed=True).by_name)
    elif isinstance(settings, CloudSettings) and len(settings.places) == 1:
        place = catalogue.parse(settings.places[0])
        validate_in_cloud(settings, place, made_up(settings, place))
