"""What RBAC and quotas can't say, as a policy of the API server in CEL.

RBAC only ever allows, so that who is in two groups has both duties; a quota knows the resources it
names, so that a new kind of GPU share would be free; and Kueue takes any priority that a label
names. https://kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy/
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from falaj.components.kubernetes._objects import Manifest, metadata
from falaj.components.kubernetes._placed import TENANT_LABEL, InCluster
from falaj.components.kubernetes.tenant.roles import APART

_API: Final = "admissionregistration.k8s.io/v1"
_PRIORITY: Final = "kueue.x-k8s.io/priority-class"
#: Extended resources of GPUs, whole or shared.
_DEVICES: Final = "nvidia.com/"


def admission_policies(
    placed: InCluster,
    component: str,
    members: Mapping[str, Sequence[Mapping[str, str]]],
    priorities: Sequence[str],
    devices: Collection[str],
) -> list[Manifest]:
    """Policies with their bindings to the tenant's namespaces."""
    tenant = placed.tenant
    labels = "object.metadata.?labels.orValue({})"
    found = _policy(
        placed,
        component,
        f"falaj-{tenant}-duties",
        operations=("CREATE", "UPDATE", "DELETE"),
        resources=(("*", "*"),),
        validations=[(
            f"!({_has(members[APART[0]])} && {_has(members[APART[1]])})",
            f"who is both among the {APART[0]} and the {APART[1]} of {tenant} changes nothing; "
            "leave one of the groups",
        )],
    )  # fmt: skip
    found += _policy(
        placed,
        component,
        f"falaj-{tenant}-priorities",
        operations=("CREATE", "UPDATE"),
        resources=(
            ("batch", "jobs"), ("jobset.x-k8s.io", "jobsets"),
            ("trainer.kubeflow.org", "trainjobs"), ("apps", "deployments"), ("", "pods"),
        ),
        validations=[(
            f"!('{_PRIORITY}' in {labels}) || {labels}['{_PRIORITY}'] in {_list(priorities)}",
            f"{tenant} has the priorities {', '.join(priorities)} only",
        )],
    )  # fmt: skip
    found += _policy(
        placed,
        component,
        f"falaj-{tenant}-devices",
        operations=("CREATE",),
        resources=(("", "pods"),),
        validations=[(
            "(object.spec.containers + object.spec.?initContainers.orValue([])).all(each, "
            "each.?resources.?limits.orValue({}).all(name, "
            f"!name.startsWith('{_DEVICES}') || name in {_list(sorted(devices))}))",
            f"{tenant} was given {', '.join(sorted(devices)) or 'no GPUs'}; ask the platform's "
            "owner for other kinds of GPU",
        )],
    )  # fmt: skip
    return found


def _has(subjects: Sequence[Mapping[str, str]]) -> str:
    """CEL: whether who asks is one of these."""
    groups = [each["name"] for each in subjects if each["kind"] == "Group"]
    users = [each["name"] for each in subjects if each["kind"] == "User"]
    tests = [
        *([f"request.userInfo.username in {_list(users)}"] if users else []),
        *([f"request.userInfo.?groups.orValue([]).exists(g, g in {_list(groups)})"]
          if groups else []),
    ]  # fmt: skip
    return f"({' || '.join(tests)})" if tests else "false"


def _list(values: Sequence[str]) -> str:
    """A list of texts in CEL, whose literals are those of JSON."""
    return json.dumps(list(values))


def _policy(
    placed: InCluster,
    component: str,
    name: str,
    *,
    operations: Sequence[str],
    resources: Sequence[tuple[str, str]],
    validations: Sequence[tuple[str, str]],
) -> list[Manifest]:
    about = metadata(placed, component, name)
    match: dict[str, Any] = {
        "namespaceSelector": {"matchLabels": {TENANT_LABEL: placed.tenant}},
        "resourceRules": [
            {
                "apiGroups": [group],
                "apiVersions": ["*"],
                "scope": "Namespaced",
                "operations": list(operations),
                "resources": [resource],
            }
            for group, resource in resources
        ],
    }
    return [
        {
            "apiVersion": _API,
            "kind": "ValidatingAdmissionPolicy",
            "metadata": about,
            "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": match,
                "validations": [
                    {"expression": expression, "message": message, "reason": "Forbidden"}
                    for expression, message in validations
                ],
            },
        },
        {
            "apiVersion": _API,
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": about,
            "spec": {"policyName": name, "validationActions": ["Deny", "Audit"]},
        },
    ]
