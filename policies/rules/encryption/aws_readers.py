"""AWS: storing types whose answer needs more than an entry of a table."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from falaj.policies.model import ABSENT, Context, Resource, get, is_true, is_unknown, select, text
from falaj.policies.model.values import Unknown
from falaj.policies.reading.encoded import LONGEST
from falaj.policies.reading.place import region_of_resource
from falaj.policies.rules.encryption.stores import Part, Reader, State, Stores, read_key, readers
from falaj.wire.documents import is_mapping

# EBS: what encrypts volumes, their copies, and the disks that instances are started with.
#
# A volume that says nothing isn't encrypted, unless the account encrypts every volume by default;
# one that names no key takes the account's default key:
# https://docs.aws.amazon.com/ebs/latest/userguide/encryption-by-default.html

_EVERY_VOLUME: Final = "aws:ebs/encryptionByDefault:EncryptionByDefault"
_DEFAULT_KEY: Final = "aws:ebs/defaultKmsKey:DefaultKmsKey"
_AMI_COPY: Final = "aws:ec2/amiCopy:AmiCopy"
_TEMPLATE: Final = "aws:ec2/launchTemplate:LaunchTemplate"
_BATCH: Final = "aws:batch/computeEnvironment:ComputeEnvironment"
#: Batch's kinds of machines in one's own account; Fargate's are AWS's, unmanaged ones elsewhere.
_OWN: Final = ("EC2", "SPOT")
_ROOT: Final = "rootBlockDevice"


def _volume(
    type: str, at: str = "", copies: tuple[str, ...] = (), key: str = "kmsKeyId"
) -> Stores:
    return Stores(type, key, "encrypted", "none", parts=at, copies=copies)


#: Blocks that are volumes; absent ones are none.
VOLUMES: Final = (
    _volume("aws:ebs/volume:Volume", copies=("snapshotId",)),
    _volume("aws:ebs/snapshotCopy:SnapshotCopy", copies=("sourceSnapshotId",)),
    _volume("aws:ebs/snapshotImport:SnapshotImport"),
    _volume(_AMI_COPY, copies=("sourceAmiId",)),
    _volume("aws:ec2/ami:Ami", "ebsBlockDevices", ("snapshotId",), key=""),
    _volume("aws:ec2/instance:Instance", _ROOT),
    _volume("aws:ec2/instance:Instance", "ebsBlockDevices", ("snapshotId",)),
    _volume("aws:ec2/spotInstanceRequest:SpotInstanceRequest", _ROOT),
    _volume("aws:ec2/spotInstanceRequest:SpotInstanceRequest", "ebsBlockDevices", ("snapshotId",)),
    _volume("aws:ec2/spotFleetRequest:SpotFleetRequest", "launchSpecifications.rootBlockDevices"),
    _volume("aws:ec2/spotFleetRequest:SpotFleetRequest", "launchSpecifications.ebsBlockDevices",
            ("snapshotId",)),
    _volume("aws:ec2/launchConfiguration:LaunchConfiguration", _ROOT, key=""),
    _volume("aws:ec2/launchConfiguration:LaunchConfiguration", "ebsBlockDevices", ("snapshotId",),
            key=""),
    _volume(_TEMPLATE, "blockDeviceMappings.ebs", ("snapshotId",)),
    _volume("aws:imagebuilder/imageRecipe:ImageRecipe", "blockDeviceMappings.ebs",
            ("snapshotId",)),
    _volume("aws:imagebuilder/containerRecipe:ContainerRecipe",
            "instanceConfiguration.blockDeviceMappings.ebs", ("snapshotId",)),
    _volume("aws:dlm/lifecyclePolicy:LifecyclePolicy",
            "policyDetails.schedules.crossRegionCopyRules", key="cmkArn"),
    _volume("aws:dlm/lifecyclePolicy:LifecyclePolicy",
            "policyDetails.action.crossRegionCopies.encryptionConfiguration", key="cmkArn"),
)  # fmt: skip

#: Types that start machines: without these blocks, the disk is as the image has it. The paths of
#: the block, of the image, and of a launch template that may say more.
_ROOTS: Final = {
    "aws:ec2/instance:Instance": (_ROOT, "ami", "launchTemplate"),
    "aws:ec2/spotInstanceRequest:SpotInstanceRequest": (_ROOT, "ami", "launchTemplate"),
    "aws:ec2/launchConfiguration:LaunchConfiguration": (_ROOT, "imageId", ""),
    _TEMPLATE: ("blockDeviceMappings", "imageId", ""),
    "aws:eks/nodeGroup:NodeGroup": ("launchTemplate", "", "launchTemplate"),
    _BATCH: (
        "computeResources.launchTemplate",
        "computeResources.ec2Configurations.imageIdOverride",
        "computeResources.launchTemplate",
    ),
}


def _root(resource: Resource, context: Context) -> Iterator[Part]:
    """The disk that a machine is started from, where no block says how it is encrypted."""
    path, image, template = _ROOTS[resource.kind]
    batch = get(resource.properties, "computeResources.type")
    if resource.kind == _BATCH and not is_unknown(batch) and text(batch).upper() not in _OWN:
        return
    ebs = f"{path}.ebs" if resource.kind == _TEMPLATE else path
    if path != template and any(True for _ in select(resource.properties, ebs)):
        return
    if template and get(resource.properties, template) is not ABSENT:
        # A template of this stack is judged by itself.
        if not any(each.kind == _TEMPLATE for each in context.referred(resource, template)) and (
            not _names_template(resource, context, template)
        ):
            why = f"{template} isn't of this stack, so nobody sees what encrypts its volumes"
            yield Part("unknown", path, path, why, given=False)
        return
    if image and any(each.kind == _AMI_COPY for each in context.referred(resource, image)):
        return
    why = f"{path} isn't given, and by default a machine's disk isn't encrypted"
    yield Part("none", path, path, why, given=False)


def _names_template(resource: Resource, context: Context, path: str) -> bool:
    given = get(resource.properties, path)
    return any(
        each.kind == _TEMPLATE
        for key in ("id", "name", "launchTemplateId", "launchTemplateName")
        for each in context.referred(resource, f"{path}.{key}")
        if get(given, key) is not ABSENT
    )


def _by_account(resource: Resource, part: Part, context: Context) -> Part:
    """A part that the resource leaves open, as the account's defaults in the stack settle it."""
    if part.given or part.state not in {"none", "service key"}:
        return part
    if context.stack is None:
        why = f"{part.why}, unless the account encrypts volumes by default"
        return replace(part, state="unknown", why=why, surely=part.state == "service key")
    here = region_of_resource(resource)

    def nearby(kind: str) -> list[Resource]:
        found = context.stack.of_kind(kind) if context.stack else []
        return [each for each in found if _same(region_of_resource(each), here)]

    on = [get(each.properties, "enabled") for each in nearby(_EVERY_VOLUME)]
    if part.state == "none" and not any(is_true(each) or each is ABSENT for each in on):
        hidden = any(is_unknown(each) for each in on)
        return replace(part, state="unknown") if hidden else part
    for each in nearby(_DEFAULT_KEY):
        state, why = read_key(each, "keyArn", get(each.properties, "keyArn"), context)
        if state != "absent":
            return replace(part, state=state, why=f"the account's {why}", surely=True)
    if part.state == "service key":
        return part
    why = "the account encrypts volumes by default, with the key that the service manages"
    return replace(part, state="service key", why=why)


def _same(one: Any, other: Any) -> bool:
    """Whether two regions may be one: they are unless both are known and differ."""
    return not text(one) or not text(other) or text(one) == text(other)


def _read(entries: tuple[Stores, ...]) -> Reader:
    def read(resource: Resource, context: Context) -> Iterator[Part]:
        for entry in entries:
            for part in entry.read(resource, context):
                yield _by_account(resource, part, context)
        if resource.kind in _ROOTS:
            for part in _root(resource, context):
                yield _by_account(resource, part, context)

    return read


#: The account's own defaults.
DEFAULTS: Final = (
    Stores(_EVERY_VOLUME, "", "enabled"),
    Stores(_DEFAULT_KEY, "keyArn"),
)
#: Types that have no block of their own, only a disk that their image describes.
MACHINES: Final = frozenset(_ROOTS) - {each.type for each in VOLUMES}
_TYPES: Final = tuple(dict.fromkeys([*(each.type for each in VOLUMES), *_ROOTS]))
BLOCK_STORAGE_READERS: Final[dict[str, tuple[Reader, ...]]] = {
    **{each: (_read(tuple(one for one in VOLUMES if one.type == each)),) for each in _TYPES},
    **{each.type: (each.read,) for each in DEFAULTS},
}


# AWS types whose encryption is a document: EMR's, OpenSearch Serverless's, Session Manager's.

EMR: Final = "aws:emr/securityConfiguration:SecurityConfiguration"
SERVERLESS: Final = "aws:opensearch/serverlessSecurityPolicy:ServerlessSecurityPolicy"


def document(value: Any) -> Any:
    """A JSON document as its mapping; an Unknown as itself, and anything else as ABSENT."""
    if isinstance(value, Unknown) or is_mapping(value):
        return value
    try:
        found = json.loads(value) if isinstance(value, str) and len(value) <= LONGEST else ABSENT
    except (ValueError, RecursionError):
        return ABSENT
    return found if is_mapping(found) else ABSENT


def _emr(resource: Resource, context: Context) -> Iterator[Part]:
    """At rest: objects in S3 and the machines' disks, each with its own provider of keys.

    https://docs.aws.amazon.com/emr/latest/ManagementGuide/emr-create-security-configuration.html
    """
    given = document(get(resource.properties, "configuration"))
    if is_unknown(given):
        yield Part("unknown", "configuration", "configuration", f"configuration {given.reason}")
        return
    settings = get(given, "EncryptionConfiguration")
    if not is_true(get(settings, "EnableAtRestEncryption")):
        why = "EnableAtRestEncryption isn't true, so nothing is encrypted"
        yield Part("none", "configuration", "configuration", why)
        return
    at_rest = get(settings, "AtRestEncryptionConfiguration")
    objects = get(at_rest, "S3EncryptionConfiguration")
    mode = text(get(objects, "EncryptionMode")).upper()
    if mode in {"CSE-CUSTOM"}:
        yield _configured("customer key", "EncryptionMode is CSE-Custom, with keys of one's own")
    elif mode in {"SSE-KMS", "CSE-KMS"}:
        yield _key(resource, get(objects, "AwsKmsKey"), context, "objects in S3")
    else:
        why = f"EncryptionMode is {mode or 'not given'}, so S3's own key encrypts objects"
        yield _configured("service key", why)
    disks = get(at_rest, "LocalDiskEncryptionConfiguration")
    provider = text(get(disks, "EncryptionKeyProviderType")).lower()
    if disks is ABSENT:
        yield _configured("none", "LocalDiskEncryptionConfiguration isn't given: disks stay plain")
    elif provider == "custom":
        yield _configured(
            "customer key", "the machines' disks have a provider of keys of their own"
        )
    else:
        yield _key(resource, get(disks, "AwsKmsKey"), context, "the machines' disks")


def _configured(state: Any, why: str) -> Part:
    return Part(state, "configuration", "configuration", why)


def _key(resource: Resource, value: Any, context: Context, what: str) -> Part:
    state, why = read_key(resource, "configuration", value, context)
    if state == "absent":
        return _configured("service key", f"no AwsKmsKey is given for {what}")
    # Not to name a whole document as the key.
    why = f"the key for {what} {value.reason}" if isinstance(value, Unknown) else why
    return Part(state, "configuration", "configuration", why, text(value), surely=True)


def _collections(resource: Resource, context: Context) -> Iterator[Part]:
    """The encryption policy of collections: AWS's key, or one's own.

    https://docs.aws.amazon.com/opensearch-service/latest/developerguide/serverless-encryption.html
    """
    if text(get(resource.properties, "type")).lower() == "network":
        return
    given = document(get(resource.properties, "policy"))
    if is_unknown(given):
        yield Part("unknown", "policy", "policy", f"policy {given.reason}", surely=True)
        return
    state, why = read_key(resource, "policy", get(given, "KmsARN"), context)
    if state == "absent" or is_true(get(given, "AWSOwnedKey")):
        yield Part("service key", "policy", "policy", "the policy names AWS's own key")
    else:
        key = text(get(given, "KmsARN"))
        yield Part(state, "policy", "policy", why, key, surely=True)


def _sessions(resource: Resource, context: Context) -> Iterator[Part]:
    """What sessions with machines leave behind, in a bucket or a log group, and their key.

    https://docs.aws.amazon.com/systems-manager/latest/userguide/session-manager-schema.html
    """
    kind = get(resource.properties, "documentType")
    if not is_unknown(kind) and text(kind).lower() != "session":
        return
    content = get(resource.properties, "content")
    given = document(content)
    if given is ABSENT or is_unknown(given):
        reason = given.reason if isinstance(given, Unknown) else "is no JSON"
        yield Part("unknown", "content", "content", f"content {reason}")
        return
    inputs = get(given, "inputs")
    for kept, switch in (
        ("s3BucketName", "s3EncryptionEnabled"),
        ("cloudWatchLogGroupName", "cloudWatchEncryptionEnabled"),
    ):
        if text(get(inputs, kept)) and not is_true(get(inputs, switch)):
            yield Part("none", "content", "content", f"{switch} isn't true, so logs may be plain")
    state, why = read_key(resource, "content", get(inputs, "kmsKeyId"), context)
    if state == "absent":
        why = "no kmsKeyId is given, so sessions are encrypted by TLS alone"
        yield Part("service key", "content", "content", why)
    else:
        yield Part(state, "content", "content", why, text(get(inputs, "kmsKeyId")), surely=True)


CONFIGURED_READERS: Final[dict[str, tuple[Reader, ...]]] = {
    EMR: (_emr,),
    SERVERLESS: (_collections,),
}
#: Sessions are logged, so they stand with logs.
SESSIONS: Final[dict[str, tuple[Reader, ...]]] = {"aws:ssm/document:Document": (_sessions,)}


# S3: what encrypts a bucket's objects, by its own settings or those of a companion resource.
#
# Since January 2023 every object is encrypted, with S3's own key where nobody says otherwise:
# https://docs.aws.amazon.com/AmazonS3/latest/userguide/default-encryption-faq.html

_MODES: Final[dict[str, State]] = {
    "aes256": "service key",
    "aws:kms": "customer key",
    "aws:kms:dsse": "customer key",
}
COMPANIONS: Final = (
    "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration",
    "aws:s3/bucketServerSideEncryptionConfigurationV2:BucketServerSideEncryptionConfigurationV2",
)
BUCKETS: Final = (
    "aws:s3/bucket:Bucket",
    "aws:s3/bucketV2:BucketV2",
    "aws:s3/directoryBucket:DirectoryBucket",
)
_OBJECTS: Final = (
    "aws:s3/bucketObject:BucketObject",
    "aws:s3/bucketObjectv2:BucketObjectv2",
    "aws:s3/objectCopy:ObjectCopy",
)


def _rules(type: str, at: str, rules: str, by_default: str) -> Stores:
    """The default encryption of a bucket, whose names differ between the SDK's types."""
    return Stores(
        type,
        f"{rules}.{by_default}.kmsMasterKeyId",
        parts=at,
        mode=f"{rules}.{by_default}.sseAlgorithm",
        # The mode must be given; a key without one encrypts nothing.
        modes={**_MODES, "": "service key"},
        exact=True,
    )


def _inline(type: str) -> tuple[Stores, ...]:
    one, many = "serverSideEncryptionConfiguration", "serverSideEncryptionConfigurations"
    return (
        _rules(type, one, "rule", "applyServerSideEncryptionByDefault"),
        _rules(type, many, "rules", "applyServerSideEncryptionByDefaults"),
    )


#: What a bucket says itself.
INLINE: Final = {each: _inline(each) for each in BUCKETS}
#: What a companion says of its bucket.
_OF_COMPANION: Final = {
    each: _rules(each, "", "rules", "applyServerSideEncryptionByDefault") for each in COMPANIONS
}
_OF_OBJECT: Final = {
    each: Stores(each, "kmsKeyId", mode="serverSideEncryption", modes=_MODES) for each in _OBJECTS
}
OBJECT_STORAGE: Final = (
    *(each for entries in INLINE.values() for each in entries),
    *_OF_COMPANION.values(),
    *_OF_OBJECT.values(),
    Stores("aws:s3/inventory:Inventory", "sseKms.keyId", parts="destination.bucket.encryption"),
    Stores("aws:s3/bucketMetadataConfiguration:BucketMetadataConfiguration", "kmsKeyArn",
           parts="metadataConfiguration.inventoryTableConfiguration.encryptionConfiguration",
           mode="sseAlgorithm", modes=_MODES),
    Stores("aws:s3/bucketMetadataConfiguration:BucketMetadataConfiguration", "kmsKeyArn",
           parts="metadataConfiguration.journalTableConfiguration.encryptionConfiguration",
           mode="sseAlgorithm", modes=_MODES),
)  # fmt: skip


def _bucket(resource: Resource, context: Context) -> Iterator[Part]:
    """A bucket's own settings; without them its companion's, which is judged by itself."""
    parts = [part for entry in INLINE[resource.kind] for part in entry.read(resource, context)]
    if parts:
        yield from parts
        return
    path = "serverSideEncryptionConfiguration"
    if context.stack is None:
        why = f"{path} isn't given, and a companion of the bucket may say what encrypts it"
        yield Part("unknown", path, path, why, surely=True, given=False)
        return
    beside = [
        replace(part, elsewhere=True)
        for kind in COMPANIONS
        for each in context.stack.referring(resource, kind, "bucket")
        for part in _OF_COMPANION[kind].read(each, context)
    ]
    yield from beside
    if not beside:
        why = f"{path} isn't given, and by default objects are encrypted with S3's own key"
        yield Part("service key", path, path, why, given=False)


def _object(resource: Resource, context: Context) -> Iterator[Part]:
    """An object that names its own encryption; the bucket's holds for others."""
    given = (get(resource.properties, each) for each in ("serverSideEncryption", "kmsKeyId"))
    if any(each is not ABSENT for each in given):
        yield from _OF_OBJECT[resource.kind].read(resource, context)


OBJECT_STORAGE_READERS: Final[dict[str, tuple[Reader, ...]]] = {
    **readers(OBJECT_STORAGE),
    **dict.fromkeys(BUCKETS, (_bucket,)),
    **dict.fromkeys(_OBJECTS, (_object,)),
}
