"""The Pod Security Standards' own test pods, as Kubernetes generates them, under Falaj's policies.

They lie in the Go module of the standards' admission, at the version of the test control plane:
k8s.io/pod-security-admission, test/testdata, which its `TestFixtures` writes by its generators.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from falaj.engine.controlplane import ControlPlane, binaries
from falaj.engine.controlplane.objects import SIDE_BY_SIDE
from falaj.engine.gobuild import module_folders
from falaj.engine.progress import to_stderr
from falaj.policies.model import Settings
from falaj.policies.model.judge import Judge
from falaj.policies.rules import all_rules
from tests.cluster.residency_cases import found_by_packs
from tests.cluster.residency_cluster import install, namespace, refusal
from tests.cluster.tenancy import (
    DIGEST,
    PLATFORM,
    SITE,
    counted,
    eventually,
    platform_of,
    tenant_objects,
)

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

MODULE: Final = "k8s.io/pod-security-admission"
TENANT, UNMARKED = "acme-training", "unmarked"
PACKS = Settings(
    allowed_registries=(PLATFORM["registry"],),
    allowed_sites=(SITE.region,),
)
#: By the standard's check, the packs' rule that judges the same.
RULES: Final[Mapping[str, str]] = {
    "allowprivilegeescalation": "kubernetes-privilege-escalation",
    "apparmorprofile": "kubernetes-apparmor",
    "capabilities_baseline": "kubernetes-capabilities-baseline",
    "capabilities_restricted": "kubernetes-capabilities-restricted",
    "hostnamespaces": "kubernetes-host-namespaces",
    "hostpathvolumes": "kubernetes-host-path",
    "hostports": "kubernetes-host-port",
    "hostprobesandhostlifecycle": "kubernetes-probe-host",
    "privileged": "kubernetes-privileged-container",
    "procmount": "kubernetes-proc-mount",
    "procmount_restricted": "kubernetes-proc-mount",
    "restrictedvolumes": "kubernetes-volume-types",
    "runasnonroot": "kubernetes-run-as-non-root",
    "runasuser": "kubernetes-run-as-user",
    "seccompprofile_baseline": "kubernetes-seccomp-unconfined",
    "seccompprofile_restricted": "kubernetes-seccomp",
    "selinuxoptions": "kubernetes-selinux",
    "sysctls": "kubernetes-sysctls",
    "windowshostprocess": "kubernetes-host-process",
}
#: Checks that Falaj's own policies make as well, whatever a namespace is labelled.
OURS: Final = frozenset({
    "capabilities_baseline", "hostnamespaces", "hostpathvolumes", "hostports", "privileged",
    "windowshostprocess",  # such a pod shares its node's network
})  # fmt: skip
#: What the API server itself refuses before the standard is asked, by check.
INVALID: Final[Mapping[str, str]] = {"procmount": "`hostUsers` must be false to use `Unmasked`"}
#: What the packs say of pods that the standard allows, each with the reason.
STRICTER: Final[Mapping[str, str]] = {
    "kubernetes-default-deny": "a pod by itself has no NetworkPolicy: a matter of the whole stack",
}


@pytest.fixture(scope="module")
def fixtures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the standard's levels and versions."""
    scratch = tmp_path_factory.mktemp("standards") / "module"
    module = binaries.built()[binaries.CORE].module
    return module_folders(module, [MODULE], scratch, to_stderr)[MODULE] / "test" / "testdata"


@pytest.fixture(scope="module")
def plane(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    with platform_of(control_plane) as found:
        found.apply(tenant_objects("acme"))
        found.apply([namespace(UNMARKED, "privileged")])
        install(found, PLATFORM)
        eventually("quotas are counted", lambda: counted(found, TENANT))
        yield found


def _version() -> str:
    """The version of the standard that tenants' namespaces enforce."""
    labels = next(
        each["metadata"]["labels"]
        for each in tenant_objects("acme")
        if each["kind"] == "Namespace"
    )
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    return str(labels["pod-security.kubernetes.io/enforce-version"])


def _pods(fixtures: Path, verdict: str, level: str = "restricted") -> dict[str, dict[str, Any]]:
    """Pods by name, as they may be in a tenant's namespace but for what they are about."""
    files = sorted((fixtures / level / _version() / verdict).glob("*.yaml"))
    return {each.stem: _fine(yaml.safe_load(each.read_text("utf-8"))) for each in files}


def _fine(pod: dict[str, Any]) -> dict[str, Any]:
    """What Falaj asks of every pod, which the standard says nothing of."""
    pod["metadata"] |= {"namespace": TENANT, "name": pod["metadata"]["name"].replace("_", "-")}
    spec = pod["spec"]
    spec |= {
        "serviceAccountName": "trainer",
        "automountServiceAccountToken": False,
        "nodeSelector": {"topology.kubernetes.io/region": SITE.region},
    }
    size = {"cpu": "1", "memory": "1Gi"}
    for each in (*spec["containers"], *spec.get("initContainers", [])):
        each["image"] = DIGEST
        each["resources"] = {"requests": size, "limits": size}
        if spec.get("os", {}).get("name") != "windows":
            each.setdefault("securityContext", {}).setdefault("readOnlyRootFilesystem", True)
    return pod


def _check(name: str) -> str:
    """The check that a pod is about."""
    return re.sub(r"\d+$", "", name)


def _said(plane: ControlPlane, pods: Mapping[str, dict[str, Any]]) -> dict[str, str]:
    """By pod, what the API server says; empty where it takes it."""
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        answers = list(pool.map(lambda each: refusal(plane, each, create=True), pods.values()))
    return dict(zip(pods, answers, strict=True))


def test_every_check_of_the_standard_is_known_here(fixtures: Path) -> None:
    assert {_check(each) for each in _pods(fixtures, "fail")} == RULES.keys()
    assert len(_pods(fixtures, "fail")) > 70
    assert len(_pods(fixtures, "pass")) > 20


def test_what_the_standard_forbids_a_tenant_is_refused(
    plane: ControlPlane, fixtures: Path
) -> None:
    said = _said(plane, _pods(fixtures, "fail"))
    wrong = {
        name: why
        for name, why in said.items()
        if INVALID.get(_check(name), "violates PodSecurity") not in why
    }
    assert wrong == {}


def test_what_the_standard_allows_is_taken(plane: ControlPlane, fixtures: Path) -> None:
    said = _said(plane, _pods(fixtures, "pass"))
    assert {name: why for name, why in said.items() if why} == {}


def test_the_packs_find_what_the_standard_forbids(fixtures: Path) -> None:
    judge = Judge(all_rules(), PACKS)
    missed = {
        name: RULES[_check(name)]
        for name, pod in _pods(fixtures, "fail").items()
        if RULES[_check(name)] not in found_by_packs(pod, judge)
    }
    assert missed == {}


def test_the_packs_take_what_the_standard_allows(fixtures: Path) -> None:
    judge = Judge(all_rules(), PACKS)
    found = {
        name: found_by_packs(pod, judge) - STRICTER.keys()
        for name, pod in _pods(fixtures, "pass").items()
    }
    assert {name: rules for name, rules in found.items() if rules} == {}


def test_a_namespace_without_the_standard_is_held_to_what_is_ours(
    plane: ControlPlane, fixtures: Path
) -> None:
    """As one that is older than the policies, whose label nobody changed."""
    pods = _pods(fixtures, "fail", "baseline")
    for each in pods.values():
        each["metadata"]["namespace"] = UNMARKED
        each["spec"]["serviceAccountName"] = "default"
    said = _said(plane, pods)
    wrong = {
        name: why
        for name, why in said.items()
        if ("ValidatingAdmissionPolicy 'falaj-" in why) is not (_check(name) in OURS)
    }
    assert wrong == {}
