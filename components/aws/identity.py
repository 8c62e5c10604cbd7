"""Roles by duty on AWS, under one boundary."""

from collections.abc import Mapping, Sequence
from typing import Any

import pulumi
import pulumi_aws as aws

from falaj.components.aws._component import ROLE_LIMIT, account_of, child, named, token, written
from falaj.components.aws._iam import Statement, document
from falaj.components.aws._role_permissions import Limits, Realm, boundary_policy, duty_policy
from falaj.components.specification.identity import DUTIES, IdentityArgs, IdentitySpec, check
from falaj.components.specification.property_names import engine_inputs

__all__ = ["Identity", "IdentityArgs"]


class Identity(pulumi.ComponentResource):
    """A role for each duty, which only its members may take, and for a short time.

    ::

        identity = Identity("people", {
            "region": "me-central-1", "tenant": "acme", "owner": "platform@acme.example",
            "data_class": "restricted", "cost_center": "ai-42",
            "acknowledge_degraded": "2026-04-30",
            "members": {
                "trainer": ["arn:aws:iam::000000000000:user/amal"],
                "auditor": ["arn:aws:iam::000000000000:role/audit"],
            },
            "bucket_ids": store.bucket_ids, "key_ids": keys.key_ids,
            "repository_ids": registry.repository_ids,
        }, pulumi.ResourceOptions(providers=[provider]))

    Makes an `iam.Policy` as permissions boundary and for each duty an `iam.Role` with a policy of
    its own: the provisioner makes infrastructure and can't read data; the trainer reads datasets
    and hands in models; the deployer reads models and releases images; the auditor reads logs and
    configuration and no data; the key administrator manages keys and can't use them. A duty that
    nobody has can't be taken by anybody.

    The boundary refuses other regions (apart from IAM, STS, Route 53 and budgets, which have
    none here), copies and shares out of the region, ending or weakening trails, flow logs, log
    groups and the audit bucket, lasting credentials, changing the duties themselves, and making
    roles without the boundary. So pass `boundary_id` to components that make roles; a foundation's
    own service roles are made by whoever sets up the account. A session that is started from
    another role lasts an hour at most, whatever ``session_minutes`` says, by AWS's own rule.
    """

    role_ids: pulumi.Output[dict[str, str]]
    """ARNs of the roles by duty."""
    boundary_id: pulumi.Output[str | None]
    """ARN of the boundary."""

    def __init__(
        self, name: str, args: IdentityArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        spec = check("aws", name, args)
        super().__init__(token("Identity"), name, engine_inputs(args), opts)
        account = account_of(self)
        names = {each: named(spec.placed, name, each, limit=ROLE_LIMIT) for each in DUTIES}
        log_prefix = f"/falaj/{spec.placed.tenant}"
        boundary = self._boundary(
            name, spec, args, account, roles=list(names.values()), log_prefix=log_prefix
        )

        def realm(known: dict[str, Any]) -> Realm:
            return Realm(
                account=known["account"],
                region=spec.placed.region,
                prefix=spec.placed.tenant,
                log_prefix=log_prefix,
                buckets=known["buckets"],
                repositories=known["repositories"],
                keys=known["keys"],
            )

        realms = pulumi.Output.all(
            account=account,
            buckets=args["bucket_ids"],
            repositories=args["repository_ids"],
            keys=args["key_ids"],
        ).apply(realm)
        roles = {
            duty: self._role(f"{name}-{duty}", names[duty], duty, spec, boundary)
            for duty in DUTIES
        }
        for duty, role in roles.items():
            aws.iam.RolePolicy(
                f"{name}-{duty}",
                role=role.name,
                policy=realms.apply(_policy_of(duty)),
                opts=child(self),
            )
        self.role_ids = pulumi.Output.all(**{duty: role.arn for duty, role in roles.items()})
        self.boundary_id = boundary.arn
        self.register_outputs(
            written({"role_ids": self.role_ids, "boundary_id": self.boundary_id})
        )

    def _boundary(
        self,
        name: str,
        spec: IdentitySpec,
        args: IdentityArgs,
        account: pulumi.Output[str],
        *,
        roles: Sequence[str],
        log_prefix: str,
    ) -> aws.iam.Policy:
        own = named(spec.placed, name, "boundary", limit=128)

        def policy(known: dict[str, Any]) -> pulumi.Output[str]:
            return boundary_policy(
                Limits(
                    account=known["account"],
                    regions=(spec.placed.region,),
                    boundary=own,
                    duties=roles,
                    log_prefix=log_prefix,
                    audit_bucket=known["buckets"].get("audit"),
                )
            )

        known = pulumi.Output.all(account=account, buckets=args["bucket_ids"])
        return aws.iam.Policy(
            f"{name}-boundary",
            name=own,
            description="What no role of the tenant may do",
            policy=known.apply(policy),
            tags=spec.placed.tags(name),
            opts=child(self),
        )

    def _role(
        self, label: str, physical: str, duty: str, spec: IdentitySpec, boundary: aws.iam.Policy
    ) -> aws.iam.Role:
        return aws.iam.Role(
            label,
            name=physical,
            description=f"{duty} of {spec.placed.tenant}",
            assume_role_policy=_trust(spec.members[duty], require_mfa=spec.require_mfa),
            permissions_boundary=boundary.arn,
            max_session_duration=60 * spec.session_minutes,
            tags={**spec.placed.tags(label), "falaj:duty": duty},
            opts=child(self),
        )


def _policy_of(duty: str) -> Any:
    def policy(realm: Realm) -> pulumi.Output[str]:
        return duty_policy(duty, realm)

    return policy


def _trust(members: Sequence[str], *, require_mfa: bool) -> pulumi.Output[str]:
    """Who may take a role: users with a second factor, roles whose sign-in is asked for it."""
    users = [each for each in members if ":user/" in each]
    roles = [each for each in members if ":role/" in each]
    second: Mapping[str, Mapping[str, str]] = (
        {"Bool": {"aws:MultiFactorAuthPresent": "true"}} if require_mfa else {}
    )
    statements: list[Statement] = []
    if users:
        statements.append(
            Statement("Users", ["sts:AssumeRole"], principals={"AWS": users}, conditions=second)
        )
    if roles:
        statements.append(
            Statement(
                "Roles", ["sts:AssumeRole", "sts:SetSourceIdentity"], principals={"AWS": roles}
            )
        )
    if not statements:
        statements.append(
            Statement("Nobody", ["sts:AssumeRole"], effect="Deny", principals={"AWS": ["*"]})
        )
    return document(*statements)
