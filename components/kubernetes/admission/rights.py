"""Roles and bindings: nobody is given what makes them somebody else, nothing is for everybody."""

from falaj.components.catalogue.clusters.rights import ESCALATIONS, EVERYBODY, HARMLESS, READS
from falaj.components.kubernetes.admission.expressions import text, texts
from falaj.components.kubernetes.admission.home import ACCOUNTS, ROLE_MAKERS, Home, joined
from falaj.components.kubernetes.admission.policy import Check, Policy, Target

_GROUP = "rbac.authorization.k8s.io"
_RESOURCES = 'r.?resources.orValue([]).join("/")'

#: Roles of add-ons that are for everybody who has an account, by namespace: Trainer's lets its SDK
#: read one ConfigMap, which says the version. Its chart makes it in any case.
_PUBLISHED = {"kubeflow-system": "kubeflow-trainer-public"}

MAY_CHANGE_POLICIES = (
    'authorizer.group("admissionregistration.k8s.io").resource("validatingadmissionpolicies")'
    '.check("update").allowed()'
)
"""Whether the one who asks may change these policies: no admission judges changes of those, so
whoever may is held back by nothing here. It is what an exemption is worth."""


def policies(home: Home) -> tuple[Policy, ...]:
    """Roles of tenants, roles of the cluster, and bindings of both."""
    user = "request.userInfo.username"
    # A role without rules has null in their place.
    rules = {"rules": "dyn(object.?rules.orValue([])) == null ? [] : object.?rules.orValue([])"}
    maker = f'{texts(ROLE_MAKERS)}.exists(n, {user}.startsWith({text(ACCOUNTS)} + n + ":"))'
    own = {
        "may-not-change-policies": f"!{MAY_CHANGE_POLICIES}",
        "not-of-an-operator-of-agents": f"!{maker}",
    }
    checks = (_wildcards(), _escalations(), _secrets())
    return (
        Policy("roles", (Target(_GROUP, "v1", ("roles",)),), checks, rules, exempt=home.platform),
        Policy("cluster-roles", (Target(_GROUP, "v1", ("clusterroles",)),), checks, rules, own),
        _bindings("role-bindings", "rolebindings", home, frozenset()),
        _bindings("cluster-role-bindings", "clusterrolebindings", home, home.platform),
    )


def _wildcards() -> Check:
    lists = " || ".join(
        f'r.?{each}.orValue([]).exists(v, v in ["*", "*/*", "/*"])'
        for each in ("verbs", "apiGroups", "resources", "nonResourceURLs")
    )
    return Check(
        "kubernetes-rbac-wildcard",
        f'variables.rules.filter(r, {lists}).map(r, r.verbs.join("/") + " on " + {_RESOURCES})',
        "the role allows whatever there is",
        "verbs, groups and resources by their names",
        "replace * by what is needed",
    )


def _escalations() -> Check:
    found = joined(
        f"variables.rules.filter(r, r.?resources.orValue([]).exists(x, x in {texts(resources)}"
        f"{_extras(resources)}) && r.verbs.exists(v, v in {texts(verbs | {'*'})}))"
        f".map(r, {_RESOURCES} + {text(' lets one ' + what)})"
        for resources, verbs, what in ESCALATIONS
    )
    return Check(
        "kubernetes-rbac-escalation",
        found,
        "the role makes its holder somebody else",
        "roles without such verbs",
        "remove the verb or the resource",
    )


def _extras(resources: frozenset[str]) -> str:
    return ' || x.startsWith("userextras/")' if "userextras" in resources else ""


def _secrets() -> Check:
    return Check(
        "kubernetes-rbac-secrets",
        'variables.rules.filter(r, "secrets" in r.?resources.orValue([]) && '
        'r.?apiGroups.orValue([""]).exists(g, g in ["", "*"]) && '
        f"r.verbs.exists(v, v in {texts(READS)}) && size(r.?resourceNames.orValue([])) == 0)"
        '.map(r, r.verbs.join("/"))',
        "the role reads all secrets",
        "verb get with resourceNames",
        "name the secrets, or mount them into the pod",
    )


def _bindings(name: str, resource: str, home: Home, trusted: frozenset[str]) -> Policy:
    """Bindings; accounts of ``trusted`` namespaces may be bound to cluster-admin."""
    subjects = "object.?subjects.orValue([])"
    of_all = f's.name in {texts(tuple(EVERYBODY))} || s.name.startsWith("system:serviceaccounts:")'
    default = 's.kind == "ServiceAccount" && s.name == "default"'
    said = 's.kind + " " + s.name'
    allowed = "false"
    if trusted:
        allowed = (
            f'size({subjects}) > 0 && {subjects}.all(s, s.kind == "ServiceAccount" && '
            f's.?namespace.orValue("") in {texts(trusted)})'
        )
    published = " || ".join(
        f'(request.namespace == {text(namespace)} && object.roleRef.kind == "Role" && '
        f"object.roleRef.name == {text(role)} && "
        f'{subjects}.all(s, s.kind == "Group" && s.name == "system:authenticated"))'
        for namespace, role in _PUBLISHED.items()
    )
    harmless = f"object.roleRef.name in {texts(HARMLESS)}"
    if resource == "rolebindings":
        harmless = f"({harmless} || {published})"
    named = f"size({subjects}) == 0 ? [object.roleRef.name] : {subjects}.map(s, {said})"
    return Policy(
        name,
        (Target(_GROUP, "v1", (resource,)),),
        (
            Check(
                "kubernetes-rbac-subjects",
                f"{harmless} ? [] : {subjects}.filter(s, {of_all} || ({default})).map(s, {said})",
                "rights for everybody",
                "named groups, and accounts that only one program has",
                "bind one of these",
            ),
            Check(
                "kubernetes-rbac-cluster-admin",
                f'object.roleRef.name == "cluster-admin" && !({allowed}) ? ({named}) : []',
                "cluster-admin may do everything, and would be given to",
                "roles that name what is needed",
                "bind such a role; administrators come in by the cloud's access entries",
            ),
        ),
    )
