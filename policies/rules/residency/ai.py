"""Models, agents and AI services answer in the country."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from falaj.policies.model import (
    ABSENT,
    EVERY,
    Context,
    Finding,
    Resource,
    Rule,
    Severity,
    format_path,
    indeterminate,
    is_true,
    is_unknown,
    leaves,
    rule,
    select,
    text,
    violation,
)
from falaj.policies.reading.hosts import host_of, may_talk_to
from falaj.policies.reading.place import format_places
from falaj.policies.reading.types import azure
from falaj.policies.reading.walk import is_document, walk
from falaj.policies.rules.residency import destinations
from falaj.policies.rules.residency.destinations import AZURE_CONTROLS
from falaj.policies.rules.residency.everywhere import CONTROLS

# Models of Bedrock that answer from other regions.

_CONTROLS: Final = (*CONTROLS, "gdpr:25")
# Profiles of AWS are named by an area and the model; requests go to any region of the area, and
# `global` is every commercial region.
# https://docs.aws.amazon.com/bedrock/latest/userguide/inference-profiles-support.html
_AREA: Final = r"(?:global|us-gov|us|eu|apac|jp|au|ca|sa|me|il|in|af|mx|kr)"
_MODEL: Final = (
    r"(?:ai21|amazon|anthropic|cohere|deepseek|google|luma|meta|minimax|mistral|moonshot|"
    r"moonshotai|nvidia|openai|qwen|stability|twelvelabs|writer|zai)\.[a-z0-9]"
)
_PROFILE: Final = re.compile(
    rf"(?<![\w.-])(?:arn:aws[a-z-]*:bedrock:[^:\s]*:\d*:inference-profile/)?({_AREA})\.{_MODEL}"
)
_ANY_PROFILE: Final = re.compile(r":bedrock:[^:\s]*:[^:\s]*:inference-profile/")


def _area(given: str) -> str:
    """The area whose regions a text's profile routes to; empty where it names none."""
    found = _PROFILE.search(given)
    if found:
        return found[1]
    return "several regions" if _ANY_PROFILE.search(given) else ""


@rule(
    "residency-aws-model-profile",
    "No model is called through a profile of several regions",
    Severity.CRITICAL,
    EVERY,
    _CONTROLS,
    "Call the foundation model of the region, by its id without an area in front or by an ARN "
    "with :foundation-model/, or run the model on one's own GPUs. Forbid profiles with a "
    "statement of the effect Deny, for programs can name them without any resource.",
)
def model_profile(resource: Resource, context: Context) -> Iterator[Finding]:
    """Ids and ARNs of AWS's own inference profiles, in any text, permissions included."""
    for leaf in walk(resource):
        if not isinstance(leaf.value, str) or is_document(leaf.value):
            continue
        given = leaf.value
        if area := _area(given) if "." in given or ":" in given else "":
            yield violation(
                format_path(leaf.path),
                f"requests are answered in {area}; {format_places(context)}",
            )


#: Models by type; their values may be profiles.
_MODELS: Final[dict[str, tuple[str, ...]]] = {
    "aws:bedrock/inferenceProfile:InferenceProfile": ("modelSource.copyFrom",),
    "aws:bedrock/agentAgent:AgentAgent": ("foundationModel",),
    "aws:bedrock/provisionedModelThroughput:ProvisionedModelThroughput": ("modelArn",),
    "aws:bedrock/customModel:CustomModel": ("baseModelIdentifier",),
    "aws:bedrock/agentPrompt:AgentPrompt": ("variants.modelId",),
    "aws:bedrock/agentKnowledgeBase:AgentKnowledgeBase": (
        "knowledgeBaseConfiguration.vectorKnowledgeBaseConfiguration.embeddingModelArn",
    ),
}


@rule(
    "residency-aws-model",
    "Models are those of an allowed region",
    Severity.CRITICAL,
    frozenset(_MODELS),
    _CONTROLS,
    "Name the foundation model by an id or ARN of the region, so that it can be seen before "
    "anything is made.",
)
def model(resource: Resource, context: Context) -> Iterator[Finding]:
    """What agents, prompts, profiles and indexes call."""
    for path in _MODELS[resource.kind]:
        yield from destinations.arn(resource, context, path, "the model")
        for at, value in select(resource.properties, path):
            if area := _area(text(value)):
                yield violation(at, f"requests are answered in {area}; {format_places(context)}")


@rule(
    "residency-aws-guardrail",
    "Guardrails judge texts in their own region",
    Severity.CRITICAL,
    {"aws:bedrock/guardrail:Guardrail"},
    _CONTROLS,
    "Leave out crossRegionConfig and the tier STANDARD, which needs it: texts would be judged in "
    "other regions.",
)
def guardrail(resource: Resource, context: Context) -> Iterator[Finding]:
    """Cross-region profiles of guardrails; the tier CLASSIC needs none.

    https://docs.aws.amazon.com/bedrock/latest/userguide/guardrails-cross-region.html
    """
    path = "crossRegionConfig.guardrailProfileIdentifier"
    for at, value in select(resource.properties, path):
        if is_unknown(value):
            yield indeterminate(at, "whether texts are judged in other regions can't be known")
        elif text(value):
            yield violation(
                at, f"texts are judged in the regions of {text(value)}; {format_places(context)}"
            )
    for path in ("contentPolicyConfig", "topicPolicyConfig"):
        for at, value in select(resource.properties, f"{path}.tierConfigs.tierName"):
            if is_unknown(value) and at.endswith("tierName"):
                yield indeterminate(at, "whether the tier judges in other regions isn't known")
            elif text(value).upper() == "STANDARD":
                yield violation(at, f"the tier STANDARD spans regions; {format_places(context)}")


# Azure's services for artificial intelligence: where models run, and what they may talk to.

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
    AZURE_CONTROLS,
    "Deploy the model with the sku Standard or ProvisionedManaged, in an account in the country; "
    "the kinds Global… and DataZone… process prompts in other countries. Where the region doesn't "
    "offer the model, host one that it does.",
)
def ai_deployment(resource: Resource, context: Context) -> Iterator[Finding]:
    """The kind of the deployment, and that of the one which takes what it can't serve."""
    yield from _kind(resource)
    path = "properties.spilloverDeploymentName"
    overflow = resource.get(path)
    if overflow is ABSENT or overflow == "":
        return
    others = [
        each
        for each in (context.stack.of_kind(*sorted(DEPLOYMENTS)) if context.stack else [])
        if text(overflow) and text(each.get("deploymentName")) == text(overflow)
    ] or [each for each in context.referred(resource, path) if each.kind in DEPLOYMENTS]
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
    AZURE_CONTROLS,
    "Set restrictOutboundNetworkAccess to true, and in allowedFqdnList name only hosts in the "
    "country or of the setting allowedHosts.",
)
def ai_outbound(resource: Resource, context: Context) -> Iterator[Finding]:
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
        yield from _judge_host(where, value, context)


def _judge_host(path: str, value: object, context: Context) -> Iterator[Finding]:
    host = host_of(value)
    if is_unknown(value):
        yield indeterminate(path, "the host can't be seen")
    elif host and not may_talk_to(host, context.settings):
        yield violation(path, f"{host} is neither in the country nor one of allowedHosts")


@rule(
    "residency-azure-ml-outbound",
    "Managed networks of workspaces let out approved traffic only",
    Severity.HIGH,
    azure("machinelearningservices:Workspace", "cognitiveservices:ManagedNetworkSetting"),
    AZURE_CONTROLS,
    "Set managedNetwork.isolationMode to AllowOnlyApprovedOutbound, and approve only hosts in the "
    "country or of the setting allowedHosts; or run compute in a subnet of your own.",
)
def ml_outbound(resource: Resource, context: Context) -> Iterator[Finding]:
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
            yield from _judge_host(f"{rules}.{format_path(below)}", value, context)


RULES: tuple[Rule, ...] = (
    model_profile,
    model,
    guardrail,
    ai_deployment,
    ai_outbound,
    ml_outbound,
)
