"""The provider of one cluster in the country."""

import json
from collections.abc import Mapping
from typing import Annotated, Any, NotRequired, TypedDict, cast

import pulumi

from falaj.components import catalogue
from falaj.components.catalogue.clusters import AKS_SERVER
from falaj.components.kubernetes._objects import sdk_version
from falaj.components.kubernetes._placed import CLOUDS, DISTRIBUTIONS
from falaj.components.specification.argument_errors import ArgumentErrors
from falaj.components.specification.described import described
from falaj.components.specification.limits import OneOf

__all__ = ["ClusterProvider", "ClusterProviderArgs", "aks_kubeconfig", "eks_kubeconfig"]


@described
class ClusterProviderArgs(TypedDict):
    """Arguments of `ClusterProvider`."""

    distribution: Annotated[str, OneOf(DISTRIBUTIONS)]
    """What the cluster is: the cloud's, or any other one that conforms."""
    region: str
    """The cloud's region, or the site of an ``existing`` cluster."""
    kubeconfig: NotRequired[str]
    """Path of a kubeconfig for an ``existing`` cluster. Default: what ``KUBECONFIG`` names, else
    ``~/.kube/config``."""
    context: NotRequired[str]
    """Context of the kubeconfig. Needed for an ``existing`` cluster: whichever is current may
    be another cluster tomorrow."""
    cluster_name: NotRequired[pulumi.Input[str]]
    """``Cluster.cluster_name``. Needed for ``eks`` and ``aks``."""
    endpoint: NotRequired[pulumi.Input[str]]
    """``Cluster.endpoint``. Needed for ``eks`` and ``aks``."""
    certificate_authority: NotRequired[pulumi.Input[str]]
    """``Cluster.certificate_authority``, in base64. Needed for ``eks`` and ``aks``."""


class ClusterProvider(pulumi.ProviderResource):
    """A provider for one cluster: nothing is left to whichever context is current.

    No credential gets into the state: on EKS and AKS the kubeconfig calls the cloud's own login
    (``aws eks get-token``, ``kubelogin``) each time; an existing cluster's stays in its file.
    Objects are applied server-side, so that fields of others are left alone and conflicts are
    errors.
    """

    def __init__(
        self, name: str, args: ClusterProviderArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        """Make the provider.

        Raises:
            pulumi.InputPropertiesError: the region isn't in the country, or what names the
                cluster is missing.
        """
        check(name, args)
        settings = cast("dict[str, Any]", args)
        if args["distribution"] == "existing":
            access: dict[str, Any] = {
                "kubeconfig": settings.get("kubeconfig"),
                "context": settings["context"],
            }
        else:
            make = eks_kubeconfig if args["distribution"] == "eks" else aks_kubeconfig
            access = {
                "kubeconfig": pulumi.Output.all(
                    settings["cluster_name"],
                    settings["endpoint"],
                    settings["certificate_authority"],
                ).apply(lambda known: make(known[0], known[1], known[2], settings["region"]))
            }
        super().__init__(
            "kubernetes",
            name,
            # The wire form of the SDK's own provider: booleans are JSON texts.
            {**access, "enableServerSideApply": json.dumps(True)},
            pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(version=sdk_version())),
        )


def check(name: str, args: Mapping[str, Any]) -> None:
    """Refuse arguments that name no cluster, or one abroad.

    Raises:
        pulumi.InputPropertiesError: what is wrong and what is allowed.
    """
    errors = ArgumentErrors(f"ClusterProvider {name!r}")
    errors.names(args, ClusterProviderArgs)
    stated = errors.checked_only(args, ClusterProviderArgs)
    distribution, region = str(stated["distribution"]), str(stated["region"])
    cloud = CLOUDS.get(distribution)
    if cloud is None:
        errors.needed(args, ["context"], "for an existing cluster")
    else:
        needed = ["cluster_name", "endpoint", "certificate_authority"]
        errors.needed(args, needed, f"for {distribution}")
        try:
            catalogue.place(cloud, region)
        except catalogue.CatalogueError as error:
            errors.say("region", str(error))
    errors.raise_if_any()


def eks_kubeconfig(name: str, endpoint: str, authority: str, region: str) -> str:
    """A kubeconfig that asks AWS for a token each time; ``authority`` is in base64.

    Source: docs.aws.amazon.com/eks/latest/userguide/create-kubeconfig.html
    """
    call = ["eks", "get-token", "--cluster-name", name, "--region", region, "--output", "json"]
    return _kubeconfig(name, endpoint, authority, "aws", call)


def aks_kubeconfig(name: str, endpoint: str, authority: str, region: str) -> str:
    """A kubeconfig that asks Entra for a token each time; ``authority`` is in base64.

    Source: azure.github.io/kubelogin/concepts/exec-plugin.html
    """
    del region
    call = ["get-token", "--login", "azurecli", "--server-id", AKS_SERVER]
    return _kubeconfig(name, endpoint, authority, "kubelogin", call)


def _kubeconfig(name: str, endpoint: str, authority: str, command: str, call: list[str]) -> str:
    server = endpoint if "://" in endpoint else f"https://{endpoint}"
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": name,
            "clusters": [
                {
                    "name": name,
                    "cluster": {"server": server, "certificate-authority-data": authority},
                }
            ],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
            "users": [
                {
                    "name": name,
                    "user": {
                        "exec": {
                            "apiVersion": "client.authentication.k8s.io/v1",
                            "command": command,
                            "args": call,
                            "interactiveMode": "IfAvailable",
                        }
                    },
                }
            ],
        }
    )
