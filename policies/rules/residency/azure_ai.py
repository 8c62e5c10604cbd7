"""Azure's services for artificial intelligence: where models run, and what they may talk to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from falaj.policies.model import (
    ABSENT,
    Finding,
    Resource,
    Rule,
    Severity,
    View,
    indeterminate,
    is_true,
    is_unknown,
    leaves,
    rule,
    select,
    spell,
    text,
    violation,
)
from falaj.policies.reading.hosts import host_of, may_talk_to
from falaj.policies.reading.types import azure
from falaj.policies.rules.residency.azure_targets import CONTROLS

DEPLOYMENTS: Final = azure(
    "cognitiveservices:Deployment", "machinelearningservices:ConnectionDeployment",
    "machinelearningservices:EndpointDeployment",
)  # fmt: skip
#: Kinds of deployments that run in the account's own region. Global ones run in any region, data
#: zones are the EU and the USA, and the developer tier promises nothing
#: (https://learn.microsoft.com/azure/ai-foundry/foundry-models/concepts/deployment-types).
REGIONAL: Final = frozenset(("standard", "provisionedmanaged"))


@rule(
    "residency-azure-ai-deployment",
    "Models run in the account's own region",
    Severity.CRITICAL,
    DEPLOYMENTS,
    CONTROLS,
    "Deploy the model with the sku Standard or ProvisionedManaged, in an account in the country; "
    "the kinds Global… and DataZone… process prompts in other countries. Where the region doesn't "
    "offer the model, host one that it does.",
)
def ai_deployment(resource: Resource, view: View) -> Iterator[Finding]:
    """The kind of the deployment, and that of the one which takes what it can't serve."""
    yield from _kind(resource)
    path = "properties.spilloverDeploymentName"
    spill = resource.get(path)
    if spill is ABSENT or spill == "":
        return
    others = [
        each
        for each in (view.stack.of_kind(*sorted(DEPLOYMENTS)) if view.stack else [])
        if text(spill) and text(each.get("deploymentName")) == text(spill)
    ] or [each for each in view.referred(resource, path) if each.kind in DEPLOYMENTS]
    if not others:
        yield indeterminate(path, "the kind of the deployment that takes over can't be seen")
    elif any(True for each in others for _ in _kind(each)):
        yield violation(path, "the deployment that takes over isn't one of the region")


def _kind(resource: Resource) -> Iterator[Finding]:
    path = "sku.name" if resource.get("properties.sku") is ABSENT else "properties.sku.name"
    kind = resource.get(path)
    if is_unknown(kind):
        yield indeterminate(path, "where the model runs can't be seen")
    elif text(kind):
        if text(kind).lower() not in REGIONAL:
            yield violation(
                path,
                f"{text(kind)} processes prompts in other regions; it must be Standard or "
                "ProvisionedManaged",
            )
    # The older way to say it, which has regional kinds only.
    elif text(resource.get("properties.scaleSettings.scaleType")).lower() not in {
        "standard",
        "manual",
    }:
        yield indeterminate(path, "no sku is given, and the model decides where it runs")


@rule(
    "residency-azure-ai-outbound",
    "AI services talk to named hosts only",
    Severity.MEDIUM,
    azure("cognitiveservices:Account"),
    CONTROLS,
    "Set restrictOutboundNetworkAccess to true, and in allowedFqdnList name only hosts in the "
    "country or of the setting allowedHosts.",
)
def ai_outbound(resource: Resource, view: View) -> Iterator[Finding]:
    """Not restricted by default
    (https://learn.microsoft.com/azure/ai-services/cognitive-services-data-loss-prevention)."""
    path = "properties.restrictOutboundNetworkAccess"
    restricted = resource.get(path)
    if is_unknown(restricted):
        yield indeterminate(path, "whether outbound requests are restricted can't be seen")
    elif not is_true(restricted):
        given = "false" if restricted is not ABSENT else "not given, and so false"
        yield violation(path, f"it is {given}: the service may send data to any host")
    for where, value in select(resource.properties, "properties.allowedFqdnList"):
        yield from _judge_host(where, value, view)


def _judge_host(path: str, value: object, view: View) -> Iterator[Finding]:
    host = host_of(value)
    if is_unknown(value):
        yield indeterminate(path, "the host can't be seen")
    elif host and not may_talk_to(host, view.settings):
        yield violation(path, f"{host} is neither in the country nor one of allowedHosts")


@rule(
    "residency-azure-ml-outbound",
    "Managed networks of workspaces let out approved traffic only",
    Severity.HIGH,
    azure("machinelearningservices:Workspace", "cognitiveservices:ManagedNetworkSetting"),
    CONTROLS,
    "Set managedNetwork.isolationMode to AllowOnlyApprovedOutbound, and approve only hosts in the "
    "country or of the setting allowedHosts; or run compute in a subnet of your own.",
)
def ml_outbound(resource: Resource, view: View) -> Iterator[Finding]:
    """Disabled by default, which lets everything out
    (https://learn.microsoft.com/azure/machine-learning/how-to-managed-network)."""
    prefix = "" if "machinelearning" in resource.kind else "properties."
    path = f"{prefix}managedNetwork.isolationMode"
    mode = resource.get(path)
    subnet = resource.get("serverlessComputeSettings.serverlessComputeCustomSubnet")
    if is_unknown(mode):
        yield indeterminate(path, "what the network lets out can't be seen")
    elif text(mode).lower() == "allowinternetoutbound":
        yield violation(path, "the network lets out everything; approve hosts one by one")
    elif text(mode).lower() != "allowonlyapprovedoutbound" and subnet is ABSENT:
        given = text(mode) or "not given, and so Disabled"
        yield violation(path, f"it is {given}: the network lets out everything")
    rules = f"{prefix}managedNetwork.outboundRules"
    for below, value in leaves(resource.get(rules)):
        if (below and below[-1] == "destination") or "fqdns" in below:
            yield from _judge_host(f"{rules}.{spell(below)}", value, view)


RULES: Final[tuple[Rule, ...]] = (ai_deployment, ai_outbound, ml_outbound)
