"""What waits for roles to take effect in Azure, and what Azure answers until they do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pulumi

from falaj.components.specification.propagation import after_grant, until_granted

_ASSIGNMENT: Final = "azure-native:authorization:RoleAssignment"
#: It moves to its key in the update after the one that lets it use it.
_REGISTRY: Final = "azure-native:containerregistry:Registry"
_IDENTITY: Final = "azure-native:managedidentity:UserAssignedIdentity"
#: What a new assignment is given. Most take effect within it; what takes longer is tried again, as
#: far as Azure says so: AKS doesn't look into a private vault before it makes a cluster.
_SECONDS: Final = 60.0
#: What is refused while a role isn't known yet, by the type that relies on it.
#:
#: https://learn.microsoft.com/azure/role-based-access-control/troubleshooting;
#: https://github.com/Azure/bicep/issues/16601; for keys
#: https://learn.microsoft.com/azure/storage/common/customer-managed-keys-configure-existing-account
#: and https://learn.microsoft.com/azure/container-registry/tutorial-troubleshoot-customer-managed-keys
ANSWERS: Final[Mapping[str, tuple[str, ...]]] = {
    # The identity itself is new to Entra.
    _ASSIGNMENT: ("PrincipalNotFound",),
    "azure-native:compute:DiskEncryptionSet": ("KeyVaultAccessForbidden", "ForbiddenByRbac"),
    "azure-native:storage:StorageAccount": ("KeyVaultAuthenticationFailure", "ForbiddenByRbac"),
    _REGISTRY: ("Failed to access KeyId", "ForbiddenByRbac"),
    "azure-native:netapp:Account": ("ForbiddenByRbac",),
    "azure-native:netapp:Volume": ("ForbiddenByRbac",),
    "azure-native:containerservice:ManagedCluster": (
        "AuthorizationFailed",
        "LinkedAuthorizationFailed",
        "CustomKubeletIdentityMissingPermissionError",
        "CustomPrivateDNSZoneMissingPermission",
    ),
}


def waiting(args: pulumi.ResourceTransformationArgs) -> pulumi.ResourceTransformationResult | None:
    """Give a resource of a component the hooks that wait for roles; None where it needs none."""
    name = f"{args.type_.rpartition(':')[2]}-{args.name}"
    hooks = args.opts.hooks
    if answers := ANSWERS.get(args.type_):
        tried = until_granted(name, answers, earlier=args.type_ == _REGISTRY)
        hooks = pulumi.ResourceHookBinding.merge(hooks, tried)
    if args.type_ == _IDENTITY:
        # Entra is asked for it by its first assignment, which is tried again.
        hooks = pulumi.ResourceHookBinding.merge(hooks, after_grant(name, 0))
    elif args.type_ == _ASSIGNMENT and _is_for_a_service(args.props):
        hooks = pulumi.ResourceHookBinding.merge(hooks, after_grant(name, _SECONDS))
    if hooks is None:
        return None
    args.opts.hooks = hooks
    return pulumi.ResourceTransformationResult(args.props, args.opts)


def _is_for_a_service(assignment: Mapping[str, Any]) -> bool:
    """Whether a service relies on it; people come later."""
    kind = assignment.get("principal_type")
    return str(getattr(kind, "value", kind)) == "ServicePrincipal"
