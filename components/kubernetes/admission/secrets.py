"""Secrets and homes in pods, and objects that only the platform's owners change.

The API server asks nobody whether who starts a pod may read the secrets that it mounts: who may
start pods in a namespace reads them all, in the pods' own logs
(https://kubernetes.io/docs/concepts/security/rbac-good-practices/#workload-creation). Here whoever
writes a pod, or the template of one, with a secret in it has to be allowed to read secrets there;
so has whoever changes such a pod's specification, as another image or command would tell them.
Controllers make pods of templates that were judged.

A team's own pods use secrets whose names begin with `OPEN_PREFIX`.

Claims are likewise: whoever starts pods in a namespace mounts all that it has. Those whose names
begin with `HOME_PREFIX` are one person's, and only who may read secrets puts them into pods, makes
them, deletes them, or clones them into claims of another name.
"""

from falaj.components.catalogue.pipelines import LABEL, START_RIGHT
from falaj.components.catalogue.pod_rules import CONTAINER_LISTS
from falaj.components.kubernetes._placed import HOME_PREFIX, PROTECTED_LABEL
from falaj.components.kubernetes.admission.policy import (
    ACCOUNTS,
    ASKER,
    NON_EMPTY,
    Check,
    ClusterScope,
    Policy,
    Target,
    literal,
    texts,
)
from falaj.components.kubernetes.admission.shapes import SHAPES

OPEN_PREFIX = "team."
"""Beginning of the names of secrets that whoever starts pods in their namespace may use: no name
that a component gives has a dot."""
#: Controllers that make pods, jobs and replica sets of templates that are judged themselves.
_COPIERS = (f"{ACCOUNTS}kube-system:", f"{ACCOUNTS}jobset-system:")
_MANAGER = "system:kube-controller-manager"
#: Controllers that write templates for whoever asks, of kinds that no policy looks into, or that
#: complete those of others: none of them brings a secret in, whatever it may read itself.
_DELEGATES = tuple(
    f"{ACCOUNTS}{each}:" for each in ("kueue-system", "kubeflow-system", "kserve", "keda")
)
MAY_READ = (
    'authorizer.group("").resource("secrets").namespace(request.namespace).check("get").allowed()'
)
"""Whether the one who asks may read every secret of the namespace. Names aren't asked about one by
one: an expression may ask for rights twice, then its budget is spent
(k8s.io/apiserver, pkg/apis/cel/config.go and pkg/cel/library/cost.go)."""
_GROUP, _RESOURCE, _VERB = START_RIGHT
_STARTS = (
    'request.operation == "CREATE" && '
    f"authorizer.group({literal(_GROUP)}).resource({literal(_RESOURCE)})"
    f'.namespace(request.namespace).name(object.metadata.?labels[?{literal(LABEL)}].orValue("-"))'
    f".check({literal(_VERB)}).allowed()"
)
"""Whether a pipeline's starter makes a run of it: what differs from its template, which was judged
when it was made, another policy refuses (`pipelines`)."""


def policies(scope: ClusterScope) -> tuple[Policy, ...]:
    """Secrets and homes in pods and templates, protected objects, and homes themselves."""
    return (
        *(
            _use(
                scope, shape.name, shape.targets, f"[{shape.pod}]",
                {"has-a-template": shape.has} if shape.has else {},
            )
            for shape in SHAPES
        ),
        _use(
            scope, "job-sets", (Target("jobset.x-k8s.io", "v1alpha2", ("jobsets",)),),
            "object.spec.?replicatedJobs.orValue([]).map(j, j.template.spec.template.spec)", {},
            also=_STARTS,
        ),
        _protected(scope),
        _homes(),
    )  # fmt: skip


def _use(
    scope: ClusterScope,
    name: str,
    targets: tuple[Target, ...],
    pods: str,
    conditions: dict[str, str],
    *,
    also: str = "",
) -> Policy:
    """The policy for the kinds of ``targets``, whose pods' specifications are ``pods`` in CEL.

    ``also`` is who may besides, in CEL.
    """
    before = pods.replace("object.", "oldObject.")

    def permitted(found: str) -> str:
        return (
            f"{_is_one_of(_COPIERS)} || {ASKER} == {literal(_MANAGER)} || "
            f"({_is_one_of(_DELEGATES)} "
            f"? variables.{found}.all(s, s in variables.{found}_before) "
            f": (variables.pods == variables.before || {MAY_READ}))"
            + (f" || ({also})" if also else "")
        )

    return Policy(
        f"secret-use-{name}",
        targets,
        (
            Check(
                "cluster-secret-use",
                "variables.used",
                "who asks may not read the secrets of the namespace, but a pod uses",
                f"secrets that are called {OPEN_PREFIX}…",
                "have the team's administrators make one of such a name, or the platform's owners "
                "deploy the pod",
                permitted=permitted("used"),
            ),
            Check(
                "cluster-home-use",
                "variables.homes",
                "the pod would have the home of one person",
                f"claims that aren't called {HOME_PREFIX}…",
                "use a claim of the team's, or have the platform's owners deploy the pod",
                permitted=permitted("homes"),
            ),
        ),
        {
            "pods": pods,
            "before": f'request.operation == "CREATE" ? [] : {before}',
            "used": _used("variables.pods"),
            "used_before": _used("variables.before"),
            "homes": _homes_of("variables.pods"),
            "homes_before": _homes_of("variables.before"),
        },
        conditions,
        scope.platform,
    )


def _is_one_of(beginnings: tuple[str, ...]) -> str:
    return f"{texts(beginnings)}.exists(a, {ASKER}.startsWith(a))"


def _used(pods: str) -> str:
    """Secrets that pods use and that aren't open, as a list of texts, in CEL.

    Kinds of volumes that the restricted standard forbids aren't looked into.
    """
    volume = (
        '([v.?secret.?secretName.orValue(""), '
        'v.?csi.?nodePublishSecretRef.?name.orValue("")] + '
        'v.?projected.?sources.orValue([]).map(s, s.?secret.?name.orValue("")))'
    )
    container = (
        '(c.?env.orValue([]).map(e, e.?valueFrom.?secretKeyRef.?name.orValue("")) + '
        'c.?envFrom.orValue([]).map(e, e.?secretRef.?name.orValue("")))'
    )
    pulled = 'p.?imagePullSecrets.orValue([]).map(s, s.?name.orValue(""))'
    lists = [
        f'{pods}.map(p, p.?volumes.orValue([]).map(v, {_closed(volume)}){NON_EMPTY}.join(", "))',
        f"{pods}.map(p, {_closed(pulled)})",
        *(
            f"{pods}.map(p, p.?{each}.orValue([]).map(c, {_closed(container)})"
            f'{NON_EMPTY}.join(", "))'
            for each in CONTAINER_LISTS
        ),
    ]
    return f"({' + '.join(lists)}){NON_EMPTY}"


def _closed(names: str) -> str:
    """Those of a list of names that are there and not open, as one text."""
    return f'{names}.filter(n, n != "" && !n.startsWith({literal(OPEN_PREFIX)})).join(", ")'


def _protected(scope: ClusterScope) -> Policy:
    """Objects that say whom a workload trusts: only who may read secrets changes them.

    Deployers and trainers write configuration, a tenant's administrators delete and make secrets.
    """
    marked = f"metadata.?labels[?{literal(PROTECTED_LABEL)}].hasValue()"
    was = f'(request.operation != "CREATE" && oldObject.{marked})'
    will_be = f'(request.operation != "DELETE" && object.{marked})'
    name = '(request.operation == "DELETE" ? oldObject : object).metadata.?name.orValue("")'
    operations = ("CREATE", "UPDATE", "DELETE")
    return Policy(
        "protected-objects",
        (
            Target("", "v1", ("configmaps", "secrets"), operations),
            Target("external-secrets.io", "v1", ("externalsecrets",), operations),
        ),
        (
            Check(
                "cluster-protected-object",
                f"({was} || {will_be} ? [{name}] : [])",
                "who asks may not read the secrets of the namespace, and changes whom a workload "
                "trusts",
                f"objects without the label {PROTECTED_LABEL}",
                "have the platform's owners change it",
                permitted=MAY_READ,
            ),
        ),
        exempt=scope.platform,
    )  # fmt: skip


def _is_home(name: str) -> str:
    return f"{name}.startsWith({literal(HOME_PREFIX)})"


def _sources(claim: str) -> str:
    """What a claim's specification is a clone of, as a list."""
    return (
        f'[{claim}.?dataSource.?name.orValue(""), {claim}.?dataSourceRef.?name.orValue("")]'
        f".filter(n, {_is_home('n')})"
    )


def _homes_of(pods: str) -> str:
    """Homes that pods mount, or clone into a volume of their own, as a list of texts."""
    claim = 'v.?persistentVolumeClaim.?claimName.orValue("")'
    mounted = (
        f"{pods}.map(p, p.?volumes.orValue([]).map(v, {claim})"
        f'.filter(n, {_is_home("n")}).join(", "))'
    )
    cloned = (
        f"{pods}.map(p, p.?volumes.orValue([]).filter(v, has(v.ephemeral)).map(v, "
        f"{_sources('v.ephemeral.?volumeClaimTemplate.?spec')}"
        '.join(", ")).filter(s, s != "").join(", "))'
    )
    return f'({mounted} + {cloned}).filter(s, s != "")'


CONTROLLERS = (
    f"({_is_one_of((f'{ACCOUNTS}kube-system:',))} || "
    f"{ASKER} in {texts((_MANAGER, 'system:kube-scheduler'))})"
)
"""Whether one of the system's controllers asks: they bind claims, choose nodes, and end what is
in a namespace with it."""


def _homes() -> Policy:
    """Claims that are homes: made, changed, deleted and cloned by the platform's owners alone."""
    name = '(request.operation == "DELETE" ? oldObject : object).metadata.name'
    changed = (
        'request.operation != "UPDATE" || object.spec != oldObject.spec || '
        "object.metadata.?labels.orValue({}) != oldObject.metadata.?labels.orValue({})"
    )
    cloned = f'(request.operation == "CREATE" ? {_sources("object.spec")} : [])'
    return Policy(
        "homes",
        (Target("", "v1", ("persistentvolumeclaims",), ("CREATE", "UPDATE", "DELETE")),),
        (
            Check(
                "cluster-home-change",
                f"({_is_home(name)} && ({changed}) ? [{name}] : [])",
                "the claim is the home of one person",
                f"claims that aren't called {HOME_PREFIX}…",
                "have the platform's owners change it",
                permitted=(
                    f'(request.operation != "CREATE" && {CONTROLLERS}) || {MAY_READ}'
                ),
            ),
            Check(
                "cluster-home-clone",
                cloned,
                "the claim would be a copy of the home of one person",
                f"claims that aren't called {HOME_PREFIX}… in dataSource and dataSourceRef",
                "copy what colleagues may have into a claim of the team's",
                permitted=MAY_READ,
            ),
        ),
    )  # fmt: skip
