"""What pods are refused for: their images, reaching into their nodes, GPUs of others, tokens.

The rules of `catalogue.pod_rules` are rendered; those that depend on the cluster or on
several fields are written here. One policy a topic, since namespaces are exempt by topic.
"""

import re
from collections.abc import Iterable
from typing import Final

from falaj.components.catalogue.clusters import CORDONED, SHARED_GPU, SYSTEM_TAINTS
from falaj.components.catalogue.pod_rules import CONTAINER_LISTS, POD_RULES, Field, PodRule
from falaj.components.kubernetes._placed import DATA_CLASS_LABEL
from falaj.components.kubernetes.admission.image_prefetch import holds_images
from falaj.components.kubernetes.admission.policy import (
    ACCOUNTS,
    ASKER,
    CLUSTER,
    NON_EMPTY,
    Check,
    ClusterScope,
    Policy,
    Target,
    each_container,
    images_pattern,
    is_own_address,
    is_own_host,
    literal,
    texts,
    when,
)
from falaj.components.kubernetes.admission.shapes import PodPolicy, Shape
from falaj.components.specification.node_pools import GPU_TAINT


def refused(policy: str, condition: str = "") -> tuple[Check, ...]:
    """The checks of the catalogue's rules that one policy refuses.

    Args:
        policy: what the rules call it in their `admission`.
        condition: a CEL expression that must hold for an object to be judged. Default: all are.
    """
    return tuple(check_of(each, condition) for each in POD_RULES if each.admission == policy)


def check_of(rule: PodRule, condition: str = "") -> Check:
    """The check of a declared rule; see `refused`."""
    wrong = " + ".join(part for each in rule.fields for part in unmet(each))
    conditions = [condition] if condition else []
    if rule.linux_only:
        conditions.append('variables.pod.?os.?name.orValue("") != "windows"')
    if conditions:
        wrong = f"({' && '.join(conditions)} ? {wrong} : [])"
    return _said(rule, wrong)


def _said(rule: PodRule, wrong: str) -> Check:
    """The check of a rule whose expression is given."""
    change = rule.remediation[0].lower() + rule.remediation[1:].rstrip(".")
    return Check(rule.id, wrong, rule.title, rule.allowed, change)


def unmet(
    field: Field, pod: str = "variables.pod", lists: Iterable[str] = CONTAINER_LISTS
) -> Iterable[str]:
    """CEL expressions for what doesn't have a field as it must be, each a list of texts.

    Args:
        field: the field.
        pod: the pod's spec.
        lists: the lists of containers that it has.
    """
    if field.scope != "containers":
        yield _unmet_of(pod, field)
    if field.scope != "pod":
        for each in lists:
            containers = f"{pod}.?{each}.orValue([])"
            if "[]" in field.path:
                found = f'{_unmet_of("c", field)}.join(", ")'
                yield f"{containers}.map(c, {found}){NON_EMPTY}"
            else:
                wrong, reason = _is_wrong("c", field.path, field), _reason("c", field.path, field)
                yield f"{containers}.filter(c, {wrong}).map(c, {reason})"


def _unmet_of(holder: str, field: Field) -> str:
    """The same of a pod, or of a container's list, in a variable of CEL."""
    before, is_list, after = field.path.partition("[]")
    if not is_list:
        wrong, reason = _is_wrong(holder, before, field), _reason(holder, before, field)
        return f"({wrong} ? [{reason}] : [])"
    wrong, reason = _is_wrong("i", after[1:], field), _reason("i", after[1:], field, holder)
    return f"{holder}.{_optional(before)}.orValue([]).filter(i, {wrong}).map(i, {reason})"


def _optional(path: str) -> str:
    return ".".join(f"?{key}" for key in path.split("."))


def _is_wrong(holder: str, path: str, field: Field) -> str:
    """Whether a field isn't as it must be; an item of a list has an empty path."""
    values = "[" + ", ".join(map(literal, field.values)) + "]"
    here = f"{holder}.{_optional(path)}" if path else ""
    if field.operator == "DoesNotExist":
        wrong = f"{here}.hasValue()"
    elif field.operator == "NotIn":
        wrong = (
            f"{here}.hasValue() && {holder}.{path} in {values}"
            if path
            else f"{holder} in {values}"
        )
    elif field.is_required:
        wrong = f"!({here}.hasValue() && {holder}.{path} in {values})"
    else:
        value = f"{here}.orValue({literal(field.values[0])})" if path else holder
        wrong = f"!({value} in {values})"
    if field.unless:
        return f"!variables.pod.{_optional(field.unless)}.orValue(false) && {wrong}"
    return wrong


def _reason(holder: str, path: str, field: Field, container: str = "") -> str:
    """The reason, with the container's name and the field's value in it."""
    below = ".".join(each for each in (path, field.detail) if each)
    value = f"{holder}.{path}"
    if field.detail:
        value = f"{holder}.{_optional(below)}.orValue({literal('a ' + field.key)})"
    words = {
        "{container}": f"{container or holder}.name",
        "{value}": f"string({value if below else holder})",
    }
    parts = (each for each in re.split(r"({\w+})", field.reason) if each)
    return " + ".join(words.get(each) or literal(each) for each in parts)


_PINNED = "^[^@]+@(?:sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128})$"
#: The distributor's own programs, which it brings and renews itself, from where: images of other
#: namespaces don't come from there.
#: https://learn.microsoft.com/en-us/azure/aks/outbound-rules-control-egress
CLUSTER_REGISTRIES = {"eks": (), "aks": ("mcr.microsoft.com",), "existing": ()}


def policies(scope: ClusterScope) -> tuple[Policy, ...]:
    """Policies of pods, and of tokens as they are asked for."""
    return (
        *_images(scope),
        *_host_access(scope),
        *_priorities(scope),
        *_names(scope),
        *_gpus(scope),
        *_tokens(scope),
    )


def _images(scope: ClusterScope) -> tuple[Policy, ...]:
    """Every container of every list, and every volume that is an image."""
    placed = scope.placed
    own = images_pattern((placed.registry, *scope.registries), scope.aws_regions)
    cluster_registries = CLUSTER_REGISTRIES[placed.distribution] + scope.cluster_registries
    of_cluster = images_pattern(
        (placed.registry, *scope.registries, *cluster_registries), scope.aws_regions
    )
    named = [placed.registry, *scope.registries]
    named += [f"*.dkr.ecr.{each}.amazonaws.com" for each in scope.aws_regions]
    in_cluster = f"request.namespace in {texts(CLUSTER)}"
    pattern = (
        f"({in_cluster} ? {literal(of_cluster)} : {literal(own)})"
        if of_cluster != own
        else literal(own)
    )
    # Clouds, and installers such as kubeadm, name the cluster's own programs by tags.
    pinned = f"!({in_cluster}) && !i.matches({literal(_PINNED)})"

    checks = (
        Check(
            "kubernetes-image-registry",
            f"variables.images.filter(i, !i.lowerAscii().matches({pattern}))",
            "images from registries that aren't allowed",
            ", ".join(named),
            "copy the image into one of them",
        ),
        Check(
            "kubernetes-image-digest",
            f"variables.images.filter(i, {pinned})",
            "images that aren't named by their digest",
            "REGISTRY/NAME@sha256:…",
            "append the digest; a tag may be moved",
        ),
    )

    images = " + ".join(
        f'variables.pod.?{each}.orValue([]).map(c, c.?image.orValue(""))'
        for each in CONTAINER_LISTS
    )
    images += (
        " + variables.pod.?volumes.orValue([]).filter(v, has(v.image))"
        '.map(v, v.image.?reference.orValue(""))'
    )
    of_pods = PodPolicy("images", lambda _: checks, {"images": images}).policies()
    return (*of_pods, _train_jobs(checks))


#: What a TrainJob changes of its runtime's pods has of the fields that rules judge, and no others:
#: https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/apis/trainer/v1alpha1/trainjob_types.go
_PATCHED_LISTS: Final = ("initContainers", "containers")
_PATCHED_FIELDS: Final = ("securityContext.", "volumes[]")


def _train_jobs(of_images: tuple[Check, ...]) -> Policy:
    """What a TrainJob says of its pods itself, at once.

    Its pods are judged as all are. But JobSet, who asks for them, tells of their refusal in an
    event of its own alone, while the queue keeps the job's quota for pods that never come.
    """
    patches = "object.spec.?runtimePatches.orValue([])"
    jobs = "p.?trainingRuntimeSpec.?template.?spec.?replicatedJobs.orValue([])"
    has_pod = "j.?template.?spec.?template.?spec.hasValue()"
    pods = f"{jobs}.filter(j, {has_pod}).map(j, j.template.spec.template.spec)"

    def of_patches(rule: PodRule) -> Check:
        parts = (part for each in rule.fields for part in unmet(each, "s", _PATCHED_LISTS))
        wrong = f'({" + ".join(parts)}).join(", ")'
        each = f'{pods}.map(s, {wrong}){NON_EMPTY}.join(", ")'
        return _said(rule, f"{patches}.map(p, {each}){NON_EMPTY}")

    judged = (
        each
        for each in POD_RULES
        if each.admission == "host-access"
        and all(field.path.startswith(_PATCHED_FIELDS) for field in each.fields)
    )
    return Policy(
        "train-jobs",
        (Target("trainer.kubeflow.org", "v1alpha1", ("trainjobs",)),),
        (*of_images, *map(of_patches, judged)),
        {"images": "object.spec.?trainer.?image.hasValue() ? [object.spec.trainer.image] : []"},
    )


def _host_access(scope: ClusterScope) -> tuple[Policy, ...]:
    """The baseline of Pod Security, without the labels by which it is switched."""
    checks = refused("host-access")
    return PodPolicy("host-access", lambda _: checks, exempt=scope.with_nodes).policies()


def _priorities(scope: ClusterScope) -> tuple[Policy, ...]:
    """Classes of priority: who names a higher one drives others from their nodes."""
    allowed = texts(("", *scope.priority_classes))
    name = 'variables.pod.?priorityClassName.orValue("")'
    check = Check(
        "cluster-priority-class",
        when(f"!({name} in {allowed})", name),
        "the priority is the system's, or of nobody known",
        ", ".join(scope.priority_classes),
        "name one of these, or list it in priority_classes",
    )
    return PodPolicy("priorities", lambda _: (check,), exempt=scope.platform).policies()


def _names(scope: ClusterScope) -> tuple[Policy, ...]:
    """Whom pods ask for names, and addresses that they give names to by themselves.

    A domain that is searched gets every name that isn't found elsewhere.
    """
    config = "variables.pod.?dnsConfig"
    server = is_own_address("s", scope.networks)
    domain = is_own_host("s", scope.hosts_pattern, scope.networks)
    address = is_own_address("a.ip", scope.networks)
    checks = (
        Check(
            "kubernetes-dns",
            f"{config}.?nameservers.orValue([]).filter(s, !{server}) + "
            f'{config}.?searches.orValue([]).filter(s, s != "." && !{domain})',
            "names are asked elsewhere",
            "servers of one's own networks, and domains of one's own or in allowed_hosts",
            "remove them from dnsConfig: the cluster's own are asked",
        ),
        Check(
            "kubernetes-host-aliases",
            f'variables.pod.?hostAliases.orValue([]).filter(a, a.ip != "" && !{address})'
            ".map(a, a.ip)",
            "names are given to addresses elsewhere",
            "addresses of one's own networks",
            "remove them from hostAliases, and name the host in allowed_hosts",
        ),
        *refused("names"),
    )
    return PodPolicy("names", lambda _: checks, exempt=scope.with_nodes).policies()


#: Operators of pods' resources that a GPU, or a part of one, is called by.
_GPU = 'k.startsWith("nvidia.com/")'


def _gpus(scope: ClusterScope) -> tuple[Policy, ...]:
    """Tolerations, which let pods onto machines that are kept free, and GPUs that are shared."""
    return (
        *PodPolicy("tolerations", _tolerations, exempt=scope.with_nodes).policies(),
        *PodPolicy(
            "gpus",
            lambda shape: (_shared(scope, shape), _runtime_class(scope)),
            exempt=scope.with_nodes,
        ).policies(),
    )


def _tolerations(shape: Shape) -> tuple[Check, ...]:
    asks = " || ".join(
        f"variables.pod.?{each}.orValue([]).exists(c, "
        f"c.?resources.?limits.orValue({{}}).exists(k, {_GPU} && "
        f'quantity(string(c.resources.limits[k])).isGreaterThan(quantity("0"))))'
        for each in CONTAINER_LISTS[:2]
    )
    # A claim doesn't say whether it is for a GPU, and none of a GPU is one all the same.
    gpu = f"({asks})"
    key = 't.?key.orValue("")'
    of_all = f'({key} == "" && t.?operator.orValue("") == "Exists")'
    of_system = f"{key} in {texts(SYSTEM_TAINTS)}"
    of_gpu = f"({key} == {literal(GPU_TAINT.key)} && !{gpu})"
    shown = f'({key} == "" ? "every taint" : {key})'
    # Its pods are on machines with GPUs for none of them; cordoned ones are added by DaemonSets'
    # own controller, to pods alone.
    excused = {GPU_TAINT.key, CORDONED} if shape.is_pod else {GPU_TAINT.key}
    return (
        Check(
            "kubernetes-tolerations",
            "variables.pod.?tolerations.orValue([]).filter(t, "
            f"{of_all} || {of_system} || {of_gpu})"
            f".filter(t, !({key} in {texts(excused)} && {holds_images(shape)})).map(t, {shown})",
            "taints are tolerated that keep nodes for others",
            f"single taints; {GPU_TAINT.key} with a GPU among the pod's resources",
            "remove the toleration, or ask for the GPU",
        ),
    )


def _shared(scope: ClusterScope, shape: Shape) -> Check:
    of_class = f'[?{literal(DATA_CLASS_LABEL)}].orValue("")'
    classes = (
        f"[object.metadata.?labels{of_class}, {shape.labels}{of_class}, "
        f"namespaceObject.metadata.?labels{of_class}]"
    )
    restricted = f'{classes}.exists(k, k == "restricted")'
    if scope.placed.data_class == "restricted":
        restricted = f'({restricted} || {classes}.all(k, k == ""))'
    limits = "c.?resources.?limits.orValue({})"
    shared = f"k.matches({literal(f'^(?:{SHARED_GPU})$')})"
    return Check(
        "kubernetes-shared-gpu",
        each_container(
            f"{restricted} && {limits}.exists(k, {shared})",
            f'c.name + " asks for " + {limits}.filter(k, {shared}).join(" and ")',
        ),
        "restricted data on parts of GPUs that keep no memory apart",
        "nvidia.com/gpu, nvidia.com/mig-…",
        "use whole GPUs, or MIG's partitions",
    )


def _runtime_class(scope: ClusterScope) -> Check:
    allowed = scope.runtime_classes
    name = 'variables.pod.?runtimeClassName.orValue("")'
    return Check(
        "cluster-runtime-class",
        f'({name} == "" || {name} in {texts(allowed)} ? [] : [{name}])',
        "the pod asks for another runtime",
        ", ".join(allowed),
        "remove runtimeClassName: the GPU operator's is the default on nodes with GPUs",
    )


_MOST_SECONDS = 86400
"""A day: what EKS asks for its pods' identities, the longest of the platforms' own.
https://docs.aws.amazon.com/eks/latest/userguide/pod-id-how-it-works.html"""
#: Whom the clouds' own webhooks make tokens for; and the mesh, secrets of Vault's kind.
AUDIENCES = {
    "eks": ("sts.amazonaws.com", "pods.eks.amazonaws.com"),
    "aks": ("api://AzureADTokenExchange",),
    "existing": (),
}
#: The volume that the API server adds for a pod's automatic token.
_AUTOMATIC = "kube-api-access-"


def _tokens(scope: ClusterScope) -> tuple[Policy, ...]:
    """Tokens in pods, tokens that are asked for, and secrets that are tokens."""
    return (
        *PodPolicy(
            "tokens", lambda shape: _in_pods(scope, shape), exempt=scope.platform
        ).policies(),
        Policy(
            "token-secrets",
            (Target("", "v1", ("secrets",)),),
            (
                Check(
                    "kubernetes-long-lived-token",
                    when(
                        'object.?type.orValue("") == "kubernetes.io/service-account-token"',
                        "object.metadata.?name.orValue(object.metadata.?generateName.orValue(\"\"))",
                    ),
                    "the secret is a token that never expires", "projected tokens",
                    "use a projected volume or the TokenRequest API",
                ),
            ),
        ),
        _token_requests(scope),
    )  # fmt: skip


def _in_pods(scope: ClusterScope, shape: Shape) -> tuple[Check, ...]:
    account = 'variables.pod.?serviceAccountName.orValue("")'
    default = f'({account} in ["", "default"])'
    if shape.is_pod:
        given = f"v.name.startsWith({literal(_AUTOMATIC)})"
        has = f"variables.pod.?volumes.orValue([]).exists(v, {given})"
    else:
        has = "variables.pod.?automountServiceAccountToken.orValue(false)"
    sources = (
        "variables.pod.?volumes.orValue([]).map(v, "
        "v.?projected.?sources.orValue([]).filter(s, has(s.serviceAccountToken) && {wrong})"
        '.map(s, {shown}).join(", "))' + NON_EMPTY
    )
    audience = 's.serviceAccountToken.?audience.orValue("")'
    allowed = ("", *AUDIENCES[scope.placed.distribution], *scope.audiences)
    seconds = "s.serviceAccountToken.?expirationSeconds.orValue(3600)"
    return (
        Check(
            "kubernetes-token-mount",
            when(f"{default} && {has}", '"default"'),
            "a token of the default service account is mounted, which all pods share",
            "automountServiceAccountToken: false, or an account of the program's own",
            "set it, or name the program's serviceAccountName",
        ),
        Check(
            "cluster-token-audience",
            sources.format(wrong=f"!({audience} in {texts(allowed)})", shown=audience),
            "tokens for others than the cluster and its cloud",
            ", ".join(each for each in allowed if each) or "the cluster's own",
            "remove the token, or list whom it is for in token_audiences",
        ),
        Check(
            "cluster-token-lifetime",
            sources.format(
                wrong=f"{seconds} > {_MOST_SECONDS}", shown=f'string({seconds}) + " s"'
            ),
            "tokens that are valid for more than a day",
            f"expirationSeconds up to {_MOST_SECONDS}",
            "lower it: programs read the file again",
        ),
    )


def _token_requests(scope: ClusterScope) -> Policy:
    """Requests for tokens: those of another namespace are of another tenant."""
    own = f'{ASKER}.startsWith({literal(ACCOUNTS)} + request.namespace + ":")'
    platform = (
        f'{texts(scope.platform)}.exists(n, {ASKER}.startsWith({literal(ACCOUNTS)} + n + ":"))'
    )
    return Policy(
        "token-requests",
        (Target("", "v1", ("serviceaccounts/token",), ("CREATE",)),),
        (
            Check(
                "kubernetes-rbac-escalation",
                when(f"{ASKER}.startsWith({literal(ACCOUNTS)}) && !{own} && !{platform}", ASKER),
                "the token is of an account of another namespace, and asked for by",
                "accounts of its own namespace and of the platform",
                "use an account of one's own",
            ),
            Check(
                "cluster-token-lifetime",
                when(
                    f"object.spec.?expirationSeconds.orValue(3600) > {_MOST_SECONDS}",
                    "string(object.spec.expirationSeconds) + \" s\"",
                ),
                "the token would be valid for more than a day",
                f"expirationSeconds up to {_MOST_SECONDS}", "ask again instead",
            ),
        ),
        exempt=CLUSTER,
    )  # fmt: skip
