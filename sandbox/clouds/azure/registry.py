"""All types that the model knows, and what is derived for those that it doesn't."""

from __future__ import annotations

import re
from functools import cache
from types import ModuleType
from typing import Final

from falaj.sandbox.clouds.azure import kinds
from falaj.sandbox.clouds.azure.kinds import AzureKind
from falaj.sandbox.clouds.azure.naming import SCOPES
from falaj.sandbox.clouds.azure.resources import shape
from falaj.sandbox.clouds.azure.services import (
    access,
    compute,
    containers,
    edge,
    files,
    governance,
    key_vault,
    kubernetes,
    monitor,
    network,
    node_pools,
    private_link,
    storage,
)

SERVICES: Final[tuple[ModuleType, ...]] = (
    access, compute, containers, edge, files, governance, key_vault, kubernetes, monitor,
    network, node_pools, private_link, storage,
)  # fmt: skip

for _service in SERVICES:
    kinds.add_kinds(_service.KINDS)


# The namespaces whose spelling isn't the module's with a capital letter. Letter case doesn't count
# in an id; this is for the reader's sake.
_NAMESPACES: Final = {
    "aad": "AAD",
    "alertsmanagement": "AlertsManagement",
    "apimanagement": "ApiManagement",
    "appconfiguration": "AppConfiguration",
    "applicationinsights": "Insights",
    "automanage": "AutoManage",
    "certificateregistration": "CertificateRegistration",
    "cognitiveservices": "CognitiveServices",
    "confidentialledger": "ConfidentialLedger",
    "containerinstance": "ContainerInstance",
    "containerregistry": "ContainerRegistry",
    "containerservice": "ContainerService",
    "cosmosdb": "DocumentDB",
    "costmanagement": "CostManagement",
    "customproviders": "CustomProviders",
    "databox": "DataBox",
    "datafactory": "DataFactory",
    "dataprotection": "DataProtection",
    "datashare": "DataShare",
    "dbformysql": "DBforMySQL",
    "dbforpostgresql": "DBforPostgreSQL",
    "desktopvirtualization": "DesktopVirtualization",
    "dns": "Network",
    "dnsresolver": "Network",
    "elasticsan": "ElasticSan",
    "eventgrid": "EventGrid",
    "eventhub": "EventHub",
    "extendedlocation": "ExtendedLocation",
    "frontdoor": "Network",
    "guestconfiguration": "GuestConfiguration",
    "hdinsight": "HDInsight",
    "hybridcompute": "HybridCompute",
    "keyvault": "KeyVault",
    "kubernetesconfiguration": "KubernetesConfiguration",
    "loadtestservice": "LoadTestService",
    "machinelearning": "MachineLearning",
    "machinelearningservices": "MachineLearningServices",
    "managedidentity": "ManagedIdentity",
    "managedservices": "ManagedServices",
    "monitor": "Insights",
    "netapp": "NetApp",
    "notificationhubs": "NotificationHubs",
    "operationalinsights": "OperationalInsights",
    "operationsmanagement": "OperationsManagement",
    "policyinsights": "PolicyInsights",
    "powerbidedicated": "PowerBIDedicated",
    "privatedns": "Network",
    "recoveryservices": "RecoveryServices",
    "redis": "Cache",
    "redisenterprise": "Cache",
    "resourcehealth": "ResourceHealth",
    "securityinsights": "SecurityInsights",
    "servicebus": "ServiceBus",
    "servicefabric": "ServiceFabric",
    "servicenetworking": "ServiceNetworking",
    "signalrservice": "SignalRService",
    "storagecache": "StorageCache",
    "storagesync": "StorageSync",
    "streamanalytics": "StreamAnalytics",
    "trafficmanager": "Network",
    "virtualmachineimages": "VirtualMachineImages",
    "webpubsub": "SignalRService",
}
_TOKEN: Final = re.compile(r"azure-native:([A-Za-z]\w*)(?:/v\w+)?:([A-Za-z]\w*)")


def kind_of(token: str) -> AzureKind:
    """The row of the table, or one that is derived for a type that the table doesn't have."""
    return kinds.kind_of(token) or _derived(token)


@cache
def _derived(token: str) -> AzureKind:
    matched = _TOKEN.fullmatch(token)
    module, name = matched.groups() if matched else ("sandbox", "Resource")
    known = shape(f"azure-native:{module}:{name}")
    inputs = known.inputs if known else frozenset[str]()
    required = known.required if known else frozenset[str]()
    own = _own_name(name, inputs - required)
    parents = [
        item
        for item in sorted(required)
        if item.endswith("Name") and item not in {"resourceGroupName", own}
    ]
    path = f"Microsoft.{_NAMESPACES.get(module, module[:1].upper() + module[1:])}"
    for parent in parents:
        path += f"/{_plural(parent.removesuffix('Name'))}/{{{parent}}}"
    path += f"/{_plural(name[:1].lower() + name[1:])}/{{{own or 'unnamed'}}}"
    scope = next((item for item in sorted(required) if item in SCOPES), None)
    if scope:
        path = f"{{{scope}}}/providers/{path}"
    elif known and "resourceGroupName" not in inputs:
        path = f"/subscriptions/{{subscriptionId}}/providers/{path}"
    return AzureKind(token, path, location="any", autoname=None if own else "uuid")


def _own_name(type_name: str, optional: frozenset[str]) -> str | None:
    """The input that names the resource: the one whose words end the type's own name.

    None when there is none, as where Azure makes the name.
    """
    wanted = type_name.lower()
    stems = {
        item: stem
        for item in optional
        if item.endswith("Name") and (stem := item.removesuffix("Name").lower())
    }
    fitting = [item for item, stem in stems.items() if wanted.endswith(stem)]
    if fitting:
        return max(fitting, key=lambda item: (len(stems[item]), item))
    similar = [item for item, stem in stems.items() if stem in wanted or wanted in stem]
    if similar:
        return max(similar, key=lambda item: (len(stems[item]), item))
    for item in ("name", "resourceName"):
        if item in optional:
            return item
    return min(stems, default=None)


def _plural(noun: str) -> str:
    if noun.endswith(("s", "x", "ch", "sh")):
        return noun if noun.endswith("s") else f"{noun}es"
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        return f"{noun[:-1]}ies"
    return f"{noun}s"
