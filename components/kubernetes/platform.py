"""The add-ons that turn a cluster into a platform for training and serving."""

from collections.abc import Mapping
from typing import Annotated, Any, NotRequired, cast

import pulumi

from falaj.components.kubernetes._objects import Chart, declare, token
from falaj.components.kubernetes._placed import InClusterArgs
from falaj.components.kubernetes.addons.addon import PlatformSpec
from falaj.components.kubernetes.addons.installation import (
    Installation,
    check_platform,
    foundation,
    installations,
)
from falaj.components.kubernetes.storage_classes import BLOCK
from falaj.components.specification.arguments import Default
from falaj.components.specification.described import described
from falaj.components.specification.property_names import engine_inputs

__all__ = ["Platform", "PlatformArgs", "check"]


@described
class PlatformArgs(InClusterArgs):
    """Arguments of `Platform`."""

    control_plane_cidrs: list[str]
    """Private ranges that the API server is in, as pods see it: of the subnets with the cluster's
    endpoints on EKS and AKS, of the control nodes else; with the range of services where the CNI
    judges addresses before they are translated. Only there may add-ons call the API server, and
    only from there are their webhooks called."""
    endpoint_cidrs: NotRequired[list[str]]
    """Private ranges of the cloud's private endpoints (secrets, buckets), or of OpenBao, the
    object store and the mirror of packages on a site. Default: ``control_plane_cidrs``."""
    cluster_name: NotRequired[pulumi.Input[str]]
    """``Cluster.cluster_name``, by which add-ons find the cluster's machines. Needed on EKS for
    ``cluster-autoscaler`` and ``aws-load-balancer-controller``."""
    network_id: NotRequired[pulumi.Input[str]]
    """``Network.network_id``: the VPC that load balancers are made in. Needed on EKS for
    ``aws-load-balancer-controller``."""
    addons: NotRequired[dict[str, Any]]
    """By name: ``False`` leaves an add-on out, ``True`` or its options install it:
    ``cert-manager``, ``external-secrets``, ``monitoring``, ``gpu-operator``, ``efa`` (EKS only),
    ``network-operator`` (AKS and existing clusters, for InfiniBand), ``jobset``, ``kueue``,
    ``trainer``, ``envoy-gateway``, ``istio``, ``keda``, ``kserve``, ``opencost``, ``velero``,
    ``node-repair`` (AKS and existing clusters, where asked for), ``resolver`` (AKS and existing
    clusters; on EKS `Cluster` has it), ``cluster-autoscaler`` and
    ``aws-load-balancer-controller`` (EKS only). Default: all of the distribution but
    ``network-operator`` and ``node-repair``, and on existing clusters ``resolver``."""
    allowed_domains: NotRequired[pulumi.Input[list[str]]]
    """Domains that pods may reach anyway, which ``resolver`` answers: those of the network's
    firewall, hosts that the packs allow. Default: none."""
    images: NotRequired[dict[str, str]]
    """Digests (``sha256:…``) by short name of the image, as ``falaj images pin`` writes them.
    Default: those of the bill of materials."""
    storage_class: NotRequired[Annotated[str, Default(BLOCK)]]
    """Class of the add-ons' own volumes, encrypted with a key of the customer."""


class Platform(pulumi.ComponentResource):
    """Add-ons by pinned charts and image digests, all from the registry in the country.

    ::

        platform = Platform("platform", {
            "distribution": "eks", "region": "me-central-1", "registry": registry,
            "tenant": "platform", "owner": "ml@acme.example", "data_class": "restricted",
            "cost_center": "ai-42", "acknowledge_degraded": "2026-04-30",
            "control_plane_cidrs": ["10.0.0.0/20"], "cluster_name": cluster.cluster_name,
            "network_id": network.network_id,
            "addons": {
                "kserve": False,
                "opencost": {"gpu_model": "H200", "cpu": 0.03, "memory_gib": 0.004},
                "velero": {"bucket": "acme-backups", "key": key_arn},
            },
        }, pulumi.ResourceOptions(providers=[provider]))

    Each add-on has a namespace of its own that denies all traffic but what the add-on names, with
    the restricted pod security standard unless its pods have to reach the host; its charts'
    objects are resources of the stack, which policies judge one by one. Charts' hooks are not run:
    each is switched off in the values, and what it would have made is declared here.

    Order: namespaces, policies and the priority class; then add-on by add-on, each after those
    that it needs; of each first what its charts need, then the charts with their definitions, then
    objects of those definitions.
    """

    installed: list[str]
    """Names of the add-ons that were installed, in that order."""
    namespaces: list[str]
    """Namespaces that were made."""

    def __init__(
        self, name: str, args: PlatformArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        spec = check(name, args)
        super().__init__(token("Platform"), name, engine_inputs(args), opts)
        made = declare(self, name, foundation(spec))
        done: dict[str, list[pulumi.Resource]] = {}
        for each in installations(spec):
            done[each.addon] = self._install(name, each, list(made.values()), done)
        self.installed = list(spec.addons)
        self.namespaces = [key.partition("/")[2] for key in made if key.startswith("Namespace/")]
        self.register_outputs({"installed": self.installed, "namespaces": self.namespaces})

    def _install(
        self,
        name: str,
        each: Installation,
        ground: list[pulumi.Resource],
        done: Mapping[str, list[pulumi.Resource]],
    ) -> list[pulumi.Resource]:
        """An add-on's objects; returns what others wait for."""
        waits = [*ground, *(one for addon in each.waits_for for one in done[addon])]
        of = f"{name}-{each.addon}"
        before = declare(self, f"{of}-before", each.before, depends_on=waits)
        last: list[pulumi.Resource] = [*waits, *before.values()]
        charts: list[pulumi.Resource] = []
        for chart in each.charts:
            made = Chart(
                f"{name}-{chart.release}",
                chart=chart.reference,
                version=chart.version,
                name=chart.release,
                namespace=chart.namespace,
                values=chart.values,
                opts=pulumi.ResourceOptions(parent=self, depends_on=last),
            )
            charts.append(made)
            last = [*last, made]
        after = declare(self, f"{of}-after", each.after, depends_on=[*waits, *charts])
        return [*before.values(), *charts, *after.values()]


def check(name: str, args: PlatformArgs) -> PlatformSpec:
    """The arguments of `Platform`, checked.

    Raises:
        pulumi.InputPropertiesError: what is wrong and what is allowed.
    """
    return check_platform(name, cast("Mapping[str, Any]", args), PlatformArgs)
