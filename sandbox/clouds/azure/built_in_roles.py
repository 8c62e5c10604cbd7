"""Roles that Azure has in every tenant, and ids that are one of them with a digit or two wrong.

Resource Manager refuses an assignment of a role that doesn't exist, and takes any other's. New
roles come every month, and a tenant has roles of its own: an id that resembles none of these is
let through.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

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
