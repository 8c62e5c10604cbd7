"""A policy of admission: what it matches, what it refuses, and how it says so.

Every check yields a list of texts, each what is wrong; an object passes where all lists are empty.
The same texts stand in the message and in the audit log, under the id of the pack's rule.
https://kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy/
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from falaj.components.kubernetes._objects import Manifest
from falaj.components.kubernetes.admission.expressions import text

API = "admissionregistration.k8s.io/v1"
RULES_ANNOTATION = "falaj.io/policy-rules"
"""Ids of the rules of the policy packs that a policy enforces, separated by commas."""
PREFIX = "falaj-"
#: Objects that are being deleted may lose their finalizers, whatever they were made like.
_NOT_DELETED = 'request.operation == "CREATE" || !has(oldObject.metadata.deletionTimestamp)'
#: The API server's own objects: the service it is reached by, and the roles it starts with.
_NOT_OF_THE_SERVER = 'request.userInfo.username != "system:apiserver"'
_NAMESPACE = "kubernetes.io/metadata.name"
#: Annotations of the audit log that a policy may have (its API's own limit).
_MOST_CHECKS = 20


@dataclass(frozen=True)
class Target:
    """Resources of one API group."""

    group: str
    version: str
    resources: tuple[str, ...]
    operations: tuple[str, ...] = ("CREATE", "UPDATE")


@dataclass(frozen=True)
class Check:
    """One thing that is refused."""

    rule: str
    """Id of the pack's rule, or of the cluster's own (`cluster-…`) where no pack can judge it."""
    wrong: str
    """A CEL expression: a list of texts, one for each thing that is wrong."""
    what: str
    """What is wrong, in words; the texts follow it."""
    allowed: str
    change: str
    """What to do instead."""


@dataclass(frozen=True)
class Policy:
    """One ValidatingAdmissionPolicy with its binding."""

    name: str
    """What it is about; objects are called after it, behind `PREFIX`."""
    targets: tuple[Target, ...]
    checks: tuple[Check, ...]
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    """Expressions that checks refer to as ``variables.NAME``, in this order."""
    conditions: Mapping[str, str] = field(default_factory=dict[str, str])
    """What must hold, besides the targets, for the policy to look at an object."""
    exempt: frozenset[str] = frozenset()
    """Namespaces that it doesn't hold in."""

    def __post_init__(self) -> None:
        rules = [each.rule for each in self.checks]
        if len(set(rules)) < len(rules) or not 0 < len(rules) <= _MOST_CHECKS:
            raise ValueError(f"{self.name}: 1 to {_MOST_CHECKS} checks, each rule once: {rules}")


def manifests(
    policies: tuple[Policy, ...],
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    *,
    enforce: bool = True,
) -> Iterator[Manifest]:
    """The policies and their bindings.

    Args:
        policies: what to render.
        labels: labels of every object.
        annotations: annotations of every object.
        enforce: whether what is wrong is denied; otherwise it is warned of and audited.
    """
    actions = ["Deny", "Audit"] if enforce else ["Warn", "Audit"]
    for each in policies:
        name = PREFIX + each.name
        rules = ",".join(check.rule for check in each.checks)
        about = {
            "name": name,
            "labels": dict(labels),
            "annotations": {**annotations, RULES_ANNOTATION: rules},
        }
        yield {
            "apiVersion": API,
            "kind": "ValidatingAdmissionPolicy",
            "metadata": about,
            "spec": _spec(each),
        }
        binding: dict[str, Any] = {"policyName": name, "validationActions": actions}
        if each.exempt:
            binding["matchResources"] = {
                "namespaceSelector": {
                    "matchExpressions": [
                        {"key": _NAMESPACE, "operator": "NotIn", "values": sorted(each.exempt)}
                    ]
                }
            }
        yield {
            "apiVersion": API,
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": about,
            "spec": binding,
        }


def _spec(policy: Policy) -> dict[str, Any]:
    conditions = {
        "not-being-deleted": _NOT_DELETED,
        "not-of-the-server": _NOT_OF_THE_SERVER,
        **policy.conditions,
    }
    variables = [
        {"name": name, "expression": expression} for name, expression in policy.variables.items()
    ]
    validations: list[dict[str, Any]] = []
    annotations: list[dict[str, str]] = []
    for number, check in enumerate(policy.checks, 1):
        wrong = f"wrong{number}"
        variables.append({"name": wrong, "expression": check.wrong})
        hint = f"; allowed: {check.allowed}; {check.change} ({check.rule})"
        validations.append(
            {
                "expression": f"size(variables.{wrong}) == 0",
                "messageExpression": (
                    f'{text(check.what + ": ")} + variables.{wrong}.join(", ") + {text(hint)}'
                ),
                "message": check.what + hint,
                "reason": "Forbidden",
            }
        )
        annotations.append({
            "key": check.rule, "valueExpression": f'variables.{wrong}.join("; ")',
        })  # fmt: skip
    return {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "matchPolicy": "Equivalent",
            "resourceRules": [
                {
                    "apiGroups": [each.group],
                    "apiVersions": [each.version],
                    "operations": list(each.operations),
                    "resources": list(each.resources),
                }
                for each in policy.targets
            ],
        },
        "matchConditions": [
            {"name": name, "expression": expression} for name, expression in conditions.items()
        ],
        "variables": variables,
        "validations": validations,
        "auditAnnotations": annotations,
    }
