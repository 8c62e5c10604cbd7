"""The registry: tags that never move, named upstreams only, nothing replicated."""

from __future__ import annotations

import json
from typing import Any

import pulumi
import pytest

from falaj.components.aws.registry import Registry

REPOSITORY = "aws:ecr/repository:Repository"


def images(args: dict[str, Any]) -> Any:
    def build(opts: pulumi.ResourceOptions, keys: dict[str, Any]) -> Registry:
        return Registry("images", {**args, "registry_key_id": keys["registry"]}, opts)

    return build


@pytest.mark.parametrize("upstream", ["docker.io", "nvcr.io", "ghcr.io", "example.com"])
def test_other_upstreams_are_refused(placed: dict[str, Any], upstream: str) -> None:
    with pytest.raises(pulumi.InputPropertiesError, match="copy their images"):
        Registry("images", {**placed, "registry_key_id": "k", "upstreams": [upstream]})


@pytest.fixture(scope="module")
def made(deploy: Any, placed: dict[str, Any]) -> Any:
    return deploy(images({**placed, "upstreams": ["quay.io", "registry.k8s.io"]}))


def test_repositories_have_the_key_and_fixed_tags(made: Any) -> None:
    key = made.one("aws:kms/key:Key", "keys-registry").outputs["arn"]
    repositories = made.of_type(REPOSITORY)
    assert {each.inputs["name"] for each in repositories} == {
        "acme-dev/training",
        "acme-dev/inference",
        "acme-dev/platform",
    }
    for each in repositories:
        assert each.inputs["imageTagMutability"] == "IMMUTABLE"
        assert each.inputs["imageScanningConfiguration"] == {"scanOnPush": True}
        assert each.inputs["encryptionConfigurations"] == [
            {"encryptionType": "KMS", "kmsKey": key}
        ]
    host = "000000000000.dkr.ecr.me-central-1.amazonaws.com"
    assert made.returned["registry_host"] == host
    assert made.returned["registry_id"] == "000000000000"
    assert made.returned["repository_urls"]["inference"] == f"{host}/acme-dev/inference"
    assert made.returned["repository_ids"]["inference"].startswith("arn:aws:ecr:me-central-1:")


def test_other_accounts_are_refused(made: Any) -> None:
    policies = made.of_type("aws:ecr/repositoryPolicy:RepositoryPolicy")
    assert len(policies) == 3
    for each in policies:
        (statement,) = json.loads(each.inputs["policy"])["Statement"]
        assert statement["Effect"] == "Deny"
        assert statement["Condition"]["StringNotEquals"] == {
            "aws:PrincipalAccount": "000000000000"
        }


def test_replication_is_refused(made: Any) -> None:
    statement = json.loads(made.one("aws:ecr/registryPolicy:RegistryPolicy").inputs["policy"])
    assert statement["Statement"][0]["Action"] == ["ecr:ReplicateImage"]
    assert statement["Statement"][0]["Effect"] == "Deny"
    assert not [each for each in made.resources if "replicationConfiguration" in each.type]


def test_upstreams_have_rules_and_templates_with_the_key(made: Any) -> None:
    rules = made.of_type("aws:ecr/pullThroughCacheRule:PullThroughCacheRule")
    assert {
        each.inputs["upstreamRegistryUrl"]: each.inputs["ecrRepositoryPrefix"] for each in rules
    } == {"quay.io": "acme-dev-quay", "registry.k8s.io": "acme-dev-k8s"}
    key = made.one("aws:kms/key:Key", "keys-registry").outputs["arn"]
    for each in made.of_type("aws:ecr/repositoryCreationTemplate:RepositoryCreationTemplate"):
        assert each.inputs["encryptionConfigurations"] == [
            {"encryptionType": "KMS", "kmsKey": key}
        ]
        assert each.inputs["imageTagMutability"] == "IMMUTABLE"


def test_prefixes_fit_for_long_names(deploy: Any, placed: dict[str, Any]) -> None:
    args = {**placed, "tenant": "a-very-long-tenant-x", "upstreams": ["public.ecr.aws"]}
    made = deploy(images(args))
    (rule,) = made.of_type("aws:ecr/pullThroughCacheRule:PullThroughCacheRule")
    # https://docs.aws.amazon.com/AmazonECR/latest/APIReference/API_CreatePullThroughCacheRule.html
    assert 2 <= len(rule.inputs["ecrRepositoryPrefix"]) <= 30


def test_without_upstreams_there_is_nothing_to_pull_through(
    deploy: Any, placed: dict[str, Any]
) -> None:
    args = {
        **placed,
        "environment": "production",
        "repositories": ["team/model.server"],
        "keep_images": 7.0,
    }
    made = deploy(images(args))
    assert not made.of_type("aws:ecr/pullThroughCacheRule:PullThroughCacheRule")
    assert not made.of_type("aws:iam/role:Role")
    (repository,) = made.of_type(REPOSITORY)
    assert repository.inputs["name"] == "acme-dev/team/model.server"
    assert repository.inputs["forceDelete"] is False
    assert made.kept()[f"{REPOSITORY} images-team/model.server"] == (True, True)
    (lifecycle,) = made.of_type("aws:ecr/lifecyclePolicy:LifecyclePolicy")
    rules = json.loads(lifecycle.inputs["policy"])["rules"]
    assert [each["selection"]["countNumber"] for each in rules] == [14, 7]


def test_packages_of_models_are_never_cleaned_up(deploy: Any, placed: dict[str, Any]) -> None:
    """Of two weeks' versions an old one may be served, and its keys count as images as well."""
    made = deploy(images({**placed, "repositories": ["models/credit", "models-of-acme"]}))
    (lifecycle,) = made.of_type("aws:ecr/lifecyclePolicy:LifecyclePolicy")
    assert lifecycle.name == "images-models-of-acme"
    assert len(made.of_type("aws:ecr/repositoryPolicy:RepositoryPolicy")) == 2
