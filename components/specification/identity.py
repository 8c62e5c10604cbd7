"""Arguments of `Identity`."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Annotated, Any, NotRequired, cast

import pulumi

from falaj.components.specification.argument_errors import ArgumentErrors
from falaj.components.specification.arguments import Default
from falaj.components.specification.described import described
from falaj.components.specification.limits import Between, OneOf
from falaj.components.specification.placed import (
    Placed,
    PlacedArgs,
    check_placed,
    checked_principals,
)

PROVISIONER = "provisioner"
TRAINER = "trainer"
DEPLOYER = "deployer"
AUDITOR = "auditor"
KEY_ADMINISTRATOR = "key-administrator"
DUTIES = (PROVISIONER, TRAINER, DEPLOYER, AUDITOR, KEY_ADMINISTRATOR)
SESSION_MINUTES = Between(60, 720)

_OVERSEES = "who checks others' work must not do it"
_KEYS = "who can delete or hand out keys must not hold what they protect"
#: Duties that nobody may hold together, and why. Only provisioner and deployer go together: both
#: put in place what others made and approved.
CONFLICTS: dict[frozenset[str], str] = {
    frozenset((AUDITOR, PROVISIONER)): _OVERSEES,
    frozenset((AUDITOR, TRAINER)): _OVERSEES,
    frozenset((AUDITOR, DEPLOYER)): _OVERSEES,
    frozenset((AUDITOR, KEY_ADMINISTRATOR)): _OVERSEES,
    frozenset((KEY_ADMINISTRATOR, PROVISIONER)): _KEYS,
    frozenset((KEY_ADMINISTRATOR, TRAINER)): _KEYS,
    frozenset((KEY_ADMINISTRATOR, DEPLOYER)): _KEYS,
    frozenset((TRAINER, DEPLOYER)): "a model is released by somebody who did not train it",
    frozenset((TRAINER, PROVISIONER)): "who reads the data must not change the walls around them",
}


@described
class IdentityArgs(PlacedArgs):
    """Arguments of `Identity`."""

    members: NotRequired[dict[Annotated[str, OneOf(DUTIES)], list[str]]]
    """Who has which duty: principals (role or user ARNs; object ids of Entra groups) by
    ``provisioner``, ``trainer``, ``deployer``, ``auditor``, ``key-administrator``. Default:
    nobody; nobody may hold two duties that conflict."""
    bucket_ids: pulumi.Input[dict[str, str]]
    """``ObjectStore.bucket_ids``: what trainers, deployers and auditors may read or write."""
    repository_ids: pulumi.Input[dict[str, str]]
    """``Registry.repository_ids``."""
    key_ids: pulumi.Input[dict[str, str]]
    """``KeyRing.key_ids``."""
    key_ring_id: NotRequired[pulumi.Input[str]]
    """``KeyRing.key_ring_id``: what key administrators manage. Needed on Azure; on AWS ``key_ids``
    say it."""
    require_mfa: NotRequired[Annotated[bool, Default(value=True)]]
    """Whether people need a second factor. On AWS it is asked of users; roles are
    used by federated people and by machines, and their second factor is the matter of whoever
    signs them in. On Azure people are eligible and take a duty up with a second factor; machines
    can't, and need an `Identity` of their own without it."""
    session_minutes: NotRequired[Annotated[int, SESSION_MINUTES, Default(60)]]
    """How many minutes a session lasts. AWS only: on Azure the tenant's settings
    of Privileged Identity Management say it."""


@dataclass(frozen=True, kw_only=True)
class IdentitySpec:
    """The plain arguments of `Identity`, checked."""

    placed: Placed
    members: dict[str, tuple[str, ...]]
    """Every duty, also those that nobody has."""
    require_mfa: bool
    session_minutes: int
    """AWS only."""


def check(cloud: str, name: str, args: IdentityArgs) -> IdentitySpec:
    """Check what is plain in the arguments of `Identity`.

    Args:
        cloud: ``aws`` or ``azure``.
        name: the component's name.
        args: its arguments.

    Raises:
        pulumi.InputPropertiesError: with every argument that was refused, and why.
    """
    errors = ArgumentErrors(f"Identity {name!r}")
    given: Mapping[str, Any] = args
    checked = errors.checked(given, IdentityArgs, cloud)
    placed = check_placed(cloud, given, errors)
    members = _members(cloud, {} if checked["members"] is None else checked["members"], errors)
    minutes: int = checked["session_minutes"]
    if cloud == "azure":
        errors.needed(given, ("key_ring_id",), "on Azure")
        if given.get("session_minutes") is not None:
            errors.say(
                "session_minutes",
                f"given {minutes}; on Azure the tenant's settings of Privileged Identity "
                "Management say how long a duty is taken up for: leave it out",
            )
    errors.raise_if_any()
    if placed is None:
        raise AssertionError("what can't be used was refused")
    return IdentitySpec(
        placed=placed,
        members=members,
        require_mfa=checked["require_mfa"],
        session_minutes=minutes,
    )


def conflict(duties: tuple[str, ...]) -> tuple[str, str, str] | None:
    """The first two of ``duties`` that nobody may hold together, and why; None without any."""
    for one, other in combinations(duties, 2):
        reason = CONFLICTS.get(frozenset((one, other)))
        if reason:
            return one, other, reason
    return None


def _members(cloud: str, value: object, errors: ArgumentErrors) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = dict.fromkeys(DUTIES, ())
    if not isinstance(value, Mapping):
        errors.add("members", value, f"lists of principals by duty: {', '.join(DUTIES)}")
        return found
    for duty, principals in cast("Mapping[str, object]", value).items():
        if duty not in DUTIES:
            errors.add("members", duty, ", ".join(DUTIES))
            continue
        found[duty] = checked_principals(cloud, f"members.{duty}", principals, errors)
    held: dict[str, tuple[str, ...]] = {}
    for duty, principals in found.items():
        for principal in principals:
            held[principal] = (*held.get(principal, ()), duty)
    for principal, duties in held.items():
        clash = conflict(duties)
        if clash:
            one, other, reason = clash
            errors.say(
                f"members.{other}",
                f"{principal} is {one} and {other}: {reason}; give one of the duties to "
                "somebody else",
            )
    return found
