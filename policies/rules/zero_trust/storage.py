"""Object storage: nobody comes in without a name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from falaj.policies.model import (
    ABSENT,
    Context,
    Finding,
    Requirement,
    Resource,
    Rule,
    Severity,
    indeterminate,
    is_true,
    is_unknown,
    requirement_rule,
    rule,
    scalar,
    select,
    text,
    violation,
)
from falaj.policies.reading.types import aws, aws_type, azure

# Buckets: public access blocked in all four ways, no public lists of access, no websites.

_BUCKETS: Final = aws("s3/bucket", "s3/bucketV2")
_BLOCK: Final = aws_type("s3/bucketPublicAccessBlock")
_ACCOUNT_BLOCK: Final = aws_type("s3/accountPublicAccessBlock")
_FOUR: Final = (
    "blockPublicAcls",
    "blockPublicPolicy",
    "ignorePublicAcls",
    "restrictPublicBuckets",
)
_CONTROLS: Final = ("cis-aws:3.1.4", "iso27001:A.8.3", "uae-ia:T5.2.2", "nist-800-207:1")
#: https://docs.aws.amazon.com/AmazonS3/latest/userguide/acl-overview.html
_PUBLIC_ACLS: Final = frozenset((
    "public-read", "public-read-write", "authenticated-read", "website",
))  # fmt: skip
_EVERYBODY: Final = ("/groups/global/allusers", "/groups/global/authenticatedusers")


def _holders(resource: Resource) -> str:
    if resource.kind == aws_type("s3/accessPoint"):
        return "publicAccessBlockConfiguration."
    if resource.kind == aws_type("s3control/multiRegionAccessPoint"):
        return "details.publicAccessBlock."
    return ""


@rule(
    "zero-trust-aws-bucket-public-access-block",
    "Public access to buckets is blocked in all four ways",
    Severity.HIGH,
    {*_BUCKETS, _BLOCK, _ACCOUNT_BLOCK,
     *aws("s3/accessPoint", "s3control/multiRegionAccessPoint")},
    _CONTROLS,
    "Declare aws.s3.BucketPublicAccessBlock for the bucket with blockPublicAcls, "
    "blockPublicPolicy, ignorePublicAcls and restrictPublicBuckets all true.",
)  # fmt: skip
def public_access_block(resource: Resource, context: Context) -> Iterator[Finding]:
    """A block that lacks one of the four, and a bucket without a block."""
    if resource.kind in _BUCKETS:
        yield from _bucket_without_block(resource, context)
        return
    base = _holders(resource)
    for each in _FOUR:
        value = resource.get(base + each)
        if is_unknown(value):
            yield indeterminate(base + each, "its value can't be known yet; it has to be true")
        elif value is ABSENT and base:
            # Access points and multi-region ones block by default.
            continue
        elif not is_true(value):
            state = "is off by default" if value is ABSENT else "is off"
            yield violation(base + each, f"{each} {state}; all four have to be on")


def _bucket_without_block(resource: Resource, context: Context) -> Iterator[Finding]:
    if context.stack is None:
        yield indeterminate("", "whether a block of public access is there, the whole stack says")
        return
    # A block for the whole account, or one that the stack declares for this bucket, is judged by
    # itself.
    if not context.stack.referring(resource, _BLOCK, "bucket") and not context.stack.of_kind(
        _ACCOUNT_BLOCK
    ):
        yield violation(
            "", "the bucket has no block of public access; it needs one with all four on"
        )


@rule(
    "zero-trust-aws-bucket-public-acl",
    "No list of access gives a bucket or an object to everybody",
    Severity.CRITICAL,
    {*_BUCKETS, *aws("s3/bucketAcl", "s3/bucketAclV2", "s3/bucketObject", "s3/bucketObjectv2",
                     "s3/objectCopy")},
    _CONTROLS,
    "Set the ACL to private, or leave it out and set BucketOwnershipControls to "
    "BucketOwnerEnforced, which switches lists of access off.",
)  # fmt: skip
def public_acl(resource: Resource, context: Context) -> Iterator[Finding]:
    """Ready-made lists that are public, and grants to the groups of everybody."""
    found = list(select(resource.properties, "acl"))
    uris = ("grants.uri", "grant.uri", "accessControlPolicy.grants.grantee.uri")
    found += [each for path in uris for each in select(resource.properties, path)]
    for path, value in found:
        given = text(value).lower()
        if is_unknown(value):
            yield indeterminate(path, "whom it gives access can't be known yet")
        elif given in _PUBLIC_ACLS or given.endswith(_EVERYBODY):
            yield violation(path, f"{text(value)!r} lets everybody in; it has to be private")


@rule(
    "zero-trust-aws-bucket-website",
    "Buckets aren't websites",
    Severity.HIGH,
    {*_BUCKETS, *aws("s3/bucketWebsiteConfiguration", "s3/bucketWebsiteConfigurationV2")},
    _CONTROLS,
    "Serve pages from a private load balancer or an API; a bucket's website is public and has "
    "no encryption in transit.",
)
def website(resource: Resource, context: Context) -> Iterator[Finding]:
    """Websites answer anybody, over plain HTTP:
    https://docs.aws.amazon.com/AmazonS3/latest/userguide/WebsiteEndpoints.html."""
    if resource.kind not in _BUCKETS:
        yield violation("", "the bucket is a public website over plain HTTP")
        return
    for key in ("website", "websites"):
        value = resource.get(key)
        if is_unknown(value):
            yield indeterminate(key, "whether the bucket is a website can't be known yet")
        elif value is not ABSENT and value not in ([], {}):
            yield violation(key, "the bucket is a public website over plain HTTP")


# Azure's objects: who reads them without signing in, and who signs in with a password.

_ACCOUNT: Final = azure("storage:StorageAccount")
_CONTAINER: Final = azure("storage:BlobContainer")
_NO: Final = ("false",)

#: Accounts made since August 2023 allow no anonymous access by default, in any version of the API
#: (https://github.com/Azure/azure-cli/issues/27014), and a container without a word is private.
_anonymous = requirement_rule(
    "zero-trust-azure-anonymous-blobs",
    "Nobody reads blobs without signing in",
    Severity.CRITICAL,
    {
        _ACCOUNT: (Requirement("allowBlobPublicAccess", _NO),),
        _CONTAINER: (Requirement("publicAccess", ("None",)),),
    },
    ("cis-azure:9.3.2.2", "uae-ia:T5.2.2", "iso27001:A.8.3", "iso27001:A.8.12", "nist-800-207:6"),
    "Set publicAccess of the container to None and allowBlobPublicAccess of the account to false.",
)

_local_users = requirement_rule(
    "zero-trust-azure-storage-local-users",
    "Storage accounts have no users of their own",
    Severity.MEDIUM,
    {
        _ACCOUNT: (Requirement("isLocalUserEnabled", _NO), Requirement("isSftpEnabled", _NO)),
        azure("storage:LocalUser"): (
            Requirement("hasSshPassword", _NO),
            Requirement("hasSharedKey", _NO),
        ),
    },
    ("uae-ia:T5.2.2", "iso27001:A.5.16", "iso27001:A.8.5", "nist-800-207:6"),
    "Set isLocalUserEnabled and isSftpEnabled to false, and give people and services roles.",
)


@rule(
    "zero-trust-azure-static-website",
    "Storage accounts publish no websites",
    Severity.HIGH,
    azure("storage:StorageAccountStaticWebsite"),
    ("uae-ia:T4.5.3", "iso27001:A.8.3", "iso27001:A.8.12", "nist-800-207:6"),
    "Serve pages from an app that checks who calls it, behind a gateway.",
)
def static_website(resource: Resource, context: Context) -> Iterator[Finding]:
    """What is in the container ``$web`` is anybody's to read, whatever the account says about
    anonymous access: https://learn.microsoft.com/azure/storage/blobs/storage-blob-static-website.
    An account that is closed to the Internet shows it to its network only.
    """
    if context.stack is None:
        yield indeterminate("accountName", "whether the account is closed isn't known yet")
        return
    accounts = [
        each for each in context.referred(resource, "accountName") if each.kind in _ACCOUNT
    ]
    if not accounts or any(
        scalar(each.get("publicNetworkAccess")) != "disabled" for each in accounts
    ):
        yield violation("accountName", "everything in the container $web is published")


RULES: tuple[Rule, ...] = (
    public_access_block,
    public_acl,
    website,
    _anonymous,
    _local_users,
    static_website,
)
