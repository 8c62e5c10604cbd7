"""What a pack tells the engine about itself: a policy for each rule, and its settings' schema."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

from google.protobuf import struct_pb2
from pulumi.runtime.proto import analyzer_pb2 as messages

from falaj.policies.model import Rule, Settings, Severity

#: The policy that finds nothing itself: a pack's settings are given under its name.
SETTINGS_POLICY: Final = "settings"

SEVERITIES: Final = {
    Severity.CRITICAL: messages.POLICY_SEVERITY_CRITICAL,
    Severity.HIGH: messages.POLICY_SEVERITY_HIGH,
    Severity.MEDIUM: messages.POLICY_SEVERITY_MEDIUM,
    Severity.LOW: messages.POLICY_SEVERITY_LOW,
}


def pack_information(
    name: str, version: str, rules: Iterable[Rule], readme: str
) -> messages.AnalyzerInfo:
    """The answer to the engine's question what a pack holds."""
    settings = messages.PolicyInfo(
        name=SETTINGS_POLICY,
        displayName="Settings",
        description="Holds the settings of all rules of this pack",
        enforcementLevel=messages.MANDATORY,
        configSchema=messages.PolicyConfigSchema(properties=_struct(settings_schema())),
        policy_type=messages.POLICY_TYPE_RESOURCE,
    )
    return messages.AnalyzerInfo(
        name=name,
        displayName=name,
        version=version,
        supportsConfig=True,
        readme=readme,
        policies=[settings, *(_policy(each) for each in rules)],
    )


def settings_schema() -> Mapping[str, Any]:
    """The JSON schema of each setting, by name.

    Without defaults: the engine would fill them in, and they would win over the stack's own.
    """
    schema = Settings.model_json_schema(by_alias=True)
    settings = cast("Mapping[str, Mapping[str, Any]]", schema["properties"])
    return {
        name: {key: value for key, value in each.items() if key not in ("default", "title")}
        for name, each in settings.items()
    }


def _policy(rule: Rule) -> messages.PolicyInfo:
    return messages.PolicyInfo(
        name=rule.id,
        displayName=rule.title,
        description=rule.title,
        enforcementLevel=messages.MANDATORY,
        policy_type=messages.POLICY_TYPE_RESOURCE,
        severity=SEVERITIES[rule.severity],
        # The engine knows one framework a policy; tags hold the controls of all.
        tags=rule.controls,
        remediation_steps=rule.remediation,
    )


def _struct(values: Mapping[str, Any]) -> struct_pb2.Struct:
    struct = struct_pb2.Struct()
    struct.update(dict(values))
    return struct
