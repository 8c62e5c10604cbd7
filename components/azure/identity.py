"""Who may do what: a role for each duty, given to groups of Entra."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pulumi
from pulumi_azure_native import authorization

from falaj.components.azure import _roles
from falaj.components.azure._component import client_of, component_options
from falaj.components.azure._ids import bucket_id, store_id
from falaj.components.azure._roles import ROLES, define_role
from falaj.components.specification.identity import (
    AUDITOR,
    DEPLOYER,
    KEY_ADMINISTRATOR,
    PROVISIONER,
    TRAINER,
    IdentityArgs,
    check,
)
from falaj.components.specification.property_names import engine_inputs

__all__ = ["Identity", "IdentityArgs"]

_PERMISSIONS = {
    PROVISIONER: _roles.PROVISIONER,
    TRAINER: _roles.TRAINER,
    DEPLOYER: _roles.DEPLOYER,
    AUDITOR: _roles.AUDITOR,
    KEY_ADMINISTRATOR: _roles.KEY_ADMINISTRATOR,
}
#: How long somebody stays eligible; then it has to be decided anew. The longest that tenants allow
#: unless they say otherwise: https://learn.microsoft.com/entra/id-governance/
#: privileged-identity-management/pim-resource-roles-configure-role-settings
_ELIGIBLE = "P365D"
_SCHEDULE = authorization.RoleEligibilityScheduleRequestPropertiesScheduleInfoArgs(
    expiration=authorization.RoleEligibilityScheduleRequestPropertiesExpirationArgs(
        type=authorization.Type.AFTER_DURATION, duration=_ELIGIBLE
    )
)


@dataclass(frozen=True)
class _Right:
    """A role that a duty has somewhere."""

    duty: str
    where: str
    scope: Callable[[], pulumi.Input[str]]
    """Asked only when somebody has the duty: else what it needs may not exist."""
    role: pulumi.Input[str] | None = None
    """None: the duty's own."""
    condition: str | None = None


class Identity(pulumi.ComponentResource):
    """A role for each duty, with exactly the operations that it needs, for groups of Entra.

    The provisioner makes infrastructure and keeps its state, reads no data, deletes nothing that
    holds any (nor resource groups, with which all in them would go: empty ones stay for who set
    the subscription up), and grants no roles but those that components grant; the trainer reads
    datasets, writes checkpoints and models and pulls images; the deployer reads models and pushes
    images; the auditor sees all settings and logs and reads no data but the audit archive; the key
    administrator manages keys and can't use them. Nobody may hold two duties that conflict: that
    is refused.

    With ``require_mfa`` people are eligible, for a year: they take a duty up when they need it,
    with a second factor, through Privileged Identity Management (which needs Entra ID P2). Without
    it they have it always; that is for machines, which can't take anything up. Azure's registry
    grants no narrower than itself, so that only deployers push images.

    Role definitions belong to who sets up the subscription: provisioners can't change them.

    Example:
        ``people = Identity("people", {"region": "uaenorth", "tenant": "bank", "owner":
        "it@bank.ae", "data_class": "confidential", "cost_center": "42", "bucket_ids":
        store.bucket_ids, "repository_ids": registry.repository_ids, "key_ids": keys.key_ids,
        "key_ring_id": keys.key_ring_id, "members": {"trainer": ["<object id>"]}}, opts)``

    Makes: five role definitions, and for each member the assignments of its duty or eligibilities
    for them.
    """

    role_ids: pulumi.Output[dict[str, str]]
    """Id of the role definition by duty."""
    boundary_id: pulumi.Output[str | None]
    """None: permissions boundaries exist on AWS only."""

    def __init__(
        self, name: str, args: IdentityArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        spec = check("azure", name, args)
        super().__init__(
            "falaj-azure:index:Identity", name, engine_inputs(args), component_options(opts)
        )
        self._spec = spec
        self._name = name
        self._opts = pulumi.ResourceOptions(parent=self)
        client = client_of(self)
        subscription = pulumi.Output.concat("/subscriptions/", client.subscription_id)
        roles = {
            duty: define_role(
                f"{name}-{duty}", spec.placed, permissions, subscription, self._opts
            ).id
            for duty, permissions in _PERMISSIONS.items()
        }

        def built_in(role: str) -> pulumi.Output[str]:
            where = "/providers/Microsoft.Authorization/roleDefinitions/"
            return pulumi.Output.concat(subscription, where, ROLES[role])

        reader = built_in("Storage Blob Data Reader")
        writer = built_in("Storage Blob Data Contributor")
        user = built_in("Key Vault Crypto User")
        ids = args["bucket_ids"]

        def bucket(purpose: str) -> pulumi.Output[str]:
            return bucket_id(ids, purpose)

        def registry() -> pulumi.Output[str]:
            repositories = pulumi.Output.from_input(args["repository_ids"])
            return repositories.apply(lambda found: next(iter(found.values())))

        def state_key() -> pulumi.Output[str]:
            return pulumi.Output.concat(args.get("key_ring_id", ""), "/keys/state")

        rights = [
            _Right(PROVISIONER, "all", lambda: subscription, condition=_roles.GRANTS_ONLY),
            _Right(PROVISIONER, "state", lambda: bucket("state"), role=writer),
            _Right(PROVISIONER, "state-key", state_key, role=user),
            _Right(TRAINER, "datasets", lambda: bucket("datasets"), role=reader),
            _Right(TRAINER, "checkpoints", lambda: bucket("checkpoints")),
            _Right(TRAINER, "models", lambda: bucket("models")),
            _Right(TRAINER, "images", registry),
            _Right(DEPLOYER, "models", lambda: bucket("models")),
            _Right(DEPLOYER, "images", registry),
            _Right(AUDITOR, "all", lambda: subscription),
            _Right(AUDITOR, "archive", lambda: store_id(bucket("audit")), role=reader),
            _Right(KEY_ADMINISTRATOR, "keys", lambda: args.get("key_ring_id", "")),
        ]
        for right in rights:
            self._give(right, roles[right.duty])
        self.role_ids = pulumi.Output.all(**roles)
        nothing: str | None = None
        self.boundary_id = pulumi.Output.from_input(nothing)
        self.register_outputs({"roleIds": self.role_ids, "boundaryId": self.boundary_id})

    def _give(self, right: _Right, own: pulumi.Input[str]) -> None:
        """Give a right to everybody who has the duty."""
        for principal in self._spec.members[right.duty]:
            title = f"{self._name}-{right.duty}-{right.where}-{principal}"
            given: dict[str, Any] = {
                "scope": right.scope(),
                "principal_id": principal,
                "role_definition_id": right.role or own,
                "condition": right.condition,
                "condition_version": "2.0" if right.condition else None,
                "opts": self._opts,
            }
            if self._spec.require_mfa:
                authorization.PimRoleEligibilitySchedule(
                    title,
                    justification=f"Duty {right.duty} of {self._spec.placed.tenant}",
                    schedule_info=_SCHEDULE,
                    **given,
                )
            else:
                authorization.RoleAssignment(title, **given)
