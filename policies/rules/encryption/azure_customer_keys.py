"""Azure: data at rest is under the customer's own key, type by type."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from falaj.policies.model import Finding, Resource, Rule, Severity, View, rule
from falaj.policies.rules.encryption import azure_companions as companions
from falaj.policies.rules.encryption import azure_disks as disks
from falaj.policies.rules.encryption import azure_stores as stores
from falaj.policies.rules.encryption.azure_contained import contained
from falaj.policies.rules.encryption.demands import Readers, merged, parts_of, without_customer_key
from falaj.policies.rules.encryption.table import readers

_CONTROLS: Final = ("iso27001:A.8.24", "uae-ia:T7.4.1", "uae-ia:T7.4.2", "pdpl:20", "gdpr:32")


#: Readers of each rule's types, by the rule's id.
KEYED: Final[dict[str, Readers]] = {
    "encryption-azure-storage-key": readers(stores.STORAGE),
    "encryption-azure-disk-key": disks.READERS,
    "encryption-azure-database-key": merged(readers(stores.DATABASES), companions.SERVERS),
    "encryption-azure-messaging-key": readers(stores.MESSAGING),
    "encryption-azure-container-key": readers(stores.CONTAINERS),
    "encryption-azure-cluster-secrets": readers(stores.CLUSTER_SECRETS),
    "encryption-azure-analytics-key": readers(stores.ANALYTICS),
    "encryption-azure-ai-key": readers(stores.INTELLIGENCE),
    "encryption-azure-backup-key": readers(stores.BACKUPS),
    "encryption-azure-log-cluster-key": readers(stores.LOG_CLUSTERS),
    "encryption-azure-log-workspace-key": companions.WORKSPACES,
    "encryption-azure-platform-key": readers(stores.PLATFORM),
}


_JUDGED: Final = merged(*KEYED.values())
#: Readers of every type that keeps data, judged by a rule or not: for maps of resources.
READERS: Final = merged(_JUDGED, contained(_JUDGED))


def _keyed(
    id: str, title: str, remediation: str, *more: str, severity: Severity = Severity.HIGH
) -> Rule:
    known = KEYED[id]

    @rule(id, title, severity, frozenset(known), (*_CONTROLS, *more), remediation)
    def check(resource: Resource, view: View) -> Iterator[Finding]:
        yield from without_customer_key(resource, view, parts_of(resource, view, known))

    return check


_WORKSPACES: Final = KEYED["encryption-azure-log-workspace-key"]


@rule(
    "encryption-azure-log-workspace-key",
    "Logs of restricted data are under a customer-managed key",
    Severity.HIGH,
    frozenset(_WORKSPACES),
    _CONTROLS,
    "Link the workspace to a dedicated cluster of logs with a key of your Key Vault "
    "(`features.clusterResourceId`, or a linked service); base Application Insights on such a "
    "workspace.",
)
def _log_workspace(resource: Resource, view: View) -> Iterator[Finding]:
    """Restricted data only: a dedicated cluster has a least price, at 100 GB a day.

    https://learn.microsoft.com/azure/azure-monitor/logs/logs-dedicated-clusters
    """
    if view.data_class(resource).strip().lower() in {"public", "internal", "confidential"}:
        return
    yield from without_customer_key(resource, view, parts_of(resource, view, _WORKSPACES))


RULES: tuple[Rule, ...] = (
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
