"""Roles of an EKS cluster: its control plane, its nodes, and the add-ons that call AWS."""

from __future__ import annotations

from collections.abc import Sequence

import pulumi
import pulumi_aws as aws

from falaj.components.aws._arn import iam_arn
from falaj.components.aws._component import ROLE_LIMIT, child, named
from falaj.components.aws._iam import Statement, document
from falaj.components.specification.placed import Placed

#: Policies of AWS itself, by their path.
CLUSTER_POLICY = "AmazonEKSClusterPolicy"
#: The least that a node needs; the network plugin's rights are the plugin's own role's:
#: docs.aws.amazon.com/eks/latest/userguide/create-node-role.html. The "minimal" policy is Auto
#: Mode's: without ec2:DescribeInstances a node of Amazon Linux doesn't learn its name, and never
#: joins (github.com/awslabs/amazon-eks-ami/pull/1715).
NODE_POLICIES = ("AmazonEKSWorkerNodePolicy", "AmazonEC2ContainerRegistryPullOnly")
NETWORK_POLICY = "AmazonEKS_CNI_Policy"
DISK_POLICY = "service-role/AmazonEBSCSIDriverPolicy"


class ClusterRoles:
    """Makes the roles of one cluster, all under the same boundary."""

    def __init__(
        self,
        parent: pulumi.Resource,
        placed: Placed,
        name: str,
        account: pulumi.Output[str],
        boundary: pulumi.Input[str] | None,
    ) -> None:
        self._parent = parent
        self._placed = placed
        self._name = name
        self._account = account
        self._boundary = boundary

    def control_plane(self, key_id: pulumi.Input[str]) -> pulumi.Output[str]:
        """ARN of the control plane's role, which may use the key of the cluster's secrets."""
        role = self._role("control-plane", self._by_service("eks.amazonaws.com", confused=True))
        granted = self._attach("control-plane", role, [CLUSTER_POLICY])
        secrets = Statement(
            "Secrets",
            ["kms:Encrypt", "kms:Decrypt", "kms:DescribeKey", "kms:ListGrants"],
            [key_id],
        )
        granted.append(self._allow("control-plane", role, secrets))
        return _after(role, granted)

    def nodes(self) -> pulumi.Output[str]:
        """ARN of the nodes' role: join the cluster, pull images; nothing else."""
        # EC2 names no account when it takes a role, so that there is nothing to compare.
        role = self._role("node", self._by_service("ec2.amazonaws.com", confused=False))
        return _after(role, self._attach("node", role, NODE_POLICIES))

    def network_plugin(self) -> pulumi.Output[str]:
        """ARN of the role of the network plugin, which gives addresses to pods."""
        role = self._role("vpc-cni", self._by_pods())
        return _after(role, self._attach("vpc-cni", role, [NETWORK_POLICY]))

    def disk_driver(self, key_id: pulumi.Input[str]) -> pulumi.Output[str]:
        """ARN of the role of the disks' driver, which may use the key of disks for volumes."""
        role = self._role("ebs-csi", self._by_pods())
        granted = self._attach("ebs-csi", role, [DISK_POLICY])
        volumes = Statement(
            "EncryptVolumes",
            [
                "kms:Decrypt",
                "kms:DescribeKey",
                "kms:Encrypt",
                "kms:GenerateDataKeyWithoutPlaintext",
                "kms:ReEncryptFrom",
                "kms:ReEncryptTo",
            ],
            [key_id],
        )
        grants = Statement(
            "LetVolumesUseTheKey",
            ["kms:CreateGrant", "kms:ListGrants", "kms:RevokeGrant"],
            [key_id],
            conditions={"Bool": {"kms:GrantIsForAWSResource": "true"}},
        )
        granted.append(self._allow("ebs-csi", role, volumes, grants))
        return _after(role, granted)

    def _by_service(self, service: str, *, confused: bool) -> pulumi.Output[str]:
        """Trust in a service; ``confused`` where it says for which account it asks."""
        conditions = {"StringEquals": {"aws:SourceAccount": self._account}} if confused else {}
        return document(
            Statement(
                "Service",
                ["sts:AssumeRole"],
                principals={"Service": [service]},
                conditions=conditions,
            )
        )

    def _by_pods(self) -> pulumi.Output[str]:
        """Trust in Pod Identity for this account's clusters.

        https://docs.aws.amazon.com/eks/latest/userguide/pod-id-role.html
        """
        return document(
            Statement(
                "Pods",
                ["sts:AssumeRole", "sts:TagSession"],
                principals={"Service": ["pods.eks.amazonaws.com"]},
                conditions={"StringEquals": {"aws:SourceAccount": self._account}},
            )
        )

    def _role(self, duty: str, trust: pulumi.Output[str]) -> aws.iam.Role:
        return aws.iam.Role(
            f"{self._name}-{duty}",
            name=named(self._placed, self._name, duty, limit=ROLE_LIMIT),
            assume_role_policy=trust,
            permissions_boundary=self._boundary,
            tags=self._placed.tags(self._name),
            opts=child(self._parent),
        )

    def _attach(
        self, duty: str, role: aws.iam.Role, policies: Sequence[str]
    ) -> list[pulumi.CustomResource]:
        return [
            aws.iam.RolePolicyAttachment(
                f"{self._name}-{duty}-{policy.rpartition('/')[2]}",
                role=role.name,
                policy_arn=iam_arn("aws", f"policy/{policy}"),
                opts=child(self._parent),
            )
            for policy in policies
        ]

    def _allow(
        self, duty: str, role: aws.iam.Role, *statements: Statement
    ) -> pulumi.CustomResource:
        return aws.iam.RolePolicy(
            f"{self._name}-{duty}",
            role=role.name,
            policy=document(*statements),
            opts=child(self._parent),
        )


def _after(role: aws.iam.Role, granted: Sequence[pulumi.CustomResource]) -> pulumi.Output[str]:
    """The role's ARN, once it may do what it is for."""
    return pulumi.Output.all(role.arn, *[each.id for each in granted]).apply(
        lambda known: str(known[0])
    )
