"""Azure: encryption at rest is nowhere turned off, covers hosts, and is doubled where it must."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from falaj.policies.model import (
    ABSENT,
    Finding,
    Requirement,
    Resource,
    Rule,
    Severity,
    View,
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
from falaj.policies.rules.encryption.azure_disks import PROFILES
from falaj.policies.rules.encryption.demands import demands_customer_key

_CONTROLS: Final = ("iso27001:A.8.24", "uae-ia:T7.4.1", "pdpl:20", "gdpr:32")

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
def _sql_backup(resource: Resource, view: View) -> Iterator[Finding]:
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
def _host(resource: Resource, view: View) -> Iterator[Finding]:
    """Disk encryption sets don't cover what a host keeps for itself.

    https://learn.microsoft.com/azure/virtual-machines/disk-encryption-overview
    """
    if not demands_customer_key(resource, view):
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
def _double(resource: Resource, view: View) -> Iterator[Finding]:
    if view.data_class(resource).strip().lower() in {"public", "internal", "confidential"}:
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
def _queues(resource: Resource, view: View) -> Iterator[Finding]:
    """Blobs and files always have the account's key; queues and tables only on request.

    https://learn.microsoft.com/azure/storage/common/account-encryption-key-create
    """
    source = text(resource.get("encryption.keySource")).lower()
    if source != "microsoft.keyvault" or not demands_customer_key(resource, view):
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
        elif view.stack is None:
            why = f"{path} isn't given; whether there are {service}s is known with the whole stack"
            yield indeterminate(path, why)
        elif found := children(view, resource, kinds, "accountName"):
            why = f"{path} isn't given, so {found[0].name} has a key of the service's own"
            yield violation(path, why)


RULES: tuple[Rule, ...] = (_OFF, _sql_backup, _host, _double, _queues)
