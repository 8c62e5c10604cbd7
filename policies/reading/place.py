"""Where a resource is, as far as anything says so: for rules and for reports.

``aws/me-central-1`` and the like; ``global`` for what a cloud runs for all its regions at once;
``none`` for what has no place of its own (random values, components, Kubernetes objects);
``unknown`` where nobody says.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from falaj.components.catalogue.region_names import (
    aws_region_of,
    is_azure_location,
    normalise_azure,
    region_in,
)
from falaj.policies.model import ABSENT, Context, Resource, Stack, is_unknown, text

_DATA: Final[dict[str, Any]] = json.loads(
    (Path(__file__).parent / "aws_regionless.json").read_text(encoding="utf-8")
)
#: AWS types without a region of their own, each with its class and the reason for it; every such
#: type of pulumi_aws 7.51.1.
REGIONLESS: Final[dict[str, list[str]]] = _DATA["types"]
#: Modules of the SDK in which no type has a region.
REGIONLESS_MODULES: Final = frozenset[str](_DATA["modules"])

#: Packages whose resources hold no data at a place of their own.
PLACELESS: Final = frozenset((
    # Values and files that live in the state or on the machine that runs the program.
    "archive", "assert", "cloudinit", "command", "docker-build", "local", "null", "pulumi",
    "random", "std", "terraform", "time", "tls",
    # Components, whose children are judged.
    "awsx", "aws-apigateway", "aws-iam", "aws-quickstart-vpc", "eks", "synced-folder",
    # Identities: a directory is where its tenant is, which no resource chooses.
    "azuread",
    # Objects are where their cluster is; the pack `kubernetes` judges them.
    "kubernetes", "kubernetes-cert-manager", "kubernetes-coredns", "kubernetes-ingress-nginx",
))  # fmt: skip

_AWS: Final = frozenset(("aws", "aws-native"))


def has_place(resource: Resource) -> bool:
    """Whether a resource is somewhere of its own."""
    package = resource.package
    return not (
        not resource.custom
        or package in PLACELESS
        or package.startswith("falaj")
        or resource.type.startswith("pulumi:")
    )


def region_of_resource(resource: Resource) -> Any:
    """The region of an AWS resource: its own, else its provider's, else what the cloud answered.

    Returns:
        A text in small letters, an Unknown where there is one that can't be seen, or ABSENT where
        nobody says (then the environment of whoever runs the program decides).
    """
    own = resource.get("region")
    provider: Mapping[str, Any] = resource.provider.properties if resource.provider else {}
    answered = text(resource.outputs.get("region")) or region_in(resource.outputs.get("arn"))
    found: Any = own if resource.package == "aws" else ABSENT
    for given in (found, provider.get("region"), answered):
        if is_unknown(given):
            return answered.lower() or given
        if text(given):
            return text(given).lower()
    return ABSENT


def _azure(resource: Resource, stack: Stack | None) -> str:
    given = resource.get("location")
    if given is ABSENT or is_unknown(given):
        given = text(resource.outputs.get("location")) or given
    if given is ABSENT:
        group = text(resource.get("resourceGroupName"))
        groups = stack.of_kind("azure-native:resources:ResourceGroup") if stack else []
        named = [each for each in groups if group and group.lower() in set(_names(each))]
        provider: Mapping[str, Any] = resource.provider.properties if resource.provider else {}
        given = next((each.get("location") for each in named), provider.get("location"))
    normal = normalise_azure(given)
    if normal == "global":
        return "global"
    return f"azure/{normal}" if is_azure_location(given, geographies=True) else "unknown"


def _names(group: Resource) -> list[str]:
    named = (group.get("resourceGroupName"), group.outputs.get("name"), group.name)
    return [text(each).lower() for each in named]


def place_of(resource: Resource, stack: Stack | None = None) -> str:
    """Where a resource is.

    Args:
        resource: of any cloud.
        stack: to look up the resource group of an Azure resource that names no location.

    Returns:
        ``aws/REGION``, ``azure/LOCATION``, ``global``, ``none`` or ``unknown``.
    """
    if not has_place(resource):
        return "none"
    if resource.kind in REGIONLESS:
        return "global"
    if resource.package in _AWS:
        given = region_of_resource(resource)
        return f"aws/{aws_region_of(given) or given}" if isinstance(given, str) else "unknown"
    if resource.package == "azure-native":
        return _azure(resource, stack)
    return "unknown"


def is_allowed(place: str, context: Context) -> bool:
    """Whether data may be at a place, such as ``aws/me-central-1``."""
    return place in context.settings.allowed_places


def format_places(context: Context) -> str:
    """The places where data may be, as a clause's end: ``data may be in …``."""
    return "data may be in " + " or ".join(context.settings.allowed_places)


def referred_place(context: Context, resource: Resource, path: str) -> str:
    """Where the resources are that a property was made from: one place, or ``unknown``.

    For an unknown value that names a region: what was made from a bucket of the stack is that
    bucket's region.
    """
    found = {place_of(each, context.stack) for each in context.referred(resource, path)}
    found.discard("global")
    return found.pop() if len(found) == 1 and not found & {"none"} else "unknown"
