"""Encryption at rest on AWS: that there is any, and that the key is the customer's.

Every family of types has a rule for the key, and one for encryption itself where it can be off.
What is asked of a resource, by its data's class, is in `demands`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from falaj.policies.model import Finding, Resource, Rule, Severity, View
from falaj.policies.rules.encryption import (
    aws_ai_stores,
    aws_analytics,
    aws_block_storage,
    aws_databases,
    aws_development,
    aws_file_stores,
    aws_messaging,
    aws_object_storage,
    aws_operations,
)
from falaj.policies.rules.encryption.demands import (
    Readers,
    merged,
    parts_of,
    unencrypted,
    without_customer_key,
)
from falaj.policies.rules.encryption.table import Stores

_CONTROLS: Final = ("iso27001:A.8.24", "uae-ia:T7.4.1", "pdpl:20", "gdpr:32")
_KEY: Final = (
    "Name a customer-managed KMS key of the same region in the property that the finding names, "
    "and let the service use it in the key's policy; keys of the alias aws/… belong to AWS."
)
_ON: Final = (
    "Turn encryption on in the property that the finding names. What exists can't be encrypted in "
    "place by most services: plan to make the resource anew from a copy."
)


@dataclass(frozen=True)
class Family:
    """Types that are asked the same, in one pair of rules.

    Attributes:
        name: the middle of the rules' ids.
        title: what they keep, as the beginning of a sentence.
        readers: what reads each type.
        entries: the entries that the readers use, which tell what can be asked of which type.
        read_alone: types that have a reader without an entry: both rules ask them.
        controls: besides those of all encryption at rest.
        key: what to do for a customer's key.
    """

    name: str
    title: str
    readers: Readers
    entries: tuple[Stores, ...]
    read_alone: frozenset[str] = frozenset()
    controls: tuple[str, ...] = ()
    key: str = _KEY

    @property
    def rules(self) -> Iterator[Rule]:
        """The family's rules."""
        keyed = frozenset(each.type for each in self.entries if each.takes_key) | self.read_alone
        yield Rule(
            f"encryption-aws-{self.name}-key",
            "encryption",
            f"{self.title} under a customer-managed key",
            Severity.HIGH,
            keyed,
            (*_CONTROLS, "uae-ia:T7.4.2", *self.controls),
            self.key,
            self._key,
        )
        plain = frozenset(each.type for each in self.entries if each.can_be_plain)
        if plain | self.read_alone:
            yield Rule(
                f"encryption-aws-{self.name}-at-rest",
                "encryption",
                f"{self.title} encrypted at rest",
                Severity.HIGH,
                plain | self.read_alone,
                (*_CONTROLS, *self.controls),
                _ON,
                self._at_rest,
            )

    def _key(self, resource: Resource, view: View) -> Iterator[Finding]:
        parts = parts_of(resource, view, self.readers)
        yield from without_customer_key(resource, view, parts)

    def _at_rest(self, resource: Resource, view: View) -> Iterator[Finding]:
        yield from unencrypted(parts_of(resource, view, self.readers))


FAMILIES: Final = (
    Family(
        "object-storage", "Objects in S3 are", aws_object_storage.READERS,
        aws_object_storage.OBJECT_STORAGE,
        key="Set the bucket's default encryption to sseAlgorithm aws:kms with kmsMasterKeyId (in "
        "the bucket, or in a BucketServerSideEncryptionConfiguration for it), and don't let "
        "objects name another.",
    ),
    Family(
        "volume", "Volumes, their copies and machines' disks are", aws_block_storage.READERS,
        (*aws_block_storage.VOLUMES, *aws_block_storage.DEFAULTS), aws_block_storage.MACHINES,
        ("cis-aws:6.1.1",),
        key="Set encrypted: true and kmsKeyId for each block device, or once for the account: "
        "EncryptionByDefault with DefaultKmsKey. Nodes and machines take both from their launch "
        "template.",
    ),
    Family("database", "Databases and caches are", aws_databases.READERS,
           (*aws_databases.DATABASES, *aws_databases.VARIED), controls=("cis-aws:3.2.1",)),
    Family("file-store", "File systems, backups and desktops are", aws_file_stores.READERS,
           aws_file_stores.FILE_STORES, controls=("cis-aws:3.3.1",)),
    Family("messaging", "Queues, topics, streams and workflows are", aws_messaging.READERS,
           (*aws_messaging.MESSAGING, *aws_messaging.VARIED)),
    Family("ai", "Models, training data and agents' memories are", aws_ai_stores.READERS,
           aws_ai_stores.AI_STORES),
    Family("analytics", "Catalogues, jobs' data and results of queries are",
           aws_analytics.READERS, (*aws_analytics.ANALYTICS, *aws_analytics.VARIED),
           aws_analytics.DOCUMENTS),
    Family("cluster", "Clusters' secrets and sessions are", aws_development.CLUSTERS,
           aws_development.CLUSTER_STORES, controls=("cis-eks:5.3.1",)),
    Family("development", "Images, builds and functions' settings are", aws_development.READERS,
           (*aws_development.DEVELOPMENT, *aws_development.VARIED)),
    Family("secret", "Secrets are", aws_operations.SECRETS, aws_operations.SECRET_STORES),
    Family("log", "Logs, trails and findings are", aws_operations.LOGS,
           aws_operations.LOG_STORES, aws_operations.SESSIONS,
           controls=("cis-aws:4.5",)),
    Family("network", "What network services keep is", aws_operations.NETWORKS,
           aws_operations.NETWORK_STORES),
)  # fmt: skip

#: What reads each type, of all families.
READERS: Final[Readers] = merged(*(each.readers for each in FAMILIES))
RULES: Final = tuple(rule for each in FAMILIES for rule in each.rules)
