"""Encryption at rest on AWS: that there is any, and that the key is the customer's.

`READERS` knows every AWS type that keeps data and says how; what each is asked, by its data's
class, is in `demands`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from policies.model import Finding, Resource, Severity, View, rule
from policies.rules.encryption import (
    aws_ai_stores,
    aws_analytics,
    aws_block_storage,
    aws_configured_stores,
    aws_databases,
    aws_development,
    aws_file_stores,
    aws_messaging,
    aws_object_storage,
    aws_operations,
)
from policies.rules.encryption.demands import (
    Readers,
    merged,
    parts_of,
    unencrypted,
    without_customer_key,
)
from policies.rules.encryption.table import Stores

#: What reads each type.
READERS: Final[Readers] = merged(
    aws_ai_stores.READERS,
    aws_analytics.READERS,
    aws_block_storage.READERS,
    aws_configured_stores.READERS,
    aws_databases.READERS,
    aws_development.READERS,
    aws_file_stores.READERS,
    aws_messaging.READERS,
    aws_object_storage.READERS,
    aws_operations.READERS,
)
ENTRIES: Final[tuple[Stores, ...]] = (
    *aws_ai_stores.AI_STORES,
    *aws_analytics.ANALYTICS,
    *aws_analytics.VARIED,
    *aws_block_storage.VOLUMES,
    *aws_block_storage.DEFAULTS,
    *aws_databases.DATABASES,
    *aws_databases.VARIED,
    *aws_development.DEVELOPMENT,
    *aws_development.VARIED,
    *aws_file_stores.FILE_STORES,
    *aws_messaging.MESSAGING,
    *aws_messaging.VARIED,
    *aws_object_storage.OBJECT_STORAGE,
    *aws_operations.OPERATIONS,
)
_KNOWN: Final = frozenset(each.type for each in ENTRIES)
#: Types without an entry have a reader that may say anything.
_READ: Final = frozenset(READERS) - _KNOWN
CAN_BE_PLAIN: Final = (
    frozenset(each.type for each in ENTRIES if each.can_be_plain)
    | _READ
    | {"aws:ec2/launchTemplate:LaunchTemplate"}
)
TAKE_KEY: Final = frozenset(each.type for each in ENTRIES if each.takes_key) | _READ
_REMEDY: Final = (
    "Name a customer-managed KMS key of the same region in the property that the finding names "
    "(for a bucket, sseAlgorithm aws:kms with kmsMasterKeyId), and let the service use the key in "
    "the key's policy. Keys of the alias aws/… belong to AWS. Where anybody may read the data, "
    "give the resource the tag falaj:data-class: public."
)


@rule(
    "encryption-aws-at-rest",
    "Data at rest on AWS is encrypted",
    Severity.HIGH,
    CAN_BE_PLAIN,
    (
        "iso27001:A.8.24", "uae-ia:T7.4.1", "pdpl:20", "gdpr:32", "cis-aws:3.2.1", "cis-aws:3.3.1",
        "cis-aws:6.1.1",
    ),
    "Turn encryption on in the property that the finding names. Most services can't encrypt what "
    "exists already: plan to make the resource anew from a copy.",
)  # fmt: skip
def at_rest(resource: Resource, view: View) -> Iterator[Finding]:
    """Each part of a resource's data is encrypted, with whatever key."""
    yield from unencrypted(parts_of(resource, view, READERS))


@rule(
    "encryption-aws-customer-key",
    "Data at rest on AWS is encrypted with a customer-managed key",
    Severity.HIGH,
    TAKE_KEY,
    (
        "iso27001:A.8.24", "uae-ia:T7.4.1", "uae-ia:T7.4.2", "pdpl:20", "gdpr:32", "cis-aws:4.5",
        "cis-eks:5.3.1",
    ),
    _REMEDY,
)  # fmt: skip
def customer_key(resource: Resource, view: View) -> Iterator[Finding]:
    """Each part of a resource's data is encrypted with a customer's key, as its class demands."""
    yield from without_customer_key(resource, view, parts_of(resource, view, READERS))


RULES: Final = (at_rest, customer_key)
