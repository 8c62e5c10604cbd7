"""Microsoft.Authorization: roles, their assignments, policies and locks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from falaj.sandbox.clouds.azure import arm, checks, invented, known, naming
from falaj.sandbox.clouds.azure.ask import Ask
from falaj.sandbox.clouds.azure.kind import Kind
from falaj.sandbox.clouds.model import Problem

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


def _definition_problems(ask: Ask) -> Iterator[Problem]:
    yield from _scope("scope", ask.text("scope"))
    if ask.is_absent("assignableScopes[0]"):
        yield Problem("assignableScopes", "is missing: say where the role may be assigned")
    for path, text in ask.texts("assignableScopes"):
        yield from _scope(path, text)
        if text == "/":
            yield Problem(path, "'/' is for built-in roles; name a subscription or a group")
    yield from checks.needs(ask, "roleName", "give the role a name that people see")
    name = ask.text("roleName")
    if name and len(name) > 512:
        yield Problem("roleName", f"has {len(name)} characters; at most 512 are allowed")
    description = ask.text("description")
    if description and len(description) > 2048:
        yield Problem(
            "description", f"has {len(description)} characters; at most 2048 are allowed"
        )
    if ask.is_absent("permissions[0]"):
        yield Problem("permissions", "is missing: say what the role may do")
    for path, _ in ask.items("permissions"):
        for kind in ("actions", "notActions", "dataActions", "notDataActions"):
            for where, text in ask.texts(f"{path}.{kind}"):
                if not _ACTION.fullmatch(text):
                    yield Problem(
                        where,
                        f"{text!r} isn't an action such as Microsoft.Storage/storageAccounts/read",
                    )
        if ask.is_absent(f"{path}.actions[0]") and ask.is_absent(f"{path}.dataActions[0]"):
            yield Problem(path, "allows nothing: give actions or dataActions")
        if ask.items(f"{path}.dataActions") and any(
            "managementgroups" in text.lower() for _, text in ask.texts("assignableScopes")
        ):
            # Source: role-based-access-control/custom-roles (limits).
            yield Problem(f"{path}.dataActions", "don't go with a management group as the scope")


def _definition_conflicts(ask: Ask) -> Iterator[Problem]:
    name = ask.text("roleName")
    for made in ask.world.all(DEFINITION) if ask.world and name else ():
        taken = made.inputs.get("roleName")
        is_same = isinstance(taken, str) and taken.lower() == (name or "").lower()
        if is_same and not arm.same(made.id, ask.id or ""):
            yield Problem(
                "roleName",
                f"{name!r} is the name of another role; names are unique in the tenant",
            )


def _definition_obstacles(ask: Ask) -> Iterator[Problem]:
    own = (ask.id or "").rpartition("/")[2].lower()
    for made in ask.world.all(ASSIGNMENT) if ask.world else ():
        role = made.inputs.get("roleDefinitionId")
        if isinstance(role, str) and role.rpartition("/")[2].lower() == own:
            yield Problem("", f"{made.id} assigns the role; delete that first")


def _eligibility_problems(ask: Ask) -> Iterator[Problem]:
    """Problems of who gets which role where."""
    yield from _scope("scope", ask.text("scope"))
    yield from checks.guid("principalId", ask.text("principalId"))
    role = ask.text("roleDefinitionId")
    if role is not None:
        guid = role.rpartition("/")[2]
        if "/roledefinitions/" not in role.lower() or not checks.GUID.fullmatch(guid):
            yield Problem(
                "roleDefinitionId",
                f"{role!r} isn't the id of a role; it ends in "
                "/providers/Microsoft.Authorization/roleDefinitions/GUID",
            )


def _assignment_problems(ask: Ask) -> Iterator[Problem]:
    yield from _eligibility_problems(ask)
    yield from checks.one_of("principalType", ask.text("principalType"), _PRINCIPALS)
    if ask.is_given("condition") and ask.is_absent("conditionVersion"):
        yield Problem("conditionVersion", "is missing: a condition needs it; set 2.0")
    yield from checks.one_of("conditionVersion", ask.text("conditionVersion"), ("2.0",))


def _assignment_conflicts(ask: Ask) -> Iterator[Problem]:
    if ask.world is None or ask.id is None:
        return
    wanted = _facts(ask)
    for made in ask.world.all(ASSIGNMENT):
        if not arm.same(made.id, ask.id) and wanted == _facts(Ask(ASSIGNMENT, made.inputs, {})):
            yield Problem(
                "",
                f"{made.id} assigns the same role to the same principal at the same "
                "scope already; leave one of them out",
            )
    role = (ask.text("roleDefinitionId") or "").rpartition("/")[2].lower()
    custom = next(
        (made for made in ask.world.all(DEFINITION) if made.id.lower().endswith(f"/{role}")), None
    )
    scope = ask.text("scope")
    if custom and scope:
        allowed = [
            text for _, text in Ask(DEFINITION, custom.inputs, {}).texts("assignableScopes")
        ]
        if allowed and not any(arm.is_below(scope, each) for each in allowed):
            yield Problem(
                "scope",
                f"{scope} isn't within the role's assignableScopes "
                f"({', '.join(allowed)}); assign it there",
            )


def _facts(ask: Ask) -> tuple[str, ...]:
    role = (ask.text("roleDefinitionId") or "").rpartition("/")[2]
    return tuple(
        str(part).lower()
        for part in (
            arm.scope(ask.text("scope") or ""),
            role,
            ask.text("principalId"),
            ask.text("condition"),
        )
    )  # fmt: skip


def _policy_problems(ask: Ask) -> Iterator[Problem]:
    yield from _scope("scope", ask.text("scope"))
    yield from checks.needs(ask, "policyDefinitionId", "name the definition that is assigned")
    definition = ask.text("policyDefinitionId")
    if definition and not re.search(
        r"/providers/Microsoft\.Authorization/policy(?:Set)?Definitions/[^/]+$", definition, re.I
    ):
        yield Problem("policyDefinitionId", f"{definition!r} isn't the id of a policy or a set")
    name = ask.text("displayName")
    if name and len(name) > 128:
        yield Problem("displayName", f"has {len(name)} characters; at most 128 are allowed")
    for path, text in ask.texts("notScopes"):
        yield from _scope(path, text)
    if ask.is_given("identity") and ask.is_absent("location") and not ask.config.get("location"):
        yield Problem("location", "is missing: an assignment with an identity needs a region")


def _lock_problems(ask: Ask) -> Iterator[Problem]:
    notes = ask.text("notes")
    if notes and len(notes) > 512:
        yield Problem("notes", f"has {len(notes)} characters; at most 512 are allowed")
    if ask.text("level") == "NotSpecified":
        yield Problem("level", "NotSpecified isn't allowed; allowed are CanNotDelete and ReadOnly")


def _lock_conflicts(ask: Ask) -> Iterator[Problem]:
    scope = ask.text("scope")
    if ask.world and scope and not known.exists(ask.world, scope):
        yield Problem("scope", f"{scope} doesn't exist; lock what was made, by its output")


def _created(ask: Ask) -> dict[str, Any]:
    del ask
    return {
        "createdBy": invented.PRINCIPAL,
        "createdOn": invented.MOMENT,
        "updatedBy": invented.PRINCIPAL,
        "updatedOn": invented.MOMENT,
    }


def _definition_outputs(ask: Ask) -> dict[str, Any]:
    return {"roleType": ask.text("roleType") or "CustomRole", **_created(ask)}


def _assignment_outputs(ask: Ask) -> dict[str, Any]:
    return {"principalType": ask.text("principalType") or "ServicePrincipal", **_created(ask)}


_LOCKS: Final = "Microsoft.Authorization/locks/{lockName}"

KINDS: Final = (
    Kind(
        DEFINITION,
        "{scope}/providers/Microsoft.Authorization/roleDefinitions/{roleDefinitionId}",
        name=naming.GUID,
        autoname="uuid",
        problems=_definition_problems,
        conflicts=_definition_conflicts,
        obstacles=_definition_obstacles,
        outputs=_definition_outputs,
    ),
    Kind(
        ASSIGNMENT,
        "{scope}/providers/Microsoft.Authorization/roleAssignments/{roleAssignmentName}",
        name=naming.GUID,
        autoname="uuid",
        replaces=frozenset({"principalId", "roleDefinitionId", "principalType"}),
        problems=_assignment_problems,
        conflicts=_assignment_conflicts,
        outputs=_assignment_outputs,
    ),
    Kind(
        "azure-native:authorization:PimRoleEligibilitySchedule",
        "{scope}/providers/Microsoft.Authorization/roleEligibilitySchedules/{unnamed}",
        autoname="uuid",
        replaces=frozenset({"principalId", "roleDefinitionId"}),
        problems=_eligibility_problems,
    ),
    Kind(
        "azure-native:authorization:PolicyAssignment",
        "{scope}/providers/Microsoft.Authorization/policyAssignments/{policyAssignmentName}",
        name=naming.POLICY,
        problems=_policy_problems,
    ),
    Kind(
        "azure-native:authorization:PolicyDefinition",
        "/subscriptions/{subscriptionId}/providers/Microsoft.Authorization/policyDefinitions/"
        "{policyDefinitionName}",
        name=naming.POLICY,
        is_held_by_references=True,
    ),
    Kind(
        "azure-native:authorization:ManagementLockByScope",
        f"{{scope}}/providers/{_LOCKS}",
        name=naming.LOCK,
        problems=_lock_problems,
        conflicts=_lock_conflicts,
    ),
    Kind(
        "azure-native:authorization:ManagementLockAtResourceGroupLevel",
        _LOCKS,
        name=naming.LOCK,
        problems=_lock_problems,
    ),
    Kind(
        "azure-native:authorization:ManagementLockAtSubscriptionLevel",
        f"/subscriptions/{{subscriptionId}}/providers/{_LOCKS}",
        name=naming.LOCK,
        problems=_lock_problems,
    ),
    Kind(
        "azure-native:authorization:ManagementLockAtResourceLevel",
        "/subscriptions/{subscriptionId}/resourceGroups/{resourceGroupName}/providers/"
        "{resourceProviderNamespace}/{parentResourcePath}/{resourceType}/{resourceName}/providers/"
        + _LOCKS,
        name=naming.LOCK,
        problems=_lock_problems,
    ),
)
