"""What a team calls its resources and its settings changes no verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from falaj.policies.model import Context, FindingKind, Resource, is_list
from falaj.policies.model.judge import evaluate
from falaj.policies.rules import all_rules
from tests.each import for_each
from tests.policies.cases import Case, read_cases

FOLDER = Path(__file__).resolve().parents[3] / "policies" / "rules"
RULES = {each.id: each for each in all_rules()}
CASES = [case for file in sorted(FOLDER.rglob("*.cases.yaml")) for case in read_cases(file)]
#: Rules of which the name of a setting is the subject: keys of services, secrets, models.
OF_NAMES = (
    "kubernetes-default-exporter", "kubernetes-tracing-default", "kubernetes-model-hub",
    "encryption-aws-secret-parameter", "zero-trust-azure-database-logs-off",
    "zero-trust-azure-database-passwords",
)  # fmt: skip
#: Words that a reader once took for a reason to look away.
BLINDING = ("DENIED_", "EXCLUDE_LOGO_OF_", "DOC_SUPPORT_SCHEMA_")
MAPS = ("variables", "environmentVariables", "runtimeEnvironmentVariables", "defaultArguments",
        "data", "stringData", "binaryData")  # fmt: skip
LISTS = ("env", "environment", "environmentVariables", "appSettings")


def verdicts(case: Case, resource: Resource) -> set[FindingKind]:
    stack = case.stack
    if stack is not None:
        stack = replace(stack, resources=(resource, *stack.resources[1:]))
    found = evaluate(RULES[case.rule], resource, Context(case.settings, stack)).findings
    return {each.kind for each in found}


def renamed(value: Any, prefix: str) -> Any:
    """The value with every key of a team's own called otherwise."""
    if isinstance(value, Mapping):
        return {
            key: _entries(each, prefix)
            if key in MAPS and isinstance(each, Mapping)
            else _settings(each, prefix)
            if key in LISTS and is_list(each)
            else renamed(each, prefix)
            for key, each in value.items()
        }
    return [renamed(each, prefix) for each in value] if is_list(value) else value


def _entries(value: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    return {f"{prefix}{key}": each for key, each in value.items()}


def _settings(value: Any, prefix: str) -> list[Any]:
    return [
        {**each, "name": f"{prefix}{each['name']}"}
        if isinstance(each, Mapping) and isinstance(each.get("name"), str) and "value" in each
        else renamed(each, prefix)
        for each in value
    ]


ASKED = [each for each in CASES if each.rule not in OF_NAMES]
MOVED = [
    each
    for each in ASKED
    if each.rule.startswith(("residency-", "kubernetes-foreign-service", "kubernetes-egress-host"))
    and renamed(each.resource.properties, "X") != renamed(each.resource.properties, "")
]


@pytest.mark.parametrize("name", ["denied-exclude-logo", "EFFECT-deny-docs"])
def test_resources_may_be_called_anything(name: str) -> None:
    def stays(case: Case) -> None:
        other = replace(case.resource, name=f"{name}-{case.resource.name}")
        assert verdicts(case, other) == verdicts(case, case.resource)

    for_each(ASKED, stays)


@pytest.mark.parametrize("prefix", BLINDING)
def test_settings_may_be_called_anything(prefix: str) -> None:
    def stays(case: Case) -> None:
        other = replace(case.resource, properties=renamed(case.resource.properties, prefix))
        assert verdicts(case, other) == verdicts(case, case.resource)

    for_each(MOVED, stays)


@pytest.mark.parametrize(
    "beside", [{"EFFECT": "deny"}, {"effect": "Deny"}, {"OPERATOR": "NotIn"}, {"title": "x"}]
)
def test_settings_beside_others_change_nothing(beside: dict[str, str]) -> None:
    def stays(case: Case) -> None:
        properties = dict(case.resource.properties)
        environment = properties.get("environment")
        assert isinstance(environment, Mapping)
        variables = {**environment["variables"], **beside}
        other = replace(
            case.resource, properties={**properties, "environment": {"variables": variables}}
        )
        assert verdicts(case, other) == verdicts(case, case.resource)

    for_each([each for each in MOVED if _has_variables(each.resource)], stays)


def _has_variables(resource: Resource) -> bool:
    environment = resource.properties.get("environment")
    return isinstance(environment, Mapping) and isinstance(environment.get("variables"), Mapping)
