"""Kubernetes, for any nesting: pods are found wherever they stand, and hosts are what they are."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from falaj.components.catalogue.pod_rules import CONTAINER_LISTS
from falaj.policies.model import Context, FindingKind, Resource, Stack, read_settings
from falaj.policies.model.judge import evaluate
from falaj.policies.reading.images import is_allowed, parse
from falaj.policies.reading.kubernetes import all_manifests, manifests
from falaj.policies.reading.pods import TEMPLATES, pods_of
from falaj.policies.reading.services import may_reach
from falaj.policies.rules import rules_of

RULES = {each.id: each for each in rules_of("kubernetes")}
SETTINGS = read_settings({"allowedRegistries": ["registry.example.ae/team"]}, "a test")
DIGEST = "sha256:" + "0123456789abcdef" * 4
GOOD = f"123456789012.dkr.ecr.me-central-1.amazonaws.com/team/x@{DIGEST}"
KEYS = st.text("abcdefgXYZ", min_size=1, max_size=8).filter(
    lambda key: key not in {"image", "kind", "spec", "status"}
)
GROUPS = {"Pod": "core/v1", "PodTemplate": "core/v1", "ReplicationController": "core/v1",
          "Job": "batch/v1", "CronJob": "batch/v1"}  # fmt: skip


def found(rule: str, resource: Resource, stack: Stack | None = None) -> list[str]:
    """Paths of the violations."""
    judged = evaluate(RULES[rule], resource, Context(SETTINGS, stack or Stack((resource,))))
    return [each.path for each in judged.findings if each.kind is FindingKind.VIOLATION]


def nested(template: str, spec: dict[str, Any]) -> dict[str, Any]:
    body: dict[str, Any] = {"spec": spec}
    for key in reversed(template.split(".") if template else []):
        body = {key: body}
    return body


#: The way to a place at any depth: keys and positions.
STEPS = st.lists(KEYS | st.integers(0, 2), max_size=6)


def place(value: Any, steps: list[str | int]) -> Any:
    for step in reversed(steps):
        value = {step: value} if isinstance(step, str) else [{} for _ in range(step)] + [value]
    return value


@pytest.mark.parametrize("kind", sorted(TEMPLATES))
@given(where=st.sampled_from(CONTAINER_LISTS), before=st.integers(0, 3))
def test_a_foreign_image_in_every_kind_and_list(kind: str, where: str, before: int) -> None:
    containers = [{"name": f"c{index}", "image": GOOD} for index in range(before)]
    spec = {where: [*containers, {"name": "bad", "image": "docker.io/x:1"}]}
    resource = Resource(
        f"kubernetes:{GROUPS.get(kind, 'apps/v1')}:{kind}", "it", nested(TEMPLATES[kind], spec)
    )
    expected = ".".join(part for part in (TEMPLATES[kind], "spec", where) if part)
    assert found("kubernetes-image-registry", resource) == [f"{expected}[{before}].image"]
    as_list = Resource(f"{resource.type}List", "it", {"items": [{}, dict(resource.properties)]})
    assert found("kubernetes-image-registry", as_list) == [f"items[1].{expected}[{before}].image"]


@given(steps=STEPS, where=st.sampled_from(CONTAINER_LISTS))
def test_a_pod_anywhere_in_a_custom_object(steps: list[str | int], where: str) -> None:
    pod = {where: [{"name": "a", "image": "quay.io/x/y", "securityContext": {"privileged": True}}]}
    resource = Resource(
        "kubernetes:example.com/v1:Thing", "it", {"spec": {"a": place(pod, steps)}}
    )
    assert found("kubernetes-image-registry", resource)
    assert found("kubernetes-privileged-container", resource)
    assert found("kubernetes-run-as-non-root", resource)


@given(steps=STEPS)
def test_an_image_without_a_pod_in_a_custom_object(steps: list[str | int]) -> None:
    body = {"spec": {"a": place({"image": "ghcr.io/x/y:1"}, steps)}}
    resource = Resource("kubernetes:example.com/v1:Thing", "it", body)
    assert len(found("kubernetes-image-registry", resource)) == 1
    assert found("kubernetes-image-digest", resource)


@given(steps=STEPS)
def test_a_region_abroad_anywhere(steps: list[str | int]) -> None:
    selector = {"nodeSelector": {"topology.kubernetes.io/region": "eu-west-1"}}
    body = {"spec": {"a": place(selector, steps)}}
    resource = Resource("kubernetes:example.com/v1:Thing", "it", body)
    assert len(found("kubernetes-placement-abroad", resource)) == 1


@given(st.lists(st.booleans(), min_size=1, max_size=4), st.none() | st.booleans())
def test_non_root_as_the_standard_says(own: list[bool | None], of_pod: bool | None) -> None:
    containers = [
        {"name": "a", "securityContext": {} if each is None else {"runAsNonRoot": each}}
        for each in own
    ]
    spec: dict[str, Any] = {"containers": containers}
    if of_pod is not None:
        spec["securityContext"] = {"runAsNonRoot": of_pod}
    resource = Resource("kubernetes:core/v1:Pod", "it", {"spec": spec})
    allowed = of_pod is not False and all(each or (each is None and of_pod) for each in own)
    assert bool(found("kubernetes-run-as-non-root", resource)) is not allowed


@given(st.lists(st.sampled_from(["ALL", "NET_RAW", "all", "CAP_ALL"]), max_size=3))
def test_capabilities_as_the_standard_says(dropped: list[str]) -> None:
    context = {"capabilities": {"drop": dropped}}
    spec = {"containers": [{"name": "a", "securityContext": context}]}
    resource = Resource("kubernetes:core/v1:Pod", "it", {"spec": spec})
    assert bool(found("kubernetes-capabilities-restricted", resource)) is ("ALL" not in dropped)


LABEL = st.from_regex(r"[a-z][a-z0-9]{0,8}", fullmatch=True)


@given(LABEL, st.sampled_from(["com", "ae", "org", "evil.example"]))
def test_only_the_registry_itself_is_allowed(label: str, end: str) -> None:
    own = "123456789012.dkr.ecr.me-central-1.amazonaws.com"
    for host in (
        f"{own}.{label}.{end}", f"{label}{own}", f"{label}.{end}/{own}", f"{own}:5000",
        own.replace("me-central-1", "eu-west-1"), own.replace("123456789012", label),
        f"registry.example.ae.{label}.{end}/team", "registry.example.ae/teams",
    ):  # fmt: skip
        assert not is_allowed(parse(f"{host}/x@{DIGEST}"), SETTINGS), host
    for host in (own, own.upper(), f"{own}:443", "registry.example.ae/team"):
        assert is_allowed(parse(f"{host}/{label}@{DIGEST}"), SETTINGS), host


@pytest.mark.parametrize(
    ("reference", "host", "repository"),
    [
        ("nginx", "docker.io", "library/nginx"),
        ("index.docker.io/nginx", "docker.io", "library/nginx"),
        ("team/x:1", "docker.io", "team/x"),
        ("localhost/x", "localhost", "x"),
        ("a.ae:5000/b/c:1@" + DIGEST, "a.ae:5000", "b/c"),
        ("oci://a.ae/b", "a.ae", "b"),
        ("x:5000/y", "x:5000", "y"),
    ],
)
def test_references(reference: str, host: str, repository: str) -> None:
    image = parse(reference)
    assert (image.host, image.repository) == (host, repository)
    assert image.is_pinned is (DIGEST in reference)


@pytest.mark.parametrize(
    ("host", "own"),
    [
        ("otel.monitoring.svc", True), ("otel", True), ("otel.monitoring", False),
        ("0x08080808", False), ("134744072", False), ("evil.rocks", False),
        ("10.1.2.3", True), ("[fd00::1]", True), ("100.64.0.9", True),
        ("openai.com", False), ("partner.ai", False), ("203.0.113.4", False),
        ("8.8.8.8", False), ("x.s3.me-central-1.amazonaws.com", True),
        ("x.s3.eu-west-1.amazonaws.com", False), ("svc.cluster.local.evil.com", False),
    ],
)  # fmt: skip
def test_hosts_of_ones_own(host: str, own: bool) -> None:
    assert may_reach(f"https://{host}/x", SETTINGS) is own


def test_yaml_that_unfolds_without_end_is_unreadable() -> None:
    laughs = "a: &a [x, x]\n" + "".join(
        f"{name}: &{name} [{', '.join(['*' + before] * 9)}]\n"
        for before, name in zip("abcdefghi", "bcdefghij", strict=True)
    )
    for text in (laughs, "a: &a [*a]", "a: [", "\x00", "{" * 200_000, "- " * 100_000):
        resource = Resource("kubernetes:yaml/v2:ConfigGroup", "it", {"yaml": text})
        assert manifests(resource) == ()
        assert found("kubernetes-unreadable-manifests", resource) == ["yaml"]


def test_objects_inside_of_objects_are_judged_once() -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "spec": {"containers": [{"name": "a", "image": "x"}]},
    }
    work = Resource(
        "kubernetes:work.karmada.io/v1alpha1:Work",
        "it",
        {"spec": {"workload": {"manifests": [pod]}}},
    )
    assert [each.kind for each in all_manifests(Stack((work,)))] == ["Work", "Pod"]
    assert len(pods_of(work)) == 1
    assert found("kubernetes-image-registry", work) == [
        "spec.workload.manifests[0].spec.containers[0].image"
    ]
