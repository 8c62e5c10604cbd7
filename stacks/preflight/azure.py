"""Asks Azure: SKUs and their restrictions by zone, quotas, reservations, features, permissions.

Everything is read only, from Azure Resource Manager.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from falaj.components import catalogue
from falaj.components.specification.node_pools import AKS_SYSTEM_POOL
from falaj.stacks.preflight import Finding, Need, NotAskedError, Vcpus

ENDPOINT = "https://management.azure.com"
#: Versions of the interfaces that are read.
_SKUS, _USAGES, _GROUPS, _FEATURES, _PERMISSIONS, _NETWORK = (
    "2021-07-01", "2024-07-01", "2024-07-01", "2021-07-01", "2022-04-01", "2024-05-01",
)  # fmt: skip
_WATCHERS = "/providers/Microsoft.Network/networkWatchers"
#: Features that have to be registered once for each subscription: AKS's host encryption.
_NEEDED_FEATURES = (("Microsoft.Compute", "EncryptionAtHost"),)
#: The same for pools whose machines are linked by InfiniBand: https://github.com/Azure/
#: aks-rdma-infiniband/blob/main/website/docs/getting-started/02-prerequisites.md
_INFINIBAND_FEATURE = ("Microsoft.ContainerService", "AKSInfinibandSupport")
_ACTIONS = (
    "Microsoft.Resources/subscriptions/resourceGroups/write",
    "Microsoft.Network/virtualNetworks/write", "Microsoft.KeyVault/vaults/write",
    "Microsoft.Storage/storageAccounts/write", "Microsoft.ContainerRegistry/registries/write",
    "Microsoft.ContainerService/managedClusters/write",
    "Microsoft.Authorization/roleAssignments/write",
    "Microsoft.Authorization/roleDefinitions/write",
)  # fmt: skip

Get = Callable[[str, str], Mapping[str, Any]]
"""Reads a path of Azure Resource Manager in a version of its interface."""


def connect(credential: Any = None, endpoint: str = ENDPOINT) -> tuple[str, Get]:
    """The subscription, and a reader with the credentials that are there.

    Raises:
        NotAskedError: there is no subscription or there are no credentials.
    """
    from azure.core.exceptions import AzureError, ClientAuthenticationError  # noqa: PLC0415
    from azure.core.pipeline.policies import RetryPolicy  # noqa: PLC0415 - extras, all of them
    from azure.core.rest import HttpRequest  # noqa: PLC0415
    from azure.identity import DefaultAzureCredential  # noqa: PLC0415
    from azure.mgmt.core import ARMPipelineClient  # noqa: PLC0415
    from azure.mgmt.core.policies import ARMChallengeAuthenticationPolicy  # noqa: PLC0415

    names = ("ARM_SUBSCRIPTION_ID", "AZURE_SUBSCRIPTION_ID")
    subscription = next((os.environ[name] for name in names if os.environ.get(name)), None)
    if subscription is None:
        raise NotAskedError(
            "Azure could not be asked: no subscription is named\n"
            "  set ARM_SUBSCRIPTION_ID, log in with `az login`, and run it again"
        )
    found = credential or DefaultAzureCredential(exclude_interactive_browser_credential=True)
    policies: list[Any] = [RetryPolicy(retry_total=2)]
    if endpoint.startswith("https:"):
        policies.append(ARMChallengeAuthenticationPolicy(found, f"{ENDPOINT}/.default"))
    client = ARMPipelineClient[HttpRequest, Any](base_url=endpoint, policies=policies)

    def get(path: str, version: str) -> Mapping[str, Any]:
        url = path if path.startswith(endpoint) else f"{endpoint}{path}"
        mark = "&" if "?" in url else "?"
        asked = url if "api-version" in url else f"{url}{mark}api-version={version}"
        request = HttpRequest("GET", asked)
        try:
            response = client.send_request(request)
            response.raise_for_status()
        except ClientAuthenticationError as error:
            first = " ".join(str(error).split())[:300]
            raise NotAskedError(f"Azure could not be asked: {first}") from None
        except AzureError as error:
            raise LookupError(" ".join(str(error).split())[:300]) from None
        return response.json()

    return subscription, get


def ask(
    subscription: str, get: Get, place: catalogue.Place, needs: Sequence[Need]
) -> Iterator[Finding]:
    """What Azure says about the place and what the stack needs there.

    Raises:
        NotAskedError: the credentials were refused.
    """
    base = f"/subscriptions/{subscription}"
    questions: list[tuple[str, Callable[[], Iterator[Finding]]]] = [
        ("subscription", lambda: _subscription(get, base)),
        ("offerings", lambda: _offerings(get, base, place, needs)),
        ("quota", lambda: _quotas(get, base, place, needs)),
        ("reservation", lambda: _reservations(get, needs)),
        ("features", lambda: _features(get, base, needs)),
        ("flow logs", lambda: _watcher(get, base, place)),
        ("permissions", lambda: _permissions(get, base)),
    ]
    for subject, question in questions:
        try:
            yield from question()
        except (LookupError, ValueError) as error:
            yield Finding("unknown", subject, f"Azure did not answer: {error}")


def _pages(get: Get, path: str, version: str) -> Iterator[Mapping[str, Any]]:
    following: str | None = path
    while following:
        answer = get(following, version)
        yield from answer.get("value", [])
        following = answer.get("nextLink")


def _subscription(get: Get, base: str) -> Iterator[Finding]:
    found = get(base, "2022-12-01")
    level = "ok" if found.get("state") == "Enabled" else "problem"
    yield Finding(level, "subscription", f"{found.get('displayName')} is {found.get('state')}")


def _skus(get: Get, base: str, place: catalogue.Place) -> dict[str, Mapping[str, Any]]:
    path = f"{base}/providers/Microsoft.Compute/skus?$filter=location eq '{place.region}'"
    return {
        sku["name"]: sku
        for sku in _pages(get, path.replace(" ", "%20"), _SKUS)
        if sku.get("resourceType") == "virtualMachines"
    }


def _offerings(
    get: Get, base: str, place: catalogue.Place, needs: Sequence[Need]
) -> Iterator[Finding]:
    if not needs:
        return
    sold = _skus(get, base, place)
    for need in needs:
        subject, name = f"pool {need.name}", need.machine.name
        sku = sold.get(name)
        if sku is None:
            yield Finding("problem", subject, f"{name} is not sold in {place.region}")
            continue
        zones = {zone for info in sku.get("locationInfo", []) for zone in info.get("zones", [])}
        reasons = [r for r in sku.get("restrictions", []) if r.get("type") == "Location"]
        closed = {
            zone
            for restriction in sku.get("restrictions", [])
            if restriction.get("type") == "Zone"
            for zone in restriction.get("restrictionInfo", {}).get("zones", [])
        }
        free = sorted(zones - closed)
        if reasons:
            why = ", ".join(sorted({str(r.get("reasonCode")) for r in reasons}))
            yield Finding(
                "problem", subject, f"{name} is closed to this subscription ({why}); ask for it"
            )
        elif not set(need.zones) <= set(free):
            # AKS refuses the whole pool for one zone: AvailabilityZoneNotSupported.
            yield Finding(
                "problem", subject,
                f"{name} is open in zones {', '.join(free) or 'none'}; wanted: "
                f"{', '.join(need.zones)}; name open ones in 'zones'"
                + (" of falaj:network" if need.name == AKS_SYSTEM_POOL else ""),
            )  # fmt: skip
        else:
            yield Finding("ok", subject, f"{name} is open in zones {', '.join(free) or 'none'}")


def _quotas(
    get: Get, base: str, place: catalogue.Place, needs: Sequence[Need]
) -> Iterator[Finding]:
    if not needs:
        return
    sold = _skus(get, base, place)
    path = f"{base}/providers/Microsoft.Compute/locations/{place.region}/usages"
    usages = {usage["name"]["value"].lower(): usage for usage in _pages(get, path, _USAGES)}
    asked: dict[str, Vcpus] = {}
    for need in needs:
        sku = sold.get(need.machine.name)
        if sku is None or need.machine.vcpu is None:
            continue
        family = "lowprioritycores" if need.spot else str(sku.get("family", "")).lower()
        asked.setdefault(family, Vcpus()).add(need, need.machine.vcpu)
    for family, vcpus in sorted(asked.items()):
        usage = usages.get(family)
        if usage is None:
            yield Finding("unknown", "quota", f"Azure names no quota for {family}")
            continue
        free = int(usage["limit"]) - int(usage["currentValue"])
        name = usage["name"].get("localizedValue", family)
        text = f"{name}: {free} vCPUs free of {usage['limit']}, {vcpus}"
        if vcpus.most > free:
            yield Finding("problem", "quota", f"{text}; ask for more, or lower maxNodes")
        else:
            yield Finding("ok", "quota", text)


def _reservations(get: Get, needs: Sequence[Need]) -> Iterator[Finding]:
    for need in needs:
        if need.reservation_id is not None:
            found = get(need.reservation_id, _GROUPS)
            held = found.get("properties", {}).get("capacityReservations", [])
            text = f"{found.get('name')} holds {len(held)} reservations in {found.get('location')}"
            yield Finding("ok" if held else "problem", f"pool {need.name}", text)


def _features(get: Get, base: str, needs: Sequence[Need]) -> Iterator[Finding]:
    linked = any(need.fabric == "infiniband" for need in needs)
    for namespace, feature in (*_NEEDED_FEATURES, *([_INFINIBAND_FEATURE] if linked else [])):
        path = f"{base}/providers/Microsoft.Features/providers/{namespace}/features/{feature}"
        state = get(path, _FEATURES).get("properties", {}).get("state")
        if state == "Registered":
            yield Finding("ok", "features", f"{namespace}/{feature} is registered")
        else:
            yield Finding(
                "problem", "features",
                f"{namespace}/{feature} is {state}; register it with: az feature register "
                f"--namespace {namespace} --name {feature}, and when it is Registered: "
                f"az provider register --namespace {namespace}",
            )  # fmt: skip


def _watcher(get: Get, base: str, place: catalogue.Place) -> Iterator[Finding]:
    """Where the region's network watcher is: flow logs belong to it, and there is one at most."""
    path = f"{base}{_WATCHERS}"
    usual = f"/resourcegroups/networkwatcherrg{_WATCHERS}/networkwatcher_{place.region}"
    for found in _pages(get, path, _NETWORK):
        if found.get("location") != place.region:
            continue
        id = str(found["id"])
        if id.lower().endswith(usual.lower()):
            yield Finding(
                "ok", "flow logs", "the region's network watcher is where Azure makes it"
            )
        else:
            yield Finding(
                "ok", "flow logs",
                f"the region's network watcher is {id}: say so in falaj:network.networkWatcherId",
            )  # fmt: skip
        return
    yield Finding(
        "ok", "flow logs", "no network watcher yet: Azure makes it with the first network"
    )


def _permissions(get: Get, base: str) -> Iterator[Finding]:
    path = f"{base}/providers/Microsoft.Authorization/permissions"
    grants = list(_pages(get, path, _PERMISSIONS))
    missing = [action for action in _ACTIONS if not any(_allows(g, action) for g in grants)]
    if missing:
        yield Finding("problem", "permissions", f"missing: {', '.join(missing)}")
    else:
        yield Finding("ok", "permissions", f"{len(_ACTIONS)} actions of a deployment are allowed")


def _allows(grant: Mapping[str, Any], action: str) -> bool:
    """Whether one grant allows an action: patterns with ``*``, without regard to case."""

    def named(key: str) -> bool:
        return any(fnmatchcase(action.lower(), p.lower()) for p in grant.get(key, []))

    return named("actions") and not named("notActions")
