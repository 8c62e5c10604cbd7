"""S3: buckets and their settings; file systems: FSx for Lustre and EFS."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any, Final

from falaj.sandbox.clouds.aws import kinds as t
from falaj.sandbox.clouds.aws import relations
from falaj.sandbox.clouds.aws.documents import RESOURCE, policy, statements
from falaj.sandbox.clouds.aws.kinds import AutoName, AwsKind, AwsKinds
from falaj.sandbox.clouds.aws.naming import ACCOUNT, arn_of, hexdigits, letters, marked
from falaj.sandbox.clouds.aws.regions import address, dns_suffix, region_of, zone_id
from falaj.sandbox.clouds.inputs import Inputs, Resource, as_list, as_map, as_texts
from falaj.sandbox.clouds.kinds import (
    Crosscheck,
    Reference,
    all_of,
    between,
    equals,
    exactly_one,
    forbids,
    given,
    matches,
    not_together,
    other_than,
    refused,
    sized,
    when,
)
from falaj.sandbox.clouds.model import Problem
from falaj.wire.documents import is_mapping

_VERSIONING: Final = "aws:s3/bucketVersioning:BucketVersioning"
_OBJECT_LOCK: Final = "aws:s3/bucketObjectLockConfiguration:BucketObjectLockConfiguration"
_LIFECYCLE: Final = "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration"


def bucket_name(path: str) -> tuple[Any, ...]:
    """The rules for names ("General purpose bucket naming rules", Amazon S3 user guide)."""
    return (
        matches(path, r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]",
                "3 to 63 of a-z, 0-9, '.' and '-', beginning and ending with a letter or digit"),
        forbids(path, r"\.\.", "two dots may not stand next to each other"),
        forbids(path, r"^\d+\.\d+\.\d+\.\d+$", "it has the form of an IP address"),
        forbids(path, r"^(xn--|sthree-|amzn-s3-demo-)", "this beginning is kept by S3"),
        forbids(path, r"(-s3alias|--ol-s3|\.mrap|--x-s3|--table-s3)$", "S3 keeps this ending"),
    )  # fmt: skip


def _bucket(resource: Resource) -> Mapping[str, Any]:
    suffix = dns_suffix(region_of(resource))
    return {
        "bucketDomainName": f"{resource.id}.s3.{suffix}",
        "bucketRegionalDomainName": f"{resource.id}.s3.{region_of(resource)}.{suffix}",
        "bucketRegion": region_of(resource),
        # Made up as the rest: real zone ids of S3 endpoints are a fixed table of AWS.
        # Of buckets that are websites, by a resource of their own.
        "websiteDomain": "",
        "websiteEndpoint": "",
        "hostedZoneId": "Z" + hexdigits(13, "s3", region_of(resource)).upper(),
    }


def _lifecycle(inputs: Inputs) -> Iterator[Problem]:
    """Each rule has its own id, and does something."""
    seen: set[str] = set()
    for path, rule in inputs.each("rules[]"):
        if not is_mapping(rule):
            continue
        name = rule.get("id")
        if isinstance(name, str):
            if name in seen:
                yield Problem(f"{path}.id", f"{name!r} is used twice; give each rule its own")
            seen.add(name)
        actions = ("expiration", "transitions", "noncurrentVersionExpiration",
                   "noncurrentVersionTransitions", "abortIncompleteMultipartUpload")  # fmt: skip
        if not any(_given(rule.get(action)) for action in actions):
            yield Problem(path, f"does nothing; give at least one of {', '.join(actions)}")


def _given(value: object) -> bool:
    return value not in (None, [], {})


def _infrequent_access(inputs: Inputs) -> Iterator[Problem]:
    """Objects stay 30 days before they move to an infrequent-access class."""
    for path, move in inputs.each("rules[].transitions[]"):
        days = move.get("days") if is_mapping(move) else None
        if (
            isinstance(days, int | float)
            and days < 30
            and move.get("storageClass") in ("STANDARD_IA", "ONEZONE_IA")
        ):
            yield Problem(
                f"{path}.days", f"{days:g} is too soon for {move['storageClass']}; at least 30"
            )


def _order_of_life(inputs: Inputs) -> Iterator[Problem]:
    """Objects move before they expire ("Transitioning objects", Amazon S3 user guide)."""
    for path, rule in inputs.each("rules[]"):
        own = Inputs(as_map(rule))
        ends = own.number("expiration.days")
        for where, days in own.each("transitions[].days"):
            if ends is not None and isinstance(days, int | float) and days >= ends:
                yield Problem(
                    f"{path}.{where}",
                    f"{days:g} days isn't before the objects' expiration after {ends:g}; move "
                    "them earlier, or keep them longer",
                )


def _own_bucket(resource: Resource) -> Iterator[Problem]:
    """A bucket's policy is about that bucket, and about S3 ("MalformedPolicy")."""
    name = resource.string("bucket")
    for index, statement in enumerate(statements(resource.get("policy"))):
        where = f"Statement[{index}]"
        for action in as_texts(statement.get("Action")):
            if action != "*" and not action.lower().startswith(("s3:", "s3-object-lambda:")):
                yield Problem("policy", f"{where}.Action {action!r} is no action of s3")
        for target in as_texts(statement.get("Resource")):
            bucket = target.partition(":::")[2].partition("/")[0]
            if bucket and name and not fnmatchcase(name, bucket):
                yield Problem(
                    "policy",
                    f"{where}.Resource {target!r} is another bucket than {name!r}; a bucket's "
                    "policy names that bucket and what is in it",
                )


#: The ports of Lustre, which FSx looks for in the groups' rules:
#: docs.aws.amazon.com/fsx/latest/LustreGuide/limit-access-security-groups.html
_LUSTRE_PORT: Final = 988
_ALL: Final = ("-1", "all")
_OLDER_RULE: Final = "aws:ec2/securityGroupRule:SecurityGroupRule"


def _lustre_traffic(resource: Resource) -> Iterator[Problem]:
    """One of the groups lets Lustre's traffic in ("InvalidNetworkSettings")."""
    groups = [str(group) for _, group in resource.each("securityGroupIds[]")]
    known = [
        found
        for group in groups
        for token in (t.SECURITY_GROUP, t.DEFAULT_SECURITY_GROUP)
        if (found := resource.world.by_id(token, group)) is not None
    ]
    if not groups or len(known) != len(groups):
        return
    rules = [
        rule
        for group in groups
        for rule in (
            *resource.world.find(t.INGRESS_RULE, securityGroupId=group),
            *resource.world.find(_OLDER_RULE, securityGroupId=group, type="ingress"),
        )
    ]
    inline = [as_map(rule) for group in known for rule in as_list(group.outputs.get("ingress"))]
    if not any(_lets_in(rule) for rule in (*[rule.outputs for rule in rules], *inline)):
        yield Problem(
            "securityGroupIds",
            f"{', '.join(groups)} let nothing in on port {_LUSTRE_PORT}, by which Lustre speaks; "
            f"add rules for {_LUSTRE_PORT} and 1018 to 1023 (and depend on them)",
        )


def _lets_in(rule: Mapping[str, Any]) -> bool:
    if str(rule.get("ipProtocol") or rule.get("protocol")) in _ALL:
        return True
    low, high = rule.get("fromPort"), rule.get("toPort")
    if not isinstance(low, int | float) or not isinstance(high, int | float):
        return True
    return low <= _LUSTRE_PORT <= high


def _versioned(resource: Resource) -> Iterator[Problem]:
    """Object lock needs a versioned bucket."""
    name = resource.string("bucket")
    found = resource.world.by_id(t.BUCKET, name)
    if found is None or found.outputs.get("objectLockEnabled") is True:
        return
    for versioning in resource.world.find(_VERSIONING, bucket=name):
        settings = versioning.outputs.get("versioningConfiguration")
        if is_mapping(settings) and settings.get("status") == "Enabled":
            return
    yield Problem(
        "bucket",
        f"{name!r} is not versioned, which object lock needs; enable versioning first "
        "(and let this resource depend on it)",
    )


def _setting(
    *rules: Any, more: tuple[Reference, ...] = (), crosschecks: tuple[Crosscheck, ...] = ()
) -> AwsKind:
    """A setting of a bucket: one of each kind per bucket, and its id is the bucket's name."""
    return AwsKind(
        id="{bucket}",
        replaces=("bucket",),
        rules=rules,
        references=(relations.bucket(), *more),
        crosschecks=crosschecks,
        unique=("bucket",),
    )


def _etag(resource: Resource) -> Mapping[str, Any]:
    return {"etag": hexdigits(32, resource.id, str(resource.get("content")))}


_THROUGHPUT: Final = {
    ("PERSISTENT_1", "SSD"): (50, 100, 200),
    ("PERSISTENT_1", "HDD"): (12, 40),
    ("PERSISTENT_2", "SSD"): (125, 250, 500, 1000),
}
"""MB/s per TiB (FSx for Lustre user guide, "File system storage options")."""


def _capacity(inputs: Inputs) -> Iterator[Problem]:
    """Sizes in GiB ("CreateFileSystem", FSx API reference, StorageCapacity)."""
    size, kind = inputs.get("storageCapacity"), inputs.get("deploymentType") or "SCRATCH_1"
    if not isinstance(size, int | float) or inputs.get("storageType") == "INTELLIGENT_TIERING":
        return
    if inputs.get("storageType") == "HDD":
        step = 1800 if inputs.get("perUnitStorageThroughput") == 40 else 6000
        allowed, fits = f"multiples of {step}", size > 0 and size % step == 0
    elif kind == "SCRATCH_1":
        allowed = "1200, 2400 or multiples of 3600"
        fits = size in (1200, 2400) or (size > 0 and size % 3600 == 0)
    else:
        allowed = "1200 or multiples of 2400"
        fits = size == 1200 or (size > 0 and size % 2400 == 0)
    if not fits:
        yield Problem("storageCapacity", f"{size:g} GiB isn't allowed; allowed: {allowed}")


def _throughput(inputs: Inputs) -> Iterator[Problem]:
    kind = inputs.get("deploymentType") or "SCRATCH_1"
    storage = inputs.get("storageType") or "SSD"
    given = inputs.get("perUnitStorageThroughput")
    if storage == "INTELLIGENT_TIERING" or not isinstance(kind, str):
        return
    if kind.startswith("SCRATCH"):
        if inputs.is_given("perUnitStorageThroughput"):
            yield Problem("perUnitStorageThroughput", f"doesn't apply to {kind}; remove it")
        if inputs.is_given("kmsKeyId"):
            yield Problem("kmsKeyId", f"{kind} takes no key of one's own; use PERSISTENT_2")
        return
    allowed = _THROUGHPUT.get((kind, str(storage)))
    if allowed is None:
        return
    if not inputs.is_given("perUnitStorageThroughput"):
        yield Problem(
            "perUnitStorageThroughput", f"is missing; {kind} needs one of {_listed(allowed)}"
        )
    elif isinstance(given, int | float) and given not in allowed:
        yield Problem(
            "perUnitStorageThroughput",
            f"{given:g} MB/s per TiB isn't sold for {kind} on {storage}; "
            f"allowed: {_listed(allowed)}",
        )


def _listed(values: tuple[int, ...]) -> str:
    return ", ".join(map(str, values))


def _lustre(resource: Resource) -> Mapping[str, Any]:
    subnet = resource.world.by_id(t.SUBNET, resource.string("subnetIds"))
    return {
        "dnsName": f"{resource.id}.fsx.{region_of(resource)}.{dns_suffix(region_of(resource))}",
        "mountName": "fsx" if resource.get("deploymentType") == "SCRATCH_1"
        else letters(8, resource.id, "mount").lower(),
        "networkInterfaceIds": ["eni-" + marked(17, resource.id)],
        "ownerId": ACCOUNT,
        "vpcId": subnet.outputs.get("vpcId", "") if subnet is not None else "",
    }  # fmt: skip


def _file_system(resource: Resource) -> Mapping[str, Any]:
    zone = resource.string("availabilityZoneName")
    return {
        "dnsName": f"{resource.id}.efs.{region_of(resource)}.{dns_suffix(region_of(resource))}",
        "ownerId": ACCOUNT,
        "availabilityZoneId": (zone_id(region_of(resource), zone) or "") if zone else "",
        "numberOfMountTargets": 0,
        "name": str(resource.get("tags.Name") or ""),
    }


def _throughput_mode(inputs: Inputs) -> Iterator[Problem]:
    given = inputs.is_given("provisionedThroughputInMibps")
    provisioned = inputs.get("throughputMode") == "provisioned"
    if provisioned and not given:
        yield Problem("provisionedThroughputInMibps", "is missing; 'provisioned' needs it")
    if given and inputs.get("throughputMode") in ("bursting", "elastic"):
        yield Problem(
            "provisionedThroughputInMibps", "applies only to throughputMode 'provisioned'"
        )
    if inputs.get("performanceMode") == "maxIO" and inputs.get("throughputMode") == "elastic":
        yield Problem("performanceMode", "'maxIO' can't go with 'elastic'; use generalPurpose")
    if (
        inputs.is_given("kmsKeyId")
        and inputs.get("encrypted") is not True
        and (not inputs.is_given("encrypted") or inputs.get("encrypted") is False)
    ):
        yield Problem("kmsKeyId", "needs encrypted to be true; set it")


def _mount_target(resource: Resource) -> Mapping[str, Any]:
    subnet = resource.world.by_id(t.SUBNET, resource.string("subnetId"))
    zone = str(subnet.outputs.get("availabilityZone", "")) if subnet is not None else ""
    zone_of = str(subnet.outputs.get("availabilityZoneId", "")) if subnet is not None else ""
    system = resource.string("fileSystemId")
    host = f"{system}.efs.{region_of(resource)}.{dns_suffix(region_of(resource))}"
    return {
        "availabilityZoneName": zone,
        "availabilityZoneId": zone_of,
        "dnsName": host,
        "mountTargetDnsName": f"{zone}.{host}",
        "networkInterfaceId": "eni-" + marked(17, resource.id),
        "fileSystemArn": arn_of(resource, "elasticfilesystem", f"file-system/{system}"),
        "ownerId": ACCOUNT,
    }


def _one_mount_target_per_zone(resource: Resource) -> Iterator[Problem]:
    subnet = resource.world.by_id(t.SUBNET, resource.string("subnetId"))
    if subnet is None:
        return
    for other in resource.world.find(t.MOUNT_TARGET, fileSystemId=resource.get("fileSystemId")):
        theirs = resource.world.by_id(t.SUBNET, str(other.outputs.get("subnetId")))
        zone = subnet.outputs.get("availabilityZoneId")
        if other.id != resource.id and theirs and theirs.outputs.get("availabilityZoneId") == zone:
            yield Problem(
                "subnetId",
                f"the file system has a mount target in {zone} already ({other.id}); "
                "it takes one in each zone",
            )


_SYSTEM: Final = Reference("fileSystemId", (t.FILE_SYSTEM,))
_SYSTEM_SETTING: Final = Reference("fileSystemId", (t.FILE_SYSTEM,), holds=False)


KINDS: Final[AwsKinds] = {
    t.BUCKET: AwsKind(
        id="{bucket}",
        arn="s3:::{bucket}",
        name=AutoName(property="bucket", longest=63, lower=True, unless=("bucketPrefix",)),
        replaces=("bucket", "bucketPrefix", "bucketNamespace", "objectLockEnabled"),
        rules=(
            *bucket_name("bucket"),
            not_together("bucket", "bucketPrefix"),
            sized("bucketPrefix", 0, 37, "characters"),
        ),
        unique=("bucket",),
        everywhere=True,
        computed=_bucket,
        defaults={"forceDestroy": False, "objectLockEnabled": False},
    ),
    _VERSIONING: _setting(),
    "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration":
        _setting(more=(relations.key("rules[].applyServerSideEncryptionByDefault.kmsMasterKeyId"),)),
    "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock": _setting(),
    "aws:s3/bucketPolicy:BucketPolicy": _setting(
        policy("policy", RESOURCE, longest=20480, sids=False), crosschecks=(_own_bucket,)
    ),
    "aws:s3/bucketOwnershipControls:BucketOwnershipControls": _setting(),
    "aws:s3/bucketAcl:BucketAcl": AwsKind(
        id="{bucket}",
        replaces=("bucket", "expectedBucketOwner"),
        rules=(exactly_one("acl", "accessControlPolicy"),),
        references=(relations.bucket(),),
    ),
    _LIFECYCLE: _setting(
        _lifecycle,
        _infrequent_access,
        _order_of_life,
        sized("rules", 1, 1000, "rules"),
        sized("rules[].id", 1, 255, "characters"),
        between("rules[].abortIncompleteMultipartUpload.daysAfterInitiation", 1, 36500, "days"),
    ),
    _OBJECT_LOCK: AwsKind(
        id="{bucket}",
        replaces=("bucket", "expectedBucketOwner", "objectLockEnabled"),
        rules=(
            not_together("rule.defaultRetention.days", "rule.defaultRetention.years"),
            between("rule.defaultRetention.days", 1, 36500, "days"),
            between("rule.defaultRetention.years", 1, 100, "years"),
        ),
        references=(relations.bucket(),),
        crosschecks=(_versioned,),
        unique=("bucket",),
        defaults={"objectLockEnabled": "Enabled"},
    ),
    "aws:s3/bucketLogging:BucketLogging": _setting(more=(relations.bucket("targetBucket"),)),
    "aws:s3/bucketNotification:BucketNotification": AwsKind(
        id="{bucket}", replaces=("bucket",), references=(relations.bucket(),), unique=("bucket",)
    ),
    "aws:s3/bucketReplicationConfig:BucketReplicationConfig": AwsKind(
        id="{bucket}",
        replaces=("bucket",),
        references=(relations.bucket(), relations.role("role")),
        unique=("bucket",),
    ),
    "aws:s3/bucketObjectv2:BucketObjectv2": AwsKind(
        id="{bucket}/{key}",
        arn="s3:::{bucket}/{key}",
        replaces=("bucket", "key"),
        rules=(
            sized("key", 1, 1024, "characters"),
            not_together("content", "contentBase64", "source"),
        ),
        references=(relations.bucket(), relations.key()),
        computed=_etag,
    ),
    "aws:s3/bucketObject:BucketObject": AwsKind(
        id="{key}",
        arn="s3:::{bucket}/{key}",
        replaces=("bucket", "key"),
        rules=(sized("key", 1, 1024, "characters"),),
        references=(relations.bucket(), relations.key()),
        computed=_etag,
    ),
    "aws:s3/accountPublicAccessBlock:AccountPublicAccessBlock": AwsKind(
        id="{account}", replaces=("accountId",)
    ),
    "aws:s3/accessPoint:AccessPoint": AwsKind(
        id="{account}:{name}",
        arn="s3:{region}:{account}:accesspoint/{name}",
        name=AutoName(longest=50, lower=True),
        replaces=("accountId", "bucket", "name", "vpcConfiguration"),
        rules=(
            matches("name", r"[a-z0-9][a-z0-9-]{1,48}[a-z0-9]", "3 to 50 of a-z, 0-9 and '-'"),
            policy("policy", RESOURCE, longest=20480, sids=False),
        ),
        references=(Reference("bucket", (t.BUCKET,), by=("bucket",)),),
    ),
    t.LUSTRE: AwsKind(
        id="fs-{hex17}",
        arn="fsx:{region}:{account}:file-system/{id}",
        replaces=("backupId", "copyTagsToBackups", "dataReadCacheConfiguration", "deploymentType",
                  "driveCacheType", "efaEnabled", "exportPath", "fileSystemTypeVersion",
                  "importPath", "importedFileChunkSize", "kmsKeyId", "securityGroupIds",
                  "storageType", "subnetIds"),
        rules=(
            _capacity,
            _throughput,
            # "MetadataConfiguration" in "CreateFileSystemLustreConfiguration", FSx API reference.
            refused(
                "metadataConfiguration",
                "only PERSISTENT_2 takes it; leave it out",
                all_of(
                    given("metadataConfiguration"),
                    other_than("deploymentType", "PERSISTENT_2"),
                ),
            ),
            between("automaticBackupRetentionDays", 0, 90, "days"),
            matches("weeklyMaintenanceStartTime", r"[1-7]:([01]\d|2[0-3]):[0-5]\d",
                    "day:hour:minute such as 6:02:30"),
            matches("dailyAutomaticBackupStartTime", r"([01]\d|2[0-3]):[0-5]\d", "HH:MM"),
        ),
        references=(relations.subnet("subnetIds"), relations.security_group(), relations.key()),
        crosschecks=(_lustre_traffic,),
        computed=_lustre,
        defaults={"deploymentType": "SCRATCH_1", "storageType": "SSD"},
    ),
    t.FILE_SYSTEM: AwsKind(
        id="fs-{hex17}",
        arn="elasticfilesystem:{region}:{account}:file-system/{id}",
        replaces=("availabilityZoneName", "creationToken", "encrypted", "kmsKeyId",
                  "performanceMode"),
        rules=(
            _throughput_mode,
            sized("creationToken", 1, 64, "characters"),
            when(equals("throughputMode", "provisioned"),
                 between("provisionedThroughputInMibps", 1, 3414, "MiB/s")),
        ),
        references=(relations.key(),),
        unique=("creationToken",),
        computed=_file_system,
        defaults={"performanceMode": "generalPurpose", "throughputMode": "bursting",
                  "encrypted": False},
    ),
    t.MOUNT_TARGET: AwsKind(
        id="fsmt-{hex17}",
        replaces=("fileSystemId", "ipAddress", "ipAddressType", "ipv6Address", "subnetId"),
        rules=(address("ipAddress"), sized("securityGroups", 1, 5, "groups")),
        references=(
            _SYSTEM,
            relations.subnet("subnetId"),
            relations.security_group("securityGroups[]"),
        ),
        crosschecks=(_one_mount_target_per_zone,),
        computed=_mount_target,
    ),
    t.ACCESS_POINT: AwsKind(
        id="fsap-{hex17}",
        arn="elasticfilesystem:{region}:{account}:access-point/{id}",
        replaces=("fileSystemId", "posixUser", "rootDirectory"),
        rules=(
            between("posixUser.uid", 0, 4294967295),
            between("posixUser.gid", 0, 4294967295),
            sized("posixUser.secondaryGids", 0, 16),
            matches("rootDirectory.creationInfo.permissions", r"[0-7]{3,4}", "octal such as 0750"),
            matches("rootDirectory.path", r"/|(/(?!\.)[^$#<>;`|&?{}^*/\n]+){1,4}",
                    "'/' or a path of at most four folders, such as /home/team"),
            sized("rootDirectory.path", 1, 100, "characters"),
        ),
        references=(_SYSTEM_SETTING,),
        computed=lambda resource: {
            "ownerId": ACCOUNT,
            "fileSystemArn": arn_of(resource, "elasticfilesystem",
                                       f"file-system/{resource.string('fileSystemId')}"),
        },
    ),
    "aws:efs/fileSystemPolicy:FileSystemPolicy": AwsKind(
        id="{fileSystemId}",
        replaces=("fileSystemId",),
        rules=(policy("policy", RESOURCE, longest=20000, sids=False),),
        references=(_SYSTEM_SETTING,),
        unique=("fileSystemId",),
    ),
    "aws:efs/backupPolicy:BackupPolicy": AwsKind(
        id="{fileSystemId}",
        replaces=("fileSystemId",),
        references=(_SYSTEM_SETTING,),
        unique=("fileSystemId",),
    ),
}  # fmt: skip
