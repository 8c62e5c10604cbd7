"""What one cluster's policies allow: its place, its networks, and namespaces that may do more."""

from collections.abc import Iterable
from dataclasses import dataclass

from falaj.components import catalogue
from falaj.components.catalogue.clusters import REGION_KEYS, ZONE_KEYS
from falaj.components.kubernetes._placed import CLOUDS, InCluster
from falaj.components.kubernetes.admission.expressions import hosts_pattern, text, texts

ACCOUNTS = "system:serviceaccount:"
"""What names of service accounts begin with, before ``NAMESPACE:NAME``."""
#: The system's own: objects in them come with the cluster.
CLUSTER = frozenset({"kube-system", "kube-public", "kube-node-lease"})
#: Agents of the platform's add-ons, which need their nodes: drivers of GPUs and networks, the
#: mesh, metrics of nodes. Nothing else runs there.
AGENTS = frozenset({
    "gpu-operator", "network-operator", "efa-device-plugin", "istio-nodes", "monitoring-nodes",
})  # fmt: skip
#: Operators among them that make cluster roles for their agents, with their own accounts: wide
#: ones, as `*` on nodes. The API server lets nobody give more than he has himself.
#: https://kubernetes.io/docs/reference/access-authn-authz/rbac/#privilege-escalation-prevention-and-bootstrapping
ROLE_MAKERS = frozenset({"gpu-operator", "network-operator"})
#: The other add-ons of the platform: operators, which need rights and tokens but not their nodes.
OPERATORS = frozenset({
    "kueue-system", "jobset-system", "kubeflow-system", "kserve", "keda", "cert-manager",
    "envoy-gateway-system", "external-secrets", "opencost", "istio-system", "monitoring",
    "velero", "falaj-system",
})  # fmt: skip


@dataclass(frozen=True)
class ClusterScope:
    """What is allowed in one cluster: its place, registries, networks and namespaces."""

    placed: InCluster
    registries: tuple[str, ...] = ()
    cluster_registries: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    networks: tuple[str, ...] = ()
    storage_classes: tuple[str, ...] = ()
    agents: frozenset[str] = frozenset()
    audiences: tuple[str, ...] = ()
    runtime_classes: tuple[str, ...] = ()

    @property
    def with_nodes(self) -> frozenset[str]:
        """Namespaces whose pods may reach into their nodes."""
        return CLUSTER | AGENTS | self.agents

    @property
    def platform(self) -> frozenset[str]:
        """Namespaces of the system and of every add-on."""
        return self.with_nodes | OPERATORS

    @property
    def zones(self) -> str:
        """The values of zone labels, as a regular expression."""
        place = self.placed
        if place.zones:
            return f"^(?:{'|'.join(each.replace('.', '[.]') for each in place.zones)})$"
        if place.distribution == "eks":
            ids = [each.id for each in catalogue.place("aws", place.region).zones]
            return f"^(?:{place.region}[a-z]{''.join('|' + each for each in ids)})$"
        if place.distribution == "aks":
            return f"^{place.region}-[0-9]$"
        return f"^{place.region}(?:-[a-z0-9.-]+)?$"

    @property
    def zones_said(self) -> str:
        """The same in words."""
        if self.placed.zones:
            return ", ".join(self.placed.zones)
        ways = {"eks": f"{self.placed.region}a …", "aks": f"{self.placed.region}-1 …"}
        return f"zones {ways.get(self.placed.distribution, self.placed.region + '-… ')}".strip()

    @property
    def said(self) -> str:
        """Where things may be, in words."""
        return f"region {self.placed.region}, {self.zones_said}"

    @property
    def hosts_pattern(self) -> str:
        """Names of hosts that may be reached."""
        regions = [(each.cloud, each.region) for each in catalogue.all_places()]
        return hosts_pattern(regions, self.hosts)

    @property
    def aws_regions(self) -> tuple[str, ...]:
        """The region all of whose private registries are AWS' own; none on other platforms."""
        return (self.placed.region,) if CLOUDS.get(self.placed.distribution) == "aws" else ()

    def is_abroad(self, key: str, value: str, *, no_zone: bool = False) -> str:
        """Whether a label ``key`` with ``value`` (CEL expressions) names another place.

        Args:
            key: the label's name.
            value: its value.
            no_zone: whether ``0`` passes, Azure's zone of machines that are in none.
        """
        none = f' && {value} != "0"' if no_zone and self.placed.distribution == "aks" else ""
        return (
            f"(({key} in {texts(REGION_KEYS)} && {value} != {text(self.placed.region)}) || "
            f"({key} in {texts(ZONE_KEYS)} && !{value}.matches({text(self.zones)}){none}))"
        )


PLACE_KEYS = texts(REGION_KEYS | ZONE_KEYS)
"""Labels that name places, as a list in CEL."""


def abroad_in_map(scope: ClusterScope, labels: str, *, no_zone: bool = False) -> str:
    """Labels of a map that name another place, each as ``key=value``."""
    wrong = scope.is_abroad("k", f"{labels}[k]", no_zone=no_zone)
    return f'{PLACE_KEYS}.filter(k, k in {labels} && {wrong}).map(k, k + "=" + {labels}[k])'


def abroad_in_terms(scope: ClusterScope, terms: str, expressions: str = "matchExpressions") -> str:
    """Terms of selectors that ask for another place, each as ``key in values``."""
    wrong = scope.is_abroad("e.key", "v")
    operator = ' && e.operator == "In"' if expressions == "matchExpressions" else ""
    return (
        f"{terms}.map(t, t.?{expressions}.orValue([]).filter(e, e.key in {PLACE_KEYS}{operator} "
        f'&& e.?values.orValue([]).exists(v, {wrong})).map(e, e.key + " in " + '
        f'e.?values.orValue([]).filter(v, {wrong}).join(" or ")).join(", "))'
        '.filter(s, s != "")'
    )


def joined(parts: Iterable[str]) -> str:
    """Lists as one."""
    return " + ".join(parts)
