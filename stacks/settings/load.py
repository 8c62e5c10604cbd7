"""From a stack file, or from the engine, to checked settings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from falaj.components import catalogue
from falaj.policies.model import PolicyError, read_settings
from falaj.stacks.errors import SettingsError
from falaj.stacks.settings.cloud import CloudSettings
from falaj.stacks.settings.cluster import ClusterSettings
from falaj.stacks.settings.errors import describe, unknown_namespace
from falaj.stacks.settings.foundation import FoundationSettings
from falaj.stacks.settings.in_cluster import InClusterSettings, check_access
from falaj.stacks.settings.local import LocalSettings, check_combinations
from falaj.stacks.settings.nesting import nest
from falaj.stacks.settings.platform import PlatformSettings
from falaj.stacks.settings.section import Section
from falaj.stacks.settings.smb import SmbSettings
from falaj.stacks.settings.source import Values, from_engine, from_project_and_stack
from falaj.stacks.settings.workloads import WorkloadsSettings

NAMESPACE = "falaj"
#: Namespaces that a stack file may hold: ours, the engine's, and those of the clouds' providers.
NAMESPACES = (NAMESPACE, "pulumi", "aws", "azure-native", "kubernetes")

Settings = (
    LocalSettings
    | FoundationSettings
    | ClusterSettings
    | SmbSettings
    | PlatformSettings
    | WorkloadsSettings
)

PLATFORMS = ("local", "aws", "azure", "kubernetes")
#: The kinds of stacks in a cloud, and the settings of each.
BLUEPRINTS: Mapping[str, type[Settings]] = {
    "foundation": FoundationSettings,
    "cluster": ClusterSettings,
    "smb": SmbSettings,
    "platform": PlatformSettings,
    "workloads": WorkloadsSettings,
}
#: The kinds on an existing cluster: its ``cluster`` is what a cloud's ``platform`` is.
EXISTING: Mapping[str, type[Settings]] = {
    "cluster": PlatformSettings,
    "workloads": WorkloadsSettings,
}


def load_file(path: Path, root: Path) -> Settings:
    """Settings of a stack file, without an engine; ``root`` is the project's folder.

    Raises:
        SettingsError: the file is missing or not YAML, or a value was refused.
    """
    return validate(
        from_project_and_stack(path, root), root, stack=path.stem.removeprefix("Pulumi.")
    )


def load_engine(stack: str, root: Path) -> Settings:
    """Settings that the engine handed to the running program.

    Raises:
        SettingsError: a value was refused.
    """
    return validate(from_engine(), root, stack=stack)


def validate(values: Values, root: Path, *, stack: str) -> Settings:
    """Check namespaced values (``falaj:dataset``) and return the settings of the stack's kind.

    Raises:
        SettingsError: names every refused key with its path, the value and what is allowed.
    """
    own: dict[str, Any] = {}
    for key, value in values.items():
        namespace, _, name = key.partition(":")
        if namespace not in NAMESPACES:
            raise SettingsError(unknown_namespace(key, NAMESPACES))
        if namespace == NAMESPACE:
            own[name] = value
    own = nest(own, NAMESPACE)
    kind = _kind(own, stack)
    try:
        settings = kind.model_validate(own)
    except ValidationError as error:
        raise SettingsError(describe(error, kind, NAMESPACE, stack)) from None
    if isinstance(settings, LocalSettings):
        check_combinations(settings, root, stack)
        return settings
    if isinstance(settings, InClusterSettings):
        check_access(settings, stack)
    _check_places(settings, stack)
    _check_policies(settings)
    return settings


def _kind(own: Mapping[str, Any], stack: str) -> type[Settings]:
    """The settings that the stack's platform and blueprint ask for."""
    platform = own.get("platform")
    if platform == "local":
        return LocalSettings
    if platform is None and "placement" in own:
        if "region" in own:
            raise SettingsError(
                f"falaj:region: given {own['region']!r} beside falaj:placement, which names the "
                f"regions\n  remove it with: pulumi config rm falaj:region -s {stack}"
            )
    elif not isinstance(platform, str) or platform not in PLATFORMS:
        given = "nothing" if platform is None else repr(platform)
        raise SettingsError(
            f"falaj:platform: given {given}; allowed: {', '.join(PLATFORMS)}\n"
            f"  set it with: pulumi config set falaj:platform local -s {stack}"
        )
    elif "placement" in own:
        raise SettingsError(
            f"falaj:platform: given {platform!r} beside falaj:placement, which names the clouds\n"
            f"  remove one of them: pulumi config rm falaj:platform -s {stack}"
        )
    blueprint = own.get("blueprint")
    kinds = EXISTING if platform == "kubernetes" else BLUEPRINTS
    if not isinstance(blueprint, str) or blueprint not in kinds:
        given = "nothing" if blueprint is None else repr(blueprint)
        on = f" on the platform {platform}" if blueprint in BLUEPRINTS else ""
        raise SettingsError(
            f"falaj:blueprint: given {given}; allowed{on}: {', '.join(kinds)}\n"
            f"  set it with: pulumi config set falaj:blueprint {next(iter(kinds))} -s {stack}"
        )
    return kinds[blueprint]


def _check_places(settings: CloudSettings, stack: str) -> None:
    """Every place has to be in the country, and in a cloud that this blueprint knows."""
    key = "placement" if settings.placement else "region"
    for place in settings.places:
        cloud, _, region = place.partition("/")
        if settings.platform == "kubernetes":
            # The site of an existing cluster is its owner's word; components check its form.
            continue
        if cloud not in ("aws", "azure"):
            raise SettingsError(
                f"falaj:{key}: given {place!r}; allowed: {', '.join(catalogue.PLACES)}\n"
                "  stacks of this blueprint are made in a cloud"
            )
        try:
            catalogue.place(cloud, region)
        except catalogue.CatalogueError as error:
            raise SettingsError(
                f"falaj:{key}: {error}\n"
                f"  set it with: pulumi config set falaj:{key} VALUE -s {stack}"
            ) from None


def _check_policies(settings: CloudSettings) -> None:
    """What the packs would refuse is refused before the engine starts them."""
    try:
        read_settings(settings.policies.given(), "falaj:policies")
    except PolicyError as error:
        raise SettingsError(str(error)) from None


def sections() -> dict[str, type[Section]]:
    """The settings of every kind of stack, by the name that the reference gives them."""
    return {"local": LocalSettings, **BLUEPRINTS}
