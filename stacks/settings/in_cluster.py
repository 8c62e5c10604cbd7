"""What every stack inside a cluster says: which cluster that is, whence its images come."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from falaj.components.specification.limits import REGISTRY
from falaj.stacks.settings.cloud import CloudSettings, Name


class InClusterSettings(CloudSettings):
    """Keys of the stacks that make objects in a cluster, not the cluster itself."""

    cluster: Name | None = None
    """Stack that made the cluster, on AWS and Azure."""
    kubeconfig: Annotated[str, Field(min_length=1)] | None = None
    """Path of the kubeconfig of an existing cluster. Default: what KUBECONFIG names, else
    ``~/.kube/config``."""
    context: Annotated[str, Field(min_length=1, max_length=253)] | None = None
    """Context of that kubeconfig."""
    zones: list[str] | None = None
    """Values of ``topology.kubernetes.io/zone`` that pods may be in. Default: all."""
    registry: Annotated[str, REGISTRY]
    """The registry in the country that images and charts are pulled from."""
    images: Annotated[str, Field(min_length=1)] | None = None
    """Lock file with the images' digests, relative to the project's folder: `falaj images pin`
    writes it. Default: the digests in Falaj's own bill of materials."""

    @property
    def upstream(self) -> str | None:
        """The stack that made the cluster."""
        return self.cluster

    @property
    def distribution(self) -> str:
        """The kind of cluster, as components name it."""
        return {"aws": "eks", "azure": "aks"}.get(str(self.platform), "existing")
