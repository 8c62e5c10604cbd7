"""Microsoft.Authorization and ManagedIdentity: roles, policies, locks and identities."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from falaj.sandbox.clouds.azure import checks, kinds, naming, resources
from falaj.sandbox.clouds.azure.kinds import AzureKind
from falaj.sandbox.clouds.azure.role_names import meant, unknown_action
from falaj.sandbox.clouds.inputs import Inputs, Resource
from falaj.sandbox.clouds.kinds import (
    absent,
    all_of,
    equals,
    formed,
    given,
    one_of,
    refused,
    required,
    sized,
    texts,
)
from falaj.sandbox.clouds.model import Problem
from falaj.sandbox.clouds.vendor import MADE_AT

DEFINITION: Final = "azure-native:authorization:RoleDefinition"
ASSIGNMENT: Final = "azure-native:authorization:RoleAssignment"
# Source: role-based-access-control/role-definitions (actions format).
_ACTION: Final = re.compile(r"\*|\*/[A-Za-z0-9*/]+|[A-Za-z0-9*.]+(?:/[A-Za-z0-9*._-]+)+")
_SCOPE: Final = re.compile(
    r"/|/subscriptions/[0-9a-fA-F-]{36}(?:/resourceGroups/[^/]+)?(?:/providers/.+)?"
    r"|/providers/Microsoft\.Management/managementGroups/[^/]+",
    re.IGNORECASE,
)
_PRINCIPALS: Final = ("User", "Group", "ServicePrincipal", "ForeignGroup", "Device")


def _scope(path: str, text: str | None) -> Iterator[Problem]:
    if text is not None and not _SCOPE.fullmatch(text):
        yield Problem(
            path,
            f"{text!r} isn't a scope; it looks like /subscriptions/ID, a resource "
            "group's id or a resource's",
        )


def _definition_problems(inputs: Inputs) -> Iterator[Problem]:
    yield from _scope("scope", inputs.optional_string("scope"))
    for path, text in inputs.strings("assignableScopes"):
        yield from _scope(path, text)
        if text == "/":
            yield Problem(path, "'/' is for built-in roles; name a subscription or a group")
    for path, _ in inputs.items("permissions"):
        for kind in ("actions", "notActions", "dataActions", "notDataActions"):
            for where, text in inputs.strings(f"{path}.{kind}"):
                if not _ACTION.fullmatch(text):
                    yield Problem(
                        where,
                        f"{text!r} isn't an action such as Microsoft.Storage/storageAccounts/read",
                    )
                elif reason := unknown_action(text, is_data="ata" in kind):
                    yield Problem(where, f"{text!r} {reason}")
        if inputs.is_absent(f"{path}.actions[0]") and inputs.is_absent(f"{path}.dataActions[0]"):
            yield Problem(path, "allows nothing: give actions or dataActions")
        if inputs.items(f"{path}.dataActions") and any(
            "managementgroups" in text.lower() for _, text in inputs.strings("assignableScopes")
        ):
            # Source: role-based-access-control/custom-roles (limits).
            yield Problem(f"{path}.dataActions", "don't go with a management group as the scope")


def _definition_conflicts(resource: Resource) -> Iterator[Problem]:
    name = resource.optional_string("roleName")
    for made in resource.world.all(DEFINITION) if name else ():
        taken = made.inputs.get("roleName")
        is_same = isinstance(taken, str) and taken.lower() == (name or "").lower()
        if is_same and not naming.same(made.id, resource.id):
            yield Problem(
                "roleName",
                f"{name!r} is the name of another role; names are unique in the tenant",
            )


def _definition_blockers(resource: Resource) -> Iterator[Problem]:
    own = resource.id.rpartition("/")[2].lower()
    for made in resource.world.all(ASSIGNMENT):
        role = made.inputs.get("roleDefinitionId")
        if isinstance(role, str) and role.rpartition("/")[2].lower() == own:
            yield Problem("", f"{made.id} assigns the role; delete that first")


def _eligibility_problems(inputs: Inputs) -> Iterator[Problem]:
    """Problems of who gets which role where."""
    yield from _scope("scope", inputs.optional_string("scope"))
    role = inputs.optional_string("roleDefinitionId")
    if role is not None:
        guid = role.rpartition("/")[2]
        if "/roledefinitions/" not in role.lower() or not checks.GUID.fullmatch(guid):
            yield Problem(
                "roleDefinitionId",
                f"{role!r} isn't the id of a role; it ends in "
                "/providers/Microsoft.Authorization/roleDefinitions/GUID",
            )


def _role_exists(resource: Resource) -> Iterator[Problem]:
    """The role is none of Azure's that was mistyped; one of one's own may have any id."""
    role = (resource.optional_string("roleDefinitionId") or "").rpartition("/")[2].lower()
    own = any(made.id.lower().endswith(f"/{role}") for made in resource.world.all(DEFINITION))
    if not own and (found := meant(role)):
        yield Problem(
            "roleDefinitionId",
            f"there is no role {role!r}; the built-in role {found[1]!r} is {found[0]}",
        )


def _assignment_conflicts(resource: Resource) -> Iterator[Problem]:
    wanted = _facts(resource)
    for made in resource.world.all(ASSIGNMENT):
        if not naming.same(made.id, resource.id) and wanted == _facts(Inputs(made.inputs)):
            yield Problem(
                "",
                f"{made.id} assigns the same role to the same principal at the same "
                "scope already; leave one of them out",
            )
    role = (resource.optional_string("roleDefinitionId") or "").rpartition("/")[2].lower()
    custom = next(
        (made for made in resource.world.all(DEFINITION) if made.id.lower().endswith(f"/{role}")),
        None,
    )
    scope = resource.optional_string("scope")
    if custom and scope:
        allowed = [text for _, text in Inputs(custom.inputs).strings("assignableScopes")]
        if allowed and not any(naming.is_below(scope, each) for each in allowed):
            yield Problem(
                "scope",
                f"{scope} isn't within the role's assignableScopes "
                f"({', '.join(allowed)}); assign it there",
            )


def _facts(inputs: Inputs) -> tuple[str, ...]:
    role = (inputs.optional_string("roleDefinitionId") or "").rpartition("/")[2]
    return tuple(
        str(part).lower()
        for part in (
            naming.scope(inputs.optional_string("scope") or ""),
            role,
            inputs.optional_string("principalId"),
            inputs.optional_string("condition"),
        )
    )  # fmt: skip


def _policy_problems(inputs: Inputs) -> Iterator[Problem]:
    yield from _scope("scope", inputs.optional_string("scope"))
    definition = inputs.optional_string("policyDefinitionId")
    if definition and not re.search(
        r"/providers/Microsoft\.Authorization/policy(?:Set)?Definitions/[^/]+$", definition, re.I
    ):
        yield Problem("policyDefinitionId", f"{definition!r} isn't the id of a policy or a set")
    if (
        inputs.is_given("identity")
        and inputs.is_absent("location")
        and not inputs.config.get("location")
    ):
        yield Problem("location", "is missing: an assignment with an identity needs a region")


def _lock_conflicts(resource: Resource) -> Iterator[Problem]:
    scope = resource.optional_string("scope")
    if scope and not resources.exists(resource.world, scope):
        yield Problem("scope", f"{scope} doesn't exist; lock what was made, by its output")


def _created(inputs: Inputs) -> dict[str, Any]:
    del inputs
    return {
        "createdBy": naming.PRINCIPAL,
        "createdOn": MADE_AT,
        "updatedBy": naming.PRINCIPAL,
        "updatedOn": MADE_AT,
    }


def _definition_outputs(inputs: Inputs) -> dict[str, Any]:
    return {"roleType": inputs.optional_string("roleType") or "CustomRole", **_created(inputs)}


def _assignment_outputs(inputs: Inputs) -> dict[str, Any]:
    return {
        "principalType": inputs.optional_string("principalType") or "ServicePrincipal",
        **_created(inputs),
    }


_LOCKS: Final = "Microsoft.Authorization/locks/{lockName}"

_LOCK_RULES: Final = (
    sized("notes", 0, 512, "characters"),
    refused(
        "level",
        "NotSpecified isn't allowed; allowed are CanNotDelete and ReadOnly",
        equals("level", "NotSpecified"),
    ),
)


IDENTITY: Final = "azure-native:managedidentity:UserAssignedIdentity"
FEDERATED: Final = "azure-native:managedidentity:FederatedIdentityCredential"
_SUBJECT: Final = re.compile(r"system:serviceaccount:[a-z0-9-]{1,63}:[a-z0-9.-]{1,253}")


def _outputs(resource: Resource) -> dict[str, Any]:
    id = resource.id
    return {
        "principalId": naming.guid("principal", id),
        "clientId": naming.guid("client", id),
        "tenantId": naming.TENANT,
    }


def _federated_problems(inputs: Inputs) -> Iterator[Problem]:
    subject = inputs.optional_string("subject")
    if subject and subject.startswith("system:") and not _SUBJECT.fullmatch(subject):
        yield Problem(
            "subject",
            f"{subject!r} isn't a service account; it looks like "
            "system:serviceaccount:NAMESPACE:NAME",
        )
    if isinstance(inputs.at("audiences"), list) and len(inputs.items("audiences")) != 1:
        # Source: Entra workload-identity-federation-considerations: one audience.
        yield Problem(
            "audiences",
            f"{len(inputs.items('audiences'))} are given; give one, which for "
            "Azure is api://AzureADTokenExchange",
        )
    for where, text in inputs.strings("audiences"):
        # Entra's own clouds have one each, such as AzureADTokenExchangeUSGov.
        if not text.startswith("api://AzureADTokenExchange"):
            yield Problem(
                where, f"{text!r} isn't Entra's audience; give api://AzureADTokenExchange"
            )


def _federated_conflicts(resource: Resource) -> Iterator[Problem]:
    parent = resource.id.rsplit("/", 2)[0]
    siblings = [
        made
        for made in resource.world.all(FEDERATED)
        if naming.is_below(made.id, parent) and not naming.same(made.id, resource.id)
    ]
    # Source: Entra workload-identity-federation-considerations: 20 at most, pairs are unique.
    if len(siblings) >= 20:
        yield Problem(
            "resourceName",
            "the identity trusts 20 others already, which is the most; use another identity",
        )
    for made in siblings:
        if (made.inputs.get("issuer"), made.inputs.get("subject")) == (
            resource.optional_string("issuer"),
            resource.optional_string("subject"),
        ):
            yield Problem(
                "subject",
                f"the pair of issuer and subject is trusted already, by "
                f"{made.id.rpartition('/')[2]!r}",
            )


KINDS: Final = (
    AzureKind(
        DEFINITION,
        "{scope}/providers/Microsoft.Authorization/roleDefinitions/{roleDefinitionId}",
        name=kinds.GUID,
        autoname="uuid",
        rules=(
            refused(
                "assignableScopes", "is missing: say where the role may be assigned",
                absent("assignableScopes[0]"),
            ),
            required("roleName", "give the role a name that people see"),
            sized("roleName", 0, 512, "characters"),
            sized("description", 0, 2048, "characters"),
            refused(
                "permissions", "is missing: say what the role may do", absent("permissions[0]"),
            ),
            _definition_problems,
        ),
        crosschecks=(_definition_conflicts,),
        delete_blockers=(_definition_blockers,),
        computed=_definition_outputs,
    ),
    AzureKind(
        ASSIGNMENT,
        "{scope}/providers/Microsoft.Authorization/roleAssignments/{roleAssignmentName}",
        name=kinds.GUID,
        autoname="uuid",
        replaces=("principalId", "roleDefinitionId", "principalType"),
        rules=(
            texts("principalId", checks.guid),
            _eligibility_problems,
            one_of("principalType", _PRINCIPALS),
            refused(
                "conditionVersion", "is missing: a condition needs it; set 2.0",
                all_of(given("condition"), absent("conditionVersion")),
            ),
            one_of("conditionVersion", ("2.0",)),
        ),
        crosschecks=(_role_exists, _assignment_conflicts),
        computed=_assignment_outputs,
    ),
    AzureKind(
        "azure-native:authorization:PimRoleEligibilitySchedule",
        "{scope}/providers/Microsoft.Authorization/roleEligibilitySchedules/{unnamed}",
        autoname="uuid",
        replaces=("principalId", "roleDefinitionId"),
        rules=(texts("principalId", checks.guid), _eligibility_problems),
        crosschecks=(_role_exists,),
    ),
    AzureKind(
        "azure-native:authorization:PolicyAssignment",
        "{scope}/providers/Microsoft.Authorization/policyAssignments/{policyAssignmentName}",
        name=kinds.POLICY,
        rules=(
            required("policyDefinitionId", "name the definition that is assigned"),
            sized("displayName", 0, 128, "characters"),
            texts("notScopes[]", _scope),
            _policy_problems,
        ),
    ),
    AzureKind(
        "azure-native:authorization:PolicyDefinition",
        "/subscriptions/{subscriptionId}/providers/Microsoft.Authorization/policyDefinitions/"
        "{policyDefinitionName}",
        name=kinds.POLICY,
        is_held_by_references=True,
    ),
    AzureKind(
        "azure-native:authorization:ManagementLockByScope",
        f"{{scope}}/providers/{_LOCKS}",
        name=kinds.LOCK,
        rules=_LOCK_RULES,
        crosschecks=(_lock_conflicts,),
    ),
    AzureKind(
        "azure-native:authorization:ManagementLockAtResourceGroupLevel",
        _LOCKS,
        name=kinds.LOCK,
        rules=_LOCK_RULES,
    ),
    AzureKind(
        "azure-native:authorization:ManagementLockAtSubscriptionLevel",
        f"/subscriptions/{{subscriptionId}}/providers/{_LOCKS}",
        name=kinds.LOCK,
        rules=_LOCK_RULES,
    ),
    AzureKind(
        "azure-native:authorization:ManagementLockAtResourceLevel",
        "/subscriptions/{subscriptionId}/resourceGroups/{resourceGroupName}/providers/"
        "{resourceProviderNamespace}/{parentResourcePath}/{resourceType}/{resourceName}/providers/"
        + _LOCKS,
        name=kinds.LOCK,
        rules=_LOCK_RULES,
    ),
    AzureKind(
        IDENTITY,
        "Microsoft.ManagedIdentity/userAssignedIdentities/{resourceName}",
        name=kinds.IDENTITY,
        computed=_outputs,
    ),
    AzureKind(
        FEDERATED,
        "Microsoft.ManagedIdentity/userAssignedIdentities/{resourceName}/"
        "federatedIdentityCredentials/{federatedIdentityCredentialResourceName}",
        name=kinds.NameRule(3, 120, kinds.IDENTITY.pattern, kinds.IDENTITY.text),
        rules=(
            formed(
                "issuer", r"https://[^\s/]+(?:/\S*)?",
                "isn't an https address; give the cluster's issuerURL",
            ),
            _federated_problems,
        ),
        crosschecks=(_federated_conflicts,),
    ),
)  # fmt: skip
