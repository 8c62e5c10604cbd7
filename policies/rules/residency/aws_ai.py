"""Models of Bedrock that answer from other regions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from falaj.policies.model import (
    EVERY,
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
from falaj.policies.reading.place import places_said
from falaj.policies.reading.walk import decoded, is_document, walk
from falaj.policies.rules.residency import aws_targets
from falaj.policies.rules.residency.everywhere import CONTROLS

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


def _area(said: str) -> str:
    """The area whose regions a text's profile routes to; empty where it names none."""
    found = _PROFILE.search(said)
    if found:
        return found[1]
    return "several regions" if _ANY_PROFILE.search(said) else ""


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
def model_profile(resource: Resource, view: View) -> Iterator[Finding]:
    """Ids and ARNs of AWS's own inference profiles, in any text, permissions included."""
    for leaf in walk(resource):
        if not isinstance(leaf.value, str) or is_document(leaf.value):
            continue
        said = decoded(leaf)
        if area := _area(said) if "." in said or ":" in said else "":
            yield violation(
                spell(leaf.path), f"requests are answered in {area}; {places_said(view)}"
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
def model(resource: Resource, view: View) -> Iterator[Finding]:
    """What agents, prompts, profiles and indexes call."""
    for path in _MODELS[resource.kind]:
        yield from aws_targets.arn(resource, view, path, "the model")
        for at, value in select(resource.properties, path):
            if area := _area(text(value)):
                yield violation(at, f"requests are answered in {area}; {places_said(view)}")


@rule(
    "residency-aws-guardrail",
    "Guardrails judge texts in their own region",
    Severity.CRITICAL,
    {"aws:bedrock/guardrail:Guardrail"},
    _CONTROLS,
    "Leave out crossRegionConfig and the tier STANDARD, which needs it: texts would be judged in "
    "other regions.",
)
def guardrail(resource: Resource, view: View) -> Iterator[Finding]:
    """Cross-region profiles of guardrails; the tier CLASSIC needs none.

    https://docs.aws.amazon.com/bedrock/latest/userguide/guardrails-cross-region.html
    """
    path = "crossRegionConfig.guardrailProfileIdentifier"
    for at, value in select(resource.properties, path):
        if is_unknown(value):
            yield indeterminate(at, "whether texts are judged in other regions can't be known")
        elif text(value):
            yield violation(
                at, f"texts are judged in the regions of {text(value)}; {places_said(view)}"
            )
    for path in ("contentPolicyConfig", "topicPolicyConfig"):
        for at, value in select(resource.properties, f"{path}.tierConfigs.tierName"):
            if is_unknown(value) and at.endswith("tierName"):
                yield indeterminate(at, "whether the tier judges in other regions isn't known")
            elif text(value).upper() == "STANDARD":
                yield violation(at, f"the tier STANDARD spans regions; {places_said(view)}")


RULES: tuple[Rule, ...] = (model_profile, model, guardrail)
