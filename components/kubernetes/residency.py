"""Residency and isolation, refused by the cluster itself, after components and packs."""

import dataclasses
import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, NotRequired, cast

import pulumi

from falaj.components.catalogue.clusters import (
    PLATFORM_NAMESPACES,
    SERVING_ENDING,
    TRAINING_ENDING,
)
from falaj.components.catalogue.host_form import HOST_PATTERN
from falaj.components.catalogue.region_names import host_abroad
from falaj.components.kubernetes._objects import Manifest, declare, token
from falaj.components.kubernetes._placed import (
    InCluster,
    InClusterArgs,
    check_in_cluster,
    checked_regions,
    refuse_place_abroad,
)
from falaj.components.kubernetes._validation import checked
from falaj.components.kubernetes.admission import (
    access,
    destinations,
    image_prefetch,
    network,
    node_repair,
    pipelines,
    placement,
    secrets,
    storage,
    tenancy,
    workloads,
)
from falaj.components.kubernetes.admission.policy import ClusterScope, Policy
from falaj.components.kubernetes.admission.policy import manifests as rendered
from falaj.components.kubernetes.gpu_queues.queues import PRIORITIES
from falaj.components.kubernetes.storage_classes import BLOCK, FILES
from falaj.components.specification.argument_errors import ArgumentErrors
from falaj.components.specification.arguments import Default
from falaj.components.specification.described import described
from falaj.components.specification.limits import TextRule
from falaj.components.specification.property_names import engine_inputs
from falaj.components.specification.registry import UPSTREAMS

__all__ = ["Residency", "ResidencyArgs", "ResidencySpec", "check", "manifests", "policies"]

#: Runtime classes that NVIDIA's operator makes.
#: https://docs.nvidia.com/datacenter/cloud-native/gpu-operator/latest/cdi.html
DEFAULT_RUNTIME_CLASSES = ("nvidia", "nvidia-cdi", "nvidia-legacy")
_HOST = re.compile(HOST_PATTERN)
#: Registries that everybody has, none of which is in the country.
PUBLIC_REGISTRIES = frozenset({
    *map(str, UPSTREAMS.values), "docker.io", "index.docker.io", "registry-1.docker.io", "nvcr.io",
    "registry.gitlab.com",
})  # fmt: skip
_NAME = TextRule(
    r"^[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?$", "a name of a-z, 0-9, '-' and '.'", BLOCK
)
#: Ranges larger than these are held by registries of addresses, not by who uses them.
_LARGEST = {4: 12, 6: 19}


@described
class ResidencyArgs(InClusterArgs):
    """Arguments of `Residency`."""

    allowed_registries: NotRequired[list[str]]
    """Further registries in the country that images may come from: ``host``, ``*.host`` or
    ``host:port/path``. Default: none but ``registry``, and on EKS every private registry of AWS in
    the region."""
    cluster_registries: NotRequired[list[str]]
    """Registries that only images in ``kube-system`` may come from: the distributor's own, such as
    kubeadm's ``imageRepository`` where that isn't below ``registry``. Default:
    ``mcr.microsoft.com`` on AKS, none elsewhere."""
    allowed_hosts: NotRequired[list[str]]
    """Hosts, besides one's own and the country's regions', that services may stand for, webhooks
    may be at and operators may send to or fetch from: stores of backups and secrets, receivers,
    issuers; ``*.example.ae`` with all below it. Default: none."""
    own_networks: NotRequired[list[str]]
    """Public ranges of addresses that are one's own networks, as ``203.0.113.0/24``. Default:
    none but the private ranges."""
    storage_classes: NotRequired[Annotated[list[Annotated[str, _NAME]], Default((BLOCK, FILES))]]
    """Classes that volumes may be claimed of."""
    system_namespaces: NotRequired[list[Annotated[str, _NAME]]]
    """Further namespaces whose pods may reach into their nodes: agents of networks, storage or
    security. Default: those of the cluster and of the platform's own agents."""
    token_audiences: NotRequired[list[str]]
    """Whom, besides the cluster and its cloud, tokens in pods may be for. Default: nobody."""
    runtime_classes: NotRequired[
        Annotated[list[Annotated[str, _NAME]], Default(DEFAULT_RUNTIME_CLASSES)]
    ]
    """Runtime classes that pods may ask for; without it those of NVIDIA's operator."""
    priority_classes: NotRequired[list[Annotated[str, _NAME]]]
    """Classes of priority that pods outside of the system and the platform may name. Default:
    those that `GpuQueues` makes; of these a tenant has the ones that its `priorities` list."""
    partner_regions: NotRequired[list[str]]
    """Regions and sites of further clusters in the country that jobs come from or go to
    (`GpuQueues`, ``burst`` and ``accepts``): pods may allow them beside this cluster's own, which
    they must allow as well. Nodes are here all the same. Default: none."""
    metrics_hosts: NotRequired[list[str]]
    """Hosts of servers of metrics that scalers (KEDA) may ask, about their own namespace only.
    Default: services of the namespace ``monitoring``."""
    enforce: NotRequired[Annotated[bool, Default(value=True)]]
    """Whether what is wrong is denied. False only warns and writes it into the audit log, to see
    what an existing cluster would lose."""


@dataclass(frozen=True)
class ResidencySpec:
    """The arguments of `Residency`, checked."""

    scope: ClusterScope
    enforce: bool


def check(name: str, args: Mapping[str, Any]) -> ResidencySpec:
    """Check the arguments of a `Residency`.

    Raises:
        pulumi.InputPropertiesError: with every argument that can't be used.
    """
    errors = ArgumentErrors(f"Residency {name!r}")
    errors.names(args, ResidencyArgs)
    placed = check_in_cluster(args, errors)
    if placed is not None:
        _check_places(placed, errors)
    stated = checked(args, ResidencyArgs, errors)
    registries = _hosts(args, "allowed_registries", errors)
    for position, each in enumerate(registries):
        if each.partition("/")[0] in PUBLIC_REGISTRIES:
            errors.add(
                f"allowed_registries[{position}]", each, "registries in the country",
                "copy what is needed into one of them (falaj images mirror)",
            )  # fmt: skip
    cluster_registries = _hosts(args, "cluster_registries", errors)
    hosts = _hosts(args, "allowed_hosts", errors)
    metrics = _hosts(args, "metrics_hosts", errors)
    networks = _networks(args, errors)
    agents: tuple[str, ...] = stated["system_namespaces"] or ()
    _check_agents(agents, errors)
    priorities: tuple[str, ...] | None = stated["priority_classes"]
    audiences = _texts(args, "token_audiences", errors)
    partners = checked_regions("partner_regions", args.get("partner_regions"), errors)
    errors.raise_if_any()
    scope = ClusterScope(
        placed=cast("InCluster", placed),
        registries=registries,
        cluster_registries=cluster_registries,
        hosts=hosts,
        networks=networks,
        storage_classes=stated["storage_classes"],
        agents=frozenset(agents),
        audiences=audiences,
        runtime_classes=stated["runtime_classes"],
        priority_classes=tuple(PRIORITIES) if priorities is None else priorities,
        partner_regions=partners,
        metrics_hosts=metrics,
    )
    return ResidencySpec(scope, stated["enforce"])


def policies(spec: ResidencySpec) -> tuple[Policy, ...]:
    """Every policy of a cluster."""
    topics = (
        workloads, image_prefetch, secrets, placement, storage, network, destinations, access,
        tenancy, node_repair, pipelines,
    )  # fmt: skip
    return tuple(policy for topic in topics for policy in topic.policies(spec.scope))


def manifests(spec: ResidencySpec) -> list[Manifest]:
    """The policies with their bindings."""
    placed = spec.scope.placed
    return list(
        rendered(
            policies(spec),
            placed.labels("residency"),
            placed.annotations(),
            enforce=spec.enforce,
        )
    )


class Residency(pulumi.ComponentResource):
    """What the cluster itself refuses, whoever asks: a residency that no later change undoes.

    ::

        Residency("residency", {
            "distribution": "eks", "region": "me-central-1", "tenant": "platform",
            "registry": "123456789012.dkr.ecr.me-central-1.amazonaws.com/falaj",
            "owner": "platform@acme.example", "data_class": "restricted", "cost_center": "ai-1",
            "acknowledge_degraded": "2026-04-30",
        })

    Makes ValidatingAdmissionPolicies and their bindings, of the same facts as the policy packs;
    each names the packs' rules in the annotation ``falaj.io/policy-rules``. What is wrong is
    denied with a message that says what to do, and is written to the audit log under the rule's
    id. Values are written into the policies, not read from a map: what is allowed can't be
    changed without changing the policy, the API server checks the whole expression when it is
    made, and there is no map that could be missing. What accounts of pipelines start is compared
    with the template that is there, and refused where there is none.

    Namespaces of the system and of the platform's add-ons are exempt by name, from what they need
    only; where pods are and what images they run is judged everywhere, but that images in
    ``kube-system`` may be named by tags, as clouds and installers do. Nobody makes a namespace of
    such a name who may not change these policies.

    The API server never asks policies about policies. Who may change them is a matter of roles:
    none of Falaj's for tenants may, and roles that would are refused.
    """

    policy_names: list[str]
    """Names of the policies in the cluster."""

    def __init__(
        self, name: str, args: ResidencyArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        spec = check(name, args)
        super().__init__(token("Residency"), name, engine_inputs(args), opts)
        made = manifests(spec)
        declare(self, name, made)
        self.policy_names = [
            each["metadata"]["name"]
            for each in made
            if each["kind"] == "ValidatingAdmissionPolicy"
        ]
        if not spec.enforce:
            pulumi.log.warn("what is wrong is not denied: enforce is false", self)
        self.register_outputs({"policyNames": self.policy_names})


def _check_places(placed: InCluster, errors: ArgumentErrors) -> None:
    """Zones of a cloud are of the region; a site and its zones aren't a cloud's regions abroad."""
    every_zone = re.compile(ClusterScope(placed=_without_zones(placed)).zones)
    for position, zone in enumerate(placed.zones):
        if placed.distribution != "existing" and not every_zone.match(zone):
            errors.add(f"zones[{position}]", zone, f"zones of {placed.region}")
    if placed.distribution != "existing":
        return
    for position, value in enumerate(placed.zones):
        refuse_place_abroad(f"zones[{position}]", value, "sites in the country", errors)


def _without_zones(placed: InCluster) -> InCluster:
    return dataclasses.replace(placed, zones=())


def _texts(args: Mapping[str, Any], argument: str, errors: ArgumentErrors) -> tuple[str, ...]:
    return errors.texts(argument, args[argument]) if args.get(argument) is not None else ()


def _hosts(args: Mapping[str, Any], argument: str, errors: ArgumentErrors) -> tuple[str, ...]:
    given = _texts(args, argument, errors)
    for position, each in enumerate(given):
        at = f"{argument}[{position}]"
        if not _HOST.match(each) or "." not in each.partition("/")[0]:
            errors.add(at, each, "a host in small letters, with port and path; or *.host")
        elif place := host_abroad(each):
            errors.add(at, each, "hosts in the country", f"that one is in {place}")
    return given


def _networks(args: Mapping[str, Any], errors: ArgumentErrors) -> tuple[str, ...]:
    given = _texts(args, "own_networks", errors)
    for position, each in enumerate(given):
        at = f"own_networks[{position}]"
        try:
            network = ipaddress.ip_network(each)
        except ValueError as error:
            errors.add(at, each, f"a range such as 203.0.113.0/24 ({error})")
            continue
        if network.prefixlen < _LARGEST[network.version]:
            errors.add(
                at, each, f"a prefix of {_LARGEST[network.version]} or longer",
                "a larger range isn't one's own",
            )  # fmt: skip
    return given


def _check_agents(given: tuple[str, ...], errors: ArgumentErrors) -> None:
    for position, each in enumerate(given):
        if (
            each == "default"
            or each.endswith((TRAINING_ENDING, SERVING_ENDING))
            or each in PLATFORM_NAMESPACES
        ):
            errors.add(
                f"system_namespaces[{position}]", each,
                "namespaces of agents that need their nodes",
                "tenants and operators don't, and would escape what holds for pods",
            )  # fmt: skip
