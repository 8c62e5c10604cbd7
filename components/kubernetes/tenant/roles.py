"""Who may do what in a tenant's namespaces: roles by duty, none of which leads to another.

Trainers and deployers are never the same people: a model that serves was looked at by somebody
who didn't train it (ISO/IEC 27001 A.5.3). Nobody reads secrets, gets into pods, or changes roles,
quotas, network policies and service accounts: those are the platform's.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from falaj.components.catalogue.clusters import TENANT_LABEL
from falaj.components.kubernetes._objects import RBAC_GROUP, Manifest, admission_policy, metadata
from falaj.components.kubernetes._placed import InCluster
from falaj.components.kubernetes._rights import role

ROLES: Final = ("trainers", "deployers", "auditors", "admins")
#: Duties that nobody has together.
APART: Final = ("trainers", "deployers")

READ: Final = ("get", "list", "watch")
_WRITE: Final = ("create", "delete", "get", "list", "patch", "update", "watch")
_END: Final = ("delete",)

Grant = tuple[str, Sequence[str], Sequence[str]]
"""API group, resources and verbs."""

_WATCHED: Final[tuple[Grant, ...]] = (
    ("", ("events", "pods", "pods/log", "services", "endpoints", "configmaps",
          "persistentvolumeclaims", "resourcequotas", "limitranges", "serviceaccounts"), READ),
    ("apps", ("deployments", "replicasets", "statefulsets"), READ),
    ("batch", ("jobs", "cronjobs"), READ),
    ("discovery.k8s.io", ("endpointslices",), READ),
    ("events.k8s.io", ("events",), READ),
    ("kueue.x-k8s.io", ("workloads", "localqueues"), READ),
    ("metrics.k8s.io", ("pods",), ("get", "list")),
    ("networking.k8s.io", ("networkpolicies",), READ),
    ("policy", ("poddisruptionbudgets",), READ),
)  # fmt: skip
_TRAINING: Final[tuple[Grant, ...]] = (
    ("jobset.x-k8s.io", ("jobsets",), READ),
    ("trainer.kubeflow.org", ("trainjobs", "trainingruntimes"), READ),
)
_SERVING: Final[tuple[Grant, ...]] = (
    ("autoscaling", ("horizontalpodautoscalers",), READ),
    ("external-secrets.io", ("externalsecrets",), READ),
    ("gateway.networking.k8s.io", ("httproutes", "grpcroutes"), READ),
    ("keda.sh", ("scaledobjects",), READ),
    ("security.istio.io", ("authorizationpolicies",), READ),
    ("serving.kserve.io", ("inferenceservices",), READ),
)
#: What auditors read beside that: who may do what. Secrets are not among it.
_AUDITED: Final[tuple[Grant, ...]] = (
    ("rbac.authorization.k8s.io", ("roles", "rolebindings"), READ),
)
_TRAINERS: Final[tuple[Grant, ...]] = (
    ("", ("configmaps", "persistentvolumeclaims"), _WRITE),
    ("batch", ("jobs",), _WRITE),
    ("jobset.x-k8s.io", ("jobsets",), _WRITE),
    ("trainer.kubeflow.org", ("trainjobs",), _WRITE),
)
_DEPLOYERS: Final[tuple[Grant, ...]] = (
    ("", ("configmaps", "services"), _WRITE),
    ("apps", ("deployments",), _WRITE),
    ("autoscaling", ("horizontalpodautoscalers",), _WRITE),
    ("gateway.networking.k8s.io", ("httproutes", "grpcroutes"), _WRITE),
    ("keda.sh", ("scaledobjects",), _WRITE),
    ("policy", ("poddisruptionbudgets",), _WRITE),
    ("serving.kserve.io", ("inferenceservices",), _WRITE),
)
#: Admins stop what runs and set what it is given; they start nothing, so that they neither train
#: nor deploy. Secrets they make and replace, but never see: patch and update return the object.
_ADMINS_EVERYWHERE: Final[tuple[Grant, ...]] = (
    ("", ("pods", "persistentvolumeclaims"), _END),
    ("", ("configmaps",), _WRITE),
    ("", ("secrets",), ("create", "delete")),
    ("batch", ("jobs",), _END),
    ("kueue.x-k8s.io", ("localqueues", "workloads"), ("patch", "update")),
)
_ADMINS: Final[dict[str, tuple[Grant, ...]]] = {
    "training": (
        ("jobset.x-k8s.io", ("jobsets",), _END),
        ("trainer.kubeflow.org", ("trainjobs",), _END),
    ),
    "serving": (
        ("apps", ("deployments",), _END),
        ("external-secrets.io", ("externalsecrets",), ("create", "delete", *READ)),
        ("gateway.networking.k8s.io", ("httproutes", "grpcroutes"), _END),
        ("keda.sh", ("scaledobjects",), _END),
        ("serving.kserve.io", ("inferenceservices",), _END),
    ),
}
#: Of the whole cluster, everyone reads what jobs and services refer to by name.
_CLUSTER: Final[tuple[Grant, ...]] = (
    ("kueue.x-k8s.io", ("resourceflavors", "topologies", "workloadpriorityclasses"), READ),
    ("scheduling.k8s.io", ("priorityclasses",), READ),
    ("storage.k8s.io", ("storageclasses",), READ),
    ("trainer.kubeflow.org", ("clustertrainingruntimes",), READ),
)


def grants(role: str, of: str) -> tuple[Grant, ...]:
    """What a role may do in a namespace for ``training`` or ``serving``; empty for nothing."""
    seen = (*_WATCHED, *(_TRAINING if of == "training" else _SERVING))
    if role == "trainers":
        return (*seen, *_TRAINERS) if of == "training" else ()
    if role == "deployers":
        return (*seen, *_DEPLOYERS) if of == "serving" else ()
    if role == "admins":
        return (*seen, *_AUDITED, *_ADMINS_EVERYWHERE, *_ADMINS[of])
    return (*seen, *_AUDITED)


def roles(
    placed: InCluster,
    component: str,
    namespaces: Sequence[tuple[str, str]],
    members: dict[str, tuple[dict[str, str], ...]],
) -> list[Manifest]:
    """Roles and bindings.

    Args:
        placed: the tenant.
        component: name of the component.
        namespaces: name and purpose (``training`` or ``serving``) of each.
        members: subjects by role.
    """
    found: list[Manifest] = []
    for namespace, of in namespaces:
        for duty in ROLES:
            rules = [_rule(each) for each in grants(duty, of)]
            if not rules or not members[duty]:
                continue
            about = metadata(placed, component, f"falaj-{duty}", namespace)
            found += role(about, rules, members[duty])
    everyone = [subject for duty in ROLES for subject in members[duty]]
    about = metadata(placed, component, f"falaj-{placed.tenant}-members")
    own = {
        "apiGroups": ["kueue.x-k8s.io"],
        "resources": ["clusterqueues"],
        "resourceNames": [placed.tenant],
        "verbs": ["get"],
    }
    found += role(about, [*(_rule(each) for each in _CLUSTER), own], everyone)
    return found


def subject(kind: str, name: str) -> dict[str, str]:
    """A ``Group`` or ``User`` as bindings have it."""
    return {"kind": kind, "name": name, "apiGroup": RBAC_GROUP}


def _rule(grant: Grant) -> dict[str, list[str]]:
    group, resources, verbs = grant
    return {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}


# Policies of the API server in CEL say what RBAC and quotas can't. RBAC only ever allows, so that
# who is in two groups has both duties; a quota knows the resources it names, so that a new kind of
# GPU share would be free; and Kueue takes any priority that a label names, or that somebody writes
# into what waits.
# https://kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy/

_PRIORITY: Final = "kueue.x-k8s.io/priority-class"
#: What every node has; quotas count it.
_EVERYWHERE: Final = ("cpu", "memory", "ephemeral-storage")


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
    given = _list([*_EVERYWHERE, *sorted(devices)])
    found = _admission_policy(
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
    found += _admission_policy(
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
        ), (
            "request.resource.resource != 'pods' || "
            f"object.spec.?priorityClassName.orValue('') in {_list(['', *priorities])}",
            f"pods of {tenant} have the priorities {', '.join(priorities)} only",
        )],
    )  # fmt: skip
    found += _admission_policy(
        placed,
        component,
        f"falaj-{tenant}-queued",
        operations=("UPDATE",),
        resources=(("kueue.x-k8s.io", "workloads"),),
        validations=[(
            f"!{_has(members['admins'])} || ({_same_but('active', 'object', 'oldObject')} && "
            f"{_same_but('active', 'oldObject', 'object')})",
            f"admins of {tenant} only stop and start what is queued (spec.active); its priority, "
            "queue and size are the job's",
        )],
    )  # fmt: skip
    found += _admission_policy(
        placed,
        component,
        f"falaj-{tenant}-devices",
        operations=("CREATE",),
        resources=(("", "pods"),),
        validations=[(
            "(object.spec.containers + object.spec.?initContainers.orValue([])).all(each, "
            f"each.?resources.?limits.orValue({{}}).all(name, name in {given}) && "
            f"each.?resources.?requests.orValue({{}}).all(name, name in {given}))",
            f"{tenant} was given {', '.join(sorted(devices)) or 'no GPUs'}; ask the platform's "
            "owner for other kinds of GPU, devices and pages",
        ), (
            "size(object.spec.?resourceClaims.orValue([])) == 0",
            f"devices of {tenant} are asked for by their names in limits, which quotas count; "
            "remove resourceClaims",
        )],
    )  # fmt: skip
    return found


def _same_but(key: str, one: str, other: str) -> str:
    """CEL: whether the other object's specification has all keys of one's, a key apart."""
    here, there = f"dyn({one}.spec)", f"dyn({other}.spec)"
    return f"{here}.all(k, k == '{key}' || (k in {there} && {here}[k] == {there}[k]))"


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


def _admission_policy(
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
    return admission_policy(
        about,
        {
            "matchConstraints": match,
            "validations": [
                {"expression": expression, "message": message, "reason": "Forbidden"}
                for expression, message in validations
            ],
        },
    )
