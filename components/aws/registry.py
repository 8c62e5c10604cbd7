"""The image registry of a foundation on AWS."""

import json
from typing import Any

import pulumi
import pulumi_aws as aws

from falaj.components.aws._component import (
    ROLE_LIMIT,
    account_of,
    child,
    named,
    stateful,
    token,
    written,
)
from falaj.components.aws._iam import Statement, arn, document, trust
from falaj.components.catalogue.clusters import MODEL_REPOSITORIES
from falaj.components.specification.property_names import engine_inputs
from falaj.components.specification.registry import PREFIXES, RegistryArgs, RegistrySpec, check

__all__ = ["Registry", "RegistryArgs"]


class Registry(pulumi.ComponentResource):
    """Repositories of images under a key of one's own, whose tags never move.

    ::

        registry = Registry("images", {
            "region": "me-central-1", "tenant": "acme", "owner": "platform@acme.example",
            "data_class": "restricted", "cost_center": "ai-42",
            "acknowledge_degraded": "2026-04-30",
            "registry_key_id": keys.key_ids["registry"],
            "upstreams": ["registry.k8s.io"],
        }, pulumi.ResourceOptions(providers=[provider]))

    Makes for each of ``repositories`` an `ecr.Repository` ``<tenant>-<stack>/<repository>``
    (immutable tags, own key, scanned on push), a policy that refuses other accounts, and a
    lifecycle that keeps the newest ``keep_images`` and drops untagged ones after two weeks; those
    of models (``models/…``) have none, as an old version may be served. For
    each of ``upstreams`` a pull-through rule and a template that gives the copies the same key and
    tags. The registry's own policy, of which an account has one in a region, refuses every
    replication into it, from whichever account; what an account sends elsewhere no policy of its
    registry decides: the boundary of `Identity` keeps roles from configuring that, and a service
    control policy of the organisation everybody. Stacks of one account write the same policy, and
    where one is destroyed the others write it anew at their next update that finds it gone
    (``--refresh``).

    Repositories are protected and retained in production; elsewhere they are deleted with their
    images.
    """

    registry_id: pulumi.Output[str]
    """Number of the account, which is the registry's id."""
    registry_host: pulumi.Output[str]
    """``<account>.dkr.ecr.<region>.amazonaws.com``."""
    repository_urls: pulumi.Output[dict[str, str]]
    """What to push to and pull from, by repository as given."""
    repository_ids: pulumi.Output[dict[str, str]]
    """ARNs of the repositories, by repository as given."""

    def __init__(
        self, name: str, args: RegistryArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        spec = check("aws", name, args)
        super().__init__(token("Registry"), name, engine_inputs(args), opts)
        account = account_of(self)
        key_id = args["registry_key_id"]
        made = {each: self._repository(name, each, spec, key_id) for each in spec.repositories}
        for label, repository in made.items():
            self._access(f"{name}-{label}", repository, account)
            if not label.startswith(f"{MODEL_REPOSITORIES}/"):
                self._cleaning(f"{name}-{label}", spec, repository)
        self._registry_policy(name, spec, account)
        if spec.upstreams:
            role = self._template_role(name, spec, account, key_id)
            for upstream in spec.upstreams:
                self._upstream(name, upstream, spec, role, key_id)
        region = spec.placed.region
        self.registry_id = account
        self.registry_host = account.apply(lambda it: f"{it}.dkr.ecr.{region}.amazonaws.com")
        self.repository_urls = pulumi.Output.all(
            **{label: repository.repository_url for label, repository in made.items()}
        )
        self.repository_ids = pulumi.Output.all(
            **{label: repository.arn for label, repository in made.items()}
        )
        outputs: dict[str, Any] = {
            "registry_id": self.registry_id,
            "registry_host": self.registry_host,
            "repository_urls": self.repository_urls,
            "repository_ids": self.repository_ids,
        }
        self.register_outputs(written(outputs))

    def _repository(
        self, name: str, repository: str, spec: RegistrySpec, key_id: pulumi.Input[str]
    ) -> aws.ecr.Repository:
        return aws.ecr.Repository(
            f"{name}-{repository}",
            name=f"{named(spec.placed, limit=64)}/{repository}",
            image_tag_mutability="IMMUTABLE",
            image_scanning_configuration={"scan_on_push": True},
            encryption_configurations=[{"encryption_type": "KMS", "kms_key": key_id}],
            force_delete=not spec.placed.retained,
            tags=spec.placed.tags(name),
            opts=stateful(self, spec.placed),
        )

    def _access(
        self, label: str, repository: aws.ecr.Repository, account: pulumi.Output[str]
    ) -> None:
        aws.ecr.RepositoryPolicy(
            label,
            repository=repository.name,
            policy=account.apply(_own_account),
            opts=child(self),
        )

    def _cleaning(self, label: str, spec: RegistrySpec, repository: aws.ecr.Repository) -> None:
        aws.ecr.LifecyclePolicy(
            label,
            repository=repository.name,
            policy=_lifecycle(spec.keep_images),
            opts=child(self),
        )

    def _registry_policy(self, name: str, spec: RegistrySpec, account: pulumi.Output[str]) -> None:
        def policy(number: str) -> pulumi.Output[str]:
            return document(
                Statement(
                    "NoReplication",
                    ["ecr:ReplicateImage"],
                    [arn("ecr", spec.placed.region, number, "repository/*")],
                    effect="Deny",
                    principals={"AWS": ["*"]},
                )
            )

        # The account's, whichever stack sets it, and the same of all: it stays when one goes.
        aws.ecr.RegistryPolicy(
            name, policy=account.apply(policy), opts=child(self, retain_on_delete=True)
        )

    def _template_role(
        self,
        name: str,
        spec: RegistrySpec,
        account: pulumi.Output[str],
        key_id: pulumi.Input[str],
    ) -> aws.iam.Role:
        """ECR makes the repositories of upstreams' images by this role: a key and tags need one.

        https://docs.aws.amazon.com/AmazonECR/latest/userguide/repository-creation-templates.html
        """
        label = f"{name}-templates"
        role = aws.iam.Role(
            label,
            name=named(spec.placed, label, limit=ROLE_LIMIT),
            description="ECR makes repositories for images that are pulled through",
            assume_role_policy=account.apply(lambda it: trust("ecr.amazonaws.com", it)),
            tags=spec.placed.tags(name),
            opts=child(self),
        )

        def policy(known: dict[str, str]) -> pulumi.Output[str]:
            region = spec.placed.region
            mine = f"repository/{named(spec.placed, limit=18)}-*"
            return document(
                Statement(
                    "MakeRepositories",
                    ["ecr:CreateRepository", "ecr:ReplicateImage", "ecr:TagResource"],
                    [arn("ecr", region, known["account"], mine)],
                ),
                Statement(
                    "UseKey",
                    ["kms:CreateGrant", "kms:DescribeKey", "kms:RetireGrant"],
                    [known["key"]],
                ),
            )

        known = pulumi.Output.all(account=account, key=key_id)
        aws.iam.RolePolicy(label, role=role.name, policy=known.apply(policy), opts=child(self))
        return role

    def _upstream(
        self,
        name: str,
        upstream: str,
        spec: RegistrySpec,
        role: aws.iam.Role,
        key_id: pulumi.Input[str],
    ) -> None:
        label = PREFIXES[upstream]
        prefix = f"{named(spec.placed, limit=18)}-{label}"
        template = aws.ecr.RepositoryCreationTemplate(
            f"{name}-{label}",
            prefix=prefix,
            description=f"Images of {upstream}",
            applied_fors=["PULL_THROUGH_CACHE"],
            image_tag_mutability="IMMUTABLE",
            encryption_configurations=[{"encryption_type": "KMS", "kms_key": key_id}],
            lifecycle_policy=_lifecycle(spec.keep_images),
            custom_role_arn=role.arn,
            resource_tags=spec.placed.tags(name),
            opts=child(self),
        )
        aws.ecr.PullThroughCacheRule(
            f"{name}-{label}",
            ecr_repository_prefix=prefix,
            upstream_registry_url=upstream,
            # The first pull would otherwise make a repository without the key.
            opts=child(self, depends_on=[template]),
        )


def _own_account(number: str) -> pulumi.Output[str]:
    return document(
        Statement(
            "OnlyThisAccount",
            ["ecr:*"],
            effect="Deny",
            principals={"AWS": ["*"]},
            conditions={
                "StringNotEquals": {"aws:PrincipalAccount": number},
                "Bool": {"aws:PrincipalIsAWSService": "false"},
            },
        )
    )


def _lifecycle(keep: int) -> str:
    """https://docs.aws.amazon.com/AmazonECR/latest/userguide/lifecycle_policy_parameters.html"""
    rules: list[dict[str, Any]] = [
        {
            "rulePriority": 1,
            "description": "untagged for two weeks",
            "selection": {
                "tagStatus": "untagged",
                "countType": "sinceImagePushed",
                "countUnit": "days",
                "countNumber": 14,
            },
            "action": {"type": "expire"},
        },
        {
            "rulePriority": 2,
            "description": "all but the newest",
            "selection": {
                "tagStatus": "any",
                "countType": "imageCountMoreThan",
                "countNumber": keep,
            },
            "action": {"type": "expire"},
        },
    ]
    return json.dumps({"rules": rules})
