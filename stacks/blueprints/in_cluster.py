"""What blueprints inside a cluster share: its components, its provider, what they all take."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pulumi
from pydantic import BaseModel

from components.kubernetes import InClusterArgs
from stacks.errors import StackError
from stacks.settings.cloud import DEFAULT_REGIONS
from stacks.settings.in_cluster import InClusterSettings


@dataclass(frozen=True)
class InClusterParts:
    """The components, and what they all take."""

    components: Any
    """`components.kubernetes`, or what only checks arguments in its place."""
    common: InClusterArgs
    images: Mapping[str, str]
    """Digests by the images' short names, beside those of the bill of materials."""
    options: pulumi.ResourceOptions
    unknown: Any = None
    """Where a stack is only rehearsed: what stands for outputs. None: it is really declared."""

    def args(
        self, section: BaseModel | None = None, /, *, images: bool = False, **inputs: Any
    ) -> dict[str, Any]:
        """Arguments of a component: the common ones, a settings section's, and ``inputs``.

        Keys that the stack leaves out, and inputs that are None, take the component's default.

        Args:
            section: of the stack's settings.
            images: whether the component runs images.
            inputs: what the blueprint gives, above the section's.
        """
        given: dict[str, Any] = section.model_dump(exclude_none=True) if section else {}
        if images and self.images:
            given = {"images": dict(self.images), **given}
        return {
            **self.common,
            **given,
            **{name: value for name, value in inputs.items() if value is not None},
        }

    def export(self, name: str, value: object) -> None:
        """Make ``value`` an output of the stack."""
        if self.unknown is None:
            pulumi.export(name, value)


def common_arguments(settings: InClusterSettings) -> InClusterArgs:
    """What every component in the cluster takes."""
    region = settings.region or DEFAULT_REGIONS.get(str(settings.platform), "")
    common: InClusterArgs = {
        "distribution": settings.distribution,
        "region": region,
        "registry": settings.registry,
        "tenant": settings.tenant,
        "owner": settings.owner,
        "data_class": settings.data_class,
        "cost_center": settings.cost_center,
        "environment": settings.environment,
    }
    if settings.zones is not None:
        common["zones"] = settings.zones
    accepted = settings.acknowledged.get(region)
    if accepted is not None:
        common["acknowledge_degraded"] = accepted
    return common


def open_cluster(settings: InClusterSettings, images: Mapping[str, str]) -> InClusterParts:
    """Load the components and make the provider of the stack's cluster.

    Raises:
        StackError: the SDK is not installed.
    """
    try:
        components = importlib.import_module("components.kubernetes")
    except ModuleNotFoundError as error:
        if error.name and error.name.startswith("components"):
            raise
        raise StackError(
            f"stacks in a cluster need its SDK ({error.name} is missing); install it with: "
            "python3 engine/environment.py --extra kubernetes"
        ) from None
    common = common_arguments(settings)
    access: dict[str, Any] = {
        "distribution": common["distribution"],
        "region": common["region"],
    }
    if settings.cluster is None:
        access["context"] = settings.context
        if settings.kubeconfig is not None:
            access["kubeconfig"] = settings.kubeconfig
    else:
        other = beneath(settings)
        access |= {
            "cluster_name": other.require_output("clusterName"),
            "endpoint": other.require_output("clusterEndpoint"),
            "certificate_authority": other.require_output("certificateAuthority"),
        }
    provider = components.ClusterProvider("cluster", access)
    return InClusterParts(components, common, images, pulumi.ResourceOptions(providers=[provider]))


def beneath(settings: InClusterSettings) -> pulumi.StackReference:
    """The stack of this project that made the cluster."""
    organization, project = pulumi.get_organization(), pulumi.get_project()
    return pulumi.StackReference(f"{organization}/{project}/{settings.cluster}")
