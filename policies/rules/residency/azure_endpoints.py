"""Hosts that Azure's services call: webhooks, exporters of telemetry, and hosts of regions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from falaj.components.catalogue.region_names import AZURE_LOCATIONS
from falaj.policies.model import (
    Finding,
    Resource,
    Rule,
    Severity,
    View,
    indeterminate,
    is_unknown,
    rule,
    select,
    spell,
    text,
    violation,
)
from falaj.policies.reading.hosts import foreign_service, host_of, may_talk_to
from falaj.policies.reading.types import azure
from falaj.policies.reading.walk import walk
from falaj.policies.rules.residency.azure_linked_stores import EVENT_SUBSCRIPTIONS
from falaj.policies.rules.residency.azure_places import allowed, place_of, refers_to, where_allowed
from falaj.policies.rules.residency.azure_targets import CONTROLS, judge_target

#: Properties that hold the address of somebody who is told what happens.
CALLED: Final[dict[str, tuple[str, ...]]] = {
    "monitor:ActionGroup": (
        "webhookReceivers.serviceUri",
        "azureFunctionReceivers.httpTriggerUrl",
        "logicAppReceivers.callbackUrl",
    ),
    "monitor:TenantActionGroup": ("webhookReceivers.serviceUri",),
    "containerregistry:Webhook": ("serviceUri",),
    **dict.fromkeys(
        EVENT_SUBSCRIPTIONS,
        (
            "destination.endpointUrl",
            "deliveryWithResourceIdentity.destination.endpointUrl",
            "deliveryConfiguration.push.destination.endpointUrl",
            "deliveryConfiguration.push.deliveryWithResourceIdentity.destination.endpointUrl",
        ),
    ),
    "app:ManagedEnvironment": (
        "openTelemetryConfiguration.destinationsConfiguration.dataDogConfiguration.site",
        "openTelemetryConfiguration.destinationsConfiguration.otlpConfigurations.endpoint",
    ),
    "cognitiveservices:RaiExternalSafetyProvider": ("properties.url",),
    "cognitiveservices:AccountConnection": ("properties.target",),
    "cognitiveservices:ProjectConnection": ("properties.target",),
    "machinelearningservices:WorkspaceConnection": ("properties.target",),
}
_BY_KIND: Final = {kind: paths for name, paths in CALLED.items() for kind in azure(name)}


@rule(
    "residency-azure-webhook",
    "Services tell only hosts in the country what happens",
    Severity.HIGH,
    frozenset(_BY_KIND),
    CONTROLS,
    "Deliver to a function, logic app, queue or event hub in the country, or to a host that the "
    "setting allowedHosts names.",
)
def webhook(resource: Resource, view: View) -> Iterator[Finding]:
    """Addresses that are called with what happened: host and place, never the whole address."""
    for path in _BY_KIND.get(resource.kind, ()):
        for where, value in select(resource.properties, path):
            yield from _judge(resource, where, value, view)


def _judge(resource: Resource, path: str, value: Any, view: View) -> Iterator[Finding]:
    if text(value).lower().startswith("/subscriptions/"):
        yield from judge_target(resource, path, value, view, "the service that it calls")
        return
    host = host_of(value)
    if not is_unknown(value) and (not host or may_talk_to(host, view.settings)):
        return
    if named := _foreign(host, view):
        yield violation(path, f"it calls {named}; {where_allowed(view)}")
        return
    places = [place_of(each, view) for each in refers_to(resource, path, value, view)]
    abroad = next((each for each in places if each and each not in allowed(view)), None)
    if abroad:
        yield violation(path, f"it calls a resource in {abroad}; {where_allowed(view)}")
    elif places and None not in places:
        return
    elif is_unknown(value):
        yield indeterminate(path, "the host that is called can't be seen")
    elif _AZURE_HOST.search(host):
        yield indeterminate(path, f"where {host} is can't be seen; {where_allowed(view)}")
    else:
        yield violation(path, f"{host} is neither in the country nor one of allowedHosts")


# Names within Azure's own domains, in URLs and in the middle of connection strings.
_AZURE_HOST: Final = re.compile(
    r"(?<![\w.-])((?:[a-z0-9-]+\.)+)(?:azure\.(?:com|net|cn|us)|windows\.net|azurecr\.io"
    r"|azmk8s\.io|azurecontainer\.io|azurecontainerapps\.io|azurewebsites\.net|azure-api\.net"
    r"|azurestaticapps\.net|microsoft\.com|azuredatabricks\.net|azurehdinsight\.net)(?![\w-])",
    re.IGNORECASE,
)
_NUMBERED: Final = re.compile(r"-\d+$|-\w{2}\d?$")


def _regions_in(value: str) -> Iterator[str]:
    """The locations that hosts of Azure within a text name in one of their labels."""
    for found in _AZURE_HOST.finditer(value):
        for label in found[1].lower().split("."):
            name = label if label in AZURE_LOCATIONS else _NUMBERED.sub("", label)
            if name in AZURE_LOCATIONS:
                yield name


def _foreign(host: str, view: View) -> str:
    """What is abroad about a host; empty where nothing is known to be."""
    if service := foreign_service(host):
        return service
    abroad = [each for each in _regions_in(host) if each not in allowed(view)]
    return f"a service in {abroad[0]}" if abroad else ""


@rule(
    "residency-azure-foreign-host",
    "No resource of Azure names a host abroad",
    Severity.CRITICAL,
    {"azure-native:*"},
    CONTROLS,
    "Use the endpoint of the same service in the country, whose host names no location or one of "
    "the country.",
)
def foreign_host(resource: Resource, view: View) -> Iterator[Finding]:
    """Hosts of regions abroad in any text, and addresses of services known to keep data there."""
    for leaf in walk(resource):
        value = text(leaf.value)
        if "." not in value or ".".join(leaf.keys) in _BY_KIND.get(resource.kind, ()):
            continue
        abroad = next((each for each in _regions_in(value) if each not in allowed(view)), "")
        service = foreign_service(host_of(value)) if _calls(leaf.key) else ""
        if abroad or service:
            named = f"a host of {abroad}" if abroad else service
            yield violation(spell(leaf.path), f"it names {named}; {where_allowed(view)}")


def _calls(key: str) -> bool:
    """Whether a key says that what it holds is called, rather than shown or read about."""
    said = key.lower()
    return said.endswith(("endpoint", "url", "uri", "host", "server", "site", "value", "target"))


RULES: Final[tuple[Rule, ...]] = (webhook, foreign_host)
