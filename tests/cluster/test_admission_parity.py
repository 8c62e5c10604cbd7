"""The API server's verdict of pods is that of the packs' rules, whatever the pod says.

Rules that the catalogue declares are judged one by one, too, with every value that they name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from falaj.components.catalogue.pod_rules import POD_RULES, Field, Value
from falaj.components.kubernetes.admission.policy import Policy, manifests
from falaj.components.kubernetes.admission.shapes import SHAPES
from falaj.components.kubernetes.admission.workloads import check_of
from falaj.components.kubernetes.residency import check, policies
from falaj.engine.controlplane import ControlPlane, start
from falaj.engine.controlplane.objects import wait_for
from tests.cluster.residency_cases import (
    DIGEST,
    PLAIN,
    REGISTRY,
    RESIDENCY,
    found_by_packs,
    in_kind,
    merged,
)
from tests.cluster.residency_cluster import account, namespace, refusal

pytestmark = pytest.mark.cluster

#: Pods at once: the API server takes its time for each.
BATCH = 8
EXAMPLES = 30
#: Rules that see one pod by itself, and that both judge.
BOTH = frozenset({
    each.rule
    for policy in policies(check("residency", RESIDENCY))
    if policy.name.endswith("-templates")
    for each in policy.checks
}) - {"cluster-runtime-class", "cluster-token-audience", "cluster-token-lifetime",
      "kubernetes-token-mount"}  # fmt: skip

_HOSTS = st.sampled_from([
    REGISTRY, "registry.falaj.example.ae:5000/team", "docker.io", "", "quay.io/x",
    "759879836304.dkr.ecr.me-central-1.amazonaws.com", "Registry.falaj.example.ae:5000",
    "123456789012.dkr.ecr.eu-west-1.amazonaws.com", "registry.falaj.example.ae",
    "registry.falaj.example.ae:5000.evil.com", "123456789012.dkr.ecr.me-central-1.amazonaws.com",
])  # fmt: skip
_ENDS = st.sampled_from([f"@{DIGEST}", f":1@{DIGEST}", ":latest", "", f"@{DIGEST[:-1]}"])
_IMAGES = st.builds(lambda host, end: f"{host}/x{end}".lstrip("/"), _HOSTS, _ENDS)
_PLACES = st.sampled_from(["me-central-1", "eu-west-1", "me-central-1a", "eu-central-1a",
                           "mec1-az1", "euw1-az2", "frankfurt"])  # fmt: skip
_KEYS = st.sampled_from(["topology.kubernetes.io/region", "topology.kubernetes.io/zone",
                         "topology.k8s.aws/zone-id", "falaj.io/pool",
                         "failure-domain.beta.kubernetes.io/region"])  # fmt: skip


def _form(key: str, value: str) -> str:
    """A place at home in the form that the key takes: packs take any form for the place itself,
    the cluster only what its nodes carry."""
    if value not in ("me-central-1", "me-central-1a", "mec1-az1"):
        return value
    return "me-central-1" if key.endswith("region") else "me-central-1a"


_EXPRESSIONS = st.builds(
    lambda key, operator, values: {
        "key": key, "operator": operator,
        **({"values": [_form(key, each) for each in values]} if "In" in operator else {}),
    },
    _KEYS, st.sampled_from(["In", "NotIn", "Exists"]),
    st.lists(_PLACES, min_size=1, max_size=2, unique=True),
)  # fmt: skip
_TERMS = st.lists(
    st.builds(lambda each: {"matchExpressions": each}, st.lists(_EXPRESSIONS, max_size=2)),
    min_size=1, max_size=2,
)  # fmt: skip
_AFFINITY = st.builds(
    lambda terms: {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}
        }
    },
    _TERMS,
)
_TOLERATIONS = st.lists(
    st.sampled_from([
        {"operator": "Exists"}, {"key": "nvidia.com/gpu", "operator": "Exists"},
        {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"},
        {"key": "CriticalAddonsOnly", "operator": "Exists"},
        {"operator": "Exists", "effect": "NoSchedule"},
    ]),
    max_size=2,
)  # fmt: skip
_CONTAINERS = st.fixed_dictionaries(
    {"image": _IMAGES},
    optional={
        "resources": st.sampled_from([
            {"limits": {"nvidia.com/gpu": "1"}}, {"limits": {"nvidia.com/gpu.shared": "1"}},
        ]),
        "securityContext": st.sampled_from([
            {"privileged": True, "allowPrivilegeEscalation": True}, {"privileged": False},
            {"capabilities": {"add": ["SYS_ADMIN"]}},
            {"capabilities": {"add": ["NET_BIND_SERVICE"]}},
        ]),
        "ports": st.sampled_from([
            [{"containerPort": 80}], [{"containerPort": 80, "hostPort": 80}],
        ]),
    },
)  # fmt: skip
_VOLUMES = st.lists(
    st.sampled_from([
        {"name": "a", "emptyDir": {}}, {"name": "b", "hostPath": {"path": "/etc"}},
        {"name": "c", "image": {"reference": f"ghcr.io/x@{DIGEST}"}},
        {"name": "d", "image": {"reference": f"{REGISTRY}/model@{DIGEST}"}},
    ]),
    max_size=2, unique_by=lambda each: each["name"],
)  # fmt: skip
#: One thing that a pod says: two of them at most, so that many pods are fine, and others are wrong
#: in one way.
_SAID: list[st.SearchStrategy[dict[str, Any]]] = [
    st.builds(lambda each: {"containers": [each]}, _CONTAINERS),
    st.builds(lambda each: {"containers": [{"image": each}]}, _IMAGES),
    st.builds(lambda each: {"volumes": each}, _VOLUMES),
    st.builds(lambda each: {"tolerations": each}, _TOLERATIONS),
    st.builds(
        lambda each: {"nodeSelector": {key: _form(key, value) for key, value in each.items()}},
        st.dictionaries(_KEYS, _PLACES, max_size=2),
    ),
    st.builds(lambda each: {"affinity": each}, _AFFINITY),
    st.builds(lambda each: {"affinity": each, "nodeSelector": {}}, _AFFINITY),
    st.builds(lambda each: {"hostPID": each}, st.booleans()),
    st.builds(lambda each: {"nodeName": each}, st.sampled_from(["", "cpu-0001"])),
    st.builds(
        lambda image: {
            "initContainers": [{**PLAIN["containers"][0], "name": "i", "image": image}]
        },
        _IMAGES,
    ),
]
_PODS = st.lists(st.one_of(_SAID), max_size=2).map(
    lambda each: {key: value for said in each for key, value in said.items()}
)
_KINDS = st.sampled_from(["Pod", "Deployment", "Job", "CronJob", "StatefulSet"])


@pytest.fixture
def plane(residency_plane: ControlPlane) -> ControlPlane:
    return residency_plane


def _object(kind: str, pod: dict[str, Any], label: str) -> dict[str, Any]:
    base = {**PLAIN, "nodeSelector": {}} if "nodeSelector" in pod else PLAIN
    labels = {"falaj.io/data-class": label}
    return in_kind(kind, "legacy", merged(base, pod), labels)


#: Verdicts of the API server, by kind, and the rules that it named.
SEEN: dict[str, set[str]] = {"taken": set(), "denied": set(), "rules": set()}


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    given_pods=st.lists(
        st.tuples(_KINDS, _PODS, st.sampled_from(["restricted", "internal"])),
        min_size=BATCH, max_size=BATCH,
    )
)  # fmt: skip
def test_verdicts_agree(
    plane: ControlPlane, given_pods: list[tuple[str, dict[str, Any], str]]
) -> None:
    """Denied by a policy of admission where a rule of the packs is violated, and only there."""
    objects = [_object(*each) for each in given_pods]
    with ThreadPoolExecutor(BATCH) as pool:
        said = list(pool.map(lambda each: refusal(plane, each), objects))
    for each, denial in zip(objects, said, strict=True):
        found = found_by_packs(each) & BOTH
        denied = "ValidatingAdmissionPolicy" in denial
        if not denied and denial:
            continue  # Not a pod at all, by the API server's own rules.
        assert denied == bool(found), (each, denial, found)
        SEEN["denied" if denied else "taken"].add(each["kind"])
        if denied:
            rule = denial.rpartition("(")[2].rstrip(")")
            SEEN["rules"].add(rule)
            assert rule in found, (each, denial, found)


def test_both_verdicts_were_seen_of_every_kind() -> None:
    """Else the property above would have said little."""
    kinds = {"Pod", "Deployment", "Job", "CronJob", "StatefulSet"}
    assert SEEN["taken"] == SEEN["denied"] == kinds
    assert len(SEEN["rules"]) >= 8


#: Values that the API server takes and that no rule allows, by the field's last key.
_WRONG: dict[str, Value] = {
    "type": "Unconfined", "procMount": "Unmasked", "add": "SYS_ADMIN", "hostPort": 8080,
    "runAsUser": 0, "nodeName": "cpu-0001",
}  # fmt: skip
#: What the API server wants beside a field, by the key of what holds it.
_BESIDE: dict[str, dict[str, Any]] = {
    "httpGet": {"port": 80}, "tcpSocket": {"port": 80}, "ports": {"containerPort": 80},
    "volumes": {"name": "v"}, "hostPath": {"path": "/etc"}, "csi": {"driver": "x.example.ae"},
}  # fmt: skip
_NAMESPACE = "declared"


def _with(path: str, value: Any) -> dict[str, Any]:
    """An object with nothing but a value at a path of a declaration."""
    for part in reversed(path.split(".")):
        key = part.removesuffix("[]")
        if isinstance(value, Mapping):
            value = {**_BESIDE.get(key, {}), **value}
        value = {key: [value] if part.endswith("[]") else value}
    return value


def _values(field: Field) -> list[Any]:
    if field.operator == "DoesNotExist":
        return [{}]
    values: list[Any] = [*field.values, _WRONG.get(field.key, "other")]
    return [True, False] if isinstance(field.values[0], bool) else values


def _said(field: Field) -> Iterator[dict[str, Any]]:
    """Pods that say each of the values, on the pod and on containers of each list."""
    for value in _values(field):
        said = _with(field.path, value)
        if field.scope != "containers":
            yield said
        if field.scope != "pod":
            context = said.get("securityContext", {})
            if context.get("privileged"):
                said = {"securityContext": {**context, "allowPrivilegeEscalation": True}}
            # /proc is unmasked in user namespaces alone.
            pod = {"hostUsers": False} if field.key == "procMount" else {}
            yield {**pod, "containers": [said]}
            yield {**pod, "initContainers": [{**PLAIN["containers"][0], "name": "i", **said}]}


@pytest.fixture
def with_declared() -> Iterator[ControlPlane]:
    """A control plane with all of the catalogue's rules of pods as one policy, and no other."""
    (pods,) = (each for each in SHAPES if each.is_pod)
    checks = tuple(check_of(each) for each in POD_RULES)
    policy = Policy("declared", pods.targets, checks, {"pod": pods.pod})
    with start() as plane:
        plane.apply([namespace(_NAMESPACE, "privileged"), account("trainer", _NAMESPACE)])
        plane.apply(list(manifests((policy,), {}, {})))
        yield plane


def test_each_declared_rule_is_judged_alike(with_declared: ControlPlane) -> None:
    """A declaration means the same in CEL and in Python, whether `Residency` renders it or not."""
    plane = with_declared
    objects = [
        in_kind("Pod", _NAMESPACE, merged(PLAIN, said), {})
        for rule in POD_RULES
        for field in rule.fields
        for said in _said(field)
    ]
    root = in_kind("Pod", _NAMESPACE, merged(PLAIN, {"securityContext": {"runAsUser": 0}}), {})
    wait_for(lambda: "kubernetes-run-as-user" in refusal(plane, root), "the policy to hold", 60)
    with ThreadPoolExecutor(BATCH) as pool:
        said = list(pool.map(lambda each: refusal(plane, each), objects))
    declared = {each.id for each in POD_RULES}
    seen: set[str] = set()
    for each, denial in zip(objects, said, strict=True):
        found = found_by_packs(each) & declared
        if denial and "ValidatingAdmissionPolicy" not in denial:
            continue  # Not a pod at all, by the API server's own rules.
        assert bool(denial) == bool(found), (each, denial, found)
        if denial:
            seen.add(denial.rpartition("(")[2].rstrip(")"))
            assert seen <= declared
            assert denial.rpartition("(")[2].rstrip(")") in found, (each, denial, found)
    # The API server itself takes no such pod without the node's network, another rule's matter.
    assert declared - seen <= {"kubernetes-host-process"}
