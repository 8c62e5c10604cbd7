"""What the pods of one service account may do on AWS."""

from typing import Any

import pulumi
import pulumi_aws as aws

from falaj.components.aws._component import ROLE_LIMIT, account_of, child, named, token, written
from falaj.components.aws._iam import Statement, arn, document, pod_trust
from falaj.components.aws._role_permissions import READ_OBJECTS, WRITE_OBJECTS
from falaj.components.specification.identity import TRAINER
from falaj.components.specification.property_names import engine_inputs
from falaj.components.specification.workload_identity import (
    WorkloadIdentityArgs,
    WorkloadIdentitySpec,
    check,
)

__all__ = ["WorkloadIdentity", "WorkloadIdentityArgs"]


class WorkloadIdentity(pulumi.ComponentResource):
    """A role that only the pods of one service account in one cluster get, by EKS Pod Identity.

    ::

        trainer = WorkloadIdentity("trainer", {
            "region": "me-central-1", "tenant": "acme", "owner": "platform@acme.example",
            "data_class": "restricted", "cost_center": "ai-42",
            "acknowledge_degraded": "2026-04-30",
            "cluster_id": cluster.cluster_id, "issuer_url": cluster.issuer_url,
            "namespace": "training", "service_account": "trainer", "duty": "trainer",
            "bucket_ids": store.bucket_ids, "data_key_id": keys.key_ids["data"],
        }, pulumi.ResourceOptions(providers=[provider]))

    Makes an `iam.Role` that EKS takes for pods of that namespace and service account alone, its
    policy, and an `eks.PodIdentityAssociation`. A trainer reads datasets and reads and writes
    checkpoints and models; a deployer reads models. Pods get short-lived credentials from the
    node's Pod Identity agent: no secret is stored, and ``issuer_url`` isn't needed.
    """

    identity_id: pulumi.Output[str]
    """ARN of the role."""

    def __init__(
        self, name: str, args: WorkloadIdentityArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        spec = check("aws", name, args)
        super().__init__(token("WorkloadIdentity"), name, engine_inputs(args), opts)
        tags = spec.placed.tags(name)
        known = pulumi.Output.all(
            account=account_of(self),
            cluster=args["cluster_id"],
            buckets=args["bucket_ids"],
            key=args["data_key_id"],
        )

        def may_be_taken(found: dict[str, Any]) -> pulumi.Output[str]:
            return _trust(spec, found["account"], found["cluster"])

        def may(found: dict[str, Any]) -> pulumi.Output[str]:
            return _policy(spec, found["buckets"], found["key"])

        role = aws.iam.Role(
            name,
            name=named(spec.placed, name, limit=ROLE_LIMIT),
            description=f"Pods of {spec.service_account} in {spec.namespace}",
            assume_role_policy=known.apply(may_be_taken),
            permissions_boundary=args.get("boundary_id"),
            max_session_duration=3600,
            tags={**tags, "falaj:duty": spec.duty},
            opts=child(self),
        )
        policy = aws.iam.RolePolicy(
            name, role=role.name, policy=known.apply(may), opts=child(self)
        )
        aws.eks.PodIdentityAssociation(
            name,
            cluster_name=args["cluster_id"],
            namespace=spec.namespace,
            service_account=spec.service_account,
            role_arn=role.arn,
            tags=tags,
            opts=child(self, depends_on=[policy]),
        )
        self.identity_id = role.arn
        self.register_outputs(written({"identity_id": self.identity_id}))


def _trust(spec: WorkloadIdentitySpec, account: str, cluster: str) -> pulumi.Output[str]:
    own = arn("eks", spec.placed.region, account, f"cluster/{cluster}")
    return pod_trust(account, own, spec.namespace, spec.service_account)


def _policy(
    spec: WorkloadIdentitySpec, buckets: dict[str, str], key_arn: str
) -> pulumi.Output[str]:
    trains = spec.duty == TRAINER
    reads = ("datasets", "checkpoints", "models") if trains else ("models",)
    writes = ("checkpoints", "models") if trains else ()
    found = [
        Statement("List", ["s3:ListBucket"], [buckets[each] for each in reads if each in buckets]),
        Statement(
            "Read", READ_OBJECTS, [f"{buckets[each]}/*" for each in reads if each in buckets]
        ),
        Statement(
            "Write", WRITE_OBJECTS, [f"{buckets[each]}/*" for each in writes if each in buckets]
        ),
        Statement(
            "DataKey",
            ["kms:Decrypt", "kms:GenerateDataKey"] if trains else ["kms:Decrypt"],
            [key_arn],
            conditions={
                "StringEquals": {"kms:ViaService": f"s3.{spec.placed.region}.amazonaws.com"}
            },
        ),
    ]
    # A statement without resources would be about all of them.
    return document(*(each for each in found if each.resources))
