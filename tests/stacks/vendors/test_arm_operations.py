"""What stacks of Azure ask for, judged by Microsoft's own description of Azure's resources.

The sandbox is ours: what it takes for right, it takes for right here. These descriptions are not.
"""

from __future__ import annotations

import copy
import inspect
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import pulumi
import pulumi_azure_native
import pytest

from falaj.sandbox.inprocess import Declared
from falaj.wire import has_unknown
from tests.stacks.in_mocks import ROOT, declare
from tests.stacks.vendors.arm_judge import Attribute, attributes, problems
from tests.stacks.vendors.arm_operations import NEWER, OPERATIONS, UNJUDGED, kind_of, request
from tests.stacks.vendors.azure_configurations import CONFIGURATIONS

pytestmark = [pytest.mark.thorough, pytest.mark.slow]

STACKS = list(CONFIGURATIONS)
#: API versions of the libraries, where the provider has another one: no release of the library
#: both has that one and states bounds.
OTHER_VERSIONS = {
    "azure-native:app:ContainerApp": "2025-07-01",
    "azure-native:app:ManagedEnvironment": "2025-07-01",
    "azure-native:consumption:Budget": "2021-10-01",
    "azure-native:monitor:PrivateLinkScope": "2021-07-01-preview",
    "azure-native:monitor:PrivateLinkScopedResource": "2021-07-01-preview",
    "azure-native:operationalinsights:Cluster": "2025-07-01",
    "azure-native:operationalinsights:LinkedService": "2025-07-01",
    "azure-native:operationalinsights:Workspace": "2025-07-01",
    "azure-native:resources:ResourceGroup": "2025-04-01",
}


@cache
def _declared(stack: str) -> tuple[Declared, ...]:
    """The resources of Azure that a stack declares."""
    return tuple(
        each
        for each in declare(CONFIGURATIONS[stack], stack).resources
        if each.type.startswith("azure-native:") and each.type not in UNJUDGED
    )


@cache
def _first() -> Mapping[str, Declared]:
    """A resource of each type."""
    return {
        kind_of(each.type, each.inputs): each
        for stack in reversed(STACKS)
        for each in _declared(stack)
    }


def _judged(declared: Declared, inputs: Mapping[str, Any] | None = None) -> list[str]:
    given = declared.inputs if inputs is None else inputs
    return [
        f"{declared.type} {declared.name}: {said}"
        for said in request(declared.type, given, declared.id).said
    ]


@pytest.mark.parametrize("stack", STACKS)
def test_resources_are_as_microsoft_describes_them(stack: str) -> None:
    found = [problem for each in _declared(stack) for problem in _judged(each)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("stack", STACKS)
def test_ids_of_the_sandbox_are_the_addresses(stack: str) -> None:
    """What others refer to is where Azure has it: Azure doesn't tell letters' cases apart."""
    for each in _declared(stack):
        address = request(each.type, each.inputs, each.id).address
        # An eligibility is made by a request for it, and has the request's name.
        address = address.replace("roleEligibilityScheduleRequests", "roleEligibilitySchedules")
        assert address.lower() == each.id.lower()


@pytest.mark.parametrize("stack", STACKS)
def test_every_value_is_known_to_the_judge(stack: str) -> None:
    """The sandbox makes all that others refer to: nothing goes unjudged."""
    assert not [each.name for each in _declared(stack) if has_unknown(each.inputs)]


def test_every_type_has_its_operation() -> None:
    """Of what the stacks declare, no type is left out, and none stands there that they don't."""
    assert _first().keys() == OPERATIONS.keys()


def test_all_that_the_components_make_is_declared() -> None:
    """In one of the configurations; and what isn't judged is still made."""
    made: set[str] = set()
    for path in (ROOT / "components/azure").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        names = {alias: name for name, alias in re.findall(r"import (\w+) as (\w+)\n", text)}
        for called, kind in re.findall(r"\b(\w+)\.([A-Z]\w+)\(", text):
            module = names.get(called, called)
            found = getattr(getattr(pulumi_azure_native, module, None), kind, None)
            if inspect.isclass(found) and issubclass(found, pulumi.CustomResource):
                made.add(f"azure-native:{module}:{kind}")
    generic = "azure-native:resources:Resource"
    judged = {each if each.startswith("azure-native:") else generic for each in OPERATIONS}
    assert made == judged | UNJUDGED.keys()


def test_api_versions_are_the_providers() -> None:
    other: dict[str, str] = {}
    for token, declared in _first().items():
        if token != declared.type:
            # It names its API version itself, which is judged with it.
            continue
        _, module, name = token.split(":")
        kind = getattr(getattr(pulumi_azure_native, module), name)
        stated = re.search(r"Uses Azure REST API version (\S+)\.", inspect.getsource(kind))
        version = request(token, declared.inputs, declared.id).version
        if stated and stated[1] != version:
            other[token] = version
    assert other == OTHER_VERSIONS
    assert NEWER.keys() <= other.keys()


_REMOVED = object()
_AKS = "azure-native:containerservice:ManagedCluster"
_POOL = "azure-native:containerservice:AgentPool"
_STORE = "azure-native:storage:StorageAccount"
_VAULT = "azure-native:keyvault:Vault"
_MACHINES = "azure-native:compute:VirtualMachineScaleSet"
_VOLUME = "azure-native:netapp:CapacityPoolVolume"
_RULES = "azure-native:network:FirewallPolicyRuleCollectionGroup"


@pytest.mark.parametrize(
    ("token", "path", "value", "said"),
    [
        # Unknown names.
        (_AKS, ("networkProfile", "networkPolicyMode"), "none",
         ".properties.networkProfile.networkPolicyMode is unknown to ContainerService"),
        (_STORE, ("encryption", "requireDoubleEncryption"), True,
         ".properties.encryption.requireDoubleEncryption is unknown to Encryption"),
        (_MACHINES, ("virtualMachineProfile", "osProfile", "password"), "x",
         "osProfile.password is unknown to VirtualMachineScaleSetOSProfile"),
        (_RULES, ("ruleCollections", 0, "rules", 0, "targetHosts"), ["a"],
         ".rules[0].targetHosts is unknown to ApplicationRule"),
        # Values of lists.
        (_AKS, ("networkProfile", "outboundType"), "internet",
         ".outboundType is 'internet', which is none of loadBalancer, userDefinedRouting"),
        (_STORE, ("minimumTlsVersion",), "TLS1_4", ".minimumTlsVersion is 'TLS1_4', which is"),
        (_STORE, ("sku", "name"), "Premium_GRS", ".sku.name is 'Premium_GRS', which is none of"),
        (_VAULT, ("properties", "networkAcls", "bypass"), "All", ".bypass is 'All', which is no"),
        ("azure-native:keyvault:Key", ("properties", "keyOps"), ["seal"],
         ".keyOps[0] is 'seal', which is none of encrypt"),
        ("azure-native:monitor:AutoscaleSetting",
         ("profiles", 0, "rules", 0, "metricTrigger", "operator"), "More",
         ".operator is 'More', which is none of Equals"),
        ("azure-native:network:FirewallPolicy", ("sku", "tier"), "Gold",
         ".sku.tier is 'Gold', which is none of Standard, Premium, Basic"),
        # What is needed.
        (_STORE, ("kind",), _REMOVED, ".kind is missing"),
        (_VAULT, ("properties", "tenantId"), _REMOVED, ".properties.tenantId is missing"),
        (_VOLUME, ("creationToken",), _REMOVED, ".properties.creationToken is missing"),
        ("azure-native:authorization:RoleAssignment", ("principalId",), _REMOVED,
         ".properties.principalId is missing"),
        ("azure-native:network:Subnet", ("virtualNetworkName",), _REMOVED,
         "virtual_network_name is missing"),
        # Lengths, bounds and patterns.
        (_STORE, ("accountName",), "a" * 25, "account_name has 25 characters, of which 24 is"),
        (_VAULT, ("vaultName",), "no_underscores", "vault_name is 'no_underscores', which ^[a-z"),
        (_POOL, ("agentPoolName",), "Twelve-letters",
         "agent_pool_name is 'Twelve-letters', which ^[a-z][a-z0-9]{0,11}$ doesn't match"),
        (_AKS, ("networkProfile", "dnsServiceIP"), "10.0.0",
         ".dnsServiceIP is '10.0.0', which "),
        (_AKS, ("networkProfile", "podCidrs"), "10.244.0.0/16",
         ".podCidrs is '10.244.0.0/16', not a list"),
        (_POOL, ("osDiskSizeGB",), 4096, ".osDiskSizeGB has 4096, of which 2048 is the most"),
        (_VOLUME, ("usageThreshold",), 1, ".usageThreshold has 1, of which 53687091200 is the"),
        (_VOLUME, ("creationToken",), "1/2", ".creationToken is '1/2', which ^[a-zA-Z]"),
        ("azure-native:containerregistry:Registry", ("registryName",), "with-dashes",
         "registry_name is 'with-dashes', which ^[a-zA-Z0-9]*$ doesn't match"),
        ("azure-native:storage:BlobServiceProperties", ("deleteRetentionPolicy", "days"), 366,
         ".deleteRetentionPolicy.days has 366, of which 365 is the most"),
        ("azure-native:containerservice:MaintenanceConfiguration",
         ("maintenanceWindow", "durationHours"), 3, ".durationHours has 3, of which 4 is the"),
        ("azure-native:resources:ResourceGroup", ("resourceGroupName",), "g" * 91,
         "resource_group_name has 91 characters, of which 90 is the most"),
        # What only Azure sets.
        (_AKS, ("fqdn",), "a.example.ae", ".properties.fqdn is read-only"),
        (_AKS, ("powerState",), {"code": "Running"}, ".properties.powerState is read-only"),
        (_STORE, ("encryption", "services", "blob", "lastEnabledTime"), "2026-11-01T00:00:00Z",
         ".encryption.services.blob.lastEnabledTime is read-only"),
        ("azure-native:network:PrivateEndpoint", ("provisioningState",), "Succeeded",
         ".properties.provisioningState is read-only"),
        # Types.
        (_AKS, ("enableRBAC",), "true", ".enableRBAC is 'true', not of the type bool"),
        ("azure-native:monitor:AutoscaleSetting",
         ("profiles", 0, "rules", 0, "metricTrigger", "timeGrain"), "1 minute",
         ".timeGrain is '1 minute', not of the type duration"),
        ("azure-native:consumption:Budget", ("timePeriod", "startDate"), "November",
         ".timePeriod.startDate is 'November', not of the type iso-8601"),
        # An API version that isn't Microsoft's.
        ("Microsoft.KeyVault/managedHSMs/keys", ("apiVersion",), "2024-11-31",
         "API version 2024-11-31 isn't 2024-11-01"),
    ],
)  # fmt: skip
def test_what_azure_does_not_take_is_found(
    token: str, path: tuple[str | int, ...], value: Any, said: str
) -> None:
    declared = _first()[token]
    inputs: Any = copy.deepcopy(dict(declared.inputs))
    place = inputs
    for each in path[:-1]:
        place = place.setdefault(each, {}) if isinstance(place, dict) else place[each]
    if value is _REMOVED:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    assert any(said in each for each in _judged(declared, inputs)), _judged(declared, inputs)


def _places(model: type, body: Any) -> Iterator[tuple[type, Attribute, dict[str, Any]]]:
    """Every property that stands somewhere in a body, with its model and what it stands in."""
    for attribute in attributes(model).values():
        place: Any = body
        for key in attribute.keys[:-1]:
            place = place.get(key, {})
        value = place.get(attribute.keys[-1])
        if value is None:
            continue
        yield model, attribute, place
        kind = attribute.type.strip("[]{}")
        values = value if isinstance(value, list) else [value]
        if attribute.type[0] == "{":
            values = list(value.values())
        for each in values:
            if isinstance(each, dict) and hasattr(attribute.models, kind):
                yield from _places(attribute.model(kind, each), each)


def test_every_choice_and_every_need_in_a_body_is_judged() -> None:
    """Of one resource of each type: the judge gets to all that it is given."""
    judged: Counter[str] = Counter()
    for declared in _first().values():
        made = request(declared.type, declared.inputs, declared.id)
        model, body = made.operation.takes, copy.deepcopy(dict(made.body))
        for owner, attribute, place in list(_places(model, body)):
            last = attribute.keys[-1]
            value = place[last]
            if attribute.rules.get("required") and not attribute.rules.get("constant"):
                del place[last]
                assert any(f"{last} is missing" in each for each in problems(model, body))
                judged["needed"] += 1
            if attribute.choices:
                lists = isinstance(value, list)
                place[last] = ["no such choice"] if lists else "no such choice"
                assert any("'no such choice', which" in each for each in problems(model, body))
                judged["chosen"] += 1
            place[last] = value
            if ("",) not in (each.keys for each in attributes(owner).values()):
                place["noSuchProperty"] = 1
                assert any("noSuchProperty is unknown" in each for each in problems(model, body))
                del place["noSuchProperty"]
    assert judged["needed"] > len(OPERATIONS)
    assert judged["chosen"] > len(OPERATIONS)


def test_an_unknown_type_is_not_passed_over() -> None:
    with pytest.raises(KeyError, match="azure-native:batch:Pool"):
        request("azure-native:batch:Pool", {}, "")
