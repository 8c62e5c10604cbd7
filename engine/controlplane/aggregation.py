"""APIs that charts add to the API server, on a control plane where their pods are simulated.

Nobody would answer: the API server would look for them at addresses that aren't of this machine,
its discovery would stay incomplete, and no namespace could ever be deleted. So such an APIService
is made a local one, as webhooks are not called there either.
"""

from __future__ import annotations

from typing import Any, Final

from falaj.engine.controlplane.objects import Objects, wait_for

_API: Final = "admissionregistration.k8s.io/v1"
_NAME: Final = "falaj-simulated-apis"
_FIELDS: Final = ("caBundle", "insecureSkipTLSVerify")
_SECONDS: Final = 30.0


def keep_local(objects: Objects, manager: str) -> None:
    """Have the API server make each APIService a local one; returns once it does.

    Raises TimeoutError where it doesn't take the policy in.
    """
    objects.apply(_POLICY, manager)
    wait_for(
        lambda: "service" not in objects.apply([_PROBE], manager, dry_run=True)[0]["spec"],
        "APIServices are local",
        _SECONDS,
    )


def _removed(field: str) -> str:
    return f'(has(object.spec.{field}) ? [JSONPatch{{op: "remove", path: "/spec/{field}"}}] : [])'


_POLICY: Final[list[dict[str, Any]]] = [
    {
        "apiVersion": _API, "kind": "MutatingAdmissionPolicy", "metadata": {"name": _NAME},
        "spec": {
            "failurePolicy": "Fail", "reinvocationPolicy": "Never",
            "matchConstraints": {
                "resourceRules": [{
                    "apiGroups": ["apiregistration.k8s.io"], "apiVersions": ["*"],
                    "operations": ["CREATE", "UPDATE"], "resources": ["apiservices"],
                }],
            },
            "matchConditions": [{"name": "remote", "expression": "has(object.spec.service)"}],
            "mutations": [{
                "patchType": "JSONPatch",
                "jsonPatch": {
                    "expression": '[JSONPatch{op: "remove", path: "/spec/service"}] + '
                    + " + ".join(_removed(field) for field in _FIELDS)
                },
            }],
        },
    },
    {
        "apiVersion": _API, "kind": "MutatingAdmissionPolicyBinding", "metadata": {"name": _NAME},
        "spec": {"policyName": _NAME},
    },
]  # fmt: skip
_PROBE: Final[dict[str, Any]] = {
    "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
    "metadata": {"name": "v1.probe.falaj.test"},
    "spec": {
        "group": "probe.falaj.test", "version": "v1", "groupPriorityMinimum": 100,
        "versionPriority": 100, "insecureSkipTLSVerify": True,
        "service": {"namespace": "default", "name": "probe"},
    },
}  # fmt: skip
