"""Roles and their actions: ids that are a built-in role's but for a slip, and actions of nothing.

Resource Manager refuses an assignment of a role that doesn't exist, and takes any other's. It
takes a role with an action that nothing answers to (a provider or type misspelt, a verb that there
isn't), which then allows nothing. New roles and types come every week, and a tenant has roles of
its own: what resembles nothing that is known here is let through.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Final

from falaj.components.nearest import nearest
from falaj.sandbox.clouds.azure import checks, kinds

#: Digits that a slip changes: two that changed places are two.
_WRONG = 2


@cache
def _roles() -> Mapping[str, str]:
    """Names by id, in small letters."""
    found: Mapping[str, str] = kinds.load_table("built_in_roles")["roles"]
    return found


def meant(role: str) -> tuple[str, str] | None:
    """Id and name of the built-in role that a GUID is, but for a slip.

    None where it is one itself, where it resembles none, and where it resembles several: some
    roles are numbered one after the other. Nor is it one where it is no GUID, or isn't known yet.
    """
    own = role.lower()
    if own in _roles() or not checks.GUID.fullmatch(own):
        return None
    alike = [
        each
        for each in _roles()
        if sum(one != other for one, other in zip(own, each, strict=True)) <= _WRONG
    ]
    return (alike[0], _roles()[alike[0]]) if len(alike) == 1 else None


#: learn.microsoft.com/azure/role-based-access-control/role-definitions (actions format).
VERBS: Final = ("read", "write", "delete", "action", "*")
#: Parts of data below a resource: what is done to them stands among dataActions
#: (role-based-access-control/permissions, November 2026).
_DATA: Final = (
    "/blobservices/containers/blobs/",
    "/queueservices/queues/messages/",
    "/fileservices/fileshares/files/",
    "/tableservices/tables/entities/",
)
_MOST_ALIKE: Final = 0.92
"""A type in the singular is meant to be the one in the plural; other likenesses are chance."""
_ALIKE: Final = 0.85
_MICROSOFT: Final = "microsoft."


@cache
def _types() -> Mapping[str, Mapping[str, str]]:
    """Types that the model has, by provider, both in lower case; with their spelling."""
    found: dict[str, dict[str, str]] = {}
    for kind in kinds.all_kinds():
        provider, _, below = kind.arm_type.partition("/")
        if below:
            own = found.setdefault(provider.lower(), {"": provider})
            own[below.partition("/")[0].lower()] = below.partition("/")[0]
    return found


def unknown_action(action: str, *, is_data: bool) -> str:
    """Why the action allows nothing; empty when it may allow something."""
    provider, _, rest = action.partition("/")
    verb = rest.rpartition("/")[2]
    if verb and verb.lower() not in VERBS and "*" not in verb:
        return f"ends with no verb; allowed: {', '.join(VERBS)}"
    if not is_data and any(part in action.lower() for part in _DATA):
        return "is done to data; put it among dataActions"
    return "" if "*" in provider else _unknown_type(provider, rest.partition("/")[0])


def _unknown_type(provider: str, name: str) -> str:
    """Why there is no such provider, or no such type of it."""
    types = _types().get(provider.lower())
    if types is None:
        # What most names begin with says nothing of how alike they are.
        names = {name.removeprefix(_MICROSOFT): own[""] for name, own in _types().items()}
        near = nearest(provider.lower().removeprefix(_MICROSOFT), names, alike=_ALIKE)
        return f"is of no provider; did you mean {names[near[0]]}?" if near else ""
    if "*" in name or name.lower() in types:
        return ""
    near = nearest(name.lower(), types, alike=_MOST_ALIKE)
    return f"is of no type; did you mean {types['']}/{types[near[0]]}?" if near else ""
