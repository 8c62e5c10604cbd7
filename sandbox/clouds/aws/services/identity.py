"""IAM, KMS, Secrets Manager and Parameter Store; budgets, cost allocation and backup."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import yaml

from falaj.sandbox.clouds.aws import kinds as t
from falaj.sandbox.clouds.aws import relations
from falaj.sandbox.clouds.aws.documents import IDENTITY, RESOURCE, TRUST, policy
from falaj.sandbox.clouds.aws.iam_names import unknown_policy
from falaj.sandbox.clouds.aws.key_policies import KEY_POLICY, not_locked_out
from falaj.sandbox.clouds.aws.kinds import AutoName, AwsKind, AwsKinds
from falaj.sandbox.clouds.aws.naming import ACCOUNT, arn_of, hexdigits, letters, partition, uuid
from falaj.sandbox.clouds.inputs import Inputs, Resource, as_list, as_map
from falaj.sandbox.clouds.kinds import (
    Reference,
    Rule,
    all_of,
    at_most,
    between,
    exactly_one,
    forbids,
    given,
    matches,
    not_together,
    other_than,
    refused,
    sized,
    texts,
)
from falaj.sandbox.clouds.model import Problem
from falaj.sandbox.clouds.vendor import MADE_AT

# Sizes: "IAM and AWS STS quotas", IAM user guide. The trust policy may have 2,048 characters, and
# 4,096 when the quota was raised; the sandbox takes the larger one, as it can't know.
_MANAGED: Final = 6144
_TRUST: Final = 4096
_INLINE_ROLE: Final = 10240
_INLINE_GROUP: Final = 5120
_INLINE_USER: Final = 2048


def _name(path: str, longest: int) -> Rule:
    return matches(
        path, rf"[\w+=,.@-]{{1,{longest}}}", f"1 to {longest} letters, digits and _+=,.@-"
    )


def _path(path: str) -> Rule:
    return matches(path, r"/|/[!-~]{1,510}/", "'/' or a text that begins and ends with '/'")


def _role(resource: Resource) -> Mapping[str, Any]:
    return {"createDate": MADE_AT, "uniqueId": "AROA" + letters(17, "role", resource.id)}


def _policy(resource: Resource) -> Mapping[str, Any]:
    return {"policyId": "ANPA" + letters(17, "policy", resource.id), "attachmentCount": 0}


def _managed_policy_arn(path: str) -> tuple[Rule, ...]:
    """The ARN of a policy; of one that there is, where it is AWS's own."""
    return (
        matches(
            path, r"arn:aws[a-z-]*:iam::(\d{12}|aws):policy/[\w+=,.@/-]{1,640}",
            "the ARN of a policy",
        ),
        texts(path, _known_policy),
    )  # fmt: skip


def _known_policy(path: str, arn: str) -> Iterator[Problem]:
    reason = unknown_policy(arn)
    if reason:
        yield Problem(path, f"{arn!r} {reason}")


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


def _amount(inputs: Inputs) -> Iterator[Problem]:
    text = inputs.get("limitAmount")
    if isinstance(text, str):
        try:
            fits = Decimal(text) >= 0
        except InvalidOperation:
            fits = False
        if not fits:
            yield Problem("limitAmount", f"{text!r} is no amount; give one such as '1500.0'")


def _notifications(inputs: Inputs) -> Iterator[Problem]:
    """Each notification reaches somebody: at most ten addresses and one topic."""
    for path, item in inputs.each("notifications[]"):
        note = as_map(item)
        mails, topics = note.get("subscriberEmailAddresses"), note.get("subscriberSnsTopicArns")
        if mails is None and topics is None:
            yield Problem(
                path, "reaches nobody; give subscriberEmailAddresses or subscriberSnsTopicArns"
            )
        if len(as_list(mails)) > 10:
            yield Problem(f"{path}.subscriberEmailAddresses", "has more than 10 addresses")
        if len(as_list(topics)) > 1:
            yield Problem(f"{path}.subscriberSnsTopicArns", "has more than one topic")
        for mail in as_list(mails):
            if isinstance(mail, str) and "@" not in mail:
                yield Problem(f"{path}.subscriberEmailAddresses", f"{mail!r} is no address")


def _lifecycle(inputs: Inputs) -> Iterator[Problem]:
    """Cold storage is kept 90 days at least (AWS Backup developer guide, "Lifecycle")."""
    for path, item in inputs.each("rules[].lifecycle"):
        cold, gone = as_map(item).get("coldStorageAfter"), as_map(item).get("deleteAfter")
        if (
            isinstance(cold, int | float)
            and isinstance(gone, int | float)
            and 0 < gone < cold + 90
        ):
            yield Problem(
                f"{path}.deleteAfter",
                f"{gone:g} days is too soon; at least 90 days after coldStorageAfter, {cold:g}",
            )


def _document(resource: Resource) -> Mapping[str, Any]:
    """What DescribeDocument answers of a new document."""
    content = resource.string("content")
    try:
        read = yaml.safe_load(content)
    except yaml.YAMLError:
        read = None
    body = as_map(read)
    return {
        "createdDate": MADE_AT,
        "defaultVersion": "1",
        "description": str(body.get("description", "")),
        "documentVersion": "1",
        "hash": hashlib.sha256(content.encode()).hexdigest(),
        "hashType": "Sha256",
        "latestVersion": "1",
        "owner": ACCOUNT,
        "schemaVersion": str(body.get("schemaVersion", "")),
        "status": "Active",
    }


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
            *_managed_policy_arn("permissionsBoundary"),
            *_managed_policy_arn("managedPolicyArns[]"),
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
        rules=_managed_policy_arn("policyArn"),
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
            "createDate": MADE_AT, "uniqueId": "AIPA" + letters(17, "profile", resource.id)
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
        rules=_managed_policy_arn("policyArn"),
        references=(
            Reference("group", (t.GROUP,), by=("name",), regional=False),
            Reference("policyArn", (t.POLICY,), by=("arn",), regional=False),
        ),
    ),
    t.USER: AwsKind(
        id="{name}",
        arn="iam::{account}:user{path}{name}",
        name=AutoName(longest=64),
        rules=(_name("name", 64), _path("path"), *_managed_policy_arn("permissionsBoundary")),
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
    t.KEY: AwsKind(
        id="{uuid}",
        arn="kms:{region}:{account}:key/{id}",
        replaces=("customerMasterKeySpec", "customKeyStoreId", "keyUsage", "multiRegion",
                  "xksKeyId"),
        rules=(
            policy("policy", RESOURCE, longest=32768, sids=False),
            not_locked_out("policy", unless="bypassPolicyLockoutSafetyCheck"),
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
    KEY_POLICY: AwsKind(
        id="{keyId}",
        replaces=("keyId",),
        rules=(
            policy("policy", RESOURCE, longest=32768, sids=False),
            not_locked_out("policy", unless="bypassPolicyLockoutSafetyCheck"),
        ),
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
        references=(relations.key(),),
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
            refused(
                "keyId", "applies only to the type SecureString; change the type, or remove it",
                all_of(given("keyId"), other_than("type", "SecureString")),
            ),
            forbids("name", r"^/?(?i:aws|ssm)", "names may not begin with aws or ssm"),
        ),
        references=(relations.key("keyId"),),
        unique=("name",),
        computed=lambda _: {"version": 1},
    ),
    "aws:ssm/document:Document": AwsKind(
        id="{name}",
        arn="ssm:{region}:{account}:document/{name}",
        name=AutoName(longest=128),
        # A document of another type is another one ("UpdateDocument" takes none).
        replaces=("name", "documentType"),
        rules=(
            # "CreateDocument", Name, Systems Manager API reference.
            matches("name", r"[a-zA-Z0-9_.-]{3,128}", "3 to 128 of letters, digits and _.-"),
            forbids(
                "name", r"^(?i:aws|amazon|amzn)", "names may not begin with aws, amazon or amzn"
            ),
        ),
        unique=("name",),
        computed=_document,
    ),
    "aws:budgets/budget:Budget": AwsKind(
        id="{account}:{name}",
        arn="budgets::{account}:budget/{name}",
        name=AutoName(longest=100),
        replaces=("accountId", "name", "namePrefix"),
        rules=(
            matches("name", r"[^:\\]{1,100}", "up to 100 characters without ':' and '\\'"),
            _amount,
            _notifications,
            sized("notifications", 0, 10),
            between("notifications[].threshold", 0, 1000000000),
            matches("timePeriodStart", r"\d{4}-\d\d-\d\d_\d\d:\d\d", "such as 2026-01-01_00:00"),
            matches("timePeriodEnd", r"\d{4}-\d\d-\d\d_\d\d:\d\d", "such as 2087-06-15_00:00"),
        ),
        references=(relations.topic("notifications[].subscriberSnsTopicArns[]"),),
        unique=("name",),
        everywhere=True,
        computed=lambda _: {"accountId": ACCOUNT},
    ),
    "aws:costexplorer/costAllocationTag:CostAllocationTag": AwsKind(
        id="{tagKey}",
        replaces=("tagKey",),
        unique=("tagKey",),
        everywhere=True,
        computed=lambda _: {"type": "UserDefined"},
    ),
    t.VAULT: AwsKind(
        id="{name}",
        arn="backup:{region}:{account}:backup-vault:{name}",
        name=AutoName(longest=50),
        replaces=("kmsKeyArn", "name"),
        rules=(matches("name", r"[a-zA-Z0-9_-]{2,50}", "2 to 50 letters, digits, '-' and '_'"),),
        references=(Reference("kmsKeyArn", (t.KEY,), by=("arn",), holds=False),),
        unique=("name",),
        computed=lambda _: {"recoveryPoints": 0},
    ),
    "aws:backup/vaultLockConfiguration:VaultLockConfiguration": AwsKind(
        id="{backupVaultName}",
        replaces=("backupVaultName", "changeableForDays", "maxRetentionDays", "minRetentionDays"),
        rules=(
            between("changeableForDays", 3, 36500, "days"),
            between("minRetentionDays", 1, 36500, "days"),
            between("maxRetentionDays", 1, 36500, "days"),
            at_most("minRetentionDays", "maxRetentionDays"),
        ),
        references=(Reference("backupVaultName", (t.VAULT,), by=("name",), holds=False),),
    ),
    "aws:backup/vaultPolicy:VaultPolicy": AwsKind(
        id="{backupVaultName}",
        replaces=("backupVaultName",),
        rules=(policy("policy", RESOURCE, sids=False),),
        references=(Reference("backupVaultName", (t.VAULT,), by=("name",), holds=False),),
    ),
    t.BACKUP_PLAN: AwsKind(
        id="{uuid}",
        arn="backup:{region}:{account}:backup-plan:{id}",
        name=AutoName(longest=50),
        replaces=("name",),
        rules=(
            matches("name", r"[a-zA-Z0-9\-_.]{1,50}", "up to 50 letters, digits and -_."),
            matches("rules[].schedule", r"(cron|rate)\(.+\)", "cron(…) or rate(…)"),
            _lifecycle,
        ),
        references=(
            Reference("rules[].targetVaultName", (t.VAULT,), by=("name",), holds=False),
        ),
        computed=lambda resource: {"version": hexdigits(48, resource.id)},
    ),
    "aws:backup/selection:Selection": AwsKind(
        id="{uuid}",
        name=AutoName(longest=50),
        replaces=("conditions", "iamRoleArn", "name", "notResources", "planId", "resources",
                  "selectionTags"),
        rules=(matches("name", r"[a-zA-Z0-9\-_.]{1,50}", "up to 50 letters, digits and -_."),),
        references=(
            Reference("planId", (t.BACKUP_PLAN,)), relations.role("iamRoleArn"),
        ),
        crosschecks=(relations.trusts("iamRoleArn", "backup.amazonaws.com", "backup's role"),),
    ),
    "aws:costexplorer/anomalyMonitor:AnomalyMonitor": AwsKind(
        id=lambda inputs: f"arn:aws:ce::{ACCOUNT}:anomalymonitor/{uuid(inputs.string('name'))}",
        arn="*",
        replaces=("monitorType", "monitorDimension"),
        rules=(forbids("name", r"^\s*$", "it is empty"),),
    ),
}  # fmt: skip
