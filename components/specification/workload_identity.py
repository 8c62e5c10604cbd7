"""Arguments of `WorkloadIdentity`."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, NotRequired

import pulumi

from falaj.components.specification.argument_errors import ArgumentErrors
from falaj.components.specification.described import described
from falaj.components.specification.identity import DEPLOYER, TRAINER
from falaj.components.specification.limits import OBJECT, OneOf
from falaj.components.specification.placed import Placed, PlacedArgs, check_placed

#: Duties of pods: what people do beside these is not done by pods.
DUTIES = (TRAINER, DEPLOYER)
#: Namespaces of the cluster itself.
_RESERVED = re.compile(r"^kube-")


@described
class WorkloadIdentityArgs(PlacedArgs):
    """Arguments of `WorkloadIdentity`: what the pods of one service account may do."""

    cluster_id: pulumi.Input[str]
    """``Cluster.cluster_id``."""
    issuer_url: pulumi.Input[str]
    """``Cluster.issuer_url``."""
    namespace: Annotated[str, OBJECT]
    """Namespace of the service account."""
    service_account: Annotated[str, OBJECT]
    """Name of the service account."""
    duty: Annotated[str, OneOf(DUTIES)]
    """Decides which buckets are read and written."""
    bucket_ids: pulumi.Input[dict[str, str]]
    """``ObjectStore.bucket_ids``."""
    data_key_id: pulumi.Input[str]
    """``KeyRing.key_ids["data"]``."""
    boundary_id: NotRequired[pulumi.Input[str]]
    """``Identity.boundary_id``. Default: none. AWS only."""


@dataclass(frozen=True, kw_only=True)
class WorkloadIdentitySpec:
    """The plain arguments of `WorkloadIdentity`, checked."""

    placed: Placed
    namespace: str
    service_account: str
    duty: str


def check(cloud: str, name: str, args: WorkloadIdentityArgs) -> WorkloadIdentitySpec:
    """Check what is plain in the arguments of `WorkloadIdentity`.

    Args:
        cloud: ``aws`` or ``azure``.
        name: the component's name.
        args: its arguments.

    Raises:
        pulumi.InputPropertiesError: with every argument that was refused, and why.
    """
    errors = ArgumentErrors(f"WorkloadIdentity {name!r}")
    given: Mapping[str, Any] = args
    checked = errors.checked(given, WorkloadIdentityArgs, cloud)
    placed = check_placed(cloud, given, errors)
    texts = {key: checked[key] for key in ("namespace", "service_account", "duty")}
    namespace = texts["namespace"]
    if namespace and _RESERVED.match(namespace):
        errors.add("namespace", namespace, "a namespace of your own", "kube-… are the cluster's")
    if texts["service_account"] == "default":
        errors.add(
            "service_account",
            "default",
            "a service account of its own",
            "every pod of the namespace has 'default'",
        )
    errors.raise_if_any()
    if placed is None:
        raise AssertionError("what can't be used was refused")
    return WorkloadIdentitySpec(placed=placed, **texts)
