"""Azure's roles: which of them grant roles, manage keys or use data."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from falaj.policies.model import Resource, Stack, View, is_unknown, select, text
from falaj.policies.reading.remembered import remembered
from falaj.policies.reading.types import azure

DEFINITION: Final = azure("authorization:RoleDefinition")
ASSIGNMENT: Final = azure("authorization:RoleAssignment")

#: Ids of built-in roles: https://learn.microsoft.com/azure/role-based-access-control/
#: built-in-roles
OWNER: Final = "8e3af657-a8ff-443c-a75c-2fe8c4bcb635"
CONTRIBUTOR: Final = "b24988ac-6180-42a0-ab88-20f7382dd24c"
USER_ACCESS_ADMINISTRATOR: Final = "18d7d88d-d35e-4fb5-a5c3-7773c20a72d9"
ROLE_ADMINISTRATOR: Final = "f58310d9-a9f6-439a-9e8d-f62e7b41a168"
BROAD: Final = {
    OWNER: "Owner",
    CONTRIBUTOR: "Contributor",
    USER_ACCESS_ADMINISTRATOR: "User Access Administrator",
    ROLE_ADMINISTRATOR: "Role Based Access Control Administrator",
}
GRANTS: Final = "grants roles"
MANAGES_KEYS: Final = "manages keys"
USES_DATA: Final = "uses keys or data"
_DUTIES: Final = {
    OWNER: GRANTS,
    USER_ACCESS_ADMINISTRATOR: GRANTS,
    ROLE_ADMINISTRATOR: GRANTS,
    "00482a5a-887f-4fb3-b363-3b7fe8e74483": MANAGES_KEYS,  # Key Vault Administrator
    "14b46e9e-c2b7-4b4b-b07b-48a6ebf60603": MANAGES_KEYS,  # Key Vault Crypto Officer
    "12338af0-0e69-4776-bea7-57ae8d297424": USES_DATA,  # Key Vault Crypto User
    "e147488a-f6f5-4113-8e2d-b22465e65bf6": USES_DATA,  # … Crypto Service Encryption User
    "4633458b-17de-408a-b874-0445c86b69e6": USES_DATA,  # Key Vault Secrets User
    "b7e6dc6d-f1e8-4753-8033-0f276bb0955b": USES_DATA,  # Storage Blob Data Owner
    "ba92f5b4-2d11-453d-a403-e96b0029c9fe": USES_DATA,  # Storage Blob Data Contributor
    "2a2b9908-6ea1-4ae2-8e65-a410df84e7d1": USES_DATA,  # Storage Blob Data Reader
}
_OF_ACTIONS: Final = (
    (re.compile(r"microsoft\.authorization/roleassignments/(write|\*)"), GRANTS),
    (re.compile(r"microsoft\.keyvault/vaults/keys/(create|import|delete|update|rotate)(/.*)?"),
     MANAGES_KEYS),
    (re.compile(r"microsoft\.keyvault/vaults/(keys/(decrypt|unwrap|sign)|secrets/getsecret).*"),
     USES_DATA),
    (re.compile(r"microsoft\.storage/storageaccounts/blobservices/containers/blobs/.*"),
     USES_DATA),
)  # fmt: skip


def role_of(assignment: Resource) -> str:
    """The id of the role that is assigned, in small letters; empty where it can't be seen."""
    return text(assignment.get("roleDefinitionId")).rstrip("/").rpartition("/")[2].lower()


def definitions(assignment: Resource, view: View) -> list[Resource]:
    """The role's definition where the stack makes it."""
    found = [
        each for each in view.referred(assignment, "roleDefinitionId") if each.kind in DEFINITION
    ]
    if found or view.stack is None:
        return found
    return _by_id(view.stack).get(role_of(assignment), [])


@remembered(2)
def _by_id(stack: Stack) -> dict[str, list[Resource]]:
    found: dict[str, list[Resource]] = {}
    for each in stack.of_kind(*sorted(DEFINITION)):
        if role := text(each.get("roleDefinitionId")).lower():
            found.setdefault(role, []).append(each)
    return found


#: Who holds a role: an id, or the resources that it will be made from.
Principal = str | frozenset[str]


def principal(assignment: Resource, stack: Stack) -> Principal:
    """Who holds the role, as far as that can be told; empty where it can't."""
    given = text(assignment.get("principalId")).lower()
    return given or frozenset(each.urn for each in stack.referred(assignment, "principalId"))


@remembered(2)
def by_principal(stack: Stack) -> dict[Principal, list[Resource]]:
    """A stack's assignments by who holds the role."""
    found: dict[Principal, list[Resource]] = {}
    for each in stack.of_kind(*sorted(ASSIGNMENT)):
        found.setdefault(principal(each, stack), []).append(each)
    return found


def duties(assignment: Resource, view: View) -> set[str]:
    """What the role lets its holder do, of what conflicts."""
    if built_in := _DUTIES.get(role_of(assignment)):
        return {built_in}
    found: set[str] = set()
    for each in definitions(assignment, view):
        found |= set(_of_definition(each))
    return found


def _of_definition(definition: Resource) -> Iterator[str]:
    for _, action in actions(definition):
        for pattern, duty in _OF_ACTIONS:
            if pattern.fullmatch(text(action).lower()):
                yield duty


def actions(definition: Resource) -> Iterator[tuple[str, Any]]:
    """Everything that a role allows, with its path; what can't be seen included."""
    for key in ("actions", "dataActions"):
        yield from select(definition.properties, f"permissions.{key}")


_WHOLE: Final = re.compile(
    r"/?|/?subscriptions/[^/]+|/?providers/microsoft\.management/managementgroups/[^/]+"
)


def is_whole(scope: Any) -> bool:
    """Whether a scope is a whole subscription, or more of the tenant."""
    said = text(scope).lower().rstrip("/")
    return not is_unknown(scope) and isinstance(scope, str) and _WHOLE.fullmatch(said) is not None
