"""Who may do what: roles and bindings, namespaces and their marks, paths of secrets.

Nobody is given what makes them somebody else, and nothing is for everybody. Exempt namespaces are
made, and marks of all are changed, by who may change policies.
"""

from falaj.components.catalogue.clusters import (
    BY_NAME_ONLY,
    ESCALATIONS,
    EVERYBODY_NAMES,
    PUBLIC_ROLES,
    READ_VERBS,
    TENANT_LABEL,
)
from falaj.components.catalogue.pod_rules import ENFORCE_LABEL
from falaj.components.kubernetes._objects import RBAC_GROUP
from falaj.components.kubernetes._placed import DATA_CLASS_LABEL, SECRET_NAMES
from falaj.components.kubernetes.admission.policy import (
    ACCOUNTS,
    ASKER,
    ROLE_MAKERS,
    TENANT_OF_NAMESPACE,
    Check,
    ClusterScope,
    Policy,
    Target,
    joined,
    literal,
    texts,
    when,
)

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


def policies(scope: ClusterScope) -> tuple[Policy, ...]:
    """Roles and bindings, namespaces, and secrets from outside."""
    return (*_rights(scope), *_namespaces(scope), *_secret_paths(scope))


def _rights(scope: ClusterScope) -> tuple[Policy, ...]:
    """Roles of tenants, roles of the cluster, and bindings of both."""
    # A role without rules has null in their place.
    rules = {"rules": "dyn(object.?rules.orValue([])) == null ? [] : object.?rules.orValue([])"}
    maker = f'{texts(ROLE_MAKERS)}.exists(n, {ASKER}.startsWith({literal(ACCOUNTS)} + n + ":"))'
    own = {
        "may-not-change-policies": f"!{MAY_CHANGE_POLICIES}",
        "not-of-an-operator-of-agents": f"!{maker}",
    }

    def checks(named: str) -> tuple[Check, ...]:
        return _wildcards(), _escalations(named), _secrets()

    # A role of the cluster names pods of every namespace.
    of_names = f"x == {literal(BY_NAME_ONLY)} && size(r.?resourceNames.orValue([])) > 0"
    roles, cluster_roles = (
        (Target(RBAC_GROUP, "v1", (resource,)),) for resource in ("roles", "clusterroles")
    )
    return (
        Policy("roles", roles, checks(of_names), rules, exempt=scope.platform),
        Policy("cluster-roles", cluster_roles, checks("false"), rules, own),
        _bindings("role-bindings", "rolebindings", scope, frozenset()),
        _bindings("cluster-role-bindings", "clusterrolebindings", scope, scope.platform),
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


def _escalations(named: str) -> Check:
    """What makes somebody else; ``named`` says whether ``x`` of a rule ``r`` is had by name."""
    found = joined(
        f"variables.rules.filter(r, r.?resources.orValue([]).exists(x, (x in {texts(resources)}"
        f"{_extras(resources)}) && !({named})) && r.verbs.exists(v, v in {texts(verbs | {'*'})}))"
        f".map(r, {_RESOURCES} + {literal(' lets one ' + what)})"
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
        f"r.verbs.exists(v, v in {texts(READ_VERBS)}) && size(r.?resourceNames.orValue([])) == 0)"
        '.map(r, r.verbs.join("/"))',
        "the role reads all secrets",
        "verb get with resourceNames",
        "name the secrets, or mount them into the pod",
    )


def _bindings(name: str, resource: str, scope: ClusterScope, trusted: frozenset[str]) -> Policy:
    """Bindings; accounts of ``trusted`` namespaces may be bound to cluster-admin."""
    subjects = "object.?subjects.orValue([])"
    everybody = texts(tuple(EVERYBODY_NAMES))
    of_all = f's.name in {everybody} || s.name.startsWith("system:serviceaccounts:")'
    default = 's.kind == "ServiceAccount" && s.name == "default"'
    shown = 's.kind + " " + s.name'
    allowed = "false"
    if trusted:
        allowed = (
            f'size({subjects}) > 0 && {subjects}.all(s, s.kind == "ServiceAccount" && '
            f's.?namespace.orValue("") in {texts(trusted)})'
        )
    published = " || ".join(
        f'(request.namespace == {literal(namespace)} && object.roleRef.kind == "Role" && '
        f"object.roleRef.name == {literal(role)} && "
        f'{subjects}.all(s, s.kind == "Group" && s.name == "system:authenticated"))'
        for namespace, role in _PUBLISHED.items()
    )
    harmless = f"object.roleRef.name in {texts(PUBLIC_ROLES)}"
    if resource == "rolebindings":
        harmless = f"({harmless} || {published})"
    named = f"size({subjects}) == 0 ? [object.roleRef.name] : {subjects}.map(s, {shown})"
    return Policy(
        name,
        (Target(RBAC_GROUP, "v1", (resource,)),),
        (
            Check(
                "kubernetes-rbac-subjects",
                f"{harmless} ? [] : {subjects}.filter(s, {of_all} || ({default})).map(s, {shown})",
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


#: Marks by which quotas, network policies and this admission tell namespaces apart.
_MARKS = (TENANT_LABEL, DATA_CLASS_LABEL, "istio.io/dataplane-mode")


def _namespaces(scope: ClusterScope) -> tuple[Policy, ...]:
    """What namespaces are called, which standard they enforce, and whose they are."""
    name = "object.metadata.name"
    old = 'oldObject.metadata.?labels[?k].orValue("")'
    new = 'object.metadata.?labels[?k].orValue("")'
    level = f'object.metadata.?labels[?{literal(ENFORCE_LABEL)}].orValue("")'
    exempt = f"{name} in {texts(scope.platform | {'default'})}"
    with_nodes = f"{name} in {texts(scope.with_nodes | {'default'})}"
    # The audit log's part of a policy can't ask for rights, so that a condition does.
    others = {"may-not-change-policies": f"!{MAY_CHANGE_POLICIES}"}
    return (
        Policy(
            "namespaces",
            (Target("", "v1", ("namespaces",)),),
            (
                Check(
                    "kubernetes-namespace-pod-security",
                    when(
                        f'!({with_nodes}) && {level} != "restricted"',
                        f'({level} == "" ? "none" : {level})',
                    ),
                    "the namespace enforces another Pod Security Standard", "restricted",
                    f"label it {ENFORCE_LABEL}=restricted",
                ),
            ),
        ),
        Policy(
            "exempt-namespaces",
            (Target("", "v1", ("namespaces",), ("CREATE",)),),
            (
                Check(
                    "cluster-exempt-namespace", f"{exempt} ? [{name}] : []",
                    "policies are exempt for namespaces of this name",
                    "other names", "take another name, or let an administrator make it",
                ),
            ),
            conditions=others,
        ),
        Policy(
            "namespace-marks",
            (Target("", "v1", ("namespaces",), ("UPDATE",)),),
            (
                Check(
                    "cluster-namespace-marks",
                    f"{texts(_MARKS)}.filter(k, {old} != {new})",
                    "marks of the namespace are changed",
                    "labels of one's own", "let an administrator change them",
                ),
            ),
            conditions=others,
        ),
    )  # fmt: skip


def _secret_paths(scope: ClusterScope) -> tuple[Policy, ...]:
    """What external secrets of a tenant's namespace read.

    One store serves the namespaces of every tenant, so that the path of a secret is what keeps
    them apart. https://external-secrets.io/latest/api/externalsecret/
    """
    # Conditions of a policy don't see the namespace: the check itself asks for its tenant.
    keys = (
        'object.?spec.?data.orValue([]).map(d, d.?remoteRef.?key.orValue("")) + '
        "object.?spec.?dataFrom.orValue([]).filter(d, has(d.extract))"
        '.map(d, d.extract.?key.orValue(""))'
    )
    separator, rest = SECRET_NAMES[scope.placed.distribution]
    own = (
        f"(k.startsWith(variables.tenant + {literal(separator)}) && "
        f"k.substring(size(variables.tenant) + {len(separator)}).matches({literal(rest)}))"
    )
    found = (
        'object.?spec.?dataFrom.orValue([]).filter(d, has(d.find)).map(d, "all that is found") + '
        "(object.?spec.?data.orValue([]).map(d, d.?sourceRef) + "
        "object.?spec.?dataFrom.orValue([]).map(d, d.?sourceRef))"
        ".filter(s, s.?generatorRef.hasValue())"
        '.map(s, "what a generator makes: " + s.?generatorRef.?name.orValue(""))'
    )
    return (
        Policy(
            "external-secrets",
            (Target("external-secrets.io", "v1", ("externalsecrets",)),),
            (
                Check(
                    "cluster-secret-path",
                    f'variables.tenant == "" ? [] : variables.keys.filter(k, !({own})) + {found}',
                    "secrets that aren't the tenant's are read",
                    f"<tenant>{separator}…, each by its name",
                    "name secrets of one's own",
                ),
            ),
            {"tenant": TENANT_OF_NAMESPACE, "keys": keys},
            exempt=scope.platform,
        ),
    )  # fmt: skip
