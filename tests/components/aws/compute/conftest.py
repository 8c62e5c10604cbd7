"""A foundation for the compute components: keys, a network, two repositories."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pulumi
import pulumi_aws as aws
import pytest

from falaj.components.aws import Cluster, KeyRing, Network

#: Of another account than the sandbox's, which looks for its own alone.
CERTIFICATE = "arn:aws:acm:me-central-1:111122223333:certificate/1"
DIGEST = "sha256:" + "a" * 64


@pytest.fixture
def foundation(placed: dict[str, Any]) -> Callable[[pulumi.ResourceOptions], dict[str, Any]]:
    """Makes the foundation with the options given; returns arguments by component."""

    def make(options: pulumi.ResourceOptions) -> dict[str, Any]:
        keys = KeyRing("keys", {**placed}, options)
        network = Network(
            "net",
            {**placed, "zones": ["mec1-az1", "mec1-az2"], "log_key_id": keys.key_ids["logs"]},
            options,
        )
        shared = {**placed, "disk_encryption_id": keys.disk_encryption_id}
        nodes = {**shared, "node_subnet_ids": network.node_subnet_ids}
        provider = pulumi.ResourceOptions(provider=options.providers[0])
        images = aws.ecr.Repository("inference", name="acme/inference", opts=provider)
        packages = aws.ecr.Repository("churn", name="acme/models/churn", opts=provider)
        return {
            "cluster": {
                **nodes,
                "network_id": network.network_id,
                "security_group_id": network.security_group_ids["control-plane"],
                "cluster_key_id": keys.key_ids["cluster"],
                "log_key_id": keys.key_ids["logs"],
            },
            "pool": {**nodes, "security_group_id": network.security_group_ids["nodes"]},
            "tier": {
                **shared,
                "network_id": network.network_id,
                "serving_subnet_ids": network.serving_subnet_ids,
                "security_group_id": network.security_group_ids["serving"],
                "data_key_id": keys.key_ids["data"],
                "log_key_id": keys.key_ids["logs"],
                "registry_id": "000000000000",
                "repository_id": images.arn,
                "image": images.repository_url.apply(lambda url: f"{url}@{DIGEST}"),
                "package_repository": packages.repository_url,
                "package_repository_id": packages.arn,
                "model": "churn",
                "version": 3,
                "package_digest": "sha256:" + "b" * 64,
                "keys_digest": "sha256:" + "c" * 64,
                "certificate_id": CERTIFICATE,
            },
        }

    return make


@pytest.fixture
def with_cluster(
    foundation: Callable[[pulumi.ResourceOptions], dict[str, Any]],
) -> Callable[[pulumi.ResourceOptions], dict[str, Any]]:
    """Makes the foundation and a cluster; returns the arguments of a pool."""

    def make(options: pulumi.ResourceOptions) -> dict[str, Any]:
        args = foundation(options)
        cluster = Cluster("main", args["cluster"], options)
        return {
            **args["pool"],
            "cluster_id": cluster.cluster_id,
            "node_identity_id": cluster.node_identity_id,
        }

    return make
