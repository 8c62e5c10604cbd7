"""Rehearsals of restores: what `falaj.workloads.restoring` needs in a cluster, and may do there.

A rehearsal restores namespaces, one after the other, into a scratch namespace that is always there
and empties it again. Whoever may make a `Restore` has Velero do what Velero may do, which is
everything: a backup has roles of the cluster, webhooks, and secrets of every team. So the account
of rehearsals may make such restores only that its plan has, which an admission policy of the
cluster holds it to: whatever else a backup holds stays there.

What is restored does nothing: objects that controllers act on stay in the backup (`KINDS`), the
rest is changed on its way back (`_CHANGES`), and a quota lets no pod, volume or load balancer come
into the scratch namespace, whoever asks. Volumes' data isn't in these backups.

Velero's fields: https://velero.io/docs/v1.18/api-types/restore/,
https://velero.io/docs/v1.18/restore-resource-modifiers/
"""

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Annotated, Any, Final, NotRequired, TypedDict

from annotated_types import Len

from falaj.components.kubernetes._objects import Manifest, admission_policy
from falaj.components.kubernetes._pods import INFERENCE_IMAGE, unprivileged, unprivileged_pod
from falaj.components.kubernetes._rights import account, role, rule
from falaj.components.kubernetes._validation import OptionsChecker
from falaj.components.kubernetes.addons.addon import (
    PRIORITY_CLASS,
    Namespace,
    PlatformSpec,
    resources,
)
from falaj.components.specification.arguments import Default
from falaj.components.specification.described import described
from falaj.components.specification.limits import OBJECT, SCHEDULE, Between

VELERO: Final = Namespace("velero")
"""Velero's own, whose objects it obeys."""
SCRATCH: Final = Namespace("restore-rehearsal")
"""Restored into."""
WITNESS: Final = Namespace("restore-witness")
"""Has one object, whose content is known, in every backup."""
NAME: Final = "restore-rehearsal"
"""Of the CronJob, its account, and most objects around them."""
RESULTS: Final = "restore-rehearsal-results"
"""ConfigMap with the last result, and the last good one."""
_MODIFIER: Final = "restore-rehearsal-changes"
_VELERO_API: Final = "velero.io/v1"
#: Beside the rehearsal's own time: to clean up after it.
_CLEAN_MINUTES: Final = 10
_MOST_OBJECTS: Final = 5000

#: Group, version and resource of what is restored. Nothing else: pods, jobs and what makes them
#: would run twice; gateways, routes, certificates, scalers, claims and the objects of other
#: controllers act on something outside of their namespace; bindings of roles give rights back that
#: were taken since.
KINDS: Final = (
    ("", "v1", "configmaps"),
    ("", "v1", "secrets"),
    ("", "v1", "serviceaccounts"),
    ("", "v1", "services"),
    ("apps", "v1", "deployments"),
    ("apps", "v1", "statefulsets"),
)
#: Merged into what is restored, by kind and the type that it has: nothing starts, and nothing gets
#: an address outside. With it go finalizers, by which another controller could keep the scratch
#: namespace from being emptied.
_CHANGES: Final[tuple[tuple[str, str, Mapping[str, Any]], ...]] = (
    *((f"{resource}.{group}" if group else resource, "", {"metadata": {"finalizers": None}})
      for group, _, resource in KINDS),
    ("services", "", {"spec": {"externalIPs": None}}),
    ("services", "NodePort", {"spec": {"type": "ClusterIP", "externalTrafficPolicy": None}}),
    ("services", "LoadBalancer", {"spec": {
        "type": "ClusterIP", "externalTrafficPolicy": None, "loadBalancerIP": None,
        "loadBalancerClass": None, "allocateLoadBalancerNodePorts": None,
        "healthCheckNodePort": None, "loadBalancerSourceRanges": None,
    }}),
    ("deployments.apps", "", {"spec": {"replicas": 0}}),
    ("statefulsets.apps", "", {"spec": {"replicas": 0}}),
)  # fmt: skip
#: What may not come into the scratch namespace at all.
_NEVER: Final = (
    "pods", "persistentvolumeclaims", "services.loadbalancers", "services.nodeports",
    "count/jobs.batch", "count/cronjobs.batch",
)  # fmt: skip
_CONTENT: Final = "In every backup of this cluster; a rehearsal restores it and looks for it.\n"


@described
class RehearsalOptions(TypedDict):
    """Options of a rehearsal."""

    schedule: NotRequired[Annotated[str, SCHEDULE, Default("0 2 * * 5")]]
    """When, as a cron expression in UTC; without it on Fridays at 06:00 in the Emirates."""
    namespaces: NotRequired[Annotated[list[Annotated[str, OBJECT]], Len(0, 50)]]
    """Namespaces that are restored beside the witness of the platform's own, one after the other:
    their secrets are in the scratch namespace until each was looked at. Default: none."""
    minutes: NotRequired[Annotated[int, Between(1, 240), Default(30)]]
    """After which a rehearsal is given up."""
    within_days: NotRequired[Annotated[int, Between(1, 400), Default(10)]]
    """An alert fires when none succeeded for so many days."""


def check(options: OptionsChecker) -> None:
    """Refuse options that can't be."""
    taken = {SCRATCH.name, WITNESS.name, VELERO.name}
    for each in options.checked(RehearsalOptions)["namespaces"] or ():
        if each in taken or each.startswith("kube-"):
            options.say(
                "namespaces",
                f"given {each!r}; allowed: namespaces of one's own, "
                f"none of {', '.join(sorted(taken))} and kube-…",
            )


def sources(options: Mapping[str, Any]) -> tuple[str, ...]:
    """All namespaces that are restored."""
    return (WITNESS.name, *(options["namespaces"] or ()))


def plan(options: Mapping[str, Any], schedule: str, recovery_point_hours: int) -> dict[str, Any]:
    """What the workload reads (`falaj.workloads.restoring.plan`)."""
    return {
        "velero": VELERO.name,
        "schedule": schedule,
        "scratch": SCRATCH.name,
        "quota": NAME,
        "namespaces": list(options["namespaces"] or ()),
        "kinds": [
            {"group": group, "version": version, "resource": resource}
            for group, version, resource in KINDS
        ],
        "witness": {
            "namespace": WITNESS.name,
            "name": NAME,
            "digest": sha256(_CONTENT.encode()).hexdigest(),
        },
        "modifier": _MODIFIER,
        "results": RESULTS,
        "recovery_point_hours": recovery_point_hours,
        "minutes": options["minutes"],
    }


def manifests(
    spec: PlatformSpec, options: Mapping[str, Any], plan: Mapping[str, Any]
) -> Sequence[Manifest]:
    """The CronJob, its account with what it may do, and what keeps a restore in its place."""

    def config(name: str, namespace: str, **data: str) -> Manifest:
        about = spec.metadata(name, namespace)
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": about,
                **({"data": data} if data else {})}  # fmt: skip

    return [
        config(NAME, WITNESS.name, content=_CONTENT),
        {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": spec.metadata(NAME, SCRATCH.name),
            "spec": {
                "hard": {
                    **dict.fromkeys(_NEVER, "0"),
                    **{f"count/{each}": str(_MOST_OBJECTS) for each in _resources()},
                }
            },
        },
        config(NAME, VELERO.name, **{"plan.json": json.dumps(plan, sort_keys=True)}),
        config(_MODIFIER, VELERO.name, **{"changes.json": json.dumps(changes(), sort_keys=True)}),
        config(RESULTS, VELERO.name),
        *_account(spec),
        *_admission(spec, options),
        _cron_job(spec, options),
    ]


def changes() -> dict[str, Any]:
    """Velero's resource modifiers."""
    rules: list[dict[str, Any]] = []
    for kind, of_type, patch in _CHANGES:
        conditions: dict[str, Any] = {"groupResource": kind}
        if of_type:
            conditions["matches"] = [{"path": "/spec/type", "value": of_type}]
        patches = [{"patchData": json.dumps(patch)}]
        rules.append({"conditions": conditions, "mergePatches": patches})
    return {"version": "v1", "resourceModifierRules": rules}


def _resources() -> list[str]:
    """As Velero and quotas name them."""
    return [f"{resource}.{group}" if group else resource for group, _, resource in KINDS]


def _account(spec: PlatformSpec) -> list[Manifest]:
    """The account, and its rights: none of the whole cluster, none in namespaces of others."""
    in_scratch: list[dict[str, Any]] = [
        # Nobody lists secrets: the quota counts them.
        rule(group, resource, *(() if resource == "secrets" else ("list",)), "deletecollection")
        for group, _, resource in KINDS
    ]
    in_scratch += [
        rule("", resource, "get", names=[NAME]) for resource in ("configmaps", "resourcequotas")
    ]
    in_velero = [
        rule("velero.io", "backups", "list"),
        rule("velero.io", "restores", "create", "get", "list", "delete"),
        rule("", "configmaps", "patch", names=[RESULTS]),
    ]
    subject = {"kind": "ServiceAccount", "name": NAME, "namespace": VELERO.name}
    return [
        account(spec.metadata(NAME, VELERO.name)),
        *role(spec.metadata(NAME, VELERO.name), in_velero, [subject]),
        *role(spec.metadata(NAME, SCRATCH.name), in_scratch, [subject]),
    ]


def _admission(spec: PlatformSpec, options: Mapping[str, Any]) -> list[Manifest]:
    """Holds the account's restores to the plan, whatever runs as it.

    https://kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy/
    """
    allowed = json.dumps(sources(options))
    kinds = json.dumps(_resources())
    # Every field is named: one that a later version of Velero has is refused until it is known.
    fields = json.dumps([
        "backupName", "includedNamespaces", "namespaceMapping", "includedResources",
        "includeClusterResources", "restorePVs", "preserveNodePorts", "itemOperationTimeout",
        "resourceModifier", "hooks",
    ])  # fmt: skip
    of = "object.spec"
    demands = (
        (f"dyn({of}).all(field, field in {fields})",
         "a restore of a rehearsal has the plan's fields alone"),
        (f"size({of}.?hooks.?resources.orValue([])) == 0", "it runs no hooks"),
        (f"size({of}.?includedNamespaces.orValue([])) == 1 && "
         f"{of}.includedNamespaces.all(n, n in {allowed})",
         f"it restores one of {', '.join(sources(options))}"),
        (f"{of}.?namespaceMapping.orValue({{}}).size() == 1 && {of}.includedNamespaces.all(n, "
         f"n in {of}.namespaceMapping && {of}.namespaceMapping[n] == {json.dumps(SCRATCH.name)})",
         f"it restores into {SCRATCH.name}"),
        (f"size({of}.?includedResources.orValue([])) > 0 && "
         f"{of}.includedResources.all(r, r in {kinds})",
         f"it restores {', '.join(_resources())} alone"),
        (f"{of}.?includeClusterResources.orValue(true) == false && "
         f"{of}.?restorePVs.orValue(true) == false",
         "it restores no objects of the cluster and no volumes"),
        (f"{of}.?resourceModifier.?kind.orValue('') == 'ConfigMap' && "
         f"{of}.?resourceModifier.?name.orValue('') == {json.dumps(_MODIFIER)}",
         f"it changes what it restores by {_MODIFIER}"),
    )  # fmt: skip
    name = f"falaj-{NAME}"
    rule = {"apiGroups": ["velero.io"], "apiVersions": ["*"], "resources": ["restores"],
            "operations": ["CREATE", "UPDATE"]}  # fmt: skip
    user = f"request.userInfo.username == 'system:serviceaccount:{VELERO.name}:{NAME}'"
    return admission_policy(
        spec.metadata(name),
        {
            "matchConstraints": {"resourceRules": [rule]},
            "matchConditions": [{"name": "rehearsals", "expression": user}],
            "validations": [
                {"expression": expression, "message": message} for expression, message in demands
            ],
        },
    )


def _cron_job(spec: PlatformSpec, options: Mapping[str, Any]) -> Manifest:
    container = {
        "name": "rehearsal",
        "image": spec.images[INFERENCE_IMAGE],
        "command": ["python", "-m", "falaj.workloads.restoring", "rehearse"],
        "args": ["--plan", "/plan/plan.json"],
        "securityContext": unprivileged(),
        "resources": resources("50m", "256Mi"),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [{"name": "plan", "mountPath": "/plan", "readOnly": True}],
    }
    pod = {
        "restartPolicy": "Never",
        "serviceAccountName": NAME,
        # It asks the API server for all that it does.
        "automountServiceAccountToken": True,
        "enableServiceLinks": False,
        "priorityClassName": PRIORITY_CLASS,
        "nodeSelector": spec.node_selector,
        "terminationGracePeriodSeconds": _CLEAN_MINUTES * 60,
        "securityContext": unprivileged_pod(),
        "containers": [container],
        "volumes": [{"name": "plan", "configMap": {"name": NAME, "defaultMode": 0o444}}],
    }
    about = spec.metadata(NAME, VELERO.name)
    labels = {"labels": about["labels"], "annotations": about["annotations"]}
    # What it found, it would find again (2, 3); when the API server was lost, once more may do.
    final = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [2, 3]}}
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": about,
        "spec": {
            "schedule": options["schedule"],
            "timeZone": "Etc/UTC",
            "concurrencyPolicy": "Forbid",
            "startingDeadlineSeconds": 3600,
            "successfulJobsHistoryLimit": 3,
            "failedJobsHistoryLimit": 3,
            "jobTemplate": {
                "metadata": labels,
                "spec": {
                    "backoffLimit": 1,
                    "podFailurePolicy": {"rules": [final]},
                    "activeDeadlineSeconds": 2 * (options["minutes"] + _CLEAN_MINUTES) * 60,
                    "template": {"metadata": labels, "spec": pod},
                },
            },
        },
    }
