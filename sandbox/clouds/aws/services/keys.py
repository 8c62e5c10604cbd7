"""KMS, Secrets Manager, Parameter Store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from falaj.sandbox.clouds.aws import links
from falaj.sandbox.clouds.aws import tokens as t
from falaj.sandbox.clouds.aws.arns import arn_of
from falaj.sandbox.clouds.aws.documents import RESOURCE, policy
from falaj.sandbox.clouds.aws.hashes import letters
from falaj.sandbox.clouds.aws.kinds import AutoName, AwsKind, AwsKinds
from falaj.sandbox.clouds.inputs import Inputs, Resource
from falaj.sandbox.clouds.kinds import Reference
from falaj.sandbox.clouds.model import Problem
from falaj.sandbox.clouds.rules import between, exactly_one, forbids, matches, sized

_SYMMETRIC: Final = "SYMMETRIC_DEFAULT"


def _rotation(inputs: Inputs) -> Iterator[Problem]:
    """Only symmetric encryption keys rotate by themselves (KMS developer guide, "Rotate keys")."""
    spec = inputs.get("customerMasterKeySpec") or _SYMMETRIC
    if spec != _SYMMETRIC and inputs.get("enableKeyRotation") is True:
        yield Problem(
            "enableKeyRotation",
            f"a key of {spec} can't rotate by itself; leave it out, or use {_SYMMETRIC}",
        )
    if inputs.is_given("rotationPeriodInDays") and inputs.get("enableKeyRotation") is False:
        yield Problem("rotationPeriodInDays", "needs enableKeyRotation to be true; set it")


def _alias(resource: Resource) -> Mapping[str, Any]:
    target = resource.string("targetKeyId")
    if target.startswith("arn:"):
        return {"targetKeyArn": target, "targetKeyId": target.rsplit("/", 1)[-1]}
    found = resource.world.by_id(t.KEY, target)
    return {
        "targetKeyArn": found.outputs.get("arn")
        if found
        else arn_of(resource, "kms", f"key/{target}")
    }


KINDS: Final[AwsKinds] = {
    t.KEY: AwsKind(
        id="{uuid}",
        arn="kms:{region}:{account}:key/{id}",
        replaces=("customerMasterKeySpec", "customKeyStoreId", "keyUsage", "multiRegion",
                  "xksKeyId"),
        rules=(
            policy("policy", RESOURCE, longest=32768, sids=False),
            between("deletionWindowInDays", 7, 30, "days"),
            between("rotationPeriodInDays", 90, 2560, "days"),
            sized("description", 0, 8192, "characters"),
            _rotation,
        ),
        computed=lambda resource: {"keyId": resource.id},
        defaults={
            "customerMasterKeySpec": _SYMMETRIC,
            "keyUsage": "ENCRYPT_DECRYPT",
            "enableKeyRotation": False,
            "isEnabled": True,
            "multiRegion": False,
            "rotationPeriodInDays": 365,
        },
    ),
    t.KEY_ALIAS: AwsKind(
        id="{name}",
        arn="kms:{region}:{account}:{name}",
        name=AutoName(longest=256, prefix="alias/"),
        replaces=("name", "namePrefix"),
        rules=(
            matches("name", r"alias/[a-zA-Z0-9/_:-]{1,250}",
                    "'alias/' and up to 250 of a-z, A-Z, 0-9, / _ - :"),
            forbids("name", r"^alias/aws/", "alias/aws/ is kept for the keys of AWS"),
        ),
        references=(Reference("targetKeyId", (t.KEY,), by=("id", "arn", "keyId"), holds=False),),
        unique=("name",),
        computed=_alias,
    ),
    "aws:kms/keyPolicy:KeyPolicy": AwsKind(
        id="{keyId}",
        replaces=("keyId",),
        rules=(policy("policy", RESOURCE, longest=32768, sids=False),),
        references=(Reference("keyId", (t.KEY,), by=("id", "arn"), holds=False),),
    ),
    "aws:kms/grant:Grant": AwsKind(
        id="{keyId}:{hex64}",
        replaces=("constraints", "granteePrincipal", "grantCreationTokens", "keyId", "name",
                  "operations", "retireOnDelete", "retiringPrincipal"),
        references=(Reference("keyId", (t.KEY,), by=("id", "arn"), holds=False),),
    ),
    t.SECRET: AwsKind(
        id="arn:{partition}:secretsmanager:{region}:{account}:secret:{name}-{letters6}",
        arn="*",
        name=AutoName(longest=512),
        replaces=("name", "namePrefix"),
        rules=(
            matches("name", r"[A-Za-z0-9/_+=.@-]{1,512}",
                    "up to 512 of letters, digits and /_+=.@-"),
            policy("policy", RESOURCE, longest=20480, sids=False),
            between("recoveryWindowInDays", 0, 30, "days"),
        ),
        references=(links.key(),),
        unique=("name",),
    ),
    "aws:secretsmanager/secretVersion:SecretVersion": AwsKind(
        id="{secretId}|terraform-{hex26}",
        replaces=("secretId", "secretString", "secretBinary"),
        references=(Reference("secretId", (t.SECRET,), by=("id", "arn", "name"), holds=False),),
        computed=lambda resource: {"versionId": letters(32, resource.id).lower()},
    ),
    "aws:ssm/parameter:Parameter": AwsKind(
        id="{name}",
        arn="ssm:{region}:{account}:parameter/{name}",
        name=AutoName(longest=1011),
        replaces=("name", "dataType"),
        rules=(
            # "Constraints on parameter names", Systems Manager user guide.
            matches("name", r"[a-zA-Z0-9_./-]{1,1011}", "up to 1011 of letters, digits and _./-"),
            exactly_one("value", "insecureValue", "valueWo"),
            forbids("name", r"^/?(?i:aws|ssm)", "names may not begin with aws or ssm"),
        ),
        references=(links.key("keyId"),),
        unique=("name",),
        computed=lambda _: {"version": 1},
    ),
}  # fmt: skip
