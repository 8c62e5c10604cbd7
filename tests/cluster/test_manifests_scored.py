"""kube-score's verdict of all that stacks inside clusters are made of, and of their workloads.

Objects that components render, the children of charts that can be had, and the jobs that JobSet
makes of them. What it finds is mended, or listed here with the reason; what is listed and isn't
found any more has to be taken from the list.
https://github.com/zegl/kube-score/blob/master/README_CHECKS.md
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Final

import pytest

from falaj.components.catalogue.clusters import IMAGE_PREFETCH
from falaj.components.kubernetes._objects import Manifest
from falaj.engine.controlplane import binaries
from tests.cluster.made_by_controllers import made_of
from tests.cluster.stack_objects import STACKS, contents, of_teams
from tests.components.kubernetes.test_prefetch import rendered

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

TOOL: Final = "kube-score"
#: As good as it gets; below it, a check has something to say.
FULL: Final = 10
#: Checks that are off unless they are asked for, and hold here.
FURTHER: Final = ("container-seccomp-profile", "container-ports-check")
OUR_SERVICES: Final = "*/acme-serving/credit-v[78]"
#: By check: patterns of objects that it finds fault with, and why that stays.
ACCEPTED: Final[Mapping[str, Sequence[tuple[str, str]]]] = {
    "container-image-pull-policy": [
        ("*", "images are named by digest: another pull brings the same one"),
    ],
    "container-resources": [
        ("Deployment/*", "CPU isn't capped, so that controllers aren't throttled"),
        ("CronJob/*", "as above"),
    ],
    "container-ephemeral-storage-request-and-limit": [
        ("CronJob/*/velero/*", "it writes to no disk: its root is read-only"),
        ("DaemonSet/*/image-prefetch/*", "who asks for no disk goes first where one fills up"),
        ("Deployment/*/cert-manager/*", "charts' pods write to no disk either"),
        ("Deployment/*/envoy-gateway-system/*", "as above"),
        ("Deployment/*/jobset-system/*", "as above"),
        ("Deployment/*/kubeflow-system/*", "as above"),
        ("Deployment/*/kueue-system/*", "as above"),
    ],
    "container-security-context-user-group-id": [
        ("Deployment/*/cert-manager/*", "the numbers are the images' own, none of them root's"),
        ("Deployment/*/jobset-system/*", "as above"),
        ("Deployment/*/kubeflow-system/*", "as above"),
        ("Deployment/*/kueue-system/*", "as above"),
    ],
    "deployment-has-host-podantiaffinity": [
        (
            f"Deployment{OUR_SERVICES}",
            "spread by topologySpreadConstraints, which it doesn't read",
        ),
        ("Deployment/*", "charts' own, whose replicas the scheduler spreads by itself"),
    ],
    "deployment-replicas": [
        (f"Deployment{OUR_SERVICES}", "the scaler's to say"),
        ("Deployment/*/cert-manager/cert-manager", "one leads; certificates last for weeks more"),
        ("Deployment/*/cert-manager/cert-manager-cainjector", "as above"),
    ],
    "networkpolicy-targets-pod": [
        ("*", "pods come later, or of charts that can't be had here"),
    ],
    "pod-probes": [
        ("Deployment/*/cert-manager/cert-manager", "serves nobody that would wait for it"),
        ("Deployment/*/cert-manager/cert-manager-cainjector", "as above"),
    ],
}


@pytest.fixture(scope="module")
def tool() -> Path:
    return Path(binaries.ensure((TOOL,))[TOOL]) / TOOL


def _objects(place: str) -> list[Manifest]:
    found = contents(*STACKS[place], definitions=False)
    # No shipped stack keeps images on nodes.
    kept = [
        each
        for each in rendered(place).values()
        if each["kind"] == "DaemonSet" or each["metadata"].get("namespace") == IMAGE_PREFETCH
    ]
    objects = [*found.objects, *of_teams(place, found), *kept]
    sets = [each for each in objects if each["kind"] == "JobSet"]
    made = [one.manifest for each in sets for one in made_of(each)]
    return [*objects, *(each for each in made if each["kind"] == "Job")]


def _faults(tool: Path, objects: Sequence[Manifest]) -> list[tuple[str, str, str]]:
    """Check, object and what is said of it."""
    options = [f"--enable-optional-test={each}" for each in FURTHER]
    done = subprocess.run(
        [tool, "score", "-o", "json", "--kubernetes-version", "v1.36", *options, "-"],
        input="\n---\n".join(json.dumps(each) for each in objects),
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    judged: list[dict[str, Any]] = json.loads(done.stdout)
    return [
        (check["check"]["id"], each["object_name"], remark["summary"])
        for each in judged
        for check in each["checks"]
        if not check["skipped"] and check["grade"] < FULL
        for remark in check["comments"]
    ]


@pytest.mark.parametrize("place", STACKS)
def test_nothing_is_found_that_has_no_reason(charts: Path, tool: Path, place: str) -> None:
    assert any(charts.iterdir())
    objects = _objects(place)
    assert {"Deployment", "Job", "NetworkPolicy", "Service"} <= {each["kind"] for each in objects}
    faults = _faults(tool, objects)
    assert [each for each in faults if not _reasons(*each[:2])] == []
    known = {(check, pattern) for check, rows in ACCEPTED.items() for pattern, _ in rows}
    assert known - {used for check, name, _ in faults for used in _reasons(check, name)} == set()


def _reasons(check: str, name: str) -> set[tuple[str, str]]:
    return {(check, each) for each, _ in ACCEPTED.get(check, ()) if fnmatch(name, each)}


def test_a_container_as_root_is_found(tool: Path) -> None:
    careless = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "careless", "namespace": "acme-serving"},
        "spec": {
            "selector": {"matchLabels": {"app": "a"}},
            "template": {
                "metadata": {"labels": {"app": "a"}},
                "spec": {"containers": [{"name": "a", "image": "registry.acme.example/a:latest"}]},
            },
        },
    }
    found = {check for check, _, _ in _faults(tool, [careless])}
    assert found >= {
        "container-image-tag", "container-resources", "container-seccomp-profile",
        "container-security-context-readonlyrootfilesystem", "pod-networkpolicy",
    }  # fmt: skip
