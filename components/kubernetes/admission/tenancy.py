"""What keeps tenants apart beyond their roles: volumes, names, costs and metrics of one another.

Roles say which kinds a tenant's people write. What they write in them may still name what is
another's: a volume that is there, another's service, another's label, another's metrics. Whoever
may change these policies chooses such things for tenants, and is held back by nothing here.
"""

from falaj.components.catalogue.clusters import TENANT_LABEL
from falaj.components.catalogue.scalers import (
    FOREIGN_AUTHENTICATION,
    PROMETHEUS_KEYS,
    SCALERS,
    own_query,
)
from falaj.components.kubernetes.admission.access import MAY_CHANGE_POLICIES
from falaj.components.kubernetes.admission.policy import (
    ASKER,
    CLUSTER,
    NON_EMPTY,
    TENANT_OF_NAMESPACE,
    Check,
    ClusterScope,
    Policy,
    Target,
    joined,
    listed_pattern,
    literal,
    texts,
    when,
)
from falaj.components.kubernetes.admission.shapes import PodPolicy, Shape

_OTHERS = {"may-not-change-policies": f"!{MAY_CHANGE_POLICIES}"}
#: Who binds claims to volumes: with an account of its own, or as the whole of the controllers.
_BINDERS = (
    "system:serviceaccount:kube-system:persistent-volume-binder",
    "system:kube-controller-manager",
)
#: What stands for the namespace in an expression until an object comes.
_PLACE = "NAMESPACE"


def policies(scope: ClusterScope) -> tuple[Policy, ...]:
    """Claims, services, labels and scalers of tenants."""
    return (
        _claimed_volumes(),
        _aliases(scope),
        *PodPolicy(
            "tenant-labels", _labels, {"tenant": TENANT_OF_NAMESPACE}, scope.platform
        ).policies(),
        _scalers(scope),
    )


def _claimed_volumes() -> Policy:
    """Claims that name their volume, when they are made or later: it may be changed once."""
    new, old = (f'{each}.spec.?volumeName.orValue("")' for each in ("object", "oldObject"))
    return Policy(
        "claimed-volumes",
        (Target("", "v1", ("persistentvolumeclaims",)),),
        (
            Check(
                "cluster-claimed-volume",
                when(f'{new} != "" && (request.operation == "CREATE" || {old} != {new})', new),
                "the claim chooses its volume, which may be another tenant's",
                "no volumeName",
                "leave it out, or let an administrator make the claim",
            ),
        ),
        conditions={
            **_OTHERS,
            "not-of-the-binder": f"!({ASKER} in {texts(_BINDERS)})",
        },
        exempt=CLUSTER,
    )


def _aliases(scope: ClusterScope) -> Policy:
    """Services of tenants that stand for a name: a CNAME, which no network policy sees."""
    name = 'object.spec.?externalName.orValue("").lowerAscii()'
    own = (
        f'{name}.matches("^[a-z](?:[a-z0-9-]*[a-z0-9])?[.]" + request.namespace + '
        '"[.]svc(?:[.]cluster[.]local)?[.]?$")'
    )
    listed = f"{name}.matches({literal(listed_pattern(scope.hosts))})"
    return Policy(
        "aliases",
        (Target("", "v1", ("services",)),),
        (
            Check(
                "cluster-alias-of-others",
                when(
                    f'{TENANT_OF_NAMESPACE} != "" && '
                    'object.spec.?type.orValue("") == "ExternalName" && '
                    f"!({own}) && !({listed})",
                    name,
                ),
                "the service stands for what is another's",
                "services of the namespace by SERVICE.NAMESPACE.svc, hosts in allowed_hosts",
                "name one of these, or let an administrator make it",
            ),
        ),
        conditions=_OTHERS,
    )


def _labels(shape: Shape) -> tuple[Check, ...]:
    """The label by which pods are paid for and their metrics told apart."""
    of_label = f'[?{literal(TENANT_LABEL)}].orValue("")'
    label = f"{shape.labels}{of_label}"
    changed = "true"
    if shape.is_pod:
        # Pods from before the policies are still bound, ungated and finished.
        before = f"oldObject.metadata.?labels.orValue({{}}){of_label}"
        changed = f'(request.operation == "CREATE" || {before} != {label})'
    return (
        Check(
            "kubernetes-tenant-label",
            f'(variables.tenant != "" && {label} != "" && {label} != variables.tenant && '
            f"{changed} ? [{label}] : [])",
            "the pod would be another tenant's to pay",
            f"{TENANT_LABEL} of its namespace",
            "remove the label, or set it to the namespace's",
        ),
    )


def _scalers(scope: ClusterScope) -> Policy:
    """What KEDA asks for a tenant, with its own identity: https://keda.sh/docs/latest/scalers/"""
    kind = 't.?type.orValue("")'
    metadata = "t.?metadata.orValue({})"
    of_prometheus = f'variables.triggers.filter(t, {kind} == "prometheus")'
    foreign = f't.?authenticationRef.?kind.orValue("") == {literal(FOREIGN_AUTHENTICATION)}'
    trigger = joined((
        f"variables.triggers.filter(t, !({kind} in {texts(SCALERS)})).map(t, {kind})",
        f"variables.triggers.filter(t, {foreign}).map(t, "
        f'{literal(FOREIGN_AUTHENTICATION + " ")} + t.authenticationRef.?name.orValue(""))',
        f"{of_prometheus}.map(t, {metadata}.filter(k, !(k in {texts(PROMETHEUS_KEYS)}))"
        f'.join(", ")){NON_EMPTY}',
    ))  # fmt: skip
    server = f'{metadata}[?"serverAddress"].orValue("")'
    query = f'{metadata}[?"query"].orValue("")'
    # A namespace's name is a DNS label: nothing in it means something in an expression.
    about = literal(f"^(?:{own_query(_PLACE)})+$")
    own = f"{about}.replace({literal(_PLACE)}, request.namespace)"
    metrics = joined((
        f"{of_prometheus}.filter(t, !{server}.matches({literal(scope.metrics_pattern)}))"
        f".map(t, {server})",
        f"{of_prometheus}.filter(t, !{query}.matches({own})).map(t, {query})",
    ))  # fmt: skip
    return Policy(
        "scalers",
        (Target("keda.sh", "v1alpha1", ("scaledobjects", "scaledjobs")),),
        (
            Check(
                "kubernetes-scaler-trigger", trigger,
                "KEDA would call others, or use credentials that aren't the namespace's",
                f"triggers {', '.join(sorted(SCALERS))}; for prometheus "
                f"{', '.join(sorted(PROMETHEUS_KEYS))}",
                "use one of these",
            ),
            Check(
                "kubernetes-scaler-metrics", metrics,
                "KEDA would read metrics of others",
                f"servers {scope.metrics_in_words}; queries whose every metric has "
                '{namespace="<its own>"}',
                "name the namespace in every selector",
            ),
        ),
        {"triggers": "object.?spec.?triggers.orValue([])"},
        exempt=scope.platform,
    )  # fmt: skip
