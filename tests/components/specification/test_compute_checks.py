"""Clusters, CPU pools and the inference tier: what is refused, and the defaults."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pulumi
import pytest

from falaj.components.specification import cluster, cpu_inference_tier, cpu_node_pool
from tests.components.specification.given import PLACES, SHARED

ZONES = ("mec1-az1", "mec1-az2", "mec1-az3")
DIGEST = "000000000000.dkr.ecr.me-central-1.amazonaws.com/inference@sha256:" + "a" * 64
VAULT = (
    "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/acme/providers/"
    "Microsoft.KeyVault/vaults/acme/secrets"
)
ADMINISTRATOR = "arn:aws:iam::000000000000:role/platform"
LEAST: dict[ModuleType, dict[str, Any]] = {
    cluster: {
        "network_id": "network",
        "node_subnet_ids": dict.fromkeys(ZONES, "subnet"),
        "security_group_id": "group",
        "cluster_key_id": "key",
        "log_key_id": "key",
        "disk_encryption_id": "key",
    },
    cpu_node_pool: {
        "cluster_id": "cluster",
        "node_subnet_ids": dict.fromkeys(ZONES, "subnet"),
        "node_identity_id": "identity",
        "security_group_id": "group",
        "disk_encryption_id": "key",
    },
    cpu_inference_tier: {
        "network_id": "network",
        "serving_subnet_ids": dict.fromkeys(ZONES, "subnet"),
        "security_group_id": "group",
        "disk_encryption_id": "key",
        "data_key_id": "key",
        "log_key_id": "key",
        "registry_id": "registry",
        "repository_id": "repository",
        "image": DIGEST,
        "package_repository": "registry/models/churn",
        "package_repository_id": "repository",
        "model": "churn",
        "version": 3,
        "package_digest": DIGEST.partition("@")[2],
        "keys_digest": DIGEST.partition("@")[2],
        "certificate_id": "arn:aws:acm:me-central-1:1:certificate/1",
    },
}
ON_AZURE: dict[ModuleType, dict[str, Any]] = {
    cluster: {
        "key_identity_id": "identity",
        "key_ring_id": "ring",
        "registry_id": "registry",
        "log_destination_id": "log",
        "node_subnet_ids": dict.fromkeys("123", "subnet"),
    },
    cpu_node_pool: {"node_subnet_ids": dict.fromkeys("123", "subnet")},
    cpu_inference_tier: {
        "key_identity_id": "identity",
        "log_destination_id": "log",
        "keyring_secret_id": f"{VAULT}/keyring",
        "certificate_id": f"{VAULT}/certificate",
        "serving_subnet_ids": dict.fromkeys("123", "subnet"),
    },
}


def made(module: ModuleType, cloud: str = "aws", name: str = "main", **changes: Any) -> Any:
    """The checked arguments of a component; a change to None leaves one out."""
    more = ON_AZURE[module] if cloud == "azure" else {}
    args = {**SHARED, **PLACES[cloud], **LEAST[module], **more, **changes}
    return module.check(cloud, name, {k: v for k, v in args.items() if v is not None})


CLUSTER: list[tuple[dict[str, Any], str, str]] = [
    ({"zones": ["mec1-az1"]}, "zones", "two zones or more, which EKS needs"),
    ({"zones": ["me-central-1a", "mec1-az1"]}, "zones[0]", "mec1-az1, mec1-az2, mec1-az3"),
    (
        {"zones": ["mec1-az1", "mec1-az3"], "node_subnet_ids": {"mec1-az1": "s"}},
        "zones",
        "mec1-az3 has no subnet",
    ),
    ({"administrators": ["*"]}, "administrators[0]", "the ARN of a role or user"),
    ({"administrators": [ADMINISTRATOR] * 2}, "administrators[1]", "each only once"),
    ({"administrators": ADMINISTRATOR}, "administrators", "a list of texts"),
    (
        {"administrators": [ADMINISTRATOR], "viewers": [ADMINISTRATOR]},
        "viewers",
        "an administrator can read already",
    ),
    ({"viewers": ["arn:aws:iam::000000000000:root"]}, "viewers[0]", "role or user"),
    ({"kubernetes_version": "1.29"}, "kubernetes_version", "1.34, 1.35, 1.36"),
    ({"service_cidr": "172.17.0.0/16"}, "service_cidr", "which is taken"),
    ({"service_cidr": "8.8.0.0/16"}, "service_cidr", "inside 10.0.0.0/8"),
    ({"service_cidr": "10.0.0.0/25"}, "service_cidr", "a /13 to /24"),
    ({"service_cidr": "10.0.0.1/16"}, "service_cidr", "host bits"),
    ({"log_days": 2}, "log_days", "3 is the next longer"),
    ({"strict_network_policy": "yes"}, "strict_network_policy", "true or false"),
    ({"cluster_key_id": None}, "cluster_key_id", "missing"),
    ({"pulbic": True}, "pulbic", "is not an argument of ClusterArgs"),
]


@pytest.mark.parametrize(("changes", "argument", "reason"), CLUSTER)
def test_refused_clusters(changes: dict[str, Any], argument: str, reason: str) -> None:
    _refused(cluster, "aws", changes, argument, reason)


AZURE_CLUSTER: list[tuple[dict[str, Any], str, str]] = [
    ({"boundary_id": "b"}, "boundary_id", "exist on AWS only"),
    ({"strict_network_policy": True}, "strict_network_policy", "a mode of AWS's network plugin"),
    ({"log_days": 30}, "log_days", "the workspace decides on Azure"),
    ({"key_ring_id": None}, "key_ring_id", "needed on Azure"),
    ({"registry_id": None}, "registry_id", "needed on Azure"),
    ({"administrators": [ADMINISTRATOR]}, "administrators[0]", "the object id"),
]


@pytest.mark.parametrize(("changes", "argument", "reason"), AZURE_CLUSTER)
def test_refused_clusters_on_azure(changes: dict[str, Any], argument: str, reason: str) -> None:
    _refused(cluster, "azure", changes, argument, reason)


CPU_POOL: list[tuple[dict[str, Any], str, str]] = [
    ({"vcpu": 0}, "vcpu", "1 to 448"),
    ({"vcpu": 300}, "vcpu", "does not sell"),
    ({"memory_gib": 0}, "memory_gib", "1 to 24576"),
    ({"int8": "avx"}, "int8", "amx, vnni, i8mm, any"),
    ({"int8": "i8mm", "arch": "x86_64"}, "int8", "i8mm is arm64's"),
    ({"int8": "amx", "arch": "arm64"}, "int8", "amx is x86_64's"),
    ({"arch": "riscv"}, "arch", "x86_64, arm64"),
    ({"machine": "c6i.large"}, "machine", "c6i.large is not sold in aws/me-central-1"),
    ({"machine": "m6g.large", "arch": "x86_64"}, "machine", "its architecture is arm64"),
    ({"machine": "m7i.large", "vcpu": 8}, "machine", "it has 2 vCPU"),
    ({"machine": "r8i.large"}, "zones", "only in zones that are reported as impaired"),
    ({"machine": "r8i.large", "zones": ["mec1-az1"]}, "machine", "mec1-az2, mec1-az3 only"),
    ({"capacity": "reservation"}, "capacity", "reservations are for GPU pools"),
    ({"capacity": "cheap"}, "capacity", "on-demand, spot"),
    ({"capacity": "spot", "data_class": "restricted"}, "capacity", "'restricted'"),
    ({"capacity": "spot", "system": True}, "capacity", "add-ons would go down"),
    ({"system": True, "min_nodes": 0}, "min_nodes", "1 or more"),
    ({"system": 1}, "system", "true or false"),
    ({"min_nodes": 4, "max_nodes": 3}, "min_nodes", "at most max_nodes"),
    ({"nodes": 9}, "nodes", "1 to 3"),
    ({"disk_gib": 49}, "disk_gib", "50 to 4095"),
    ({"labels": {"k8s.io/x": "y"}}, "labels['k8s.io/x']", "k8s.io"),
    ({"taints": ["x"]}, "taints[0]", "key=value:Effect"),
    ({"kubernetes_version": "1.33"}, "kubernetes_version", "1.34"),
    ({"zones": ["mec1-az9"]}, "zones[0]", "mec1-az1"),
    ({"gpu": "H200"}, "gpu", "is not an argument of CpuNodePoolArgs"),
]


@pytest.mark.parametrize(("changes", "argument", "reason"), CPU_POOL)
def test_refused_cpu_pools(changes: dict[str, Any], argument: str, reason: str) -> None:
    _refused(cpu_node_pool, "aws", changes, argument, reason)


TIER: list[tuple[dict[str, Any], str, str]] = [
    ({"image": "host/inference:latest"}, "image", "a tag can be moved to another image"),
    ({"model": "Churn"}, "model", "lower-case letters"),
    ({"model": "../etc"}, "model", "lower-case letters"),
    ({"model": "a" * 65}, "model", "1 to 64"),
    ({"version": 0}, "version", "1 to 999999999"),
    ({"version": "3"}, "version", "1 to 999999999"),
    ({"package_digest": "v3"}, "package_digest", "a digest: sha256:"),
    ({"keys_digest": None}, "keys_digest", "missing"),
    ({"package_repository": None}, "package_repository", "missing"),
    ({"package_repository_id": None}, "package_repository_id", "needed on AWS"),
    ({"repository_id": None}, "repository_id", "needed on AWS"),
    ({"mode": "lambda"}, "mode", "instances, serverless"),
    ({"mode": "serverless", "int8": "amx"}, "int8", "the cloud picks the machine"),
    ({"mode": "serverless", "machine": "c7i.large"}, "machine", "the cloud picks the machine"),
    ({"mode": "serverless", "machine_image": "ami-1"}, "machine_image", "the cloud picks"),
    ({"mode": "serverless", "session_manager": True}, "session_manager", "the cloud picks"),
    ({"mode": "serverless", "vcpu": 3}, "vcpu", "1, 2, 4, 8, 16"),
    ({"mode": "serverless", "vcpu": 2, "memory_gib": 3}, "memory_gib", "4, 5, 6"),
    ({"vcpu": -1}, "vcpu", "1 to 448"),
    ({"int8": "sse"}, "int8", "amx, vnni, i8mm, any"),
    ({"int8": "amx", "machine": "m6i.large"}, "machine", "guarantee vnni"),
    ({"machine_image": " "}, "machine_image", "text that is not empty"),
    ({"host_name": "Inference"}, "host_name", "a full name"),
    ({"min_instances": 0}, "min_instances", "1 to 100"),
    ({"min_instances": 4, "max_instances": 2}, "min_instances", "at most max_instances"),
    ({"cpu_target_percent": 5}, "cpu_target_percent", "10 to 90"),
    ({"port": 22}, "port", "remote shells"),
    ({"port": 70000}, "port", "1 to 65535"),
    ({"allowed_cidrs": []}, "allowed_cidrs", "at least one private range"),
    ({"allowed_cidrs": ["0.0.0.0/0"]}, "allowed_cidrs[0]", "nothing public is let in"),
    ({"allowed_cidrs": ["10.0.0.1/8"]}, "allowed_cidrs[0]", "host bits"),
    ({"log_days": 6}, "log_days", "7 is the next longer"),
    ({"zones": ["mec1-az9"]}, "zones[0]", "mec1-az1"),
    ({"certificate_id": "arn:aws:acm:us-east-1:0:certificate/1"}, "certificate_id", "of the reg"),
    ({"certificate_id": None}, "certificate_id", "billed with 400 USD a month"),
    ({"private_authority": True}, "private_authority", "leave one of them out"),
    ({"keyring_secret_id": "secret"}, "keyring_secret_id", "arn:aws:secretsmanager:me-central-1"),
]


@pytest.mark.parametrize(("changes", "argument", "reason"), TIER)
def test_refused_tiers(changes: dict[str, Any], argument: str, reason: str) -> None:
    _refused(cpu_inference_tier, "aws", changes, argument, reason)


AZURE_TIER: list[tuple[dict[str, Any], str, str]] = [
    ({"certificate_id": None}, "certificate_id", "needed on Azure"),
    ({"keyring_secret_id": None}, "keyring_secret_id", "needed on Azure"),
    ({"log_destination_id": None}, "log_destination_id", "needed on Azure"),
    ({"certificate_id": "mine"}, "certificate_id", "Key Vault secret"),
    ({"session_manager": True}, "session_manager", "leave it out on Azure"),
    ({"private_authority": True}, "private_authority", "leave it out on Azure"),
    ({"boundary_id": "b"}, "boundary_id", "exist on AWS only"),
    ({"log_days": 30}, "log_days", "the workspace decides on Azure"),
    ({"mode": "serverless", "port": 443}, "port", "any port but 80 and 443"),
    ({"mode": "serverless", "vcpu": 2, "memory_gib": 8}, "memory_gib", "4 GiB with 2 vCPU"),
]


@pytest.mark.parametrize(("changes", "argument", "reason"), AZURE_TIER)
def test_refused_tiers_on_azure(changes: dict[str, Any], argument: str, reason: str) -> None:
    _refused(cpu_inference_tier, "azure", changes, argument, reason)


def _refused(
    module: ModuleType, cloud: str, changes: dict[str, Any], argument: str, reason: str
) -> None:
    with pytest.raises(pulumi.InputPropertiesError, match=reason) as caught:
        made(module, cloud, **changes)
    assert argument in [error["property_path"] for error in caught.value.errors]


@pytest.mark.parametrize("module", LEAST)
@pytest.mark.parametrize("name", ["A", "1x", "x-", "x" * 41])
def test_refused_names(module: ModuleType, name: str) -> None:
    with pytest.raises(pulumi.InputPropertiesError, match="2 to 40 lower-case letters"):
        made(module, name=name)


@pytest.mark.parametrize("module", LEAST)
@pytest.mark.parametrize("cloud", ["aws", "azure"])
def test_the_same_arguments_are_taken_on_both_clouds(module: ModuleType, cloud: str) -> None:
    assert made(module, cloud).placed.region == PLACES[cloud]["region"]


def test_defaults_of_a_cluster() -> None:
    spec = made(cluster)
    assert spec.zones == ZONES  # EKS needs two; one that is impaired does no harm to nodes
    assert (spec.administrators, spec.viewers) == ((), ())
    assert spec.kubernetes_version == "1.35"
    assert spec.service_cidr == "172.20.0.0/16"
    assert spec.log_days == 365
    assert spec.strict_network_policy is False


def test_defaults_of_a_cpu_pool() -> None:
    spec = made(cpu_node_pool)
    assert spec.machine.vcpu == 4
    assert spec.machine.arch == "x86_64"
    assert spec.zones == ("mec1-az1",)
    assert (spec.size.least, spec.size.most, spec.size.initial) == (1, 3, 1)
    assert spec.args["disk_gib"] == 100
    assert spec.taints == ()
    assert "falaj.io/system" not in spec.labels


def test_instructions_choose_the_architecture() -> None:
    assert made(cpu_node_pool, int8="i8mm").machine.arch == "arm64"
    assert made(cpu_node_pool, int8="amx").machine.instruction_sets.int8 == "amx"
    assert made(cpu_node_pool, arch="arm64").machine.arch == "arm64"


def test_a_named_machine_is_held_to_what_is_asked_and_not_to_defaults() -> None:
    assert made(cpu_node_pool, machine="m7i.large").machine.vcpu == 2
    assert made(cpu_inference_tier, machine="m7g.large").machine.arch == "arm64"


def test_a_system_pool_is_labelled() -> None:
    assert made(cpu_node_pool, system=True).labels["falaj.io/system"] == "true"


def test_defaults_of_a_tier() -> None:
    spec = made(cpu_inference_tier)
    assert spec.args["mode"] == "instances"
    assert "vnni" in spec.machine.instruction_sets.offers
    assert spec.machine.memory_gib >= 4
    assert spec.host_name == "inference.acme.internal"
    assert (spec.min_instances, spec.max_instances, spec.args["cpu_target_percent"]) == (1, 3, 60)
    assert (spec.port, spec.allowed_cidrs, spec.args["log_days"]) == (443, (), 365)


def test_defaults_of_serverless() -> None:
    spec = made(cpu_inference_tier, mode="serverless")
    assert spec.machine is None
    assert (spec.vcpu, spec.memory_gib) == (2, 4)
    assert spec.cost_at_minimum == "cost unknown"
    assert made(cpu_inference_tier, "azure", mode="serverless").port == 8443


def test_a_floor_above_the_default_ceiling_raises_it() -> None:
    assert made(cpu_inference_tier, min_instances=5).max_instances == 5
