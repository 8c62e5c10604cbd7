"""S3: what encrypts a bucket's objects, by its own settings or those of a companion resource.

Since January 2023 every object is encrypted, with S3's own key where nobody says otherwise:
https://docs.aws.amazon.com/AmazonS3/latest/userguide/default-encryption-faq.html
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from falaj.policies.model import ABSENT, Resource, View, get
from falaj.policies.rules.encryption.table import Part, Reader, State, Stores, readers

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


def _bucket(resource: Resource, view: View) -> Iterator[Part]:
    """A bucket's own settings; without them its companion's, which is judged by itself."""
    said = [part for entry in INLINE[resource.kind] for part in entry.read(resource, view)]
    if said:
        yield from said
        return
    path = "serverSideEncryptionConfiguration"
    if view.stack is None:
        why = f"{path} isn't given, and a companion of the bucket may say what encrypts it"
        yield Part("unknown", path, path, why, surely=True, given=False)
        return
    beside = [
        replace(part, elsewhere=True)
        for kind in COMPANIONS
        for each in view.stack.referring(resource, kind, "bucket")
        for part in _OF_COMPANION[kind].read(each, view)
    ]
    yield from beside
    if not beside:
        why = f"{path} isn't given, and by default objects are encrypted with S3's own key"
        yield Part("service key", path, path, why, given=False)


def _object(resource: Resource, view: View) -> Iterator[Part]:
    """An object that names its own encryption; the bucket's holds for others."""
    given = (get(resource.properties, each) for each in ("serverSideEncryption", "kmsKeyId"))
    if any(each is not ABSENT for each in given):
        yield from _OF_OBJECT[resource.kind].read(resource, view)


READERS: Final[dict[str, tuple[Reader, ...]]] = {
    **readers(OBJECT_STORAGE),
    **dict.fromkeys(BUCKETS, (_bucket,)),
    **dict.fromkeys(_OBJECTS, (_object,)),
}
