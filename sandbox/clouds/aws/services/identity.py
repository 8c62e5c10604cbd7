"""IAM: roles, policies, groups, federated identity."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from falaj.sandbox.clouds.aws import tokens as t
from falaj.sandbox.clouds.aws.arns import partition
from falaj.sandbox.clouds.aws.documents import IDENTITY, TRUST, policy
from falaj.sandbox.clouds.aws.hashes import letters
from falaj.sandbox.clouds.aws.kinds import AutoName, AwsKind, AwsKinds
from falaj.sandbox.clouds.inputs import Inputs, Resource
from falaj.sandbox.clouds.kinds import Reference, Rule
from falaj.sandbox.clouds.model import Problem
from falaj.sandbox.clouds.rules import between, forbids, matches, not_together, sized

# Sizes: "IAM and AWS STS quotas", IAM user guide. The trust policy may have 2,048 characters, and
# 4,096 when the quota was raised; the sandbox takes the larger one, as it can't know.
_MANAGED: Final = 6144
_TRUST: Final = 4096
_INLINE_ROLE: Final = 10240
_INLINE_GROUP: Final = 5120
_INLINE_USER: Final = 2048

_MADE: Final = "2026-01-01T00:00:00Z"
"""The time at which everything global was made: outputs must be the same in each run."""


def _name(path: str, longest: int) -> Rule:
    return matches(
        path, rf"[\w+=,.@-]{{1,{longest}}}", f"1 to {longest} letters, digits and _+=,.@-"
    )


def _path(path: str) -> Rule:
    return matches(path, r"/|/[!-~]{1,510}/", "'/' or a text that begins and ends with '/'")


def _role(resource: Resource) -> Mapping[str, Any]:
    return {"createDate": _MADE, "uniqueId": "AROA" + letters(17, "role", resource.id)}


def _policy(resource: Resource) -> Mapping[str, Any]:
    return {"policyId": "ANPA" + letters(17, "policy", resource.id), "attachmentCount": 0}


def _managed_policy_arn(path: str) -> Rule:
    return matches(
        path, r"arn:aws[a-z-]*:iam::(\d{12}|aws):policy/[\w+=,.@/-]{1,640}", "the ARN of a policy"
    )


def _provider(inputs: Inputs) -> Iterator[Problem]:
    url = inputs.string("url")
    if url and not url.startswith("https://"):
        yield Problem("url", f"{url!r} isn't allowed; it has to begin with https://")


def _still_attached(resource: Resource) -> Iterator[Problem]:
    """A role takes a limited number of managed policies."""
    role = resource.string("role")
    others = (
        [made for made in resource.world.find(_ATTACHMENT, role=role) if made.id != resource.id]
        if role
        else []
    )
    # "IAM and AWS STS quotas": 20 at most (10 by default, adjustable up to 25 in newer accounts).
    if len(others) >= 25:
        yield Problem(
            "role", f"{role!r} has {len(others)} managed policies; at most 25 are allowed"
        )
    for made in others:
        if made.outputs.get("policyArn") == resource.get("policyArn"):
            yield Problem(
                "policyArn", f"is attached to {role!r} already ({made.urn}); attach it once"
            )


_ATTACHMENT: Final = "aws:iam/rolePolicyAttachment:RolePolicyAttachment"
_ROLE: Final = Reference("role", (t.ROLE,), by=("name", "id", "arn"), regional=False)
_BOUNDARY: Final = Reference("permissionsBoundary", (t.POLICY,), by=("arn",), regional=False)

KINDS: Final[AwsKinds] = {
    t.ROLE: AwsKind(
        id="{name}",
        arn="iam::{account}:role{path}{name}",
        name=AutoName(longest=64),
        replaces=("name", "namePrefix", "path"),
        rules=(
            _name("name", 64),
            sized("namePrefix", 1, 38, "characters"),
            _path("path"),
            sized("description", 0, 1000, "characters"),
            policy("assumeRolePolicy", TRUST, longest=_TRUST),
            policy("inlinePolicies[].policy", IDENTITY, longest=_INLINE_ROLE),
            between("maxSessionDuration", 3600, 43200, "seconds"),
            _managed_policy_arn("permissionsBoundary"),
            _managed_policy_arn("managedPolicyArns[]"),
            not_together("name", "namePrefix"),
        ),
        references=(
            _BOUNDARY,
            Reference("managedPolicyArns[]", (t.POLICY,), by=("arn",), regional=False),
        ),
        unique=("name",),
        everywhere=True,
        computed=_role,
        defaults={"path": "/", "maxSessionDuration": 3600, "forceDetachPolicies": False,
                  "description": ""},
    ),
    t.POLICY: AwsKind(
        id="arn:{partition}:iam::{account}:policy{path}{name}",
        arn="*",
        name=AutoName(longest=128),
        replaces=("name", "namePrefix", "path", "description"),
        rules=(
            _name("name", 128), _path("path"), policy("policy", IDENTITY, longest=_MANAGED),
            sized("description", 0, 1000, "characters"),
        ),
        unique=("name", "path"),
        everywhere=True,
        computed=_policy,
        defaults={"path": "/"},
    ),
    "aws:iam/rolePolicy:RolePolicy": AwsKind(
        id="{role}:{name}",
        name=AutoName(longest=128),
        replaces=("name", "namePrefix", "role"),
        rules=(_name("name", 128), policy("policy", IDENTITY, longest=_INLINE_ROLE)),
        references=(_ROLE,),
        unique=("role", "name"),
        everywhere=True,
    ),
    _ATTACHMENT: AwsKind(
        id="{role}/{policyArn}",
        replaces=("role", "policyArn"),
        rules=(_managed_policy_arn("policyArn"),),
        references=(_ROLE, Reference("policyArn", (t.POLICY,), by=("arn",), regional=False)),
        crosschecks=(_still_attached,),
    ),
    t.INSTANCE_PROFILE: AwsKind(
        id="{name}",
        arn="iam::{account}:instance-profile{path}{name}",
        name=AutoName(longest=128),
        replaces=("name", "namePrefix", "path"),
        rules=(_name("name", 128), _path("path")),
        references=(_ROLE,),
        unique=("name",),
        everywhere=True,
        computed=lambda resource: {
            "createDate": _MADE, "uniqueId": "AIPA" + letters(17, "profile", resource.id)
        },
        defaults={"path": "/"},
    ),
    t.OIDC_PROVIDER: AwsKind(
        id=lambda inputs: (
            f"arn:{partition(inputs)}:iam::000000000000:oidc-provider/"
            + inputs.string("url").removeprefix("https://")
        ),
        arn="*",
        replaces=("url",),
        rules=(
            _provider,
            sized("clientIdLists", 1, 100),
            matches("thumbprintLists[]", r"[0-9a-fA-F]{40}", "40 hexadecimal digits"),
        ),
        unique=("url",),
        everywhere=True,
    ),
    t.GROUP: AwsKind(
        id="{name}",
        arn="iam::{account}:group{path}{name}",
        name=AutoName(longest=128),
        rules=(_name("name", 128), _path("path")),
        unique=("name",),
        everywhere=True,
        computed=lambda resource: {"uniqueId": "AGPA" + letters(17, "group", resource.id)},
        defaults={"path": "/"},
    ),
    "aws:iam/groupPolicy:GroupPolicy": AwsKind(
        id="{group}:{name}",
        name=AutoName(longest=128),
        replaces=("group", "name", "namePrefix"),
        rules=(_name("name", 128), policy("policy", IDENTITY, longest=_INLINE_GROUP)),
        references=(Reference("group", (t.GROUP,), by=("name",), regional=False),),
    ),
    "aws:iam/groupPolicyAttachment:GroupPolicyAttachment": AwsKind(
        id="{group}/{policyArn}",
        replaces=("group", "policyArn"),
        rules=(_managed_policy_arn("policyArn"),),
        references=(
            Reference("group", (t.GROUP,), by=("name",), regional=False),
            Reference("policyArn", (t.POLICY,), by=("arn",), regional=False),
        ),
    ),
    t.USER: AwsKind(
        id="{name}",
        arn="iam::{account}:user{path}{name}",
        name=AutoName(longest=64),
        rules=(_name("name", 64), _path("path"), _managed_policy_arn("permissionsBoundary")),
        references=(_BOUNDARY,),
        unique=("name",),
        everywhere=True,
        computed=lambda resource: {"uniqueId": "AIDA" + letters(17, "user", resource.id)},
        defaults={"path": "/"},
    ),
    "aws:iam/userPolicy:UserPolicy": AwsKind(
        id="{user}:{name}",
        name=AutoName(longest=128),
        replaces=("name", "namePrefix", "user"),
        rules=(_name("name", 128), policy("policy", IDENTITY, longest=_INLINE_USER)),
        references=(Reference("user", (t.USER,), by=("name",), regional=False),),
    ),
    "aws:iam/serviceLinkedRole:ServiceLinkedRole": AwsKind(
        id="arn:{partition}:iam::{account}:role/aws-service-role/{awsServiceName}/AWSServiceRole",
        arn="*",
        replaces=("awsServiceName", "customSuffix"),
        rules=(
            matches("awsServiceName", r"[a-z0-9.-]+\.amazonaws\.com(\.cn)?", "a service's name"),
            forbids("awsServiceName", r"^https?:", "give the name without a scheme"),
        ),
        unique=("awsServiceName", "customSuffix"),
        everywhere=True,
    ),
}  # fmt: skip
