"""How programs of Kubernetes find the cluster of a stack: by whose rights is theirs to say."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from falaj.sandbox.activation import CLUSTER_VARIABLE
from falaj.stacks.command.project import StackFile
from falaj.stacks.command.pulumi import Pulumi
from falaj.stacks.errors import StackError
from falaj.stacks.settings.cloud import InClusterSettings

VARIABLE: Final = "KUBECONFIG"
USUAL: Final = "~/.kube/config"
"""What is read where the variable isn't set:
https://kubernetes.io/docs/concepts/configuration/organize-cluster-access-kubeconfig/"""

NOWHERE: Final = os.devnull
"""A kubeconfig without a cluster. Without any, `kubectl` would read the usual one, and change what
is real."""


def of_cloud(stack: StackFile, settings: InClusterSettings) -> str:
    """A kubeconfig of a stack on EKS or AKS, as the engine's provider has it: without credentials.

    Raises:
        StackError: the stack that made the cluster is not up.
    """
    # The components, half a second: not for stacks whose kubeconfig exists.
    from falaj.components.kubernetes import provider  # noqa: PLC0415

    name = str(settings.cluster)
    below = Pulumi(stack.sibling(name))
    outputs = below.outputs() if below.exists() else {}
    if not outputs:
        raise StackError(f"stack {name} is not up, and {stack.name} stands on it")
    eks = settings.distribution == "eks"
    make = provider.eks_kubeconfig if eks else provider.aks_kubeconfig
    parts = ("clusterName", "clusterEndpoint", "certificateAuthority")
    cluster, endpoint, authority = (str(outputs[each]) for each in parts)
    return make(cluster, endpoint, authority, str(outputs.get("region") or settings.region))


@contextmanager
def variables(
    stack: StackFile, settings: InClusterSettings, *, sandbox: bool
) -> Generator[Mapping[str, str]]:
    """Variables with which `kubectl` goes to the stack's cluster.

    In the sandbox without a test control plane it goes nowhere: to `NOWHERE`.

    Files that they name are gone afterwards.

    Raises:
        StackError: the stack that made the cluster is not up.
    """
    if sandbox:
        yield {VARIABLE: os.environ.get(CLUSTER_VARIABLE) or NOWHERE}
        return
    with tempfile.TemporaryDirectory(prefix="falaj-kubeconfig-") as folder:
        own = Path(folder) / "config"
        own.touch(0o600)  # or Helm warns of it
        if settings.cluster is not None:
            own.write_text(of_cloud(stack, settings), encoding="utf-8")
            yield {VARIABLE: str(own)}
            return
        # Of several files the first says which context is current.
        current = {"apiVersion": "v1", "kind": "Config", "current-context": settings.context}
        own.write_text(json.dumps(current), encoding="utf-8")
        # `kubectl` takes no `~`, and the shell is in another folder.
        named = settings.kubeconfig and str(Path(settings.kubeconfig).expanduser().absolute())
        given = named or os.environ.get(VARIABLE) or str(Path(USUAL).expanduser())
        yield {VARIABLE: os.pathsep.join((str(own), given))}
