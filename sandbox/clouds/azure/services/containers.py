"""Microsoft.App: environments and apps of Container Apps."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from falaj.sandbox.clouds.azure import arm, checks, invented, known, naming, places, subnets
from falaj.sandbox.clouds.azure.ask import Ask
from falaj.sandbox.clouds.azure.kind import Kind
from falaj.sandbox.clouds.azure.results import location
from falaj.sandbox.clouds.model import Problem

ENVIRONMENT: Final = "azure-native:app:ManagedEnvironment"
_ENVIRONMENT_TYPE: Final = "Microsoft.App/managedEnvironments"
# Source: container-apps/workload-profiles-overview (profile types).
_PROFILES: Final = (
    "Consumption",
    "D4",
    "D8",
    "D16",
    "D32",
    "E4",
    "E8",
    "E16",
    "E32",
    "Consumption-GPU-NC8as-T4",
    "Consumption-GPU-NC24-A100",
    "NC24-A100",
    "NC48-A100",
    "NC96-A100",
    "Flex",
)
_CONSUMPTION: Final = "Consumption"
_MEMORY: Final = re.compile(r"(\d+(?:\.\d+)?)Gi")


def _environment_problems(ask: Ask) -> Iterator[Problem]:
    for path, _ in ask.items("workloadProfiles"):
        kind = ask.text(f"{path}.workloadProfileType")
        yield from checks.one_of(f"{path}.workloadProfileType", kind, _PROFILES)
        low, high = ask.number(f"{path}.minimumCount"), ask.number(f"{path}.maximumCount")
        if kind and kind.startswith(_CONSUMPTION) and (low is not None or high is not None):
            yield Problem(
                path, f"{kind} scales by itself; leave minimumCount and maximumCount out"
            )
        if low is not None and high is not None and low > high:
            yield Problem(f"{path}.maximumCount", f"{high:g} is less than minimumCount {low:g}")
        name = ask.text(f"{path}.name")
        if name and not re.fullmatch(r"[A-Za-z0-9-]{1,15}", name):
            yield Problem(
                f"{path}.name",
                f"{name!r} isn't allowed; allowed are 1 to 15 letters, digits and hyphens",
            )
    region = ask.region
    if ask.flag("zoneRedundant"):
        if region and places.has_zones(region) is False:
            yield Problem(
                "zoneRedundant",
                f"{places.display_name(region)} has no availability zones; leave it out",
            )
        yield from checks.needs(
            ask, "vnetConfiguration.infrastructureSubnetId", "zone redundancy needs an own subnet"
        )
    if ask.flag("vnetConfiguration.internal"):
        yield from checks.needs(
            ask,
            "vnetConfiguration.infrastructureSubnetId",
            "an internal environment needs a subnet",
        )
    yield from checks.resource_id(
        "vnetConfiguration.infrastructureSubnetId",
        ask.text("vnetConfiguration.infrastructureSubnetId"),
        subnets.TYPE,
    )
    destination = ask.text("appLogsConfiguration.destination")
    base = "appLogsConfiguration.logAnalyticsConfiguration"
    if destination == "log-analytics":
        for name in ("customerId", "sharedKey"):
            yield from checks.needs(ask, f"{base}.{name}", "log-analytics needs it")
    yield from checks.guid(f"{base}.customerId", ask.text(f"{base}.customerId"))


def _environment_conflicts(ask: Ask) -> Iterator[Problem]:
    # Source: container-apps/networking (subnet): /27 and a delegation with workload profiles, /23
    # and none without them.
    profiles = ask.is_given("workloadProfiles")
    yield from subnets.fits(
        ask,
        "vnetConfiguration.infrastructureSubnetId",
        where=location(ask),
        delegated_to="Microsoft.App/environments" if profiles else None,
        least=27 if profiles else 23,
    )


def _app_problems(ask: Ask) -> Iterator[Problem]:
    if ask.is_absent("environmentId") and ask.is_absent("managedEnvironmentId"):
        yield Problem("environmentId", "is missing: name the environment that the app runs in")
    for name in ("environmentId", "managedEnvironmentId"):
        yield from checks.resource_id(
            name, ask.text(name), _ENVIRONMENT_TYPE, "Microsoft.App/connectedEnvironments"
        )
    if ask.is_absent("template.containers[0]"):
        yield Problem("template.containers", "is missing: an app needs a container")
    names: set[str] = set()
    for path, _ in ask.items("template.containers"):
        yield from _container(ask, path)
        name = ask.text(f"{path}.name")
        if name in names:
            yield Problem(f"{path}.name", f"{name!r} is used twice")
        names.add(name or "")
    low = ask.number("template.scale.minReplicas")
    high = ask.number("template.scale.maxReplicas")
    yield from checks.between(ask, "template.scale.minReplicas", 0, 1000)
    yield from checks.between(ask, "template.scale.maxReplicas", 1, 1000)
    if low is not None and high is not None and low > high:
        yield Problem("template.scale.maxReplicas", f"{high:g} is less than minReplicas {low:g}")
    yield from checks.between(ask, "configuration.ingress.targetPort", 1, 65535)
    if ask.text("configuration.ingress.transport") == "tcp":
        yield from checks.between(ask, "configuration.ingress.exposedPort", 1, 65535)
    weights = [
        ask.number(f"{path}.weight") for path, _ in ask.items("configuration.ingress.traffic")
    ]
    if weights and None not in weights and sum(item or 0 for item in weights) != 100:
        yield Problem("configuration.ingress.traffic", "the weights must add up to 100")
    yield from _secrets(ask)


def _container(ask: Ask, path: str) -> Iterator[Problem]:
    yield from checks.needs(ask, f"{path}.image", "name the image")
    name = ask.text(f"{path}.name")
    if name and not re.fullmatch(r"[a-z0-9](?:[-a-z0-9]{0,44}[a-z0-9])?", name):
        yield Problem(
            f"{path}.name",
            f"{name!r} isn't allowed; allowed are 1 to 46 lower-case letters, digits and hyphens",
        )
    cpu, memory = ask.number(f"{path}.resources.cpu"), ask.text(f"{path}.resources.memory")
    size = _MEMORY.fullmatch(memory) if memory else None
    if memory and size is None:
        yield Problem(f"{path}.resources.memory", f"{memory!r} isn't a size such as 2Gi")
    if cpu is None or size is None or ask.is_given("workloadProfileName"):
        return
    # Source: container-apps/containers (configuration): 0.25 to 4 processors in steps of 0.25,
    # with twice as many GiB.
    if cpu * 4 != int(cpu * 4) or not 0.25 <= cpu <= 4:
        yield Problem(
            f"{path}.resources.cpu",
            f"{cpu:g} isn't allowed; allowed are 0.25 to 4 in steps of 0.25",
        )
    elif float(size[1]) != cpu * 2:
        yield Problem(
            f"{path}.resources.memory",
            f"{memory} doesn't go with {cpu:g} processors; it must be {cpu * 2:g}Gi",
        )


def _secrets(ask: Ask) -> Iterator[Problem]:
    known_names: set[str] = set()
    for path, _ in ask.items("configuration.secrets"):
        name = ask.text(f"{path}.name")
        known_names.add(name or "")
        if name and not re.fullmatch(r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?", name):
            yield Problem(
                f"{path}.name",
                f"{name!r} isn't allowed; allowed are lower-case "
                "letters, digits, hyphens and periods",
            )
        if ask.is_given(f"{path}.keyVaultUrl"):
            yield from checks.needs(
                ask, f"{path}.identity", "say which identity reads the vault ('system' or an id)"
            )
    for path, _ in ask.items("configuration.registries"):
        secret = ask.text(f"{path}.passwordSecretRef")
        if secret and secret not in known_names:
            yield Problem(
                f"{path}.passwordSecretRef",
                f"there is no secret {secret!r}; add it to configuration.secrets",
            )
        if ask.is_absent(f"{path}.identity") and ask.is_absent(f"{path}.username"):
            yield Problem(path, "has neither an identity nor a username; give one")


def _app_conflicts(ask: Ask) -> Iterator[Problem]:
    id = ask.text("environmentId") or ask.text("managedEnvironmentId")
    made = known.by_id(ask.world, id) if ask.world and id else None
    if made is None:
        return
    region, place = location(ask), known.region_of(made)
    if region and place and region != place:
        yield Problem(
            "location", f"{region} isn't the environment's {place}; they must be the same"
        )
    environment = Ask(ENVIRONMENT, made.inputs, {})
    wanted = ask.text("workloadProfileName")
    names = {environment.text(f"{path}.name") for path, _ in environment.items("workloadProfiles")}
    if wanted and wanted not in names and not (wanted == _CONSUMPTION and not names):
        listed = ", ".join(sorted(item for item in names if item)) or "none"
        yield Problem(
            "workloadProfileName", f"the environment has no profile {wanted!r}; it has {listed}"
        )


def _environment_outputs(ask: Ask) -> dict[str, Any]:
    id, region = ask.id or "", location(ask) or "unknown"
    label = f"sandbox-{invented.digest(8, id)}"
    subnet = ask.text("vnetConfiguration.infrastructureSubnetId")
    address = subnets.address(ask.world, subnet, id) if subnet else None
    name = id.rpartition("/")[2]
    reference = arm.parse(id)
    group = reference.group if reference else ""
    return {
        "defaultDomain": f"{label}.{region}.azurecontainerapps.io",
        "staticIp": address or "203.0.113.1",
        "eventStreamEndpoint": f"https://{region}.azurecontainerapps.dev{id}/eventstream",
        "customDomainConfiguration": ask.known(
            "customDomainConfiguration",
            {"customDomainVerificationId": invented.digest(64, "domain", id)},
        ),
        "infrastructureResourceGroup": ask.text("infrastructureResourceGroup")
        or f"ME_{name}_{group}_{region}",
        "privateEndpointConnections": [],
    }


def _app_outputs(ask: Ask) -> dict[str, Any]:
    id = ask.id or ""
    name = id.rpartition("/")[2]
    environment = ask.text("environmentId") or ask.text("managedEnvironmentId")
    made = known.by_id(ask.world, environment) if ask.world and environment else None
    domain = Ask("", made.outputs, {}).text("defaultDomain") if made else None
    suffix = ask.text("template.revisionSuffix") or invented.digest(7, id)
    revision = f"{name}--{suffix}"
    found: dict[str, Any] = {
        "latestRevisionName": revision,
        "latestReadyRevisionName": revision,
        "runningStatus": "Running",
        "customDomainVerificationId": invented.digest(64, "domain", id),
        "outboundIpAddresses": ["203.0.113.1"],
        "eventStreamEndpoint": f"https://{location(ask)}.azurecontainerapps.dev{id}/eventstream",
    }
    if domain and ask.is_given("configuration.ingress"):
        part = "" if ask.flag("configuration.ingress.external") else ".internal"
        found["latestRevisionFqdn"] = f"{revision}{part}.{domain}"
        configuration, ingress = ask.at("configuration"), ask.at("configuration.ingress")
        if isinstance(configuration, dict) and isinstance(ingress, dict):
            found["configuration"] = {
                **configuration,
                "ingress": {**ingress, "fqdn": f"{name}{part}.{domain}"},
            }
    return found


KINDS: Final = (
    Kind(
        ENVIRONMENT,
        f"{_ENVIRONMENT_TYPE}/{{environmentName}}",
        name=naming.NameRule(
            2,
            60,
            r"[A-Za-z][-A-Za-z0-9]*[A-Za-z0-9]",
            "letters, digits and hyphens, starting with a letter, ending with a letter or digit",
        ),
        is_held_by_references=True,
        # The forced replacements of pulumi-azure-native (reports/forceNewTypes.json).
        replaces=frozenset(
            {
                "vnetConfiguration",
                "zoneRedundant",
                "infrastructureResourceGroup",
                "customDomainConfiguration.dnsSuffix",
                "availabilityZones",
            }
        ),
        problems=_environment_problems,
        conflicts=_environment_conflicts,
        outputs=_environment_outputs,
    ),
    Kind(
        "azure-native:app:ContainerApp",
        "Microsoft.App/containerApps/{containerAppName}",
        name=naming.NameRule(
            2,
            32,
            r"[a-z](?:-?[a-z0-9])*",
            "lower-case letters, digits and single "
            "hyphens, starting with a letter, ending with a letter or digit",
        ),
        replaces=frozenset({"environmentId", "managedEnvironmentId", "extendedLocation"}),
        problems=_app_problems,
        conflicts=_app_conflicts,
        outputs=_app_outputs,
    ),
    Kind(
        "azure-native:app:ManagedEnvironmentsStorage",
        f"{_ENVIRONMENT_TYPE}/{{environmentName}}/storages/{{storageName}}",
        name=naming.NameRule(2, 32, r"[A-Za-z0-9-]+", "letters, digits and hyphens"),
    ),
)
