"""Namespaces of add-ons: how far they may go, and who may talk to whom."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from falaj.components.kubernetes import platform
from falaj.components.kubernetes.addons.installation import foundation
from tests.components.kubernetes.platforms import PLACES, arguments, spec

#: Namespaces whose pods reach the host; every other one enforces the restricted standard.
PRIVILEGED = {
    "gpu-operator", "efa-device-plugin", "network-operator", "istio-nodes", "monitoring-nodes",
}  # fmt: skip
_LEVEL = "pod-security.kubernetes.io/enforce"


def namespaces(place: str) -> dict[str, Any]:
    objects = foundation(spec(place))
    return {each["metadata"]["name"]: each for each in objects if each["kind"] == "Namespace"}


def policies(place: str, namespace: str) -> dict[str, Any]:
    return {
        each["metadata"]["name"]: each["spec"]
        for each in foundation(spec(place))
        if each["kind"] == "NetworkPolicy" and each["metadata"]["namespace"] == namespace
    }


def rules(policy: Any) -> Iterator[Any]:
    for direction, peers in (("ingress", "from"), ("egress", "to")):
        for rule in policy.get(direction, []):
            yield rule, rule[peers]


#: NodeLocal DNSCache and AKS' LocalDNS, where it listens for pods; besides them the cluster's own
#: resolver, by its labels.
ON_NODES = {"169.254.20.10/32", "169.254.10.11/32", "10.0.0.0/20"}


@pytest.mark.parametrize("place", PLACES)
def test_names_are_asked_of_the_clusters_resolver_and_of_the_nodes_alone(place: str) -> None:
    for name in namespaces(place):
        [rule] = policies(place, name)["allow-names"]["egress"]
        assert {each["port"] for each in rule["ports"]} == {53}
        ranges = {each["ipBlock"]["cidr"] for each in rule["to"] if "ipBlock" in each}
        assert ranges == ON_NODES - {"10.0.0.0/20"}
        [resolver] = [each for each in rule["to"] if "ipBlock" not in each]
        assert resolver["podSelector"] == {"matchLabels": {"k8s-app": "kube-dns"}}
        assert resolver["namespaceSelector"]["matchLabels"] == {
            "kubernetes.io/metadata.name": "kube-system"
        }


@pytest.mark.parametrize("place", PLACES)
def test_only_agents_of_nodes_are_privileged_and_say_why(place: str) -> None:
    for name, each in namespaces(place).items():
        level = each["metadata"]["labels"][_LEVEL]
        assert level == ("privileged" if name in PRIVILEGED else "restricted")
        assert bool(each["metadata"]["annotations"].get("falaj.io/reason")) == (name in PRIVILEGED)


@pytest.mark.parametrize("place", PLACES)
def test_every_namespace_denies_first_and_opens_nothing_to_everybody(place: str) -> None:
    for name in namespaces(place):
        found = policies(place, name)
        deny = found.pop("default-deny")
        assert deny == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
        for policy in found.values():
            for rule, peers in rules(policy):
                assert peers, f"{name} talks to everybody"
                within = peers == [{"podSelector": {}}]
                assert within or rule["ports"], f"{name} opens every port"
                of_names = {each["port"] for each in rule.get("ports", ())} == {53}
                for peer in peers:
                    cidr = peer.get("ipBlock", {}).get("cidr", "10.0.0.0/20")
                    known = {"10.0.0.0/20", "10.0.16.0/24", "169.254.170.23/32"}
                    assert cidr in (ON_NODES if of_names else known)


def test_webhooks_are_called_from_the_control_plane_alone() -> None:
    for name in ("kueue-system", "jobset-system", "cert-manager", "keda", "kserve"):
        rule = policies("eks", name)["allow-webhooks"]["ingress"][0]
        assert rule["from"] == [{"ipBlock": {"cidr": "10.0.0.0/20"}}]
        assert rule["ports"]


def test_stores_are_reached_where_secrets_and_backups_are() -> None:
    able = {name for name in namespaces("eks") if "allow-endpoints" in policies("eks", name)}
    common = {"external-secrets", "velero"}
    assert able == {"cluster-autoscaler", "aws-load-balancer-controller"} | common
    agent = policies("eks", "velero")["allow-endpoints"]["egress"][1]
    assert agent["to"] == [{"ipBlock": {"cidr": "169.254.170.23/32"}}]
    assert len(policies("aks", "velero")["allow-endpoints"]["egress"]) == 1
    on_site = {
        name for name in namespaces("existing") if "allow-endpoints" in policies("existing", name)
    }
    assert on_site == common | {"gpu-operator"}  # its driver's packages come from a mirror


def test_prometheus_is_read_by_what_scales_and_what_counts_costs() -> None:
    found = policies("eks", "monitoring")
    assert {"allow-from-keda", "allow-from-opencost"} <= set(found)
    assert "allow-to-monitoring" in policies("eks", "keda")
    without = foundation(spec("eks", {"keda": False, "kserve": False}))
    assert "allow-from-keda" not in {each["metadata"]["name"] for each in without}


def test_endpoints_are_in_the_control_planes_ranges_unless_named() -> None:
    given = arguments("eks")
    del given["endpoint_cidrs"]
    assert platform.check("platform", given).endpoint_cidrs == ("10.0.0.0/20",)
