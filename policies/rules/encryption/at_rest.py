"""Data at rest is encrypted, with a customer's key where its class demands one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Literal

from falaj.policies.model import (
    ABSENT,
    Context,
    Finding,
    Requirement,
    Resource,
    Rule,
    Severity,
    Stack,
    get,
    indeterminate,
    is_true,
    requirement_rule,
    rule,
    select,
    text,
    unmet,
    violation,
)
from falaj.policies.model.values import Unknown
from falaj.policies.reading.azure_children import children
from falaj.policies.reading.types import azure
from falaj.policies.rules.encryption import aws_readers, aws_tables, azure_tables
from falaj.policies.rules.encryption.azure_tables import PROFILES, contained
from falaj.policies.rules.encryption.stores import (
    Part,
    Readers,
    State,
    Stores,
    demands_customer_key,
    merged,
    parts_of,
    readers,
    unencrypted,
    without_customer_key,
)

# Encryption at rest on AWS: that there is any, and that the key is the customer's.
#
# Every family of types has a rule for the key, and one for encryption itself where it can be off.
# What is asked of a resource, by its data's class, is in `stores`.

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

    def _key(self, resource: Resource, context: Context) -> Iterator[Finding]:
        parts = parts_of(resource, context, self.readers)
        yield from without_customer_key(resource, context, parts)

    def _at_rest(self, resource: Resource, context: Context) -> Iterator[Finding]:
        yield from unencrypted(parts_of(resource, context, self.readers))


FAMILIES: Final = (
    Family(
        "object-storage", "Objects in S3 are", aws_readers.OBJECT_STORAGE_READERS,
        aws_readers.OBJECT_STORAGE,
        key="Set the bucket's default encryption to sseAlgorithm aws:kms with kmsMasterKeyId (in "
        "the bucket, or in a BucketServerSideEncryptionConfiguration for it), and don't let "
        "objects name another.",
    ),
    Family(
        "volume", "Volumes, their copies and machines' disks are",
        aws_readers.BLOCK_STORAGE_READERS,
        (*aws_readers.VOLUMES, *aws_readers.DEFAULTS), aws_readers.MACHINES,
        ("cis-aws:6.1.1",),
        key="Set encrypted: true and kmsKeyId for each block device, or once for the account: "
        "EncryptionByDefault with DefaultKmsKey. Nodes and machines take both from their launch "
        "template.",
    ),
    Family("database", "Databases and caches are", aws_tables.DATABASES_READERS,
           (*aws_tables.DATABASES, *aws_tables.DATABASES_VARIED), controls=("cis-aws:3.2.1",)),
    Family("file-store", "File systems, backups and desktops are", aws_tables.FILE_READERS,
           aws_tables.FILE_STORES, controls=("cis-aws:3.3.1",)),
    Family("messaging", "Queues, topics, streams and workflows are", aws_tables.MESSAGING_READERS,
           (*aws_tables.MESSAGING, *aws_tables.MESSAGING_VARIED)),
    Family("ai", "Models, training data and agents' memories are", aws_tables.AI_READERS,
           aws_tables.AI_STORES),
    Family("analytics", "Catalogues, jobs' data and results of queries are",
           aws_tables.ANALYTICS_READERS, (*aws_tables.ANALYTICS, *aws_tables.ANALYTICS_VARIED),
           aws_tables.DOCUMENTS),
    Family("cluster", "Clusters' secrets and sessions are", aws_tables.CLUSTERS,
           aws_tables.CLUSTER_STORES, controls=("cis-eks:5.3.1",)),
    Family("development", "Images, builds and functions' settings are",
           aws_tables.DEVELOPMENT_READERS,
           (*aws_tables.DEVELOPMENT, *aws_tables.DEVELOPMENT_VARIED)),
    Family("secret", "Secrets are", aws_tables.SECRETS, aws_tables.SECRET_STORES),
    Family("log", "Logs, trails and findings are", aws_tables.LOGS,
           aws_tables.LOG_STORES, aws_tables.SESSIONS,
           controls=("cis-aws:4.5",)),
    Family("network", "What network services keep is", aws_tables.NETWORKS,
           aws_tables.NETWORK_STORES),
)  # fmt: skip

#: What reads each type, of all families.
AWS_READERS: Final[Readers] = merged(*(each.readers for each in FAMILIES))
_AWS_RULES: Final = tuple(rule for each in FAMILIES for rule in each.rules)


# Azure: data at rest is under the customer's own key, type by type.

_CUSTOMER_KEYS_CONTROLS: Final = (
    "iso27001:A.8.24",
    "uae-ia:T7.4.1",
    "uae-ia:T7.4.2",
    "pdpl:20",
    "gdpr:32",
)


#: Readers of each rule's types, by the rule's id.
KEYED: Final[dict[str, Readers]] = {
    "encryption-azure-storage-key": readers(azure_tables.STORAGE),
    "encryption-azure-disk-key": azure_tables.READERS,
    "encryption-azure-database-key": merged(readers(azure_tables.DATABASES), azure_tables.SERVERS),
    "encryption-azure-messaging-key": readers(azure_tables.MESSAGING),
    "encryption-azure-container-key": readers(azure_tables.CONTAINERS),
    "encryption-azure-cluster-secrets": readers(azure_tables.CLUSTER_SECRETS),
    "encryption-azure-analytics-key": readers(azure_tables.ANALYTICS),
    "encryption-azure-ai-key": readers(azure_tables.INTELLIGENCE),
    "encryption-azure-backup-key": readers(azure_tables.BACKUPS),
    "encryption-azure-log-cluster-key": readers(azure_tables.LOG_CLUSTERS),
    "encryption-azure-log-workspace-key": azure_tables.WORKSPACES,
    "encryption-azure-platform-key": readers(azure_tables.PLATFORM),
}


_JUDGED: Final = merged(*KEYED.values())
#: Readers of every type that keeps data, judged by a rule or not: for maps of resources.
CUSTOMER_KEYS_READERS: Final = merged(_JUDGED, contained(_JUDGED))


def _keyed(
    id: str, title: str, remediation: str, *more: str, severity: Severity = Severity.HIGH
) -> Rule:
    known = KEYED[id]

    @rule(id, title, severity, frozenset(known), (*_CUSTOMER_KEYS_CONTROLS, *more), remediation)
    def check(resource: Resource, context: Context) -> Iterator[Finding]:
        yield from without_customer_key(resource, context, parts_of(resource, context, known))

    return check


_WORKSPACES: Final = KEYED["encryption-azure-log-workspace-key"]


@rule(
    "encryption-azure-log-workspace-key",
    "Logs of restricted data are under a customer-managed key",
    Severity.HIGH,
    frozenset(_WORKSPACES),
    _CUSTOMER_KEYS_CONTROLS,
    "Link the workspace to a dedicated cluster of logs with a key of your Key Vault "
    "(`features.clusterResourceId`, or a linked service); base Application Insights on such a "
    "workspace.",
)
def _log_workspace(resource: Resource, context: Context) -> Iterator[Finding]:
    """Restricted data only: a dedicated cluster has a least price, at 100 GB a day.

    https://learn.microsoft.com/azure/azure-monitor/logs/logs-dedicated-clusters
    """
    if not context.is_restricted(resource):
        return
    yield from without_customer_key(resource, context, parts_of(resource, context, _WORKSPACES))


_CUSTOMER_KEYS_RULES: tuple[Rule, ...] = (
    _keyed(
        "encryption-azure-storage-key",
        "Storage accounts and file services are under a customer-managed key",
        "Name a key of your Key Vault: `encryption.keySource` Microsoft.Keyvault with "
        "`encryption.keyVaultProperties` and an identity that may use the key.",
        "cis-azure:6.1.1.3",
    ),
    _keyed(
        "encryption-azure-disk-key",
        "Disks, snapshots, images, machines and clusters use a disk encryption set",
        "Make a DiskEncryptionSet with a key of your Key Vault and name it where the finding "
        "points.",
    ),
    _keyed(
        "encryption-azure-database-key",
        "Databases are under a customer-managed key",
        "Name a key of your Key Vault for the server, cluster or account, and give its identity "
        "the right to wrap and unwrap with it.",
    ),
    _keyed(
        "encryption-azure-messaging-key",
        "Message brokers are under a customer-managed key",
        "Use the Premium tier (or a dedicated cluster) and name a key of your Key Vault in "
        "`encryption.keyVaultProperties`.",
    ),
    _keyed(
        "encryption-azure-container-key",
        "Registries and container groups are under a customer-managed key",
        "Name a key of your Key Vault: for a registry in the Premium tier `encryption.status` "
        "enabled with `encryption.keyVaultProperties`, for a container group "
        "`encryptionProperties`.",
    ),
    _keyed(
        "encryption-azure-cluster-secrets",
        "Secrets of Kubernetes clusters are under a customer-managed key",
        "Turn on `securityProfile.azureKeyVaultKms` with the id of a key in your Key Vault.",
        "cis-aks:5.3.1",
    ),
    _keyed(
        "encryption-azure-analytics-key",
        "Data factories and analytics workspaces are under a customer-managed key",
        "Name a key of your Key Vault where the finding points; Synapse workspaces take one only "
        "when they are made.",
    ),
    _keyed(
        "encryption-azure-ai-key",
        "AI, search and health services are under a customer-managed key",
        "Name a key of your Key Vault where the finding points; for a search service enforce "
        "keys for its indexes with `encryptionWithCmk.enforcement` Enabled.",
    ),
    _keyed(
        "encryption-azure-backup-key",
        "Backup vaults are under a customer-managed key",
        "Name a key of your Key Vault in the vault's encryption settings before the first item "
        "is protected; afterwards Azure refuses it.",
    ),
    _keyed(
        "encryption-azure-log-cluster-key",
        "Dedicated clusters of logs are under a customer-managed key",
        "Name a key of your Key Vault in `keyVaultProperties`.",
    ),
    _log_workspace,
    _keyed(
        "encryption-azure-platform-key",
        "Configuration stores, automation and other services are under a customer-managed key",
        "Name a key of your Key Vault where the finding points.",
    ),
)


# Azure: encryption at rest is nowhere turned off, covers hosts, and is doubled where it must.


_OFF: Final = requirement_rule(
    "encryption-azure-at-rest",
    "Encryption at rest is turned off nowhere",
    Severity.HIGH,
    {
        azure("sql:TransparentDataEncryption"): (
            Requirement("state", ("enabled",)),
            Requirement("status", ("enabled",)),
        ),
        azure("synapse:SqlPoolTransparentDataEncryption"): (Requirement("status", ("enabled",)),),
        azure("datalakestore:Account"): (Requirement("encryptionState", ("enabled",)),),
        azure("automation:Variable"): (Requirement("isEncrypted", ("true",), "false"),),
        azure("storage:StorageAccount"): tuple(
            Requirement(f"encryption.services.{each}.enabled", ("true",))
            for each in ("blob", "file", "queue", "table")
        ),
    },
    _CONTROLS,
    "Turn encryption on where the finding points, or leave the setting out.",
)

_BACKED_UP: Final = azure("sqlvirtualmachine:SqlVirtualMachine")


@rule(
    "encryption-azure-sql-backup",
    "Backups of SQL Server on machines are encrypted",
    Severity.HIGH,
    _BACKED_UP,
    (*_CONTROLS, "iso27001:A.8.13"),
    "Set `autoBackupSettings.enableEncryption` to true, with a password from your Key Vault.",
)
def _sql_backup(resource: Resource, context: Context) -> Iterator[Finding]:
    wanted = resource.get("autoBackupSettings.enable")
    path = "autoBackupSettings.enableEncryption"
    encrypted = resource.get(path)
    if not isinstance(wanted, Unknown) and not is_true(wanted):
        return
    if isinstance(encrypted, Unknown):
        yield indeterminate(path, f"{path} {encrypted.reason}")
    elif not is_true(encrypted):
        given = "isn't given, and is off by default" if encrypted is ABSENT else "is off"
        if isinstance(wanted, Unknown):
            yield indeterminate(
                path, f"{path} {given}, and nobody knows whether there are backups"
            )
        else:
            yield violation(path, f"{path} {given}; backups must be encrypted")


#: Switches for encryption at the host, by type: the path of the blocks that have one, the switch
#: within, and the words that turn it on.
_SWITCHES: Final[dict[str, tuple[tuple[str, str], ...]]] = {
    token: switches
    for names, switches in (
        (("containerservice:AgentPool",), (("", "enableEncryptionAtHost"),)),
        (
            ("containerservice:ManagedCluster",),
            (("agentPoolProfiles", "enableEncryptionAtHost"),),
        ),
        (("servicefabric:NodeType",), (("", "enableEncryptionAtHost"),)),
        (
            ("redhatopenshift:OpenShiftCluster",),
            (("masterProfile", "encryptionAtHost"), ("workerProfiles", "encryptionAtHost")),
        ),
        (
            ("hdinsight:Cluster",),
            (("", "properties.diskEncryptionProperties.encryptionAtHost"),),
        ),
        (("kusto:Cluster",), (("", "enableDiskEncryption"),)),
    )
    for name in names
    for token in azure(name)
}
_MACHINES: Final = {
    token: path.removesuffix("storageProfile")
    for token, path in PROFILES.items()
    if not token.endswith("ScaleSetVM")
}
_POOLS: Final = azure("batch:Pool")
_POOL: Final = "deploymentConfiguration.virtualMachineConfiguration"


@rule(
    "encryption-azure-host",
    "Caches and temporary disks are encrypted at the host",
    Severity.MEDIUM,
    frozenset(_SWITCHES) | frozenset(_MACHINES) | _POOLS,
    _CONTROLS,
    "Turn encryption at host on (`encryptionAtHost`, `enableEncryptionAtHost`, or for Data "
    "Explorer `enableDiskEncryption`); sizes of machines that can't do it are in Azure's list.",
)
def _host(resource: Resource, context: Context) -> Iterator[Finding]:
    """Disk encryption sets don't cover what a host keeps for itself.

    https://learn.microsoft.com/azure/virtual-machines/disk-encryption-overview
    """
    if not demands_customer_key(resource, context):
        return
    if resource.kind in _MACHINES:
        yield from _machine(resource, _MACHINES[resource.kind])
    elif resource.kind in _POOLS:
        targets = f"{_POOL}.diskEncryptionConfiguration.targets"
        given = [text(each).lower() for _, each in select(resource.properties, targets)]
        if "temporarydisk" not in given:
            yield from _on(resource.properties, f"{_POOL}.securityProfile.encryptionAtHost", "")
    else:
        for blocks, switch in _SWITCHES.get(resource.kind, ()):
            if not blocks:
                yield from _on(resource.properties, switch, "")
                continue
            for at, block in select(resource.properties, blocks):
                if isinstance(block, Unknown):
                    yield indeterminate(at, f"{at} {block.reason}")
                else:
                    yield from _on(block, switch, f"{at}.")


def _on(block: Any, path: str, prefix: str) -> Iterator[Finding]:
    value = get(block, path)
    where = prefix + path
    if isinstance(value, Unknown):
        yield indeterminate(where, f"{where} {value.reason}")
    elif not (is_true(value) or text(value).lower() == "enabled"):
        given = "isn't given, and is off by default" if value is ABSENT else "is off"
        yield violation(where, f"{where} {given}; caches and temporary disks stay in plain text")


def _machine(resource: Resource, root: str) -> Iterator[Finding]:
    """Machines under Azure Disk Encryption, and confidential ones whose disks are sealed, take no
    encryption at host; a scale set without a profile has no machines yet."""
    profile = get(resource.properties, root.rstrip(".")) if root else resource.properties
    if profile is ABSENT:
        return
    disk = get(profile, "storageProfile.osDisk")
    sealed = text(get(disk, "managedDisk.securityProfile.securityEncryptionType")).lower()
    if sealed == "diskwithvmgueststate" or is_true(get(disk, "encryptionSettings.enabled")):
        return
    yield from _on(resource.properties, f"{root}securityProfile.encryptionAtHost", "")


_DOUBLED: Final = {
    azure("storage:StorageAccount"): Requirement(
        "encryption.requireInfrastructureEncryption", ("true",), "false"
    ),
    azure("storage:EncryptionScope"): Requirement(
        "requireInfrastructureEncryption", ("true",), "false"
    ),
    azure("compute:DiskEncryptionSet"): Requirement(
        "encryptionType",
        ("encryptionatrestwithplatformandcustomerkeys", "confidentialvmencryptedwithcustomerkey"),
        "encryptionatrestwithcustomerkey",
    ),
    azure("servicebus:Namespace", "eventhub:Namespace"): Requirement(
        "encryption.requireInfrastructureEncryption", ("true",), "false"
    ),
    azure("recoveryservices:Vault"): Requirement(
        "properties.encryption.infrastructureEncryption", ("enabled",), "disabled"
    ),
    azure("dataprotection:BackupVault"): Requirement(
        "properties.securitySettings.encryptionSettings.infrastructureEncryption",
        ("enabled",),
        "disabled",
    ),
    azure("netapp:CapacityPool"): Requirement("encryptionType", ("double",), "single"),
    azure("kusto:Cluster"): Requirement("enableDoubleEncryption", ("true",), "false"),
    azure("operationalinsights:Cluster"): Requirement(
        "isDoubleEncryptionEnabled", ("true",), "true"
    ),
}
_DOUBLED_BY_TYPE: Final = {
    token: demand for tokens, demand in _DOUBLED.items() for token in tokens
}


@rule(
    "encryption-azure-double",
    "Restricted data is encrypted twice, with two keys",
    Severity.MEDIUM,
    frozenset(_DOUBLED_BY_TYPE),
    _CONTROLS,
    "Turn infrastructure (double) encryption on; for most services that is possible only when "
    "they are made.",
)
def _double(resource: Resource, context: Context) -> Iterator[Finding]:
    if not context.is_restricted(resource):
        return
    demand = _DOUBLED_BY_TYPE.get(resource.kind)
    if demand is not None:
        yield from unmet(resource, (demand,))


_ACCOUNTS: Final = azure("storage:StorageAccount")
_USERS: Final = {"queue": azure("storage:Queue"), "table": azure("storage:Table")}


@rule(
    "encryption-azure-queue-key",
    "Queues and tables are under the account's customer-managed key",
    Severity.MEDIUM,
    _ACCOUNTS,
    (*_CONTROLS, "uae-ia:T7.4.2"),
    "Set `encryption.services.queue.keyType` and `encryption.services.table.keyType` to Account; "
    "Azure allows it only when the account is made.",
)
def _queues(resource: Resource, context: Context) -> Iterator[Finding]:
    """Blobs and files always have the account's key; queues and tables only on request.

    https://learn.microsoft.com/azure/storage/common/account-encryption-key-create
    """
    source = text(resource.get("encryption.keySource")).lower()
    if source != "microsoft.keyvault" or not demands_customer_key(resource, context):
        return
    for service, kinds in _USERS.items():
        path = f"encryption.services.{service}.keyType"
        value = resource.get(path)
        if isinstance(value, Unknown):
            yield indeterminate(path, f"{path} {value.reason}")
        elif text(value).lower() == "account":
            continue
        elif text(value).lower() == "service":
            yield violation(path, f"{service}s have a key of the service's own")
        elif context.stack is None:
            why = f"{path} isn't given; whether there are {service}s is known with the whole stack"
            yield indeterminate(path, why)
        elif found := children(context, resource, kinds, "accountName"):
            why = f"{path} isn't given, so {found[0].name} has a key of the service's own"
            yield violation(path, why)


RULES: tuple[Rule, ...] = (
    *_AWS_RULES,
    *_CUSTOMER_KEYS_RULES,
    _OFF,
    _sql_backup,
    _host,
    _double,
    _queues,
)


# What encrypts a resource's data at rest: for reports' maps of resources.
#
# The tables are those of the pack's rules, so a map and a judgement never disagree.

AtRest = Literal[State, "not stored here"]

#: Of several parts, the worst is what counts.
_WORST_FIRST: Final[tuple[AtRest, ...]] = ("none", "unknown", "service key", "customer key")


@dataclass(frozen=True)
class Encryption:
    """What encrypts a resource's data at rest."""

    at_rest: AtRest
    """The worst of what holds for its parts; ``not stored here`` where it keeps nothing, or is of
    a type that no table knows."""
    key: str = ""
    """The customer's key as the resource names it; empty where none is named or can be seen."""


@cache
def _readers() -> Readers:
    return merged(AWS_READERS, CUSTOMER_KEYS_READERS)


def encryption_of(resource: Resource, stack: Stack | None = None) -> Encryption:
    """What encrypts a resource's data at rest. Never raises.

    Args:
        resource: of any cloud.
        stack: to look up keys that aren't made yet, and companions such as a bucket's settings.
    """
    parts = list(parts_of(resource, Context(stack=stack), _readers()))
    if not parts:
        return Encryption("not stored here")
    worst = min(parts, key=_rank)
    return Encryption(worst.state, worst.key or next((each.key for each in parts if each.key), ""))


def _rank(part: Part) -> int:
    return _WORST_FIRST.index(part.state)
