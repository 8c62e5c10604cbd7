"""The keys of a foundation on AWS: one KMS key for each purpose."""

from typing import Any

import pulumi
import pulumi_aws as aws

from falaj.components.aws._component import account_of, child, named, stateful, token, written
from falaj.components.aws._key_policies import KeyHolder, key_policy
from falaj.components.specification.key_ring import KeyRingArgs, KeyRingSpec, check
from falaj.components.specification.property_names import engine_inputs

__all__ = ["KeyRing", "KeyRingArgs"]


class KeyRing(pulumi.ComponentResource):
    """One KMS key for each purpose, managed by people who can't use it.

    ::

        keys = KeyRing("keys", {
            "region": "me-central-1", "tenant": "acme", "owner": "platform@acme.example",
            "data_class": "restricted", "cost_center": "ai-42",
            "acknowledge_degraded": "2026-04-30",
            "administrators": ["arn:aws:iam::000000000000:role/key-administrators"],
        }, pulumi.ResourceOptions(providers=[provider]))

    Makes for each purpose a `kms.Key` (never multi-region, rotated) and a `kms.Alias`
    ``alias/<tenant>-<stack>-<name>-<purpose>``. Its policy lets administrators manage and never
    use it, and lets the account's principals use it only through the purpose's services and only
    if their own policy says so, too. Name the role that deploys among the administrators: KMS
    refuses a policy that locks out whoever sets it. Without administrators the account's IAM
    policies say who manages keys.

    Keys are protected and retained in production; elsewhere they are deleted after the shortest
    window, seven days.
    """

    key_ring_id: pulumi.Output[str]
    """ARN of the first key; on AWS the ring itself is no resource."""
    key_ids: pulumi.Output[dict[str, str]]
    """ARNs of the keys by purpose."""
    disk_encryption_id: pulumi.Output[str]
    """ARN of the key for disks; empty without that purpose."""
    key_identity_id: pulumi.Output[str | None]
    """Always none: on AWS every service uses keys as itself or as its caller."""

    def __init__(
        self, name: str, args: KeyRingArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        spec = check("aws", name, args)
        super().__init__(token("KeyRing"), name, engine_inputs(args), opts)
        account = account_of(self)
        keys = {purpose: self._key(name, purpose, spec, account) for purpose in spec.purposes}
        arns: dict[str, pulumi.Output[str]] = {each: key.arn for each, key in keys.items()}
        self.key_ids = pulumi.Output.all(**arns)
        self.key_ring_id = arns[spec.purposes[0]]
        self.disk_encryption_id = pulumi.Output.from_input(arns.get("disks", ""))
        self.key_identity_id = pulumi.Output.from_input(None)
        outputs: dict[str, Any] = {
            "key_ring_id": self.key_ring_id,
            "key_ids": self.key_ids,
            "disk_encryption_id": self.disk_encryption_id,
            "key_identity_id": self.key_identity_id,
        }
        self.register_outputs(written(outputs))

    def _key(
        self, name: str, purpose: str, spec: KeyRingSpec, account: pulumi.Output[str]
    ) -> aws.kms.Key:
        def policy(number: str) -> pulumi.Output[str]:
            return key_policy(purpose, KeyHolder(number, spec.placed.region, spec.administrators))

        key = aws.kms.Key(
            f"{name}-{purpose}",
            description=f"{purpose} of {spec.placed.tenant}, {pulumi.get_stack()}",
            policy=account.apply(policy),
            enable_key_rotation=True,
            rotation_period_in_days=spec.rotation_days,
            deletion_window_in_days=spec.deletion_window_days,
            multi_region=False,
            bypass_policy_lockout_safety_check=False,
            tags={**spec.placed.tags(name), "falaj:purpose": purpose},
            opts=stateful(self, spec.placed),
        )
        aws.kms.Alias(
            f"{name}-{purpose}",
            name=f"alias/{named(spec.placed, name, purpose, limit=200)}",
            target_key_id=key.key_id,
            opts=child(self),
        )
        return key
