"""Who may do what in a cluster: nothing by wildcard, nothing for everybody.

https://kubernetes.io/docs/concepts/security/rbac-good-practices/
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from falaj.components.catalogue.clusters import (
    BY_NAME_ONLY,
    ESCALATIONS,
    EVERYBODY_NAMES,
    PUBLIC_ROLES,
    READ_VERBS,
)
from falaj.policies.model import (
    ABSENT,
    Context,
    Finding,
    Resource,
    Rule,
    Severity,
    format_value,
    get,
    is_unknown,
    items,
    rule,
    select,
    text,
)
from falaj.policies.reading.kubernetes import Manifest, kinds, manifests

_GROUP: Final = "rbac.authorization.k8s.io"
_ROLES: Final = kinds(f"{_GROUP}:Role", f"{_GROUP}:ClusterRole")
_CONTROLS: Final = (
    "iso27001:A.5.15", "iso27001:A.8.2", "iso27001:A.8.3", "uae-ia:T5.2.2", "nist-800-207:6",
)  # fmt: skip

#: What rules of a role list.
_ALLOWED: Final = ("verbs", "apiGroups", "resources", "nonResourceURLs")


def _roles(resource: Resource) -> Iterator[Manifest]:
    for manifest in manifests(resource):
        if manifest.kind in {"Role", "ClusterRole"} and manifest.group == _GROUP:
            yield manifest


def _hidden_rules(manifest: Manifest) -> Iterator[Finding]:
    """What of a role's rules can't be seen."""
    for key in _ALLOWED:
        for path, value in select(manifest.body, f"rules.{key}"):
            if is_unknown(value):
                yield manifest.indeterminate(path, f"what the role allows {value.reason}")


@rule(
    "kubernetes-rbac-wildcard",
    "Roles name what they allow",
    Severity.HIGH,
    _ROLES,
    _CONTROLS,
    "Replace * by the verbs, API groups and resources that are needed.",
)
def wildcard(resource: Resource, context: Context) -> Iterator[Finding]:
    """No verb, group, resource or URL is ``*``; nothing is gathered from all roles there are."""
    for manifest in _roles(resource):
        yield from _hidden_rules(manifest)
        for key in _ALLOWED:
            for path, value in select(manifest.body, f"rules.{key}"):
                if value in ("*", "*/*", "/*"):
                    yield manifest.violation(path, f"{key} has {value}, which is all there are")
        selectors = manifest.get("aggregationRule.clusterRoleSelectors")
        for index, each in enumerate(items(selectors)):
            path = f"aggregationRule.clusterRoleSelectors[{index}]"
            if is_unknown(each):
                yield manifest.indeterminate(path, f"which roles it gathers {each.reason}")
            elif each == {}:
                yield manifest.violation(path, "it gathers the rules of all cluster roles")


@rule(
    "kubernetes-rbac-escalation",
    "Roles give no way to become somebody else",
    Severity.HIGH,
    _ROLES,
    (*_CONTROLS, "iso27001:A.5.3", "uae-ia:T3.2.4"),
    "Remove the verb or the resource from the role. For debugging, use a role that people get for "
    "a limited time.",
)
def escalation(resource: Resource, context: Context) -> Iterator[Finding]:
    """No role may escalate, bind, impersonate, make tokens, or run commands elsewhere.

    Ports of pods may be forwarded that a Role names: it is for their owner.
    """
    for manifest in _roles(resource):
        yield from _hidden_rules(manifest)
        for index, each in enumerate(items(manifest.get("rules"))):
            verbs = {text(one).lower() for one in items(get(each, "verbs"))}
            named = manifest.kind == "Role" and bool(items(get(each, "resourceNames")))
            for inner, one in enumerate(items(get(each, "resources"))):
                if named and text(one).lower() == BY_NAME_ONLY:
                    continue
                for resources, needed, what in ESCALATIONS:
                    found = sorted(needed & verbs) or (["*"] if "*" in verbs else [])
                    if _of_kind(text(one).lower()) in resources and found:
                        yield manifest.violation(
                            f"rules[{index}].resources[{inner}]",
                            f"{found[0]} on {text(one)} lets one {what}",
                        )


def _of_kind(resource: str) -> str:
    """A resource as the table has it: extras of users are named one by one."""
    return "userextras" if resource.startswith("userextras/") else resource


@rule(
    "kubernetes-rbac-secrets",
    "Roles read secrets by name only",
    Severity.HIGH,
    _ROLES,
    (*_CONTROLS, "iso27001:A.8.12"),
    "Name the secrets in resourceNames, with the verb get, in a Role of their namespace; or mount "
    "them into the pod, which needs no role.",
)
def secrets(resource: Resource, context: Context) -> Iterator[Finding]:
    """Nobody reads all secrets of the cluster, or of a namespace."""
    for manifest in _roles(resource):
        where = "all namespaces" if manifest.kind == "ClusterRole" else "its namespace"
        yield from _hidden_rules(manifest)
        for index, each in enumerate(items(manifest.get("rules"))):
            names = get(each, "resourceNames")
            verbs = {text(one).lower() for one in items(get(each, "verbs"))} & READ_VERBS
            if not verbs or is_unknown(names) or items(names):
                continue
            for inner, one in enumerate(items(get(each, "resources"))):
                if text(one).lower() == "secrets" and _is_core(get(each, "apiGroups")):
                    yield manifest.violation(
                        f"rules[{index}].resources[{inner}]",
                        f"{min(verbs)} on all secrets of {where} is allowed",
                    )


def _is_core(groups: Any) -> bool:
    return groups is ABSENT or any(each in ("", "*") or is_unknown(each) for each in items(groups))


_BINDINGS: Final = kinds(f"{_GROUP}:RoleBinding", f"{_GROUP}:ClusterRoleBinding")


def _bindings(resource: Resource) -> Iterator[Manifest]:
    for manifest in manifests(resource):
        if manifest.kind in {"RoleBinding", "ClusterRoleBinding"} and manifest.group == _GROUP:
            yield manifest


@rule(
    "kubernetes-rbac-cluster-admin",
    "Nobody is bound to cluster-admin",
    Severity.HIGH,
    _BINDINGS,
    (*_CONTROLS, "iso27001:A.5.18"),
    "Bind a role that names what is needed. Administrators get in by the cloud's access entries.",
)
def cluster_admin(resource: Resource, context: Context) -> Iterator[Finding]:
    """No binding gives all rights, in the cluster or in a namespace."""
    for manifest in _bindings(resource):
        name = manifest.get("roleRef.name")
        if is_unknown(name):
            if not context.referred(resource, manifest.path("roleRef.name")):
                yield manifest.indeterminate("roleRef.name", f"the role {name.reason}")
        elif text(name) == "cluster-admin":
            yield manifest.violation("roleRef.name", "cluster-admin may do everything")


@rule(
    "kubernetes-rbac-subjects",
    "Roles are bound to subjects of their own",
    Severity.CRITICAL,
    _BINDINGS,
    (*_CONTROLS, "iso27001:A.5.16", "nist-800-207:3"),
    "Bind the role to a named group, or to a service account that only the program has.",
)
def subjects(resource: Resource, context: Context) -> Iterator[Finding]:
    """Not to everybody, and not to a namespace's default service account."""
    for manifest in _bindings(resource):
        if text(manifest.get("roleRef.name")) in PUBLIC_ROLES:
            continue
        for index, each in enumerate(items(manifest.get("subjects"))):
            path = f"subjects[{index}].name"
            name = get(each, "name")
            if is_unknown(each) or is_unknown(name):
                hidden = each if is_unknown(each) else name
                if not context.referred(resource, manifest.path(path)):
                    yield manifest.indeterminate(path, f"who it is {hidden.reason}")
                continue
            who = EVERYBODY_NAMES.get(text(name)) or (
                EVERYBODY_NAMES["system:serviceaccounts"]
                if text(name).startswith("system:serviceaccounts:")
                else ""
            )
            if who:
                yield manifest.violation(path, f"{format_value(name)} is {who}")
            elif text(get(each, "kind")) == "ServiceAccount" and text(name) == "default":
                yield manifest.violation(
                    path, "the default service account is that of every pod that names none"
                )


RULES: tuple[Rule, ...] = (wildcard, escalation, secrets, cluster_admin, subjects)
