"""The duty `provisioner` may do what the stacks take that are made on a foundation.

Judged by what AWS's own schemas of its types say that each needs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, Final

from falaj.sandbox.inprocess import SandboxMocks
from tests.stacks.in_mocks import declare, shipped

_TABLE: Final[Mapping[str, Any]] = json.loads(
    (Path(__file__).parent / "actions_of_types.json").read_text("utf-8")
)["types"]
#: What the schemas name and the provisioner goes without, and why.
WITHOUT: Final = {
    "cognito-idp:": "callers aren't signed in by the balancer",
    "firehose:": "no log group is delivered by Firehose",
    "lambda:": "no function is scaled",
    "managed-fleets:": "no group is of AWS's managed fleets",
    "s3:REST": "it is no action of IAM's",
    "vpc-lattice:": "no group is in a lattice",
    "iam:DeleteRolePermissionsBoundary": "roles keep their boundary (KeepItOnRoles)",
    "kms:DisableKey": "keys stay on until they are deleted",
    "kms:EnableKey": "none is off",
    "kms:PutKeyPolicy": "a key of sessions gets its policy as it is made; later a key "
    "administrator's",
    "secretsmanager:GetRandomPassword": "no secret is made up",
    "secretsmanager:GetSecretValue": "it reads no secret",
    "secretsmanager:RemoveRegionsFromReplication": "secrets stay in their region",
    "secretsmanager:ReplicateSecretToRegions": "secrets stay in their region",
    "secretsmanager:UpdateSecret": "it would fill the secret",
    "ssm:Get*": "parameters are read (ssm:GetParameter*), nothing else of the service's",
}
_SESSIONS: Final = {"mode": "instances", "sessionManager": True, "privateAuthority": True}


@cache
def foundation() -> SandboxMocks:
    return declare(shipped("aws-foundation"), "s")


@cache
def tier(**settings: Any) -> SandboxMocks:
    """A tier with all that it stands on. Default: on machines with sessions and an authority."""
    served = {"model": "digits", "vcpu": 2, **(settings or _SESSIONS)}
    return declare({**shipped("aws-smb"), "falaj:inference": served}, "s")


def resources(made: SandboxMocks) -> set[tuple[str, str]]:
    # A repository of a tier's own foundation is in its registry; elsewhere in that stack's.
    return {
        (each.type, each.name)
        for each in made.resources
        if each.type.startswith("aws:") and not each.type.startswith("aws:ecr/")
    }


@cache
def rendered() -> dict[str, list[str]]:
    """Types of what stands on a foundation, each with the names of some."""
    own = resources(foundation())
    found: dict[str, list[str]] = {}
    for made in (declare(shipped("aws-cluster"), "s"), tier(), tier(mode="serverless")):
        for kind, name in sorted(resources(made) - own):
            found.setdefault(kind, []).append(name)
    return found


@cache
def statements() -> dict[str, dict[str, Any]]:
    """What the provisioner may, by the statements' names."""
    (policy,) = [
        each.inputs["policy"]
        for each in foundation().resources
        if each.type == "aws:iam/rolePolicy:RolePolicy" and each.name == "identity-provisioner"
    ]
    return {each["Sid"]: each for each in json.loads(policy)["Statement"]}


def allowed(action: str) -> bool:
    return any(
        fnmatchcase(action.lower(), pattern.lower())
        for each in statements().values()
        if each["Effect"] == "Allow"
        for pattern in each["Action"]
    )


def refused() -> Iterator[tuple[str, str]]:
    """Actions that types need and the provisioner hasn't."""
    for kind in rendered():
        for action in _TABLE[kind]["actions"]:
            if not allowed(action):
                yield kind, action


def excused(action: str) -> str | None:
    """The entry of `WITHOUT` that says why the provisioner goes without an action."""
    if action in WITHOUT:
        return action
    service = action.partition(":")[0] + ":"
    return service if service in WITHOUT else ("s3:REST" if action.startswith("s3:REST") else None)


def test_every_type_is_in_the_table() -> None:
    assert set(rendered()) == set(_TABLE)


def test_it_may_make_change_and_delete_what_stands_on_a_foundation() -> None:
    assert [each for each in refused() if excused(each[1]) is None] == []


def test_what_it_goes_without_is_needed_by_a_type() -> None:
    assert {excused(action) for _, action in refused()} >= set(WITHOUT)


def test_it_makes_keys_for_sessions_alone_and_touches_no_other() -> None:
    may = statements()
    sessions = {"aws:RequestTag/falaj:purpose": "sessions"}
    assert may["MakeKeysOfSessions"]["Condition"] == {"StringEquals": sessions}
    # A tag is given to a key that has no purpose yet: none of a ring becomes one of sessions.
    assert may["TagKeysOfSessions"]["Condition"] == {
        "StringEquals": sessions,
        "Null": {"aws:ResourceTag/falaj:purpose": "true"},
    }
    assert may["KeysOfSessions"]["Condition"] == {
        "StringEquals": {"aws:ResourceTag/falaj:purpose": "sessions"},
        # None that it made gets another purpose.
        "StringEqualsIfExists": sessions,
    }
    whole = {action for each in may.values() for action in each["Action"]}
    assert not whole & {"kms:*", "kms:PutKeyPolicy", "kms:DisableKey"}
    tenant = shipped("aws-foundation")["falaj:tenant"]
    (document,) = may["DocumentsOfSessions"]["Resource"]
    assert document.endswith(f":document/{tenant}-*")


def test_a_tiers_key_and_document_are_what_it_may_make() -> None:
    made = {each.type: each for each in tier().resources if each.name.endswith("-session")}
    assert made["aws:kms/key:Key"].inputs["tags"]["falaj:purpose"] == "sessions"
    tenant = shipped("aws-smb")["falaj:tenant"]
    assert made["aws:ssm/document:Document"].inputs["name"].startswith(f"{tenant}-")
