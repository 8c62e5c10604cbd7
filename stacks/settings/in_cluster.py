"""What every stack inside a cluster says: which cluster that is, whence its images come."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from falaj.stacks.errors import SettingsError
from falaj.stacks.settings.cloud import CloudSettings, Name

#: As `InClusterArgs.registry`, which says it once more for programs without a stack file.
Registry = Annotated[
    str, Field(pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:\d{1,5})?(/[\w./-]+)?$")
]


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
    registry: Registry
    """The registry in the country that images and charts are pulled from."""
    images: Annotated[str, Field(min_length=1)] | None = None
    """Lock file with the images' digests, relative to the project's folder: `falaj images pin`
    writes it. Default: the digests in Falaj's own bill of materials."""

    @property
    def beneath(self) -> str | None:
        """The stack that made the cluster."""
        return self.cluster

    @property
    def distribution(self) -> str:
        """The kind of cluster, as components name it."""
        return {"aws": "eks", "azure": "aks"}.get(str(self.platform), "existing")


def check_access(settings: InClusterSettings, stack: str) -> None:
    """Refuse a stack that names no cluster, or two.

    Raises:
        SettingsError: names the key, the value and what is allowed.
    """
    if settings.placement:
        raise SettingsError(
            f"falaj:placement: given {settings.placement!r}; a stack inside a cluster is where "
            "the cluster is: name falaj:platform and falaj:region instead\n"
            f"  remove it with: pulumi config rm falaj:placement -s {stack}"
        )
    existing = settings.platform == "kubernetes"
    needed = {
        "context": "the kubeconfig's context of the existing cluster",
        "region": "the site in the country where the existing cluster stands",
    } if existing else {"cluster": "the stack that made the cluster"}  # fmt: skip
    for key, what in needed.items():
        if getattr(settings, key) is None:
            raise SettingsError(
                f"falaj:{key}: missing; expected {what}\n"
                f"  set it with: pulumi config set falaj:{key} VALUE -s {stack}"
            )
    for key in ("cluster",) if existing else ("context", "kubeconfig"):
        if getattr(settings, key) is not None:
            how = "its context in falaj:context" if existing else "its stack in falaj:cluster"
            raise SettingsError(
                f"falaj:{key}: given {getattr(settings, key)!r}, but a cluster on the platform "
                f"{settings.platform} is named by {how}\n"
                f"  remove it with: pulumi config rm falaj:{key} -s {stack}"
            )
